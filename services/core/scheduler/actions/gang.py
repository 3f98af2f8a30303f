"""Gangs: admission as a whole, and timeouts. The cycle and the intake call it.

Rule 1: a gang's placeholders start only if the whole gang fits within the maxima of its queues and
        the limits of its user and group, less what other admitted gangs have yet to allocate. So no
        two gangs each hold part of a queue and wait for the other; the older is tried first. The
        cluster's size is not a quota: placeholders start as nodes allow. With ``gangAdmission:
        cluster`` every member must also have a place on the nodes (``gang_places.py``). With
        ``partial`` a gang starts as soon as any member fits, less what other started gangs have yet
        to allocate (ADR 38).
Rule 2: real asks wait while placeholder asks of their application are pending, and before the first
        of these if a gang was announced, for the placeholder timeout at most. A gang that gave up
        blocks none.
Rule 3: a reload may leave less than admitted gangs were admitted for. Those that would then exceed
        a max or a limit wait for admission again; gangs with allocations come first, then the
        older. Their allocations stay.

Replacement of placeholders is in ``replacement.py``.
Source: docs/rules/gangs.md#the-course; cases G-01 to G-28.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from services.core.scheduler.actions import (
    domain_places,
    gang_places,
    head_gang,
    starvation_guard,
    unschedulable,
)
from services.core.scheduler.actions.gang_places import NoPlaces
from services.core.scheduler.lifecycle.endings import after_placeholders_changed, drop_ask, end
from services.core.scheduler.model.rows import Application, Node, Queue, Tracker, WaitList
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.user_table import first_full, first_shortage
from services.core.scheduler.ordering import queueing
from services.core.scheduler.ordering.quotas import over_quota
from services.core.scheduler.statement import application_ledger, application_moves
from services.core.scheduler.statement.journal import ApplicationChanged, AskReleased
from services.core.scheduler.statement.partition import Partition, timer_name
from services.core.scheduler.statement.tentative import Tentative
from shared.messages.gang_tree import follows
from shared.messages.interface import (
    AllocationAskRelease,
    GangChanged,
    GangGivenUp,
    TerminationType,
)
from shared.messages.protocol import TimerKind
from shared.model.reasons import Fact, Kind, Reason, Refusal, Shortage
from shared.model.resources import (
    Resource,
    add,
    add_into,
    bounded,
    fits_limit,
    fits_room,
    is_zero,
    shared_types,
)
from shared.model.states import ApplicationEvent, ApplicationState

RESERVATION_TIMEOUT = "ResourceReservationTimeout"
EXECUTION_TIMEOUT = "ExecutionTimeout"
MAX_ALONE = 4  # parts of a gang that are skipped alone; further ones are not
_Found = tuple[list[tuple[Ask, Node]] | NoPlaces, WaitList | None]


# --- admission ----------------------------------------------------------------------------------


def admission_refusal(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList | None] | None:
    """Return why an application may not start yet, with the waiting list for it, or None."""
    behind = starvation_guard.refusal(partition, application)
    if behind is not None:
        return behind, None
    if application.state is ApplicationState.ACCEPTED:
        over = _over_applications(partition, application)
        if over is not None:
            return over
    if not application.awaits_admission:
        return None
    return _admit_as_a_whole(partition, application)


def _admit_as_a_whole(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList | None] | None:
    """Admit a waiting gang, or return the refusal of the whole gang."""
    in_part = application.starts_in_part
    is_reserving = application.is_reserving or application.is_restarting
    if (application.starts_placed or in_part) and not is_reserving:
        # It has run, or gave up: its placeholders are ordinary asks.
        partition.admit(application)
        return None
    refused = _lacks_headroom(partition, application)
    if refused is not None:
        return refused
    if application.needs_places:
        with Tentative(partition.nodes) as own_claims:
            is_own = head_gang.open_claims(partition, application, own_claims)
            refused = _place_whole(partition, application)
        head_gang.was_tried(partition, application, is_own=is_own)
        return refused
    partition.admit(application)
    return None


def _lacks_headroom(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList | None] | None:
    """Return the refusal of a limit or plugin that the gang to be admitted exceeds, or None."""
    in_part = application.starts_in_part
    gang = application.outstanding()
    short_user = first_shortage(application, gang, count_promises=True, if_promised=in_part)
    if short_user is not None:
        return _no_headroom(Kind.WHOLE_GANG, short_user)
    own = application.claimed_room()
    fixed = over_quota(application, gang, own)
    if fixed is not None:
        return replace(fixed[0], reason=Reason.GANG_HEADROOM), fixed[1]
    short = application.queue.first_without_quota(gang, if_promised=in_part, own=own)
    if short is not None:
        return _no_headroom(Kind.WHOLE_GANG, short)
    refused = partition.no_capacity(application, gang)
    if refused is not None or application.needs_places:
        return refused
    return _without_a_part(application) if in_part else None


def _without_a_part(application: Application) -> tuple[Refusal, WaitList] | None:
    """Return the refusal of a limit that excludes every member, the root's max apart, or None."""
    refused: tuple[Refusal, WaitList] | None = None
    for group in gang_places.members(application):
        amount = group.bucket.shape.resource
        short: tuple[Tracker, Shortage] | tuple[Queue, Shortage] | None
        short = first_shortage(application, amount)
        short = short or application.queue.first_without_room(amount)
        if short is None or (isinstance(short[0], Queue) and short[0].parent is None):
            return None
        refused = refused or _no_headroom(Kind.ANY_MEMBER, short)
    return refused


def _no_headroom(
    what: Kind, short: tuple[Tracker, Shortage] | tuple[Queue, Shortage]
) -> tuple[Refusal, WaitList]:
    by, limit = short
    return Refusal(Reason.GANG_HEADROOM, Fact(what), limit=limit), by.wait_list


def _over_applications(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList] | None:
    """Return the refusal of a limit on running applications, or None.

    In a stateaware queue it becomes the starting application if there is none.
    """
    queue = application.queue
    if application.id not in queue.allocating_accepted:
        full = queue.first_over_applications(application.id)
        if full is not None:
            running = full.running_apps + len(full.allocating_accepted)
            fact = Fact(Kind.RUNNING, f"queue {full.path}", "", running, full.max_applications)
            return Refusal(Reason.MAX_APPLICATIONS, fact), full.wait_list
    over = first_full(application)
    if over is not None:
        return Refusal(Reason.MAX_APPLICATIONS, over[1]), over[0].wait_list
    if partition.settings.filters_state_aware and queue.settings.state_aware:
        return _another_starting(partition, application)
    return None


def _another_starting(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList] | None:
    """Refuse all but one starting application (YuniKorn's stateaware order as filtered fifo).

    The first one tried is the starter until it runs; one earlier in the queue's order replaces it
    while the starter has no allocation.
    """
    queue = application.queue
    starter = queue.starter
    if starter is None or starter.state is not ApplicationState.ACCEPTED or starter is application:
        partition.set(queue, starter=application)
        return None
    if not starter.allocations and application.order < starter.order:
        partition.set(queue, starter=application)
        return None
    return Refusal(
        Reason.ANOTHER_STARTING, Fact(Kind.STARTING, starter.id, queue.path)
    ), queue.wait_list


def withdraw_over_maxima(partition: Partition) -> None:
    """Withdraw the admission of gangs that a reload left over a max (rule 3)."""
    for application in _over_maxima(partition):
        for held in [held for held in application.reservations.values() if held.is_ordinary]:
            partition.unreserve(held)
        partition.withdraw_admission(application)


def _over_maxima(partition: Partition) -> list[Application]:
    """Return the admitted gangs that exceed a max or a limit together with the gangs before them.

    Only gangs' allocations and outstanding members count: other pods end by themselves. A gang that
    has preempted keeps its admission with the capacity freed for it.
    """
    gangs = [app for app in partition.applications.values() if app.is_gang and app.is_reserving]
    spoken_for: dict[Hashable, Resource] = {}
    for application in gangs:
        for place, _ in _maxima(application):
            add_into(spoken_for.setdefault(place, {}), application.allocated_placeholder)
    over: list[Application] = []
    admitted = [application for application in gangs if application.promise]
    for application in sorted(admitted, key=_started_first):
        outstanding = application.outstanding()
        fits = all(
            fits_limit(limit, shared_types(add(spoken_for[place], outstanding), outstanding))
            for place, limit in _maxima(application)
        )
        if fits or any(ask.has_preempted for ask in application.asks()):
            for place, _ in _maxima(application):
                add_into(spoken_for[place], outstanding)
        else:
            over.append(application)
    return over


def _started_first(application: Application) -> tuple[object, ...]:
    return not application.allocations, application.submission_time_ns, application.sequence


def _maxima(application: Application) -> Iterator[tuple[Hashable, Resource]]:
    """Yield the maxima of an application's queues and the limits of its user, each with its key.

    The root's max is not a quota.
    """
    for level in application.queue.lineage():
        if level.parent is not None and level.max_resource is not None:
            yield level, level.max_resource
    for tracker in application.trackers:
        for limited, limit in tracker.limits(application.queue):
            if limit.max_resource is not None:
                yield (tracker, limited.path), limit.max_resource


# --- places on the nodes ------------------------------------------------------------------------


def _place_whole(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList | None] | None:
    """Allocate all placeholders of a gang, or refuse it and let it wait for places."""
    pending = _missing_members(application)
    if pending is not None:
        _await_places(partition, application, {})
        return Refusal(Reason.GANG_PLACEHOLDERS_PENDING, pending), None
    found, wait_list = _find_any(partition, application)
    if isinstance(found, NoPlaces) and found.refusal.reason is Reason.GANG_HEADROOM:
        return found.refusal, wait_list
    if isinstance(found, NoPlaces):
        _await_places(partition, application, found.lacking)
        for group in gang_places.members(application):
            head = group.head()
            if head is not None:
                unschedulable.mark_group(partition, group, head, found.refusal, len(group.asks))
        return found.refusal, wait_list
    _allocate_whole(partition, application, found)
    return None


def _find_any(partition: Partition, application: Application) -> _Found:
    """Find places for the next start of a gang, leaving out optional parts that do not fit.

    The refusal is that of the first try; the gang then waits for places for any of the tried ones.
    If leaving out the parts that failed is not enough, the largest are left out: MAX_ALONE of them
    one at a time, then one more each time. The number of tries is at most MAX_ALONE plus twice its
    task groups.
    """
    first = found, wait_list = _find_next(partition, application)
    lacking: dict[Shape, int] = {}
    while isinstance(found, NoPlaces):
        _take_least(lacking, found.lacking)
        if not application.pass_over(found.part):
            break
        found, wait_list = _find_next(partition, application)
    application.pass_over_none()
    names = _largest_parts(partition, application) if isinstance(found, NoPlaces) else []
    for left_out in (*([name] for name in names[:MAX_ALONE]), names):
        if not isinstance(found, NoPlaces):
            break
        found, wait_list = _find_without(partition, application, left_out, (found, wait_list))
        if isinstance(found, NoPlaces):
            _take_least(lacking, found.lacking)
    if isinstance(first[0], NoPlaces) and isinstance(found, NoPlaces):
        return replace(first[0], lacking=lacking), first[1]
    return found, wait_list


def _find_without(
    partition: Partition, application: Application, names: list[str], before: _Found
) -> _Found:
    """Find places with one more of some task groups left out each time; else return ``before``."""
    found = before
    for name in names:
        if application.pass_over(name):
            found = _find_next(partition, application)
        else:
            application.let_start(name)
        if not isinstance(found[0], NoPlaces):
            break
    application.pass_over_none()
    return found


def _take_least(counts: dict[Shape, int], others: Mapping[Shape, int]) -> None:
    for shape, count in others.items():
        counts[shape] = min(count, counts.get(shape, count))


def _largest_parts(partition: Partition, application: Application) -> list[str]:
    """Return the optional waiting task groups of a gang, the largest first.

    The largest is the one whose minimum fits on the nodes the fewest times.
    """
    tree = application.tree
    if tree is None or not tree.has_choice:
        return []
    nodes, minima = partition.nodes, tree.minima()
    found: dict[str, Fraction] = {}
    for group in application.groups.values():
        least = minima.get(group.task_group_name, 0)
        if not group.placeholder and least:
            places = int(nodes.room.places(group.bucket.shape).sum())
            times = Fraction(places, least)
            found[group.task_group_name] = min(times, found.get(group.task_group_name, times))
    return sorted(found, key=lambda name: (found[name], -minima[name]))


def _find_next(partition: Partition, application: Application) -> _Found:
    """Find places for the next start; if a limit blocks it, return the waiting list too."""
    if (bound := _bound(partition, application)) is not None:
        return bound, None
    over = _over_headroom(application, gang_places.amount(application))
    if over is not None:
        domains = _lack_of_domains(partition, application, over[0])
        return (domains, None) if domains is not None else (NoPlaces(over[0], {}), over[1])
    with Tentative(partition.nodes) as trial:
        found = _find(trial, partition, application)
        trial.make_final()
    return found, None


def _lack_of_domains(
    partition: Partition, application: Application, over: Refusal
) -> NoPlaces | None:
    """Return what the domains lack for a gang that exceeds the cluster's capacity."""
    if not application.has_topology or over.reason is not Reason.GANG_PLACES:
        return None
    with Tentative(partition.nodes) as trial:
        backfill = partition.settings.backfill
        return domain_places.lack(trial, application, over, backfill=backfill)


def _bound(partition: Partition, application: Application) -> NoPlaces | None:
    if application.has_topology:
        return None  # its domains are checked instead
    return gang_places.bound(partition.nodes, application, backfill=partition.settings.backfill)


def _find(
    trial: Tentative, partition: Partition, application: Application
) -> list[tuple[Ask, Node]] | NoPlaces:
    find = domain_places.find if application.has_topology else gang_places.find
    return find(trial, application, backfill=partition.settings.backfill)


def _over_headroom(application: Application, wanted: Resource) -> tuple[Refusal, WaitList] | None:
    """Return the refusal of a limit that all placeholders together exceed, the cluster's last.

    There may be more placeholders than announced, and the root's max includes claims of others.
    """
    short_user = first_shortage(application, wanted)
    if short_user is not None:
        return _no_headroom(Kind.WHOLE_GANG, short_user)
    short = application.queue.first_without_room(wanted, own=application.claimed_room())
    if short is None:
        return None
    queue, limit = short
    if queue.parent is not None:
        return _no_headroom(Kind.WHOLE_GANG, short)
    return Refusal(Reason.GANG_PLACES, Fact(Kind.WHOLE_GANG), limit=limit), queue.wait_list


def _missing_members(application: Application) -> Fact | None:
    """Return a fact if fewer members are requested than the gang needs, else None."""
    if not application.is_restarting:
        wanted, announced = gang_places.amount(application), application.outstanding()
        if fits_room(wanted, announced):
            return None
        return Fact(Kind.PARTLY_REQUESTED, amount=bounded(announced), room=bounded(wanted))
    missing = sum(application.next_pods().values())
    there = sum(application.placeholder_needs().values())
    return None if there >= missing else Fact(Kind.LACKS_MEMBERS, count=there, total=missing)


def _await_places(
    partition: Partition, application: Application, lacking: dict[Shape, int]
) -> None:
    """Let a gang wait for places on the nodes while its placeholder timeout runs.

    After a recovery the timeout continues from its start, if the resource manager reports it.
    """
    partition.waiting_gangs.add(application, lacking)
    head_gang.consider(partition, application, lacking)
    if application.is_restarting:
        return
    if application.reservation_start_ns and (
        timer_name(application, TimerKind.PLACEHOLDER) in application.timers
    ):
        return
    application_moves.start_reservation_clock(partition, application)


def _allocate_whole(
    partition: Partition, application: Application, places: list[tuple[Ask, Node]]
) -> None:
    """Allocate every placeholder at its place; the nodes' ledgers already have it.

    The timeout for waiting ends: the placeholder timeout runs from now.
    """
    if application.is_restarting:
        _start_again(partition, application, places)
        return
    if is_zero(application.allocated_placeholder):
        partition.set(application, reservation_start_ns=0)
    partition.admit(application)
    for ask, node in places:
        allocation = partition.allocate(application, ask, node)
        partition.arm_execution(application, allocation)
    placeholder_allocated(partition, application)
    if application.state is ApplicationState.ACCEPTED and not application.outstanding():
        partition.fire(application, ApplicationEvent.RUN)
    partition.requeue_for_pods()


def _start_again(
    partition: Partition, application: Application, places: list[tuple[Ask, Node]]
) -> None:
    """Allocate the real pods that a restarting gang lacked."""
    for ask, node in places:
        allocation = partition.allocate(application, ask, node)
        partition.arm_execution(application, allocation)
    if application.state is not ApplicationState.RUNNING:
        partition.fire(application, ApplicationEvent.RUN)
    queueing.enter(application)
    partition.requeue_for_pods()


# --- placeholders allocated ---------------------------------------------------------------------


def placeholder_allocated(partition: Partition, application: Application) -> None:
    """Update the timer, the claim and the state after a placeholder was allocated."""
    queueing.stop_waiting_for(application)
    if application.state is ApplicationState.ACCEPTED:
        application_moves.count_as_starting(application)
        start_reservation(partition, application)
        if application.holds_whole_gang:
            partition.fire(application, ApplicationEvent.RUN)
    partition.claim_for_gang(application)
    if not application.pending_placeholders:
        queueing.enter(application)
    partition.check_replacements(application)


def start_reservation(partition: Partition, application: Application) -> None:
    """Start the placeholder timeout at the first placeholder allocation.

    It starts again if all placeholders were lost and none was pending.
    """
    is_running = timer_name(application, TimerKind.PLACEHOLDER) in application.timers
    if not (application.reservation_start_ns and is_running):
        application_moves.start_reservation_clock(partition, application)


# --- real asks that arrive first ----------------------------------------------------------------


def await_placeholders(partition: Partition, application: Application) -> None:
    """Let real asks wait for the first placeholder ask, at most for the placeholder timeout.

    The timeout runs from the creation of the first ask, or from the submission if that is later.
    """
    if not application.awaits_placeholders:
        if application.task_groups and not application.reservation_start_ns:
            partition.cancel_timer(application, TimerKind.PLACEHOLDER)
        return
    if timer_name(application, TimerKind.PLACEHOLDER) in application.timers:
        return
    since_ns = max(
        min((ask.created_ns for ask in application.asks()), default=partition.now_ns),
        application.request.submission_time_ns,
    )
    partition.arm_placeholder_timer(application, since_ns)


def give_up_reserving(partition: Partition, given_up: GangGivenUp) -> None:
    """Continue an application without its gang, because the resource manager gave it up."""
    application = partition.applications.get(given_up.application_id)
    if application is None or not application.is_gang or application.is_gang_over:
        return
    partition.set(application, is_gang_over=True)
    for ask in [ask for ask in application.asks() if ask.request.placeholder]:
        drop_ask(partition, application, ask.key)
    if is_zero(application.allocated_placeholder):
        partition.cancel_timer(application, TimerKind.PLACEHOLDER)
    partition.claim_for_gang(application)
    queueing.enter(application)
    partition.check_replacements(application)


def change(partition: Partition, news: GangChanged) -> None:
    """Apply new minimums to a gang without placeholders.

    If it is below them it is stale from now on.
    """
    application = partition.applications.get(news.application_id)
    if application is None or application.tree is None:
        return
    known = application.request.gang
    if known == news.gang or not follows(news.gang, known):
        return
    application.replant(replace(application.request, gang=news.gang))
    if application.layout is not None:
        partition.nodes.domains.update_gang(application.id, application.layout)
    partition.set(application, passed_over=frozenset())
    application_ledger.usage_changed(application)
    queueing.activate(application)
    partition.failed_searches.changed()
    partition.note_minimum(application)
    if application.yields_surplus:
        partition.note_surplus(application)
    partition.check_preemption_at(partition.now_ns)
    partition.journal.record(ApplicationChanged(application))


# --- timeout ------------------------------------------------------------------------------------


def placeholder_timeout(partition: Partition, application: Application) -> None:
    """Carry out the placeholder timeout, by the application's state.

    If no placeholder was ever asked for, the real asks stop waiting.
    Source: docs/rules/gangs.md#timeout.
    """
    is_reserving = application.state in (ApplicationState.NEW, ApplicationState.ACCEPTED)
    if application.awaits_placeholders:
        partition.set(application, is_placeholder_wait_over=True)
        queueing.enter(application)
    elif is_reserving and not application.is_gang_over:
        _give_up(partition, application)
    else:
        release_placeholders(
            partition, application, "releasing allocated placeholders on placeholder timeout"
        )
        drop_asks(partition, application, only_placeholders=True)


def _give_up(partition: Partition, application: Application) -> None:
    """Remove all asks and release all allocations: the gang did not start in time."""
    event = ApplicationEvent.FAIL if application.is_hard else ApplicationEvent.RESUME
    stop(
        partition, application, event, RESERVATION_TIMEOUT, "releasing placeholders on app timeout"
    )


def execution_timeout(partition: Partition, application: Application) -> None:
    """Fail a running application at its execution timeout; an ending one continues to end."""
    if application.state is ApplicationState.RUNNING:
        stop(partition, application, ApplicationEvent.FAIL, EXECUTION_TIMEOUT, "execution timeout")


def stop(
    partition: Partition,
    application: Application,
    event: ApplicationEvent,
    reason: str,
    message: str,
) -> None:
    """Remove all asks of an application, release all its allocations, and fire an event."""
    drop_asks(partition, application, only_placeholders=False)
    for key in list(application.allocations):
        if key not in application.released:
            partition.release(application, key, TerminationType.TIMEOUT, message)
    partition.fire(application, event, reason)
    after_placeholders_changed(partition, application)


def release_placeholders(partition: Partition, application: Application, message: str) -> None:
    """Release every allocated placeholder that is not being released."""
    for counts in application.task_groups.values():
        for key in list(counts.held):
            partition.release(application, key, TerminationType.TIMEOUT, message)


def drop_asks(partition: Partition, application: Application, *, only_placeholders: bool) -> None:
    """Remove waiting asks and notify the resource manager; placeholders count as timed out.

    Real asks in a replacement wait as well, though they are in no sum.
    """
    asks = [ask for ask in application.asks() if ask.request.placeholder or not only_placeholders]
    keys = [ask.key for ask in asks]
    if not only_placeholders:
        keys += application.replacing_ask
    for key in keys:
        drop_ask(partition, application, key, TerminationType.TIMEOUT)
        release = AllocationAskRelease(
            application.id, key, TerminationType.TIMEOUT, message="placeholder timeout"
        )
        partition.journal.record(AskReleased(release))
    if keys:
        queueing.enter(application)


def completing_timeout(partition: Partition, application: Application) -> None:
    """Complete an application after its timeout; remaining placeholders are released first."""
    if application.state is not ApplicationState.COMPLETING:
        return
    release_placeholders(partition, application, "releasing placeholders on app complete")
    if is_zero(application.allocated_placeholder):
        partition.fire(application, ApplicationEvent.COMPLETE)
        end(partition, application)
