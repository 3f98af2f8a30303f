"""The order of the nodes that fit a shape.

Order: the ask's preferences, nodes near its gang's members if a level is preferred, plugins'
scores, the configured score, the node's id. Less is better. If only the last two matter, and an
index covers them, the first node is found without reading all.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import CLOSED, Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, NodeColumns
from services.core.scheduler.nodes.domains import Domains
from services.core.scheduler.nodes.filters import NodeFilters
from services.core.scheduler.nodes.filters.plugins import NodeHooks
from services.core.scheduler.nodes.node_devices import NodeDevices
from services.core.scheduler.nodes.node_index import NodeIndex, Ranks
from services.core.scheduler.nodes.node_view import NodeNumber, NodeViews
from services.core.scheduler.nodes.pod_topology import PodIndex
from services.core.scheduler.nodes.scores import DEFAULT_WEIGHTS, SCORES
from services.core.scheduler.nodes.scores.base import NodeScore, Scored
from services.core.scheduler.nodes.scores.idle import IdleFirst
from services.core.scheduler.nodes.scores.near_gang import NearGang
from services.core.scheduler.nodes.scores.packing import Packing, Spreading
from services.core.scheduler.nodes.scores.plugins import PluginScore
from services.core.scheduler.nodes.scores.preferences import Preferences
from services.core.scheduler.nodes.scores.recent import RecentAsks
from shared.model.names import AS_KAI, BINPACKING, FAIR

_BY_ITSELF = BINPACKING  # a node's own score if the configured one depends on the ask


class NodeNumbers(Protocol):
    """A score of rows."""

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[Any]:
        """Return the scores of some rows; less is better, and infinity excludes a row."""


class RowScore(NodeNumbers, Protocol):
    """A score that precedes the configured one."""

    def matters(self, shape: Shape) -> bool:
        """Whether nodes may score differently for a shape."""


class Order(NamedTuple):
    """An order of nodes other than the configured one.

    ``before`` are scores between the ask's preferences and plugins' scores; ``by`` replaces the
    configured score.
    """

    before: tuple[RowScore, ...] = ()
    by: NodeNumbers | None = None


AS_CONFIGURED = Order()


class NodeOrder:
    """The scores in use, their index, and the first node by them."""

    def __init__(
        self,
        columns: NodeColumns,
        views: NodeViews,
        filters: NodeFilters,
        devices: NodeDevices,
        pods: PodIndex,
        *,
        domains: Domains,
    ) -> None:
        self._columns, self._views, self._filters = columns, views, filters
        self._devices, self._pods = devices, pods
        self._packing, self._spreading = Packing(columns), Spreading(columns)
        self._idle_first = IdleFirst(filters.has_room)
        self.has_room, self.is_free = filters.has_room.holds, filters.indexed.holds
        self.ranks = Ranks()
        self.index = NodeIndex(self)
        self.recent = RecentAsks(self.index.outdate)
        self._preferences, self._near_gang = Preferences(columns, views, pods), NearGang(domains)
        self._before: list[RowScore] = []
        self._hooks: NodeHooks | None = None
        self.use_hooks(None)
        self.use_policy(FAIR, {})

    def use_policy(self, policy: str, weights: Mapping[str, float]) -> None:
        """Set the score. Weights replace all defaults."""
        self.policy, self.weights = policy, dict(weights) or dict(DEFAULT_WEIGHTS)
        scored = Scored(
            self._columns,
            self._views,
            self._devices,
            self.recent,
            lambda: self.index.logged,
            self.weights,
        )
        self.score: NodeScore = SCORES.get(policy, SCORES[_BY_ITSELF])(scored)
        by_itself = SCORES[_BY_ITSELF](scored) if self.score.looks_at_ask else self.score
        self.of_node = by_itself.of_node  # a node's own score, independent of asks
        self._devices.use(self.score.device_for if self.score.chooses_devices else None)
        self.index.order_by_shape(is_by_shape=self.score.looks_at_ask)

    def use_hooks(self, hooks: NodeHooks | None) -> None:
        """Set the scores and filters of plugins."""
        self._hooks = hooks
        number = 0 if hooks is None else len(hooks.score)
        self.of_plugins = [
            PluginScore(self._columns, self._views, hooks, at)
            for at in range(number)
            if hooks is not None
        ]
        self._before = [self._preferences, self._near_gang, *self.of_plugins]
        numbers: list[NodeNumber] = [self._preferences.of_nodes, self._preferences.of_taints]
        fixed = [score for score in self.of_plugins if score.is_fixed]
        self._filters.use(hooks)
        self._unindexed: list[Callable[[Shape], bool]] = [
            *(each.matters for each in self._filters.unindexed),
            *(score.matters for score in self._before),
        ]
        self._views.watch(self._filters.of_node, [*numbers, *fixed])

    # --- orders under the policy kai ------------------------------------------------------------

    def in_domains(self, *before: RowScore) -> Order:
        """Return the order for idle capacity: kai's packing for binpacking, else as configured."""
        return Order(before, self._packing if self.policy in (BINPACKING, AS_KAI) else None)

    def packed(self, *before: RowScore) -> Order:
        """Return the order of kai's packing, whatever is configured."""
        return Order(before, self._packing)

    def in_searches(self, *before: RowScore) -> Order:
        """Return the order for capacity that may still be released: idle nodes first."""
        by = self._spreading if self.policy == FAIR else self._packing
        return Order((*before, self._idle_first), by)

    # --- the first node -------------------------------------------------------------------------

    def best(self, shape: Shape, *, backfill: bool = False) -> Node | None:
        """Return the first node, in order, that fits a shape, or None.

        Claimed nodes are excluded; with ``backfill`` one is used if no other node fits and the
        claims do not need the capacity. Nodes of the head gang come first for a shape that ends
        before they are needed, last if that is only predicted.
        """
        filters, backfill_window = self._filters, self._filters.backfill_window
        if backfill_window.nodes and backfill_window.goes_first(shape):
            node = self.best_held(shape)
            if node is not None:
                return node
        if filters.spares.nodes and filters.spares.may_use_any(shape):  # they are in no index
            node = self._first_of_mask(filters.open.mask(shape), shape)
        elif self._is_indexed(shape):
            node = self.index.first(shape)
        else:
            node = self._first_open(shape) or self._first_of_mask(filters.open.mask(shape), shape)
        if node is None and backfill_window.nodes and backfill_window.may_backfill(shape):
            node = self.best_held(shape)
        if node is None and backfill and self._is_any_claimed:
            return self._first_of_mask(filters.backfill.mask(shape), shape)
        return node

    def best_held(self, shape: Shape) -> Node | None:
        """Return the first node claimed by the head gang that fits a shape, or None."""
        rows = self._columns.held_rows()
        return self.first(rows[self._filters.takes.mask(shape, among=rows)], shape)

    @property
    def _is_any_claimed(self) -> bool:
        return bool((self._columns.claimed[self._columns.all] & CLOSED).any())

    def _is_indexed(self, shape: Shape) -> bool:
        """Whether an index covers everything that decides the first node."""
        for matters in self._unindexed:  # noqa: SIM110 - asked for every decision
            if matters(shape):
                return False
        return True

    def _first_open(self, shape: Shape) -> Node | None:
        """Return the first node, in order, that pods allow for a shape; None: not found.

        Only the first few that fit otherwise are tried, because it is usually one of them.
        """
        if self._hooks is not None or self.score.looks_at_ask or self._preferences.matters(shape):
            return None
        if self._near_gang.matters(shape):
            return None
        return self.index.first_open(shape, self._filters.between_pods.holds)

    def _first_of_mask(self, mask: Mask, shape: Shape) -> Node | None:
        return self.first(np.flatnonzero(mask), shape)

    def first(self, rows: Amounts, shape: Shape, order: Order = AS_CONFIGURED) -> Node | None:
        """Return the first of some rows, None if there are none."""
        before = self._before
        if order.before:
            before = [self._preferences, self._near_gang, *order.before, *self.of_plugins]
        for score in before:
            if rows.size and score.matters(shape):
                numbers = score.of_rows(rows, shape)
                least = numbers.min()
                rows = rows[(numbers == least) & (numbers < np.inf)]
        if not rows.size:
            return None
        scores = (order.by or self.score).of_rows(rows, shape)
        ties = rows[scores == scores.min()]
        if ties.size > 1:
            ties = ties[[int(np.argmin(self.ranks.of(ties)))]]
        return self._columns.rows[int(ties[0])]

    def led_by(self, node: Node, shape: Shape) -> object | None:
        """Return the index in which a node stays first while more pods are placed on it, or None.

        With binpacking the fullest node stays first as its usage grows.
        """
        if self.policy != BINPACKING or node.is_closed or not self._is_indexed(shape):
            return None
        if any(weight < 0 for weight in self.weights.values()):
            return None
        return self.index.led_by(node, shape)

    @staticmethod
    def is_led(index: object, shape: Shape) -> bool:
        """Whether a shape is looked up in an index."""
        return shape.candidates is index

    @property
    def changes(self) -> int:
        """Return the number of logged changes of nodes."""
        return self.index.logged

    def changed_since(self, seen: int) -> list[Node] | None:
        """Return the existing nodes changed since a number of changes; None: unknown."""
        nodes = self.index.changed_since(seen)
        return None if nodes is None else [node for node in nodes if node.changed >= 0]

    # --- used by the index ----------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Node]:
        """All nodes, each at its row."""
        return self._columns.rows

    @property
    def judges_amounts(self) -> bool:
        """Whether filters other than capacity depend on amounts: plugins' do."""
        return self._hooks is not None

    def free_rows(self, shape: Shape, among: Amounts | None = None) -> Amounts:
        """Return the rows that fit a shape now, pods ignored, and are not claimed."""
        mask = self._filters.indexed.mask(shape, among=among)
        return np.flatnonzero(mask) if among is None else among[mask]

    def scores_of(self, shape: Shape, rows: Amounts) -> NDArray[Any]:
        """Return the scores of some rows for a shape that fits; less is better."""
        return self.score.of_rows(rows, shape)

    def scores_of_few(self, shape: Shape, nodes: Sequence[Node]) -> list[Any]:
        """Return the same for a few nodes, if scores depend on the ask."""
        return self.score.of_few(nodes, shape)

    def first_rows(self, shape: Shape, rows: Amounts, amount: int) -> Amounts:
        """Return the first ``amount`` of some rows by score and node id, unordered."""
        scores = self.scores_of(shape, rows)
        least = scores.min() if amount == 1 else np.partition(scores, amount - 1)[amount - 1]
        before, ties = rows[scores < least], rows[scores == least]
        missing = amount - before.size
        if ties.size > missing:
            ties = ties[np.argpartition(self.ranks.of(ties), missing - 1)[:missing]]
        return np.concatenate((before, ties))
