"""Whether a gang that waits would be whole if its members preempted: tried before it is let start.

Rule 1: a gang that its queue owes all that it lacks may start over the headroom, and its members
        preempt one by one. None is evicted for a gang that would hold a part only: every member
        must have a place, beside those before it, where there is room or by victims that the
        policy allows.
Rule 2: members are placed first where there is room, the others as they would preempt: a node that
        is reserved for one of them takes no member that does not preempt.
Rule 3: a gang that starts without placeholders, or must be in one domain, preempts as a whole: one
        domain after another is tried, with victims that are there, and the one with the least harm
        is taken. Not where parts of it go to domains of their own, nor in slices.
Source: docs/adr/0016, docs/adr/0034. It is tried on an open statement and rolled back.

Cost: a choice of victims a member; gangs that are alike are tried once a pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from services.core.scheduler.actions.domain_places import in_one_domain, required_parts
from services.core.scheduler.actions.victim_search import NO_HARM, Harm, harm_of, search_places
from services.core.scheduler.constraints.guarantees import used
from services.core.scheduler.model.preemptors import may_ever
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, When
from services.core.scheduler.nodes.victim_kinds import Victim
from services.core.scheduler.place.regions import searched
from services.core.scheduler.policies.preemption_choice import NoChoice, choose_victims
from services.core.scheduler.policies.preemption_victims import eligible
from services.core.scheduler.statement.statement import Statement, under_way


@dataclass(frozen=True, slots=True)
class Way:
    """How a gang would get its room: a node for each member, and whom of each one's victims go."""

    places: list[tuple[Ask, Node, list[Victim]]]

    @property
    def harm(self) -> Harm:
        """Return what orders ways."""
        gone = [victim for _, _, victims in self.places for victim in victims]
        pods = [victim.allocation for victim in gone]
        return harm_of(
            (pod.priority for pod in pods),
            (pod.application_id for pod in pods),
            (victim.newest for victim in gone),
        )


def would_be_whole(trial: Statement, application: Application) -> bool:
    """Return whether every placeholder of a waiting gang would have a place; nothing changes."""
    return _way(trial, application, None) is not None


def cheapest_way(trial: Statement, application: Application) -> Way | None:
    """Return how all that start together would get their places with the least harm, or None.

    Of one that must be in one domain each is tried that could hold it, by Rule 3. Nothing changes.
    """

    def find(rows: Mask | None, _: Harm | None) -> tuple[Harm, Way] | None:
        way = _way(trial, application, rows)
        return None if way is None else (way.harm, way)

    return search_places(((NO_HARM, rows) for rows in _domains(trial, application)), find)


def _domains(trial: Statement, application: Application) -> list[Mask | None]:
    """Return the rows of the domains to try: None is everywhere, [] where nothing can be said."""
    layout, nodes = application.layout, trial.partition.nodes
    if layout is None:
        return [None]
    part = in_one_domain(application)
    if layout.has_slices or required_parts(layout) != ([part] if part is not None else []):
        return []  # parts of it go to domains of their own
    if part is None:
        return [None]
    wish = nodes.domains.wish(part.topology)
    if isinstance(wish, str):
        return []
    counts = application.placeholder_needs()

    def empty(shape: Shape, _: Mask | None) -> Amounts:
        return nodes.room.places(shape, when=When.EMPTY)

    def free(shape: Shape, _: Mask | None) -> Amounts:
        return nodes.room.places(shape)

    there = nodes.domains.bonds[application.id].members(part)
    return [*searched(nodes.domains, wish, counts, (empty, free), there)]


def _way(trial: Statement, application: Application, rows: Mask | None) -> Way | None:
    """Return how a gang would get its room on some rows, or None; nothing changes."""
    start = trial.checkpoint()
    way = Way([])
    rest = [
        ask
        for group, count in application.to_start()
        for ask in _unplaced(trial, application, islice(group.in_order(), count), way, rows)
    ]
    is_whole = all(_preempts(trial, application, ask, way, rows) for ask in rest)
    trial.rollback(start)
    return way if is_whole else None


def _unplaced(
    trial: Statement, application: Application, asks: Iterator[Ask], way: Way, rows: Mask | None
) -> Iterator[Ask]:
    """Place members of a task group where there is room; yield those that are left."""
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
    """Let a member preempt; return whether it could."""
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
