"""Gangs without places on the nodes, and which of them a change of the nodes may help."""

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

_Due = tuple[tuple[object, ...], int, EquivalenceClass, Shape, int]  # sorted by the leaf's order


class WaitingGangs:
    """The gangs without places, by the shapes for which the nodes lack capacity.

    A class of equal gangs is due when a changed node fits one of its shapes, and tried if all nodes
    together fit enough members; of each leaf the first one due. Improved nodes are collected and
    compared with all shapes once between two decisions, in numpy, however many gangs wait. If a
    gang starts, gangs behind it that no longer fit are not tried.
    """

    def __init__(self) -> None:
        self._lacking: dict[Application, dict[Shape, int]] = {}
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._lacking_of: dict[EquivalenceClass, dict[Shape, int]] = {}
        self._needs = GangNeeds()
        self._improved: dict[Node, None] = {}  # since the last marking
        self._is_due = False  # whether a class may be due
        self._candidates: dict[Queue, EquivalenceClass] = {}  # classes being tried, by leaf
        self._by_rank: list[tuple[Rank, int, Application]] = []  # a heap, for ``first``
        self._place_of: dict[Application, int] = {}  # the number of its valid entry
        self._to_rank: dict[Application, None] = {}
        self._unfit: dict[Application, None] = {}  # not eligible with the present nodes
        self._judged_for = -1  # version of the nodes' facts at that check
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._lacking)

    def add(self, application: Application, lacking: dict[Shape, int]) -> None:
        """Block a gang until one of some shapes has enough places; {}: until the gang changes."""
        application.waiting_among = self
        application.refused_needs = application.placeholder_needs()
        self._lacking[application] = lacking
        self._to_rank[application] = None

    def remove(self, application: Application) -> None:
        """Remove a gang; an unknown one is no error."""
        application.waiting_among = application.refused_needs = None
        self._lacking.pop(application, None)
        self._to_rank.pop(application, None)
        self._unfit.pop(application, None)
        self._place_of.pop(application, None)

    def first(self, facts: int, may_be: Callable[[Application], bool]) -> Application | None:
        """Return the eligible gang with the best rank, None if there is none.

        ``facts`` is the version of the nodes' facts: ineligible gangs are checked again when it
        changes. A gang that is being tried does not count as waiting.
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
        """Rank all gangs again: the priorities that queues show may have changed."""
        self._by_rank.clear()
        self._place_of.clear()
        self._unfit.clear()
        self._to_rank = dict.fromkeys(self._lacking)

    def class_of(self, application: Application, refusal: Refusal) -> EquivalenceClass | None:
        """Return the class of gangs that lack the same places; None if no node can help.

        The latest result of what it lacks is used for the whole class.
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
        """Return all waiting gangs."""
        return list(self._lacking)

    # --- the choice of gangs to try -------------------------------------------------------------

    def node_improved(self, node: Node) -> None:
        """Record that a node has more capacity, or is open to more pods."""
        if self._lacking_of:
            self._improved[node] = None

    def pods_changed(self) -> None:
        """Mark gangs with pod affinities as due, because pods changed."""
        if self._lacking_of:
            self._needs.mark_for_pods()
            self._is_due = True

    def requeue(self, nodes: NodeTable, *, backfill: bool, is_all: bool = False) -> None:
        """Requeue, of the gangs that fit now, the first of each leaf; ``is_all``: all at once.

        The next of a leaf follows when that one has been tried: fewer may fit then.
        """
        if self._improved:
            self._mark(nodes, backfill=backfill)
        if not self._is_due:
            return
        self._is_due = False
        names = tuple(self._needs.names)
        open_rooms = nodes.room.open_rooms(names, backfill=backfill)
        window = nodes.backfill_window
        while self._needs.keep_fitting(*open_rooms, window.backfill_ns, window.predicted_ns):
            if is_all:
                self._candidates.clear()
            if not self._requeue_firsts(nodes, backfill=backfill) or not is_all:
                return

    def _mark(self, nodes: NodeTable, *, backfill: bool) -> None:
        """Mark the classes of which an improved node fits a member as due."""
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
        """Requeue the first due class of each leaf without one being tried; return how many."""
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
        """Allow the next class of a leaf, if this was the one being tried."""
        if self._candidates.get(waiting.leaf) is waiting:
            del self._candidates[waiting.leaf]
            self._is_due = True
