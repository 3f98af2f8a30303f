"""Gangs: admission as a whole, replacement of placeholders, and what a timeout does.

Rule 1: a gang's placeholders start only when the whole gang fits the headroom of its queue and
        every queue above, less what other admitted gangs have yet to allocate. So two gangs never
        hold a part each and wait for the other; the older is asked first.
Rule 2: real asks wait while placeholder asks of their application are pending.
Rule 3: a placeholder is released once, for one real ask; node, queue and application change when
        the resource manager has confirmed, in one step.
Source: contract section 3.3; cases G-01 to G-28.
"""

from dataclasses import replace

from services.core.scheduler.application import Application
from services.core.scheduler.gates import Gate
from services.core.scheduler.lifecycle import (
    after_placeholders_changed,
    cancel_swap,
    drop_ask,
    end,
)
from services.core.scheduler.nodes import Node, matches
from services.core.scheduler.partition import Partition
from services.core.scheduler.settings import WHOLE_GANG
from services.core.scheduler.shapes import Ask, AskGroup
from services.core.scheduler.task_groups import Replacement
from services.core.scheduler.users import first_full, first_shortage
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation, AllocationAskRelease, TerminationType
from shared.messages.protocol import TimerKind
from shared.model.reasons import Reason, Refusal
from shared.model.resources import fits_room, go_map, is_zero
from shared.model.states import ApplicationEvent, ApplicationState

RESERVATION_TIMEOUT = "ResourceReservationTimeout"


# --- admission ----------------------------------------------------------------------------------


def kept_out(partition: Partition, application: Application) -> tuple[Refusal, Gate] | None:
    """Return why an application may not start yet, and whose gate it waits at, or None."""
    if application.state is ApplicationState.ACCEPTED:
        over = _over_applications(partition, application)
        if over is not None:
            return over
    if not needs_admission(partition, application):
        return None
    gang = application.outstanding()
    short_user = first_shortage(application, gang, heed_promises=True)
    if short_user is not None:
        tracker, sentence = short_user
        return Refusal(
            Reason.GANG_HEADROOM, f"the whole gang does not fit: {sentence}"
        ), tracker.gate
    short = application.queue.first_without_room(gang, heed_promises=True)
    if short is not None:
        queue, sentence = short
        return Refusal(Reason.GANG_HEADROOM, f"the whole gang does not fit: {sentence}"), queue.gate
    application.admit()
    return None


def _over_applications(
    partition: Partition, application: Application
) -> tuple[Refusal, Gate] | None:
    """Return which limit on running applications keeps one from starting, or None."""
    queue = application.queue
    if application.id not in queue.allocating_accepted:
        full = queue.first_over_applications(application.id)
        if full is not None:
            running = full.running_apps + len(full.allocating_accepted)
            sentence = (
                f"queue {full.path} runs {running} of at most {full.max_applications} applications"
            )
            return Refusal(Reason.MAX_APPLICATIONS, sentence), full.gate
    over = first_full(application)
    if over is not None:
        return Refusal(Reason.MAX_APPLICATIONS, over[1]), over[0].gate
    if partition.settings.filters_state_aware and queue.settings.state_aware:
        return _another_starting(application)
    return None


def _another_starting(application: Application) -> tuple[Refusal, Gate] | None:
    """Let one new application start at a time (stateaware as filtered fifo).

    The first to be considered is the starter until it runs; one that comes before it in the
    queue's order takes over as long as the starter holds nothing.
    """
    queue = application.queue
    starter = queue.starter
    if starter is None or starter.state is not ApplicationState.ACCEPTED or starter is application:
        queue.starter = application
        return None
    if not starter.allocations and application.order < starter.order:
        queue.starter = application
        return None
    sentence = f"application {starter.id} of queue {queue.path} is starting: one at a time"
    return Refusal(Reason.ANOTHER_STARTING, sentence), queue.gate


def needs_admission(partition: Partition, application: Application) -> bool:
    """Return whether an application's placeholders still wait for the whole gang to fit."""
    return bool(
        application.is_gang
        and application.pending_placeholders
        and not application.gang_admitted
        and partition.settings.gang_admission == WHOLE_GANG
    )


# --- placeholders allocated ---------------------------------------------------------------------


def placeholder_allocated(partition: Partition, application: Application) -> None:
    """Follow up on a placeholder's allocation: the timer, the promise, the state."""
    if application.state is ApplicationState.ACCEPTED:
        for queue in application.queue.lineage():
            queue.allocating_accepted[application.id] = None
        start_reservation(partition, application)
        if application.allocated_placeholder == application.request.placeholder_ask:
            partition.fire(application, ApplicationEvent.RUN)
    application.keep_promise()
    if not application.pending_placeholders:
        application.enter()
    partition.replaceable[application] = None


def start_reservation(partition: Partition, application: Application) -> None:
    """Start the placeholder timeout at the first placeholder allocation, and only then."""
    if application.reservation_start_ns:
        return
    application.reservation_start_ns = partition.now_ns
    partition.arm_timer(
        application, TimerKind.PLACEHOLDER, application.placeholder_timeout_ms(partition.now_ns)
    )


# --- replacement --------------------------------------------------------------------------------


def replace_placeholders(partition: Partition, limit: int) -> int:
    """Start every replacement that can be started, at most ``limit``; return how many."""
    started = 0
    while partition.replaceable and started < limit:
        application = next(iter(partition.replaceable))
        del partition.replaceable[application]
        started += _replace_in(partition, application, limit - started)
    return started


def _replace_in(partition: Partition, application: Application, limit: int) -> int:
    if application.pending_placeholders or not application.may_schedule:
        return 0
    started = 0
    groups = [group for group in application.groups.values() if not group.placeholder]
    for group in sorted(groups, key=_head_order):
        counts = application.task_groups.get(group.task_group_name)
        while counts is not None and counts.held:
            ask = group.head()
            if ask is None:
                break
            if started >= limit:
                partition.replaceable[application] = None
                return started
            if not _replace_for(partition, application, group, ask):
                break
            started += 1
    return started


def _head_order(group: AskGroup) -> tuple[int, int, int]:
    head = group.head()
    return head.order if head is not None else (0, 0, 0)


def _replace_for(partition: Partition, application: Application, group: AskGroup, ask: Ask) -> bool:
    """Find the placeholder that a real ask replaces, on its node or on another one.

    With no node for it the ask is unschedulable, which is what scales a cluster up.
    """
    group.unplaced = None
    fitting: Allocation | None = None
    place: Node | None = None
    too_small: list[Allocation] = []
    for key in application.task_groups[group.task_group_name].held:
        placeholder = application.allocations[key]
        if not fits_room(placeholder.resource_per_alloc, ask.request.resource_per_alloc):
            too_small.append(placeholder)
            continue
        node = partition.nodes.nodes.get(placeholder.node_id)
        if node is not None and node.schedulable and matches(ask.shape.constraints, node):
            fitting, place = placeholder, node
            break
        fitting = fitting or placeholder
    for placeholder in too_small:
        _cancel_incompatible(partition, application, placeholder, ask)
    if fitting is None:
        return False
    node = place or partition.nodes.best(ask.shape)
    if node is None:
        group.unplaced = partition.nodes.refusal(ask.shape)
        partition.unreplaceable[application] = None
        partition.outbox.touch(application)
        return False
    _start(partition, application, ask, fitting, node)
    return True


def _cancel_incompatible(
    partition: Partition, application: Application, placeholder: Allocation, ask: Ask
) -> None:
    application.message = (
        f"Task group '{placeholder.task_group_name}' in application '{application.id}': "
        f"allocation resources '{go_map(ask.request.resource_per_alloc)}' are not matching "
        f"placeholder '{go_map(placeholder.resource_per_alloc)}' allocation with ID "
        f"'{placeholder.allocation_key}'"
    )
    partition.release(
        application,
        placeholder.allocation_key,
        TerminationType.TIMEOUT,
        "cancel placeholder: resource incompatible",
    )


def _start(
    partition: Partition, application: Application, ask: Ask, placeholder: Allocation, node: Node
) -> None:
    key = placeholder.allocation_key
    partition.take_head(application, ask)
    allocation = replace(allocation_of(ask.request, node.node_id), releases=(key,))
    elsewhere = node.node_id != placeholder.node_id
    application.replacing[key] = Replacement(ask, allocation, elsewhere)
    application.replacing_ask[ask.key] = key
    if elsewhere:
        partition.nodes.place(node, allocation)
        partition.outbox.nodes[node.node_id] = node
    partition.release(
        application,
        key,
        TerminationType.PLACEHOLDER_REPLACED,
        f"replacing placeholder by {ask.key}",
    )


def finish(partition: Partition, application: Application, placeholder_key: str) -> None:
    """Swap the real allocation in: the placeholder is gone, as the resource manager confirmed."""
    swap = application.replacing.pop(placeholder_key)
    del application.replacing_ask[swap.ask.key]
    _swap_in(partition, application, placeholder_key, swap.allocation)


def _swap_in(
    partition: Partition, application: Application, placeholder_key: str, real: Allocation
) -> None:
    had_real = not is_zero(application.allocated)
    application.placeholder_used.add(real.allocation_key)
    partition.count_in(application, real, partition.nodes.nodes[real.node_id])
    partition.remove(application, placeholder_key)
    application.counts_of(real).replaced += 1
    partition.outbox.say("new_allocations", real)
    partition.arm_execution(application, real)
    if application.state is ApplicationState.COMPLETING or (
        application.state is ApplicationState.ACCEPTED and had_real
    ):
        partition.fire(application, ApplicationEvent.RUN)
    if application.counts_of(real).is_used_up:
        application.enter()
    after_placeholders_changed(partition, application)


def placeholder_gone(
    partition: Partition, application: Application, key: str, why: TerminationType
) -> None:
    """Take a placeholder out that has ended: swapped, or lost."""
    if key in application.replacing:
        finish(partition, application, key)
        return
    placeholder = application.allocations[key]
    if why is TerminationType.PLACEHOLDER_REPLACED and _adopt(partition, application, placeholder):
        return
    partition.remove(application, key)
    counts = application.counts_of(placeholder)
    counts.timedout += 1
    if counts.is_used_up:
        application.enter()
    application.keep_promise()
    after_placeholders_changed(partition, application)


def _adopt(partition: Partition, application: Application, placeholder: Allocation) -> bool:
    """Give a replaced placeholder's room to a real ask of its group, decided before a restart."""
    node = partition.nodes.nodes.get(placeholder.node_id)
    for group in application.groups.values():
        ask = group.head()
        if (
            ask is None
            or node is None
            or group.placeholder
            or group.task_group_name != placeholder.task_group_name
            or not fits_room(placeholder.resource_per_alloc, ask.request.resource_per_alloc)
            or not matches(ask.shape.constraints, node)
        ):
            continue
        partition.take_head(application, ask)
        real = replace(
            allocation_of(ask.request, node.node_id), releases=(placeholder.allocation_key,)
        )
        _swap_in(partition, application, placeholder.allocation_key, real)
        return True
    return False


# --- timeout ------------------------------------------------------------------------------------


def placeholder_timeout(partition: Partition, application: Application) -> None:
    """Do what the placeholder timeout does in the application's state (contract 3.3, step 8)."""
    if application.state in (ApplicationState.NEW, ApplicationState.ACCEPTED):
        _give_up(partition, application)
    else:
        release_placeholders(
            partition, application, "releasing allocated placeholders on placeholder timeout"
        )
        drop_asks(partition, application, only_placeholders=True)


def _give_up(partition: Partition, application: Application) -> None:
    """Drop every ask and release every allocation: the gang could not be had in time."""
    drop_asks(partition, application, only_placeholders=False)
    for key in list(application.allocations):
        if key not in application.released:
            partition.release(
                application, key, TerminationType.TIMEOUT, "releasing placeholders on app timeout"
            )
    event = ApplicationEvent.FAIL if application.is_hard else ApplicationEvent.RESUME
    partition.fire(application, event, RESERVATION_TIMEOUT)
    after_placeholders_changed(partition, application)


def release_placeholders(partition: Partition, application: Application, message: str) -> None:
    """Release every placeholder that is allocated and not being released."""
    for counts in application.task_groups.values():
        for key in list(counts.held):
            partition.release(application, key, TerminationType.TIMEOUT, message)


def drop_asks(partition: Partition, application: Application, *, only_placeholders: bool) -> None:
    """Drop asks that wait, and tell the resource manager; placeholders count as timed out."""
    asks = [ask for ask in application.asks() if ask.request.placeholder or not only_placeholders]
    for ask in asks:
        drop_ask(partition, application, ask.key)
        partition.outbox.say(
            "released_asks",
            AllocationAskRelease(
                application.id, ask.key, TerminationType.TIMEOUT, message="placeholder timeout"
            ),
        )
    if not only_placeholders:
        for ask_key in list(application.replacing_ask):
            cancel_swap(partition, application, ask_key)
    if asks:
        application.enter()


def completing_timeout(partition: Partition, application: Application) -> None:
    """Complete an application that has waited; leftover placeholders are released first."""
    if application.state is not ApplicationState.COMPLETING:
        return
    release_placeholders(partition, application, "releasing placeholders on app complete")
    if is_zero(application.allocated_placeholder):
        partition.fire(application, ApplicationEvent.COMPLETE)
        end(partition, application)
