"""Applies the resource manager's NodeInfo: nodes that are added, changed, drained or removed.

Source: docs/rules/interface.md (NodeInfo actions) and cases N-01 to N-10.
"""

from collections.abc import Iterable
from itertools import groupby

from services.core.scheduler.actions import replacement, restarts
from services.core.scheduler.lifecycle import endings
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.statement import node_moves
from services.core.scheduler.statement.journal import (
    EndConfirmed,
    NodeRejected,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import (
    CREATES,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.model.names import NODE_PARTITION
from shared.model.resources import is_negative, without_zeros


def update_nodes(partition: Partition, news: Iterable[NodeInfo]) -> None:
    """Apply node updates in order; the consequences of consecutive new nodes are computed once."""
    for are_new, row in groupby(news, lambda info: info.action in CREATES):
        if are_new:
            made = [_create(partition, info) for info in row]
            node_moves.nodes_added(partition, [node for node in made if node is not None])
        else:
            for info in row:
                _change(partition, info)


def _change(partition: Partition, info: NodeInfo) -> None:
    """Apply the update of one known node."""
    node = partition.nodes.nodes.get(info.node_id)
    if node is None:
        reason = f"failed to find node {info.node_id}"
        partition.journal.record(NodeRejected(info, reason))
    elif info.action is NodeAction.UPDATE:
        _update(partition, info, node)
    elif info.action is NodeAction.DECOMISSION:
        _remove(partition, node)
    else:
        schedulable = info.action is NodeAction.DRAIN_TO_SCHEDULABLE
        node_moves.set_schedulable(partition, node, schedulable=schedulable)
        restarts.keep_ahead(partition, node)


def _create(partition: Partition, info: NodeInfo) -> Node | None:
    """Register a node, or reject it (None)."""
    reason = "" if info.node_id else "a node needs an ID"
    named = info.attributes.get(NODE_PARTITION)
    if named is not None and named.rpartition("]")[2] != partition.name:
        reason = f"failed to find partition {named} for new node {info.node_id}"
    if info.node_id in partition.nodes.nodes:
        reason = (
            f"partition {partition.name} has an existing node {info.node_id}, "
            "node name must be unique"
        )
    elif is_negative(info.schedulable_resource):
        reason = f"node {info.node_id} has a negative capacity"
    if reason:
        partition.journal.record(NodeRejected(info, reason))
        partition.configure(failed_nodes=partition.failed_nodes + 1)
        return None
    node = Node(
        node_id=info.node_id,
        row=0,
        capacity=without_zeros(info.schedulable_resource),
        attributes=dict(info.attributes),
        labels=dict(info.labels),
        taints=info.taints,
        schedulable=info.action is NodeAction.CREATE,
        volume_limits=dict(info.volume_limits),
    )
    node_moves.add(partition, node)
    return node


def _update(partition: Partition, info: NodeInfo, node: Node) -> None:
    if is_negative(info.schedulable_resource):
        reason = f"node {info.node_id} has a negative capacity"
        partition.journal.record(NodeRejected(info, reason))
        return
    if info.schedulable_resource:
        node_moves.resize(partition, node, info.schedulable_resource)
    if info.attributes and info.attributes != node.attributes:
        partition.set(node, attributes=dict(info.attributes))
    if info.labels or info.taints or info.volume_limits:
        limits = dict(info.volume_limits)
        is_tainted = info.taints != node.taints
        node_moves.relabel(partition, node, dict(info.labels), info.taints, limits)
        if is_tainted:
            restarts.keep_ahead(partition, node)


def _remove(partition: Partition, node: Node) -> None:
    """Remove a node and every allocation on it (case N-02; replacements: N-10)."""
    node_moves.remove(partition, node)
    for key, allocation in list(node.allocations.items()):
        application = partition.applications.get(allocation.application_id)
        if application is not None:
            _lose(partition, application, key, node)
    partition.requeue_for_domains()


def _lose(partition: Partition, application: Application, key: str, node: Node) -> None:
    allocation = application.allocations.get(key)
    if allocation is None:
        replacement.real_node_gone(partition, application, key)
        return
    message = f"Node {node.node_id} Removed"
    release = AllocationRelease(application.id, key, TerminationType.STOPPED_BY_RM, message=message)
    partition.journal.record(EndConfirmed(release))
    if allocation.placeholder:
        replacement.placeholder_gone(partition, application, key, TerminationType.STOPPED_BY_RM)
    else:
        partition.remove(application, key)
        endings.after_real_removed(partition, application)
