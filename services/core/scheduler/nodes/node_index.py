"""The first node in order that takes a shape, found without reading all nodes.

Rule 1: for every shape that was asked for lately there are the first nodes in order that take it,
        in a heap. All that take it and do not come after ``bound`` are there; None: all are.
Rule 2: what changes at a node is logged. An index is brought up to date from where it last read the
        log: an entry lapses when its node changes, and the node is entered anew where it still
        takes the shape and comes before the bound.
Rule 3: when no entry is left, or what changed is too much to follow, the heap is filled by one look
        at all nodes: with STEP times as many as last time where most of what changed was for this
        shape, with fewer where it was for others, who use up what was found.
Rule 4: shapes that differ in amounts only share an index: that of the least of each type that any
        of them asks for. Of what takes that, a shape is given the first that takes it. One for
        which that is none of the first FAR, or not known, has an index of its own.
Rule 5: where the order is another one for each that is asked for (``order_by_shape``), shapes
        share no index, what changed is scored only where it takes the shape, and a heap is filled
        with SCORED entries, as that scores all nodes. All are filled anew when scores are others.
Rule 6: what other pods say is in no index. Of the first FAR that take a shape otherwise the first
        that they leave open is the first of all; where there is none, all nodes are looked at.

It holds only where the order of two nodes does not depend on the others: no preferences, which are
normalised over the candidates. Limits: MAX_INDEXES shapes, beyond which the one that was not asked
for longest is forgotten; MOST entries when filled, or one in SHARE of all nodes, so that a look at
all is spread over as many answers; and twice that before the last are left out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import in_heap_order
from services.core.scheduler.model.shapes import Shape
from shared.messages.constraints import Constraints

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node

MAX_INDEXES = 500
LOG = 1_024  # changes that can be followed; an index further behind is filled anew
ONE_BY_ONE = 12  # nodes up to which comparing each costs less than comparing them as arrays
MOST_PUSHED = 64  # nodes entered for the changes since last time; filling costs less than more
WASTED = 3  # fills that gave one answer, from which on what changed is not followed
TRY_AGAIN = 8  # of so many fills one follows all the same
MANY_NEW = 20  # node ids beyond which sorting all costs less than entering each
MOST = 256  # entries of a heap when it is filled, or where there are more
SHARE = 8  # of nodes, one in so many
SCORED = 48  # entries of a heap whose scores look at what is asked for
STEP = 4  # how many times as many entries a heap is filled with as last time
Rows = NDArray[np.int64]
Entry = tuple[float, str, int, "Node"]  # score, id, when its node last changed
FAR = 8  # entries of a shared index that are compared with a shape
# What a shape asks of nodes; without amounts: of an index that is shared.
Key = tuple[tuple[tuple[str, int], ...] | None, Constraints]


class Nodes(Protocol):
    """What an index asks of the table of nodes."""

    @property
    def rows(self) -> "Sequence[Node]":
        """All nodes, each at its row."""

    @property
    def judges_amounts(self) -> bool:
        """Whether amounts decide about more than room: plugins look at them."""

    def has_room(self, node: "Node", shape: "Shape") -> bool:
        """Return whether a node has the room for a shape."""

    def is_free(self, node: "Node", shape: "Shape") -> bool:
        """Return whether a node takes a shape and is not reserved."""

    def free_rows(self, shape: "Shape", among: Rows | None = None) -> Rows:
        """Return the rows that take a shape and are not reserved, of ``among`` if it is given."""

    def first_rows(self, shape: "Shape", rows: Rows, amount: int) -> Rows:
        """Return the first of some rows by score and node id, in any order; there are more."""

    def scores_of_few(self, shape: "Shape", nodes: "Sequence[Node]") -> list[Any]:
        """Return what a few nodes score for a shape that they take; less is better."""

    def scores_of(self, shape: "Shape", rows: Rows) -> NDArray[Any]:
        """Return what some rows score for a shape that they take; less is better."""


@dataclass(slots=True, eq=False)
class Candidates:
    """The first nodes in order that take what shapes of one ``key`` ask of nodes."""

    key: Key
    least: "Shape"  # what all of them ask for, at least
    seen: int = -1  # of the log
    size: int = 1  # how many the heap is filled with next time
    bound: tuple[float, str] | None = None
    heap: list[Entry] = field(default_factory=list)
    filled: int = 0  # where the log was when the heap was filled
    answers: int = 0  # given since then
    wasted: int = 0  # fills in a row that gave one answer each
    missed: int = 0  # times in a row that pods left none open that was looked at


class NodeIndex:
    """The candidates of every shape that was asked for lately.

    Shapes that ask the same of nodes share theirs, also with one that is forgotten by now.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._recent: dict[Candidates, None] = {}  # the one that was asked for last is the last
        self._last: Candidates | None = None
        self._by_key: dict[Key, Candidates] = {}
        self._log: list[Node | None] = [None] * LOG
        self.logged = 0  # how many changes there have been
        self._is_by_shape = False  # whether a node's score depends on what is asked for

    def changed(self, node: "Node") -> None:
        """Note that something changed at a node: its room, its score, who may use it, its row."""
        self._log[self.logged % LOG] = node
        node.changed = self.logged
        self.logged += 1

    def removed(self, node: "Node") -> None:
        """Note that a node is no more."""
        node.changed = -1

    def order_by_shape(self, *, is_by_shape: bool) -> None:
        """Forget all, as the order is another one; ``is_by_shape``: one for each shape."""
        self._is_by_shape = is_by_shape
        self._recent.clear()
        self._by_key.clear()
        self._last = None

    def outdate(self) -> None:
        """Have all be filled anew, as scores of nodes that have not changed are others now."""
        for found in self._recent:
            found.seen = -1

    def first(self, shape: "Shape") -> "Node | None":
        """Return the first node in order that takes a shape and is not reserved, or None."""
        found = self._asked_for(shape)
        node = self._first_of(found)
        if found.key[0] is not None or node is None or self._nodes.has_room(node, shape):
            return node
        for node in islice(_in_order(found), FAR):
            if self._nodes.has_room(node, shape):
                return node
        shape.candidates = self._candidates_of(shape, is_shared=False)
        return self.first(shape)

    def first_open(self, shape: "Shape", is_open: "Callable[[Node, Shape], bool]") -> "Node | None":
        """Return the first node in order that takes a shape and that pods leave open to it.

        None: it is none of the first FAR that take it, or not known; where it was so several times
        in a row, most are not looked at.
        """
        found = self._asked_for(shape)
        if found.missed > WASTED and found.missed % TRY_AGAIN:
            found.missed += 1
            return None
        has_room = self._first_of(found) is None
        for node in islice(_in_order(found), FAR):
            if self._nodes.has_room(node, shape):
                has_room = True
                if is_open(node, shape):
                    found.missed = 0
                    return node
        if has_room or found.key[0] is not None:
            found.missed += 1
            return None
        shape.candidates = self._candidates_of(shape, is_shared=False)
        return self.first_open(shape, is_open)

    def _asked_for(self, shape: "Shape") -> Candidates:
        """Return the candidates of a shape, which it is asked for now."""
        found: Candidates | None = shape.candidates
        if found is None or found not in self._recent:
            found = shape.candidates = self._candidates_of(shape)
        if found is not self._last:
            self._recent[found] = self._recent.pop(found, None)
            self._last = found
        return found

    def led_by(self, node: "Node", shape: "Shape") -> Candidates | None:
        """Return the index in which a shape was looked up last, if a node is the first there."""
        found: Candidates | None = shape.candidates
        if found is None or not found.heap or found not in self._recent:
            return None
        first = found.heap[0]
        is_first = first[3] is node and first[2] == node.changed and found.seen == self.logged
        return found if is_first else None

    def _first_of(self, found: Candidates) -> "Node | None":
        """Return the first node that takes what is asked at least, or None."""
        if found.seen != self.logged and not self._follow(found):
            return self._filled(found)
        while found.heap:
            entry = found.heap[0]
            if entry[3].changed == entry[2]:
                found.answers += 1
                return entry[3]
            heappop(found.heap)
        return None if found.bound is None else self._filled(found)

    def _candidates_of(self, shape: "Shape", *, is_shared: bool = True) -> Candidates:
        """Return a shape's own index where it has one, or is not to share one; or the shared."""
        wanted = {name: value for name, value in shape.resource.items() if value > 0}
        constraints = shape.constraints.of_nodes
        own: Key = (tuple(sorted(wanted.items())), constraints)
        has_own = self._is_by_shape or self._nodes.judges_amounts or not is_shared
        if has_own or own in self._by_key:
            return self._index(own, wanted)
        found = self._index((None, constraints), wanted)
        least = found.least.resource
        if any(wanted.get(name, 0) < value for name, value in least.items()):
            less = {name: min(value, wanted.get(name, 0)) for name, value in least.items()}
            found.least = Shape("", {n: value for n, value in less.items() if value}, found.key[1])
            found.seen = -1
        return found

    def _index(self, key: Key, least: dict[str, int]) -> Candidates:
        found = self._by_key.get(key)
        if found is None:
            if len(self._recent) >= MAX_INDEXES:
                oldest = next(iter(self._recent))
                del self._recent[oldest], self._by_key[oldest.key]
            found = self._by_key[key] = Candidates(key, Shape("", least, key[1]))
            self._recent[found] = self._last = None
        return found

    def _follow(self, found: Candidates) -> bool:
        """Enter the nodes that changed; return False where a look at all nodes costs less."""
        behind = self.logged - found.seen
        if found.seen < 0 or behind > LOG:
            return False
        if behind > ONE_BY_ONE and found.wasted > WASTED and found.wasted % TRY_AGAIN:
            return False
        last = self._log[(self.logged - 1) % LOG]
        nodes = [last] if behind == 1 and last is not None else self._changed(found.seen)
        if len(nodes) > 1:
            nodes = self._before_bound(found, nodes)
        if len(nodes) > ONE_BY_ONE:
            rows = np.array([node.row for node in nodes if node.changed >= 0], dtype=np.int64)
            nodes = [
                self._nodes.rows[row] for row in self._nodes.free_rows(found.least, rows).tolist()
            ]
            if len(nodes) > MOST_PUSHED:
                return False
        enter = self._enter_scored if self._is_by_shape else self._enter
        enter(found, nodes)
        found.seen = self.logged
        if len(found.heap) > 2 * MOST and len(found.heap) > 2 * self._most():
            self._shed(found)
        return True

    def _before_bound(self, found: Candidates, nodes: "list[Node]") -> "list[Node]":
        """Leave out the nodes that score more than the last that there is."""
        bound = found.bound
        if bound is None or self._is_by_shape:
            return nodes
        return [node for node in nodes if node.score <= bound[0]]

    def _enter(self, found: Candidates, nodes: "list[Node]") -> None:
        """Enter nodes that changed where they take a shape and come before the bound."""
        for node in nodes:
            if node.changed < 0:
                continue
            if found.bound is not None and (node.score, node.node_id) > found.bound:
                continue
            if self._nodes.is_free(node, found.least):
                heappush(found.heap, (node.score, node.node_id, node.changed, node))

    def _enter_scored(self, found: Candidates, nodes: "list[Node]") -> None:
        """Enter nodes that changed by what they score for this shape, where they take it."""
        free = [n for n in nodes if n.changed >= 0 and self._nodes.is_free(n, found.least)]
        scores = self._nodes.scores_of_few(found.least, free) if free else ()
        for score, node in zip(scores, free, strict=True):
            if found.bound is None or (score, node.node_id) <= found.bound:
                heappush(found.heap, (score, node.node_id, node.changed, node))

    def changed_since(self, seen: int) -> "list[Node] | None":
        """Return the nodes that have changed since the log was so long; None: not known."""
        if self.logged - seen > LOG:
            return None
        return self._changed(seen) if self.logged > seen else []

    def _changed(self, seen: int) -> "list[Node]":
        """Return the nodes that are in the log from one place on, each once."""
        first, last = seen % LOG, self.logged % LOG
        part = self._log[first:last] if first < last else self._log[first:] + self._log[:last]
        return [node for node in dict.fromkeys(part) if node is not None]

    def _most(self) -> int:
        return max(MOST, len(self._nodes.rows) // SHARE)

    def _shed(self, found: Candidates) -> None:
        """Leave out what lapsed, and the last where more is left than a heap is to hold."""
        found.heap = sorted(entry for entry in found.heap if entry[3].changed == entry[2])
        most = self._most()
        if len(found.heap) > most:
            del found.heap[most:]
            found.bound = found.heap[-1][:2]

    def _filled(self, found: Candidates) -> "Node | None":
        """Fill a heap by a look at all nodes; return its first."""
        found.wasted = found.wasted + 1 if found.answers == 1 else 0
        if found.answers:
            changes_an_answer = (self.logged - found.filled) // found.answers
            if changes_an_answer <= STEP:
                found.size = min(self._most(), STEP * found.size)
            elif changes_an_answer > STEP**2:
                found.size = max(1, found.size // STEP)
        if self._is_by_shape:
            found.size = SCORED
        chosen = self._nodes.free_rows(found.least)
        is_all = chosen.size <= found.size
        if not is_all:
            chosen = self._nodes.first_rows(found.least, chosen, found.size)
        rows, scores = self._nodes.rows, self._nodes.scores_of(found.least, chosen).tolist()
        nodes = [rows[row] for row in chosen.tolist()]
        found.heap = sorted(
            (score, node.node_id, node.changed, node)
            for score, node in zip(scores, nodes, strict=True)
        )
        found.bound = None if is_all else found.heap[-1][:2]
        found.seen = self.logged
        found.filled, found.answers = self.logged, 1
        return found.heap[0][3] if found.heap else None


def _in_order(found: Candidates) -> "Iterator[Node]":
    """Yield the nodes of a heap that have not changed, the first first."""
    entries: Iterator[Entry] = in_heap_order(found.heap)
    return (entry[3] for entry in entries if entry[3].changed == entry[2])


class Ranks:
    """The place of every node id among all ids, by row; what is new is entered when it is read."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._places: Rows = np.zeros(16, dtype=np.int64)
        self._new: dict[str, Node] = {}

    def added(self, node: "Node") -> None:
        """Note a new node, in the last row."""
        self._new[node.node_id] = node

    def removed(self, node: "Node", last: int) -> None:
        """Forget a node; what is in the last row takes its row."""
        self._enter()
        place = self._places.item(node.row)
        del self._ids[place]
        self._places[node.row] = self._places[last]
        self._places[:last][self._places[:last] > place] -= 1

    def of(self, rows: Rows) -> Rows:
        """Return the places of some rows."""
        self._enter()
        return self._places[rows]

    def _enter(self) -> None:
        if not self._new:
            return
        new, self._new = self._new, {}
        count = len(self._ids)
        while count + len(new) > self._places.size:
            self._places = np.pad(self._places, (0, self._places.size))
        if len(new) > MANY_NEW:
            self._enter_all(new)
            return
        for name, node in new.items():
            place = bisect_left(self._ids, name)
            self._ids.insert(place, name)
            if place < count:
                self._places[:count][self._places[:count] >= place] += 1
            self._places[node.row] = place
            count += 1

    def _enter_all(self, new: "dict[str, Node]") -> None:
        """Sort anew: old ids and new ones are each in order already, or near it."""
        count = len(self._ids)
        row_of = np.zeros(count + len(new), dtype=np.int64)
        row_of[self._places[:count]] = np.arange(count)
        rows = dict(zip(self._ids, row_of[:count].tolist(), strict=True))
        rows.update((name, node.row) for name, node in new.items())
        self._ids = sorted(rows)
        in_order = np.array([rows[name] for name in self._ids], dtype=np.int64)
        self._places[in_order] = np.arange(in_order.size)
