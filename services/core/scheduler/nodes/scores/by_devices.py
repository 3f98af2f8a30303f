"""Scores of nodes by their GPU devices, cached by demand.

Rule 1: a score depends on a node's state (``Room``), the demand and the mix of recent asks. It is
        cached for each demand and state while the mix is unchanged. Of nodes in one state one is
        scored: all with free capacity at once, or only the few that changed.
Rule 2: recent asks are counted only while such a score is in use.
Limits: MAX_DEMANDS demands; the least recently used is dropped. All are dropped when the core
restarts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Demand, Shape
from services.core.scheduler.nodes.columns import NodeColumns, When
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.node_view import ELIGIBLE
from services.core.scheduler.nodes.scores.base import NodeScore, Scored
from services.core.scheduler.nodes.scores.mix import DeviceRule, Mix, Numbers, Room, Rooms
from shared.messages.constraints import NO_CONSTRAINTS, Constraints
from shared.model.gpus import WHOLE, Devices
from shared.model.resources import MEMORY, VCORE

MAX_DEMANDS = 500  # shapes with cached scores of all nodes; more are computed again
MAX_STATES = 10_000  # states of nodes, besides two a node; with more all are renumbered


class _Rooms:
    """The free capacity of nodes, as scores read it."""

    def __init__(self, scored: Scored) -> None:
        self._columns: NodeColumns = scored.columns
        self._views, self._devices = scored.views, scored.devices

    def of_rows(self, rows: Numbers, sets: Sequence[Constraints]) -> Rooms:
        """Return the free capacity of rows, and whether each set of constraints allows them."""
        free, number = self._devices.rows.open(rows)
        amounts = (self._columns.amounts(name, When.NOW, rows) for name in (VCORE, MEMORY))
        vcore, memory = (number * 0 if found is None else found for found in amounts)
        open_to = [None if s == NO_CONSTRAINTS else self._open_to(s)[rows] for s in sets]
        return Rooms(free, vcore, memory, number, open_to)

    def of_node(self, node: Node, sets: Sequence[Constraints]) -> Room:
        """Return the same for one node."""
        numbers, available = self._columns.numbers, self._columns.available
        vcore, memory = (
            available.item(node.row, numbers[name]) if name in numbers else 0
            for name in (VCORE, MEMORY)
        )
        open_to = [s == NO_CONSTRAINTS or self._open_to(s).item(node.row) for s in sets]
        free = sorted([max(left, 0) for left in open_devices(node)], reverse=True)
        return Room(tuple(free), vcore, memory, tuple(open_to))

    def _open_to(self, constraints: Constraints) -> NDArray[np.bool_]:
        return self._views.of(Shape("", {}, constraints)).first[ELIGIBLE]


class _States:
    """Numbers for nodes' states: nodes with equal Room have one number.

    ``_seen`` is the number of changes at a row's last reading, 0: never.
    """

    def __init__(self, scored: Scored, rooms: _Rooms) -> None:
        self._columns, self._changes, self._rooms = scored.columns, scored.changes, rooms
        self._sets: tuple[Constraints, ...] = ()
        self._numbers: dict[Room, int] = {}
        self.rooms: list[Room] = []  # by number
        self._of_row = np.zeros(16, dtype=np.int64)
        self._seen = np.zeros(16, dtype=np.int64)

    def use(self, sets: tuple[Constraints, ...]) -> None:
        """Set the sets of constraints that states distinguish."""
        if sets != self._sets:
            self._sets = sets
            self.forget()

    def forget(self) -> None:
        """Drop all states."""
        self._numbers.clear()
        self.rooms.clear()
        self._seen[:] = 0

    @property
    def are_many(self) -> bool:
        """Whether most states are outdated."""
        return len(self.rooms) > MAX_STATES + 2 * len(self._columns.rows)

    def of(self, rows: Numbers) -> Numbers:
        """Return the state numbers of some rows."""
        self._grow()
        for row in rows[self._columns.changed[rows] >= self._seen[rows]].tolist():
            self._update(self._columns.rows[row])
        return self._of_row[rows]

    def of_one(self, node: Node) -> int:
        """Return the state number of one node."""
        self._grow()
        if node.changed >= self._seen.item(node.row):
            self._update(node)
        return self._of_row.item(node.row)

    def _update(self, node: Node) -> None:
        room = self._rooms.of_node(node, self._sets)
        number = self._numbers.setdefault(room, len(self.rooms))
        if number == len(self.rooms):
            self.rooms.append(room)
        self._of_row[node.row] = number
        self._seen[node.row] = self._changes()

    def _grow(self) -> None:
        missing = len(self._columns.rows) - self._seen.size
        if missing > 0:
            more = missing + self._seen.size
            self._of_row = np.pad(self._of_row, (0, more))
            self._seen = np.pad(self._seen, (0, more))


@dataclass(slots=True, eq=False)
class _Known:
    """By state number: the score for one demand, and the free part of the chosen device."""

    mix: Mix
    is_there: NDArray[np.bool_]
    scores: Numbers
    picked: Numbers

    def record(self, numbers: int | Numbers, scores: int | Numbers, picked: int | Numbers) -> None:
        """Set the scores of some states."""
        self.is_there[numbers] = True
        self.scores[numbers] = scores
        self.picked[numbers] = picked


class ByDevices(NodeScore):
    """A score by demand; a subclass defines its ``rule``."""

    looks_at_ask = True
    chooses_devices = True
    rule: DeviceRule

    def __init__(self, scored: Scored) -> None:
        super().__init__(scored)
        self._recent = scored.recent
        self._last: Mix | None = None
        self._known: dict[Demand, _Known] = {}
        self._rooms = _Rooms(scored)
        self._states = _States(scored, self._rooms)

    def of_rows(self, rows: Numbers, shape: Shape) -> NDArray[Any]:
        demand = shape.asked_for[0]
        mix, states = self._mix_now(), self._states.of(rows)
        known = self._known_for(demand, mix)
        missing = np.flatnonzero(~known.is_there[states])
        if missing.size:
            last = np.zeros(len(self._states.rooms), dtype=np.int64)
            last[states[missing]] = missing  # one row of each state is scored
            some = missing[last[states[missing]] == missing]
            rooms = self._rooms.of_rows(rows[some], mix.constraints)
            known.record(states[some], *self.rule.of_many(mix, rooms, demand))
        return known.scores[states]

    def of_few(self, nodes: Sequence[Node], shape: Shape) -> list[Any]:
        demand = shape.asked_for[0]
        mix, states = self._mix_now(), [*map(self._states.of_one, nodes)]
        known = self._known_for(demand, mix)
        for state in states:
            if not known.is_there.item(state):
                known.record(state, *self.rule.of_one(mix, self._states.rooms[state], demand))
        return [known.scores.item(state) for state in states]

    def device_for(self, node: Node, demand: Demand) -> Devices:
        """Return the device for a share of one device; other demands get the default ones."""
        free = open_devices(node)
        need = (demand.size, demand.number)
        if demand.number != 1 or demand.size == WHOLE:
            return devices.choose(free, need)
        mix, state = self._mix_now(), self._states.of_one(node)
        known = self._known.get(demand)
        is_known = known is not None and known.mix is mix and state < known.is_there.size
        if known is not None and is_known and known.is_there[state]:
            picked = known.picked.item(state)
        else:
            picked = self.rule.of_one(mix, self._states.rooms[state], demand)[1]
        if picked < demand.size or picked not in free:
            return devices.choose(free, need)
        return ((free.index(picked), demand.size),)

    def _known_for(self, demand: Demand, mix: Mix) -> _Known:
        """Return the cached scores for a demand, sized for all states."""
        count = len(self._states.rooms)
        known = self._known.pop(demand, None)
        if known is None and len(self._known) >= MAX_DEMANDS:
            del self._known[next(iter(self._known))]
        if known is None or known.mix is not mix or known.is_there.size < count:
            more = 2 * count + 16
            is_there, scores = np.zeros(more, dtype=np.bool_), np.zeros(more, dtype=np.int64)
            known = _Known(mix, is_there, scores, scores.copy())
        self._known[demand] = known  # most recently used last
        return known

    def _mix_now(self) -> Mix:
        """Return the present mix; earlier state numbers may be invalid after this call."""
        mix = self._recent.mix
        if mix is not self._last:
            self._last = mix
            self._states.use(mix.constraints)
        if self._states.are_many:
            self._states.forget()
            self._known.clear()
        return mix
