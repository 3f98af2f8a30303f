"""Parts that all preemption shares: comparing amounts, and evicting a victim."""

from collections.abc import Iterable

from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.settings import CONSOLIDATION, PREEMPT, RECLAIM, SHRINK, STALE
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.journal import PairHeld, PartitionChanged, Preempted
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import Decision
from shared.messages.interface import Allocation, TerminationType
from shared.model.reasons import EvictionCause
from shared.model.resources import ResourceView

CAUSE_OF = {  # for other actions the cause is the action's name
    CONSOLIDATION: EvictionCause.CONSOLIDATION,
    RECLAIM: EvictionCause.FAIR_SHARE,
    PREEMPT: EvictionCause.PRIORITY,
    STALE: EvictionCause.STALE,
    SHRINK: EvictionCause.SURPLUS,
}


def have_type_in_common(one: ResourceView, other: ResourceView) -> bool:
    """Whether two amounts have a resource type in common."""
    return any(value > 0 and other.get(name, 0) > 0 for name, value in one.items())


def evict(
    partition: Partition,
    owner: Application,
    key: str,
    winner: Application | None,
    reason: str,
    *,
    cause: str,
    event: str = "",
    ask: str = "",
) -> None:
    """Release a victim, record why, and detect applications that evict each other in turn.

    ``reason`` goes with the release, and is the event unless ``event`` is given. ``winner`` is the
    application that gets the capacity (None: none), ``ask`` its ask.
    """
    partition.release(owner, key, TerminationType.PREEMPTED_BY_SCHEDULER, reason)
    partition.victims.budgets.choose(key)
    partition.evicted_for[key] = (winner.id if winner is not None else "", ask)
    allocation = owner.allocations[key]
    partition.journal.record(Preempted(owner, allocation, event or reason, cause, winner, ask))
    if cause is EvictionCause.SURPLUS:
        partition.make_way(owner)
    if winner is None and cause is EvictionCause.STALE:
        partition.evictions.ended(owner.id, STALE)
    if winner is None or cause is EvictionCause.REQUIRED_NODE:
        return
    if partition.evictions.evicted(owner.id, winner.id, partition.now_ns):
        partition.journal.record(PairHeld(owner.id, winner.id))
        partition.journal.record(PartitionChanged())


def evict_for(
    partition: Partition,
    victims: Iterable[Allocation],
    winner: Application,
    ask: Ask,
    reason: str,
    *,
    cause: EvictionCause,
) -> None:
    """Release victims for an ask, in order; each event names the ask."""
    event = f"Preempted by {ask.key} from application {winner.id} in {winner.queue.path}"
    for victim in victims:
        owner = partition.applications[victim.application_id]
        key = victim.allocation_key
        evict(partition, owner, key, winner, reason, cause=cause, event=event, ask=ask.key)


def carry_out(partition: Partition, decisions: list[Decision]) -> None:
    """Carry out a statement's decisions: release the victims, then claim their capacity."""
    for decision in decisions:
        owner = partition.applications[decision.application]
        if decision.evicts and decision.key in owner.allocations:  # otherwise only nominated
            winner = partition.applications.get(decision.by)
            cause = CAUSE_OF.get(decision.action, decision.action)
            evict(partition, owner, decision.key, winner, decision.reason, cause=cause)
            if decision.node:
                partition.move(owner, decision.key, partition.nodes.nodes[decision.node])
    for decision in decisions:
        if decision.node and not (decision.evicts or decision.is_now):
            _nominate(partition, decision)


def _nominate(partition: Partition, decision: Decision) -> None:
    """Claim capacity for an ask; a gang is thereby admitted.

    A gang whose members must all have a place waits until they have.
    """
    owner = partition.applications[decision.application]
    ask = owner.group_of[decision.key].asks[decision.key]
    partition.claim_freed_room(owner, ask, partition.nodes.nodes[decision.node]).retry()
    if owner.is_gang and not owner.gang_admitted and not owner.needs_places:
        partition.admit(owner)
        if owner.waits_at is not None or owner.waiting_among is not None:
            queueing.activate(owner)
