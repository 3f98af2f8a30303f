"""How an application ends.

Rule 1: without asks and real allocations it is Completing, and Completed 30 s later unless a new
        ask arrives; remaining placeholders are released then (docs/rules/applications.md#states).
Rule 2: Failing ends in Failed, Resuming in Accepted, after the last placeholder ended.
Rule 3: an ended application leaves its queue at once, so that its id can be submitted again.
Rule 4: every placeholder of an ended application is counted: one that was neither replaced nor
        timed out counts as timed out.
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
    """Update an application after a placeholder ended: the last one may end it.

    The placeholder timeout of a gang that still reserves continues: lost ones may be created again.
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
    """Remove an ask that waits or is in a replacement; return whether there was one.

    A requested placeholder that was not allocated counts as timed out.
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
    """Update an application after a real allocation ended."""
    if application.state is ApplicationState.FAILING:
        after_placeholders_changed(partition, application)
    elif application.has_nothing and application.state in _LIVELY:
        partition.fire(application, ApplicationEvent.COMPLETE)


def after_asks_removed(partition: Partition, application: Application) -> None:
    """Update an application after the resource manager withdrew asks."""
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
    """Remove an ended application from its queue."""
    for ask in list(application.asks()):
        drop_ask(partition, application, ask.key)
    application_moves.remove(partition, application)
    queue = application.queue
    if not queue.applications and (queue.status == DRAINING or not queue.is_managed):
        clean_later(partition)


def remove(partition: Partition, application: Application) -> None:
    """End an application at once on the resource manager's request."""
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
