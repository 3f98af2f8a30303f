"""Which of the eligible victims are taken: enough for one node and the queues, and no more.

Rule 1: a node is tried by letting victims go in order, its own first, until the node has the room
        and is open to the ask, the queues on its path have the room, and the victims have what it
        asks for. Then those go on that are not needed, the most precious first.
Rule 2: victims on other nodes are for the queues, and only for a node that has the room already.
Rule 3: of all nodes the one with the least harm is taken: ordinary victims, few, the newest. Nodes
        are tried in the order of the least harm that each could do, until none could do less.
Source: contract section 6.9; cases X-01 to X-10. Pods that others are kept away by, or from, are
those that would be there: neither victims nor what is being released, but whoever has preempted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from heapq import merge

import numpy as np

from services.core.scheduler.actions.reservations import EXPIRY_NS
from services.core.scheduler.actions.victims import (
    has_devices_without,
    is_open_without,
    room_to_come,
)
from services.core.scheduler.constraints.guarantees import falls_short, used
from services.core.scheduler.model.rows import Application, Node, Queue, Reservation
from services.core.scheduler.model.settings import PREEMPT
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.victim_bounds import FAR, NONE, Amounts
from services.core.scheduler.nodes.victim_kinds import Kind, Victim
from services.core.scheduler.policies.preemption_victims import Eligible
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.queue_trial import QueueTrial
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation
from shared.model.resources import (
    Resource,
    ResourceView,
    add,
    add_into,
    fits_room,
    multiply,
    subtract_into,
)

Rows = Amounts
Harm = tuple[int, int, int, str]  # the highest rank, how many, the oldest's creation, the node


@dataclass(slots=True)
class Supposed:
    """What is taken for granted in a choice: victims that go already, asks that come."""

    gone: dict[str, Victim] = field(default_factory=dict)
    room: dict[Node, Resource] = field(default_factory=dict)  # what that makes of a node's room
    coming: dict[Node, list[Allocation]] = field(default_factory=dict)

    def copy(self) -> "Supposed":
        """Return the same, to suppose more."""
        room = {node: dict(amount) for node, amount in self.room.items()}
        coming = {node: list(pods) for node, pods in self.coming.items()}
        return Supposed(dict(self.gone), room, coming)

    def go(self, victim: Victim, node: Node) -> None:
        """Suppose that a victim goes."""
        self.gone[victim.key] = victim
        add_into(self.room.setdefault(node, {}), victim.kind.amount)

    def come(self, ask: Ask, node: Node) -> None:
        """Suppose that an ask comes to a node."""
        subtract_into(self.room.setdefault(node, {}), ask.shape.resource)
        self.coming.setdefault(node, []).append(allocation_of(ask.request, node.node_id))

    def fits(self, partition: Partition, node: Node, ask: Ask) -> bool:
        """Return whether a node would have the room for one more ask, and be open to it."""
        room = add(room_after(partition, node), self.room.get(node, {}))
        return (
            fits_room(room, ask.shape.resource)
            and self.has_devices(partition, node, ask, ())
            and self.is_open(partition, node, ask, ())
        )

    def has_devices(
        self, partition: Partition, node: Node, ask: Ask, victims: Sequence[Victim]
    ) -> bool:
        """Return whether a node's devices would hold an ask once victims are gone as well."""
        gone = [victim.allocation for victim in (*self.gone.values(), *victims)]
        coming = self.coming.get(node, ())
        return has_devices_without(partition, node, ask.shape, gone, coming)

    def is_open(
        self, partition: Partition, node: Node, ask: Ask, victims: Sequence[Victim]
    ) -> bool:
        """Return whether pods would leave a node open to an ask once victims are gone as well."""
        gone = [victim.allocation for victim in (*self.gone.values(), *victims)]
        return is_open_without(partition, node, ask.shape, gone, self.coming.get(node, ()))


NOTHING = Supposed()


class NoChoice(IntEnum):
    """Why there are no victims; of what several nodes say the larger counts."""

    NO_NODE = 0  # no node could hold the ask, whoever went
    NO_HELP = 1  # the node would not have the room
    SHORTFALL = 2  # it would, but those that may go are less than the ask


def choose_victims(
    partition: Partition, leaf: Queue, ask: Ask, victims: Eligible, supposed: Supposed = NOTHING
) -> "tuple[Node, list[Victim]] | NoChoice":
    """Return the node and victims with the least harm: ordinary ones, few, the newest.

    Without any, return why there are none.
    """
    choice = _Choice(partition, leaf, ask, victims, supposed)
    with choice.trial:
        return choice.best()


def room_after(partition: Partition, node: Node) -> Resource:
    """Return what a node has, and what is being released there, less what is kept for others."""
    room = room_to_come(partition, node)
    for held in node.reservations.values():
        if held.has_preempted:
            subtract_into(room, held.ask.shape.resource)
    return room


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


class _Choice:
    """One ask's choice among the nodes, tried one by one on the ledgers of the queues.

    ``wanted`` is what it asks for, more than nothing of each type; ``limits`` what a queue may use
    of a type before the ask comes.
    """

    def __init__(
        self,
        partition: Partition,
        leaf: Queue,
        ask: Ask,
        victims: Eligible,
        supposed: Supposed,
    ) -> None:
        self.partition = partition
        self.leaf = leaf
        self.ask = ask
        self.supposed = supposed
        self.trial = QueueTrial()
        self.wanted = {name: value for name, value in ask.shape.resource.items() if value > 0}
        self.asks_about_pods = partition.nodes.pods.concern(ask.shape) or bool(
            ask.shape.labels and (partition.reserved_nodes.after_preemption or supposed.coming)
        )
        self._victims = victims
        self._kinds = frozenset(victims.takeable)
        self._need: Amounts = np.array([*self.wanted.values()], dtype=np.int64)[:, None]
        self._bounds = partition.victims.bounds(tuple(self.wanted), victims.takeable)
        self._limits = [
            (queue, name, most - self.wanted[name])
            for queue in leaf.lineage()
            for name, most in (queue.max_resource or {}).items()
            if name in self.wanted
        ]
        budgets = partition.victims.budgets
        self._is_less_than_known = bool(victims.spared or supposed.gone or budgets)
        self._all: list[Victim] = []
        self._rest: Iterator[Victim] | None = None
        self._found: tuple[Harm, Node, list[Victim]] | None = None
        self._why_not = NoChoice.NO_NODE
        self._tried_without_own = False
        self._preemptor: Application | None = None  # where plugins are asked who may go for it
        if partition.hooks is not None and partition.hooks.judge_victims:
            self._preemptor = partition.applications[ask.request.application_id]

    # --- which node -----------------------------------------------------------------------------

    def best(self) -> tuple[Node, list[Victim]] | NoChoice:
        """Return the node and victims with the least harm, or why there are none."""
        rows = self.partition.nodes.rows
        holders = self.partition.nodes.holders(self.ask.shape)
        could = holders & (self._bounds.reach >= self._need).all(axis=0)
        for least, row in self._in_order(np.flatnonzero(could)):
            node = rows[row]
            if self._found is not None and (*least, node.node_id) >= self._found[0]:
                break
            if self._is_candidate(node):
                self._try(node, least[1])
            if self._why_not is NoChoice.SHORTFALL and self._is_hopeless:
                break
        if self._found is not None:
            return self._found[1], self._found[2]
        if self._why_not is NoChoice.NO_NODE and any(
            self._is_candidate(rows[row]) for row in np.flatnonzero(holders & ~could).tolist()
        ):
            return NoChoice.NO_HELP
        return self._why_not

    def _is_candidate(self, node: Node) -> bool:
        reservations = node.reservations.values()
        return all(_makes_way(self.partition, held, self.ask) for held in reservations)

    def _in_order(self, rows: Rows) -> Iterator[tuple[tuple[int, int, int], int]]:
        """Yield nodes with the least harm that each could do, the least first.

        Most often the first is the one: it is found before the others are put in order.
        """
        if not rows.size:
            return
        least = [values[rows] for values in self._least_harm()]
        keys = [*least, self.partition.nodes.places_of_ids(rows)]
        among = np.arange(rows.size)
        for values in keys:
            among = among[values[among] == values[among].min()]
        first = int(among[0])
        yield (int(least[0][first]), int(least[1][first]), int(least[2][first])), int(rows[first])
        order = np.lexsort(keys[::-1])
        harms = zip(*(values[order].tolist() for values in least), strict=True)
        yield from zip(harms, rows[order].tolist(), strict=True)

    def _least_harm(self) -> tuple[Amounts, Amounts, Amounts]:
        """Return for every node a harm that is not more than what taking its victims would do.

        Where the node has the room already, victims may be anywhere: unless its own first one is
        all that is taken, the harm may be as little as that of the first of all.
        """
        bounds = self._bounds
        rank, newest, head = bounds.first
        need, room = np.minimum(self._need, FAR), np.maximum(bounds.room, -FAR)
        lacking = np.maximum(need, need - room)
        count = -(-lacking // np.maximum(bounds.largest, 1))
        count = count.max(axis=0, initial=1)
        has_room = (bounds.room >= self._need).all(axis=0)
        first = next(self._in_all(), None) if has_room.any() else None
        if first is None:
            return rank, count, newest
        is_own = has_room & (rank != NONE)
        is_own &= np.array([self._is_all_it_takes(kind) for kind in self._victims.takeable])[head]
        elsewhere = has_room & ~is_own
        count = np.where(has_room, 1, count)
        return (
            np.where(elsewhere, first.rank, rank),
            count,
            np.where(elsewhere, first.newest, newest),
        )

    def _is_all_it_takes(self, kind: Kind) -> bool:
        """Return whether one of a kind is enough, on a node that has the room."""
        if (
            self.asks_about_pods
            or self._is_less_than_known
            or self._preemptor is not None
            or not fits_room(kind.amount, self.wanted)
        ):
            return False
        start = self.trial.checkpoint()
        self.trial.evict(kind.leaf, kind.amount)
        is_enough = self.queues_fit()
        self.trial.rollback(start)
        return is_enough

    @cached_property
    def _is_hopeless(self) -> bool:
        """Return whether the queues would not have the room if all victims were gone."""
        start = self.trial.checkpoint()
        for kind in self._kinds:
            self.trial.evict(kind.leaf, multiply(kind.amount, kind.count))
        is_hopeless = not self.queues_fit()
        self.trial.rollback(start)
        return is_hopeless

    def _try(self, node: Node, count: int) -> None:
        """Try a node that cannot do with less than so many victims of its own, or has the room."""
        own = self.among(self.partition.victims.on(node).order)
        if self._found is not None and not self._may_be_less(node, own, count):
            return
        if not own and self._tried_without_own:
            return
        start = self.trial.checkpoint()
        attempt = _Attempt(self, node)
        chosen = attempt.victims(own)
        self.trial.rollback(start)
        if not own and attempt.has_room and not self.asks_about_pods:
            self._tried_without_own = True  # others like it would take the same, from elsewhere
        if isinstance(chosen, NoChoice):
            self._why_not = max(self._why_not, chosen)
            return
        oldest = max(victim.newest for victim in chosen)
        harm = (max(victim.rank for victim in chosen), len(chosen), oldest, node.node_id)
        if self._found is None or harm < self._found[0]:
            self._found = (harm, node, chosen)

    def _may_be_less(self, node: Node, own: list[Victim], count: int) -> bool:
        """Return whether a node's victims may do less harm than was found."""
        assert self._found is not None
        if (self._bounds.room[:, node.row] >= self._need[:, 0]).all():
            return True
        if len(own) < count:
            return False
        last = own[count - 1]  # so many take this one, or one that goes after it
        return (last.rank, count, last.newest, node.node_id) < self._found[0]

    # --- what an attempt asks -------------------------------------------------------------------

    def among(self, victims: list[Victim]) -> list[Victim]:
        """Return those of a node's victims that may be taken."""
        kinds, spared, gone = self._kinds, self._victims.spared, self.supposed.gone
        found = [
            victim
            for victim in victims
            if victim.kind in kinds
            and victim.allocation.application_id not in spared
            and victim.key not in gone
        ]
        if self._preemptor is None:
            return found
        may_take, preemptor = self.partition.may_take, self._preemptor
        return [victim for victim in found if may_take(PREEMPT, victim.allocation, preemptor)]

    def elsewhere(self, node: Node) -> Iterator[Victim]:
        """Yield the victims on other nodes, in order."""
        return (victim for victim in self._in_all() if victim.allocation.node_id != node.node_id)

    def _in_all(self) -> Iterator[Victim]:
        """Yield the victims of all nodes, in order; what was read once is not merged again."""
        if self._rest is None:
            rows, on = self.partition.nodes.rows, self.partition.victims.on
            with_own = np.flatnonzero(self._bounds.first[0] != NONE).tolist()
            self._rest = merge(*(iter(self.among(on(rows[row]).order)) for row in with_own))
        at = 0
        while True:
            if at == len(self._all):
                following = next(self._rest, None)
                if following is None:
                    return
                self._all.append(following)
            yield self._all[at]
            at += 1

    def queues_fit(self) -> bool:
        """Return whether the queues have the room, as the trial has left them."""
        return all(used(queue, name) <= most for queue, name, most in self._limits)


class _Attempt:
    """Victims that are let go for an ask on a node."""

    def __init__(self, choice: _Choice, node: Node) -> None:
        self._choice = choice
        self._node = node
        self._room = add(room_after(choice.partition, node), choice.supposed.room.get(node, {}))
        self._given: Resource = {}
        self._taken: list[Victim] = []
        self._going = choice.partition.victims.budgets.going(choice.supposed.gone)
        self.has_room = self._node_fits()

    def victims(self, own: list[Victim]) -> list[Victim] | NoChoice:
        """Return victims that let the ask in, and no more; or why there are none."""
        self._take_until_enough(own)
        if not self._node_fits():
            return NoChoice.NO_HELP
        if self.has_room:
            self._take_until_enough(self._choice.elsewhere(self._node))
        if not self._taken:
            return NoChoice.NO_HELP
        if not self._is_enough():
            return NoChoice.SHORTFALL
        self._trim()
        return self._taken

    def _take_until_enough(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            if self._is_enough():
                return
            self._take(victim)

    def _take(self, victim: Victim) -> None:
        """Take a victim, unless its queue would fall below what it is guaranteed, or its budget."""
        if not self._going.may_go(victim.key):
            return
        trial, kind = self._choice.trial, victim.kind
        before = trial.checkpoint()
        trial.evict(kind.leaf, kind.amount)
        if falls_short(kind.leaf, self._choice.leaf, kind.amount):
            trial.rollback(before)
            return
        self._taken.append(victim)
        self._going.go(victim.key)
        self._count(victim, add_into)

    def _count(self, victim: Victim, count: Callable[[Resource, ResourceView], None]) -> None:
        count(self._given, victim.kind.amount)
        if victim.allocation.node_id == self._node.node_id:
            count(self._room, victim.kind.amount)

    def _trim(self) -> None:
        """Leave out the victims that are not needed, the most precious tried first."""
        trial = self._choice.trial
        for victim in reversed(self._taken):
            if len(self._taken) == 1:
                return
            before, taken = trial.checkpoint(), self._taken
            trial.spare(victim.kind.leaf, victim.kind.amount)
            self._going.stay(victim.key)
            self._count(victim, subtract_into)
            self._taken = [other for other in taken if other is not victim]
            if not self._is_enough():
                trial.rollback(before)
                self._going.go(victim.key)
                self._count(victim, add_into)
                self._taken = taken

    def _is_enough(self) -> bool:
        """Return whether the victims cover the ask, and make room on the node and in the queues."""
        return (
            fits_room(self._given, self._choice.wanted)
            and self._node_fits()
            and self._choice.queues_fit()
        )

    def _node_fits(self) -> bool:
        """Return whether the node would have the room, and be open to the ask."""
        if not fits_room(self._room, self._choice.wanted):
            return False
        choice = self._choice
        whom = (choice.partition, self._node, choice.ask, self._taken)
        return choice.supposed.has_devices(*whom) and (
            not choice.asks_about_pods or choice.supposed.is_open(*whom)
        )
