"""Gangs without places on the nodes, and which of them a change of the nodes could help."""

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count

from services.core.scheduler.model.needs import NeedTable
from services.core.scheduler.model.reservations import rank_of_gang
from services.core.scheduler.model.rows import BY_ASK, Application, EquivalenceClass, Node, Rank
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.ordering import queueing
from shared.model.reasons import Refusal


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
        self._by_rank: list[tuple[Rank, int, Application]] = []  # a heap of those that were judged
        self._place_of: dict[Application, int] = {}  # the number of its entry that counts
        self._to_judge: dict[Application, None] = {}
        self._judged_for = -1  # the facts of nodes when they were
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._lacking)

    def add(self, application: Application, lacking: dict[Shape, int]) -> None:
        """Make a gang wait until one of some shapes has so many places; none: until it changes."""
        application.waiting_among = self
        application.refused_needs = application.placeholder_needs()
        self._lacking[application] = lacking
        self._to_judge[application] = None

    def remove(self, application: Application) -> None:
        """Remove a gang; one that does not wait is no error."""
        application.waiting_among = application.refused_needs = None
        self._lacking.pop(application, None)
        self._to_judge.pop(application, None)
        self._place_of.pop(application, None)

    def first(self, facts: int, may_be: Callable[[Application], bool]) -> Application | None:
        """Return the first by rank of those that may be it; each is judged once for the same facts.

        ``facts`` is how often what nodes are has changed. One that is being tried does not wait.
        """
        if facts != self._judged_for:
            self._judged_for = facts
            self._by_rank.clear()
            self._place_of.clear()
            self._to_judge = dict.fromkeys(self._lacking)
        for application in [each for each in self._to_judge if each.refusal is not None]:
            del self._to_judge[application]
            if application.waits_in is not None and may_be(application):
                number = self._place_of[application] = next(self._numbers)
                heappush(self._by_rank, (rank_of_gang(application), number, application))
        while self._by_rank:
            _, number, application = self._by_rank[0]
            if self._place_of.get(application) == number:
                return application
            heappop(self._by_rank)
        return None

    def rank_again(self) -> None:
        """Rank all again: the priorities that queues show may have changed."""
        self._judged_for = -1

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
            self._forget_lacking(found)
            self._lacking_of[found] = lacking
            for shape, members in lacking.items():
                self._needs.add(shape, shape.resource)
                self._by_shape.setdefault(shape, {}).setdefault(members, {})[found] = None
        return found

    def forget(self, waiting: EquivalenceClass) -> None:
        """Remove an empty class."""
        self._classes.pop(waiting.key, None)
        self._forget_lacking(waiting)

    def _forget_lacking(self, waiting: EquivalenceClass) -> None:
        for shape, members in self._lacking_of.pop(waiting, {}).items():
            by_count = self._by_shape[shape]
            del by_count[members][waiting]
            if not by_count[members]:
                del by_count[members]
            if not by_count:
                del self._by_shape[shape]
                self._needs.discard(shape)

    def all(self) -> list[Application]:
        """Return all gangs that wait."""
        return list(self._lacking)

    def requeue_for_node(self, nodes: NodeTable, node: Node, *, backfill: bool) -> None:
        """Requeue the gangs that a node with more room could help."""
        if not self._by_shape or (node.claimed & BY_ASK and not backfill):
            return
        shapes = [
            s for s in self._needs.fitting(node.available) if nodes.filters.fits.holds(node, s)
        ]
        if node.is_held and not backfill:
            shapes = [s for s in shapes if nodes.head_gang.may_backfill(s)]
        self._requeue(nodes, shapes, backfill=backfill)

    def requeue_for_pods(self, nodes: NodeTable, *, backfill: bool) -> None:
        """Requeue the gangs that a change of pods on any node could help."""
        shapes = [s for s in self._by_shape if s.labels or s.constraints.asks_about_pods]
        self._requeue(nodes, shapes, backfill=backfill)

    def _requeue(self, nodes: NodeTable, shapes: list[Shape], *, backfill: bool) -> None:
        found: dict[EquivalenceClass, None] = {}
        for shape in shapes:
            room = int(nodes.room.places(shape, backfill=backfill).sum())
            for members, waiting in self._by_shape[shape].items():
                if members <= room:
                    found.update(waiting)
        for like in found:
            queueing.requeue_class(like)
