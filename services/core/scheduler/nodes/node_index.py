"""Indexes for the first node in order that fits a shape, without reading all nodes.

Rule 1: for every recently used shape a heap has the first nodes in order that fit it. It contains
        all that fit and do not sort after ``bound``; None: all that fit.
Rule 2: changes of nodes are logged. An index is updated from its position in the log: an entry
        becomes stale when its node changes, and the node is added again if it still fits and sorts
        before the bound.
Rule 3: if no entry is left, or too much has changed, the heap is filled by a scan of all nodes:
        with STEP times as many entries as last time if most changes were for this shape, with fewer
        if they were for others.
Rule 4: shapes that differ only in amounts share an index, for the minimum of each type. Of the
        nodes in it a shape gets the first that fits. If that is none of the first FAR, or unknown,
        the shape gets its own index.
Rule 5: if the order depends on the shape (``order_by_shape``), shapes share no index, only changed
        nodes that fit are scored, and a heap is filled with SCORED entries, because that scores all
        nodes. All are filled again when scores change.
Rule 6: pod affinities are not in the index. Of the first FAR nodes that fit otherwise, the first
        that they allow is the result; if there is none, all nodes are scanned.

The order of two nodes must not depend on other nodes: preferences, which are normalised over the
candidates, are excluded. Limits: MAX_INDEXES indexes, the least recently used is dropped; a heap is
filled with at most MOST entries, or one in SHARE of all nodes; and twice that before the last are
dropped.
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
LOG = 1_024  # length of the log; an index further behind is filled again
ONE_BY_ONE = 12  # up to so many nodes, comparing each is cheaper than arrays
MOST_PUSHED = 64  # nodes entered for the changes since last time; filling costs less than more
WASTED = 3  # after so many fills with one answer each, changes are not followed
TRY_AGAIN = 8  # then changes are followed at one in so many fills
MANY_NEW = 20  # with more new node ids, sorting all is cheaper than inserting each
MOST = 256  # largest number of entries when a heap is filled, or
SHARE = 8  # one in so many of all nodes, if that is more
SCORED = 48  # entries of a heap whose scores depend on the shape
STEP = 4  # factor between the sizes of two fills
Rows = NDArray[np.int64]
Entry = tuple[float, str, int, "Node"]  # score, id, when its node last changed
FAR = 8  # entries of a shared index that are tried for a shape
# The amounts and constraints of an index; without amounts it is shared.
Key = tuple[tuple[tuple[str, int], ...] | None, Constraints]


class Nodes(Protocol):
    """The index's view of the table of nodes."""

    @property
    def rows(self) -> "Sequence[Node]":
        """All nodes, each at its row."""

    @property
    def judges_amounts(self) -> bool:
        """Whether filters other than capacity depend on amounts: plugins' do."""

    def has_room(self, node: "Node", shape: "Shape") -> bool:
        """Whether a shape fits a node's free capacity."""

    def is_free(self, node: "Node", shape: "Shape") -> bool:
        """Whether a node fits a shape and is not claimed."""

    def free_rows(self, shape: "Shape", among: Rows | None = None) -> Rows:
        """Return the rows that fit a shape and are not claimed, of ``among`` if given."""

    def first_rows(self, shape: "Shape", rows: Rows, amount: int) -> Rows:
        """Return the first ``amount`` of some rows by score and node id, unordered."""

    def scores_of_few(self, shape: "Shape", nodes: "Sequence[Node]") -> list[Any]:
        """Return the scores of a few nodes that fit a shape; less is better."""

    def scores_of(self, shape: "Shape", rows: Rows) -> NDArray[Any]:
        """Return the scores of some rows that fit a shape; less is better."""


@dataclass(slots=True, eq=False)
class Candidates:
    """The first nodes in order for the shapes of one ``key``."""

    key: Key
    least: "Shape"  # the minimum of their amounts
    seen: int = -1  # position in the log
    size: int = 1  # number of entries of the next fill
    bound: tuple[float, str] | None = None
    heap: list[Entry] = field(default_factory=list)
    filled: int = 0  # position in the log of the last fill
    answers: int = 0  # lookups since then
    wasted: int = 0  # consecutive fills with one lookup each
    missed: int = 0  # consecutive lookups without an entry that pods allow


class NodeIndex:
    """The candidates of all recently used shapes.

    Shapes with equal amounts and constraints share theirs.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._recent: dict[Candidates, None] = {}  # most recently used last
        self._last: Candidates | None = None
        self._by_key: dict[Key, Candidates] = {}
        self._log: list[Node | None] = [None] * LOG
        self.logged = 0  # number of changes
        self._is_by_shape = False  # whether a node's score depends on the shape

    def changed(self, node: "Node") -> None:
        """Log a change of a node: its free capacity, score, claims, properties or row."""
        self._log[self.logged % LOG] = node
        node.changed = self.logged
        self.logged += 1

    def removed(self, node: "Node") -> None:
        """Record that a node was removed."""
        node.changed = -1

    def order_by_shape(self, *, is_by_shape: bool) -> None:
        """Drop all indexes because the order changed; ``is_by_shape``: it depends on the shape."""
        self._is_by_shape = is_by_shape
        self._recent.clear()
        self._by_key.clear()
        self._last = None

    def outdate(self) -> None:
        """Let all indexes be filled again, because scores of unchanged nodes changed."""
        for found in self._recent:
            found.seen = -1

    def first(self, shape: "Shape") -> "Node | None":
        """Return the first node in order that fits a shape and is not claimed, or None."""
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
        """Return the first node in order that fits a shape and that pods allow.

        None: it is none of the first FAR that fit, or unknown; after several such results in a row
        most lookups are skipped.
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
        """Return the candidates of a shape, and mark them as used."""
        found: Candidates | None = shape.candidates
        if found is None or found not in self._recent:
            found = shape.candidates = self._candidates_of(shape)
        if found is not self._last:
            self._recent[found] = self._recent.pop(found, None)
            self._last = found
        return found

    def led_by(self, node: "Node", shape: "Shape") -> Candidates | None:
        """Return the index of a shape's last lookup, if a node is its first."""
        found: Candidates | None = shape.candidates
        if found is None or not found.heap or found not in self._recent:
            return None
        first = found.heap[0]
        is_first = first[3] is node and first[2] == node.changed and found.seen == self.logged
        return found if is_first else None

    def _first_of(self, found: Candidates) -> "Node | None":
        """Return the first node that fits the index's minimum, or None."""
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
        """Return a shape's own index if it has or needs one, else the shared one."""
        wanted = shape.wanted
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
        """Add the changed nodes; return False if a scan of all nodes is cheaper."""
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
        """Return the nodes that do not score more than the bound."""
        bound = found.bound
        if bound is None or self._is_by_shape:
            return nodes
        return [node for node in nodes if node.score <= bound[0]]

    def _enter(self, found: Candidates, nodes: "list[Node]") -> None:
        """Add changed nodes that fit and sort before the bound."""
        for node in nodes:
            if node.changed < 0:
                continue
            if found.bound is not None and (node.score, node.node_id) > found.bound:
                continue
            if self._nodes.is_free(node, found.least):
                heappush(found.heap, (node.score, node.node_id, node.changed, node))

    def _enter_scored(self, found: Candidates, nodes: "list[Node]") -> None:
        """Add changed nodes that fit, by their scores for this shape."""
        free = [n for n in nodes if n.changed >= 0 and self._nodes.is_free(n, found.least)]
        scores = self._nodes.scores_of_few(found.least, free) if free else ()
        for score, node in zip(scores, free, strict=True):
            if found.bound is None or (score, node.node_id) <= found.bound:
                heappush(found.heap, (score, node.node_id, node.changed, node))

    def changed_since(self, seen: int) -> "list[Node] | None":
        """Return the nodes changed since a position in the log; None: unknown."""
        if self.logged - seen > LOG:
            return None
        return self._changed(seen) if self.logged > seen else []

    def _changed(self, seen: int) -> "list[Node]":
        """Return the nodes in the log from a position on, each once."""
        first, last = seen % LOG, self.logged % LOG
        part = self._log[first:last] if first < last else self._log[first:] + self._log[:last]
        return [node for node in dict.fromkeys(part) if node is not None]

    def _most(self) -> int:
        return max(MOST, len(self._nodes.rows) // SHARE)

    def _shed(self, found: Candidates) -> None:
        """Drop stale entries, and the last ones beyond the limit."""
        found.heap = sorted(entry for entry in found.heap if entry[3].changed == entry[2])
        most = self._most()
        if len(found.heap) > most:
            del found.heap[most:]
            found.bound = found.heap[-1][:2]

    def _filled(self, found: Candidates) -> "Node | None":
        """Fill a heap by a scan of all nodes; return its first node."""
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
    """Yield a heap's valid nodes in order."""
    entries: Iterator[Entry] = in_heap_order(found.heap)
    return (entry[3] for entry in entries if entry[3].changed == entry[2])


class Ranks:
    """The position of every node's id among all ids, by row; new ones are inserted on reading."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._places: Rows = np.zeros(16, dtype=np.int64)
        self._new: dict[str, Node] = {}

    def added(self, node: "Node") -> None:
        """Record a new node in the last row."""
        self._new[node.node_id] = node

    def removed(self, node: "Node", last: int) -> None:
        """Remove a node; the last row takes its row."""
        self._enter()
        place = self._places.item(node.row)
        del self._ids[place]
        self._places[node.row] = self._places[last]
        self._places[:last][self._places[:last] > place] -= 1

    def of(self, rows: Rows) -> Rows:
        """Return the positions of some rows."""
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
        """Sort all ids again."""
        count = len(self._ids)
        row_of = np.zeros(count + len(new), dtype=np.int64)
        row_of[self._places[:count]] = np.arange(count)
        rows = dict(zip(self._ids, row_of[:count].tolist(), strict=True))
        rows.update((name, node.row) for name, node in new.items())
        self._ids = sorted(rows)
        in_order = np.array([rows[name] for name in self._ids], dtype=np.int64)
        self._places[in_order] = np.arange(in_order.size)
