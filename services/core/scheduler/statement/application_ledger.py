"""An application's asks and allocations: its rows and sums, and its position in its queue.

``partition`` calls it and updates the ledgers of queues, users and nodes.
"""

from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.rows import Application, AskGroup, group_key
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.ordering import queueing
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.resources import ResourceView, add_into, multiply, subtract_into


def add_ask(application: Application, ask: Ask) -> None:
    """Add an ask to its group of waiting asks."""
    request = ask.request
    key = group_key(ask)
    group = application.groups.get(key)
    if group is None:
        bucket = application.queue.bucket((ask.shape, application.owner))
        group = AskGroup(
            application, bucket, request.task_group_name, request.placeholder, ask.is_covered, key
        )
        application.found(group)
    application.join(group, ask)
    if application.is_kai:
        note_fixed(application, request)
    count_waiting(application, request.resource_per_alloc, request.priority, 1)
    _count_member(application, ask)
    _was_there_at(application, request.create_time_ns)


def count_waiting(
    application: Application, amount: ResourceView, priority: int, times: int
) -> None:
    """Count ``times`` equal asks as waiting."""
    total = amount if times == 1 else multiply(amount, times)
    add_into(application.pending, total)
    application.queue.add_pending(total)
    _count_priority(application, priority, times)


def remove_ask(application: Application, key: str) -> Ask | None:
    """Remove a waiting ask from its group; None if there is none."""
    group = application.group_of.pop(key, None)
    ask = group.remove(key) if group is not None else None
    if group is None or ask is None:
        return None
    request = ask.request
    application.pending_placeholders -= request.placeholder
    subtract_into(application.pending, request.resource_per_alloc)
    application.queue.remove_pending(request.resource_per_alloc)
    _count_priority(application, request.priority, -1)
    _count_member(application, ask)
    if not group.asks:
        application.drop(group)
    return ask


def set_in_replacement(application: Application, ask: Ask, *, is_covered: bool) -> None:
    """Move an ask between the group whose placeholders are being released for it and its own."""
    remove_ask(application, ask.key)
    ask.is_covered = is_covered
    add_ask(application, ask)


def rejoin_buckets(application: Application) -> bool:
    """Move every group to the bucket of the present owner; return whether any moved."""
    moved = False
    for (shape, *_), group in application.groups.items():
        bucket = application.queue.bucket((shape, application.owner))
        if bucket is not group.bucket:
            group.bucket.withdraw(group)
            application.leave(group)
            group.bucket = bucket
            bucket.groups[group] = None
            bucket.unmarked[group] = None
            bucket.marked += sum(ask.is_marked for ask in group.asks.values())
            moved = True
    return moved


def add_allocation(application: Application, allocation: Allocation, now_ns: int) -> None:
    """Add an allocation; the caller updates the queue's ledger."""
    application.hold_allocation(allocation, now_ns)
    if application.is_kai:
        note_fixed(application, allocation)
    if allocation.placeholder:
        add_into(application.allocated_placeholder, allocation.resource_per_alloc)
    else:
        add_into(application.allocated, allocation.resource_per_alloc)
    if _was_there_at(application, allocation.create_time_ns):
        queueing.enter(application)
    usage_changed(application)


def remove_allocation(application: Application, key: str) -> Allocation | None:
    """Remove an allocation; None if there is none with the key."""
    allocation = application.allocations.pop(key, None)
    if allocation is None:
        return None
    if application.released.pop(key, None) is None:
        application.count_real(allocation, -1)
    else:
        application.count_going(allocation, -1, allocation.resource_per_alloc)
    application.stuck.pop(key, None)
    application.positions.pop(key, None)
    application.placeholder_used.pop(key, None)
    if allocation.placeholder:
        subtract_into(application.allocated_placeholder, allocation.resource_per_alloc)
        counts = application.counts_of(allocation)
        counts.held.pop(key, None)
        counts.unclaimed.pop(key, None)
    else:
        subtract_into(application.allocated, allocation.resource_per_alloc)
    usage_changed(application)
    return allocation


def count_held(application: Application, total: ResourceView) -> None:
    """Count an amount as allocated whose allocations are already rows."""
    add_into(application.allocated, total)
    usage_changed(application)


def count_size(application: Application, allocation: Allocation, before: ResourceView) -> None:
    """Update the sums after an allocation changed its size from ``before``."""
    application.allocations[allocation.allocation_key] = allocation
    ledger = application.allocated_placeholder if allocation.placeholder else application.allocated
    subtract_into(ledger, before)
    add_into(ledger, allocation.resource_per_alloc)
    if allocation.allocation_key in application.released:
        application.count_going(allocation, -1, before)
        application.count_going(allocation, 1, allocation.resource_per_alloc)
    usage_changed(application)


def count_placed(application: Application, group: AskGroup, times: int) -> None:
    """Count ``times`` asks of a group as placed; ``count_run`` moves the amounts."""
    if group.placeholder:
        application.pending_placeholders -= times
    _count_priority(application, group.key[1], -times)


def count_run(application: Application, total: ResourceView, *, is_placeholder: bool) -> None:
    """Move an amount from pending to allocated; the queue's sums are already updated."""
    subtract_into(application.pending, total)
    add_into(application.allocated_placeholder if is_placeholder else application.allocated, total)
    usage_changed(application)


def usage_changed(application: Application) -> None:
    """Update the maximum usage and the application's position after its usage changed.

    Its usage also decides whether it may start, so that it leaves its equivalence class.
    """
    count_fixed(application)
    for name, value in application.allocated.items():
        if value > application.max_allocated.get(name, 0):
            application.max_allocated[name] = value
    is_fair = application.queue.settings.sort_policy == FAIR
    if is_fair or application.keys_follow_use:
        before = application.order
        queueing.reorder(application)
        if is_fair or application.tree is not None or application.order != before:
            queueing.enter(application)
    if application.waits_in is not None:
        queueing.activate(application)
    elif application.refusal is not None or application.queue.starved_gang is application:
        queueing.enter(application)  # with an allocation it is neither starved nor waits for a gang


def note_fixed(application: Application, item: Allocation | AllocationAsk) -> None:
    """Count a whole application as not preemptible if one of its pods is.

    Only under the policy kai, whose quotas depend on it.
    """
    if not (application.is_non_preemptible or item.allow_preempt_self):
        application.is_non_preemptible = True
        count_fixed(application)


def releasing_changed(application: Application) -> None:
    """Update a gang's turn and its queues' quotas after a pod began, or ended, being released."""
    if application.tree is not None or application.takes_turns:
        usage_changed(application)
    else:
        count_fixed(application)


def count_fixed(application: Application) -> None:
    """Update the non-preemptible usage of an application's queues.

    Capacity freed for it counts, a pod being released does not. If the usage falls, the queues'
    quota waiting lists are requeued.
    """
    if not (application.is_non_preemptible or application.keeps_minimum_in_quota):
        return
    before, after = application.non_preemptible, application.non_preemptible_use()
    if before == after:
        return
    application.non_preemptible = after
    application.queue.change_non_preemptible(before, after)
    if any(after.get(name, 0) < value for name, value in before.items()):
        for queue in application.queue.lineage():
            queueing.requeue(queue.quota_wait_list)


def _was_there_at(application: Application, created_ns: int) -> bool:
    """Move the submission time back to an item's creation time; return whether it moved.

    0 means unknown. Source: docs/rules/scheduling.md#order-of-applications.
    """
    if not 0 < created_ns < application.submission_time_ns:
        return False
    application.submission_time_ns = created_ns
    queueing.reorder(application)
    if application.starved_at_ns:
        application.queue.root.to_watch[application] = None  # its waiting time is longer now
    return True


def _count_member(application: Application, ask: Ask) -> None:
    """Reorder a gang in a fair queue after a placeholder ask began or ended waiting."""
    if ask.request.placeholder and application.queue.settings.sort_policy == FAIR:
        queueing.reorder(application)


def _count_priority(application: Application, priority: int, change: int) -> None:
    """Count waiting asks of a priority; reorder the application if its highest priority changed."""
    if count_priority(application, priority, change):
        queueing.reorder(application)


def count_priority(application: Application, priority: int, change: int) -> bool:
    """Count waiting asks of a priority; return whether the application's highest has changed.

    The queues' priorities are updated too.
    """
    priorities = application.ask_priorities
    if priorities.counts.get(priority, 0) + min(change, 0) > 0:  # some before and after
        priorities.change(priority, change)
        return False
    before = application.max_priority
    priorities.change(priority, change)
    after = application.max_priority
    if before != after:
        application.queue.change_priority(before, after)
    return before != after
