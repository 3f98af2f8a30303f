"""A heap with lazy deletion: the first valid entry is found in O(log n)."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Entry = tuple[tuple[Any, ...], int, int, Item]
SMALL_HEAP = 64  # smallest size at which a heap drops its stale entries


class LazyHeap(Generic[Item]):
    """Items by key; an entry is valid while the stamp it was pushed with is its item's stamp.

    Limit: stale entries are dropped whenever the heap has doubled.
    """

    def __init__(self, stamp_of: Callable[[Item], int]) -> None:
        self._stamp_of = stamp_of
        self._heap: list[Entry[Item]] = []
        self._pushed = 0  # breaks ties of one key
        self._compact_at = SMALL_HEAP

    def push(self, key: tuple[Any, ...], stamp: int, item: Item) -> None:
        """Add an item with a key and its stamp."""
        self._pushed += 1
        heappush(self._heap, (key, self._pushed, stamp, item))
        if len(self._heap) > self._compact_at:
            self._heap = [entry for entry in self._heap if entry[2] == self._stamp_of(entry[3])]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def first(self) -> tuple[tuple[Any, ...], Item] | None:
        """Return the first valid item with its key, or None."""
        while self._heap:
            key, _, stamp, item = self._heap[0]
            if stamp == self._stamp_of(item):
                return key, item
            heappop(self._heap)
        return None

    def entries(self) -> Iterator[tuple[tuple[Any, ...], Item]]:
        """Yield the valid items with their keys, unordered."""
        for key, _, stamp, item in self._heap:
            if stamp == self._stamp_of(item):
                yield key, item

    def __len__(self) -> int:
        return len(self._heap)
