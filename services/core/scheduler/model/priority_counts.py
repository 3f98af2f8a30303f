"""How many of each priority there are, and which is the highest.

Cost: O(log n) a priority that comes or goes, among n of them; a count that changes, and the
highest, cost nothing that grows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from services.core.scheduler.model.lapsing import SMALL_HEAP


@dataclass(slots=True, repr=False)
class PriorityCounts:
    """Counts by priority; what is counted down to nothing is forgotten."""

    counts: dict[int, int] = field(default_factory=dict)
    _heap: list[int] = field(default_factory=list, compare=False)  # negative; may name those gone

    def change(self, priority: int, by: int) -> None:
        """Count so many of a priority in, or out."""
        counts = self.counts
        count = counts.get(priority)
        if count is None:
            counts[priority] = by
            heappush(self._heap, -priority)
            if len(self._heap) > SMALL_HEAP + 2 * len(counts):
                self._heap = [-each for each in counts]
                heapify(self._heap)
        elif count + by:
            counts[priority] = count + by
        else:
            del counts[priority]

    def highest(self, default: int) -> int:
        """Return the highest priority of which there is any, or a default."""
        heap, counts = self._heap, self.counts
        while heap:
            found = -heap[0]
            if found in counts:
                return found
            heappop(heap)
        return default

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.counts)
