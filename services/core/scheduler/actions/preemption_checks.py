"""When a refused ask, or gang, is checked for preemption.

Rule: an ask is checked when it is as old as its queue's ``preemption.delay``. If its queues have no
guarantee, its allocation log then records that and no victims are searched; without readers there
is no such check. With actions that move or reclaim, an ask is checked soon after its refusal.
Source: docs/rules/preemption.md. The policy chooses the victims (``policies``).
"""

from services.core.scheduler.model.preemptors import due_at, may_ever
from services.core.scheduler.model.rows import Application, Queue
from services.core.scheduler.model.settings import CONSOLIDATION, PREEMPT, SHRINK, YUNIKORN
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.statement import allocation_log
from services.core.scheduler.statement.allocation_log import note
from services.core.scheduler.statement.partition import Partition
from shared.model.units import seconds

CHECK_DELAY_NS = seconds(1)  # from a refusal to the check; the least time between two passes


def check_later(partition: Partition, application: Application, ask: Ask) -> None:
    """Schedule a refused ask's check for preemption, and note in its log why it waits."""
    leaf = application.queue
    is_owed = has_guarantee(leaf)
    _check_waiting_since(partition, leaf, ask.created_ns, is_owed=is_owed)
    if not preempts(partition):
        return
    if is_owed:
        partition.victims.start(partition.applications.values())
    if is_due(partition, leaf, ask):
        if not is_owed:
            note(partition, application, ask, allocation_log.GUARANTEES)
        return
    note(partition, application, ask, allocation_log.PRECONDITIONS)
    if may_ever(ask) and not is_owed and partition.has_readers:
        due_ns = due_at(ask, leaf.settings.preemption_delay_ns)
        partition.check_preemption_at(due_ns)


def is_due(partition: Partition, leaf: Queue, ask: Ask) -> bool:
    """Whether an ask may try to preempt now."""
    return may_ever(ask) and due_at(ask, leaf.settings.preemption_delay_ns) <= partition.now_ns


def check_gang_later(partition: Partition, application: Application) -> None:
    """Schedule the check of a gang that waits for headroom, if its queues have guarantees."""
    leaf = application.queue
    _check_waiting_since(partition, leaf, partition.now_ns, is_owed=has_guarantee(leaf))


def check_newcomers(partition: Partition, application: Application) -> None:
    """Check soon for new asks that join blocked ones: they may take from others, if those may not.

    Asks of a blocked bucket are not refused one by one. Under YuniKorn's preemption they have
    their own moments, unless gangs have pods that make way.
    """
    if (partition.settings.policy != YUNIKORN or partition.above_minimum) and any(
        group.bucket.refusal is not None for group in application.groups.values()
    ):
        partition.check_preemption_at(partition.now_ns + CHECK_DELAY_NS)


def preempts(partition: Partition) -> bool:
    """Whether asks preempt by YuniKorn's policy."""
    settings = partition.settings
    is_yunikorn = settings.policy == YUNIKORN
    return partition.preemption_enabled and is_yunikorn and PREEMPT in settings.actions


def _check_waiting_since(
    partition: Partition, leaf: Queue, since_ns: int, *, is_owed: bool
) -> None:
    settings = partition.settings
    if _searches_soon(partition):
        partition.check_preemption_at(partition.now_ns + CHECK_DELAY_NS)
    elif is_owed and PREEMPT in settings.actions:
        partition.check_preemption_at(since_ns + leaf.settings.preemption_delay_ns)


def _searches_soon(partition: Partition) -> bool:
    """Whether actions search for who waits now, and not at the ask's own moment."""
    settings = partition.settings
    return (
        settings.policy != YUNIKORN
        or CONSOLIDATION in settings.actions
        or (bool(partition.above_minimum) and SHRINK in settings.actions)
    )


def has_guarantee(leaf: Queue) -> bool:
    """Whether a leaf, or a queue above it, has a guarantee."""
    for queue in leaf.lineage():  # noqa: SIM110 - asked of every refusal
        if queue.guaranteed_resource:
            return True
    return False
