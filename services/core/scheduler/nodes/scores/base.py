"""The base of scores: a node's sort key for asks of a shape.

A score is a class in a file of its own and a line in ``SCORES``. It gives a number for one node,
less is better; where that is too slow also for many rows at once. A score that does not depend on
the ask is cached by row, with one index for all shapes; one that does has an index for each shape,
and changed nodes are scored again.
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
    """The inputs of scores. ``weights`` are the configured weights of resource types."""

    columns: NodeColumns
    views: NodeViews
    devices: NodeDevices
    recent: RecentAsks
    changes: Callable[[], int]  # returns the number of logged changes of nodes
    weights: Mapping[str, float]


class NodeScore:
    """The order of nodes by one rule."""

    looks_at_ask: ClassVar[bool] = False
    chooses_devices: ClassVar[bool] = False  # whether it chooses the devices of new pods

    def __init__(self, scored: Scored) -> None:
        self._columns = scored.columns

    def of_node(self, node: Node, shape: Shape) -> float:
        """Return a node's score; ``shape`` is unused unless ``looks_at_ask``."""
        raise NotImplementedError

    def of_few(self, nodes: Sequence[Node], shape: Shape) -> list[Any]:
        """Return the scores of a few nodes that fit a shape."""
        return [self.of_node(node, shape) for node in nodes]

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[Any]:
        """Return the scores of some rows that fit a shape."""
        if not self.looks_at_ask:
            return self._columns.score[rows]
        return np.array(self.of_few([self._columns.rows[row] for row in rows.tolist()], shape))

    def device_for(self, node: Node, demand: Demand) -> Devices:
        """Return a node's devices for a demand, if the score chooses them."""
        raise NotImplementedError
