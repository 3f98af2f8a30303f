"""Backoff: an application with many asks that no node fits is not tried for a while.

Off unless the queue sets ``application.unschedasks.backoff``: that many unschedulable asks back the
application off for ``application.unschedasks.backoff.delay``.
Source: docs/rules/scheduling.md#one-ask; case S-14.
"""

from services.core.scheduler.model.rows import Application, Bucket
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.partition import Partition
from shared.messages.protocol import TimerKind
from shared.model.numbers import saturated
from shared.model.reasons import Fact, Kind, Reason, Refusal


def begin(partition: Partition, bucket: Bucket) -> None:
    """Back off the applications of a bucket blocked by nodes that reached the limit."""
    settings = bucket.leaf.settings
    if not settings.backoff_asks or not bucket.is_blocked_by_nodes:
        return
    applications = dict.fromkeys(group.application for group in bucket.groups)
    for application in applications:
        count = _unschedulable(application)
        is_tried = application.may_schedule and not application.awaits_admission
        if count >= settings.backoff_asks and is_tried:
            _back_off(partition, application, count)


def _unschedulable(application: Application) -> int:
    """Return how many of an application's asks no node fits."""
    return sum(
        len(group.asks)
        for group in application.groups.values()
        if group.bucket.is_blocked_by_nodes and queueing.hold(application, group) is None
    )


def _back_off(partition: Partition, application: Application, count: int) -> None:
    delay_ns = application.queue.settings.backoff_delay_ns
    partition.set(application, backoff_until_ns=saturated(partition.now_ns + delay_ns))
    refusal = Refusal(Reason.BACKOFF, Fact(Kind.BACKED_OFF, count=count, period_ns=delay_ns))
    queueing.set_unschedulable(application, refusal, partition.now_ns, None)
    partition.arm_timer_at(application, TimerKind.BACKOFF, application.backoff_until_ns)


def end(partition: Partition, application: Application) -> None:
    """Requeue an application: its backoff is over."""
    partition.set(application, backoff_until_ns=0)
    queueing.activate(application)
