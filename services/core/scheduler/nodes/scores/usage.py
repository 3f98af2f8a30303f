"""Scores by the weighted used part of a node. These are floats; no ledger contains one.

Source: YuniKorn's node sorting policies.
"""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.scores.base import NodeScore, Scored

_LARGEST_WEIGHT = 1e100


class Fair(NodeScore):
    """``fair``: the least used node first."""

    def __init__(self, scored: Scored) -> None:
        super().__init__(scored)
        largest = max(scored.weights.values())
        scale = largest if largest > _LARGEST_WEIGHT else 1.0  # so that their sums are numbers
        weights = scored.weights.items()
        self._scaled = [(name, weight / scale) for name, weight in weights if weight]

    def of_node(self, node: Node, shape: Shape) -> float:
        """Return the weighted used part of a node."""
        used = weight_sum = 0.0
        capacity, available = node.capacity, node.available
        for name, scaled in self._scaled:
            total = capacity.get(name, 0)
            if total > 0:
                used += scaled * (1.0 - available.get(name, 0) / total)
                weight_sum += scaled
        return used / weight_sum if weight_sum else 0.0


class Binpacking(Fair):
    """``binpacking``: the most used node first."""

    def of_node(self, node: Node, shape: Shape) -> float:
        return 1.0 - Fair.of_node(self, node, shape)
