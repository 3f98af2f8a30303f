"""Gangs: admission as a whole, and what a timeout does.

Rule 1: a gang's placeholders start only when the whole gang fits what the maxima that are set, of
        its queue and those above, and the limits of its user and group leave, less what other
        admitted gangs have yet to allocate. So two gangs never hold a part each of a queue's room
        and wait for the other; the older is asked first. The size of the cluster is no quota:
        placeholders start as nodes allow. With ``gangAdmission: cluster`` every member must have
        a place on the nodes as well (``gang_places.py``). With ``partial`` a gang starts as soon
        as any member fits, but for what another gang that has started has yet to get (ADR 38).
Rule 2: real asks wait while placeholder asks of their application are pending; before the first
        of these as well if a gang was announced, for the placeholder timeout at most. A gang that
        is given up holds nobody.
Rule 3: a reload may leave less than the gangs were let start on. Then those that would be over a
        max or a limit, beside the gangs before them, wait for their admission again: those that
        hold something come first, then the older. What they hold they keep.
How they take their placeholders' places is in ``replacement.py``.
Source: docs/rules/gangs.md#the-course; cases G-01 to G-28.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from services.core.scheduler.actions import (
    domain_places,
    gang_places,
    lane,
    patience,
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
    """Return why an application may not start yet, and whose waiting list it waits at, or None."""
    behind = patience.refusal(partition, application)
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
    """Admit a gang that waits, or return what has no room for the whole of it."""
    in_part = application.starts_in_part
    is_reserving = application.is_reserving or application.is_restarting
    if (application.starts_placed or in_part) and not is_reserving:
        # It has run, or is over: its placeholders are asks like any other.
        partition.admit(application)
        return None
    refused = _lacks_headroom(partition, application)
    if refused is not None:
        return refused
    if application.needs_places:
        with Tentative(partition.nodes) as own_claims:
            is_own = lane.let_go(partition, application, own_claims)
            refused = _place_whole(partition, application)
        lane.was_tried(partition, application, is_own=is_own)
        return refused
    partition.admit(application)
    return None


def _lacks_headroom(
    partition: Partition, application: Application
) -> tuple[Refusal, WaitList | None] | None:
    """Return which limit or plugin has no room for a gang that waits to be admitted, or None."""
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
    """Return which limit has no room for any member of a gang, the cluster's aside, or None."""
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
    """Return which limit on running applications keeps one from starting, or None.

    Where one starts at a time, it becomes the one that does.
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
    """Let one new application start at a time (stateaware as filtered fifo).

    The first to be considered is the starter until it runs; one that comes before it in the
    queue's order takes over as long as the starter holds nothing.
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
    """Have the gangs wait again that were let start on more than the configuration now leaves.

    To be called after a reload (rule 3).
    """
    for application in _over_maxima(partition):
        for held in [held for held in application.reservations.values() if held.is_ordinary]:
            partition.unreserve(held)
        partition.withdraw_admission(application)


def _over_maxima(partition: Partition) -> list[Application]:
    """Return the admitted gangs that do not fit a max or a limit beside those before them.

    Only what gangs hold, and have yet to get, is counted: other pods end by themselves. A gang that
    has preempted keeps its admission with the room that was freed for it.
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
    """Yield the maxima of an application's queues, and the limits of its user, each by its place.

    The root has no quota.
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
    """Allocate all placeholders of a gang, or refuse it for want of places and let it wait."""
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
    """Find places for what starts next of a gang; a part without is passed over for another.

    The refusal is that of the first parts. The gang then waits for places for any of them. Where
    the parts without a place did not do, those are passed over that need the most of the nodes: a
    few of them alone, then one more each time. So there are at most MAX_ALONE tries and twice as
    many as it has task groups.
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
    """Find places with one more of some task groups left out each time; ``before`` without any."""
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
    """Return the task groups that wait of a gang that can start without some, the largest first.

    The largest is that of whose pods the nodes hold its minimum the fewest times.
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
    """Find places for what starts next; where a limit is in the way, where the gang waits."""
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
    """Return what the domains lack for a gang that the cluster as a whole has no room for."""
    if not application.has_topology or over.reason is not Reason.GANG_PLACES:
        return None
    with Tentative(partition.nodes) as trial:
        backfill = partition.settings.backfill
        return domain_places.lack(trial, application, over, backfill=backfill)


def _bound(partition: Partition, application: Application) -> NoPlaces | None:
    if application.has_topology:
        return None  # which its domains say
    return gang_places.bound(partition.nodes, application, backfill=partition.settings.backfill)


def _find(
    trial: Tentative, partition: Partition, application: Application
) -> list[tuple[Ask, Node]] | NoPlaces:
    find = domain_places.find if application.has_topology else gang_places.find
    return find(trial, application, backfill=partition.settings.backfill)


def _over_headroom(application: Application, wanted: Resource) -> tuple[Refusal, WaitList] | None:
    """Return which limit on the path has no room for all placeholders, the cluster's last.

    They may be more than was announced, and the root's max counts what is kept for others.
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
    """Return how many members are requested where that is fewer than a gang needs, else None."""
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
    """Let a gang wait until the nodes have room for more; its placeholder timeout runs meanwhile.

    After a restart it runs from where it ran before, if the resource manager says it.
    """
    partition.waiting_gangs.add(application, lacking)
    lane.offer(partition, application, lacking)
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
    """Count every placeholder in where it has its place; the nodes' ledgers have it already.

    The time that the gang waited without a place is over: the placeholders are held from now on.
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
    """Count every real pod in that a gang lacked of its minimum."""
    for ask, node in places:
        allocation = partition.allocate(application, ask, node)
        partition.arm_execution(application, allocation)
    if application.state is not ApplicationState.RUNNING:
        partition.fire(application, ApplicationEvent.RUN)
    queueing.enter(application)
    partition.requeue_for_pods()


# --- placeholders allocated ---------------------------------------------------------------------


def placeholder_allocated(partition: Partition, application: Application) -> None:
    """Follow up on a placeholder's allocation: the timer, the promise, the state."""
    queueing.wait_no_more_for(application)
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
    """Start the placeholder timeout at the first placeholder allocation, and only then.

    It runs from there again if every placeholder was lost meanwhile, and nothing was pending.
    """
    is_running = timer_name(application, TimerKind.PLACEHOLDER) in application.timers
    if not (application.reservation_start_ns and is_running):
        application_moves.start_reservation_clock(partition, application)


# --- real asks that come first ------------------------------------------------------------------


def await_placeholders(partition: Partition, application: Application) -> None:
    """Let real asks wait for the first placeholder's, for the placeholder timeout at most.

    The time runs from the making of the first of them, or from the submission if that was later.
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
    """Let an application go on without its gang, because the resource manager does so."""
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
    """Hold a gang without placeholders to other minimums from now on.

    One that is below its minimum by that is stale from now on. What it lacks is judged by them.
    """
    application = partition.applications.get(news.application_id)
    if application is None or application.tree is None:
        return
    known = application.request.gang
    if known == news.gang or not follows(news.gang, known):
        return
    application.replant(replace(application.request, gang=news.gang))
    if application.layout is not None:
        partition.nodes.domains.rebind(application.id, application.layout)
    partition.set(application, passed_over=frozenset())
    application_ledger.usage_changed(application)
    queueing.activate(application)
    partition.fruitless.changed()
    partition.note_minimum(application)
    partition.check_preemption_at(partition.now_ns)
    partition.journal.record(ApplicationChanged(application))


# --- timeout ------------------------------------------------------------------------------------


def placeholder_timeout(partition: Partition, application: Application) -> None:
    """Do what the placeholder timeout does in the application's state.

    If no placeholder was ever asked for there is nothing to give up: real asks have waited enough.

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
    """Drop every ask and release every allocation: the gang could not be had in time."""
    event = ApplicationEvent.FAIL if application.is_hard else ApplicationEvent.RESUME
    stop(
        partition, application, event, RESERVATION_TIMEOUT, "releasing placeholders on app timeout"
    )


def execution_timeout(partition: Partition, application: Application) -> None:
    """Fail an application that has run for as long as it may; one that is ending anyway is let."""
    if application.state is ApplicationState.RUNNING:
        stop(partition, application, ApplicationEvent.FAIL, EXECUTION_TIMEOUT, "execution timeout")


def stop(
    partition: Partition,
    application: Application,
    event: ApplicationEvent,
    reason: str,
    message: str,
) -> None:
    """Drop every ask of an application and release every allocation: it has to stop."""
    drop_asks(partition, application, only_placeholders=False)
    for key in list(application.allocations):
        if key not in application.released:
            partition.release(application, key, TerminationType.TIMEOUT, message)
    partition.fire(application, event, reason)
    after_placeholders_changed(partition, application)


def release_placeholders(partition: Partition, application: Application, message: str) -> None:
    """Release every placeholder that is allocated and not being released."""
    for counts in application.task_groups.values():
        for key in list(counts.held):
            partition.release(application, key, TerminationType.TIMEOUT, message)


def drop_asks(partition: Partition, application: Application, *, only_placeholders: bool) -> None:
    """Drop asks that wait, and tell the resource manager; placeholders count as timed out.

    A real ask that was to take a placeholder's place waits as well, though it is in no sum.
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
    """Complete an application that has waited; leftover placeholders are released first."""
    if application.state is not ApplicationState.COMPLETING:
        return
    release_placeholders(partition, application, "releasing placeholders on app complete")
    if is_zero(application.allocated_placeholder):
        partition.fire(application, ApplicationEvent.COMPLETE)
        end(partition, application)
