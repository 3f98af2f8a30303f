"""How an application comes to its end.

Rule 1: with no ask and no real allocation left it is Completing, and Completed 30 s later unless
        a new ask comes; placeholders that are left are released then
        (docs/rules/applications.md#states).
Rule 2: Failing ends in Failed, Resuming goes on in Accepted, once the placeholders are gone.
Rule 3: an ended application leaves its queue at once, so that its id can be submitted again.
Rule 4: no placeholder of an ended application is left uncounted: one that was neither replaced nor
        timed out before counts as timed out.
"""

from services.core.scheduler.model.queue_ledger import DRAINING
from services.core.scheduler.model.rows import Application
from services.core.scheduler.queues.dynamic_queues import clean_later
from services.core.scheduler.statement import application_moves, replacing
from services.core.scheduler.statement.journal import (
    AskEnded,
    EndConfirmed,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import AllocationRelease, TerminationType
from shared.messages.protocol import TimerKind
from shared.model.resources import is_zero
from shared.model.states import ENDED, ApplicationEvent, ApplicationState

_LIVELY = (ApplicationState.ACCEPTED, ApplicationState.RUNNING)


def after_placeholders_changed(partition: Partition, application: Application) -> None:
    """Follow up on a placeholder's end: the last one may end or free its application.

    Of a gang that goes on reserving the placeholder timeout runs on: others may be made for those
    that were lost.
    """
    if not is_zero(application.allocated_placeholder):
        return
    if not (application.is_reserving and application.pending_placeholders):
        partition.cancel_timer(application, TimerKind.PLACEHOLDER)
    if application.state is ApplicationState.RESUMING:
        partition.fire(application, ApplicationEvent.RUN)
    elif application.state is ApplicationState.FAILING:
        if not application.allocations:
            partition.fire(application, ApplicationEvent.FAIL, application.message)
            end(partition, application)
    elif application.has_nothing:
        _complete(partition, application)


def drop_ask(
    partition: Partition,
    application: Application,
    key: str,
    why: TerminationType = TerminationType.STOPPED_BY_RM,
) -> bool:
    """Take an ask out, waiting or being swapped in; return whether there was one.

    A placeholder that was asked for and not allocated counts as timed out.
    """
    swapped_in = replacing.cancel(partition, application, key)
    if swapped_in is not None:
        partition.journal.record(AskEnded(application, swapped_in, why))
        return True
    ask = partition.remove_ask(application, key, why)
    if ask is not None and ask.request.placeholder:
        application.count_dropped(ask.request.task_group_name)
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
        partition.check_replacements(application)
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
    for ask in list(application.asks()):
        drop_ask(partition, application, ask.key)
    application_moves.remove(partition, application)
    queue = application.queue
    if not queue.applications and (queue.status == DRAINING or not queue.is_managed):
        clean_later(partition)


def remove(partition: Partition, application: Application) -> None:
    """End an application at once because the resource manager has done with it."""
    for ask_key in list(application.replacing_ask):
        drop_ask(partition, application, ask_key)
    for key, allocation in list(application.allocations.items()):
        partition.remove(application, key)
        if allocation.placeholder:
            replacing.count_end(application, allocation, is_replaced=False)
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
