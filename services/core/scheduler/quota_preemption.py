"""Quota changes that are enforced: a queue whose max fell below its use gives back what is over.

Rule 1: only where the partition says ``quotapreemptionenabled`` and the queue, a managed one, has a
        ``quota.preemption.delay``; that long after its max was lowered. Lowering it again does not
        start the delay anew.
Rule 2: given back is what is over the max, in the types that the max names, and never what the
        queue, or one above it, is guaranteed.
Rule 3: victims are those of its leaves with a type in common and no required node: ordinary ones
        before those that opted out and originators, lower priorities first, newer before older.
        One is taken only if all taken together stay within what is to be given back.
Source: contract section 6.10; cases X-17, X-19, X-20.
"""

from services.core.scheduler import events
from services.core.scheduler.partition import Partition
from services.core.scheduler.queues import Queue, depth_first
from services.core.scheduler.victims import have_type_in_common, rank_of
from shared.messages.interface import Allocation, TerminationType
from shared.messages.protocol import TimerKind
from shared.model.resources import Resource, add, fits_room, is_zero

MESSAGE = "preempting allocations to enforce new max quota for queue: "


def max_changed(partition: Partition, queue: Queue) -> None:
    """Start, or stop, the delay of a queue whose max, delay or use has changed."""
    delay_ns = queue.settings.quota_preemption_delay_ns
    is_over = not is_zero(preemptable(queue))
    if not (partition.quota_preemption_enabled and delay_ns and queue.is_managed and is_over):
        queue.quota_due_ns = 0
    elif not queue.quota_due_ns:
        queue.quota_due_ns = partition.now_ns + delay_ns
    _arm(partition)


def _arm(partition: Partition) -> None:
    due = [queue.quota_due_ns for queue in partition.queues.values() if queue.quota_due_ns]
    if due:
        partition.arm_own_timer(TimerKind.QUOTA, max(min(due), partition.now_ns))


def preemptable(queue: Queue) -> Resource:
    """Return what a queue has to give back: over its max, and not guaranteed to it or above it."""
    over: Resource = {}
    for name, most in (queue.max_resource or {}).items():
        used = queue.allocated.get(name, 0) - queue.preempting.get(name, 0)
        if used > most:
            over[name] = used - most
    for level in queue.lineage():
        for name, guaranteed in (level.guaranteed_resource or {}).items():
            if name in over:
                used = level.allocated.get(name, 0) - level.preempting.get(name, 0)
                over[name] = max(0, min(over[name], used - guaranteed))
    return {name: value for name, value in over.items() if value > 0}


def look(partition: Partition) -> None:
    """Let the queues that are due give back; parents before their children."""
    for queue in depth_first(partition.root):
        if queue.quota_due_ns and queue.quota_due_ns <= partition.now_ns:
            queue.quota_due_ns = 0
            _give_back(partition, queue)
    _arm(partition)


def _give_back(partition: Partition, queue: Queue) -> None:
    wanted = preemptable(queue)
    taken: Resource = {}
    for allocation in sorted(_candidates(queue, wanted), key=_order):
        part = {n: v for n, v in allocation.resource_per_alloc.items() if n in wanted}
        together = add(taken, part)
        if not fits_room(wanted, together):
            continue
        taken = together
        owner = partition.applications[allocation.application_id]
        key = allocation.allocation_key
        partition.release(owner, key, TerminationType.PREEMPTED_BY_SCHEDULER, MESSAGE + queue.path)
        events.preempted_by_quota(partition, owner, key, queue.path)


def _candidates(queue: Queue, wanted: Resource) -> list[Allocation]:
    return [
        allocation
        for leaf in depth_first(queue)
        for application in leaf.applications.values()
        for key, allocation in application.allocations.items()
        if key not in application.released
        and not allocation.constraints.required_node
        and have_type_in_common(allocation.resource_per_alloc, wanted)
    ]


def _order(allocation: Allocation) -> tuple[int, int, int, str]:
    return (
        rank_of(allocation),
        allocation.priority,
        -allocation.create_time_ns,
        allocation.allocation_key,
    )
