"""Room for what comes in place of members of a gang: those it has lost, and those that will go.

Rule 1: a controller that restarts a gang as a whole deletes its pods and makes them again within
        seconds. When a member ends without success, is on a node that is still there, and leaves
        its task group below its minimum, its room is kept for the same gang by a claim, as that of
        a pod that is moved is. The first pod like it has the claim. Of one that has failed by
        itself it is a place on another node, where one fits: its own may be the cause.
Rule 2: it is kept for the setting ``restartRoom``, and at most for the gang's stale grace where
        stale gangs are evicted: after that the gang has given up what it had. Not for a gang that
        was given up, is finishing or ends, nor for one of a single pod.
Rule 3: where a node drains, or has a taint that a member does not tolerate, a place is kept for
        what will replace each member of which its task group has no more than its minimum: in its
        domain, on room that is free. It lapses after AHEAD_NS while the pod runs, and ends when the
        node may be used again; when the pod has gone the first like it has WAIT_NS to come.
Rule 4: it is kept from asks of the same priority, whatever queue they are in. One of a higher
        priority ends it.
"""

import numpy as np

from services.core.scheduler.model.reservations import priority_of, rank_of
from services.core.scheduler.model.rows import Application, Claim, Node
from services.core.scheduler.model.settings import STALE
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
    """Keep the room of a member that has ended, and is counted nowhere any more.

    Not of one that we released ourselves (``was_released``).
    """
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


def give_way(partition: Partition, application: Application, key: str) -> None:
    """End what is kept for restarts where an ask that has just come is of a higher priority."""
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
    """Keep places for what will replace the members of gangs on a node that drains, or is tainted.

    Where the node may be used again they are given back.
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
    """Return whether a claim is for what will replace a pod that runs on a node yet."""
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
    """Return whether a gang would be below its minimum without a pod, which may be replaced."""
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
    """Return what a pod that runs would ask for if it came now."""
    labels = partition.nodes.pods.labels_of(pod.allocation_tags)
    bond = partition.nodes.domains.bond_of(application.id, pod.task_group_name)
    resource = dict(pod.resource_per_alloc)
    return Shape("of a member", resource, pod.constraints, labels, bond=bond)


def _another(
    partition: Partition, application: Application, pod: Allocation, node: Node
) -> Node | None:
    """Return the first node, in order, that would take a pod like one, but for one node."""
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
    """Return for how long the room of a gang's members is kept; 0: it is not."""
    may = application.enforces_minimum and not (application.is_gang_over or application.succeeded)
    if not may or application.state not in _LIVELY:
        return 0
    room_ns = partition.settings.restart_room_ns
    grace_ns = partition.grace_of(application) if STALE in partition.settings.actions else -1
    return room_ns if grace_ns < 0 else min(room_ns, grace_ns)


def _lacks(application: Application, task_group: str) -> bool:
    """Return whether a task group of a gang of several pods is below its minimum."""
    groups = application.task_groups
    counts = groups.get(task_group)
    if counts is None or counts.real >= counts.members:
        return False
    is_up = all(each.is_used_up for each in groups.values())
    return is_up and sum(each.members for each in groups.values()) > 1
