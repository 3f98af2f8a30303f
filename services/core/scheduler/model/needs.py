"""Needs side by side: which of many amounts fit a room is one comparison of a matrix with a row.

A table holds keys and what each needs, in the order in which they came. It answers which of them
fit a room; it knows nothing of what keys or rooms are. Amounts beyond int64 count as the number
nearest to them, which can only name a key too many: who asks compares the few that are named by
the ledgers. ``Waiters`` adds those without a known need.
"""

from collections.abc import Callable, Iterator
from functools import partial
from operator import is_not
from typing import Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from shared.model.numbers import INT64_MAX, INT64_MIN, saturated
from shared.model.resources import ResourceView

K = TypeVar("K")
_IS_KEY: Callable[[object], bool] = partial(is_not, None)
_SMALL = 32  # rows; a table is made again when more than half of its rows, and so many, are empty


class NeedTable(Generic[K]):
    """Keys by what they need. Cost: O(1) a change on average; a question is O(rows) in numpy."""

    def __init__(self) -> None:
        self.rows: dict[K, int] = {}  # in order: a key that comes later has a later row
        self._keys: list[K | None] = []
        self._columns: dict[str, int] = {}
        self._needs: NDArray[np.int64] = np.full((_SMALL, 4), INT64_MIN, dtype=np.int64)

    def add(self, key: K, need: ResourceView) -> None:
        """Enter a key at the end; one that is there stays as it is."""
        if key in self.rows:
            return
        row = len(self._keys)
        if row == self._needs.shape[0]:
            self._needs = np.pad(self._needs, ((0, row), (0, 0)), constant_values=INT64_MIN)
        for name, value in need.items():
            if value > 0:
                column = self._column(name)
                self._needs[row, column] = saturated(value)
        self.rows[key] = row
        self._keys.append(key)

    def discard(self, key: K) -> None:
        """Take a key out, if it is there."""
        row = self.rows.pop(key, None)
        if row is None:
            return
        self._keys[row] = None
        self._needs[row] = INT64_MIN
        if len(self._keys) > _SMALL + 2 * len(self.rows):
            self._close_ranks()

    def fitting(self, room: ResourceView, unnamed: int = 0) -> list[K]:
        """Return the keys whose need is within a room, in the order in which they came.

        ``unnamed`` is what there is of a type that the room does not name.
        """
        if not self.rows:
            return []
        least = np.zeros(len(self._columns), dtype=np.int64)
        for name, column in self._columns.items():
            least[column] = saturated(room.get(name, unnamed))
        needs = self._needs[: len(self._keys), : len(self._columns)]
        rows = np.flatnonzero((needs <= least).all(axis=1))
        found = filter(_IS_KEY, map(self._keys.__getitem__, rows.tolist()))
        return cast(list[K], [*found])  # without the rows of those that were taken out

    def __contains__(self, key: object) -> bool:
        return key in self.rows

    def __iter__(self) -> Iterator[K]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _column(self, name: str) -> int:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self._columns)
            if column == self._needs.shape[1]:
                wider = ((0, 0), (0, column))
                self._needs = np.pad(self._needs, wider, constant_values=INT64_MIN)
        return column

    def _close_ranks(self) -> None:
        kept = list(self.rows.values())
        needs = np.full((max(_SMALL, 2 * len(kept)), self._needs.shape[1]), INT64_MIN)
        needs[: len(kept)] = self._needs[kept]
        self._needs = needs
        self._keys = list(self.rows)
        self.rows = {key: row for row, key in enumerate(self.rows)}


class Waiters(Generic[K]):
    """One waiting list: those with a known need of room, and others."""

    def __init__(self) -> None:
        self._by_need: NeedTable[K] = NeedTable()
        self._others: dict[K, None] = {}

    def add(self, key: K, need: ResourceView | None) -> None:
        """Let one wait for so much room; None: for any."""
        self.discard(key)
        if need is None:
            self._others[key] = None
        else:
            self._by_need.add(key, need)

    def discard(self, key: K) -> None:
        """Let one wait no more, if it does."""
        self._by_need.discard(key)
        self._others.pop(key, None)

    def to_try(self, room: ResourceView, unnamed: int = INT64_MAX) -> list[K]:
        """Return those that a room might hold; a type that it does not name is unlimited.

        ``unnamed`` is another amount of those types.
        """
        return [*self._others, *self._by_need.fitting(room, unnamed=unnamed)]

    def __iter__(self) -> Iterator[K]:
        yield from self._others
        yield from self._by_need

    def __len__(self) -> int:
        return len(self._others) + len(self._by_need)

    def __bool__(self) -> bool:
        """Return whether any waits: it is asked at every release."""
        return bool(self._others or self._by_need.rows)
