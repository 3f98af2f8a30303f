"""Whether a waiting gang would be whole if its members preempted: tried before it is admitted.

Rule 1: a gang whose guarantees cover all that it lacks may start over the headroom, and its members
        preempt one by one. Nothing is evicted for a part of a gang: every member must have a place,
        on free capacity or by victims that the policy allows.
Rule 2: members are placed on free capacity first, the others as they would preempt: a node reserved
        for one of them fits no member that does not preempt.
Rule 3: a gang that starts without placeholders, or must be in one domain, preempts as a whole: each
        domain is tried with the victims in it, and the one with the least harm is used. The same
        holds for each part with its own domain and for each slice, in order, without revising
        earlier choices. Not for a slice that is partly filled.
Source: docs/adr/0016, docs/adr/0034. It is tried on an open statement and rolled back.
Cost: a choice of victims for each member and domain; equal gangs are tried once a pass.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

import numpy as np

from services.core.scheduler.actions.victim_search import NO_HARM, Harm, harm_of, search_places
from services.core.scheduler.constraints.guarantees import used
from services.core.scheduler.model.preemptors import may_ever
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, When
from services.core.scheduler.nodes.domains import EVERYWHERE, ResolvedTopology
from services.core.scheduler.nodes.victim_kinds import Victim
from services.core.scheduler.place.regions import searched
from services.core.scheduler.policies.preemption_choice import NoChoice, choose_victims
from services.core.scheduler.policies.preemption_victims import eligible
from services.core.scheduler.statement.statement import Statement, under_way
from shared.messages.gang_tree import GangTree

MAX_TRIES = 256  # domains searched for room for one gang; then each slice has one more


@dataclass(frozen=True, slots=True)
class Way:
    """A placement of a gang: for each member a node and its victims."""

    places: list[tuple[Ask, Node, list[Victim]]]

    @property
    def harm(self) -> Harm:
        """Return the sort key of ways by the harm of their victims."""
        gone = [victim for _, _, victims in self.places for victim in victims]
        pods = [victim.allocation for victim in gone]
        return harm_of(
            (pod.priority for pod in pods),
            (pod.application_id for pod in pods),
            (victim.newest for victim in gone),
        )


def would_be_whole(trial: Statement, application: Application) -> bool:
    """Whether every placeholder of a waiting gang would have a place; nothing changes."""
    return _way(trial, application) is not None


def cheapest_way(trial: Statement, application: Application) -> Way | None:
    """Return the placement of all members with the least harm, or None; nothing changes.

    A part that must be in one domain is tried in each that could contain it.
    """
    if application.layout is None:
        return _way(trial, application)
    start, search = trial.checkpoint(), _InDomains(trial, application)
    is_whole = search.place(application.layout, None)
    trial.rollback(start)
    return search.way if is_whole else None


class _InDomains:
    """Finds a placement for a gang with parts or slices in one domain each.

    What it finds stays on the statement until the caller's rollback.
    """

    def __init__(self, trial: Statement, application: Application) -> None:
        self.way = Way([])
        self._trial, self._application = trial, application
        self._nodes = trial.partition.nodes
        self._gang = self._nodes.domains.gangs[application.id]
        self._asks: dict[str, list[Ask]] = {}  # the asks that start, by task group
        for ask in _starting(application):
            self._asks.setdefault(ask.request.task_group_name, []).append(ask)
        self._left = MAX_TRIES

    def place(self, part: GangTree, rows: Mask | None) -> bool:
        """Place a part's waiting members on some rows; return whether that is possible."""
        asks = [ask for name in part.minima() for ask in self._asks.get(name, ())]
        if not asks:
            return True
        resolved: ResolvedTopology | str | None = None
        if part.constraint is not None:
            resolved = self._nodes.domains.resolve(part.topology)
        if isinstance(resolved, str):
            return False
        if resolved is None or resolved.required == EVERYWHERE:
            return self._inside(part, asks, resolved, rows)
        there = self._gang.members(part)
        return self._in_the_best(
            replace(resolved, slices=()), asks, there, rows,
            lambda own: self._inside(part, asks, resolved, own),
        )  # fmt: skip

    def _inside(
        self, part: GangTree, asks: list[Ask], resolved: ResolvedTopology | None, rows: Mask | None
    ) -> bool:
        """Place a part in a domain: its slices, or its parts, those with a level first."""
        if resolved is not None and resolved.slices:
            return not self._gang.members(part) and self._in_slices(asks, resolved, rows)
        inner = [each for each in part.parts if each.has_topology]
        apart = {name for each in inner for name in each.minima()}
        loose = [ask for ask in asks if ask.request.task_group_name not in apart]
        return all(self.place(each, rows) for each in inner) and self._together(loose, rows)

    def _in_slices(self, asks: list[Ask], resolved: ResolvedTopology, rows: Mask | None) -> bool:
        """Place slice after slice, each in the domain with the least harm."""
        if not resolved.slices:
            return self._together(asks, rows)
        (level, size), *finer = resolved.slices
        own, rest = (
            replace(resolved, required=level, slices=()),
            replace(resolved, slices=tuple(finer)),
        )
        return all(
            self._in_the_best(own, each, {}, rows, partial(self._in_slices, each, rest))
            for each in (asks[at : at + size] for at in range(0, len(asks), size))
        )

    def _in_the_best(
        self,
        resolved: ResolvedTopology,
        asks: list[Ask],
        there: Mapping[Node, int],
        rows: Mask | None,
        find: Callable[[Mask], bool],
    ) -> bool:
        """Place members in the domain of a level with the least harm."""
        start, found = self._trial.checkpoint(), len(self.way.places)

        def attempt(own: Mask, _: Harm | None) -> tuple[Harm, Mask] | None:
            self._left -= 1
            harm = Way(self.way.places[found:]).harm if find(own) else None
            self._trial.rollback(start)
            del self.way.places[found:]
            return None if harm is None else (harm, own)

        domains = enumerate(self._domains(resolved, asks, there, rows))
        best = search_places(
            (
                (NO_HARM, domain if rows is None else domain & rows)
                for at, domain in domains
                if not at or self._left > 0
            ),
            attempt,
        )
        return best is not None and find(best)

    def _domains(
        self,
        resolved: ResolvedTopology,
        asks: list[Ask],
        there: Mapping[Node, int],
        rows: Mask | None,
    ) -> list[Mask]:
        counts: dict[Shape, int] = {}
        for ask in asks:
            counts[ask.shape] = counts.get(ask.shape, 0) + 1

        def room(when: When, shape: Shape, _: Mask | None) -> Amounts:
            places = self._nodes.room.places(shape, when=when)
            return places if rows is None else places * rows

        places = partial(room, When.EMPTY), partial(room, When.NOW)
        return searched(self._nodes.domains, resolved, counts, places, there)

    def _together(self, asks: list[Ask], rows: Mask | None) -> bool:
        return _place(self._trial, self._application, asks, self.way, rows)


def _starting(application: Application) -> list[Ask]:
    """Return the asks of a gang that start together, by task group."""
    return [
        ask for group, count in application.to_start() for ask in islice(group.in_order(), count)
    ]


def _way(trial: Statement, application: Application) -> Way | None:
    """Return a placement of a gang on any nodes, or None; nothing changes."""
    start, way = trial.checkpoint(), Way([])
    is_whole = _place(trial, application, _starting(application), way, None)
    trial.rollback(start)
    return way if is_whole else None


def _place(
    trial: Statement, application: Application, asks: list[Ask], way: Way, rows: Mask | None
) -> bool:
    """Place pods on some rows (None: all), those that need no victims first."""
    rest = [
        ask
        for _, alike in groupby(asks, key=lambda ask: ask.shape)
        for ask in _unplaced(trial, application, alike, way, rows)
    ]
    return all(_preempts(trial, application, ask, way, rows) for ask in rest)


def _unplaced(
    trial: Statement, application: Application, asks: Iterator[Ask], way: Way, rows: Mask | None
) -> Iterator[Ask]:
    """Place members of a task group on free capacity; yield the rest."""
    table = trial.partition.nodes
    ask = next(asks, None)
    if ask is None:
        return
    takes = table.filters.takes
    places = table.room.places(ask.shape)
    for row in np.flatnonzero(places if rows is None else places * rows).tolist():
        node = table.rows[row]
        while (
            ask is not None
            and _has_headroom(application, ask)
            and takes.holds(node, ask.shape, under_way(trial.partition, node))
        ):
            trial.pipeline(application, ask, node)
            way.places.append((ask, node, []))
            ask = next(asks, None)
    if ask is not None:
        yield ask
        yield from asks


def _preempts(
    trial: Statement, application: Application, ask: Ask, way: Way, rows: Mask | None
) -> bool:
    """Place a member by preemption; return whether that is possible."""
    if not may_ever(ask):
        return False
    spared = trial.partition.evictions.spared(application.id, trial.partition.now_ns)
    victims = eligible(trial.partition, application.queue, ask, spared)
    found = choose_victims(trial, application.queue, ask, victims, rows)
    if isinstance(found, NoChoice):
        return False
    node, chosen = found
    for victim in chosen:
        owner = trial.partition.applications[victim.allocation.application_id]
        trial.evict(owner, victim.allocation, "")
    trial.pipeline(application, ask, node)
    way.places.append((ask, node, chosen))
    return True


def _has_headroom(application: Application, ask: Ask) -> bool:
    wanted = ask.shape.resource
    return all(
        used(queue, name) + wanted.get(name, 0) <= most
        for queue in application.queue.lineage()
        for name, most in (queue.max_resource or {}).items()
        if wanted.get(name, 0) > 0
    )
