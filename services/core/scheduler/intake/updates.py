"""Applies an UpdateRequest, item by item, in the order of its sections.

Rejections are recorded in the journal. Nothing is scheduled here: the cycle runs afterwards.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from services.core.scheduler.actions import (
    gang,
    preemption_checks,
    quota_preemption,
    replacement,
    restarts,
)
from services.core.scheduler.intake import allocations, arrivals, disruptions, existing, foreign
from services.core.scheduler.lifecycle import endings
from services.core.scheduler.lifecycle.endings import drop_ask
from services.core.scheduler.model.devices import misfit
from services.core.scheduler.model.queue_settings import FAIR
from services.core.scheduler.model.rows import Application, Queue
from services.core.scheduler.model.settings import CLUSTER_GANG, KAI, PARTIAL_GANG
from services.core.scheduler.model.task_groups import with_group
from services.core.scheduler.nodes.pod_topology import MAX_LABEL_KEYS
from services.core.scheduler.ordering import queueing
from services.core.scheduler.queues.dynamic_queues import (
    QueueCreationError,
    apply_quota_tags,
    get_or_create,
)
from services.core.scheduler.queues.placement import PlacementError, is_forced, place
from services.core.scheduler.statement import application_moves
from services.core.scheduler.statement.existing import Existing
from services.core.scheduler.statement.journal import (
    ApplicationChanged,
    ApplicationRejected,
    AskReleased,
    EndConfirmed,
    Noted,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    ApplicationNote,
    RemoveApplicationRequest,
    TerminationType,
    UpdateRequest,
    UserGroupInformation,
)
from shared.messages.protocol import TimerKind
from shared.model.names import MAX_APPLICATION_ID_BYTES, NOT_ASKABLE, USER, is_askable
from shared.model.numbers import INT32
from shared.model.reasons import Fact, Kind, Reason
from shared.model.resources import bounded, fits_limit, go_map, is_negative, is_zero
from shared.model.states import ApplicationEvent, ApplicationState

Item = TypeVar("Item")
_ENDING = (ApplicationState.FAILING,)
_KEEPS_ASKS = (TerminationType.TIMEOUT, TerminationType.SCHEDULING_FAILED_ON_RM)
_GIVEN_UP = (ApplicationState.FAILING, ApplicationState.RESUMING)


def update_applications(partition: Partition, request: UpdateRequest) -> None:
    """Apply every section of a request except its nodes."""
    _each(partition, request.new_applications, add_application)
    update_allocations(partition, request)
    _each(partition, request.disruptions, disruptions.take)
    _each(partition, request.gangs_given_up, gang.give_up_reserving)
    arrivals.take_all(partition, request.asks, add_ask)
    quota_preemption.asks_arrived(partition, request.asks)
    _enter_all(partition, request)
    _each(partition, request.ask_releases, release_ask)
    _each(partition, request.releases, release_allocation)
    _each(partition, request.remove_applications, remove_application)
    _each(partition, request.notes, take_note)
    _each(partition, request.pods_held, Partition.hold_pods)
    _each(partition, request.gangs_changed, gang.change)


def has_only_allocations(request: UpdateRequest) -> bool:
    """Whether a request contains nothing but existing allocations."""
    rest = replace(request, allocations=())
    return bool(request.allocations) and rest == UpdateRequest(request.rm_id)


def update_allocations(
    partition: Partition, request: UpdateRequest, held: Existing | None = None
) -> None:
    """Add the existing allocations; with ``held`` the plain ones are counted later."""
    existing.take_all(partition, request.allocations, allocations.add_existing, held)
    for name in dict.fromkeys(item.application_id for item in request.allocations):
        application = partition.applications.get(name)
        if application is not None and application.tree is not None:
            partition.note_minimum(application)


def _each(
    partition: Partition, items: Iterable[Item], take: Callable[[Partition, Item], None]
) -> None:
    for item in items:
        take(partition, item)


def _enter_all(partition: Partition, request: UpdateRequest) -> None:
    """Requeue each application that received asks once, however many there are."""
    for application_id in dict.fromkeys(ask.application_id for ask in request.asks):
        application = partition.applications.get(application_id)
        if application is not None:
            gang.await_placeholders(partition, application)
            queueing.enter(application)
            preemption_checks.check_newcomers(partition, application)
            partition.check_replacements(application)


# --- applications -------------------------------------------------------------------------------


def add_application(partition: Partition, request: AddApplicationRequest) -> None:
    """Accept an application into its queue, or reject it with a reason.

    A forced application without a user gets the user ``nobody`` (docs/rules/quotas.md).
    """
    if is_forced(request) and not request.ugi.user:
        request = replace(request, ugi=UserGroupInformation("nobody", ("nogroup",)))
    queue, reason = _place(partition, request)
    is_known = request.application_id in partition.applications
    if queue is None or reason:
        shown = None if is_known else _rejected(partition, request, queue, reason)
        text, fact = _larger_than_max(request, queue) if queue is not None else ("", None)
        over = fact if text == reason else None
        partition.journal.record(ApplicationRejected(request, queue, reason, shown, over))
        return
    way = partition.settings.gang_admission
    application = Application(
        request,
        queue,
        partition.next_sequence(),
        request.submission_time_ns or partition.now_ns,
        starts_in_part=way == PARTIAL_GANG and not request.gang.starts_whole,
        starts_placed=way == CLUSTER_GANG or request.gang.starts_whole,
        enforces_minimum=(
            partition.settings.enforces_minimum
            if not is_zero(request.placeholder_ask)
            else bool(request.gang.subgroups)
        ),
        is_kai=partition.settings.policy == KAI,
        takes_turns=partition.settings.grows_by_turns,
        yields_surplus=partition.settings.yields_surplus,
        reservation_start_ns=request.reservation_start_ns,
        execution_start_ns=request.execution_start_ns,
    )
    application_moves.add(partition, application)


def _place(partition: Partition, request: AddApplicationRequest) -> tuple[Queue | None, str]:
    """Return a new application's leaf queue, and why it is rejected ("" if it is not)."""
    path, reason = path_of(partition, request)
    if reason:
        return None, reason
    try:
        queue = get_or_create(partition, path)
    except QueueCreationError as error:
        return None, (
            f"failed to create rule based queue {path} for application "
            f"{request.application_id}\n{error}"
        )
    apply_quota_tags(partition, queue, request.tags)
    is_known = is_forced(request) or request.state  # once accepted, it survives a restart
    return queue, "" if is_known else gang_rejection(partition, request, queue)


def path_of(partition: Partition, request: AddApplicationRequest) -> tuple[str, str]:
    """Return the path of a new application's leaf, and why it cannot be placed ("" if it can)."""
    reason = _unplaceable(partition, request)
    if reason:
        return "", reason
    failed = f"failed to place application {request.application_id}"
    try:
        placement = place(partition.rules, partition.queues, request)
    except PlacementError as error:
        return "", f"{failed}: {error}"
    if not placement.path:
        reason = f"{failed}: application rejected: no placement rule matched"
        return "", reason + _denied(request, placement.denied)
    return placement.path, ""


def _denied(request: AddApplicationRequest, denied: tuple[str, ...]) -> str:
    """Return the text of an access refusal: by default the root admits no user."""
    if not denied:
        return ""
    return (
        f" (user {request.ugi.user} may not submit to {', '.join(denied)}: "
        "no submitacl or adminacl of the queue, or of one above it, allows it)"
    )


def _unnameable(name: str) -> str:
    """Return why an application ID is invalid, "" if it is valid."""
    size = len(name.encode())
    if not name:
        return "an application needs an ID"
    if size > MAX_APPLICATION_ID_BYTES:
        return f"an application's ID has at most {MAX_APPLICATION_ID_BYTES} bytes, found {size}"
    return "" if is_askable(name) else f"an application's ID {NOT_ASKABLE}, found {name!r}"


def _unplaceable(partition: Partition, request: AddApplicationRequest) -> str:
    name = request.application_id
    wrong = _unnameable(name)
    if wrong:
        return wrong
    if request.partition_name != partition.name:
        return (
            f"Failed to add application {name} to partition {request.partition_name}, "
            "partition doesn't exist"
        )
    if partition.is_removed and not (is_forced(request) or request.state):
        return f"partition {partition.name} is stopped cannot add a new application {name}"
    if not request.ugi.user:
        return "empty user cannot resolve"
    if not USER.match(request.ugi.user):
        return "invalid username, it contains invalid characters"
    if name in partition.applications:
        return (
            f"adding application {name} to partition {partition.name}, "
            "but application already existed"
        )
    return ""


def gang_rejection(partition: Partition, request: AddApplicationRequest, queue: Queue) -> str:
    """Return why a queue can never run a gang, "" if it can."""
    wanted = request.placeholder_ask
    if is_zero(wanted):
        return ""
    if queue.settings.sort_policy == FAIR and not partition.settings.fair_leaf_gangs:
        return (
            f"queue {queue.path} cannot run application {request.application_id} "
            "with task group request: unsupported sort type"
        )
    return _larger_than_max(request, queue)[0]


def _larger_than_max(request: AddApplicationRequest, queue: Queue) -> tuple[str, Fact | None]:
    """Return YuniKorn's message that a gang exceeds the queue's max, with the numbers.

    ("", None) if it does not. The gang's resource is a sum of task groups and may exceed the wire's
    range of integers.
    """
    wanted, limit = request.placeholder_ask, queue.configured_max()
    if fits_limit(limit, wanted):
        return "", None
    text = (
        f"queue {queue.path} cannot fit application {request.application_id}: "
        f"task group request {go_map(wanted)} larger than max queue allocation {go_map(limit)}"
    )
    amount, room = bounded(wanted), bounded(limit)
    return text, Fact(Kind.LARGER_THAN_MAX, queue=queue.path, amount=amount, room=room)


def _rejected(
    partition: Partition, request: AddApplicationRequest, queue: Queue | None, reason: str
) -> Application:
    """Return a rejected application for display: in its queue, or in the root if it has none."""
    where = queue or partition.root
    now_ns = partition.now_ns
    application = Application(
        request, where, partition.next_sequence(), now_ns, finished_time_ns=now_ns
    )
    application.fire(ApplicationEvent.REJECT, now_ns, reason)
    return application


def remove_application(partition: Partition, request: RemoveApplicationRequest) -> None:
    """End an application on the resource manager's request; an unknown one is no error."""
    application = partition.applications.get(request.application_id)
    if application is not None:
        endings.remove(partition, application)


def take_note(partition: Partition, note: ApplicationNote) -> None:
    """Show an application's users a problem that the resource manager found.

    That a pod waits for the application's end is shown only while the application is ending.
    """
    partition.journal.record(Noted(note))
    application = partition.applications.get(note.application_id)
    if application is None:
        return
    is_outdated = note.reason == Reason.APPLICATION_ENDING and application.state not in _GIVEN_UP
    if not is_outdated and application.note(note.reason, note.message):
        partition.journal.record(ApplicationChanged(application))


# --- asks ---------------------------------------------------------------------------------------


def add_ask(partition: Partition, request: AllocationAsk) -> None:
    """Add an ask, or reject it. A known key is an update, or changes nothing."""
    request = with_group(request)
    application = partition.applications.get(request.application_id)
    reason = _ask_rejection(partition, application, request)
    if application is None or reason:
        allocations.reject(partition, request, reason)
        return
    key = request.allocation_key
    if key in application.allocations or key in application.replacing_ask:
        return
    known = application.group_of.get(key)
    sequence = 0
    if known is not None:
        if known.asks[key].request == request:
            return
        sequence = known.asks[key].sequence
        partition.remove_ask(application, key)
    elif request.placeholder:
        application.count_placeholder(request.task_group_name, request.resource_per_alloc)
    partition.add_ask(application, request, sequence)
    restarts.give_way(partition, application, key)
    if application.state in (ApplicationState.NEW, ApplicationState.COMPLETING):
        partition.fire(application, ApplicationEvent.RUN)


def _ask_rejection(
    partition: Partition, application: Application | None, request: AllocationAsk
) -> str:
    if foreign.is_foreign(request):
        return foreign.refusal(partition, request)
    if application is None:
        return f"failed to find application {request.application_id}"
    if is_zero(request.resource_per_alloc):
        return "allocation contains no resources"
    if is_negative(request.resource_per_alloc):
        return "allocation contains negative resources"
    if request.priority not in INT32:
        return f"a priority is a 32-bit whole number, found {request.priority}"
    if application.state in _ENDING:
        return f"application {application.id} is {application.state}"
    if partition.nodes.pods.is_too_many(request.constraints):
        return f"the affinity selectors of all asks look at more than {MAX_LABEL_KEYS} labels"
    return misfit(request.resource_per_alloc, request.constraints)


def release_ask(partition: Partition, request: AllocationAskRelease) -> None:
    """Remove an ask, or with an empty key all asks of the application, and confirm it.

    An unknown ask is confirmed too: it may have been removed before. The confirmation of a release
    that the core started changes nothing: the key may have been asked for again since
    (docs/rules/interface.md).
    """
    if request.termination_type.is_schedulers:
        return
    partition.journal.record(AskReleased(request))
    application = partition.applications.get(request.application_id)
    if application is not None:
        _drop_asks(partition, application, request.allocation_key)


def _drop_asks(partition: Partition, application: Application, only: str = "") -> None:
    """Remove every ask of an application, or the ``only`` one."""
    keys = [only]
    if not only:
        keys = [ask.key for ask in application.asks()] + list(application.replacing_ask)
    for key in keys:
        if not drop_ask(partition, application, key) and key in application.allocations:
            _release_crossed(partition, application, key)
    queueing.enter(application)
    partition.claim_for_gang(application)
    endings.after_asks_removed(partition, application)


def _release_crossed(partition: Partition, application: Application, key: str) -> None:
    """End an allocation whose ask the resource manager withdrew while it was being allocated."""
    why = TerminationType.STOPPED_BY_RM
    message = "the ask was released while it was being allocated"
    _release_one(
        partition, application, key, AllocationRelease(application.id, key, why, message=message)
    )


# --- allocations --------------------------------------------------------------------------------


def release_allocation(partition: Partition, request: AllocationRelease) -> None:
    """End an allocation that the resource manager stopped, or whose release it confirms.

    An ask with the same key, or every ask if the key is empty, is removed too, unless the type
    concerns allocations only: TIMEOUT, and SCHEDULING_FAILED_ON_RM, which restores the ask.
    """
    if not request.application_id:
        foreign.release(partition, request.allocation_key)
        return
    application = partition.applications.get(request.application_id)
    if application is None:
        return
    keys = [request.allocation_key]
    if not request.allocation_key:
        keys = list(application.allocations)
        if request.termination_type not in _KEEPS_ASKS:
            _drop_asks(partition, application)
    for key in keys:
        _release_one(partition, application, key, request)


def _release_one(
    partition: Partition, application: Application, key: str, request: AllocationRelease
) -> None:
    allocation = application.allocations.get(key)
    why = request.termination_type
    if allocation is None:
        if why not in _KEEPS_ASKS and drop_ask(partition, application, key):
            queueing.enter(application)
            endings.after_asks_removed(partition, application)
        return
    if why is TerminationType.SCHEDULING_FAILED_ON_RM:
        decided = application.released.get(key)
        if decided is None:
            allocations.roll_back(partition, application, request)
            return
        why = TerminationType(decided)
    was_released = key in application.released
    if why is TerminationType.STOPPED_BY_RM:
        release = AllocationRelease(application.id, key, why, message=request.message)
        partition.journal.record(EndConfirmed(release))
    partition.cancel_timer(application, TimerKind.EXECUTION, key)
    if allocation.placeholder:
        replacement.placeholder_gone(partition, application, key, why)
    else:
        partition.remove(application, key, why)
        partition.set(application, succeeded=application.succeeded + request.has_succeeded)
        restarts.keep_room(partition, application, allocation, request, was_released=was_released)
        if application.enforces_minimum:
            partition.note_minimum(application)
        endings.after_real_removed(partition, application)
