"""What an ask's constraints make of every node, as far as the node alone decides it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shared.messages.constraints import Constraints
from shared.messages.selectors import (
    SOFT_EFFECT,
    is_tolerated,
    selects,
    term_matches,
    tolerates,
)

if TYPE_CHECKING:
    from services.core.scheduler.nodes import Node
    from services.core.scheduler.shapes import Shape

FULL_MARKS = 100


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """One value a row: may it be taken, would it be but for taints, and how it is liked."""

    eligible: NDArray[np.bool_]
    selected: NDArray[np.bool_]
    preferred: NDArray[np.int64]  # the sum of the weights of the preferred terms that match
    soft_taints: NDArray[np.int64]  # PreferNoSchedule taints that are not tolerated


def view_of(constraints: Constraints, rows: "list[Node]") -> NodeView:
    """Compare constraints with every node; the answer stands until nodes or labels change."""
    selected = [selects(constraints, node.node_id, node.labels) for node in rows]
    eligible = [
        wanted and is_tolerated(constraints, node.taints)
        for wanted, node in zip(selected, rows, strict=True)
    ]
    terms = constraints.preferred_nodes
    preferred = [
        sum(term.weight for term in terms if term_matches(term, node.node_id, node.labels))
        for node in rows
    ]
    soft = [
        sum(
            taint.effect == SOFT_EFFECT and not tolerates(constraints.tolerations, taint)
            for taint in node.taints
        )
        for node in rows
    ]
    return NodeView(
        np.array(eligible, dtype=np.bool_),
        np.array(selected, dtype=np.bool_),
        np.array(preferred, dtype=np.int64),
        np.array(soft, dtype=np.int64),
    )


def normalised(scores: NDArray[np.int64], *, is_less_better: bool) -> NDArray[np.int64]:
    """Return scores from 0 to 100, the best 100; scores that are all alike are all 0."""
    low, high = int(scores.min()), int(scores.max())
    if low == high:
        return np.zeros(scores.size, dtype=np.int64)
    distance = high - scores if is_less_better else scores - low
    return distance * FULL_MARKS // (high - low)


def leaves_enough(node: "Node", shape: "Shape") -> bool:
    """Return whether a shape on a reserved node takes nothing that its reservations lack.

    Of every type that it takes there must be left at least what is reserved, now.
    """
    return all(
        taken <= 0 or node.available.get(name, 0) - taken >= wanted
        for reservation in node.reservations.values()
        for name, wanted in reservation.ask.shape.resource.items()
        for taken in (shape.resource.get(name, 0),)
    )
