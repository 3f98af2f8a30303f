"""How many of each priority there are, and which is the highest.

Cost: O(log n) a priority that comes or goes, among n of them; a count that changes, the only
priority and the highest cost nothing that grows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from services.core.scheduler.model.lazy_heap import SMALL_HEAP

NO_PRIORITY = -(2**31)


@dataclass(slots=True, repr=False)
class PriorityCounts:
    """Counts by priority; what is counted down to nothing is forgotten.

    ``highest`` is the highest of which there is any, NO_PRIORITY where there is none.
    """

    counts: dict[int, int] = field(default_factory=dict)
    highest: int = NO_PRIORITY
    _lower: list[int] = field(default_factory=list, compare=False)  # negative; may name those gone

    def change(self, priority: int, by: int) -> None:
        """Count so many of a priority in, or out."""
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
        """Enter the lower one of the highest and a priority that there was none of."""
        heappush(self._lower, -min(priority, self.highest))
        self.highest = max(priority, self.highest)
        if len(self._lower) > SMALL_HEAP + 2 * len(self.counts):
            self._lower = [-each for each in self.counts if each != self.highest]
            heapify(self._lower)

    def _leave(self) -> None:
        """Find the highest of the lower ones: of the highest there is none any more."""
        while -self._lower[0] not in self.counts:
            heappop(self._lower)
        self.highest = -heappop(self._lower)

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.counts)
