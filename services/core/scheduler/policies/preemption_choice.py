"""Which of the eligible victims are taken: enough for one node and the queues, and no more.

Source: contract section 6.9; cases X-01 to X-10.
"""

from enum import IntEnum

from services.core.scheduler.actions.reservations import EXPIRY_NS
from services.core.scheduler.actions.victims import room_to_come
from services.core.scheduler.constraints.guarantees import Ledger, left
from services.core.scheduler.model.nodes import Node, could_hold
from services.core.scheduler.model.queues import Queue
from services.core.scheduler.model.reservations import Reservation
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.policies.preemption_victims import Victim
from services.core.scheduler.statement.partition import Partition
from shared.model.resources import Resource, add_into, fits_room, subtract_into


class NoChoice(IntEnum):
    """Why there are no victims; of what several nodes say the larger counts."""

    NO_NODE = 0  # no node could hold the ask, whoever went
    NO_HELP = 1  # the node would not have the room
    SHORTFALL = 2  # it would, but those that may go are less than the ask


def choose_victims(
    partition: Partition, leaf: Queue, ask: Ask, victims: list[Victim]
) -> "tuple[Node, list[Victim]] | NoChoice":
    """Return the node and victims with the least harm: ordinary ones, few, the newest.

    Without any, return why there are none.
    """
    by_node: dict[str, list[Victim]] = {}
    ordered = sorted(victims, key=lambda victim: victim.order)
    for victim in ordered:
        by_node.setdefault(victim.allocation.node_id, []).append(victim)
    why_not = NoChoice.NO_NODE
    best: tuple[tuple[int, int, int, str], Node, list[Victim]] | None = None
    for name, node in partition.nodes.nodes.items():
        if not _is_candidate(partition, node, ask):
            continue
        attempt = _Attempt(leaf, ask, node, _going(partition, node))
        chosen = _choose(attempt, by_node.get(name, []), ordered)
        if isinstance(chosen, NoChoice):
            why_not = max(why_not, chosen)
            continue
        oldest_ns = min(victim.allocation.create_time_ns for victim in chosen)
        harm = (max(victim.rank for victim in chosen), len(chosen), -oldest_ns, name)
        if best is None or harm < best[0]:
            best = (harm, node, chosen)
    return why_not if best is None else (best[1], best[2])


def _is_candidate(partition: Partition, node: Node, ask: Ask) -> bool:
    return could_hold(node, ask.shape) and all(
        _makes_way(partition, held, ask) for held in node.reservations.values()
    )


def _makes_way(partition: Partition, held: Reservation, ask: Ask) -> bool:
    """Return whether a reservation lets an ask preempt on its node (contract section 6.9).

    Its own does, and one of a lower priority that has stood for long. So does that of an ask that
    has preempted there: several may wait for the room of one node (docs/adr/0016).
    """
    if held.ask is ask or (held.has_preempted and not held.is_required):
        return True
    age_ns = partition.now_ns - held.since_ns
    return (
        held.is_ordinary
        and held.ask.request.priority < ask.request.priority
        and age_ns > EXPIRY_NS + partition.settings.reservation_delay_ns
    )


def _going(partition: Partition, node: Node) -> Resource:
    """Return what a node has, and what is being released there, less what is kept for others."""
    room = room_to_come(partition, node)
    for held in node.reservations.values():
        if held.has_preempted:
            subtract_into(room, held.ask.shape.resource)
    return room


def _choose(
    attempt: "_Attempt", here: list[Victim], everywhere: list[Victim]
) -> list[Victim] | NoChoice:
    """Return victims that make room on a node and in the queues and cover the ask, or why not.

    Those on other nodes are for the queues, and only for a node that has the room already.
    """
    has_room = attempt.node_fits()
    for victim in here:
        if attempt.is_enough():
            break
        attempt.take(victim)
    if not attempt.node_fits():
        return NoChoice.NO_HELP
    on_node = {victim.allocation.allocation_key for victim in here}
    for victim in everywhere if has_room else ():
        if attempt.is_enough():
            break
        if victim.allocation.allocation_key not in on_node:
            attempt.take(victim)
    if not attempt.chosen:
        return NoChoice.NO_HELP
    return attempt.trimmed() if attempt.is_enough() else NoChoice.SHORTFALL


class _Attempt:
    """Victims taken so far for an ask on a node, and what that would make of room and queues."""

    def __init__(self, leaf: Queue, ask: Ask, node: Node, room: Resource) -> None:
        self._leaf = leaf
        self._ask = ask
        self._node = node
        self._room = room
        self._ledger = Ledger()
        self.chosen: list[Victim] = []

    def take(self, victim: Victim) -> None:
        """Take a victim, unless its queue would fall below what it is guaranteed."""
        ledger = self._ledger.copy()
        ledger.remove(victim.leaf, victim.allocation.resource_per_alloc)
        remaining = left(victim.leaf, self._leaf, ledger) or {}
        taken = victim.allocation.resource_per_alloc
        if any(remaining.get(name, 0) > 0 for name, value in taken.items() if value > 0):
            return
        self._ledger = ledger
        self.chosen.append(victim)

    def is_enough(self, chosen: list[Victim] | None = None) -> bool:
        """Return whether victims make room on the node, in the queues, and cover the ask."""
        chosen = self.chosen if chosen is None else chosen
        return bool(self.node_fits(chosen) and self._covers(chosen) and self._queues_fit(chosen))

    def node_fits(self, chosen: list[Victim] | None = None) -> bool:
        """Return whether the node would have the room."""
        room = dict(self._room)
        for victim in self.chosen if chosen is None else chosen:
            if victim.allocation.node_id == self._node.node_id:
                add_into(room, victim.allocation.resource_per_alloc)
        return fits_room(room, self._ask.shape.resource)

    def _covers(self, chosen: list[Victim]) -> bool:
        total: Resource = {}
        for victim in chosen:
            add_into(total, victim.allocation.resource_per_alloc)
        return fits_room(total, self._ask.shape.resource)

    def _queues_fit(self, chosen: list[Victim]) -> bool:
        ledger = Ledger()
        for victim in chosen:
            ledger.remove(victim.leaf, victim.allocation.resource_per_alloc)
        ledger.add(self._leaf, self._ask.shape.resource)
        return all(
            ledger.used(queue).get(name, 0) <= most
            for queue in self._leaf.lineage()
            for name, most in (queue.max_resource or {}).items()
            if self._ask.shape.resource.get(name, 0) > 0
        )

    def trimmed(self) -> list[Victim]:
        """Return the victims without those that are not needed, the most precious tried first."""
        needed = list(self.chosen)
        for victim in reversed(self.chosen):
            fewer = [other for other in needed if other is not victim]
            if fewer and self.is_enough(fewer):
                needed = fewer
        return needed
