"""Places for whole gangs: under ``gangAdmission: cluster`` every member gets one, or none does.

Rule 1: a gang's placeholders are tried one by one on the live nodes, each beside those before it,
        the task group with the fewest places first; a group that finds no place has another try
        when others have been placed. All of them are allocated in one cycle, however many, and
        told in one message; if one has no place, all are taken back, the last first.
Rule 2: before anything is tried, the nodes must have the room for every group by itself. Until
        they have, and until something changes on a node that could help, a refused gang is not
        looked at (``WaitingGangs``).
Rule 3: from the first refusal its placeholders are told as unschedulable, so that the cluster
        scales up, and its placeholder timeout runs, so that Soft falls back and Hard fails.
Rule 4: reserved nodes are not taken, but by ``backfill`` and by the members that others made way
        for: these start when all members have a place, not one by one. A member that requires
        its node waits for it like the others: none is preempted for a gang without a place.
Source: docs/adr/0032.

Cost: a trial is one search of the nodes a member; the bound one comparison of the nodes a shape.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from services.core.scheduler.model.rows import AskGroup, Node
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.statement.tentative import Tentative
from shared.model.reasons import Reason, Refusal
from shared.model.resources import Resource, add_into, fits_room, go_map, multiply

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application


MAX_STARTS = 8  # domains in which a gang is tried that affinity keeps together


@dataclass(frozen=True, slots=True)
class NoPlaces:
    """Why a gang cannot be placed, and the shapes of which the nodes would have to take more.

    ``lacking`` says of how many asks of each shape there must be places at one time.
    """

    refusal: Refusal
    lacking: dict[Shape, int]


def members(application: "Application") -> list[AskGroup]:
    """Return the groups of the members that wait to start together."""
    return [group for group, _ in application.to_start()]


def amount(application: "Application") -> Resource:
    """Return what the members that wait ask for together."""
    total: Resource = {}
    for shape, count in application.placeholder_needs().items():
        add_into(total, multiply(shape.resource, count))
    return total


def could_be_held(nodes: NodeTable, application: "Application") -> bool:
    """Return whether empty nodes could hold every group of a gang, and all groups' sum."""
    return fits_room(nodes.total, amount(application)) and all(
        int(nodes.room.places(shape, when_empty=True).sum()) >= count
        for shape, count in application.placeholder_needs().items()
    )


def first_could_be_held(nodes: NodeTable, application: "Application") -> bool:
    """Return whether a member that waits could start if nothing ran."""
    shapes = [group.bucket.shape for group in members(application)]
    return any(nodes.filters.could_start.any(shape, When.EMPTY) for shape in shapes)


# --- the trial ------------------------------------------------------------------------------------


def bound(
    nodes: NodeTable, application: "Application", *, backfill: bool = False
) -> NoPlaces | None:
    """Say of which group the nodes lack the room for all members, other groups aside, or None.

    It is far cheaper than a trial, and what it refuses a trial would refuse.
    """
    if kept_nodes(application):
        return None  # what is kept for it is not among the places that all may have
    wanted = application.placeholder_needs()
    places = {shape: nodes.room.places(shape, backfill=backfill) for shape in wanted}
    room = {shape: int(found.sum()) for shape, found in places.items()}
    short = next((shape for shape in wanted if room[shape] < wanted[shape]), None)
    if short is None:
        return None
    most = sum(min(room[shape], count) for shape, count in wanted.items())
    usable = int(np.count_nonzero(np.add.reduce(list(places.values()))))
    why = f"at most {most} of {sum(wanted.values())} members have one, on {usable}"
    return NoPlaces(_refusal(nodes, why, short, _lack(nodes, short)), {short: wanted[short]})


def find(
    trial: Tentative, application: "Application", *, backfill: bool = False
) -> list[tuple[Ask, Node]] | NoPlaces:
    """Find every placeholder that waits a place on the nodes, or say why that cannot be.

    What was found is on the trial, for the caller to keep and to count in everywhere else. When
    nothing was, the ledgers are as they were. A gang whose members affinity keeps together has a
    trial more in every domain that has the room, as the first node in order may be in a small one.
    """
    found = _find_from(trial, application, None, backfill=backfill)
    if isinstance(found, NoPlaces):
        for start in _starts(trial.nodes, application, backfill=backfill):
            again = _find_from(trial, application, start, backfill=backfill)
            if not isinstance(again, NoPlaces):
                return again
    return found


def _find_from(
    trial: Tentative, application: "Application", start: Node | None, *, backfill: bool
) -> list[tuple[Ask, Node]] | NoPlaces:
    """Find the places, the first member's at a node, where one is given."""
    nodes, wanted = trial.nodes, application.placeholder_needs()
    placed: list[tuple[Ask, Node]] = []
    before = trial.checkpoint()
    left = _try(trial, application, placed, start, backfill=backfill)
    if left is None:
        return placed
    used = len({node.node_id for _, node in placed})
    why = f"{len(placed)} of {sum(wanted.values())} members have one, on {used}"
    has_room = nodes.room.places(left, backfill=backfill).any()
    lack = nodes.room.refusal(left).message if has_room else _lack(nodes, left)
    refusal = _refusal(nodes, why, left, lack)
    trial.rollback(before)
    return NoPlaces(refusal, wanted)


def _starts(nodes: NodeTable, application: "Application", *, backfill: bool) -> Iterator[Node]:
    """Yield where to begin with a gang that affinity keeps together: a node in each domain.

    A domain must have the room for all that is kept together; the largest come first.
    """
    bound_to = {
        group.bucket.shape: term.topology_key
        for group in members(application)
        for term in group.bucket.shape.constraints.pod_affinity[:1]
    }
    if not bound_to:
        return
    key, wanted = next(iter(bound_to.values())), application.placeholder_needs()
    places = {shape: nodes.room.places(shape, backfill=backfill) for shape in bound_to}
    domains: dict[str, list[Node]] = {}
    for node in nodes.nodes.values():
        if key in node.labels:
            domains.setdefault(node.labels[key], []).append(node)
    sizes = [
        (min(sum(int(room[node.row]) for node in own) - wanted[shape]
             for shape, room in places.items()), name)
        for name, own in domains.items()
    ]  # fmt: skip
    first = _by_room(nodes, application, backfill=backfill)[0].bucket.shape
    room_of_first = nodes.room.places(first, backfill=backfill)
    for spare, name in sorted(sizes, key=lambda size: (-size[0], size[1]))[:MAX_STARTS]:
        if spare < 0:
            return
        for node in domains[name]:
            is_free = room_of_first[node.row] and not node.is_closed
            if is_free and nodes.filters.takes.holds(node, first):
                yield node
                break


def are_there(nodes: NodeTable, application: "Application", *, backfill: bool = False) -> bool:
    """Return whether a gang would be given its places now; nothing changes."""
    if bound(nodes, application, backfill=backfill) is not None:
        return False
    with Tentative(nodes) as trial:
        return not isinstance(find(trial, application, backfill=backfill), NoPlaces)


def _try(
    trial: Tentative,
    application: "Application",
    placed: list[tuple[Ask, Node]],
    start: Node | None,
    *,
    backfill: bool,
) -> Shape | None:
    """Place member after member; return the shape of one that has no place, or None.

    Members that affinity binds to others have their next try when others have been placed.
    """
    nodes = trial.nodes
    groups = _by_room(nodes, application, backfill=backfill)
    counts = dict(application.to_start())
    waiting = [iter(list(islice(group.in_order(), counts[group]))) for group in groups]
    kept = kept_nodes(application)
    heads: list[tuple[Ask, Iterator[Ask]]] = [(next(asks), asks) for asks in waiting]
    while heads:
        before, stuck = len(placed), []
        for head, asks in heads:
            ask: Ask | None = head
            while ask is not None:
                node = start or _kept_node(nodes, kept.get(ask.key), ask.shape)
                node = node or _node_for(nodes, ask.shape, backfill=backfill)
                start = None
                if node is None:
                    stuck.append((ask, asks))
                    break
                trial.place(ask, node)
                placed.append((ask, node))
                ask = next(asks, None)
        if stuck and len(placed) == before:
            return stuck[0][0].shape
        heads = stuck
    return None


def _by_room(nodes: NodeTable, application: "Application", *, backfill: bool) -> list[AskGroup]:
    """Return the groups of a gang, the one for which there is the least room first."""

    def room(group: AskGroup) -> int:
        return int(nodes.room.places(group.bucket.shape, backfill=backfill).sum())

    return sorted(members(application), key=room)


def kept_nodes(application: "Application") -> dict[str, Node]:
    """Return the nodes on which room was freed for members, by ask."""
    held = application.reservations.items()
    return {key: each.node for key, each in held if each.has_preempted}


def _kept_node(nodes: NodeTable, node: Node | None, shape: Shape) -> Node | None:
    """Return the node that is kept for a member if it takes it now."""
    return node if node is not None and nodes.filters.takes.holds(node, shape) else None


def _node_for(nodes: NodeTable, shape: Shape, *, backfill: bool) -> Node | None:
    name = shape.constraints.required_node
    if not name:
        return nodes.order.best(shape, backfill=backfill)
    node = nodes.nodes.get(name)
    is_open = node is not None and not node.is_closed and nodes.filters.takes.holds(node, shape)
    return node if is_open else None


def _refusal(nodes: NodeTable, why: str, shape: Shape, lack: str) -> Refusal:
    sentence = f"the whole gang has no place: {why} of {len(nodes.nodes)} nodes; {lack}"
    return Refusal(Reason.GANG_PLACES, sentence, nodes.room.evidence(shape))


def _lack(nodes: NodeTable, shape: Shape) -> str:
    """Say which node is the nearest to room for one more member of a shape, and what it lacks."""
    nearest = nodes.room.nearest(shape)
    if nearest is None:
        return nodes.room.refusal(shape).message
    node, lacking = nearest
    return (
        f"requested {go_map(shape.resource)}, the nearest node for one more, {node.node_id}, "
        f"lacks {go_map(lacking)}"
    )
