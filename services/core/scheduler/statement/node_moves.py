"""Moves of nodes and of the foreign pods on them.

Asks that a node with more capacity or other labels may fit are requeued.
"""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.statement.journal import (
    ForeignChanged,
    NodeAccepted,
    NodeChanged,
    NodeEnded,
    RowSet,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.constraints import Taint
from shared.messages.interface import Allocation
from shared.model.names import NOMINATED_TAG
from shared.model.resources import ResourceView


def add(partition: Partition, node: Node) -> None:
    """Register a node; its id must be new. The caller then calls ``nodes_added``."""
    partition.nodes.add(node)
    partition.journal.record(NodeAccepted(node))
    values = {
        "capacity": dict(node.capacity),
        "labels": node.labels,
        "schedulable": node.schedulable,
    }
    partition.journal.record(RowSet(node, values))


def nodes_added(partition: Partition, nodes: list[Node]) -> None:
    """Requeue the asks that added nodes may fit."""
    if nodes:
        partition.capacity_changed()
        partition.requeue_for_domains()
        for node in nodes:
            partition.node_improved(node)
        partition.check_reservations()


def resize(partition: Partition, node: Node, capacity: ResourceView) -> None:
    """Change a node's capacity; its allocations may then exceed it."""
    partition.nodes.set_capacity(node, capacity)
    partition.journal.record(RowSet(node, {"capacity": dict(node.capacity)}))
    partition.capacity_changed()
    _has_changed(partition, node)


def relabel(
    partition: Partition,
    node: Node,
    labels: dict[str, str],
    taints: tuple[Taint, ...],
    volume_limits: dict[str, int],
) -> None:
    """Change a node's labels, taints and volume limits."""
    domain = node.domain
    partition.nodes.relabel(node, labels, taints, volume_limits)
    partition.journal.record(RowSet(node, {"labels": labels}))
    if node.domain != domain:
        partition.journal.record(NodeChanged(node))
    partition.is_capacity_new = True
    partition.requeue_for_domains()
    _has_changed(partition, node)


def set_schedulable(partition: Partition, node: Node, *, schedulable: bool) -> None:
    """Open a node to asks, or close it."""
    partition.set(node, schedulable=schedulable)
    partition.is_capacity_new = True
    partition.nodes.refresh(node)
    _has_changed(partition, node)


def remove(partition: Partition, node: Node) -> None:
    """Remove a node, its reservations and its foreign pods; the caller removes its allocations."""
    partition.end_claims_for_moved(node=node)
    if node.head_claim is not None:
        partition.claims.end(node.head_claim)
    partition.nodes.remove(node)
    partition.victims.node_gone(node)
    partition.give_back(node)
    partition.capacity_changed()
    partition.journal.record(NodeEnded(node))
    for key, allocation in node.foreign.items():
        del partition.foreign[key]
        partition.nominated.pop(key, None)
        partition.journal.record(ForeignChanged(allocation, is_gone=True))


def _has_changed(partition: Partition, node: Node) -> None:
    partition.node_improved(node)
    partition.check_reservations()


# --- pods of other schedulers -------------------------------------------------------------------


def add_foreign(partition: Partition, allocation: Allocation) -> None:
    """Add a foreign pod to its node; the node exists and does not have it yet."""
    node = partition.nodes.nodes[allocation.node_id]
    partition.learn(allocation.constraints)
    partition.nodes.occupy(node, allocation)
    partition.foreign[allocation.allocation_key] = node.node_id
    if NOMINATED_TAG in allocation.allocation_tags:
        partition.nominated[allocation.allocation_key] = node.node_id
    _foreign_has_changed(partition, node, allocation, is_gone=False)


def resize_foreign(partition: Partition, before: Allocation, now: Allocation) -> None:
    """Replace a foreign pod by its changed version, on its present node."""
    _take_out(partition, before)
    add_foreign(partition, now)


def remove_foreign(partition: Partition, allocation: Allocation) -> None:
    """Remove a foreign pod from its node."""
    node = _take_out(partition, allocation)
    _foreign_has_changed(partition, node, allocation, is_gone=True)


def _take_out(partition: Partition, allocation: Allocation) -> Node:
    key = allocation.allocation_key
    partition.nominated.pop(key, None)
    node = partition.nodes.nodes[partition.foreign.pop(key)]
    partition.nodes.vacate(node, key)
    return node


def _foreign_has_changed(
    partition: Partition, node: Node, allocation: Allocation, *, is_gone: bool
) -> None:
    partition.journal.record(ForeignChanged(allocation, is_gone))
    partition.requeue_for_pods()
    partition.node_improved(node)
