"""The scheduling cycle: reserved asks, then replacements, then all others, until nothing fits.

Order (docs/rules/scheduling.md): queues by priority and fair share, in a leaf its application order
(or that of ``head_gang.first_group``), in an application priority and age, on a node the first in
node order. Gangs that make way for others grow after all of that.

A refused ask removes its whole bucket, or its application, from the cycle until the blocking queue,
user, node or plugin changes. So a cycle costs what it places and what it newly refuses.

Limits: MAX_DECISIONS a cycle, exceeded only to complete a gang that is placed as a whole, and
MAX_REFUSALS, which cost about as much. At a limit the cycle requests another one, so that other
messages are handled in between.
"""

from typing import NamedTuple

from services.core.scheduler.actions import (
    backoff,
    freed_nodes,
    gang,
    head_gang,
    kai_turns,
    nominations,
    plugin_requeue,
    preemption_checks,
    replacement,
    required_nodes,
    reservations,
    runs,
    spare_nodes,
    starvation_guard,
    unschedulable,
)
from services.core.scheduler.actions.expected_room import opens_in_vain
from services.core.scheduler.model.rows import (
    Application,
    AskGroup,
    Claim,
    Node,
    PluginWaitList,
    Purpose,
    Queue,
    WaitList,
)
from services.core.scheduler.model.settings import CONSOLIDATION, YUNIKORN
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.user_table import first_full, first_shortage
from services.core.scheduler.ordering import queueing, turns, usage_order
from services.core.scheduler.ordering.quotas import over_quota
from services.core.scheduler.place.one import held_node_for, node_for
from services.core.scheduler.statement import allocation_log
from services.core.scheduler.statement.journal import (
    ApplicationChanged,
    HeadroomFound,
    HeadroomLacking,
    NodesClosed,
    QueueChanged,
    RunnableChanged,
)
from services.core.scheduler.statement.partition import Partition
from shared.model.reasons import PREDICATES, Fact, Kind, Reason, Refusal
from shared.model.resources import ResourceView
from shared.model.states import ApplicationEvent, ApplicationState

MAX_DECISIONS = 4_000
MAX_REFUSALS = 1_000
BY_QUEUE, BY_USER = "queue", "user"  # who has no headroom for an ask


class Ran(NamedTuple):
    """The number of decisions of a cycle, and whether a limit ended it before all was placed."""

    decisions: int
    is_cut: bool


def run(partition: Partition) -> Ran:
    """Place all asks that can be placed."""
    decisions = refusals = 0
    plugin_requeue.requeue_due(partition)
    if partition.root.max_resource is None:
        return Ran(0, is_cut=False)
    spare_nodes.choose_again(partition)
    head_gang.choose_again(partition)
    starvation_guard.check_again(partition)
    starvation_guard.update_admitted(partition)
    kai_turns.begin(partition)
    partition.begin_with_others()
    usage_order.update(partition.root, partition.queues.values())
    requeued_after = 0  # number of decisions when the asks that plugins blocked were last requeued
    spares = partition.nodes.spares
    while not (is_cut := decisions >= MAX_DECISIONS or refusals >= MAX_REFUSALS):
        if spares.is_due:
            spare_nodes.choose_again(partition)
        made = _decide(partition, MAX_DECISIONS - decisions)
        if made is not None:
            decisions += made
            refusals += not made
        elif partition.hooks is not None and decisions > requeued_after:
            requeued_after = decisions
            plugin_requeue.requeue_due(partition)
        elif not (
            starvation_guard.update_admitted(partition, is_after_cycle=True)
            or (partition.nominated and nominations.give_way(partition))
        ):
            unschedulable.mark(partition)
            break
    kai_turns.end(partition)
    if partition.head_gang is None:
        partition.root.take_newly_blocked()  # only the head gang reads them
    return Ran(decisions, is_cut)


def _decide(partition: Partition, most: int) -> int | None:
    """Make at most ``most`` decisions; return their number, None if nothing is left to try."""
    if partition.head_gang is not None:
        head_gang.update(partition)
    freed_nodes.mark(partition)
    partition.requeue_gangs()
    if partition.reserved_to_try:
        return _try_reserved(partition, next(iter(partition.reserved_to_try)))
    if partition.replaceable:
        return replacement.replace_placeholders(partition, most)
    with partition.timings.queue_order:
        leaf = turns.next_leaf(partition.root)
    if leaf is not None:
        is_in_order = partition.head_gang is None or not partition.settings.shortest_first
        placed = runs.place(partition, leaf, most) if is_in_order else 0
        placed = placed or _place_from(partition, leaf)
        if not placed:
            leaf.next_changed()
        return placed
    return _finish(partition)


def _finish(partition: Partition) -> int | None:
    """Do the steps after all leaves were tried; return 0, or None if nothing is left."""
    if partition.growing:
        partition.take_growth_up()
        return 0
    if not freed_nodes.are_done(partition):
        return 0
    if partition.root.trying:  # an untried representative must not keep its class blocked
        queueing.class_was_tried(next(iter(partition.root.trying)))
    elif partition.shapes_to_reserve:
        reservations.reserve_for_the_old(partition)
    else:
        return None
    return 0


def _place_from(partition: Partition, leaf: Queue) -> int:
    """Place the first ask of a leaf; return how many asks were placed."""
    with partition.timings.application_order:
        group = head_gang.first_group(partition, leaf)
    if group is None:
        leaf.deactivate()
        return 0
    application = group.application
    held = len(application.allocations)
    if not _may_start(partition, application, group):
        return len(application.allocations) - held  # the asks of a gang placed as a whole
    ask = group.head()
    if ask is None:
        group.bucket.withdraw(group)
        return 0
    bucket = group.bucket
    is_waking = bucket.refusal is not None and bucket.queued is not None
    if is_waking and not freed_nodes.have_room(partition, group, ask):
        return 0
    short = _no_headroom(partition, application, ask)
    if short is not None:
        _block(partition, group, ask, *short)
        return 0
    if ask.lacks_headroom_by:
        is_user = ask.lacks_headroom_by == BY_USER
        partition.set(ask, lacks_headroom_by="")
        partition.journal.record(HeadroomFound(application, ask, is_user))
    node = _node_for(partition, group, ask)
    if node is None:
        return 0
    _allocate(partition, application, ask, node)
    return 1


def _goes_last(partition: Partition, group: AskGroup) -> bool:
    """Put growth aside until everything else was tried; return whether that was done now."""
    application, leaf = group.application, group.bucket.leaf
    if partition.is_growing or group.placeholder or not application.has_its_minimum:
        return False
    bucket = leaf.to_admit if application.awaits_admission else group.bucket
    partition.put_growth_aside(bucket)
    return True


def _block(
    partition: Partition, group: AskGroup, ask: Ask, refusal: Refusal, wait_list: WaitList
) -> None:
    """Block a bucket that exceeds the headroom of a queue or a user."""
    leaf = group.bucket.leaf
    if isinstance(wait_list, PluginWaitList):
        wait_list.hold(group, refusal)
        partition.journal.record(ApplicationChanged(group.application))
        return
    by_need = _may_wait_by_need(partition, leaf)
    leaf.block(group.bucket, refusal, wait_list, partition.now_ns, by_need=by_need)
    if wait_list is partition.root.wait_list:
        partition.unplaced[group.bucket] = None
    if refusal.reason is Reason.QUEUE_QUOTA:
        preemption_checks.check_later(partition, group.application, ask)
    partition.journal.record(QueueChanged(leaf))


def _may_start(partition: Partition, application: Application, group: AskGroup) -> bool:
    """Whether an application's asks may be placed; one that may not start is blocked.

    If it is admitted here, or unblocked, its asks are requeued in their buckets and this returns
    False: they are placed from there. Growth that goes last is put aside.
    """
    if application.yields_surplus and _goes_last(partition, group):
        return False
    is_behind = application.refusal is not None
    is_to_admit = application.awaits_admission
    admission_refusal = gang.admission_refusal(partition, application)
    reason = admission_refusal[0].reason if admission_refusal is not None else None
    if reason is not Reason.GANG_PATIENCE:
        _note_runnable(partition, application, is_at_limit=reason is Reason.MAX_APPLICATIONS)
    if admission_refusal is not None:
        _set_unschedulable(partition, application, *admission_refusal)
    elif is_behind:
        queueing.activate(application)
        partition.journal.record(ApplicationChanged(application))
    if admission_refusal is None and (is_to_admit or is_behind):
        starvation_guard.watch(partition, application)
    queueing.was_tried(application)
    return admission_refusal is None and not is_behind and not is_to_admit


def _set_unschedulable(
    partition: Partition, application: Application, refusal: Refusal, wait_list: WaitList | None
) -> None:
    """Block an application that may not start yet."""
    if refusal.reason is Reason.GANG_PATIENCE:
        leaf = application.queue
        leaf.active_buckets.withdraw(leaf.behind)  # later applications of the leaf wait as well
        if application.is_refused_for(Reason.GANG_PATIENCE):
            return
        if application.is_admitted:
            partition.withdraw_admission(application)
        for held in [held for held in application.reservations.values() if held.is_ordinary]:
            partition.unreserve(held)  # only applications that may start hold reservations
    by_need = _may_wait_by_need(partition, application.queue)
    queueing.set_unschedulable(application, refusal, partition.now_ns, wait_list, by_need=by_need)
    starvation_guard.watch(partition, application)
    preemption_checks.check_gang_later(partition, application)
    partition.journal.record(ApplicationChanged(application))


def _may_wait_by_need(partition: Partition, leaf: Queue) -> bool:
    """Whether only free capacity helps the asks of a leaf: no preemption is possible for them."""
    settings = partition.settings
    is_yunikorn = settings.policy == YUNIKORN and CONSOLIDATION not in settings.actions
    return is_yunikorn and not preemption_checks.has_guarantee(leaf)


def _no_headroom(
    partition: Partition, application: Application, ask: Ask
) -> tuple[Refusal, WaitList] | None:
    """Return why user, group, queue or plugin refuse an ask, and the waiting list for it."""
    amount = ask.shape.resource
    short_user = first_shortage(application, amount)
    if short_user is not None:
        tracker, limit = short_user
        available = tracker.headroom(application.queue)
        _note_no_headroom(partition, application, ask, BY_USER, available)
        allocation_log.note(partition, application, ask, allocation_log.USER_QUOTA)
        return Refusal(Reason.USER_QUOTA, limit=limit), tracker.wait_list
    keeps_room = application.has_claimed_room(ask)
    if application.asks_within_quota:
        over = over_quota(application, amount, amount if keeps_room else {})
        if over is not None:
            return over
    short = application.queue.first_without_room(amount, count_reserved=not keeps_room)
    if short is not None:
        queue, limit = short
        if limit.is_nowhere:
            refusal = partition.nodes.room.refusal(ask.shape)
            return Refusal(refusal.reason, None, refusal.nodes, limit), queue.wait_list
        available = application.queue.headroom()
        _note_no_headroom(partition, application, ask, BY_QUEUE, available)
        allocation_log.note(partition, application, ask, allocation_log.QUEUE_QUOTA)
        return Refusal(Reason.QUEUE_QUOTA, limit=limit), queue.wait_list
    return partition.no_capacity(application, amount)


def _note_no_headroom(
    partition: Partition, application: Application, ask: Ask, by: str, available: ResourceView
) -> None:
    """Record that an ask exceeds the headroom of a queue or user, unless it is known."""
    if ask.lacks_headroom_by != by:
        partition.set(ask, lacks_headroom_by=by)
        partition.journal.record(HeadroomLacking(application, ask, by == BY_USER, available))


def _note_runnable(partition: Partition, application: Application, *, is_at_limit: bool) -> None:
    """Record whether the limits of its queues and user let an application run, if that changed.

    ``is_at_limit``: a limit on running applications blocks its start now.
    """
    if not is_at_limit and not application.cannot_run:
        return
    by_queue = is_at_limit and application.queue.first_over_applications(application.id) is not None
    by_quota = is_at_limit and first_full(application) is not None
    known = application.cannot_run
    partition.set(application, cannot_run=(BY_QUEUE,) * by_queue + (BY_USER,) * by_quota)
    for by, cannot in ((BY_QUEUE, by_queue), (BY_USER, by_quota)):
        if cannot is not (by in known):
            entry = RunnableChanged(application, by == BY_USER, not cannot)
            partition.journal.record(entry)


def _node_for(partition: Partition, group: AskGroup, ask: Ask) -> Node | None:
    """Return the node for a group's first ask, or block the group's bucket."""
    bucket, application = group.bucket, group.application
    if ask.shape.constraints.required_node:
        found = required_nodes.node_for(partition, application, ask)
        if isinstance(found, Node):
            return found
        partition.refuse_by_nodes(bucket, found)
        return None
    with partition.timings.node_search:
        node = node_for(partition.nodes, ask.shape, backfill=partition.settings.backfill)
        if node is not None and opens_in_vain(partition, node, ask.shape):
            _await_share(partition, group, ask, node)
            return None
        if node is None and head_gang.is_behind(partition, application, ask):
            node = held_node_for(partition.nodes, ask.shape)
    if node is None:
        with partition.timings.node_evaluation:
            refusal = partition.nodes.room.refusal(ask.shape)
        partition.refuse_by_nodes(bucket, refusal)
        _note_closed(partition, application, ask, refusal)
        preemption_checks.check_later(partition, application, ask)
        backoff.begin(partition, bucket)
    return node


def _await_share(partition: Partition, group: AskGroup, ask: Ask, node: Node) -> None:
    """Block a GPU share and its bucket until its part of a device has been released."""
    partition.claim_releasing_share(group.application, ask, node)
    fact = Fact(Kind.DEVICE_RELEASING, node.node_id)
    partition.refuse_by_nodes(group.bucket, Refusal(Reason.NO_NODE_FITS, fact))


def _note_closed(
    partition: Partition, application: Application, ask: Ask, refusal: Refusal
) -> None:
    """Record that nodes refuse an ask for other reasons than capacity, at most every 15 s.

    Source: docs/rules/events.md#what-is-recorded, "per ask max 1 per 15 s".
    """
    evidence = refusal.nodes
    if evidence is None or not any(failure.on in PREDICATES for failure in evidence.failures):
        return
    told_ns = ask.told_of_nodes_ns
    if not told_ns or partition.now_ns - told_ns >= required_nodes.TELL_AGAIN_NS:
        partition.set(ask, told_of_nodes_ns=partition.now_ns)
        partition.journal.record(NodesClosed(application, ask, refusal))


def _allocate(partition: Partition, application: Application, ask: Ask, node: Node) -> None:
    """Place an ask and update its application."""
    allocation = partition.allocate(application, ask, node)
    if ask.request.placeholder:
        gang.placeholder_allocated(partition, application)
    elif application.state is not ApplicationState.RUNNING:
        partition.fire(application, ApplicationEvent.RUN)
    partition.arm_execution(application, allocation)


def _try_reserved(partition: Partition, reservation: Claim) -> int:
    """Try a reserved ask on its node, then on any other; return 1 if it was placed."""
    del partition.reserved_to_try[reservation]
    application, ask = reservation.application, reservation.ask
    if application.needs_places:
        _try_whole(partition, application)
        return 0
    group = application.group_of[ask.key]
    if not application.may_schedule or queueing.hold(application, group) is not None:
        return 0
    behind = starvation_guard.refusal(partition, application)
    if behind is not None:
        _set_unschedulable(partition, application, behind, None)
        return 0
    if not reservations.has_room(partition, reservation):
        return 0
    is_first = next(iter(reservation.node.reservations.values())) is reservation
    own = reservation.node if is_first or not reservation.closes_node else None
    if reservation.purpose is Purpose.SHARE and opens_in_vain(
        partition, reservation.node, ask.shape, reservation
    ):
        return 0
    node = node_for(partition.nodes, ask.shape, own=own)
    if node is None:
        required_nodes.make_room(partition, reservation)
        return 0
    _allocate(partition, application, ask, node)
    return 1


def _try_whole(partition: Partition, application: Application) -> None:
    """Requeue a gang whose victims have ended; its members start together."""
    if application.refusal is not None:
        queueing.activate(application)
    for reservation in application.reservations.values():
        partition.reserved_to_try.pop(reservation, None)
