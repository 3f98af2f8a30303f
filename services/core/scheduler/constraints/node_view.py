"""What an ask's constraints make of every node, as far as the node alone decides it."""

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
    from services.core.scheduler.model.nodes import Node
    from services.core.scheduler.model.shapes import Shape

FULL_MARKS = 100


class NodeView:
    """One value a row: may it be taken, would it be but for taints, and how it is liked.

    It knows the rows up to the one that it was ``made`` for.
    """

    __slots__ = (
        "_constraints",
        "_eligible",
        "_preferred",
        "_selected",
        "_soft_taints",
        "eligible",
        "made",
        "preferred",
        "selected",
        "soft_taints",
    )

    eligible: NDArray[np.bool_]
    selected: NDArray[np.bool_]
    preferred: NDArray[np.int64]  # the sum of the weights of the preferred terms that match
    soft_taints: NDArray[np.int64]  # PreferNoSchedule taints that are not tolerated

    def __init__(self, constraints: Constraints) -> None:
        self.made = 0
        self._constraints = constraints
        self._eligible = np.zeros(0, dtype=np.bool_)
        self._selected = np.zeros(0, dtype=np.bool_)
        self._preferred = np.zeros(0, dtype=np.int64)
        self._soft_taints = np.zeros(0, dtype=np.int64)
        self._cut()

    def extend(self, rows: "list[Node]") -> None:
        """Compare the constraints with the rows that came since it was made."""
        more = len(rows) - self._eligible.size
        if more > 0:
            more = max(more, self._eligible.size)
            self._eligible = np.pad(self._eligible, (0, more))
            self._selected = np.pad(self._selected, (0, more))
            self._preferred = np.pad(self._preferred, (0, more))
            self._soft_taints = np.pad(self._soft_taints, (0, more))
        first, self.made = self.made, len(rows)
        for at in range(first, len(rows)):
            self._compare(at, rows[at])
        self._cut()

    def renew(self, node: "Node") -> None:
        """Compare the constraints with one node again: its labels, taints or row changed."""
        if node.row < self.made:
            self._compare(node.row, node)

    def shorten(self, count: int) -> None:
        """Forget the rows from one on."""
        if count < self.made:
            self.made = count
            self._cut()

    def _compare(self, row: int, node: "Node") -> None:
        constraints = self._constraints
        is_selected = selects(constraints, node.node_id, node.labels)
        self._selected[row] = is_selected
        self._eligible[row] = is_selected and is_tolerated(constraints, node.taints)
        self._preferred[row] = sum(
            term.weight
            for term in constraints.preferred_nodes
            if term_matches(term, node.node_id, node.labels)
        )
        self._soft_taints[row] = sum(
            taint.effect == SOFT_EFFECT and not tolerates(constraints.tolerations, taint)
            for taint in node.taints
        )

    def _cut(self) -> None:
        self.eligible = self._eligible[: self.made]
        self.selected = self._selected[: self.made]
        self.preferred = self._preferred[: self.made]
        self.soft_taints = self._soft_taints[: self.made]


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
