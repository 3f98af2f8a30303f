"""What the classes of waiting gangs need of the nodes, as one matrix.

A row is a shape, an entry a shape of a class: the number of members without places. How often every
shape fits on some nodes is one numpy step. An entry is due from a node's improvement until its
class is tried, or the nodes fit fewer members than it needs.
Cost: O(shapes x nodes that fit the smallest), in numpy.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import EquivalenceClass
from services.core.scheduler.model.shapes import Shape
from shared.model.numbers import INT64_MAX, INT64_MIN, saturated

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]
MANY = 1 << 31  # how often a shape without amounts fits on a node
CELLS = 1 << 19  # matrix cells computed in one step
_SMALL = 32


class GangNeeds:
    """Classes by the shapes for which they lack places, and which of them are due."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}  # of the columns, by resource type
        self._row_of: dict[Shape, int] = {}
        self._entries_of: dict[EquivalenceClass, list[int]] = {}
        self._shapes: list[Shape | None] = []  # by row
        self._users: list[int] = []  # number of entries, by row
        self._free_rows: list[int] = []
        self._needs: Amounts = np.full((_SMALL, 4), INT64_MAX, dtype=np.int64)
        self._run_ns: Amounts = np.zeros(_SMALL, dtype=np.int64)
        self._expected_ns: Amounts = np.zeros(_SMALL, dtype=np.int64)
        self._of_pods: Mask = np.zeros(_SMALL, dtype=np.bool_)
        self._classes: list[EquivalenceClass | None] = []  # by entry
        self._free_entries: list[int] = []
        self._row: Amounts = np.zeros(_SMALL, dtype=np.int64)  # by entry
        self._members: Amounts = np.zeros(_SMALL, dtype=np.int64)
        self._due: Mask = np.zeros(_SMALL, dtype=np.bool_)

    def add(self, waiting: EquivalenceClass, lacking: Mapping[Shape, int]) -> None:
        """Add a class that lacks places for ``lacking`` of each shape; it is not due."""
        self._entries_of[waiting] = [
            self._entry(waiting, self._row_for(shape), members)
            for shape, members in lacking.items()
        ]

    def remove(self, waiting: EquivalenceClass) -> None:
        """Remove a class, if it is known."""
        for entry in self._entries_of.pop(waiting, ()):
            row = int(self._row[entry])
            self._classes[entry] = None
            self._due[entry] = False
            self._members[entry] = INT64_MAX  # never fits
            self._free_entries.append(entry)
            self._users[row] -= 1
            shape = self._shapes[row]
            if not self._users[row] and shape is not None:
                del self._row_of[shape]
                self._shapes[row] = None
                self._of_pods[row] = False
                self._needs[row] = INT64_MAX
                self._free_rows.append(row)

    # --- due entries ----------------------------------------------------------------------------

    def mark(self, room: Amounts) -> None:
        """Mark entries as due that fit one of some nodes: a row a node, a column a type."""
        self._mark(self._go_on_one(room))

    def mark_for_pods(self) -> None:
        """Mark entries as due whose shapes have pod affinities."""
        self._mark(self._of_pods[: len(self._shapes)])

    def _mark(self, rows: Mask) -> None:
        count = len(self._classes)
        if count:
            self._due[:count] |= rows[self._row[:count]]

    def drop(self, waiting: EquivalenceClass) -> None:
        """Mark a class as no longer due."""
        self._due[self._entries_of.get(waiting, [])] = False

    def keep_fitting(
        self, room: Amounts, room_in_time: Amounts | None, most_ns: int, predicted_ns: int
    ) -> bool:
        """Drop due entries that need more than the capacity ``room``; return whether any is left.

        ``room_in_time`` is additional capacity for shapes that run for ``most_ns`` at most, or that
        state nothing and are predicted to run for ``predicted_ns`` at most.
        """
        count = len(self._classes)
        due = self._due[:count]
        if not due.any():
            return False
        times = self._times(room)
        if room_in_time is not None:
            run_ns, expected_ns = (
                each[: len(self._shapes)] for each in (self._run_ns, self._expected_ns)
            )
            in_time = (run_ns > 0) & (run_ns <= most_ns)
            in_time |= (run_ns == 0) & (expected_ns > 0) & (expected_ns <= predicted_ns)
            if in_time.any():
                times += np.where(in_time, self._times(room_in_time), 0)
        due &= times[self._row[:count]] >= self._members[:count]
        return bool(due.any())

    def due(self) -> Iterator[tuple[EquivalenceClass, Shape, int]]:
        """Yield the due classes, with a shape and the number of places that it needs."""
        for entry in np.flatnonzero(self._due[: len(self._classes)]).tolist():
            waiting, shape = self._classes[entry], self._shapes[self._row[entry]]
            if waiting is not None and shape is not None:
                yield waiting, shape, int(self._members[entry])

    def _times(self, room: Amounts) -> Amounts:
        """Return how often each shape fits on all of some nodes together."""
        total: Amounts = np.zeros(len(self._shapes), dtype=np.int64)
        for at, needs, free in self._pieces(room):
            found: Amounts = np.full((needs.shape[0], free.shape[0]), MANY, dtype=np.int64)
            for column in range(needs.shape[1]):
                asked = np.flatnonzero(needs[:, column] > 0)
                if asked.size:
                    fits = free[:, column] // needs[asked, column][:, None]
                    found[asked] = np.minimum(found[asked], fits)
            total[at] = np.maximum(found, 0).sum(axis=1)
        return total

    def _go_on_one(self, room: Amounts) -> Mask:
        """Return which shapes fit on one of some nodes."""
        result: Mask = np.zeros(len(self._shapes), dtype=np.bool_)
        for at, needs, free in self._pieces(room):
            found: Mask = np.ones((needs.shape[0], free.shape[0]), dtype=np.bool_)
            for column in range(needs.shape[1]):
                found &= needs[:, column][:, None] <= np.maximum(free[:, column], 0)
            result[at] = found.any(axis=1)
        return result

    def _pieces(self, room: Amounts) -> Iterator[tuple[slice, Amounts, Amounts]]:
        """Yield slices of shapes that keep a step small, with the nodes that fit the smallest."""
        count = len(self._shapes)
        needs = self._needs[:count, : len(self.names)]
        if not count or not room.shape[0]:
            return
        least = needs.min(axis=0)
        least[least <= 0] = INT64_MIN  # not requested: a node's free amount may be negative
        free = room[(room >= least).all(axis=1)]
        step = max(1, CELLS // max(1, free.shape[0]))
        for begin in range(0, count if free.shape[0] else 0, step):
            at = slice(begin, min(begin + step, count))
            yield at, needs[at], free

    # --- rows -----------------------------------------------------------------------------------

    def _row_for(self, shape: Shape) -> int:
        row = self._row_of.get(shape)
        if row is not None:
            return row
        # A required node may be closed: other nodes' free capacity is irrelevant then.
        needs = {} if shape.constraints.required_node else shape.resource
        columns = {self._column(name): value for name, value in needs.items() if value > 0}
        if self._free_rows:
            row = self._free_rows.pop()
            self._shapes[row] = shape
        else:
            row = len(self._shapes)
            self._shapes.append(shape)
            self._users.append(0)
            if row == self._run_ns.size:
                self._needs = np.pad(self._needs, ((0, row), (0, 0)), constant_values=INT64_MAX)
                self._run_ns = np.pad(self._run_ns, (0, row))
                self._expected_ns = np.pad(self._expected_ns, (0, row))
                self._of_pods = np.pad(self._of_pods, (0, row))
        self._needs[row] = 0
        for column, value in columns.items():
            self._needs[row, column] = saturated(value)
        self._run_ns[row] = saturated(shape.run_ns)
        self._expected_ns[row] = saturated(shape.expected_ns)
        self._of_pods[row] = bool(shape.labels) or shape.constraints.asks_about_pods
        self._row_of[shape] = row
        return row

    def _column(self, name: str) -> int:
        column = self.names.get(name)
        if column is None:
            column = self.names[name] = len(self.names)
            if column == self._needs.shape[1]:
                self._needs = np.pad(self._needs, ((0, 0), (0, column)))
            self._needs[self._needs[:, 0] < INT64_MAX, column] = 0
        return column

    def _entry(self, waiting: EquivalenceClass, row: int, members: int) -> int:
        if self._free_entries:
            entry = self._free_entries.pop()
            self._classes[entry] = waiting
        else:
            entry = len(self._classes)
            self._classes.append(waiting)
            if entry == self._row.size:
                self._row = np.pad(self._row, (0, entry))
                self._members = np.pad(self._members, (0, entry))
                self._due = np.pad(self._due, (0, entry))
        self._row[entry], self._members[entry] = row, saturated(members)
        self._due[entry] = False
        self._users[row] += 1
        return entry
