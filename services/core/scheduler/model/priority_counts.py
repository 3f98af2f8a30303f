"""Counts by priority, and the highest one.

Cost: O(log n) if a priority is added or removed, among n; other changes are O(1).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from services.core.scheduler.model.lazy_heap import SMALL_HEAP

NO_PRIORITY = -(2**31)


@dataclass(slots=True, repr=False)
class PriorityCounts:
    """Counts by priority, without zeros.

    ``highest`` is the highest priority with a count, NO_PRIORITY if there is none.
    """

    counts: dict[int, int] = field(default_factory=dict)
    highest: int = NO_PRIORITY
    _lower: list[int] = field(default_factory=list, compare=False)  # negated; may be stale

    def change(self, priority: int, by: int) -> None:
        """Change the count of a priority."""
        counts = self.counts
        count = counts.get(priority)
        if count is None:
            counts[priority] = by
            if len(counts) == 1:
                self.highest = priority
            else:
                self._enter(priority)
        elif count + by:
            counts[priority] = count + by
        else:
            del counts[priority]
            if not counts:
                self.highest = NO_PRIORITY
            elif priority == self.highest:
                self._leave()

    def _enter(self, priority: int) -> None:
        """Add a new priority."""
        heappush(self._lower, -min(priority, self.highest))
        self.highest = max(priority, self.highest)
        if len(self._lower) > SMALL_HEAP + 2 * len(self.counts):
            self._lower = [-each for each in self.counts if each != self.highest]
            heapify(self._lower)

    def _leave(self) -> None:
        """Find the highest after the former highest was removed."""
        while -self._lower[0] not in self.counts:
            heappop(self._lower)
        self.highest = -heappop(self._lower)

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.counts)
