"""Chooses victims among the eligible ones: enough for one node and the queues, and no more.

Rule 1: a set of victims helps on a node if, after their end, the ask fits there and in the queues
        on its path. Capacity that is free or being released already is not counted. No victim's
        queue falls below its guarantee.
Rule 2: of the sets that help on a node the smallest is used (``nodes/victim_sets.py``): ordinary
        victims, few, the newest. Victims on other nodes help only the queues, for a node with
        enough capacity already; its own come first.
Rule 3: of all nodes the one with the least harm is used, in the same order. Nodes are tried by
        their least possible harm, until none could do less.
Source: docs/rules/preemption.md; cases X-01 to X-10. Pod affinities are checked against the pods
that would remain: without victims and pods being released, with asks that have preempted.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from heapq import merge
from itertools import chain

import numpy as np

from services.core.scheduler.actions.on_node import OnNode, Opening, budget_costs
from services.core.scheduler.actions.reservations import EXPIRY_NS
from services.core.scheduler.actions.victim_search import Harm, search_places
from services.core.scheduler.constraints.guarantees import spare, used
from services.core.scheduler.model.rows import Application, Claim, Node, Queue
from services.core.scheduler.model.settings import PREEMPT
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.columns import Mask
from services.core.scheduler.nodes.victim_bounds import FAR, NONE, Amounts
from services.core.scheduler.nodes.victim_kinds import Kind, Victim
from services.core.scheduler.nodes.victim_sets import (
    Candidate,
    Costs,
    Limit,
    Needs,
    Part,
    Steps,
    smallest_set,
)
from services.core.scheduler.policies.preemption_victims import Eligible
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import Statement
from services.core.scheduler.statement.tentative import PREEMPTING
from shared.model.resources import Resource, ResourceView, multiply

Rows = Amounts
QueueNeed = tuple[Queue, str, int]  # an amount of a type that a queue lacks, or may still use
Place = tuple[Node, int]  # with the least number of its own victims
Found = tuple[Node, list[Victim]]


class NoChoice(IntEnum):
    """Why there are no victims; over several nodes the largest value counts."""

    NO_NODE = 0  # no node could fit the ask with any victims
    NO_HELP = 1  # the node would still lack capacity
    SHORTFALL = 2  # the node would fit, but not the queues


def choose_victims(
    trial: Statement, leaf: Queue, ask: Ask, victims: Eligible, rows: Mask | None = None
) -> "Found | NoChoice":
    """Return the node and victims with the least harm, or why there are none.

    The ask may use ``rows`` only, if given. The statement's operations count; it is unchanged.
    """
    return _Choice(trial, leaf, ask, victims, rows).best()


def _makes_way(partition: Partition, held: Claim, ask: Ask) -> bool:
    """Whether a reservation allows an ask to preempt on its node (docs/rules/preemption.md).

    The ask's own does, an old one of lower priority, and one of an ask that has preempted there:
    several may wait for capacity of one node (docs/adr/0016).
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
    """One ask's choice between nodes, tried one by one on the ledgers of the queues.

    ``wanted`` are its positive amounts; ``queue_needs`` what victims must free in a queue.
    """

    def __init__(
        self, trial: Statement, leaf: Queue, ask: Ask, victims: Eligible, rows: Mask | None
    ) -> None:
        self.partition = partition = trial.partition
        self._rows = rows
        self.leaf = leaf
        self.ask = ask
        self.trial = trial
        self.opening = Opening(partition, ask)
        wanted = self.opening.wanted
        self._victims = victims
        self.kinds = dict.fromkeys(victims.takeable)
        self._need: Amounts = np.array([*wanted.values()], dtype=np.int64)[:, None]
        self._bounds = partition.victims.bounds(tuple(wanted), victims.takeable)
        self._limits: list[QueueNeed] = []
        self.queue_needs: list[QueueNeed] = []
        for queue in leaf.lineage():
            if queue.max_resource:
                self._limit(queue, queue.max_resource, wanted)
        budgets = partition.victims.budgets
        self._is_less_than_known = bool(victims.spared or budgets)
        self.steps = Steps()
        self.limits: dict[Limit, int] = {}  # what guarantees and budgets allow to be evicted
        self._costs: dict[Kind, Costs] = {}
        self._going = budgets.releases(trial.evicted() if budgets else ())
        self._all: list[Victim] = []
        self._rest: Iterator[Victim] | None = None
        self._why_not = NoChoice.NO_NODE
        self._tried_without_own = False
        self._preemptor: Application | None = None  # set if plugins filter victims
        if partition.hooks is not None and partition.hooks.judge_victims:
            self._preemptor = partition.applications[ask.request.application_id]

    def _limit(self, queue: Queue, most: ResourceView, wanted: Resource) -> None:
        """Note how much a queue may have beside the ask, and how much of that is too much now."""
        leaving = self.trial.leaving.get(queue, {})
        for name, value in wanted.items():
            if name in most:
                limit = most[name] - value + leaving.get(name, 0)
                self._limits.append((queue, name, limit))
                has = used(queue, name)
                if has > limit:
                    self.queue_needs.append((queue, name, has - limit))

    # --- which node -----------------------------------------------------------------------------

    def best(self) -> Found | NoChoice:
        """Return the node and victims with the least harm, or why there are none."""
        rows = self.partition.nodes.rows
        holders = self.partition.nodes.filters.could_hold.mask(self.ask.shape)
        if self._rows is not None:
            holders = holders & self._rows
        could = holders & (self._bounds.reach >= self._need).all(axis=0)
        found = search_places(self._places(np.flatnonzero(could)), self._try)
        if found is not None:
            return found
        if self._why_not is NoChoice.NO_NODE and any(
            self._is_candidate(rows[row]) for row in np.flatnonzero(holders & ~could).tolist()
        ):
            return NoChoice.NO_HELP
        return self._why_not

    def _places(self, rows: Rows) -> Iterator[tuple[Harm, Place]]:
        """Yield nodes by their least possible harm, while any may help."""
        nodes = self.partition.nodes.rows
        for (rank, count, newest), row in self._in_order(rows):
            node = nodes[row]
            yield (rank, count, newest, node.node_id), (node, count)
            if self._why_not is NoChoice.SHORTFALL and self._is_hopeless:
                return

    def _is_candidate(self, node: Node) -> bool:
        reservations = node.reservations.values()
        return all(_makes_way(self.partition, held, self.ask) for held in reservations)

    def _in_order(self, rows: Rows) -> Iterator[tuple[tuple[int, int, int], int]]:
        """Yield nodes by their least possible harm.

        The first is found before the others are sorted, because it usually is the result.
        """
        if not rows.size:
            return
        least = [values[rows] for values in self._least_harm()]
        keys = [*least, self.partition.nodes.order.ranks.of(rows)]
        among = np.arange(rows.size)
        for values in keys:
            among = among[values[among] == values[among].min()]
        first = int(among[0])
        yield (int(least[0][first]), int(least[1][first]), int(least[2][first])), int(rows[first])
        order = np.lexsort(keys[::-1])
        harms = zip(*(values[order].tolist() for values in least), strict=True)
        yield from zip(harms, rows[order].tolist(), strict=True)

    def _least_harm(self) -> tuple[Amounts, Amounts, Amounts]:
        """Return a lower bound of each node's harm.

        If a node has enough capacity, victims may be anywhere: unless its own first one is
        sufficient alone, the bound is the harm of the first victim of all.
        """
        bounds = self._bounds
        rank, newest, head = bounds.first
        need, room = np.minimum(self._need, FAR), np.maximum(bounds.room, -FAR)
        lacking = np.maximum(need - room, 0)
        count = -(-lacking // np.maximum(bounds.largest, 1))
        count = count.max(axis=0, initial=1)
        has_room = (bounds.room >= self._need).all(axis=0)
        first = next(self._in_all(), None) if has_room.any() else None
        if first is None:
            return rank, count, newest
        is_own = has_room & (rank == first.rank)
        is_own &= np.array([self._is_all_it_takes(kind) for kind in self._victims.takeable])[head]
        elsewhere = has_room & ~is_own
        count = np.where(has_room, 1, count)
        return (
            np.where(elsewhere, first.rank, rank),
            count,
            np.where(elsewhere, first.newest, newest),
        )

    def _is_all_it_takes(self, kind: Kind) -> bool:
        """Whether one victim of a kind is enough, on a node with enough capacity."""
        if self.opening.has_to_be_open or self._is_less_than_known or self._preemptor is not None:
            return False
        start = self.trial.checkpoint()
        self.trial.count(kind.leaf.lineage(), PREEMPTING, kind.amount)
        is_enough = self.queues_fit()
        self.trial.rollback(start)
        return is_enough

    @cached_property
    def _is_hopeless(self) -> bool:
        """Whether the ask would exceed the queues even without all victims."""
        start = self.trial.checkpoint()
        for kind in self.kinds:
            amount = multiply(kind.amount, kind.count)
            self.trial.count(kind.leaf.lineage(), PREEMPTING, amount)
        is_hopeless = not self.queues_fit()
        self.trial.rollback(start)
        return is_hopeless

    def _try(self, place: Place, least: Harm | None) -> tuple[Harm, Found] | None:
        """Try a node that needs at least ``count`` of its own victims, or has enough capacity."""
        node, count = place
        if not self._is_candidate(node):
            return None
        own = self.among(self.partition.victims.on(node).order)
        if least is not None and not self._may_be_less(node, own, count, least):
            return None
        if not own and self._tried_without_own:
            return None
        attempt = _Attempt(self, node)
        chosen = attempt.victims(own)
        if not own and attempt.has_room and not self.opening.asks_about_pods:
            self._tried_without_own = True  # other such nodes would get the same victims
        if isinstance(chosen, NoChoice):
            self._why_not = max(self._why_not, chosen)
            return None
        oldest = max(victim.newest for victim in chosen)
        harm = (max(victim.rank for victim in chosen), len(chosen), oldest, node.node_id)
        return harm, (node, chosen)

    def _may_be_less(self, node: Node, own: list[Victim], count: int, harm: Harm) -> bool:
        """Whether a node's victims may do less harm than ``harm``."""
        if (self._bounds.room[:, node.row] >= self._need[:, 0]).all():
            return True
        if len(own) < count:
            return False
        last = own[count - 1]  # a set of this size has this one, or a later one
        return (last.rank, count, last.newest, node.node_id) < harm

    # --- used by an attempt ---------------------------------------------------------------------

    def among(self, victims: list[Victim]) -> list[Victim]:
        """Return those of a node's victims that may be evicted."""
        kinds, spared = self.kinds, self._victims.spared
        found = [
            victim
            for victim in victims
            if victim.kind in kinds and victim.allocation.application_id not in spared
        ]
        if self._preemptor is None:
            return found
        may_take, preemptor = self.partition.may_take, self._preemptor
        return [victim for victim in found if may_take(PREEMPT, victim.allocation, preemptor)]

    def elsewhere(self, node: Node) -> Iterator[Victim]:
        """Yield the victims on other nodes, in order."""
        return (victim for victim in self._in_all() if victim.allocation.node_id != node.node_id)

    def _in_all(self) -> Iterator[Victim]:
        """Yield the victims of all nodes, in order; the merged part is cached."""
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

    def costs_of(self, victim: Victim) -> Costs:
        """Return how much of which limits a victim uses."""
        kind = victim.kind
        found = self._costs.get(kind)
        if found is None:
            found = self._costs[kind] = self._costs_of_guarantees(kind)
        return (*found, *budget_costs(self._going, victim, self.limits))

    def _costs_of_guarantees(self, kind: Kind) -> Costs:
        """Return how much of the guarantees' limits one victim of a kind uses."""
        costs: list[tuple[Limit, int]] = []
        for key, most in spare(kind.leaf, self.leaf).items():
            value = kind.amount.get(key[1], 0)
            if value > 0:
                self.limits[key] = most
                costs.append((key, value))
        return tuple(costs)

    def may_take(self, victim: Victim) -> bool:
        """Whether a victim may be evicted alone."""
        costs = dict(self.costs_of(victim))  # this may add to the limits
        return Needs((), self.limits).are_within_limits(costs)

    def queues_fit(self) -> bool:
        """Whether the ask fits the queues, with the trial's operations."""
        return all(used(queue, name) <= most for queue, name, most in self._limits)


class _Attempt:
    """The search for victims on one node."""

    def __init__(self, choice: _Choice, node: Node) -> None:
        self._choice = choice
        self._node = node
        self._here = OnNode(choice.opening, node)
        self._node_needs = self._here.lacking
        self._queue_needs: Sequence[QueueNeed] = ()
        self._gives: dict[tuple[Kind, bool], Part] = {}
        self.has_room = not self._node_needs and self._here.is_open([])

    def victims(self, own: list[Victim]) -> list[Victim] | NoChoice:
        """Return the smallest set of victims that lets the ask in, or why there is none."""
        choice = self._choice
        if self.has_room and not choice.queue_needs:
            return NoChoice.NO_HELP  # no victims are needed
        candidates: Iterator[Victim] = iter(own)
        if self.has_room:
            candidates = merge(own, choice.elsewhere(self._node), key=self._order)
        needs = self._needs(own, choice.queue_needs)
        found = smallest_set(map(self._candidate, candidates), needs, choice.steps)
        if found is not None:
            return found
        return NoChoice.SHORTFALL if self._would_have_room(own) else NoChoice.NO_HELP

    def _would_have_room(self, own: list[Victim]) -> bool:
        """Whether victims would open the node, the queues ignored."""
        choice = self._choice
        if self.has_room:
            victims = chain(own, choice.elsewhere(self._node))
            return any(choice.may_take(victim) for victim in victims)
        found = smallest_set(map(self._candidate, own), self._needs(own, ()), choice.steps)
        return found is not None

    def _order(self, victim: Victim) -> tuple[int, bool, int, str]:
        """Return the sort key of victims of all nodes: of one rank the node's own come first."""
        return victim.rank, not self._is_own(victim), victim.newest, victim.key

    def _is_own(self, victim: Victim) -> bool:
        return victim.allocation.node_id == self._node.node_id

    def _needs(self, own: list[Victim], of_queues: Sequence[QueueNeed]) -> Needs:
        """Return what victims must free on the node and in queues."""
        choice = self._choice
        self._queue_needs = of_queues
        self._gives.clear()
        needs = (*(need for _, need in self._node_needs), *(need for *_, need in of_queues))
        kinds = choice.kinds if self.has_room else {victim.kind: None for victim in own}
        parts = [self._part(kind, is_own=not self.has_room) for kind in kinds]
        largest = tuple(map(max, zip(*parts, strict=True))) if parts else ()
        return Needs(needs, choice.limits, self._here.accepts, largest)

    def _part(self, kind: Kind, *, is_own: bool) -> Part:
        """Return what one victim of a kind frees of the needs."""
        part = self._gives.get((kind, is_own))
        if part is None:
            leaf, amount = kind.leaf, kind.amount
            above = leaf.lineage()
            part = self._gives[kind, is_own] = (
                *(amount.get(name, 0) if is_own else 0 for name, _ in self._node_needs),
                *(
                    amount.get(name, 0) if queue in above else 0
                    for queue, name, _ in self._queue_needs
                ),
            )
        return part

    def _candidate(self, victim: Victim) -> Candidate:
        choice = self._choice
        gives = self._part(victim.kind, is_own=self._is_own(victim))
        return Candidate(victim, gives, choice.costs_of(victim), self._here.alike(victim))
