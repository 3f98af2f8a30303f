"""Reserves capacity for the replacements of gang members: ended ones, and those on draining nodes.

Rule 1: a controller that restarts a gang deletes its pods and creates them again within seconds. If
        a member ends without success, its node still exists, and its task group falls below its
        minimum, a claim reserves its capacity for the gang, as for a moved pod. The first equal pod
        gets it. For a member that failed by itself the claim is on another node, if one fits: its
        own may be the cause.
        The replacement of a failed one prefers other nodes for the setting ``avoidNode``, also if
        the gang is above its minimum.
Rule 2: it lasts for the setting ``restartRoom``, and at most for the gang's stale grace if stale
        gangs are evicted. Not for a gang that gave up, is finishing or ends, nor for a single pod.
Rule 3: if a node drains, or has a taint that a member does not tolerate, a place in its domain is
        reserved for the replacement of each member of a task group at its minimum, on free
        capacity. It expires after AHEAD_NS while the pod runs, and ends if the node may be used
        again; after the pod's end the first equal pod has WAIT_NS to arrive.
Rule 4: it is reserved against asks of the same priority, in any queue. A higher priority ends it.
"""

import numpy as np

from services.core.scheduler.model.reservations import priority_of, rank_of
from services.core.scheduler.model.rows import Application, Claim, Node
from services.core.scheduler.model.settings import AVOID_NODE_NS, STALE
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Mask
from services.core.scheduler.place.one import InDomain, node_for
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation, AllocationRelease, TerminationType
from shared.model.states import ApplicationState

_LIVELY = (ApplicationState.ACCEPTED, ApplicationState.RUNNING)


def keep_room(
    partition: Partition,
    application: Application,
    pod: Allocation,
    ended: AllocationRelease,
    *,
    was_released: bool,
) -> None:
    """Reserve the capacity of an ended member, which is already removed from all ledgers.

    Not of one that the core released itself (``was_released``).
    """
    if ended.has_failed and not was_released:
        _avoid_node(partition, application, pod)
    is_stopped = ended.termination_type is TerminationType.STOPPED_BY_RM
    if was_released or not is_stopped or ended.has_succeeded or ended.is_final:
        return
    room_ns, node = _room_ns(partition, application), partition.nodes.nodes.get(pod.node_id)
    if room_ns <= 0 or node is None or not _lacks(application, pod.task_group_name):
        return
    is_higher = partition.root.priorities.highest > priority_of(application.queue, pod.priority)
    if is_higher or pod.allocation_key in partition.moved:
        return
    if _may_stay(partition, application, pod, node):
        if ended.has_failed:
            node = _another(partition, application, pod, node) or node
        partition.keep_for_restart(application, pod, node, partition.now_ns + room_ns)


def _avoid_node(partition: Partition, application: Application, pod: Allocation) -> None:
    """Make the replacement of a failed pod of a gang prefer other nodes for a while."""
    counts = application.task_groups.get(pod.task_group_name)
    avoid_ns = partition.settings.avoid_node_ns
    if avoid_ns is None:
        avoid_ns = AVOID_NODE_NS if application.enforces_minimum else 0
    if counts is not None and avoid_ns > 0 and pod.node_id in partition.nodes.nodes:
        counts.avoid(pod.node_id, partition.now_ns + avoid_ns)


def give_way(partition: Partition, application: Application, key: str) -> None:
    """End the claims for restarts if a new ask has a higher priority."""
    if not (partition.moved or partition.restarting):
        return
    group = application.group_of.get(key)
    if group is None:
        return
    priority = -rank_of(application.queue, group.asks[key])[0]
    for claim in list(partition.moved.values()):
        if (claim.is_for_restart or claim.is_ahead) and _priority_of(claim) < priority:
            partition.end_moved(claim)
    for claim in list(partition.restarting):
        if _priority_of(claim) < priority:
            partition.unreserve(claim)


def keep_ahead(partition: Partition, node: Node) -> None:
    """Reserve places for the replacements of gang members on a draining or tainted node.

    If the node may be used again, they end.
    """
    for claim in [each for each in partition.moved.values() if _is_ahead_of(each, node)]:
        assert claim.pod is not None
        if _may_stay(partition, claim.application, claim.pod, node):
            partition.end_moved(claim)
    for pod in list(node.allocations.values()):
        application = partition.applications.get(pod.application_id)
        if application is None or not _may_lack(partition, application, pod):
            continue
        if not _may_stay(partition, application, pod, node):
            _keep_one_ahead(partition, application, pod)


def _is_ahead_of(claim: Claim, node: Node) -> bool:
    """Whether a claim is for the replacement of a pod that still runs on a node."""
    is_ahead = claim.is_ahead and not claim.until_ns
    return is_ahead and claim.pod is not None and claim.pod.node_id == node.node_id


def _keep_one_ahead(partition: Partition, application: Application, pod: Allocation) -> None:
    priority = priority_of(application.queue, pod.priority)
    if partition.root.priorities.highest > priority:
        return
    target = node_for(partition.nodes, _shape_of(partition, application, pod))
    if target is not None:
        partition.keep_ahead(application, pod, target)


def _may_lack(partition: Partition, application: Application, pod: Allocation) -> bool:
    """Whether a gang would be below its minimum without a pod that may be replaced."""
    key, counts = pod.allocation_key, application.task_groups.get(pod.task_group_name)
    return (
        counts is not None
        and counts.real <= counts.members
        and not (pod.placeholder or pod.constraints.required_node)
        and key not in application.released
        and key not in partition.moved
        and _room_ns(partition, application) > 0
        and sum(each.members for each in application.task_groups.values()) > 1
    )


def _may_stay(partition: Partition, application: Application, pod: Allocation, node: Node) -> bool:
    shape = _shape_of(partition, application, pod)
    return node.schedulable and partition.nodes.filters.admits.holds(node, shape)


def _shape_of(partition: Partition, application: Application, pod: Allocation) -> Shape:
    """Return the shape that a running pod would have as an ask."""
    labels = partition.nodes.pods.labels_of(pod.allocation_tags)
    gang_part = partition.nodes.domains.gang_part_of(application.id, pod.task_group_name)
    resource = dict(pod.resource_per_alloc)
    return Shape("of a member", resource, pod.constraints, labels, gang_part=gang_part)


def _another(
    partition: Partition, application: Application, pod: Allocation, node: Node
) -> Node | None:
    """Return the first node in order that would fit an equal pod, except its own."""
    nodes = partition.nodes
    others: Mask = np.ones(len(nodes.rows), dtype=np.bool_)
    others[node.row] = False
    shape = _shape_of(partition, application, pod)
    return InDomain(nodes, nodes.filters.open, others).node_for(shape)


def _priority_of(claim: Claim) -> int:
    if claim.pod is None:
        return -claim.rank[0]
    return priority_of(claim.application.queue, claim.pod.priority)


def _room_ns(partition: Partition, application: Application) -> int:
    """Return for how long a gang's members' capacity is reserved, in ns; 0: it is not."""
    may = application.enforces_minimum and not (application.is_gang_over or application.succeeded)
    if not may or application.state not in _LIVELY:
        return 0
    room_ns = partition.settings.restart_room_ns
    grace_ns = partition.grace_of(application) if STALE in partition.settings.actions else -1
    return room_ns if grace_ns < 0 else min(room_ns, grace_ns)


def _lacks(application: Application, task_group: str) -> bool:
    """Whether a task group of a gang of several pods is below its minimum."""
    groups = application.task_groups
    counts = groups.get(task_group)
    if counts is None or counts.real >= counts.members:
        return False
    is_up = all(each.is_used_up for each in groups.values())
    return is_up and sum(each.members for each in groups.values()) > 1
