"""Nodes: their ledgers, and the choice of the best one for a shape.

The ledgers are integer maps; beside them stands one int64 matrix of what is available (a row a
node, a column a resource type), so that a shape is compared with all nodes in one step. What others
placed may be more than int64 holds: there the matrix has its least number, and the ledger the sum.

Order of nodes (docs/rules/scheduling.md#order-of-nodes): ascending score, then node id. ``fair``
scores the weighted share in use, ``binpacking`` one less it. Shares are the only floats, and no
ledger holds one. Scores by GPU devices (``node_scores``) look at what is asked for: all nodes with
room are compared.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model import devices
from services.core.scheduler.model.node_fit import matches
from services.core.scheduler.model.rows import DeviceHolder, Node
from services.core.scheduler.model.shapes import Demand, Shape, demand_of
from services.core.scheduler.nodes.device_rows import MANY, DeviceRows, open_devices, places_on
from services.core.scheduler.nodes.gpu_scores import Room, Rooms
from services.core.scheduler.nodes.node_classes import Failing, NodeClasses, split
from services.core.scheduler.nodes.node_index import NodeIndex, Ranks
from services.core.scheduler.nodes.node_scores import NodeScores
from services.core.scheduler.nodes.node_view import (
    MayBeUsed,
    NodeHooks,
    NodeView,
    leaves_enough,
    normalised,
)
from services.core.scheduler.nodes.pod_topology import PodIndex
from shared.messages.constraints import NO_CONSTRAINTS, Constraints, Taint
from shared.messages.interface import Allocation
from shared.messages.selectors import SOFT_EFFECT
from shared.model.gpus import GPU, GPU_SHARE, MAX_DEVICES, WHOLE, Devices
from shared.model.names import BINPACKING, FAIR
from shared.model.numbers import INT64_MAX, INT64_MIN, saturated
from shared.model.reasons import (
    IN_USE,
    OTHER_PODS,
    PLUGIN,
    SELECTOR,
    TAINTS,
    TAKEN,
    TOO_SMALL,
    UNSCHEDULABLE,
    VOLUMES,
    NodeEvidence,
    Reason,
    Refusal,
)
from shared.model.resources import (
    MEMORY,
    VCORE,
    Resource,
    ResourceView,
    add_into,
    fits_room,
    go_map,
    multiply,
    subtract_into,
    without_zeros,
)

SCORES: dict[str, Callable[[float], float]] = {  # of the weighted share in use
    FAIR: lambda usage: usage,
    BINPACKING: lambda usage: 1.0 - usage,
}
DEFAULT_WEIGHTS: dict[str, float] = {"vcore": 1.0, "memory": 1.0}
_LARGEST_WEIGHT = 1e100
_BY_DEVICES = BINPACKING  # where scores look at what is asked for: what a node scores by itself
MAX_LACKING = 128  # sets of types that empty nodes lack, told apart; more types are left out
MAX_CONSTRAINTS = 1_000  # remembered at one time; more only cost a new comparison


@dataclass(slots=True)
class _Judged:
    """Which rows fail on what for a shape, and how many; how many pass so far.

    ``left`` could hold it when empty, and of those ``room`` has the room now; the others have too
    little of what is ``lacking``.
    """

    failures: list[Failing]
    lacking: list[str]
    left: NDArray[np.bool_]
    room: NDArray[np.bool_]
    large: int
    roomy: int
    may: MayBeUsed


class NodeTable:
    """All nodes of the partition, in rows that are kept dense."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.total: Resource = {}
        self.policy = FAIR
        self._score_of = SCORES[FAIR]
        self.weights: dict[str, float] = dict(DEFAULT_WEIGHTS)
        self._scaled_weights = list(DEFAULT_WEIGHTS.items())  # so that their sums are numbers
        self.rows: list[Node] = []
        self._columns: dict[str, int] = {}
        self._available: NDArray[np.int64] = np.zeros((16, 4), dtype=np.int64, order="F")
        self._capacity: NDArray[np.int64] = np.zeros((16, 4), dtype=np.int64, order="F")
        self._expected: NDArray[np.int64] = np.zeros((16, 4), dtype=np.int64, order="F")
        self._score: NDArray[np.float64] = np.zeros(16, dtype=np.float64)
        self._changed: NDArray[np.int64] = np.zeros(16, dtype=np.int64)  # by the index's log
        self._schedulable: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self._reserved: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self._held: NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)  # for the lane's gang
        self._devices = DeviceRows()
        self._coming: dict[Node, list[int]] = {}  # to devices, by the open statement
        self.are_devices_shared = False  # whether nodes announce shares of their GPUs
        self._has_device_rows = False  # whether anybody looks at them: shares do, or scores
        self.holds = 0  # how many
        self.backfill_ns = 0  # who runs no longer than this ends before that gang needs them
        self.pods = PodIndex()
        self.pods.watch(self.rows)
        self.hooks: NodeHooks | None = None  # of plugins
        self.pods_changed = (
            False  # in a way that asks may look at; whoever requeues for it resets it
        )
        self._soft_taints = 0  # PreferNoSchedule taints, on all nodes
        self._ranks = Ranks()
        self._classes = NodeClasses()
        self._index = NodeIndex(self)
        self.scores = NodeScores(self)
        self._views: dict[object, NodeView] = {}
        self._version = 0  # of the views: counted up when they are forgotten
        self._facts = 0  # counted up when a node comes, goes, or is another, but for its room
        self._smallest: tuple[int, list[int]] = (-1, [])  # capacities, by column, as of _facts

    def set_policy(self, policy: str, weights: Mapping[str, float]) -> None:
        """Set how nodes are ordered, and order them anew. Weights replace the defaults whole."""
        self.policy = policy
        self._score_of = SCORES.get(policy, SCORES[_BY_DEVICES])
        self.scores.use(policy)
        self._index.order_by_shape(is_by_shape=self.scores.is_used)
        self._has_device_rows = self.are_devices_shared or self.scores.is_used
        self.weights = dict(weights) or dict(DEFAULT_WEIGHTS)
        largest = max(self.weights.values())
        scale = largest if largest > _LARGEST_WEIGHT else 1.0
        self._scaled_weights = [
            (name, weight / scale) for name, weight in self.weights.items() if weight
        ]
        for node in self.rows:
            self.refresh(node)

    def add(self, node: Node) -> None:
        """Register a node; its id must be new."""
        node.row = len(self.rows)
        node.capacity = self._announced(node.capacity)
        _count_devices(node)
        if node.row == self._score.shape[0]:
            self._grow_rows()
        self.rows.append(node)
        self.nodes[node.node_id] = node
        add_into(self.total, node.capacity)
        self._soft_taints += _soft_taints(node)
        self._ranks.added(node)
        self.pods.joined()
        self.pods.count_node(node, 1)
        self._write_capacity(node)
        self.refresh(node)
        if self.hooks is not None:
            self.hooks.facts += 1

    def remove(self, node: Node) -> None:
        """Forget a node; the last row takes its place."""
        if node.is_held:
            self.hold_for_lane(node, None)
        self.pods.count_node(node, -1)
        last = self.rows.pop()
        self._facts += 1
        self._ranks.removed(node, len(self.rows))
        self._index.removed(node)
        if last is not node:
            self.rows[node.row] = last
            last.row = node.row
            self._write_capacity(last)
            self.refresh(last)
        for view in self._views.values():
            view.shorten(len(self.rows))
            if last is not node:
                view.renew(last)
        del self.nodes[node.node_id]
        subtract_into(self.total, node.capacity)
        self._soft_taints -= _soft_taints(node)
        self.pods.watch(self.rows)
        if self.hooks is not None:
            self.hooks.facts += 1
            self.hooks.moves += 1
            for allocation in node.allocations.values():
                self.hooks.went(allocation)

    def set_capacity(self, node: Node, capacity: ResourceView) -> None:
        """Change what a node can hold; what it holds may then be more than that."""
        subtract_into(self.total, node.capacity)
        node.capacity = self._announced(without_zeros(capacity))
        _count_devices(node)
        add_into(self.total, node.capacity)
        self._write_capacity(node)
        if self.hooks is not None:
            self._judge_anew(node)
        self.refresh(node)

    def _announced(self, capacity: ResourceView) -> Resource:
        """Return what a node announces, with the shares of its GPUs once anybody asks for some."""
        announced = {name: value for name, value in capacity.items() if name != GPU_SHARE}
        number = announced.get(GPU, 0)
        if self.are_devices_shared and 0 < number <= MAX_DEVICES:
            announced[GPU_SHARE] = number * WHOLE
        return announced

    def share_devices(self, *, are_shared: bool = True) -> list[Node]:
        """Have nodes announce shares of their GPUs, or no more; return those that have some."""
        self.are_devices_shared = are_shared
        self._has_device_rows = are_shared or self.scores.is_used
        for node in self.rows:
            self.set_capacity(node, node.capacity)
        return [node for node in self.rows if node.devices]

    def relabel(
        self,
        node: Node,
        labels: dict[str, str],
        taints: tuple[Taint, ...],
        volume_limits: dict[str, int],
    ) -> None:
        """Change a node's labels and taints, and how many volumes it takes."""
        self._soft_taints -= _soft_taints(node)
        node.labels, node.taints, node.volume_limits = labels, taints, volume_limits
        self._soft_taints += _soft_taints(node)
        self._judge_anew(node)
        self.touch(node)
        self.pods.watch(self.rows)

    def _judge_anew(self, node: Node) -> None:
        """Compare every ask's constraints, and plugins, with what a node is now."""
        self._facts += 1
        for view in self._views.values():
            view.renew(node)
        if self.hooks is not None:
            self.hooks.facts += 1

    def place(self, node: Node, allocation: Allocation, stated: Devices | None = None) -> None:
        """Put an allocation on a node's ledger; ``stated`` are devices that it has already."""
        node.allocations[allocation.allocation_key] = allocation
        if node.devices:
            self._give_devices(node, allocation, stated)
        add_into(node.allocated, allocation.resource_per_alloc)
        self._count(node, allocation, 1)
        if self.hooks is not None:
            self.hooks.came(allocation)

    def hold(self, node: Node, allocation: Allocation) -> None:
        """Put an allocation on a node; ``count_held`` takes what it has from the node's room."""
        node.allocations[allocation.allocation_key] = allocation
        if node.devices:
            self._give_devices(node, allocation, allocation.devices)
        if self.pods.placed(node, allocation, 1):
            self.pods_changed = True
        if self.hooks is not None:
            self.hooks.came(allocation)

    def count_held(self, node: Node, amount: ResourceView) -> None:
        """Take from a node's room what is held on it."""
        add_into(node.allocated, amount)
        self._take(node, amount, 1)

    def count_placed(self, node: Node, amount: ResourceView, times: int) -> None:
        """Count like allocations into a node's sums that stand on it already; no pod minds them."""
        add_into(node.allocated, amount if times == 1 else multiply(amount, times))
        self._take(node, amount, times)

    def led_by(self, node: Node, shape: Shape) -> object | None:
        """Return the index that a node leads, so that it stays the first while it takes what comes.

        What is used of it grows, so that the fullest stays the first; None: it may not be.
        """
        if self.policy != BINPACKING or node.is_closed or not self._has_own_order(shape):
            return None
        if any(weight < 0 for weight in self.weights.values()):
            return None
        return self._index.led_by(node, shape)

    def is_led(self, index: object, shape: Shape) -> bool:
        """Return whether a shape is looked up in an index."""
        return shape.candidates is index

    def free(self, node: Node, key: str) -> Allocation:
        """Take an allocation off a node's ledger. Raises KeyError when it is not there."""
        allocation = node.allocations.pop(key)
        _take_devices(node, (False, key))
        subtract_into(node.allocated, allocation.resource_per_alloc)
        self._count(node, allocation, -1)
        if self.hooks is not None:
            self.hooks.went(allocation)
        return allocation

    def occupy(self, node: Node, foreign: Allocation) -> None:
        """Count what another scheduler placed on a node; it may be more than the node holds."""
        node.foreign[foreign.allocation_key] = foreign
        if node.devices:
            _give_last_devices(node, foreign)
        add_into(node.occupied, foreign.resource_per_alloc)
        self._count(node, foreign, 1)

    def vacate(self, node: Node, key: str) -> None:
        """Count a foreign pod out of a node. Raises KeyError when it is not there."""
        foreign = node.foreign.pop(key)
        _take_devices(node, (True, key))
        subtract_into(node.occupied, foreign.resource_per_alloc)
        self._count(node, foreign, -1)

    # --- GPU devices ----------------------------------------------------------------------------

    def _give_devices(
        self, node: Node, allocation: Allocation, stated: Devices | None = None
    ) -> None:
        need = devices.need_of(allocation.resource_per_alloc, allocation.constraints)
        if need is None:
            return
        wished = allocation.devices  # those of the placeholder that it takes the place of
        if stated is None and wished and devices.is_held(wished, node.devices, need):
            stated = wished if all(node.devices[at] >= size for at, size in wished) else None
        demand = demand_of(allocation.resource_per_alloc, need)
        self.give_devices(node, allocation.allocation_key, demand, stated)

    def give_devices(
        self, node: Node, key: str, demand: Demand, stated: Devices | None = None
    ) -> Devices:
        """Give an allocation devices; its amount, and the node's row, are counted elsewhere.

        ``stated`` are those that it is known to have, () where it has some that nobody knows: it
        has them whatever else is there. None: it is new, and there are some for it.
        """
        holder, need = (False, key), (demand.size, demand.number)
        if stated is None and self.scores.is_used:
            held = self.scores.device_for(node, demand)
        elif stated is None:
            held = devices.choose(open_devices(node), need)
        elif devices.is_held(stated, node.devices, need):
            _make_way(node, stated)
            held = stated
        else:
            held = ()
            node.assumed_devices[holder] = None
        held = held or _assumed(node, need)
        _give(node, holder, held)
        return held

    def devices_of(self, node: Node, key: str) -> Devices:
        """Return the devices that an allocation has on its node."""
        return node.held_devices.get((False, key), ())

    def has_devices(self, node: Node, shape: Shape) -> bool:
        """Return whether a set of a node's devices holds a shape now."""
        need = self.need_of(shape)
        return need is None or places_on(node, need) > 0

    def need_of(self, shape: Shape) -> devices.Need | None:
        """Return what a shape asks of devices, None where sums say as much.

        As long as nobody has a share, whole devices are free where as many GPUs are.
        """
        return shape.on_devices if self.are_devices_shared else None

    def _count(self, node: Node, allocation: Allocation, change: int) -> None:
        self._take(node, allocation.resource_per_alloc, change)
        if self.pods.placed(node, allocation, change):
            self.pods_changed = True

    def _take(self, node: Node, amount: ResourceView, times: int) -> None:
        """Take an amount from what a node has available, so many times."""
        available, columns, row = node.available, self._columns, node.row
        if node.is_held and times > 0:
            subtract_into(node.spare, multiply(amount, times))  # till it is worked out anew
        for name, value in amount.items():
            left = available.get(name, 0) - times * value
            if left:
                available[name] = left
            else:
                available.pop(name, None)
            column = columns.get(name)
            if column is None:
                column = self._add_column(name)
            if not INT64_MIN <= left <= INT64_MAX:
                left = saturated(left)
            self._available[row, column] = left
        if self._has_device_rows and (GPU in amount or GPU_SHARE in amount):
            self._devices.write(node)
        self._note(node)
        if self.hooks is not None:
            self.hooks.moves += 1

    def refresh(self, node: Node) -> None:
        """Bring a node's row up to date with its ledgers."""
        available = dict(node.capacity)
        for taken in (node.allocated, node.occupied, node.kept):
            if taken:
                subtract_into(available, taken)
        node.available = available
        row = node.row
        self._know(available)
        self._write(self._available, row, available)
        if self._has_device_rows:
            self._devices.write(node)
        if self._schedulable[row] != node.schedulable:
            self._schedulable[row] = node.schedulable
            self._facts += 1
        self._reserved[row] = bool(node.reservations)
        self._held[row] = node.is_held
        self._note(node)

    def _note(self, node: Node) -> None:
        """Give a node that changed its place in the order, and have the index look at it."""
        node.score = self._score[node.row] = self.score(node)
        self.touch(node)

    def touch(self, node: Node) -> None:
        """Have the indexes look at a node anew: of what it holds something is being released."""
        self._index.changed(node)
        self._changed[node.row] = node.changed

    def changed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when some rows changed last, by how many changes there had been."""
        return self._changed[rows]

    @property
    def facts(self) -> int:
        """Return what is another number when a node has come, gone, or is another, room aside."""
        return self._facts

    @property
    def changes(self) -> int:
        """Return how many changes of nodes have been logged."""
        return self._index.logged

    def changed_since(self, seen: int) -> list[Node] | None:
        """Return the nodes that are there and have changed since so many changes.

        None where that is not known any more.
        """
        nodes = self._index.changed_since(seen)
        return None if nodes is None else [node for node in nodes if node.changed >= 0]

    def _write_capacity(self, node: Node) -> None:
        self._know(node.capacity)
        self._write(self._capacity, node.row, node.capacity)
        self._classes.write(node)
        self._facts += 1

    def _write(self, matrix: NDArray[np.int64], row: int, amounts: ResourceView) -> None:
        columns = self._columns
        matrix[row] = 0
        for name, value in amounts.items():
            matrix[row, columns[name]] = (
                value if INT64_MIN <= value <= INT64_MAX else saturated(value)
            )

    def _know(self, amounts: ResourceView) -> None:
        for name in amounts:
            if name not in self._columns:
                self._add_column(name)

    def score(self, node: Node) -> float:
        """Return a node's place in the order: smaller is better."""
        used = weight_sum = 0.0
        capacity, available = node.capacity, node.available
        for name, scaled in self._scaled_weights:
            total = capacity.get(name, 0)
            if total > 0:
                used += scaled * (1.0 - available.get(name, 0) / total)
                weight_sum += scaled
        usage = used / weight_sum if weight_sum else 0.0
        return self._score_of(usage)

    def best(self, shape: Shape, *, backfill: bool = False) -> Node | None:
        """Return the first node, in order, that has the room and matches, or None.

        Reserved nodes are left out; with ``backfill`` one is taken where the reservation does not
        lack what the shape takes, if no other node will do.
        """
        if self.holds and self.may_backfill(shape):
            node = self.best_held(shape)
            if node is not None:
                return node
        if not self._has_own_order(shape):
            return self._first_open(shape) or self._scan(shape, backfill=backfill)
        node = self._index.first(shape)
        if node is None and backfill and (self.holds or self._reserved[: len(self.rows)].any()):
            return self._scan(shape, backfill=True)
        return node

    def held(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some rows are held for the lane's gang."""
        return self._held[rows]

    def let_backfill(self, longest_ns: int) -> None:
        """Let those use nodes that are held who run for so long at most; 0: nobody."""
        self.backfill_ns = longest_ns

    def may_backfill(self, shape: Shape) -> bool:
        """Return whether a shape may go to nodes that are held: it has ended when they are needed.

        There it goes first: what it leaves of the others is for those that run for longer.
        """
        return 0 < shape.run_ns <= self.backfill_ns

    def best_held(self, shape: Shape) -> Node | None:
        """Return the first of the nodes that are held, in order, that takes a shape, or None."""
        count = len(self.rows)
        mask = self._schedulable[:count] & self._held[:count] & ~self._reserved[:count]
        mask &= self._view(shape).feasible
        if not self._keep_room(mask, shape):
            return None
        self._ask_hooks(mask, shape)
        rows = np.flatnonzero(mask)
        return self._first(rows, shape) if rows.size else None

    def hold_for_lane(self, node: Node, spare: Resource | None) -> None:
        """Hold a node for the lane's gang, which leaves so much of it; None: hold it no more."""
        is_held = spare is not None
        self.holds += is_held - node.is_held
        node.spare = spare or {}
        if node.is_held is not is_held:
            node.is_held = self._held[node.row] = is_held
            self.touch(node)

    def _has_own_order(self, shape: Shape) -> bool:
        """Return whether the order of two nodes is the same whatever others may be had, or pods."""
        return not (
            self._soft_taints
            or shape.constraints.preferred_nodes
            or self.pods.concern(shape)
            or (self.hooks is not None and self.hooks.needs_scan)
        )

    def _first_open(self, shape: Shape) -> Node | None:
        """Return the first node, in order, that pods leave open to a shape; None: not found.

        The first few that take it otherwise are asked one by one: it is mostly one of them.
        """
        constraints = shape.constraints
        if (
            self.hooks is not None
            or self._soft_taints
            or self.scores.is_used
            or constraints.preferred_nodes
            or self.pods.are_preferred(constraints)
        ):
            return None
        view = self._view(shape)
        limits = self.pods.limits(shape, view.eligible, view.selected)
        return self._index.first_open(shape, limits)

    def _scan(self, shape: Shape, *, backfill: bool) -> Node | None:
        """Find the first node by a look at all of them."""
        count = len(self.rows)
        mask = self._schedulable[:count] & self._view(shape).feasible
        if not self._keep_room(mask, shape):
            return None
        self._ask_hooks(mask, shape)
        rows = np.flatnonzero(mask & ~self._closed(slice(count), shape))
        if not rows.size and backfill:
            rows = np.array([r for r in np.flatnonzero(mask) if leaves_enough(self.rows[r], shape)])
        return self._first(rows, shape) if rows.size else None

    def _ask_hooks(self, mask: NDArray[np.bool_], shape: Shape) -> None:
        """Close the rows of a mask that a plugin refuses which looks at more than the node."""
        if self.hooks is not None:
            self.hooks.narrow(mask, self.rows, shape)

    # --- what the index asks --------------------------------------------------------------------

    def is_free(self, node: Node, shape: Shape) -> bool:
        """Return whether a node takes a shape now, pods aside, and is not reserved."""
        if not node.schedulable or node.is_closed or not self.has_room(node, shape):
            return False
        return bool(self._view(shape).feasible[node.row])

    def has_room(self, node: Node, shape: Shape) -> bool:
        """Return whether a node has the room for a shape."""
        available = node.available
        for name, value in shape.resource.items():
            if value > 0 and value > available.get(name, 0):
                return False
        return not self.are_devices_shared or self.has_devices(node, shape)

    @property
    def judges_amounts(self) -> bool:
        """Return whether amounts decide about more than room: plugins look at them."""
        return self.hooks is not None

    def free_rows(self, shape: Shape, among: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the rows that take a shape now, pods aside, and are not reserved.

        With ``among`` only of those, in their order.
        """
        at = slice(len(self.rows)) if among is None else among
        mask = self._schedulable[at] & self._view(shape).feasible[at]
        mask &= ~(self._reserved[at] | self._held[at])
        for name, value in shape.resource.items():
            column = self._columns.get(name)
            if value > 0:
                mask &= False if column is None else self._available[at, column] >= value
        need = self.need_of(shape)
        if need is not None:
            mask &= self._devices.holding(need, at)
        return np.flatnonzero(mask) if among is None else among[mask]

    def scores_of(self, shape: Shape, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return what some rows score for a shape that they have the room for; less is better."""
        return self.scores.of(shape, rows) if self.scores.is_used else self._score[rows]

    def scores_of_few(self, shape: Shape, nodes: Sequence[Node]) -> list[int]:
        """Return the same of a few nodes, where scores look at what is asked for."""
        return self.scores.of_few(shape, nodes)

    def reorder(self) -> None:
        """Have nodes looked at anew, as scores of those that have not changed are others now."""
        self._index.outdate()

    def first_rows(self, shape: Shape, rows: NDArray[np.int64], amount: int) -> NDArray[np.int64]:
        """Return the first of some rows by score and node id, in any order; there are more."""
        scores = self.scores_of(shape, rows)
        least = scores.min() if amount == 1 else np.partition(scores, amount - 1)[amount - 1]
        before, ties = rows[scores < least], rows[scores == least]
        missing = amount - before.size
        if ties.size > missing:
            ties = ties[np.argpartition(self._ranks.of(ties), missing - 1)[:missing]]
        return np.concatenate((before, ties))

    def _closed(self, at: slice, shape: Shape) -> NDArray[np.bool_]:
        """Return which rows are reserved, or held, so that a shape may not go there."""
        if not self.holds or self.may_backfill(shape):
            return self._reserved[at]
        return self._reserved[at] | self._held[at]

    def _keep_room(self, mask: NDArray[np.bool_], shape: Shape) -> bool:
        """Narrow rows to those with the room, and that pods leave open; return whether any is."""
        mask &= self._fitting(self._available, shape)
        need = self.need_of(shape)
        if need is not None:
            mask &= self._devices.holding(need, slice(mask.size))
        if not mask.any():
            return False
        open_rows = self._open_rows(shape)
        if open_rows is not None:
            mask &= open_rows
        return bool(mask.any())

    def _open_rows(self, shape: Shape) -> NDArray[np.bool_] | None:
        view = self._view(shape)
        return self.pods.mask(shape, view.eligible, view.selected)

    def _first(self, rows: NDArray[np.int64], shape: Shape) -> Node | None:
        """Return the first of some rows: the most preferred, then by score, then by node id.

        The scores of plugins come before the node's own; None where they leave no row.
        """
        rows = self._most_preferred(rows, shape)
        if self.has_plugin_scores:
            rows = self.first_by_plugins(rows, shape)
            if not rows.size:
                return None
        scores = self.scores_of(shape, rows)
        ties = rows[scores == scores.min()]
        if ties.size > 1:
            ties = ties[[int(np.argmin(self._ranks.of(ties)))]]
        return self.rows[int(ties[0])]

    @property
    def has_plugin_scores(self) -> bool:
        """Return whether plugins have a say in the order of nodes."""
        return self.hooks is not None and bool(self.hooks.score)

    def first_by_plugins(self, rows: NDArray[np.int64], shape: Shape) -> NDArray[np.int64]:
        """Return those of some rows that plugins put first; none where they score no row."""
        if self.hooks is None:
            return rows
        return self.hooks.first(rows, self.rows, shape, self._view(shape).scores)

    def _most_preferred(self, rows: NDArray[np.int64], shape: Shape) -> NDArray[np.int64]:
        """Return the rows that an ask would rather have, all of them where it does not mind.

        Each preference is brought to 0 to 100 over the rows; their weights are Kubernetes' own.
        """
        view = self._view(shape)
        wishes = [(view.preferred, False, 2)] if shape.constraints.preferred_nodes else []
        if self._soft_taints:
            wishes.append((view.soft_taints, True, 3))
        pods = self.pods.preference(shape, view.eligible, view.selected)
        wishes += [(scores, is_less_better, 2) for scores, is_less_better in pods]
        if not wishes or rows.size == 1:
            return rows
        total = np.zeros(rows.size, dtype=np.int64)
        for scores, is_less_better, weight in wishes:
            total += weight * normalised(scores[rows], is_less_better=is_less_better)
        liked: NDArray[np.int64] = rows[total == total.max()]
        return liked

    def fits(self, node: Node, shape: Shape) -> bool:
        """Return whether a node has the room for a shape now and matches it; pods aside."""
        return self.has_room(node, shape) and self._is_open(node, shape)

    def _is_open(self, node: Node, shape: Shape) -> bool:
        """Return whether a node may be used for a shape, room and pods aside."""
        is_schedulable = node.schedulable or bool(shape.constraints.required_node)
        return is_schedulable and self.may_use(node, shape)

    def may_use(self, node: Node, shape: Shape) -> bool:
        """Return whether constraints and plugins let a node be used for a shape."""
        return matches(shape.constraints, node) and (
            self.hooks is None or self.hooks.admits(node, shape)
        )

    def takes(self, node: Node, shape: Shape) -> bool:
        """Return whether a node can take a shape now, other pods respected, reservations not."""
        if not self.fits(node, shape):
            return False
        open_rows = self._open_rows(shape)
        return open_rows is None or bool(open_rows[node.row])

    def would_take(self, node: Node, shape: Shape, gone: Sequence[Allocation]) -> bool:
        """Return whether a node would take a shape once some of its allocations are gone."""
        for name, value in shape.resource.items():
            freed = sum(allocation.resource_per_alloc.get(name, 0) for allocation in gone)
            if value > 0 and value > node.available.get(name, 0) + freed:
                return False
        if not (self.would_have_devices(node, shape, gone) and self._is_open(node, shape)):
            return False
        open_rows = self._open_rows(shape)
        if open_rows is None or open_rows[node.row]:
            return True
        return self.would_be_open(node, shape, gone)

    def would_have_devices(
        self,
        node: Node,
        shape: Shape,
        gone: Iterable[Allocation],
        coming: Iterable[Allocation] = (),
    ) -> bool:
        """Return whether devices would hold a shape once some are gone and others have come.

        Of who is gone only those on the node count; who has come is given the devices that a new
        one would be, in order.
        """
        need = self.need_of(shape)
        if need is None or not node.devices:
            return self.has_devices(node, shape)
        free = list(open_devices(node))
        for allocation in gone:
            if allocation.node_id == node.node_id:
                devices.change(free, self.devices_of(node, allocation.allocation_key), 1)
        for allocation in coming:
            other = devices.need_of(allocation.resource_per_alloc, allocation.constraints)
            if other is not None:
                devices.change(free, devices.choose(free, other), -1)
        return devices.holds(free, need)

    def would_be_open(
        self,
        node: Node,
        shape: Shape,
        gone: Sequence[Allocation],
        coming: Sequence[Allocation] = (),
    ) -> bool:
        """Return whether pods would leave a node open to a shape once some are gone or have come.

        Those that are gone are each on its node, which may be another; those that come are here.
        """
        if not self.pods.concern(shape) and not (coming and shape.labels):
            return True
        self._open_rows(shape)  # from here on the pods are counted, if they were not before
        moves = [(self.nodes[pod.node_id], pod, -1) for pod in gone if pod.node_id in self.nodes]
        moves += [(node, pod, 1) for pod in coming]
        for at, pod, change in moves:
            self.pods.count(at, pod, change)
        open_rows = self._open_rows(shape)
        is_open = open_rows is None or bool(open_rows[node.row])
        for at, pod, change in reversed(moves):
            self.pods.count(at, pod, -change)
        return is_open

    def could_hold(self, shape: Shape) -> bool:
        """Return whether a node that may be used for a shape could hold it when empty."""
        return bool(self.holders(shape).any())

    def holders(self, shape: Shape) -> NDArray[np.bool_]:
        """Return the rows that may be used for a shape and could hold it when empty."""
        mask: NDArray[np.bool_] = self._fitting(self._capacity, shape)
        need = self.need_of(shape)
        if need is not None:
            mask &= self._devices.holding_when_empty(need, mask.size)
        mask &= self._view(shape).feasible
        if not shape.constraints.required_node:
            mask &= self._schedulable[: len(self.rows)]
        self._ask_hooks(mask, shape)
        return mask

    def available(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return what every node has left of some types, a row a type."""
        found = np.zeros((len(names), len(self.rows)), dtype=np.int64)
        for at, name in enumerate(names):
            if name in self._columns:
                found[at] = self._available[: len(self.rows), self._columns[name]]
        return found

    def rooms(self, rows: NDArray[np.int64], sets: Sequence[Constraints]) -> Rooms:
        """Return what some rows have left, and which of them each set of constraints lets use."""
        free, number = self._devices.open(rows)
        vcore, memory = (
            self._available[rows, self._columns[name]] if name in self._columns else number * 0
            for name in (VCORE, MEMORY)
        )
        views = [None if s == NO_CONSTRAINTS else self._view(Shape("", {}, s)) for s in sets]
        open_to = [None if view is None else view.eligible[rows] for view in views]
        return Rooms(free, vcore, memory, number, open_to)

    def room_of(self, node: Node, sets: Sequence[Constraints]) -> Room:
        """Return what one node has left, and which sets of constraints let it be used."""
        vcore, memory = (
            self._available.item(node.row, self._columns[name]) if name in self._columns else 0
            for name in (VCORE, MEMORY)
        )
        open_to = [
            s == NO_CONSTRAINTS or self._view(Shape("", {}, s)).eligible.item(node.row)
            for s in sets
        ]
        free = sorted([max(left, 0) for left in open_devices(node)], reverse=True)
        return Room(tuple(free), vcore, memory, tuple(open_to))

    def places_of_ids(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of some rows' node ids among all ids."""
        return self._ranks.of(rows)

    # --- what an open statement expects ---------------------------------------------------------

    def expect(self, node: Node, amount: ResourceView, change: int, held: Devices = ()) -> None:
        """Expect room to come to a node (1), or to be taken of what comes (-1), on some devices."""
        if held:
            coming = self._coming.setdefault(node, [0] * len(node.devices))
            devices.change(coming, held, change)
            if not any(coming):
                del self._coming[node]
        (add_into if change > 0 else subtract_into)(node.expected, amount)
        self._know(amount)
        for name in amount:
            value = saturated(node.expected.get(name, 0))
            self._expected[node.row, self._columns[name]] = value

    def expects_nothing(self) -> bool:
        """Return whether no statement is open that expects anything."""
        return not (self._expected.any() or self._coming)

    def devices_to_come(self, node: Node, need: devices.Need | None) -> Devices:
        """Return the devices that a pod would be given of those that are free then, if any.

        Whole ones that are free already come first: what is to go may come back to its own.
        """
        if need is None or not node.devices:
            return ()
        expected = self._expected_devices(node)
        if need[0] == WHOLE:
            idle = [*map(min, open_devices(node), expected)]
            if found := devices.choose(idle, need):
                return found
        return devices.choose(expected, need)

    def may_stay(self, node: Node, key: str) -> bool:
        """Return whether the devices of a pod that was to go are for nobody else by now."""
        free = self._expected_devices(node)
        held = self.devices_of(node, key)
        return all(at >= len(free) or free[at] >= amount for at, amount in held)

    def _expected_devices(self, node: Node) -> list[int]:
        """Return what a node's devices will have free when what is expected has come."""
        free = open_devices(node)
        coming = self._coming.get(node)
        return free if coming is None else [*map(int.__add__, free, coming)]

    def _expected_to_hold(self, need: devices.Need) -> NDArray[np.bool_]:
        """Return which rows will have the devices for a pod."""
        found = self._devices.holding(need, slice(len(self.rows)))
        for node in self._coming:
            found[node.row] = devices.holds(self._expected_devices(node), need)
        return found

    def expected_on(self, node: Node) -> Resource:
        """Return what a node will have left when what is expected has come."""
        room: Resource = dict(node.available)
        add_into(room, node.expected)
        return room

    def room(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return what every node will have left of some types; closed ones have nothing."""
        count = len(self.rows)
        columns = [self._columns[name] for name in names]
        found = _sum(self._available[:count, columns], self._expected[:count, columns])
        found[~self._schedulable[:count]] = 0
        return found

    def capacities(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return what every node can hold of some types; closed ones can hold nothing."""
        count = len(self.rows)
        found = self._capacity[:count, [self._columns[name] for name in names]]
        found[~self._schedulable[:count]] = 0
        return found

    def capacity_of(self, name: str) -> NDArray[np.int64]:
        """Return what every node can hold of a type."""
        return self._capacity[: len(self.rows), self._columns[name]]

    def rows_for(self, shape: Shape) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows will have the room for a shape and be open to it, and which have it.

        Reservations are not respected: what they take is expected to be taken.
        """
        count = len(self.rows)
        mask = self._schedulable[:count] & self._view(shape).feasible
        now = mask.copy()
        for name, value in shape.resource.items():
            column = self._columns.get(name)
            if value > 0 and column is None:
                mask[:] = False
            elif value > 0:
                available = self._available[:count, column]
                now &= available >= value
                mask &= _sum(available, self._expected[:count, column]) >= value
        need = self.need_of(shape)
        if need is not None:
            now &= self._devices.holding(need, slice(count))
            mask &= self._expected_to_hold(need)
        open_rows = self._open_rows(shape) if mask.any() else None
        if open_rows is not None:
            mask &= open_rows
        self._ask_hooks(mask, shape)
        return mask, now & mask

    def would_have(self, node: Node, shape: Shape) -> bool:
        """Return whether a node will take a shape then, other pods respected, reservations not."""
        if not fits_room(self.expected_on(node), shape.resource) or not self._is_open(node, shape):
            return False
        need = self.need_of(shape)
        if need and node.devices and not devices.holds(self._expected_devices(node), need):
            return False
        open_rows = self._open_rows(shape)
        return open_rows is None or bool(open_rows[node.row])

    # --- many at once ---------------------------------------------------------------------------

    def places(
        self, shape: Shape, *, backfill: bool = False, when_empty: bool = False
    ) -> NDArray[np.int64]:
        """Return, row by row, for how many asks of a shape there is the room; pods aside.

        Rows that may not be used have none, nor have reserved ones but with ``backfill``.
        ``when_empty``: for how many there would be if nothing were on the nodes.
        """
        found = self._multiples(self._capacity if when_empty else self._available, shape)
        found[~self._usable(shape, reserved_too=backfill or when_empty)] = 0
        if self.holds and not when_empty and not self.may_backfill(shape):
            found[self._held[: found.size]] = 0
        return found

    def _usable(self, shape: Shape, *, reserved_too: bool) -> NDArray[np.bool_]:
        count = len(self.rows)
        mask: NDArray[np.bool_] = self._view(shape).feasible.copy()
        if not shape.constraints.required_node:
            mask &= self._schedulable[:count]
        if not reserved_too or shape.constraints.required_node:
            mask &= ~self._reserved[:count]
        return mask

    def _multiples(self, matrix: NDArray[np.int64], shape: Shape) -> NDArray[np.int64]:
        """Return how often a shape goes into every row of a matrix, MANY at most."""
        count = len(self.rows)
        found = np.full(count, MANY, dtype=np.int64)
        for name, value in shape.resource.items():
            column = self._columns.get(name)
            if value > 0 and column is None:
                found[:] = 0
            elif value > 0:
                np.minimum(found, matrix[:count, column] // value, out=found)
        need = self.need_of(shape)
        if need is not None:
            is_empty = matrix is self._capacity
            on_devices = self._devices.places(need, count, when_empty=is_empty)
            np.minimum(found, on_devices, out=found)
        return np.maximum(found, 0)

    def nearest(
        self,
        shape: Shape,
        among: NDArray[np.bool_] | None = None,
        short_of: Sequence[str] | None = None,
    ) -> tuple[Node, Resource] | None:
        """Return the node that lacks least for one more ask than it has places, and what it lacks.

        None where no node, or none ``among`` some, may be used for the shape. Shares of what is
        asked are compared. ``short_of``: none of them has a place, and only of these has one too
        little.
        """
        mask = self._usable(shape, reserved_too=True) if among is None else among
        if not mask.any():
            return None
        amounts = {name: value for name, value in shape.resource.items() if value > 0}
        times = np.ones(mask.size, dtype=np.int64)
        if short_of is None:
            times += self._multiples(self._available, shape)
        if short_of is not None and len(short_of) == 1:  # whoever has the most of it
            column = self._columns[short_of[0]]
            total = np.where(mask, -self._available[: mask.size, column].astype(np.float64), np.inf)
        else:
            total = np.where(mask, 0.0, np.inf)
            for name in amounts if short_of is None else short_of:
                total += self._missing(name, amounts[name], times)
        ties = np.flatnonzero(total == total.min())
        row = int(ties[0] if ties.size == 1 else ties[np.argmin(self._ranks.of(ties))])
        node = self.rows[row]
        more, available = int(times[row]), node.available
        lacks = {name: more * value - available.get(name, 0) for name, value in amounts.items()}
        need = self.need_of(shape)
        if need is not None and node.devices:
            name = GPU if need[0] == WHOLE else GPU_SHARE
            on_devices = devices.lacking(_left_by(node, need, more - 1), need)
            lacks[name] = max(lacks[name], on_devices)
        return node, {name: lack for name, lack in lacks.items() if lack > 0}

    def _missing(self, name: str, amount: int, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what every row lacks of a type for so many times an amount, as shares of one."""
        wanted = times.astype(np.float64) * amount
        column = self._columns.get(name)
        if column is not None:
            wanted -= self._available[: times.size, column]
        return np.maximum(wanted, 0.0) / amount

    # --- reservations ---------------------------------------------------------------------------

    def reserved(self) -> list[Node]:
        """Return the nodes that are reserved, in the order of their rows."""
        rows = np.flatnonzero(self._reserved[: len(self.rows)])
        return [self.rows[row] for row in rows.tolist()]

    def schedulable_count(self) -> int:
        """Return how many nodes are schedulable."""
        return int(np.count_nonzero(self._schedulable[: len(self.rows)]))

    def best_to_reserve(self, shape: Shape) -> Node | None:
        """Return the unreserved node that could hold a shape and whose room is the tightest."""
        rows = self._reservable(shape)
        if not rows.size:
            return None
        looseness = self._looseness(rows, shape)
        ties = rows[looseness == looseness.min()]
        return self.rows[int(ties[np.argmin(self._ranks.of(ties))])]

    def nearest_to_hold(self, shape: Shape, most: int) -> list[Node]:
        """Return unreserved nodes that could hold a shape, those first that lack least of it."""
        rows = self._reservable(shape)
        lack = np.zeros(rows.size, dtype=np.float64)
        for name, column in self._columns.items():
            wanted = shape.resource.get(name, 0)
            if wanted > 0:
                lack += np.maximum(0, wanted - self._available[rows, column]) / wanted
        order = np.lexsort((self._ranks.of(rows), lack))
        return [self.rows[row] for row in rows[order[:most]].tolist()]

    def _reservable(self, shape: Shape) -> NDArray[np.int64]:
        """Return the rows of unreserved nodes that could hold a shape."""
        count = len(self.rows)
        mask = self._schedulable[:count] & self.holders(shape)
        mask &= ~(self._reserved[:count] | self._held[:count])
        return np.flatnonzero(mask)

    def _looseness(self, rows: NDArray[np.int64], shape: Shape) -> NDArray[np.float64]:
        """Return how much room would be left over: a share of every type, 1 where none is asked."""
        total = np.zeros(rows.size, dtype=np.float64)
        for name, column in self._columns.items():
            room = self._available[rows, column]
            wanted = shape.resource.get(name, 0)
            if wanted <= 0:
                total += room != 0
            else:
                total += np.where(room > wanted, (room - wanted) / np.maximum(room, 1), 0.0)
        return total

    def refusal(self, shape: Shape) -> Refusal:
        """Return why no node takes a shape now, with the numbers behind it."""
        judged = self._judged(shape)
        reason, message = self._why_none(shape, judged)
        return Refusal(
            reason, message, nodes=self._evidence(shape, judged, is_short=not judged.roomy)
        )

    def evidence(self, shape: Shape) -> NodeEvidence:
        """Return what the nodes lack, by class, for more asks than they have room for."""
        return self._evidence(shape, self._judged(shape), is_short=True)

    def _judged(self, shape: Shape) -> "_Judged":
        """Find out which rows fail on what, each counted for the first thing that it fails on.

        Of amounts that are missing it is counted for each.
        """
        may = self._may_be_used(shape)
        left, large = self._could_hold(shape, may)
        failures = list(may.failures)
        if large < may.usable:
            failures += self._too_small(shape, may.left ^ left, may.usable - large)
        room, lacking, need = left, [], self.need_of(shape)
        for name, value in shape.resource.items():
            if value > 0 and large:  # else there may be no column
                mask = left & (self._available[: left.size, self._columns[name]] < value)
                if need is not None and name in (GPU, GPU_SHARE):
                    mask |= left & ~self._devices.holding(need, slice(left.size))
                if number := int(np.count_nonzero(mask)):
                    failures.append(Failing(name, mask, number))
                    lacking.append(name)
                    room = room & ~mask
        roomy = int(np.count_nonzero(room)) if lacking else large
        return _Judged(failures, lacking, left, room, large, roomy, may)

    def _may_be_used(self, shape: Shape) -> MayBeUsed:
        """Find out which rows fail on something else than amounts: it is known for the next one."""
        view = self._view(shape)
        known = view.may_be_used
        if known is not None and known.facts == self._facts:
            return known
        count = len(self.rows)
        failures: list[Failing] = []
        left = np.ones(count, dtype=np.bool_)
        passed = [count]
        for on, passes in (
            (UNSCHEDULABLE, self._schedulable[:count]),
            (SELECTOR, view.selected),
            (TAINTS, view.eligible),
            (PLUGIN, view.feasible),
        ):
            kept = left & passes
            passed.append(int(np.count_nonzero(kept)))
            if passed[-1] < passed[-2] and on == TAINTS:
                failures += split(on, left ^ kept, view.taint_codes, view.taints)
            elif passed[-1] < passed[-2]:
                failures.append(Failing(on, left ^ kept, passed[-2] - passed[-1]))
            left = kept
        view.may_be_used = MayBeUsed(self._facts, failures, left, passed[1], passed[3], passed[4])
        return view.may_be_used

    def _could_hold(self, shape: Shape, may: MayBeUsed) -> tuple[NDArray[np.bool_], int]:
        """Return which of the rows that may be used could hold it when empty, and how many."""
        if self._smallest[0] != self._facts:
            lows = self._capacity[: len(self.rows)].min(axis=0, initial=INT64_MAX).tolist()
            self._smallest = (self._facts, lows)
        lows, left = self._smallest[1], may.left
        for name, value in shape.resource.items():
            column = self._columns.get(name)
            if value > 0:
                if column is None:
                    return np.zeros(left.size, dtype=np.bool_), 0
                if lows[column] < value:
                    left = left & (self._capacity[: left.size, column] >= value)
        need = self.need_of(shape)
        if need is not None:
            left = left & self._devices.holding_when_empty(need, left.size)
        return left, may.usable if left is may.left else int(np.count_nonzero(left))

    def _too_small(self, shape: Shape, rows: NDArray[np.bool_], number: int) -> list[Failing]:
        """Return rows that could not hold a shape when empty, by the types that they lack."""
        lows, columns = self._smallest[1], self._columns
        lacked = [
            name
            for name, value in shape.resource.items()
            if value > 0 and (name not in columns or lows[columns[name]] < value)
        ]
        if len(lacked) == 1 and shape.on_devices is None:
            return [Failing(TOO_SMALL, rows, number, lacked[0])]
        codes = np.zeros(rows.size, dtype=np.int64)
        texts = [GPU if shape.on_devices is not None else ""]
        for name in lacked:
            if len(texts) <= MAX_LACKING:
                column, value = columns.get(name), shape.resource[name]
                lacks = rows if column is None else self._capacity[: rows.size, column] < value
                codes += lacks * len(texts)
                texts += [f"{text},{name}" if at else name for at, text in enumerate(texts)]
        return split(TOO_SMALL, rows, codes, texts)

    def _evidence(self, shape: Shape, judged: "_Judged", *, is_short: bool) -> NodeEvidence:
        """Return it with what is in the way of those that have the room.

        ``is_short``: they have it for some, or for none, and not for as many as there are.
        """
        failures = list(judged.failures)
        nearest = None
        if is_short and judged.large:
            short_of = None if judged.roomy else judged.lacking
            nearest = self.nearest(shape, judged.left, short_of)
        if judged.roomy:
            failures += self._closed_in_spite_of_room(shape, judged.room, is_short=is_short)
        return self._classes.evidence(len(self.rows), failures, nearest)

    def _closed_in_spite_of_room(
        self, shape: Shape, room: NDArray[np.bool_], *, is_short: bool
    ) -> list[Failing]:
        found: list[tuple[str, NDArray[np.bool_], str]] = []
        open_rows = self._open_rows(shape)
        if open_rows is not None:
            volumes, view = shape.constraints.volumes, self._view(shape)
            to_volumes = self.pods.volumes.open_rows(volumes, self.rows)
            in_use = IN_USE if self.pods.volumes.is_in_use(volumes) else ""
            found.append((VOLUMES, room & ~to_volumes, in_use))
            left = room & to_volumes
            for cause, closed in self.pods.closed_by(shape, view.eligible, view.selected):
                found.append((OTHER_PODS, left & closed, cause.value))
                left = left & ~closed
            room = room & open_rows
        reserved = self._closed(slice(len(self.rows)), shape)
        found.append((TAKEN, room & reserved, ""))
        if not is_short and self.hooks is not None:
            found.append((PLUGIN, room & ~reserved, ""))
        failing = (
            Failing(on, mask, int(np.count_nonzero(mask)), detail) for on, mask, detail in found
        )
        return [one for one in failing if one.number]

    def _why_none(self, shape: Shape, judged: "_Judged") -> tuple[Reason, str]:
        count, matching, large, roomy = (
            len(self.rows),
            judged.may.matching,
            judged.large,
            judged.roomy,
        )
        room = judged.room
        if not judged.may.schedulable:
            return Reason.NO_NODES, f"none of {count} nodes is schedulable"
        if not matching:
            return (
                Reason.CONSTRAINTS,
                (
                    f"0 of {judged.may.schedulable} schedulable nodes match the selector, affinity "
                    "and tolerations"
                ),
            )
        if self.hooks is not None:
            view = self._view(shape)
            admitted = self._schedulable[:count] & view.eligible
            why = self._why_closed(admitted, shape)
            if why:
                return Reason.PLUGIN, why
            admitted &= view.feasible
            self._ask_hooks(admitted, shape)
            room = room & admitted
            matching, roomy = int(np.count_nonzero(admitted)), int(np.count_nonzero(room))
            large = int(np.count_nonzero(judged.left & admitted))
        wanted = f"requested {go_map(shape.resource)}"
        if not large:
            return (
                Reason.NODE_TOO_SMALL,
                f"{wanted}: 0 of {matching} matching nodes could hold it when empty",
            )
        if not roomy:
            return (
                Reason.NO_NODE_FITS,
                (
                    f"{wanted}: 0 of {matching} matching nodes have the room now, "
                    f"{large} could hold it when empty"
                ),
            )
        return self._why_none_of_the_roomy(shape, room, roomy)

    def _why_none_of_the_roomy(
        self, shape: Shape, room: NDArray[np.bool_], roomy: int
    ) -> tuple[Reason, str]:
        open_rows = self._open_rows(shape)
        if open_rows is not None and not (room & open_rows).any():
            volumes = shape.constraints.volumes
            if not (room & self.pods.volumes.open_rows(volumes, self.rows)).any():
                why = self.pods.volumes.why_none(volumes, self.rows)
                return Reason.VOLUMES, f"{roomy} nodes have the room, and {why}"
            return (
                Reason.OTHER_PODS,
                (
                    f"{roomy} nodes have the room, and affinity, spread or host ports of "
                    "pods leave none of them open"
                ),
            )
        unreserved = room & ~self._closed(slice(len(self.rows)), shape)
        if self.hooks is not None and unreserved.any():
            return Reason.PLUGIN, self._why_closed(unreserved, shape)
        return (
            Reason.RESERVED,
            f"{roomy} nodes have the room, and all are reserved for asks that have waited longer",
        )

    def why_closed(self, node: Node, shape: Shape) -> str:
        """Return which plugins close a node to a shape."""
        return self.hooks.why_closed([node], shape) if self.hooks is not None else ""

    def _why_closed(self, mask: NDArray[np.bool_], shape: Shape) -> str:
        """Return which plugins close all rows of a mask, "" where they leave one open."""
        nodes = [self.rows[row] for row in np.flatnonzero(mask)]
        return self.hooks.why_closed(nodes, shape) if self.hooks is not None else ""

    def _fitting(self, matrix: NDArray[np.int64], shape: Shape) -> NDArray[np.bool_]:
        """Return the rows of a matrix that have at least what a shape asks for."""
        result = np.ones(len(self.rows), dtype=np.bool_)
        for name, value in shape.resource.items():
            column = self._columns.get(name)
            if value > 0 and column is None:
                result[:] = False
            elif value > 0:
                result &= matrix[: len(self.rows), column] >= value
        return result

    def _view(self, shape: Shape) -> NodeView:
        """Return what constraints make of every row, for what depends on the node alone."""
        view: NodeView
        if shape.view is not None and shape.view[0] == self._version:
            view = shape.view[1]
        else:
            view = self._view_of(shape)
            shape.view = (self._version, view)
        if view.made < len(self.rows):
            view.extend(self.rows)
        return view

    def _view_of(self, shape: Shape) -> NodeView:
        key: object = shape.constraints.of_nodes
        if self.hooks is not None:
            key = (key, tuple(sorted(shape.resource.items())))
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= MAX_CONSTRAINTS:
                self._views.clear()
                self._version += 1
            view = self._views[key] = NodeView(shape, self.hooks)
        return view

    def _grow_rows(self) -> None:
        more = self._score.shape[0]
        self._available = np.pad(self._available, ((0, more), (0, 0)))
        self._capacity = np.pad(self._capacity, ((0, more), (0, 0)))
        self._expected = np.pad(self._expected, ((0, more), (0, 0)))
        self._score = np.pad(self._score, (0, more))
        self._changed = np.pad(self._changed, (0, more))
        self._reserved = np.pad(self._reserved, (0, more))
        self._held = np.pad(self._held, (0, more))
        self._schedulable = np.pad(self._schedulable, (0, more))

    def _add_column(self, name: str) -> int:
        column = self._columns[name] = len(self._columns)
        self._facts += 1
        if column == self._available.shape[1]:
            self._available = np.pad(self._available, ((0, 0), (0, column)))
            self._capacity = np.pad(self._capacity, ((0, 0), (0, column)))
            self._expected = np.pad(self._expected, ((0, 0), (0, column)))
        return column


def _sum(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums of two arrays, no further from 0 than int64 holds."""
    total = one + other
    wrapped = ((one ^ total) & (other ^ total)) < 0
    if wrapped.any():
        total[wrapped] = np.where(one[wrapped] < 0, INT64_MIN, INT64_MAX)
    return total


def _count_devices(node: Node) -> None:
    """Bring a node's devices to what it announces, and to what is held of them."""
    number = node.capacity.get(GPU, 0)
    node.devices = [WHOLE] * (number if number <= MAX_DEVICES else 0)
    for held in node.held_devices.values():
        devices.change(node.devices, held, -1)


def _give(node: Node, holder: DeviceHolder, held: Devices) -> None:
    node.held_devices[holder] = held
    devices.change(node.devices, held, -1)


def _give_last_devices(node: Node, foreign: Allocation) -> None:
    """Count a pod that another scheduler placed on the last devices: nobody knows which it has."""
    need = devices.need_of(foreign.resource_per_alloc, foreign.constraints)
    if need is not None:
        holder = (True, foreign.allocation_key)
        node.assumed_devices[holder] = None
        _give(node, holder, devices.choose_last(node.devices, need))


def _take_devices(node: Node, holder: DeviceHolder) -> None:
    """Give the devices back that one holds, if any."""
    held = node.held_devices.pop(holder, None)
    if held is not None:
        node.assumed_devices.pop(holder, None)
        devices.change(node.devices, held, 1)


def _assumed(node: Node, need: devices.Need) -> Devices:
    """Return the devices that one is taken to have which runs, nobody knows where."""
    return devices.choose(node.devices, need) or devices.choose_last(node.devices, need)


def _left_by(node: Node, need: devices.Need, times: int) -> list[int]:
    """Return what so many like pods would leave of a node's devices."""
    free = list(open_devices(node))
    for _ in range(times):
        devices.change(free, devices.choose(free, need), -1)
    return free


def _make_way(node: Node, stated: Devices) -> None:
    """Have those make way for who is known to have a device that were only assumed to have it."""
    crowded = {at for at, amount in stated if node.devices[at] < amount}
    if not crowded:
        return
    movable = [
        holder
        for holder in node.assumed_devices
        if any(at in crowded for at, _ in node.held_devices[holder])
    ]
    devices.change(node.devices, stated, -1)
    for holder in movable:
        was = node.held_devices[holder]
        devices.change(node.devices, was, 1)
        need = (was[0][1], len(was))
        _give(node, holder, devices.choose(node.devices, need) or was)
    devices.change(node.devices, stated, 1)


def _soft_taints(node: Node) -> int:
    return sum(taint.effect == SOFT_EFFECT for taint in node.taints)
