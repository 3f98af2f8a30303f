"""The waiting lists, and which of their asks are requeued when headroom becomes free.

A queue, a user and a group each have a waiting list. When its headroom grows the list is requeued,
and nothing else is.

Rule 1: waiting buckets and reservations are tried one by one. A bucket refused by a queue's own max
        is skipped while its request exceeds what the max leaves, which one comparison finds for
        all; but only if nothing preempts, because then each refusal sets the time of the next
        attempt.
Rule 2: waiting applications are grouped in classes that are refused alike: a refusal of one applies
        to all, as long as nothing is placed in between (``class_key``). Only the first of a class
        in its leaf's order is tried. If it is refused as before, it is blocked again with the
        others; if it starts, ends, changes or is refused for another reason, the next is tried at
        once, as it is if the cycle skips it because its shape is blocked.
Rule 3: an application whose key no longer equals its class's leaves the class and is tried alone.
        An unnecessary attempt costs time, a missing one a start: in doubt it is tried.
Rule 4: a group is queued in its leaf's bucket only while ``may_schedule`` allows it. Until its gang
        is admitted it is queued in the leaf's ``to_admit`` instead, so that a refusal of single
        asks of its shape does not block the gang.
Source: ADR 30, docs/rules/gangs.md#the-course.
"""

from collections.abc import Hashable, Iterable

from services.core.scheduler.model.rows import (
    GROW_AGAIN_NS,
    Application,
    AskGroup,
    Bucket,
    EquivalenceClass,
    PluginWaitList,
    Queue,
    Tracker,
    WaitList,
)
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.task_groups import TaskGroupCount
from shared.model.reasons import Fact, Kind, Reason, Refusal
from shared.model.resources import Resource, ResourceView

_AS_A_WHOLE = (Reason.GANG_HEADROOM, Reason.GANG_PLACES)


def class_key(application: Application, refusal: Refusal) -> Hashable:
    """Key of applications that get the same refusal, apart from ledgers and nodes.

    Two applications with one key, tried one after the other, get the same result: it contains
    everything that matters except the order (an application behind a starved gang is refused
    anyway) and what is equal for all. An application whose result depends on more is alone.
    """
    leaf = application.queue
    alone = (application.id,)
    if application.reservations and refusal.reason in _AS_A_WHOLE:
        return alone  # capacity was freed for it
    if leaf.settings.state_aware:  # the first one tried may become the starting one
        return alone
    what: Hashable
    if refusal.reason in _AS_A_WHOLE:
        what = application.needs_of_the_whole()
    elif refusal.reason is not Reason.MAX_APPLICATIONS:
        return alone
    elif application.allocations or application.id in leaf.allocating_accepted:
        return alone  # it counts as running already
    elif application.awaits_admission:
        what = None
    else:  # it is tried when one of its buckets is
        what = frozenset(group.bucket for group in application.groups.values())
    state, is_starting = application.state, application.is_starting
    return refusal.reason, leaf, application.owner, state, is_starting, what


# --- waiting lists and equivalence classes -------------------------------------------------------


def class_of(
    wait_list: WaitList, application: Application, refusal: Refusal, *, by_need: bool
) -> EquivalenceClass:
    """Return the class of applications that are refused like this one."""
    key = class_key(application, refusal)
    found = wait_list.by_key.get(key)
    if found is None:
        found = wait_list.by_key[key] = EquivalenceClass(wait_list, key, application.queue)
        is_by_need = (
            by_need
            and wait_list.queue is not None
            and refusal.reason is Reason.GANG_HEADROOM
            and not application.starts_in_part
            and application.owner is None
            and not application.queue.settings.state_aware
        )
        wait_list.classes.add(found, application.outstanding() if is_by_need else None)
    return found


def requeue(wait_list: WaitList) -> None:
    """Requeue a waiting list: every bucket, and the first application of each class."""
    if wait_list.buckets:
        for bucket in _to_try(wait_list):
            requeue_bucket(bucket)
    if wait_list.classes:
        room = wait_list.queue.own_room(for_gangs=True) if wait_list.queue is not None else {}
        for waiting in wait_list.classes.to_try(room):
            requeue_class(waiting)
    if wait_list.reservations:
        reservations, wait_list.reservations = wait_list.reservations, {}
        for reservation in reservations:
            reservation.retry()
    if isinstance(wait_list, PluginWaitList):
        _ask_again(wait_list)


def _to_try(wait_list: WaitList) -> list[Bucket]:
    """Return the buckets of a waiting list that may fit its queue's headroom."""
    queue = wait_list.queue
    if queue is None or queue.max_resource is None:  # without nodes the root has no max
        return wait_list.buckets.to_try({})
    if queue.parent is None:  # its max is the sum of the nodes: no node has other types
        return wait_list.buckets.to_try(queue.own_room(), unnamed=0)
    return wait_list.buckets.to_try(queue.own_room())


def _ask_again(wait_list: PluginWaitList) -> None:
    """Requeue the groups that a plugin refused."""
    groups, wait_list.groups = wait_list.groups, {}
    for group in groups:
        group.refused = None
    for application in dict.fromkeys(group.application for group in groups):
        enter(application)
        for reservation in application.reservations.values():
            reservation.retry()


def requeue_all(wait_list: WaitList) -> None:
    """Requeue a list with the entries that exceed the headroom too: requests may have changed."""
    for bucket in list(wait_list.buckets):
        requeue_bucket(bucket)
    for waiting in list(wait_list.classes):
        requeue_class(waiting)
    requeue(wait_list)


def requeue_class(waiting: EquivalenceClass) -> None:
    """Try the first of a class for all of it, unless an earlier one is being tried."""
    head = waiting.head()
    if head is None or (waiting.tried is not None and waiting.tried.order < head.order):
        return
    if waiting.tried is not None:
        waiting.tried.trying_for = None
        waiting.home.was_tried(waiting)
    waiting.tried, waiting.tried_since_ns = head, head.refused_since_ns
    waiting.leaf.root.trying[waiting] = None
    head.trying_for = waiting
    activate(head)


def class_was_tried(waiting: EquivalenceClass) -> None:
    """Keep the class blocked if its representative was refused again, else try the next."""
    tried, waiting.tried = waiting.tried, None
    waiting.leaf.root.trying.pop(waiting, None)
    if tried is not None:
        tried.trying_for = None
    waiting.home.was_tried(waiting)
    if tried not in waiting.members:
        requeue_class(waiting)
    waiting.forget_if_over()


# --- buckets of a leaf --------------------------------------------------------------------------


def requeue_bucket(bucket: Bucket) -> None:
    """Unblock a bucket and requeue it."""
    leaf = bucket.leaf
    if bucket.refusal is not None:
        leaf.root.requeued[leaf] = None
        bucket.unblock()
    leaf.active_buckets.push(bucket)
    leaf.activate()


def enter_group(group: AskGroup) -> None:
    """Requeue a group, or block it with its bucket."""
    bucket = group.bucket
    bucket.push(group)
    if bucket.refusal is None:
        requeue_bucket(bucket)
    elif bucket.waits_for_nodes:
        root = bucket.leaf.root
        root.newly_blocked[bucket] = None
        if bucket.key[0] in root.may_fit and bucket.is_blocked_by_nodes:
            bucket.leaf.active_buckets.wake(bucket)
            bucket.leaf.activate()


def stop_waiting_for(gang: Application) -> None:
    """Requeue what waited behind a starved gang, if this was it."""
    leaf = gang.queue
    if leaf.starved_gang is gang:
        leaf.starved_gang = None
        requeue_bucket(leaf.behind)


# --- applications ------------------------------------------------------------------------------


def set_unschedulable(
    application: Application,
    refusal: Refusal,
    now_ns: int,
    at: WaitList | None,
    *,
    by_need: bool = False,
) -> None:
    """Block an application until a waiting list is requeued, or places are free.

    Without either it waits for a time, or for a gang ahead of it. A class's representative that is
    refused again keeps its old waiting time. With ``by_need`` a gang is skipped until all of it
    fits the headroom of the waiting list's queue.
    """
    _leave_class(application)
    application.refusal = refusal
    application.refused_since_ns = now_ns
    if at is not None:
        application.waits_in = class_of(at, application, refusal, by_need=by_need)
    elif application.waiting_among is not None:
        application.waits_in = application.waiting_among.class_of(application, refusal)
    if application.waits_in is not None:
        application.waits_in.add(application)
        if application.waits_in is application.trying_for:
            application.refused_since_ns = application.trying_for.tried_since_ns
    was_tried(application)
    enter(application)


def activate(application: Application) -> None:
    """Requeue an application: the cause of its refusal may have changed."""
    _forget_refusal(application)
    enter(application)


def was_tried(application: Application) -> None:
    """Keep the application's class blocked if it was refused again, else try the next of it."""
    if application.trying_for is not None:
        class_was_tried(application.trying_for)


def wait_no_more(application: Application) -> None:
    """Remove an ending application from all waiting lists."""
    _leave_class(application)
    was_tried(application)


def find_class_again(application: Application) -> None:
    """Move a blocked application that got capacity to a class of its own.

    Its former class waits with another representative.
    """
    waiting, refusal = application.waits_in, application.refusal
    if waiting is None or refusal is None or _is_like_others(application, waiting.key):
        return
    _leave_class(application)
    if application.waiting_among is not None:
        application.waits_in = application.waiting_among.class_of(application, refusal)
    elif isinstance(waiting.home, WaitList):
        application.waits_in = class_of(waiting.home, application, refusal, by_need=False)
    if application.waits_in is not None:
        application.waits_in.add(application)


def _leave_class(application: Application) -> None:
    waiting, application.waits_in = application.waits_in, None
    if waiting is not None:
        waiting.remove(application)


def _forget_refusal(application: Application) -> None:
    _leave_class(application)
    if application.refusal is not None:
        application.queue.root.requeued[application] = None
    application.refusal = None
    if application.waiting_among is not None:
        application.waiting_among.remove(application)
    for reservation in application.reservations.values():
        reservation.retry()


def enter(application: Application) -> None:
    """Queue every group that may be scheduled now, and withdraw the others."""
    if application.takes_turns:
        reorder(application)
    _review_waiting(application)
    _enter_where_they_wait(application, application.groups.values())


def _enter_where_they_wait(application: Application, groups: Iterable[AskGroup]) -> None:
    """Queue groups in their buckets or in one of their leaf's, or withdraw them."""
    is_behind = application.is_refused_for(Reason.GANG_PATIENCE)
    may_schedule = application.may_schedule
    enforces_minimum = application.enforces_minimum
    for group in groups:
        if is_behind:
            application.queue.behind.push(group)
        elif not may_schedule or hold(application, group) is not None:
            group.bucket.withdraw(group)
        elif (group.placeholder or enforces_minimum) and _waits_as_a_whole(application, group):
            application.queue.to_admit.push(group)
            requeue_bucket(application.queue.to_admit)
        else:
            enter_group(group)


def _waits_as_a_whole(application: Application, group: AskGroup) -> bool:
    """Whether a group waits until its gang is admitted."""
    return application.awaits_admission and (group.placeholder or application.is_restarting)


def hold(application: Application, group: AskGroup, *, by_turn: bool = True) -> Refusal | None:
    """Return why its own application blocks a group, or None.

    Without ``by_turn`` the parts of a gang's tree do not block each other: actions follow the tree
    themselves.
    """
    if group.refused is not None:
        return group.refused[0]
    if group.placeholder:
        return None
    if application.grows_at_ns and application.has_its_minimum:
        return Refusal(Reason.BACKOFF, Fact(Kind.MADE_WAY, period_ns=GROW_AGAIN_NS))
    if group.is_covered:
        return Refusal(
            Reason.AWAITING_REPLACEMENT,
            Fact(Kind.MAKING_WAY, group.task_group_name, count=len(application.covering)),
        )
    if application.holds_real_back:
        return Refusal(
            Reason.GANG_PLACEHOLDERS_PENDING,
            Fact(Kind.NOT_ALLOCATED, count=application.pending_placeholders),
        )
    if application.awaits_placeholders:
        return Refusal(Reason.GANG_PLACEHOLDERS_PENDING, Fact(Kind.NOT_REQUESTED))
    if application.tree is not None and not by_turn:
        return None
    counts = application.task_groups.get(group.task_group_name)
    return None if counts is None else _awaits_others(application, group, counts)


def _awaits_others(
    application: Application, group: AskGroup, counts: TaskGroupCount
) -> Refusal | None:
    """Return why real pods wait for others of their gang, or for placeholders, or None."""
    if application.tree is not None:
        return _not_next(application, group)
    if not counts.is_used_up:
        if group.unplaced is not None:
            return group.unplaced
        left = counts.count - counts.replaced - counts.timedout
        return Refusal(
            Reason.AWAITING_REPLACEMENT,
            Fact(Kind.TO_REPLACE, group.task_group_name, count=left),
        )
    return None


def _not_next(application: Application, group: AskGroup) -> Refusal | None:
    """Return why pods of a gang wait for other members, None if they are next."""
    following, name = application.next_pods(), group.task_group_name
    if application.succeeded or application.is_gang_over or name in following:
        return None
    fact = Fact(Kind.OTHERS_FIRST, amount=following) if following else Fact(Kind.TOO_FEW, name)
    return Refusal(Reason.GANG_PLACEHOLDERS_PENDING, fact)


def _review_waiting(application: Application) -> None:
    """End waits that no longer apply to an application, and requeue what it blocked.

    Its asks, allocations or state may have changed.
    """
    if application.waits_for_first_member:
        application.queue.root.to_watch[application] = None
    elif not (application.is_starting and application.awaits_admission):
        stop_waiting_for(application)
    if (
        (application.is_refused_as_a_whole and not application.awaits_admission)
        or (
            application.is_refused_for(Reason.GANG_PATIENCE)
            and not application.is_behind_starved_gang
        )
        or (application.waiting_among is not None and not application.lacks_the_same_places())
        or (
            application.waits_in is not None
            and not _is_like_others(application, application.waits_in.key)
        )
    ):
        _forget_refusal(application)


def _is_like_others(application: Application, key: Hashable) -> bool:
    """Whether an application still belongs to its class."""
    return application.refusal is not None and key == class_key(application, application.refusal)


def requeue_rest(
    application: Application, groups: list[AskGroup], order_before: tuple[object, ...]
) -> None:
    """Requeue groups after some of their asks were placed, and drop empty ones.

    If the application comes earlier now, all its groups are requeued; if later, each is moved when
    it comes first.
    """
    for group in groups:
        if not group.asks:
            application.drop(group)
    if _is_to_be_entered(application, order_before):
        enter(application)
        return
    for group in groups:
        if group.asks:
            enter_group(group)


def ask_removed(
    application: Application, group: AskGroup, ask: Ask, order_before: tuple[object, ...]
) -> None:
    """Requeue the rest of a group after an ask was removed; all groups if the order changed."""
    head = group.head()
    if application.order != order_before or _passes_turn_on(application, group):
        enter(application)
    elif head is not None and ask.order < head.order:
        _enter_where_they_wait(application, (group,))


def requeue_group(
    application: Application, group: AskGroup, order_before: tuple[object, ...]
) -> None:
    """Requeue a group after its first ask was placed; all groups if they come earlier now.

    Asks whose placeholders are being released are not queued, nor are those of a group that has
    placeholders left.
    """
    if _is_to_be_entered(application, order_before) or _passes_turn_on(application, group):
        enter(application)
    elif group.asks and not group.is_covered and not _awaits_replacement(application, group):
        enter_group(group)


def _awaits_replacement(application: Application, group: AskGroup) -> bool:
    """Whether a group's real asks wait for placeholders of it that have not ended."""
    if group.placeholder or application.tree is not None:
        return False
    counts = application.task_groups.get(group.task_group_name)
    return counts is not None and not counts.is_used_up


def _passes_turn_on(application: Application, group: AskGroup) -> bool:
    """Return whether a part of a gang has no more asks: another part may be next now."""
    return application.tree is not None and not group.asks


def _is_to_be_entered(application: Application, order_before: tuple[object, ...]) -> bool:
    """Whether all groups must be queued again; later ones are moved when they come first."""
    order = application.order
    by_run_time = order != order_before and application.queue.to_admit.is_by_run_time
    return by_run_time or order < order_before


def reorder(application: Application) -> None:
    """Recompute an application's position in its leaf."""
    before, order = application.order, application.order_at(application.in_use())
    if order != before:
        application.order = order
        _find_place_in_class(application)
    if application.queue.starved_gang is application and application.order != before:
        requeue_bucket(application.queue.behind)


def _find_place_in_class(application: Application) -> None:
    """Make the first of a class its representative."""
    if application.waits_in is not None:
        application.waits_in.add(application)
    for waiting in (application.waits_in, application.trying_for):
        if waiting is not None and waiting.tried is not None:
            requeue_class(waiting)


# --- freed headroom ---------------------------------------------------------------------------


def release(queue: Queue, amount: ResourceView) -> None:
    """Subtract usage up to the root and requeue what those queues blocked."""
    queue.release(amount)
    _requeue_path(queue)


def release_claim(queue: Queue, amount: ResourceView) -> None:
    """Subtract a claim up to the root and requeue what those queues blocked."""
    queue.release_claim(amount)
    _requeue_path(queue)


def set_max(queue: Queue, limit: Resource | None) -> None:
    """Set a queue's own max, and requeue what it blocked."""
    queue.set_max(limit)
    requeue(queue.wait_list)


def count_out(
    tracker: Tracker, queue: Queue, application_id: str, amount: ResourceView, *, is_last: bool
) -> None:
    """Subtract a user's usage, and requeue what its limit blocked."""
    tracker.take_back(queue, application_id, amount, is_last=is_last)
    requeue(tracker.wait_list)


def release_user_claim(tracker: Tracker, queue: Queue, amount: ResourceView) -> None:
    """Subtract a claim from a user's limits up to the root, and requeue what they blocked."""
    tracker.release_claim(queue, amount)
    requeue(tracker.wait_list)


def _requeue_path(queue: Queue) -> None:
    for level in queue.lineage():
        requeue(level.wait_list)
