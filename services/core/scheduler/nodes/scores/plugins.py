"""The scores of plugins, hook after hook, before the configured score."""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, NodeColumns
from services.core.scheduler.nodes.filters.plugins import NodeHooks
from services.core.scheduler.nodes.node_view import NodeViews


class PluginScore:
    """The score of one hook; infinity if it raised, which excludes the node."""

    is_of_labels = False

    def __init__(
        self, columns: NodeColumns, views: NodeViews, hooks: NodeHooks, number: int
    ) -> None:
        self._columns, self._views = columns, views
        self._hooks, self._of_hooks = hooks, number

    @property
    def is_fixed(self) -> bool:
        """Whether it reads node properties only."""
        return self._hooks.is_score_fixed(self._of_hooks)

    def of_node(self, node: Node, shape: Shape) -> float:
        return self._hooks.scored(self._of_hooks, node, shape)

    def matters(self, _: Shape) -> bool:
        return True

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[np.float64]:
        if self.is_fixed:
            found: NDArray[np.float64] = self._views.number(shape, self)[rows]
            return found
        nodes = self._columns.rows
        return np.array([self.of_node(nodes[row], shape) for row in rows.tolist()])
