"""Classes of nodes: those that are alike to people, by instance type, else by what they can hold.

Limit: MAX_CLASSES are told apart; what comes later is OTHERS.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.resource_history import INSTANCE_TYPE
from services.core.scheduler.model.rows import Node
from shared.model.reasons import NodeEvidence, NodeFailures
from shared.model.resources import go_map

MAX_CLASSES = 64
MAX_SHOWN = 8  # classes in one refusal; the smaller ones are told together
OTHERS = "others"


class NodeClasses:
    """The class of every row."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {OTHERS: 0}
        self._of: NDArray[np.int64] = np.zeros(16, dtype=np.int64)

    def write(self, node: Node) -> None:
        """Note the class of a node's row."""
        if node.row >= self._of.size:
            self._of = np.pad(self._of, (0, max(node.row + 1 - self._of.size, self._of.size)))
        name = node.attributes.get(INSTANCE_TYPE) or go_map(node.capacity)
        number = self._names.get(name, 0)
        if not number and len(self._names) <= MAX_CLASSES:
            number = self._names[name] = len(self._names)
        self._of[node.row] = number

    def evidence(
        self,
        count: int,
        failures: Iterable[tuple[str, NDArray[np.bool_]]],
        nearest: tuple[Node, Mapping[str, int]] | None,
    ) -> NodeEvidence:
        """Return by class how many of the first ``count`` rows fail on what, the most first."""
        of = self._of[:count]
        sizes = np.bincount(of, minlength=len(self._names))
        order = np.argsort(-sizes, kind="stable")
        shown = [at for at in order[:MAX_SHOWN].tolist() if sizes[at]]
        names = list(self._names)
        rest = int(sizes.sum() - sizes[shown].sum())
        classes = {names[at]: int(sizes[at]) for at in shown}
        if rest:
            classes[OTHERS] = classes.get(OTHERS, 0) + rest
        found: list[NodeFailures] = []
        for on, mask in failures:
            counts = np.bincount(of[mask], minlength=len(names))
            others = int(counts.sum() - counts[shown].sum())
            for at in shown:
                number = int(counts[at]) + (others if not at else 0)
                if number:
                    found.append(NodeFailures(names[at], on, number))
            if others and 0 not in shown:
                found.append(NodeFailures(OTHERS, on, others))
        found.sort(key=lambda failure: -failure.nodes)
        node, lacks = nearest if nearest is not None else (None, {})
        return NodeEvidence(count, classes, tuple(found), node.node_id if node else "", lacks)
