"""An index of needs: which of many amounts fit a capacity is one numpy comparison.

A table has keys and their needs, in order of arrival. Amounts beyond int64 are saturated, which may
only return a key too many: the caller checks the few results by the ledgers. ``Waiters`` adds keys
without a known need.
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
_SMALL = 32  # rows; a table is compacted when more than half of them, and so many, are empty


class NeedTable(Generic[K]):
    """Keys by their needs. Cost: O(1) amortised for a change, O(rows) in numpy for a query."""

    def __init__(self) -> None:
        self.rows: dict[K, int] = {}  # in order of arrival
        self._keys: list[K | None] = []
        self._columns: dict[str, int] = {}
        self._needs: NDArray[np.int64] = np.full((_SMALL, 4), INT64_MIN, dtype=np.int64)

    def add(self, key: K, need: ResourceView) -> None:
        """Add a key at the end; a known one is unchanged."""
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
        """Remove a key, if it is there."""
        row = self.rows.pop(key, None)
        if row is None:
            return
        self._keys[row] = None
        self._needs[row] = INT64_MIN
        if len(self._keys) > _SMALL + 2 * len(self.rows):
            self._close_ranks()

    def fitting(self, room: ResourceView, unnamed: int = 0) -> list[K]:
        """Return the keys whose need fits a capacity, in order of arrival.

        ``unnamed`` is the capacity of types that ``room`` does not name.
        """
        if not self.rows:
            return []
        least = np.zeros(len(self._columns), dtype=np.int64)
        for name, column in self._columns.items():
            least[column] = saturated(room.get(name, unnamed))
        needs = self._needs[: len(self._keys), : len(self._columns)]
        rows = np.flatnonzero((needs <= least).all(axis=1))
        found = filter(_IS_KEY, map(self._keys.__getitem__, rows.tolist()))
        return cast(list[K], [*found])  # without removed keys

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
    """The entries of a waiting list, with or without a known need."""

    def __init__(self) -> None:
        self._by_need: NeedTable[K] = NeedTable()
        self._others: dict[K, None] = {}

    def add(self, key: K, need: ResourceView | None) -> None:
        """Add an entry with its need; None: it is always tried."""
        self.discard(key)
        if need is None:
            self._others[key] = None
        else:
            self._by_need.add(key, need)

    def discard(self, key: K) -> None:
        """Remove an entry, if it is there."""
        self._by_need.discard(key)
        self._others.pop(key, None)

    def to_try(self, room: ResourceView, unnamed: int = INT64_MAX) -> list[K]:
        """Return the entries that may fit a capacity.

        ``unnamed`` is the capacity of types that ``room`` does not name.
        """
        return [*self._others, *self._by_need.fitting(room, unnamed=unnamed)]

    def __iter__(self) -> Iterator[K]:
        yield from self._others
        yield from self._by_need

    def __len__(self) -> int:
        return len(self._others) + len(self._by_need)

    def __bool__(self) -> bool:
        """Whether there are any entries; called at every release, so it is fast."""
        return bool(self._others or self._by_need.rows)
