"""The asks and allocations of an application: its rows and sums, and the place that they give it.

The ledgers of queues, users and nodes are the caller's to keep (``partition``).
"""

from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.rows import Application, AskGroup, group_key
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.ordering import queueing
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.resources import ResourceView, add_into, multiply, subtract_into


def add_ask(application: Application, ask: Ask) -> None:
    """Put an ask into its group and let it wait."""
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
    """Count like asks in that wait, so many."""
    total = amount if times == 1 else multiply(amount, times)
    add_into(application.pending, total)
    application.queue.add_pending(total)
    _count_priority(application, priority, times)


def remove_ask(application: Application, key: str) -> Ask | None:
    """Take an ask out of its group, or return None when it does not wait."""
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
    """Let an ask wait with those that placeholders go for, or with its own kind again."""
    remove_ask(application, ask.key)
    ask.is_covered = is_covered
    add_ask(application, ask)


def rejoin_buckets(application: Application) -> bool:
    """Move every group to the bucket of the present owner; return whether any had to."""
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
    """Count an allocation in; the queue's ledger is the caller's to keep."""
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
    """Count an allocation out, or return None when there is none of that key."""
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
    """Count as allocated what is held already."""
    add_into(application.allocated, total)
    usage_changed(application)


def count_size(application: Application, allocation: Allocation, before: ResourceView) -> None:
    """Count an allocation anew that held another amount before."""
    application.allocations[allocation.allocation_key] = allocation
    ledger = application.allocated_placeholder if allocation.placeholder else application.allocated
    subtract_into(ledger, before)
    add_into(ledger, allocation.resource_per_alloc)
    if allocation.allocation_key in application.released:
        application.count_going(allocation, -1, before)
        application.count_going(allocation, 1, allocation.resource_per_alloc)
    usage_changed(application)


def count_placed(application: Application, group: AskGroup, times: int) -> None:
    """Count so many asks of a group out that were placed; ``count_run`` knows the amounts."""
    if group.placeholder:
        application.pending_placeholders -= times
    _count_priority(application, group.key[1], -times)


def count_run(application: Application, total: ResourceView, *, is_placeholder: bool) -> None:
    """Count as allocated what waited; the queue's sums know it."""
    subtract_into(application.pending, total)
    add_into(application.allocated_placeholder if is_placeholder else application.allocated, total)
    usage_changed(application)


def usage_changed(application: Application) -> None:
    """Note what was used at most, and find the place that the present use gives.

    What it has decides whether it may start: one that waits is not like others any more.
    """
    count_fixed(application)
    for name, value in application.allocated.items():
        if value > application.max_allocated.get(name, 0):
            application.max_allocated[name] = value
    if application.queue.settings.sort_policy == FAIR or application.keys_follow_use:
        queueing.reorder(application)
        queueing.enter(application)
    if application.waits_in is not None:
        queueing.activate(application)
    elif application.refusal is not None or application.queue.overdue_gang is application:
        queueing.enter(application)  # what holds something neither waits behind a gang nor is one


def note_fixed(application: Application, item: Allocation | AllocationAsk) -> None:
    """Count all of an application as what may not be preempted, if that is so of one of its pods.

    Only under kai, where that is a matter of quotas.
    """
    if not (application.is_fixed or item.allow_preempt_self):
        application.is_fixed = True
        count_fixed(application)


def releasing_changed(application: Application) -> None:
    """Note that a pod is being released, or is no more: gangs have another turn, quotas more."""
    if application.tree is not None or application.takes_turns:
        usage_changed(application)
    else:
        count_fixed(application)


def count_fixed(application: Application) -> None:
    """Bring to its present use what queues count of one that may not be preempted.

    Room that was freed for it counts, and a pod that is being released does not. Who waits for the
    quota tries again when there is more.
    """
    if not (application.is_fixed or application.keeps_minimum_in_quota):
        return
    before, after = application.fixed, application.fixed_use()
    if before == after:
        return
    application.fixed = after
    application.queue.change_fixed(before, after)
    if any(after.get(name, 0) < value for name, value in before.items()):
        for queue in application.queue.lineage():
            queueing.requeue(queue.quota_wait_list)


def _was_there_at(application: Application, created_ns: int) -> bool:
    """Have the submission be no later than what was created for it; return whether it moved.

    0 is not known. Source: docs/rules/scheduling.md#order-of-applications.
    """
    if not 0 < created_ns < application.submission_time_ns:
        return False
    application.submission_time_ns = created_ns
    queueing.reorder(application)
    if application.patience_due_ns:
        application.queue.root.to_watch[application] = None  # it has waited for longer
    return True


def _count_member(application: Application, ask: Ask) -> None:
    """Find a gang's place by shares anew: what it has counts once it waits for no more."""
    if ask.request.placeholder and application.queue.settings.sort_policy == FAIR:
        queueing.reorder(application)


def _count_priority(application: Application, priority: int, change: int) -> None:
    """Count asks of a priority that wait, in or out; a change of the highest moves all of it."""
    if count_priority(application, priority, change):
        queueing.reorder(application)


def count_priority(application: Application, priority: int, change: int) -> bool:
    """Count asks of a priority that wait, in or out; return whether the highest has changed.

    Queues are ordered by that, and know it by then.
    """
    priorities = application.ask_priorities
    if priorities.counts.get(priority, 0) + min(change, 0) > 0:  # there were some, and are
        priorities.change(priority, change)
        return False
    before = application.max_priority
    priorities.change(priority, change)
    after = application.max_priority
    if before != after:
        application.queue.change_priority(before, after)
    return before != after
