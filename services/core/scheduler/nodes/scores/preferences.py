"""An ask's preferences, as in Kubernetes; they precede the configured score.

Each is normalised to 0 to 100 over the nodes that fit; their weights are Kubernetes' own.
Source: the Kubernetes documentation of node affinity, of taints, and of affinity between pods.
"""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, NodeColumns
from services.core.scheduler.nodes.node_view import ELIGIBLE, SELECTED, NodeViews
from services.core.scheduler.nodes.pod_topology import PodIndex
from shared.messages.constraints import NO_CONSTRAINTS
from shared.messages.selectors import SOFT_EFFECT, term_matches, tolerates

FULL_MARKS = 100
OF_NODES, OF_TAINTS, OF_PODS = 2, 3, 2  # Kubernetes' weights


class PreferredNodes:
    """The sum of the weights of the preferred terms that match a node."""

    is_of_labels = True

    def of_node(self, node: Node, shape: Shape) -> float:
        terms = shape.constraints.preferred_nodes
        return sum(term.weight for term in terms if term_matches(term, node.node_id, node.labels))


class SoftTaints:
    """The number of PreferNoSchedule taints that are not tolerated."""

    is_of_labels = True

    def of_node(self, node: Node, shape: Shape) -> float:
        tolerations = shape.constraints.tolerations
        soft = (taint for taint in node.taints if taint.effect == SOFT_EFFECT)
        return sum(not tolerates(tolerations, taint) for taint in soft)


class Preferences:
    """One score for all preferences of an ask; no index holds it: it depends on all nodes."""

    def __init__(self, columns: NodeColumns, views: NodeViews, pods: PodIndex) -> None:
        self._columns, self._views, self._pods = columns, views, pods
        self.of_nodes, self.of_taints = PreferredNodes(), SoftTaints()

    def matters(self, shape: Shape) -> bool:
        """Whether an ask prefers some nodes."""
        if shape.constraints is NO_CONSTRAINTS:
            return self._columns.soft_taints > 0
        return bool(
            self._columns.soft_taints
            or shape.constraints.preferred_nodes
            or self._pods.are_preferred(shape.constraints)
        )

    def of_rows(self, rows: Amounts, shape: Shape) -> Amounts:
        """Return the scores of some rows; less is better."""
        wishes: list[tuple[NDArray[np.int64], bool, int]] = []
        if shape.constraints.preferred_nodes:
            wishes.append((self._number(self.of_nodes, rows, shape), False, OF_NODES))
        if self._columns.soft_taints:
            wishes.append((self._number(self.of_taints, rows, shape), True, OF_TAINTS))
        first = self._views.of(shape).first
        of_pods = self._pods.preference(shape, first[ELIGIBLE], first[SELECTED])
        wishes += [(scores[rows], is_less_better, OF_PODS) for scores, is_less_better in of_pods]
        total = np.zeros(rows.size, dtype=np.int64)
        for scores, is_less_better, weight in wishes:
            total -= weight * normalised(scores, is_less_better=is_less_better)
        return total

    def _number(self, asked: PreferredNodes | SoftTaints, rows: Amounts, shape: Shape) -> Amounts:
        return self._views.number(shape, asked)[rows].astype(np.int64)


def normalised(scores: Amounts, *, is_less_better: bool) -> Amounts:
    """Return scores from 0 to 100, the best 100; all 0 if they are equal."""
    low, high = int(scores.min()), int(scores.max())
    if low == high:
        return np.zeros(scores.size, dtype=np.int64)
    distance = high - scores if is_less_better else scores - low
    return distance * FULL_MARKS // (high - low)
