"""Upper bounds of what the victims of every node can free, and the first victim of each.

For the kinds of victims that an ask may evict there is a row for each node: nodes that cannot help
are excluded by one comparison, and the rest is tried in the order of the least possible harm. Rows
are updated from the log of the node table and by the open statement's operations, so that a search
costs what has changed.
Limit: MAX_BOUNDS tables; the least recently used is dropped.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import add
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.filters.room import free_of
from services.core.scheduler.nodes.victim_kinds import RANKS
from shared.model.numbers import saturated

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node
    from services.core.scheduler.nodes.node_table import NodeTable
    from services.core.scheduler.nodes.victim_kinds import Kind, NodeVictims

MAX_BOUNDS = 16
FAR = 2**61  # larger sums are computed one by one, exactly
NONE = 2 * RANKS  # the rank without a victim: after all others
NO_VICTIM = (NONE, 0, 0)
Amounts: TypeAlias = NDArray[np.int64]


class NodeBounds:
    """The bounds of every node, for victims of some kinds and some types.

    Capacity being released, and not claimed for an ask that has preempted, counts as free; so does
    what the open statement expects.
    """

    def __init__(
        self,
        nodes: "NodeTable",
        victims_on: "Callable[[Node], NodeVictims]",
        names: tuple[str, ...],
        kinds: "Sequence[Kind]",
    ) -> None:
        self._table = nodes
        self._victims_on = victims_on
        self._names = names
        self._places = {kind: at for at, kind in enumerate(kinds)}
        self._amounts = [tuple(kind.amount.get(name, 0) for name in names) for kind in kinds]
        self._seen = -1
        self._supposed: dict[Node, None] = {}  # nodes that the statement changed since
        self._rows: Amounts = np.zeros((4 * len(names) + 3, 16), dtype=np.int64)

    def renew(self, node: "Node") -> None:
        """Mark a node for an update before the next reading."""
        self._supposed[node] = None

    def follow(self) -> None:
        """Update all rows."""
        table = self._table
        nodes = table.order.changed_since(self._seen) if self._seen >= 0 else None
        missing = len(table.rows) - self._rows.shape[1]
        if missing > 0:
            self._rows = np.pad(self._rows, ((0, 0), (0, missing + len(table.rows))))
        there = [node for node in self._supposed if table.nodes.get(node.node_id) is node]
        self._supposed.clear()
        if nodes is None:
            self._fill()
        elif nodes or there:
            changed = dict.fromkeys([*nodes, *there])
            self._rows[:, [node.row for node in changed]] = np.array([*map(self._row, changed)]).T
        self._seen = table.order.changes

    def _fill(self) -> None:
        """Compute the rows of all nodes; one by one if sums may be large."""
        rows = self._table.rows
        room = self._table.columns.table_of(self._names, When.NOW).T
        first: list[tuple[int, int, int]] = []
        counts: defaultdict[Kind, list[tuple[int, int]]] = defaultdict(list)
        victims_on, first_of = self._victims_on, self._first
        for row, node in enumerate(rows):
            here = victims_on(node)
            if here.releasing or node.reservations or node.expected:
                room[:, row] = [*map(saturated, self._room(node, here))]
            for kind, count in here.kinds.items():
                counts[kind].append((row, count))
            first.append(first_of(here))
        most = max((max(amount, default=0) for amount in self._amounts), default=0)
        if (
            most * sum(kind.count for kind in self._places) > FAR
            or (abs(room // 2) > FAR // 2).any()
        ):
            self._rows[:, : len(rows)] = np.array([*map(self._row, rows)]).T
            return
        give, largest = np.zeros_like(room), np.zeros_like(room)
        for kind, amounts in zip(self._places, self._amounts, strict=True):
            if kind in counts:
                at, times = np.array(counts[kind]).T
                amount = np.array(amounts, dtype=np.int64)[:, None]
                give[:, at] += amount * times
                largest[:, at] = np.maximum(largest[:, at], amount)
        self._rows[:, : len(rows)] = np.concatenate(
            (room, room + give, give, largest, np.array(first, dtype=np.int64).reshape(-1, 3).T)
        )

    def _row(self, node: "Node") -> list[int]:
        """Return a node's row."""
        here = self._victims_on(node)
        room = self._room(node, here)
        give, largest = [0] * len(room), [0] * len(room)
        for kind, count in here.kinds.items():
            place = self._places.get(kind)
            for at, value in enumerate(self._amounts[place] if place is not None else ()):
                give[at] += count * value
                largest[at] = max(largest[at], value)
        reach = map(add, room, give)
        return [*map(saturated, (*room, *reach, *give)), *largest, *self._first(here)]

    def _room(self, node: "Node", here: "NodeVictims") -> list[int]:
        """Return a node's free and expected amounts, less reservations after preemption."""
        gone = [allocation.resource_per_alloc for allocation in here.releasing.values()]
        kept = [
            held.ask.shape.resource for held in node.reservations.values() if held.has_preempted
        ]
        return free_of(node, self._names, gone, kept)

    def _first(self, here: "NodeVictims") -> tuple[int, int, int]:
        """Return the first victim's rank, negated creation time, and kind."""
        for victim in here.order:
            place = self._places.get(victim.kind)
            if place is not None:
                return victim.rank, victim.newest, place
        return NO_VICTIM

    # --- the bounds, a row for each type --------------------------------------------------------

    def _part(self, number: int) -> Amounts:
        types = len(self._names)
        return self._rows[number * types : (number + 1) * types, : len(self._table.rows)]

    @property
    def room(self) -> Amounts:
        """Return every node's capacity without evictions."""
        return self._part(0)

    @property
    def reach(self) -> Amounts:
        """Return every node's capacity after evicting all its victims."""
        return self._part(1)

    @property
    def largest(self) -> Amounts:
        """Return the largest amount of one victim, by node."""
        return self._part(3)

    @property
    def first(self) -> Amounts:
        """Return the rank, negated creation time, and kind of every node's first victim."""
        return self._rows[4 * len(self._names) :, : len(self._table.rows)]


class BoundsTable:
    """The recently used bounds."""

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, ...], tuple[Kind, ...]], NodeBounds] = {}

    def renew(self, node: "Node") -> None:
        """Mark a node in all of them for an update."""
        for bounds in self._made.values():
            bounds.renew(node)

    def of(
        self,
        nodes: "NodeTable",
        victims_on: "Callable[[Node], NodeVictims]",
        names: tuple[str, ...],
        kinds: "tuple[Kind, ...]",
    ) -> NodeBounds:
        """Return the bounds for some kinds and types, up to date."""
        found = self._made.pop((names, kinds), None)
        if found is None:
            found = NodeBounds(nodes, victims_on, names, kinds)
            if len(self._made) >= MAX_BOUNDS:
                del self._made[next(iter(self._made))]
        self._made[names, kinds] = found
        found.follow()
        return found
