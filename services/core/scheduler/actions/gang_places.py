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
Rule 4: reserved nodes are not taken, but by ``backfill``; a member that requires its node waits
        for it like the others: nobody is preempted for a gang that has no place yet.
Source: docs/adr/0032.

Cost: a trial is one search of the nodes a member; the bound one comparison of the nodes a shape.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from services.core.scheduler.model.gates import EquivalenceClass, class_key
from services.core.scheduler.model.needs import NeedTable
from services.core.scheduler.model.nodes import Node, NodeTable
from services.core.scheduler.model.shapes import Ask, AskGroup, Shape
from shared.messages.conversions import allocation_of
from shared.model.reasons import Reason, Refusal
from shared.model.resources import Resource, add_into, fits_room, go_map, multiply

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application


@dataclass(frozen=True, slots=True)
class NoPlaces:
    """Why a gang cannot be placed, and the shapes of which the nodes would have to take more.

    ``lacking`` says of how many asks of each shape there must be places at one time.
    """

    refusal: Refusal
    lacking: dict[Shape, int]


def members(application: "Application") -> list[AskGroup]:
    """Return the groups of the placeholders that wait."""
    return [group for group in application.groups.values() if group.placeholder and group.asks]


def amount(application: "Application") -> Resource:
    """Return what the placeholders that wait ask for together."""
    total: Resource = {}
    for shape, count in application.placeholder_needs().items():
        add_into(total, multiply(shape.resource, count))
    return total


def could_be_held(nodes: NodeTable, application: "Application") -> bool:
    """Return whether empty nodes could hold every group of a gang, and all groups' sum."""
    return fits_room(nodes.total, amount(application)) and all(
        int(nodes.places(shape, when_empty=True).sum()) >= count
        for shape, count in application.placeholder_needs().items()
    )


# --- the trial ------------------------------------------------------------------------------------


def bound(
    nodes: NodeTable, application: "Application", *, backfill: bool = False
) -> NoPlaces | None:
    """Say of which group the nodes lack the room for all members, other groups aside, or None.

    It is far cheaper than a trial, and what it refuses a trial would refuse.
    """
    wanted = application.placeholder_needs()
    places = {shape: nodes.places(shape, backfill=backfill) for shape in wanted}
    room = {shape: int(found.sum()) for shape, found in places.items()}
    short = next((shape for shape in wanted if room[shape] < wanted[shape]), None)
    if short is None:
        return None
    most = sum(min(room[shape], count) for shape, count in wanted.items())
    usable = int(np.count_nonzero(np.add.reduce(list(places.values()))))
    why = f"at most {most} of {sum(wanted.values())} members have one, on {usable}"
    return NoPlaces(_refusal(nodes, why, _lack(nodes, short)), {short: wanted[short]})


def find(
    nodes: NodeTable, application: "Application", *, backfill: bool = False
) -> list[tuple[Ask, Node]] | NoPlaces:
    """Find every placeholder that waits a place on the nodes, or say why that cannot be.

    What was found stays on the nodes' ledgers, for the caller to count in everywhere else. When
    nothing was, the ledgers are as they were.
    """
    wanted = application.placeholder_needs()
    had_changed, noted = nodes.pods_changed, nodes.pods.waiting.noted()
    placed: list[tuple[Ask, Node]] = []
    left = _try(nodes, application, placed, backfill=backfill)
    if left is None:
        return placed
    used = len({node.node_id for _, node in placed})
    why = f"{len(placed)} of {sum(wanted.values())} members have one, on {used}"
    has_room = nodes.places(left, backfill=backfill).any()
    lack = nodes.refusal(left).message if has_room else _lack(nodes, left)
    take_back(nodes, placed, had_changed=had_changed, noted=noted)
    return NoPlaces(_refusal(nodes, why, lack), wanted)


def are_there(nodes: NodeTable, application: "Application", *, backfill: bool = False) -> bool:
    """Return whether a gang would be given its places now; nothing changes."""
    had_changed, noted = nodes.pods_changed, nodes.pods.waiting.noted()
    if bound(nodes, application, backfill=backfill) is not None:
        return False
    found = find(nodes, application, backfill=backfill)
    if isinstance(found, NoPlaces):
        return False
    take_back(nodes, found, had_changed=had_changed, noted=noted)
    return True


def take_back(
    nodes: NodeTable,
    placed: list[tuple[Ask, Node]],
    *,
    had_changed: bool,
    noted: tuple[Shape, ...],
) -> None:
    """Take members off the nodes again, the last first; nobody is woken by what was a trial.

    ``had_changed`` was ``pods_changed``, ``noted`` were those noted before it.
    """
    for ask, node in reversed(placed):
        nodes.free(node, ask.key)
    nodes.pods_changed = had_changed
    nodes.pods.waiting.note_only(noted)


def _try(
    nodes: NodeTable,
    application: "Application",
    placed: list[tuple[Ask, Node]],
    *,
    backfill: bool,
) -> Shape | None:
    """Place member after member; return the shape of one that has no place, or None.

    Members that affinity binds to others have their next try when others have been placed.
    """

    def room(group: AskGroup) -> int:
        return int(nodes.places(group.bucket.shape, backfill=backfill).sum())

    groups = sorted(members(application), key=room)
    waiting = [iter(list(group.in_order())) for group in groups]
    heads: list[tuple[Ask, Iterator[Ask]]] = [(next(asks), asks) for asks in waiting]
    while heads:
        before, stuck = len(placed), []
        for head, asks in heads:
            ask: Ask | None = head
            while ask is not None:
                node = _node_for(nodes, ask.shape, backfill=backfill)
                if node is None:
                    stuck.append((ask, asks))
                    break
                nodes.place(node, allocation_of(ask.request, node.node_id))
                placed.append((ask, node))
                ask = next(asks, None)
        if stuck and len(placed) == before:
            return stuck[0][0].shape
        heads = stuck
    return None


def _node_for(nodes: NodeTable, shape: Shape, *, backfill: bool) -> Node | None:
    name = shape.constraints.required_node
    if not name:
        return nodes.best(shape, backfill=backfill)
    node = nodes.nodes.get(name)
    is_open = node is not None and not node.reservations and nodes.takes(node, shape)
    return node if is_open else None


def _refusal(nodes: NodeTable, why: str, lack: str) -> Refusal:
    sentence = f"the whole gang has no place: {why} of {len(nodes.nodes)} nodes; {lack}"
    return Refusal(Reason.GANG_PLACES, sentence)


def _lack(nodes: NodeTable, shape: Shape) -> str:
    """Say which node is the nearest to room for one more member of a shape, and what it lacks."""
    nearest = nodes.nearest(shape)
    if nearest is None:
        return nodes.refusal(shape).message
    node, lacking = nearest
    return (
        f"requested {go_map(shape.resource)}, the nearest node for one more, {node.node_id}, "
        f"lacks {go_map(lacking)}"
    )


# --- waiting --------------------------------------------------------------------------------------


class WaitingGangs:
    """The gangs that have no place, by the shapes of which the nodes must have room for more.

    A class of like gangs is tried when a node has changed that takes one of its shapes, and all
    nodes together have the room for as many as it needs. So those that wait cost nothing, and what
    frees a place costs one comparison of the nodes a shape, and then one trial for each class that
    could be placed by it.
    """

    def __init__(self) -> None:
        self._lacking: dict[Application, dict[Shape, int]] = {}
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._lacking_of: dict[EquivalenceClass, dict[Shape, int]] = {}
        self._by_shape: dict[Shape, dict[int, dict[EquivalenceClass, None]]] = {}
        self._needs: NeedTable[Shape] = NeedTable()  # of the same shapes

    def __len__(self) -> int:
        return len(self._lacking)

    def add(self, application: "Application", lacking: dict[Shape, int]) -> None:
        """Let a gang wait until one of some shapes has so many places; none: till it changes."""
        application.waiting_among = self
        application.refused_needs = application.placeholder_needs()
        self._lacking[application] = lacking

    def remove(self, application: "Application") -> None:
        """Forget a gang; one that does not wait is no error."""
        application.waiting_among = application.refused_needs = None
        self._lacking.pop(application, None)

    def class_of(self, application: "Application", refusal: Refusal) -> EquivalenceClass | None:
        """Return the class of gangs that lack the same places; None if no node can help.

        What it lacks is what was found last: then all of the class were refused for that.
        """
        lacking = self._lacking[application]
        if not lacking:
            return None
        key = class_key(application, refusal)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = EquivalenceClass(self, key, application.queue)
        if self._lacking_of.get(found) != lacking:
            self._forget_lacking(found)
            self._lacking_of[found] = lacking
            for shape, count in lacking.items():
                self._needs.add(shape, shape.resource)
                self._by_shape.setdefault(shape, {}).setdefault(count, {})[found] = None
        return found

    def forget(self, waiting: EquivalenceClass) -> None:
        """Forget a class in which nobody is left."""
        self._classes.pop(waiting.key, None)
        self._forget_lacking(waiting)

    def _forget_lacking(self, waiting: EquivalenceClass) -> None:
        for shape, count in self._lacking_of.pop(waiting, {}).items():
            by_count = self._by_shape[shape]
            del by_count[count][waiting]
            if not by_count[count]:
                del by_count[count]
            if not by_count:
                del self._by_shape[shape]
                self._needs.discard(shape)

    def all(self) -> list["Application"]:
        """Return all gangs that wait."""
        return list(self._lacking)

    @property
    def shapes(self) -> list[Shape]:
        """Return the shapes that gangs lack places for."""
        return list(self._by_shape)

    def waiting_for(self, application: "Application") -> dict[Shape, int] | None:
        """Return of which shapes a gang lacks how many places; None if it does not wait."""
        return self._lacking.get(application)

    def requeue_for_node(self, nodes: NodeTable, node: Node, *, backfill: bool) -> None:
        """Have the gangs tried that a node which has improved could help."""
        if not self._by_shape or (node.reservations and not backfill):
            return
        shapes = [s for s in self._needs.fitting(node.available) if nodes.fits(node, s)]
        self._requeue(nodes, shapes, backfill=backfill)

    def requeue_for_pods(self, nodes: NodeTable, *, backfill: bool) -> None:
        """Have the gangs tried that a change of pods on any node could help."""
        shapes = [s for s in self._by_shape if s.labels or s.constraints.asks_about_pods]
        self._requeue(nodes, shapes, backfill=backfill)

    def _requeue(self, nodes: NodeTable, shapes: list[Shape], *, backfill: bool) -> None:
        found: dict[EquivalenceClass, None] = {}
        for shape in shapes:
            room = int(nodes.places(shape, backfill=backfill).sum())
            for count, waiting in self._by_shape[shape].items():
                if count <= room:
                    found.update(waiting)
        for like in found:
            like.requeue()
