"""Fair shares and trees of tasks, worked out by hand: no scheduler around them."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from services.core.scheduler.constraints.fair_share import Claim, divide
from services.core.scheduler.model.rows import Node
from services.core.scheduler.nodes.node_classes import NodeClasses
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import UNLIMITED


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (8, (1, 3), [2, 6]),
        (12, (1, 2, 3), [2, 4, 6]),
        (7, (2, 5), [2, 5]),
        (10, (1, 1), [5, 5]),
    ],
)
def test_what_is_over_the_quotas_is_divided_by_weight(total, weights, shares):
    claims = [
        Claim(number, 0, 0, UNLIMITED, Fraction(weight), 100)
        for number, weight in enumerate(weights)
    ]
    divide(total, claims)
    assert [claim.share for claim in claims] == shares


@dataclass(frozen=True)
class Waiter:
    order: tuple[int, int]


def test_a_group_lacks_as_many_members_as_it_needs_and_no_more():
    leaves = [
        Group(f"leaf{at}", min_tasks=1, tasks=[Waiter((at, 0)), Waiter((at, 1))]) for at in range(3)
    ]
    group = Group("both", min_groups=2, members=leaves)

    def nobody(_):
        return False

    def everybody(_):
        return True

    assert group.lacking(nobody, everybody) == [Waiter((0, 0)), Waiter((1, 0))]
    first = leaves[0].tasks[0]
    assert group.lacking(lambda task: task is first, everybody) == [Waiter((1, 0))]
    assert group.lacking(everybody, nobody) == []
    assert group.lacking(nobody, nobody) is None


def test_of_many_classes_of_nodes_the_small_ones_are_told_together_and_else_nobody_is():
    classes, mask = NodeClasses(), np.ones(12, dtype=np.bool_)
    for row in range(12):
        kind = min(row, 9)
        node = Node(f"n{row}", row, {"vcore": 1000 * (kind + 1)}, {}, {}, (), schedulable=True)
        node.row = row
        classes.write(node)
    few = classes.evidence(8, [("vcore", mask[:8], 8, "")], None)
    assert len(few.classes) == 8
    assert sum(dict(few.classes).values()) == 8
    assert "others" not in dict(few.classes)
    many = classes.evidence(12, [("vcore", mask, 12, "")], None)
    assert sum(dict(many.classes).values()) == 12
    assert dict(many.classes)["others"] == 2
