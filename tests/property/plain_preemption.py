"""Preemption's laws as they are read: every allocation, every node, a ledger for every thought.

What the scheduler does by its index of victims is compared with this, to the letter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.core.scheduler.actions.reservations import EXPIRY_NS
from services.core.scheduler.actions.victims import have_type_in_common
from services.core.scheduler.model.node_fit import could_hold
from services.core.scheduler.model.queue_ledger import HIGHEST_PRIORITY
from services.core.scheduler.model.queue_settings import DISABLED, FENCE
from services.core.scheduler.model.rows import Claim, Node, Queue
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.nodes.victim_kinds import rank_of
from services.core.scheduler.policies.preemption_choice import NoChoice
from services.core.scheduler.statement.partition import Partition
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation, TerminationType
from shared.model.resources import (
    Resource,
    ResourceView,
    add,
    add_into,
    fits_room,
    smaller_of,
    subtract_into,
)


@dataclass(slots=True)
class Ledger:
    """What queues would use after changes that are only thought of."""

    changes: dict[Queue, Resource] = field(default_factory=dict)

    def add(self, queue: Queue, amount: ResourceView) -> None:
        """Think of more use, from a queue to the root."""
        for level in queue.lineage():
            add_into(self.changes.setdefault(level, {}), amount)

    def remove(self, queue: Queue, amount: ResourceView) -> None:
        """Think of less use, from a queue to the root."""
        for level in queue.lineage():
            subtract_into(self.changes.setdefault(level, {}), amount)

    def used(self, queue: Queue) -> Resource:
        """Return what a queue would use: not what it gives back, but what is kept for its asks."""
        used = dict(queue.allocated)
        subtract_into(used, queue.preempting)
        add_into(used, queue.reserved)
        add_into(used, self.changes.get(queue, {}))
        return used

    def copy(self) -> "Ledger":
        """Return a ledger to think further with."""
        return Ledger({queue: dict(amount) for queue, amount in self.changes.items()})


def own_left(queue: Queue, ledger: Ledger) -> Resource:
    """Return what a queue itself has left of its guarantee; what it is over is negative."""
    used = ledger.used(queue)
    guaranteed = queue.guaranteed_resource or {}
    return {name: value - used.get(name, 0) for name, value in guaranteed.items()}


def left(queue: Queue | None, asking: Queue, ledger: Ledger) -> Resource | None:
    """Return what a queue has left of its guarantees and those above; None where there are none."""
    if queue is None:
        return None
    above = left(queue.parent, asking, ledger)
    own = own_left(queue, ledger)
    if not own and above is None:
        return None
    if queue is asking and own:
        return {**(above or {}), **own}
    if own and queue is not asking and queue in asking.lineage():
        asking_left = own_left(asking, ledger)
        if any(asking_left.values()):
            return None
    return smaller_of(own, above or {})


@dataclass(frozen=True, slots=True)
class PlainVictim:
    """An allocation that may be taken, and the leaf that it is in."""

    allocation: Allocation
    leaf: Queue

    @property
    def rank(self) -> int:
        """Return 0 for an ordinary one, 1 for one that opted out, 2 for an originator."""
        return rank_of(self.allocation, {})

    @property
    def order(self) -> tuple[int, int, str]:
        """Return what orders victims on a node: the first go first."""
        return (self.rank, -self.allocation.create_time_ns, self.allocation.allocation_key)


def eligible_victims(partition: Partition, leaf: Queue, ask: Ask) -> list[PlainVictim]:
    """Return every allocation that the laws allow an ask to take."""
    search = _Search(partition, leaf, ask)
    return list(search.below(*search.fence()))


@dataclass(frozen=True, slots=True)
class _Search:
    """One ask's search; priorities are always the ask's, as seen from a queue."""

    partition: Partition
    leaf: Queue
    ask: Ask

    def fence(self) -> tuple[Queue, int]:
        """Return the queue beyond which nothing is taken, and the priority seen from there."""
        queue, priority = self.leaf, self.ask.request.priority
        while queue.parent is not None:
            settings = queue.settings
            if settings.preemption_policy == FENCE:
                break
            if _would_be_over(queue, self.ask.shape.resource):
                break
            priority = _seen_from_above(queue, priority)
            queue = queue.parent
        return queue, priority

    def below(self, queue: Queue, priority: int) -> Iterator[PlainVictim]:
        """Yield the victims below a queue."""
        if queue.is_leaf:
            if queue is not self.leaf and self._may_give(queue):
                yield from self._in_leaf(queue, priority)
            return
        for child in queue.children.values():
            seen = self._seen_from(child, priority)
            if seen is not None:
                yield from self.below(child, seen)

    def _seen_from(self, child: Queue, priority: int) -> int | None:
        """Return the priority seen from a child; None where its fence keeps everything in it."""
        if child in self.leaf.lineage():
            priority = self.ask.request.priority
            for level in self.leaf.lineage():
                if level is child:
                    return priority
                priority = _seen_from_above(level, priority)
        offset = child.settings.priority_offset
        if not child.settings.priority_fence:
            return priority - offset
        return None if offset > priority else HIGHEST_PRIORITY

    def _may_give(self, leaf: Queue) -> bool:
        if leaf.settings.preemption_policy == DISABLED:
            return False
        remaining = left(leaf, self.leaf, Ledger())
        return remaining is None or any(value < 0 for value in remaining.values())

    def _in_leaf(self, leaf: Queue, priority: int) -> Iterator[PlainVictim]:
        wanted = self.ask.shape.resource
        nodes = self.partition.nodes.nodes
        for application in leaf.applications.values():
            for key, allocation in application.allocations.items():
                if (
                    key not in application.released
                    and allocation.priority <= priority
                    and not allocation.constraints.required_node
                    and allocation.node_id in nodes
                    and have_type_in_common(allocation.resource_per_alloc, wanted)
                ):
                    yield PlainVictim(allocation, leaf)


def _seen_from_above(queue: Queue, priority: int) -> int:
    offset = queue.settings.priority_offset
    return offset if queue.settings.priority_fence else priority + offset


def _would_be_over(queue: Queue, amount: ResourceView) -> bool:
    """Return whether a queue would be over its effective max with an ask; reaching it is not."""
    limit = queue.effective_max() or {}
    with_ask = add(queue.allocated, amount)
    subtract_into(with_ask, queue.preempting)
    return any(with_ask.get(name, 0) > limit[name] for name in amount if name in limit)


def plain_room_to_come(partition: Partition, node: Node) -> Resource:
    room: Resource = dict(node.available)
    for allocation in plain_going(partition, node):
        add_into(room, allocation.resource_per_alloc)
    for real in plain_taking_over(partition, node):
        subtract_into(room, real.resource_per_alloc)
    return room


def plain_going(partition: Partition, node: Node) -> list[Allocation]:
    found = []
    for key, allocation in node.allocations.items():
        owner = partition.applications.get(allocation.application_id)
        if (
            owner is not None
            and key in owner.released
            and key not in owner.covering
            and key not in owner.stuck  # nobody waits for its room any more
        ):
            found.append(allocation)
    return found


def plain_taking_over(partition: Partition, node: Node) -> list[Allocation]:
    return [
        swap.allocation
        for application in partition.applications.values()
        for key, swap in application.replacing.items()
        if not swap.is_placed
        and key not in application.stuck
        and application.allocations[key].node_id == node.node_id
    ]


def leaving(partition: Partition, queue: Queue, name: str) -> int:
    """Return what goes from a queue for other reasons than preemption, less what takes over."""
    total = 0
    for application in partition.applications.values():
        for key, why in application.released.items():
            if queue not in application.queue.lineage() or key in application.covering:
                continue
            if key in application.stuck:  # it stays in its queue's ledger until it goes
                continue
            if why is not TerminationType.PREEMPTED_BY_SCHEDULER:
                total += application.allocations[key].resource_per_alloc.get(name, 0)
                if key in application.replacing:
                    real = application.replacing[key].allocation
                    total -= real.resource_per_alloc.get(name, 0)
    return total


def guarantees_hold(leaf: Queue, ask: Ask, victims: "list[PlainVictim]") -> bool:
    """Return whether the ask's queue is owed what it asks for, if need be once victims went."""
    ledger = Ledger()
    ledger.add(leaf, ask.shape.resource)
    if is_owed(leaf, ask.shape.resource, ledger):
        return True
    for victim in victims:
        ledger.remove(victim.leaf, victim.allocation.resource_per_alloc)
        if is_owed(leaf, ask.shape.resource, ledger):
            return True
    return False


def is_owed(leaf: Queue, amount: ResourceView, ledger: Ledger) -> bool:
    """Return whether a leaf keeps within what it is guaranteed, for the types of an amount."""
    remaining = left(leaf, leaf, ledger)
    if remaining is None:
        return False
    asked = [name for name in remaining if amount.get(name, 0) > 0]
    return bool(asked) and all(remaining[name] >= 0 for name in asked)


def choose_victims(
    partition: Partition, leaf: Queue, ask: Ask, victims: list[PlainVictim]
) -> "tuple[Node, list[PlainVictim]] | NoChoice":
    """Return the node and victims with the least harm: ordinary ones, few, the newest.

    Without any, return why there are none.
    """
    by_node: dict[str, list[PlainVictim]] = {}
    ordered = sorted(victims, key=lambda victim: victim.order)
    for victim in ordered:
        by_node.setdefault(victim.allocation.node_id, []).append(victim)
    why_not = NoChoice.NO_NODE
    best: tuple[tuple[int, int, int, str], Node, list[PlainVictim]] | None = None
    for name, node in partition.nodes.nodes.items():
        if not _is_candidate(partition, node, ask):
            continue
        attempt = _Attempt(partition, leaf, ask, node, _going(partition, node))
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


def _makes_way(partition: Partition, held: Claim, ask: Ask) -> bool:
    """Return whether a reservation lets an ask preempt on its node (docs/rules/preemption.md).

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
    room = plain_room_to_come(partition, node)
    for held in node.reservations.values():
        if held.has_preempted:
            subtract_into(room, held.ask.shape.resource)
    return room


def _choose(
    attempt: "_Attempt", here: list[PlainVictim], everywhere: list[PlainVictim]
) -> list[PlainVictim] | NoChoice:
    """Return the smallest set that makes room on a node and in the queues, or why there is none.

    Those on other nodes are for the queues, and only for a node that has the room already.
    """
    if attempt.helps([]):
        return NoChoice.NO_HELP
    has_room = attempt.node_fits([])
    if has_room:
        here = sorted(
            everywhere, key=lambda victim: (victim.rank, victim not in here, victim.order)
        )
    for highest in sorted({victim.rank for victim in here}):
        among = [victim for victim in here if victim.rank <= highest]
        if attempt.could_help(among):
            for size in range(1, len(among) + 1):
                for found in _sets(attempt, among, size):
                    if attempt.helps(found):
                        return found
    sizes = range(1, len(here) + 1) if not has_room else [1]
    sets = (found for size in sizes for found in _sets(attempt, here, size))
    return NoChoice.SHORTFALL if any(map(attempt.node_fits, sets)) else NoChoice.NO_HELP


def _sets(
    attempt: "_Attempt", victims: list[PlainVictim], size: int, after: tuple[PlainVictim, ...] = ()
) -> Iterator[list[PlainVictim]]:
    """Yield the sets of a size that guarantees allow, those whose last victims come first first."""
    if not size:
        yield list(after)
        return
    for last in range(size - 1, len(victims)):
        more = (victims[last], *after)
        if attempt.may_go(more):
            yield from _sets(attempt, victims[:last], size - 1, more)


class _Attempt:
    """What sets of victims would make of the room on a node and in the queues for an ask."""

    def __init__(
        self, partition: Partition, leaf: Queue, ask: Ask, node: Node, room: Resource
    ) -> None:
        self._partition = partition
        self._leaf = leaf
        self._ask = ask
        self._node = node
        self._room = room

    def may_go(self, chosen: Sequence[PlainVictim]) -> bool:
        """Return whether no queue of a victim falls below what it is guaranteed of what it loses."""
        ledger = Ledger()
        for victim in chosen:
            ledger.remove(victim.leaf, victim.allocation.resource_per_alloc)
        return not any(
            own_left(level, ledger).get(name, 0) > 0
            for victim in chosen
            for level in victim.leaf.lineage()
            if not self._is_judged_without(level)
            for name, value in victim.allocation.resource_per_alloc.items()
            if value > 0
        )

    def _is_judged_without(self, level: Queue) -> bool:
        """Return whether a queue is above the one that asks, which has a guarantee of its own left.

        Those above such a queue are so as well.
        """
        is_above = level is not self._leaf and level in self._leaf.lineage()
        return is_above and any(own_left(self._leaf, Ledger()).values())

    def could_help(self, chosen: list[PlainVictim]) -> bool:
        """Return whether victims give enough, pods and guarantees aside."""
        return self._has_room(chosen) and self._queues_fit(chosen)

    def helps(self, chosen: list[PlainVictim]) -> bool:
        """Return whether victims make room on the node and in the queues."""
        return self.node_fits(chosen) and self._queues_fit(chosen)

    def node_fits(self, chosen: list[PlainVictim]) -> bool:
        """Return whether the node would have the room, and be open."""
        return self._has_room(chosen) and self._is_open(chosen)

    def _has_room(self, chosen: list[PlainVictim]) -> bool:
        room = dict(self._room)
        for victim in chosen:
            if victim.allocation.node_id == self._node.node_id:
                add_into(room, victim.allocation.resource_per_alloc)
        return fits_room(room, self._ask.shape.resource)

    def _is_open(self, chosen: list[PlainVictim]) -> bool:
        gone = [victim.allocation for victim in chosen]
        gone += plain_going(self._partition, self._node)
        coming = [
            allocation_of(held.ask.request, self._node.node_id)
            for held in self._node.reservations.values()
            if held.has_preempted
        ]
        coming += plain_taking_over(self._partition, self._node)
        return self._partition.nodes.filters.between_pods.holds(
            self._node, self._ask.shape, After(gone, coming)
        )

    def _queues_fit(self, chosen: list[PlainVictim]) -> bool:
        ledger = Ledger()
        for victim in chosen:
            ledger.remove(victim.leaf, victim.allocation.resource_per_alloc)
        ledger.add(self._leaf, self._ask.shape.resource)
        return all(
            ledger.used(queue).get(name, 0) - leaving(self._partition, queue, name) <= most
            for queue in self._leaf.lineage()
            for name, most in (queue.max_resource or {}).items()
            if self._ask.shape.resource.get(name, 0) > 0
        )
