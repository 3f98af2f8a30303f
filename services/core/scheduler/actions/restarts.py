"""Room for a restart: what members of a gang had is kept for those that come in their place.

Rule 1: a controller that restarts a gang as a whole deletes its pods and makes them again within
        seconds. When a member ends without success, is on a node that is still there, and leaves
        its task group below its minimum, its room is kept for the same gang by a claim, as that of
        a pod that is moved is. The first pod like it has the claim.
Rule 2: it is kept for the setting ``restartRoom``, and at most for the gang's stale grace where
        stale gangs are evicted: after that the gang has given up what it had. Not for a gang that
        was given up, is finishing or ends, nor for one of a single pod.
Rule 3: it is kept from asks of the same priority, whatever queue they are in. One of a higher
        priority ends it.
"""

from services.core.scheduler.model.reservations import priority_of, rank_of
from services.core.scheduler.model.rows import Application, Claim
from services.core.scheduler.model.settings import STALE
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
    room_ns = _room_ns(partition, application)
    node = partition.nodes.nodes.get(pod.node_id)
    if room_ns <= 0 or node is None or not node.schedulable:
        return
    priority = priority_of(application.queue, pod.priority)
    if not _lacks(application, pod.task_group_name) or partition.root.highest > priority:
        return
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
        if claim.is_for_restart and _priority_of(claim) < priority:
            partition.end_moved(claim)
    for claim in list(partition.restarting):
        if _priority_of(claim) < priority:
            partition.unreserve(claim)


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
