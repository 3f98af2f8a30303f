"""How an application comes to its end.

Rule 1: with no ask and no real allocation left it is Completing, and Completed 30 s later unless
        a new ask comes; placeholders that are left are released then (contract section 3.1).
Rule 2: Failing ends in Failed, Resuming goes on in Accepted, once the placeholders are gone.
Rule 3: an ended application leaves its queue at once, so that its id can be submitted again.
"""

from services.core.scheduler.application import Application
from services.core.scheduler.partition import Partition
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
        partition.outbox.cancel(timer_id, generation)
    application.timers.clear()
    for ask in list(application.asks()):
        partition.take_ask(application, ask.key)
    application.queue.applications.pop(application.id, None)
    for queue in application.queue.lineage():
        queue.parked.pop(application.id, None)
        queue.allocating_accepted.pop(application.id, None)
    partition.applications.pop(application.id, None)
    partition.replaceable.pop(application, None)
    partition.unreplaceable.pop(application, None)
    partition.outbox.touch(application)


def remove(partition: Partition, application: Application) -> None:
    """End an application at once because the resource manager has done with it."""
    for swap in list(application.replacing.values()):
        if swap.is_on_other_node:
            partition.free_node(swap.allocation)
    application.replacing.clear()
    application.replacing_ask.clear()
    for key in list(application.allocations):
        partition.remove(application, key)
        partition.outbox.say(
            "released_allocations",
            AllocationRelease(
                application.id,
                key,
                TerminationType.STOPPED_BY_RM,
                message=f"Application {application.id} Removed",
            ),
        )
    for ask in list(application.asks()):
        partition.take_ask(application, ask.key)
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
