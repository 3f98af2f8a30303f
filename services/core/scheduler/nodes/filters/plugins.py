"""The filter of plugins: their ``feasible`` hooks (docs/plugins.md)."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import NodeColumns
from services.core.scheduler.nodes.filters.base import Filter, Moment, NodeFilter
from services.core.scheduler.nodes.node_view import NodeViews, Stage
from shared.messages.interface import Allocation
from shared.model.reasons import PLUGIN, Fact, Kind, Reason


class NodeHooks(Protocol):
    """The hooks of plugins that nodes use (``model/hooks.py``)."""

    facts: int
    moves: int

    @property
    def fixed(self) -> Sequence[object]:
        """The ``feasible`` hooks that read node properties only."""

    @property
    def moving(self) -> Sequence[object]:
        """The other ``feasible`` hooks."""

    @property
    def score(self) -> Sequence[object]:
        """The ``score`` hooks."""

    @property
    def needs_scan(self) -> bool:
        """Whether node order or filters depend on hooks that no index covers."""

    def admits_as_it_is(self, node: Node, shape: Shape) -> bool:
        """Whether the fixed hooks accept a node."""

    def admits_now(self, node: Node, shape: Shape) -> bool:
        """Whether the moving hooks accept a node."""

    def scored(self, number: int, node: Node, shape: Shape) -> float:
        """Return a hook's score of a node; infinity if it raised."""

    def is_score_fixed(self, number: int) -> bool:
        """Whether a score hook reads node properties only."""

    def why_closed(self, nodes: Sequence[Node], shape: Shape) -> str:
        """Return which plugins refuse all of some nodes, "" if a node is accepted."""

    def allocation_added(self, allocation: Allocation) -> None:
        """Notify the hooks that an allocation was added to a node."""

    def allocation_removed(self, allocation: Allocation) -> None:
        """Notify the hooks that an allocation was removed from a node."""


def _refusal(
    hooks: NodeHooks, columns: NodeColumns, shape: Shape, before: Stage
) -> tuple[Reason, Fact]:
    nodes = [columns.rows[row] for row in np.flatnonzero(before.left).tolist()]
    return Reason.PLUGIN, Fact(Kind.PLUGIN, text=hooks.why_closed(nodes, shape))


class FixedPlugins(NodeFilter):
    """Hooks that depend on node properties only."""

    on = PLUGIN
    depends_on_amounts = True

    def __init__(self, columns: NodeColumns, views: NodeViews, hooks: NodeHooks) -> None:
        super().__init__(columns, views)
        self._hooks = hooks

    def admits(self, node: Node, shape: Shape) -> bool:
        return self._hooks.admits_as_it_is(node, shape)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return _refusal(self._hooks, self._columns, shape, before)


class MovingPlugins(Filter):
    """Hooks that read pods or ledgers: called every time for each remaining node."""

    on = PLUGIN
    is_costly = True

    def __init__(self, columns: NodeColumns, hooks: NodeHooks) -> None:
        super().__init__(columns)
        self._hooks = hooks

    def matters(self, shape: Shape) -> bool:
        return bool(self._hooks.moving)

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return self._hooks.admits_now(node, shape)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return _refusal(self._hooks, self._columns, shape, before)
