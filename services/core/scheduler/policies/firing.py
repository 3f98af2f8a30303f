"""Handles a fired timer, in the live partition or in a forecast.

Rule: a firing counts if its timer is armed, has the armed generation, and is due; it is then spent.
"""

from services.core.scheduler.actions import backoff, gang, quota_preemption, removed_partition
from services.core.scheduler.model.rows import Application
from services.core.scheduler.policies import preemption
from services.core.scheduler.queues import dynamic_queues
from services.core.scheduler.statement.journal import TimerSpent
from services.core.scheduler.statement.partition import Partition, timer_name
from shared.messages.interface import TerminationType
from shared.messages.protocol import PARTITION_TIMER, TimerFired, TimerKind


def fire(partition: Partition, fired: TimerFired) -> None:
    """Handle a fired timer if it is armed and due."""
    application = partition.applications.get(fired.application_id)
    if fired.application_id == PARTITION_TIMER:
        timers = partition.timers
    elif application is not None:
        timers = application.timers
    else:
        return
    armed = timers.get(fired.timer_id)
    if armed is None or not partition.fires_as_ordered(armed, fired):
        return
    del timers[fired.timer_id]
    partition.journal.record(TimerSpent(fired.timer_id))
    if fired.kind is not TimerKind.PREEMPTION:
        partition.failed_searches.changed()
    if application is None:
        _fire_own(partition, fired.kind)
    else:
        _fire_of(partition, application, fired)


def _fire_own(partition: Partition, kind: TimerKind) -> None:
    """Handle a timer of the partition itself."""
    if kind is TimerKind.CLEANER:
        removed_partition.fail_all(partition)
        dynamic_queues.clean_up(partition)
    elif kind is TimerKind.RESERVATION:
        partition.check_old_asks()
    elif kind is TimerKind.PREEMPTION:
        preemption.begin_pass(partition)
    elif kind is TimerKind.QUOTA:
        quota_preemption.enforce(partition)


def _fire_of(partition: Partition, application: Application, fired: TimerFired) -> None:
    """Handle a timer of an application."""
    match fired.kind:
        case TimerKind.PLACEHOLDER:
            gang.placeholder_timeout(partition, application)
        case TimerKind.COMPLETING:
            gang.completing_timeout(partition, application)
        case TimerKind.BACKOFF:
            backoff.end(partition, application)
        case TimerKind.EXECUTION if fired.timer_id == timer_name(application, TimerKind.EXECUTION):
            gang.execution_timeout(partition, application)
        case TimerKind.EXECUTION:
            key = fired.timer_id.removeprefix(timer_name(application, TimerKind.EXECUTION, ""))
            if key in application.allocations and key not in application.released:
                partition.release(application, key, TerminationType.TIMEOUT, "execution timeout")
        case _:
            pass  # the partition's own
