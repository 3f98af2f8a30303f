"""The last hour of a partition: what its queues used, what waited in them, what was evicted.

A point is what was so at its half minute, and the evictions since the point before. It is taken
before the next message changes the model, and only while the partition follows its core: where
nothing was known there is no point, and whoever draws them leaves a gap.

Limits: MAX_POINTS points, MAX_QUEUES queues in each; those that come later have no history.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.api.projection.model import Model
from shared.model.units import seconds

MAX_POINTS = 120
MAX_QUEUES = 500
EVERY_NS = seconds(30)


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """A queue with those below it: what it used, what its pods that waited asked for, its max.

    ``waiting``: pods without a place. ``evicted``: pods since the point before.
    """

    allocated: Mapping[str, int]
    pending: Mapping[str, int]
    most: Mapping[str, int] | None
    waiting: int
    evicted: int


Point = tuple[int, dict[str, QueuePoint]]  # time in ns, and each queue by its path


@dataclass(slots=True)
class Hour:
    """The newest points, the oldest first."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    _evicted: Counter[str] = field(default_factory=Counter)

    def note_eviction(self, path: str) -> None:
        """Count an eviction for the queue of the victim, and those above it."""
        for each in _with_those_above(path):
            if each in self._evicted or len(self._evicted) < MAX_QUEUES:
                self._evicted[each] += 1

    def take(self, model: Model, time_ns: int) -> None:
        """Add a point. Times grow: one that is not later than the last changes nothing."""
        if self.points and time_ns <= self.points[-1][0]:
            return
        last = self.points[-1][1] if self.points else {}
        waiting = _waiting(model)
        found: dict[str, QueuePoint] = {}
        for path, queue in model.queues.items():
            if len(found) == MAX_QUEUES:
                break
            point = QueuePoint(
                queue.allocated,
                queue.pending,
                queue.max_resource,
                waiting[path],
                self._evicted[path],
            )
            known = last.get(path)
            found[path] = known if known is not None and known == point else point
        self.points.append((time_ns, found))
        self._evicted.clear()

    def go_on_from(self, before: "Hour") -> None:
        """Put the points that another had before in front of one's own."""
        first_ns = self.points[0][0] if self.points else None
        older = [item for item in before.points if first_ns is None or item[0] < first_ns]
        self.points = deque([*older, *self.points], maxlen=MAX_POINTS)

    def of(self, path: str) -> Iterator[tuple[int, QueuePoint]]:
        """Yield the points of a queue with their times, the oldest first."""
        for time_ns, queues in self.points:
            if path in queues:
                yield time_ns, queues[path]


def _waiting(model: Model) -> Counter[str]:
    """Return how many pods wait in each queue, those below it included."""
    found: Counter[str] = Counter()
    for view in model.applications.values():
        if view.asks:
            for path in _with_those_above(view.summary.queue_name):
                found[path] += len(view.asks)
    return found


def _with_those_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
