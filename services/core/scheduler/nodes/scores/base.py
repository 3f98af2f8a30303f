"""What a score is: where a node stands in the order of nodes, for asks of a shape.

A score is a class in a file of its own and a line in ``SCORES``. Of one node a number, less is
better; where that is not enough, of many rows in one step. One that does not look at the ask is
kept by row and followed by one index for all shapes; one that does is followed for each shape, by
what it asks for and of nodes: a node that has changed is scored again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Demand, Shape
from services.core.scheduler.nodes.columns import Amounts, NodeColumns
from services.core.scheduler.nodes.node_devices import NodeDevices
from services.core.scheduler.nodes.node_view import NodeViews
from services.core.scheduler.nodes.scores.recent import RecentAsks
from shared.model.gpus import Devices


@dataclass(frozen=True, slots=True)
class Scored:
    """What scores may look at. ``weights`` are of resource types, as configured."""

    columns: NodeColumns
    views: NodeViews
    devices: NodeDevices
    recent: RecentAsks
    changes: Callable[[], int]  # how many changes of nodes have been logged
    weights: Mapping[str, float]


class NodeScore:
    """The order of nodes by one rule."""

    looks_at_ask: ClassVar[bool] = False
    chooses_devices: ClassVar[bool] = False  # it says which of a node's devices a pod is given

    def __init__(self, scored: Scored) -> None:
        self._columns = scored.columns

    def of_node(self, node: Node, shape: Shape) -> float:
        """Return what a node scores; one that does not look at the ask reads nothing of it."""
        raise NotImplementedError

    def of_few(self, nodes: Sequence[Node], shape: Shape) -> list[Any]:
        """Return what a few nodes score for a shape that they take."""
        return [self.of_node(node, shape) for node in nodes]

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[Any]:
        """Return what some rows score for a shape that they take."""
        if not self.looks_at_ask:
            return self._columns.score[rows]
        return np.array(self.of_few([self._columns.rows[row] for row in rows.tolist()], shape))

    def device_for(self, node: Node, demand: Demand) -> Devices:
        """Return the devices of a node for a demand, where the score chooses them."""
        raise NotImplementedError
