"""A tree of asks on nodes: all of it or none, each group in one domain, and what failed is undone."""

from dataclasses import dataclass
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from services.core.scheduler.model.rows import Node
from services.core.scheduler.place.place import Unplaced, place
from services.core.scheduler.statement.task_trees import Group
from shared.messages.interface import TopologyConstraint

IN_A_RACK = TopologyConstraint(("rack",), required="rack")


@dataclass(eq=False)
class Pod:
    """A pod that takes one of a node's places; ``after``: another must be placed before it."""

    order: int
    after: "Pod | None" = None


class OnRacks:
    """Nodes with so many places each, in racks."""

    def __init__(self, racks, *, goes_on):
        self.goes_on = goes_on
        self.nodes = [
            Node(f"{rack}-{at}", 0, {"places": places}, {}, {"rack": str(rack)}, (), True)
            for rack, nodes in enumerate(racks)
            for at, places in enumerate(nodes)
        ]
        self.log = []

    def left(self, node):
        return node.capacity["places"] - sum(on is node for _, on in self.log)

    def checkpoint(self):
        return len(self.log)

    def rollback(self, checkpoint):
        del self.log[checkpoint:]

    def waiting(self, leaf):
        return leaf.tasks

    def domains(self, group, where):
        if group.topology is None:
            return [where]
        racks = dict.fromkeys(node.labels["rack"] for node in where)
        return [[node for node in where if node.labels["rack"] == rack] for rack in racks]

    def nodes_for(self, tasks, where):
        for task in tasks:
            if task.after is not None and all(other is not task.after for other, _ in self.log):
                yield None
            yield next((node for node in where if self.left(node) > 0), None)

    def put(self, task, node):
        self.log.append((task, node))

    def refusal(self, task, placed):
        return task, len(placed)


RACKS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3)
SETS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3)


def tree_of(sets):
    """Return a root with a leaf for each number of pods; some of them are to be in one rack."""
    members = [
        Group(
            f"g{at}", tasks=[Pod(n) for n in range(number)], topology=IN_A_RACK if bound else None
        )
        for at, (number, bound) in enumerate(sets)
    ]
    return Group("root", members=members)


@given(RACKS, SETS, st.booleans(), st.booleans())
def test_a_tree_is_placed_whole_in_its_domains_or_not_at_all(racks, sets, goes_on, in_a_rack):
    placer, tree = OnRacks(racks, goes_on=goes_on), tree_of(sets)
    tree.topology = IN_A_RACK if in_a_rack else None
    found = place(placer, tree, placer.nodes)
    if isinstance(found, Unplaced):
        assert placer.log == []
        assert not in_a_rack or len(sets) > 1 or max(map(sum, racks)) < sets[0][0]
        return
    assert found == placer.log
    where = {id(task): node for task, node in found}
    assert len(where) == sum(number for number, _ in sets)
    assert all(placer.left(node) >= 0 for node in placer.nodes)
    bound = [group for group in (tree, *tree.members) if group.topology is not None]
    for group in bound:
        pods = group.tasks or [task for leaf in group.members for task in leaf.tasks]
        assert len({where[id(pod)].labels["rack"] for pod in pods}) == 1


@given(RACKS, st.integers(1, 6), st.booleans())
def test_like_pods_are_placed_wherever_there_is_a_placement(racks, number, in_a_rack):
    placer, tree = OnRacks(racks, goes_on=True), tree_of([(number, in_a_rack)])
    most = max(map(sum, racks)) if in_a_rack else sum(map(sum, racks))
    assert isinstance(place(placer, tree, placer.nodes), list) == (number <= most)


def test_a_leaf_that_waits_for_another_has_its_turn_when_that_was_placed():
    for goes_on, in_order in product((True, False), repeat=2):
        placer, first = OnRacks([[3]], goes_on=goes_on), Pod(0)
        leaves = [Group("first", tasks=[first]), Group("then", tasks=[Pod(0, after=first)])]
        tree = Group("root", members=leaves if in_order else leaves[::-1])
        found = place(placer, tree, placer.nodes)
        assert isinstance(found, list) == (goes_on or in_order)


def test_the_refusal_is_worked_out_beside_what_was_placed():
    placer, tree = OnRacks([[2], [1]], goes_on=True), tree_of([(1, False), (3, False)])
    found = place(placer, tree, placer.nodes)
    assert found == Unplaced((tree.members[1].tasks[2], 3))
    assert placer.log == []
