"""Classes of nodes for reports: by instance type, else by capacity.

Limit: MAX_CLASSES classes; further nodes are in OTHERS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.resource_history import INSTANCE_TYPE
from services.core.scheduler.model.rows import Node
from shared.model.amounts import amounts_text
from shared.model.reasons import NodeEvidence, NodeFailures

MAX_CLASSES = 64
MAX_SHOWN = 8  # classes in one refusal; the smaller ones are told together
OTHERS = "others"


class Failing(NamedTuple):
    """The rows that a filter refuses for one reason; ``detail`` as in ``NodeFailures``."""

    on: str
    rows: NDArray[np.bool_]
    number: int
    detail: str = ""


def split(
    on: str, rows: NDArray[np.bool_], codes: NDArray[np.int64], texts: Sequence[str]
) -> list[Failing]:
    """Return refused rows by reason; ``codes`` has the index in ``texts`` for each row."""
    numbers = np.bincount(codes[rows])
    found = np.flatnonzero(numbers).tolist()
    if len(found) == 1:
        return [Failing(on, rows, int(numbers[found[0]]), texts[found[0]])]
    return [Failing(on, rows & (codes == at), int(numbers[at]), texts[at]) for at in found]


@dataclass(frozen=True, slots=True)
class _Counted:
    """The number of the first rows in each class, largest first."""

    count: int
    shown: dict[int, str]  # by number; all others are summed up
    sizes: dict[str, int]
    only: str | None  # the name, if there is only one class


class NodeClasses:
    """The class of every row."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {OTHERS: 0}
        self._of: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self._counted: _Counted | None = None

    def write(self, node: Node) -> None:
        """Set the class of a node's row."""
        if node.row >= self._of.size:
            self._of = np.pad(self._of, (0, max(node.row + 1 - self._of.size, self._of.size)))
        name = node.attributes.get(INSTANCE_TYPE) or amounts_text(node.capacity)
        number = self._names.get(name, 0)
        if not number and len(self._names) <= MAX_CLASSES:
            number = self._names[name] = len(self._names)
        self._of[node.row] = number
        self._counted = None

    def evidence(
        self,
        count: int,
        failures: Sequence[Failing],
        nearest: tuple[Node, Mapping[str, int]] | None,
    ) -> NodeEvidence:
        """Return how many of ``count`` rows each filter refuses, by class, largest first."""
        counted = self._counted
        if counted is None or counted.count != count:
            counted = self._counted = self._count(count)
        found: list[NodeFailures] = []
        for on, mask, number, detail in failures:
            if number == count:
                numbers = counted.sizes
            elif counted.only is not None:
                numbers = {counted.only: number}
            else:
                numbers = self._by_class(counted.shown, self._of[:count][mask])
            found += [NodeFailures(name, on, nodes, detail) for name, nodes in numbers.items()]
        found.sort(key=lambda failure: -failure.nodes)
        node, lacks = nearest if nearest is not None else (None, {})
        return NodeEvidence(count, counted.sizes, tuple(found), node.node_id if node else "", lacks)

    def _count(self, count: int) -> _Counted:
        of = self._of[:count]
        sizes = np.bincount(of, minlength=len(self._names))
        order = np.argsort(-sizes, kind="stable")
        names = list(self._names)
        shown = {at: names[at] for at in order[:MAX_SHOWN].tolist() if sizes[at]}
        found = self._by_class(shown, of)
        return _Counted(count, shown, found, next(iter(found)) if len(found) == 1 else None)

    @staticmethod
    def _by_class(shown: Mapping[int, str], of: NDArray[np.int64]) -> dict[str, int]:
        """Return the number of some rows in each shown class, and in the others."""
        counts = np.bincount(of, minlength=max(shown, default=0) + 1)
        found = {name: int(counts[at]) for at, name in shown.items() if counts[at]}
        others = of.size - sum(found.values())
        if others:
            found[OTHERS] = found.get(OTHERS, 0) + others
        return found
