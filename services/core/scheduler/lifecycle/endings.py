"""How an application comes to its end.

Rule 1: with no ask and no real allocation left it is Completing, and Completed 30 s later unless
        a new ask comes; placeholders that are left are released then (contract section 3.1).
Rule 2: Failing ends in Failed, Resuming goes on in Accepted, once the placeholders are gone.
Rule 3: an ended application leaves its queue at once, so that its id can be submitted again.
Rule 4: no placeholder of an ended application is left uncounted: one that was neither replaced nor
        timed out before counts as timed out.
"""

from services.core.scheduler.model.application import Application
from services.core.scheduler.model.queues import DRAINING
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.queues.dynamic_queues import clean_later
from services.core.scheduler.statement.journal import (
    ApplicationChanged,
    AskEnded,
    EndConfirmed,
    TimerCancelled,
    UsageChanged,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import AllocationRelease, TerminationType
from shared.messages.protocol import TimerKind
from shared.model.resources import is_zero
from shared.model.states import ENDED, ApplicationEvent, ApplicationState

_LIVELY = (ApplicationState.ACCEPTED, ApplicationState.RUNNING)


def after_placeholders_changed(partition: Partition, application: Application) -> None:
    """Follow up on a placeholder's end: the last one may end or free its application."""
    if not is_zero(application.allocated_placeholder):
        return
    partition.cancel_timer(application, TimerKind.PLACEHOLDER)
    if application.state is ApplicationState.RESUMING:
        partition.fire(application, ApplicationEvent.RUN)
    elif application.state is ApplicationState.FAILING:
        if not application.allocations:
            partition.fire(application, ApplicationEvent.FAIL, application.message)
            end(partition, application)
    elif application.has_nothing:
        _complete(partition, application)


def cancel_swap(partition: Partition, application: Application, ask_key: str) -> Ask | None:
    """Give a replacement up because its real ask has gone; return the ask, or None.

    The placeholder's release is on its way and cannot be called back; its place is for the next
    real ask of its group.
    """
    placeholder_key = application.replacing_ask.pop(ask_key, None)
    if placeholder_key is None:
        return None
    swap = application.replacing.pop(placeholder_key)
    placeholder = application.allocations[placeholder_key]
    application.counts_of(placeholder).unclaimed[placeholder_key] = None
    application.positions.pop(ask_key, None)
    if swap.is_placed:
        partition.free_node(swap.allocation)
    return swap.ask


def drop_ask(
    partition: Partition,
    application: Application,
    key: str,
    why: TerminationType = TerminationType.STOPPED_BY_RM,
) -> bool:
    """Take an ask out, waiting or being swapped in; return whether there was one.

    A placeholder that was asked for and not allocated counts as timed out.
    """
    swapped_in = cancel_swap(partition, application, key)
    if swapped_in is not None:
        partition.journal.record(AskEnded(application, swapped_in, why))
        return True
    ask = partition.take_ask(application, key, why)
    if ask is not None and ask.request.placeholder:
        application.task_groups[ask.request.task_group_name].timedout += 1
    return ask is not None


def after_real_removed(partition: Partition, application: Application) -> None:
    """Follow up on the end of a real allocation."""
    if application.state is ApplicationState.FAILING:
        after_placeholders_changed(partition, application)
    elif application.has_nothing and application.state in _LIVELY:
        partition.fire(application, ApplicationEvent.COMPLETE)


def after_asks_removed(partition: Partition, application: Application) -> None:
    """Follow up on asks that the resource manager took back."""
    if not application.pending_placeholders:
        partition.replaceable[application] = None
    if (
        application.has_nothing
        and is_zero(application.allocated_placeholder)
        and application.state in _LIVELY
    ):
        partition.fire(application, ApplicationEvent.COMPLETE)


def _complete(partition: Partition, application: Application) -> None:
    if application.state in _LIVELY:
        partition.fire(application, ApplicationEvent.COMPLETE)
    elif application.state is ApplicationState.COMPLETING and not any(
        timer_id.startswith(TimerKind.COMPLETING) for timer_id in application.timers
    ):
        partition.fire(application, ApplicationEvent.COMPLETE)
        end(partition, application)


def end(partition: Partition, application: Application) -> None:
    """Take an application that has ended out of its queue."""
    application.finished_time_ns = partition.now_ns
    for timer_id, (generation, _) in application.timers.items():
        partition.journal.record(TimerCancelled(timer_id, generation))
    application.timers.clear()
    for ask in list(application.asks()):
        drop_ask(partition, application, ask.key)
    _leave_queue(partition, application)
    partition.users.unlink(application)
    partition.applications.pop(application.id, None)
    partition.replaceable.pop(application, None)
    partition.unreplaceable.pop(application, None)
    partition.journal.record(ApplicationChanged(application))
    for tracker in application.trackers:
        partition.journal.record(UsageChanged(tracker))


def _leave_queue(partition: Partition, application: Application) -> None:
    queue = application.queue
    queue.applications.pop(application.id, None)
    partition.waiting_gangs.remove(application)
    if application.parked_at is not None:
        application.parked_at.applications.pop(application.id, None)
    for level in queue.lineage():
        level.allocating_accepted.pop(application.id, None)
    if not queue.applications and (queue.status == DRAINING or not queue.is_managed):
        clean_later(partition)


def remove(partition: Partition, application: Application) -> None:
    """End an application at once because the resource manager has done with it."""
    for ask_key in list(application.replacing_ask):
        drop_ask(partition, application, ask_key)
    for key, allocation in list(application.allocations.items()):
        partition.remove(application, key)
        if allocation.placeholder:
            application.counts_of(allocation).timedout += 1
        release = AllocationRelease(
            application.id,
            key,
            TerminationType.STOPPED_BY_RM,
            message=f"Application {application.id} Removed",
        )
        partition.journal.record(EndConfirmed(release))
    for ask in list(application.asks()):
        drop_ask(partition, application, ask.key)
    if application.state is ApplicationState.RESUMING:
        partition.fire(application, ApplicationEvent.RUN)
    event = (
        ApplicationEvent.FAIL
        if application.state in (ApplicationState.NEW, ApplicationState.FAILING)
        else ApplicationEvent.COMPLETE
    )
    while application.state not in ENDED:
        partition.fire(application, event, f"Application {application.id} Removed")
    end(partition, application)
