"""Which of the nodes that take a shape comes first.

Order: what the ask would rather have, nodes near the members of its gang where that prefers a
level, the scores of plugins, the configured score, the node's id.
Less is better. Where nothing but the last two matters, and they are followed by an index, the first
node is found without reading all of them.
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

_BY_ITSELF = BINPACKING  # where the score looks at the ask: what a node scores by itself


class NodeNumbers(Protocol):
    """A score of rows."""

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[Any]:
        """Return what some rows score; less is better, and infinity is never taken."""


class RowScore(NodeNumbers, Protocol):
    """A score that comes before the configured one."""

    def matters(self, shape: Shape) -> bool:
        """Return whether nodes may score differently for a shape."""


class Order(NamedTuple):
    """An order of nodes other than the configured one.

    ``before`` come after what the ask would rather have, and before the scores of plugins; ``by``
    takes the place of the configured score.
    """

    before: tuple[RowScore, ...] = ()
    by: NodeNumbers | None = None


AS_CONFIGURED = Order()


class NodeOrder:
    """The scores in use, the index that follows them, and the first node by them."""

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
        """Order by a score from now on. Weights replace the defaults whole."""
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
        self.of_node = by_itself.of_node  # by itself, whatever is asked for
        self._devices.use(self.score.device_for if self.score.chooses_devices else None)
        self.index.order_by_shape(is_by_shape=self.score.looks_at_ask)

    def use_hooks(self, hooks: NodeHooks | None) -> None:
        """Take in the scores of plugins, and what they say of nodes."""
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
        """Return the order for idle room: binpacking is kai's packing, others are as configured."""
        return Order(before, self._packing if self.policy in (BINPACKING, AS_KAI) else None)

    def packed(self, *before: RowScore) -> Order:
        """Return the order of kai's packing, whatever is configured."""
        return Order(before, self._packing)

    def in_searches(self, *before: RowScore) -> Order:
        """Return the order for room that may be released yet: idle nodes first, then by room."""
        by = self._spreading if self.policy == FAIR else self._packing
        return Order((*before, self._idle_first), by)

    # --- the first node -------------------------------------------------------------------------

    def best(self, shape: Shape, *, backfill: bool = False) -> Node | None:
        """Return the first node, in order, that has the room and matches, or None.

        Claimed nodes are left out; with ``backfill`` one is taken where the claims do not lack what
        the shape takes, if no other node will do. Nodes that the head gang claims come
        first for a shape that ends before they are needed, last if that is only predicted.
        """
        filters, head_gang = self._filters, self._filters.head_gang
        if head_gang.nodes and head_gang.goes_first(shape):
            node = self.best_held(shape)
            if node is not None:
                return node
        if filters.spares.nodes and filters.spares.may_use(shape):  # which no index has
            node = self._first_of_mask(filters.open.mask(shape), shape)
        elif self._is_indexed(shape):
            node = self.index.first(shape)
        else:
            node = self._first_open(shape) or self._first_of_mask(filters.open.mask(shape), shape)
        if node is None and head_gang.nodes and head_gang.may_backfill(shape):
            node = self.best_held(shape)
        if node is None and backfill and self._is_any_claimed:
            return self._first_of_mask(filters.backfill.mask(shape), shape)
        return node

    def best_held(self, shape: Shape) -> Node | None:
        """Return the first of the nodes that the head gang claims, in order, that takes a shape."""
        rows = self._columns.held_rows()
        return self.first(rows[self._filters.takes.mask(shape, among=rows)], shape)

    @property
    def _is_any_claimed(self) -> bool:
        return bool((self._columns.claimed[self._columns.all] & CLOSED).any())

    def _is_indexed(self, shape: Shape) -> bool:
        """Return whether all that decides which node comes first is what an index follows."""
        for matters in self._unindexed:  # noqa: SIM110 - asked for every decision
            if matters(shape):
                return False
        return True

    def _first_open(self, shape: Shape) -> Node | None:
        """Return the first node, in order, that pods leave open to a shape; None: not found.

        The first few that take it otherwise are asked one by one: it is mostly one of them.
        """
        if self._hooks is not None or self.score.looks_at_ask or self._preferences.matters(shape):
            return None
        if self._near_gang.matters(shape):
            return None
        return self.index.first_open(shape, self._filters.between_pods.holds)

    def _first_of_mask(self, mask: Mask, shape: Shape) -> Node | None:
        return self.first(np.flatnonzero(mask), shape)

    def first(self, rows: Amounts, shape: Shape, order: Order = AS_CONFIGURED) -> Node | None:
        """Return the first of some rows, None where there is none."""
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
        """Return the index that a node leads, so that it stays the first while it takes what comes.

        What is used of it grows, so that the fullest stays the first; None: it may not be.
        """
        if self.policy != BINPACKING or node.is_closed or not self._is_indexed(shape):
            return None
        if any(weight < 0 for weight in self.weights.values()):
            return None
        return self.index.led_by(node, shape)

    @staticmethod
    def is_led(index: object, shape: Shape) -> bool:
        """Return whether a shape is looked up in an index."""
        return shape.candidates is index

    @property
    def changes(self) -> int:
        """Return how many changes of nodes have been logged."""
        return self.index.logged

    def changed_since(self, seen: int) -> list[Node] | None:
        """Return the nodes that are there and have changed since so many changes.

        None where that is not known any more.
        """
        nodes = self.index.changed_since(seen)
        return None if nodes is None else [node for node in nodes if node.changed >= 0]

    # --- what the index asks --------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[Node]:
        """All nodes, each at its row."""
        return self._columns.rows

    @property
    def judges_amounts(self) -> bool:
        """Return whether amounts decide about more than room: plugins look at them."""
        return self._hooks is not None

    def free_rows(self, shape: Shape, among: Amounts | None = None) -> Amounts:
        """Return the rows that take a shape now, pods aside, and are not claimed."""
        mask = self._filters.indexed.mask(shape, among=among)
        return np.flatnonzero(mask) if among is None else among[mask]

    def scores_of(self, shape: Shape, rows: Amounts) -> NDArray[Any]:
        """Return what some rows score for a shape that they have the room for; less is better."""
        return self.score.of_rows(rows, shape)

    def scores_of_few(self, shape: Shape, nodes: Sequence[Node]) -> list[Any]:
        """Return the same of a few nodes, where scores look at what is asked for."""
        return self.score.of_few(nodes, shape)

    def first_rows(self, shape: Shape, rows: Amounts, amount: int) -> Amounts:
        """Return the first of some rows by score and node id, in any order; there are more."""
        scores = self.scores_of(shape, rows)
        least = scores.min() if amount == 1 else np.partition(scores, amount - 1)[amount - 1]
        before, ties = rows[scores < least], rows[scores == least]
        missing = amount - before.size
        if ties.size > missing:
            ties = ties[np.argpartition(self.ranks.of(ties), missing - 1)[:missing]]
        return np.concatenate((before, ties))
