"""Gangs without places on the nodes, and which of them a change of the nodes could help."""

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import count

from services.core.scheduler.model.reservations import rank_of_gang
from services.core.scheduler.model.rows import (
    BY_ASK,
    Application,
    EquivalenceClass,
    Node,
    Queue,
    Rank,
)
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.ordering import queueing
from services.core.scheduler.ordering.gang_needs import GangNeeds
from shared.model.reasons import Refusal

_Due = tuple[tuple[object, ...], int, EquivalenceClass, Shape, int]  # by its order in the leaf


class WaitingGangs:
    """The gangs that have no place, by the shapes of which the nodes must have room for more.

    A class of like gangs is due when a node has changed that takes one of its shapes, and tried if
    all nodes together have the room for as many as it needs, of each leaf the first that is due.
    Nodes that improve are collected: between two decisions they are compared with all shapes once,
    in numpy, however many gangs wait. A gang that starts takes the room of those
    behind it, which are then not tried.
    """

    def __init__(self) -> None:
        self._lacking: dict[Application, dict[Shape, int]] = {}
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._lacking_of: dict[EquivalenceClass, dict[Shape, int]] = {}
        self._needs = GangNeeds()
        self._improved: dict[Node, None] = {}  # since the last of them were marked
        self._is_due = False  # whether a class may be
        self._candidates: dict[Queue, EquivalenceClass] = {}  # that are being tried, by leaf
        self._by_rank: list[tuple[Rank, int, Application]] = []  # a heap of those that may be first
        self._place_of: dict[Application, int] = {}  # the number of its entry that counts
        self._to_rank: dict[Application, None] = {}
        self._unfit: dict[Application, None] = {}  # they may not be first, as nodes are now
        self._judged_for = -1  # the facts of nodes when they were
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._lacking)

    def add(self, application: Application, lacking: dict[Shape, int]) -> None:
        """Make a gang wait until one of some shapes has so many places; none: until it changes."""
        application.waiting_among = self
        application.refused_needs = application.placeholder_needs()
        self._lacking[application] = lacking
        self._to_rank[application] = None

    def remove(self, application: Application) -> None:
        """Remove a gang; one that does not wait is no error."""
        application.waiting_among = application.refused_needs = None
        self._lacking.pop(application, None)
        self._to_rank.pop(application, None)
        self._unfit.pop(application, None)
        self._place_of.pop(application, None)

    def first(self, facts: int, may_be: Callable[[Application], bool]) -> Application | None:
        """Return the first by rank of those that may be it; those behind it are not judged.

        ``facts`` is how often what nodes are has changed: one that may not be it is judged again
        when it has. One that is being tried does not wait.
        """
        if facts != self._judged_for:
            self._judged_for = facts
            self._to_rank.update(self._unfit)
            self._unfit.clear()
        for application in [each for each in self._to_rank if each.refusal is not None]:
            del self._to_rank[application]
            number = self._place_of[application] = next(self._numbers)
            heappush(self._by_rank, (rank_of_gang(application), number, application))
        while self._by_rank:
            _, number, application = self._by_rank[0]
            if self._place_of.get(application) == number:
                if application.waits_in is not None and may_be(application):
                    return application
                self._unfit[application] = None
                del self._place_of[application]
            heappop(self._by_rank)
        return None

    def rank_again(self) -> None:
        """Rank all again: the priorities that queues show may have changed."""
        self._by_rank.clear()
        self._place_of.clear()
        self._unfit.clear()
        self._to_rank = dict.fromkeys(self._lacking)

    def class_of(self, application: Application, refusal: Refusal) -> EquivalenceClass | None:
        """Return the class of gangs that lack the same places; None if no node can help.

        What it lacks is what was found last: then all of the class were refused for that.
        """
        lacking = self._lacking[application]
        if not lacking:
            return None
        key = queueing.class_key(application, refusal)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = EquivalenceClass(self, key, application.queue)
        if self._lacking_of.get(found) != lacking:
            self._needs.remove(found)
            self._lacking_of[found] = lacking
            self._needs.add(found, lacking)
        return found

    def forget(self, waiting: EquivalenceClass) -> None:
        """Remove an empty class."""
        self._classes.pop(waiting.key, None)
        self._lacking_of.pop(waiting, None)
        self._needs.remove(waiting)
        if self._candidates.get(waiting.leaf) is waiting:
            self.was_tried(waiting)

    def all(self) -> list[Application]:
        """Return all gangs that wait."""
        return list(self._lacking)

    # --- which are tried ------------------------------------------------------------------------

    def node_improved(self, node: Node) -> None:
        """Note that a node has more room, or is open to more: gangs may have their places."""
        if self._lacking_of:
            self._improved[node] = None

    def pods_changed(self) -> None:
        """Note that pods have changed of which gangs say where they may be."""
        if self._lacking_of:
            self._needs.mark_for_pods()
            self._is_due = True

    def requeue(self, nodes: NodeTable, *, backfill: bool, is_all: bool = False) -> None:
        """Requeue, of the gangs that have the room by now, the first of each leaf.

        The next of the leaf follows when that one has been tried: by then fewer may have the room.
        ``is_all``: all at once.
        """
        if self._improved:
            self._mark(nodes, backfill=backfill)
        if not self._is_due:
            return
        self._is_due = False
        names = tuple(self._needs.names)
        open_rooms = nodes.room.open_rooms(names, backfill=backfill)
        head = nodes.head_gang
        while self._needs.keep_fitting(*open_rooms, head.backfill_ns, head.predicted_ns):
            if is_all:
                self._candidates.clear()
            if not self._requeue_firsts(nodes, backfill=backfill) or not is_all:
                return

    def _mark(self, nodes: NodeTable, *, backfill: bool) -> None:
        """Mark the classes as due of which an improved node takes a member."""
        improved, self._improved = self._improved, {}
        rows = [
            node.row
            for node in improved
            if nodes.nodes.get(node.node_id) is node and (backfill or not node.claimed & BY_ASK)
        ]
        if rows:
            self._needs.mark(nodes.room.free(tuple(self._needs.names), rows))
            self._is_due = True

    def _requeue_firsts(self, nodes: NodeTable, *, backfill: bool) -> int:
        """Requeue the first class that is due of each leaf that has none tried; return how many."""
        by_leaf: dict[Queue, list[_Due]] = {}
        for number, (waiting, shape, members) in enumerate(self._needs.due()):
            head = waiting.head()
            if head is None or (waiting.tried is not None and waiting.tried.order < head.order):
                self._needs.drop(waiting)
            elif waiting.leaf not in self._candidates:
                due = (head.order, number, waiting, shape, members)
                by_leaf.setdefault(waiting.leaf, []).append(due)
        rooms: dict[Shape, int] = {}
        found = 0
        for leaf, all_due in by_leaf.items():
            heapify(all_due)
            while all_due and leaf not in self._candidates:
                _, _, waiting, shape, members = heappop(all_due)
                self._needs.drop(waiting)
                if shape not in rooms:
                    rooms[shape] = int(nodes.room.places(shape, backfill=backfill).sum())
                if members <= rooms[shape]:
                    self._candidates[leaf] = waiting
                    queueing.requeue_class(waiting)
                    found += 1
        return found

    def was_tried(self, waiting: EquivalenceClass) -> None:
        """Have the next of a leaf follow, if this class was its first."""
        if self._candidates.get(waiting.leaf) is waiting:
            del self._candidates[waiting.leaf]
            self._is_due = True
