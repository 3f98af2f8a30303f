"""The table of nodes: their ledgers, and everything derived from them.

Every change of a node goes through here, so that arrays, devices, pods, indexes and plugins stay up
to date. ``filters`` tells which nodes fit an ask, ``order`` which comes first, ``room`` how many
asks fit and what is lacking.
"""

from collections.abc import Mapping
from typing import Any

from services.core.scheduler.model.rows import BY_ASK, BY_HEAD_GANG, NOT_CLOSED, Claim, Node
from services.core.scheduler.nodes.columns import NodeColumns
from services.core.scheduler.nodes.domains import Domains
from services.core.scheduler.nodes.filters import NodeFilters
from services.core.scheduler.nodes.filters.plugins import NodeHooks
from services.core.scheduler.nodes.node_classes import NodeClasses
from services.core.scheduler.nodes.node_devices import NodeDevices
from services.core.scheduler.nodes.node_order import NodeOrder
from services.core.scheduler.nodes.node_room import NodeRoom
from services.core.scheduler.nodes.node_view import NodeViews
from services.core.scheduler.nodes.pod_topology import PodIndex
from services.core.scheduler.nodes.spares import Spares
from shared.messages.constraints import Taint
from shared.messages.interface import Allocation
from shared.messages.selectors import SOFT_EFFECT
from shared.model.gpus import Devices
from shared.model.numbers import INT64_MAX, INT64_MIN, saturated
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    multiply,
    subtract_into,
    without_zeros,
)

NO_SHAPE: Any = None  # for a score that is independent of asks


class NodeTable:
    """All nodes of the partition, in dense rows."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.total: Resource = {}
        self.columns = NodeColumns()
        self.rows = self.columns.rows
        self.devices = NodeDevices()
        self.pods = PodIndex()
        self.pods.watch(self.rows)
        self.domains = Domains(self.rows)
        self.spares = Spares(self.domains, self.rows)
        self.pods_changed = False  # pods changed that affinities may depend on; reset on requeue
        self.hooks: NodeHooks | None = None  # of plugins
        self.views = NodeViews(self.rows)
        self._classes = NodeClasses()
        self.filters = NodeFilters(
            self.columns,
            self.views,
            self.devices,
            self.pods,
            self.nodes,
            self.domains,
            self.spares,
        )
        self.backfill_window = self.filters.backfill_window
        self.order = NodeOrder(
            self.columns,
            self.views,
            self.filters,
            self.devices,
            self.pods,
            domains=self.domains,
        )
        self._index, ranks = self.order.index, self.order.ranks
        self.room = NodeRoom(self.columns, self.filters, self.devices, ranks, self._classes)

    def set_policy(self, policy: str, weights: Mapping[str, float]) -> None:
        """Set the order of nodes. Weights replace all defaults."""
        self.order.use_policy(policy, weights)
        for node in self.rows:
            self.refresh(node)

    def use_hooks(self, hooks: NodeHooks | None) -> None:
        """Use the hooks of plugins."""
        self.hooks = self.room.hooks = hooks
        self.order.use_hooks(hooks)

    # --- nodes ----------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Register a node; its id must be new."""
        node.row = len(self.rows)
        node.capacity = self.devices.announced(node.capacity)
        self.devices.count(node)
        self.columns.append(node)
        self.nodes[node.node_id] = node
        add_into(self.total, node.capacity)
        self.columns.soft_taints += _soft_taints(node)
        self.order.ranks.added(node)
        self.domains.added(node)
        self.pods.joined()
        self.pods.count_node(node, 1)
        self._write_capacity(node)
        self.refresh(node)
        if self.hooks is not None:
            self.hooks.facts += 1

    def remove(self, node: Node) -> None:
        """Remove a node; the last row takes its place."""
        if node.head_claim is not None:
            self.close(node, None)
        self.pods.count_node(node, -1)
        last = self.columns.pop()
        self.columns.facts += 1
        self.order.ranks.removed(node, len(self.rows))
        self._index.removed(node)
        if last is not node:
            self.rows[node.row] = last
            last.row = node.row
            self._write_capacity(last)
            self.refresh(last)
        self.domains.removed(node)
        self.views.shorten()
        if last is not node:
            self.views.renew(last)
        del self.nodes[node.node_id]
        subtract_into(self.total, node.capacity)
        self.columns.soft_taints -= _soft_taints(node)
        self.pods.watch(self.rows)
        if self.hooks is not None:
            self.hooks.facts += 1
            self.hooks.moves += 1
            for allocation in node.allocations.values():
                self.hooks.allocation_removed(allocation)

    def set_capacity(self, node: Node, capacity: ResourceView) -> None:
        """Set a node's capacity; its allocations may then exceed it."""
        subtract_into(self.total, node.capacity)
        node.capacity = self.devices.announced(without_zeros(capacity))
        self.devices.count(node)
        add_into(self.total, node.capacity)
        self._write_capacity(node)
        if self.hooks is not None:
            self._judge_again(node)
        self.refresh(node)

    def share_devices(self) -> list[Node]:
        """Add GPU shares to the nodes' capacity; return the nodes with devices."""
        self.devices.share()
        self.filters.choose()
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
        """Set a node's labels, taints and volume limits."""
        self.columns.soft_taints -= _soft_taints(node)
        node.labels, node.taints, node.volume_limits = labels, taints, volume_limits
        self.columns.soft_taints += _soft_taints(node)
        self.domains.relabelled(node)
        self._judge_again(node)
        self.touch(node)
        self.pods.watch(self.rows)

    def _judge_again(self, node: Node) -> None:
        """Recompute all cached answers about a node after its properties changed."""
        self.columns.facts += 1
        self.views.renew(node)
        if self.hooks is not None:
            self.hooks.facts += 1

    # --- moves ----------------------------------------------------------------------------------

    def place(self, node: Node, allocation: Allocation, stated: Devices | None = None) -> None:
        """Add an allocation to a node; ``stated`` are its known devices."""
        node.allocations[allocation.allocation_key] = allocation
        if node.devices:
            self.devices.give_to(node, allocation, stated)
        add_into(node.allocated, allocation.resource_per_alloc)
        self._count(node, allocation, 1)
        if self.hooks is not None:
            self.hooks.allocation_added(allocation)

    def hold(self, node: Node, allocation: Allocation) -> None:
        """Add an allocation to a node without its amount; the caller calls ``count_placed``."""
        node.allocations[allocation.allocation_key] = allocation
        if node.devices:
            self.devices.give_to(node, allocation, allocation.devices)
        if self.pods.placed(node, allocation, 1):
            self.pods_changed = True
        if self.domains.gangs:
            self._count_member(allocation, node, 1)
        if self.hooks is not None:
            self.hooks.allocation_added(allocation)

    def count_placed(self, node: Node, amount: ResourceView, times: int = 1) -> None:
        """Add the amount of allocations already on a node; no affinity depends on them."""
        add_into(node.allocated, amount if times == 1 else multiply(amount, times))
        self._take(node, amount, times)

    def free(self, node: Node, key: str) -> Allocation:
        """Remove an allocation from a node. Raises KeyError if it is not there."""
        allocation = node.allocations.pop(key)
        self.devices.take(node, key)
        subtract_into(node.allocated, allocation.resource_per_alloc)
        self._count(node, allocation, -1)
        if self.hooks is not None:
            self.hooks.allocation_removed(allocation)
        return allocation

    def occupy(self, node: Node, foreign: Allocation) -> None:
        """Add a foreign pod to a node; it may exceed the capacity."""
        node.foreign[foreign.allocation_key] = foreign
        if node.devices:
            self.devices.give_last(node, foreign)
        add_into(node.occupied, foreign.resource_per_alloc)
        self._count(node, foreign, 1)

    def vacate(self, node: Node, key: str) -> None:
        """Remove a foreign pod from a node. Raises KeyError if it is not there."""
        foreign = node.foreign.pop(key)
        self.devices.take(node, key, is_foreign=True)
        subtract_into(node.occupied, foreign.resource_per_alloc)
        self._count(node, foreign, -1)

    def expect(self, node: Node, amount: ResourceView, change: int, held: Devices = ()) -> None:
        """Expect capacity to become free on a node (1), or to be used (-1), with devices."""
        self.devices.expect(node, held, change)
        (add_into if change > 0 else subtract_into)(node.expected, amount)
        self.columns.write_expected(node, amount)

    def expects_nothing(self) -> bool:
        """Whether no open statement expects anything."""
        return not (self.columns.expected.any() or self.devices.is_any_expected)

    # --- claims ---------------------------------------------------------------------------------

    def close(self, node: Node, claim: Claim | None) -> None:
        """Close a node by a claim of the head gang, or (None) open it."""
        is_other = (claim is None) is not (node.head_claim is None)
        node.head_claim = claim
        if is_other:
            self.backfill_window.nodes += 1 if claim is not None else -1
            self._write_claims(node)
            self.touch(node)

    def _write_claims(self, node: Node) -> None:
        """Update a node's row to the claims that close it."""
        claimed = BY_HEAD_GANG if node.head_claim is not None else 0
        for claim in node.reservations.values():
            claimed |= BY_ASK if claim.closes_node else NOT_CLOSED
        node.claimed = claimed
        self.columns.claimed[node.row] = node.claimed

    # --- updates of derived data ----------------------------------------------------------------

    def _count(self, node: Node, allocation: Allocation, change: int) -> None:
        self._take(node, allocation.resource_per_alloc, change)
        if self.domains.gangs:
            self._count_member(allocation, node, change)
        if self.pods.placed(node, allocation, change):
            self.pods_changed = True

    def _count_member(self, allocation: Allocation, node: Node, change: int) -> None:
        """Count a pod of a gang with a topology, which may use spare nodes after a loss."""
        if self.domains.count(allocation, node, change):
            for spare in self.spares.nodes:
                self.touch(spare)
        if self.spares.levels_of_queues and allocation.application_id in self.domains.gangs:
            self.spares.is_due = True

    def keep_spares(self, level: str, number: int) -> None:
        """Set the number of spare nodes in each domain of a level."""
        self.spares.level, self.spares.number = level, number
        self._keep_other_spares()

    def keep_spares_of_queues(self, levels: tuple[str, ...]) -> None:
        """Choose spare nodes again: the queues that state some have changed, on these levels."""
        before, self.spares.levels_of_queues = self.spares.levels_of_queues, levels
        if before or levels:
            self._keep_other_spares()

    def _keep_other_spares(self) -> None:
        self.spares.configure()
        self.filters.choose()

    def _take(self, node: Node, amount: ResourceView, times: int) -> None:
        """Subtract an amount from a node's available one, ``times`` times."""
        available, columns, row = node.available, self.columns, node.row
        if node.head_claim is not None and times > 0:  # until it is computed again
            subtract_into(node.head_claim.leaves, multiply(amount, times))
        for name, value in amount.items():
            left = available.get(name, 0) - times * value
            if left:
                available[name] = left
            else:
                available.pop(name, None)
            column = columns.numbers.get(name)
            if column is None:
                column = columns.column(name)
            if not INT64_MIN <= left <= INT64_MAX:
                left = saturated(left)
            columns.available[row, column] = left
        if self.devices.are_read:
            self.devices.write(node, amount)
        self._note(node)
        if self.hooks is not None:
            self.hooks.moves += 1

    def refresh(self, node: Node) -> None:
        """Update a node's row to its ledgers."""
        available = dict(node.capacity)
        for taken in (node.allocated, node.occupied, node.reserved):
            if taken:
                subtract_into(available, taken)
        node.available = available
        columns, row = self.columns, node.row
        columns.write_available(node)
        self.devices.write(node)
        if columns.schedulable[row] != node.schedulable:
            columns.schedulable[row] = node.schedulable
            columns.facts += 1
        self._write_claims(node)
        self._note(node)

    def _write_capacity(self, node: Node) -> None:
        self.columns.write_capacity(node)
        self._classes.write(node)

    def _note(self, node: Node) -> None:
        """Update a changed node's score, and log the change."""
        node.score = self.columns.score[node.row] = self.order.of_node(node, NO_SHAPE)
        self.touch(node)

    def touch(self, node: Node) -> None:
        """Log a change of a node, e.g. that an allocation is being released."""
        self._index.changed(node)
        self.columns.changed[node.row] = node.changed


def _soft_taints(node: Node) -> int:
    return sum(taint.effect == SOFT_EFFECT for taint in node.taints)
