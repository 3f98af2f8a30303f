"""Places for whole gangs (``gangAdmission: cluster``): every member gets one, or none does.

Rule 1: a gang's placeholders are tried one by one on the live nodes, each after those before it,
        the task group with the fewest places first; a group without a place is tried again after
        others were placed. All are allocated in one cycle and reported in one message; if one has
        no place, all are undone.
Rule 2: before any try, the nodes must have the capacity for each group alone. A refused gang is not
        tried again until they have, and until a node has changed that could help
        (``WaitingGangs``).
Rule 3: from the first refusal its placeholders are marked unschedulable, so that the cluster scales
        up, and its placeholder timeout runs, so that Soft continues without a gang and Hard fails.
Rule 4: reserved nodes are used only by ``backfill``, and by the members they are reserved for:
        these start when all members have a place. A member with a required node waits like the
        others: there is no preemption for a gang without places.
Source: docs/adr/0032.
Cost: a trial is one node search for each member; the bound is one comparison of all nodes for each
shape.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from services.core.scheduler.model.rows import AskGroup, Node
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, When
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.place.one import node_for
from services.core.scheduler.place.place import Unplaced, place
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.tentative import Tentative
from shared.model.reasons import Fact, Kind, Reason, Refusal
from shared.model.resources import Resource, add_into, fits_room, multiply

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application


MAX_STARTS = 8  # domains in which a gang is tried that affinity keeps together


@dataclass(frozen=True, slots=True)
class NoPlaces:
    """Why a gang cannot be placed, and for which shapes nodes lack capacity.

    ``lacking`` is for how many asks of each shape there must be places at once, ``part`` the task
    group that has none.
    """

    refusal: Refusal
    lacking: dict[Shape, int]
    part: str = ""


def members(application: "Application") -> list[AskGroup]:
    """Return the groups of the waiting members that start together."""
    return [group for group, _ in application.to_start()]


def amount(application: "Application") -> Resource:
    """Return the sum of the waiting members."""
    total: Resource = {}
    for shape, count in application.placeholder_needs().items():
        add_into(total, multiply(shape.resource, count))
    return total


def could_be_held(nodes: NodeTable, application: "Application") -> bool:
    """Whether empty nodes could fit each group of a gang, and the sum of all groups."""
    return fits_room(nodes.total, amount(application)) and all(
        int(nodes.room.places(shape, when=When.EMPTY).sum()) >= count
        for shape, count in application.placeholder_needs().items()
    )


def first_could_be_held(nodes: NodeTable, application: "Application") -> bool:
    """Whether a waiting member could start on empty nodes."""
    shapes = [group.bucket.shape for group in members(application)]
    return any(nodes.filters.could_start.mask(shape, When.EMPTY).any() for shape in shapes)


# --- the trial ------------------------------------------------------------------------------------


def bound(
    nodes: NodeTable, application: "Application", *, backfill: bool = False
) -> NoPlaces | None:
    """Return the first group whose members do not all fit, other groups ignored, or None.

    Much cheaper than a trial, and never refuses what a trial would place.
    """
    if reserved_nodes(application):
        return None  # the places reserved for it are not counted below
    wanted = application.placeholder_needs()
    places = {shape: nodes.room.places(shape, backfill=backfill) for shape in wanted}
    room = {shape: int(found.sum()) for shape, found in places.items()}
    short = next((shape for shape in wanted if room[shape] < wanted[shape]), None)
    if short is None:
        return None
    most = sum(min(room[shape], count) for shape, count in wanted.items())
    usable = int(np.count_nonzero(np.add.reduce(list(places.values()))))
    fact = Fact(
        Kind.MOST_PLACES,
        count=most,
        total=sum(wanted.values()),
        nodes=usable,
        amount=short.resource,
    )
    refusal = Refusal(Reason.GANG_PLACES, fact, nodes.room.evidence(short))
    part = next(
        group.task_group_name for group in members(application) if group.bucket.shape == short
    )
    return NoPlaces(refusal, {short: wanted[short]}, part)


def find(
    trial: Tentative, application: "Application", *, backfill: bool = False
) -> list[tuple[Ask, Node]] | NoPlaces:
    """Find a place for every waiting placeholder, or return why there is none.

    Found places are on the trial; the caller keeps them and updates all other ledgers. Otherwise
    the ledgers are unchanged.
    """
    groups = _by_room(trial.nodes, application, backfill=backfill)
    counts = dict(application.to_start())
    leaves = [
        Group(group.task_group_name, tasks=list(islice(group.in_order(), counts[group])))
        for group in groups
    ]
    placer = _OnNodes(trial, application, backfill=backfill)
    found = place(placer, Group(application.id, members=leaves), [])
    return found.refusal if isinstance(found, Unplaced) else found


class _OnNodes:
    """The placer of asks on the nodes' ledgers. A domain is the first ask's node, [] for any.

    A gang with affinity between its members is also tried from a node in each domain with enough
    capacity, because the first node in order may be in a small one.
    """

    goes_on = True

    def __init__(self, trial: Tentative, application: "Application", *, backfill: bool) -> None:
        self._nodes, self._application, self._backfill = trial.nodes, application, backfill
        self._kept = reserved_nodes(application)
        self.checkpoint, self.rollback, self.put = trial.checkpoint, trial.rollback, trial.place

    def waiting(self, leaf: Group[Ask]) -> list[Ask]:
        """Return the waiting members of a task group, in order."""
        return leaf.tasks

    def domains(self, group: Group[Ask], where: list[Node]) -> Iterator[list[Node]]:
        """Yield all nodes, then the domains to start in."""
        yield where
        if group.members:  # the gang, not one task group of it
            nodes, application, backfill = self._nodes, self._application, self._backfill
            wanted = application.placeholder_needs()
            first = _by_room(nodes, application, backfill=backfill)[0].bucket.shape
            for start in starts(nodes, wanted, first, backfill=backfill):
                yield [start]

    def nodes_for(self, asks: list[Ask], where: list[Node]) -> Iterator[Node | None]:
        """Yield each ask's node: the start node, its reserved node, or the first in order."""
        for ask in asks:
            own = self._kept.get(ask.key)
            begin = where.pop() if where else None
            yield begin or node_for(self._nodes, ask.shape, own=own, backfill=self._backfill)

    def refusal(self, ask: Ask | None, placed: list[tuple[Ask, Node]]) -> NoPlaces:
        """Return how many members have a place, and what one more lacks."""
        assert ask is not None  # there is always the domain of all nodes
        nodes, wanted = self._nodes, self._application.placeholder_needs()
        fact = Fact(
            Kind.PLACES,
            count=len(placed),
            total=sum(wanted.values()),
            nodes=len({node.node_id for _, node in placed}),
            amount=ask.shape.resource,
        )
        if not nodes.room.places(ask.shape, backfill=self._backfill).any():
            refusal = Refusal(Reason.GANG_PLACES, fact, nodes.room.evidence(ask.shape))
            return NoPlaces(refusal, wanted, ask.request.task_group_name)
        closed = nodes.room.refusal(ask.shape)
        if closed.fact is not None and closed.fact.kind == Kind.PLUGIN:
            fact = replace(fact, text=closed.fact.text)
        refusal = Refusal(Reason.GANG_PLACES, fact, closed.nodes)
        return NoPlaces(refusal, wanted, ask.request.task_group_name)


def starts(
    nodes: NodeTable,
    wanted: Mapping[Shape, int],
    first: Shape,
    rows: Mask | None = None,
    *,
    backfill: bool,
) -> Iterator[Node]:
    """Yield start nodes for pods with affinity to each other: one in each domain.

    A domain must fit all such pods, on the ``rows`` (None: all); the largest come first. The node
    fits the ``first`` shape.
    """
    keys = {s: terms[0].topology_key for s in wanted if (terms := s.constraints.pod_affinity)}
    if not keys:
        return

    def room_of(shape: Shape) -> Amounts:
        room = nodes.room.places(shape, backfill=backfill)
        return room if rows is None else room * rows

    key = next(iter(keys.values()))
    domains: dict[str, list[Node]] = {}
    for node in nodes.nodes.values():
        if key in node.labels:
            domains.setdefault(node.labels[key], []).append(node)
    places = {shape: room_of(shape) for shape in keys}
    sizes = [
        (min(sum(int(room[node.row]) for node in own) - wanted[shape]
             for shape, room in places.items()), name)
        for name, own in domains.items()
    ]  # fmt: skip
    room_of_first, takes = room_of(first), nodes.filters.takes
    for spare, name in sorted(sizes, key=lambda size: (-size[0], size[1]))[:MAX_STARTS]:
        if spare < 0:
            return
        free = (node for node in domains[name] if room_of_first[node.row] and not node.is_closed)
        yield from islice((node for node in free if takes.holds(node, first)), 1)


def are_there(nodes: NodeTable, application: "Application", *, backfill: bool = False) -> bool:
    """Whether a gang would get its places now; nothing changes."""
    if bound(nodes, application, backfill=backfill) is not None:
        return False
    with Tentative(nodes) as trial:
        return not isinstance(find(trial, application, backfill=backfill), NoPlaces)


def _by_room(nodes: NodeTable, application: "Application", *, backfill: bool) -> list[AskGroup]:
    """Return the groups of a gang, the one with the fewest places first."""

    def room(group: AskGroup) -> int:
        return int(nodes.room.places(group.bucket.shape, backfill=backfill).sum())

    return sorted(members(application), key=room)


def reserved_nodes(application: "Application") -> dict[str, Node]:
    """Return the nodes where capacity was freed for members, by ask."""
    held = application.reservations.items()
    return {key: each.node for key, each in held if each.has_preempted}
