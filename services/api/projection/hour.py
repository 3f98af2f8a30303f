"""The last hour of a partition: what queues, users and groups used, what waited, was evicted.

A point has the state at its half minute, and the evictions since the previous point. It is taken
before the next message changes the model, and only while the partition follows its core. Where
nothing was known there is no point, and charts have a gap.

Limits: MAX_POINTS points, MAX_QUEUES queues, MAX_USERS users and MAX_GROUPS groups in each; those
that come later have no history.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.api.projection.model import ApplicationView, Model
from shared.model.resources import Resource, add_into
from shared.model.units import seconds

MAX_POINTS = 120
MAX_QUEUES = 500
MAX_USERS = 500
MAX_GROUPS = 500
EVERY_NS = seconds(30)


@dataclass(frozen=True, slots=True)
class UsePoint:
    """A queue with those below it, a user or a group: its use, and what its waiting pods request.

    ``most``: the queue's max; None: it has none, or is no queue. ``waiting``: pods without
    a place. ``evicted``: pods since the point before.
    """

    allocated: Mapping[str, int]
    pending: Mapping[str, int]
    most: Mapping[str, int] | None
    waiting: int
    evicted: int


Point = tuple[int, dict[str, UsePoint]]  # time in ns; queues by path, else by name


@dataclass(slots=True)
class Hour:
    """The newest points, the oldest first."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))  # of queues
    users: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    _evicted: Counter[str] = field(default_factory=Counter)  # by the path of the queue
    _evicted_of: Counter[str] = field(default_factory=Counter)  # by the name of the user
    groups: deque[Point] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    _evicted_in: Counter[str] = field(default_factory=Counter)  # by the name of the group

    def note_eviction(self, path: str, user: str, group: str) -> None:
        """Count an eviction for the victim's user, group, queue and parent queues."""
        for each in _with_those_above(path):
            if each in self._evicted or len(self._evicted) < MAX_QUEUES:
                self._evicted[each] += 1
        if user and (user in self._evicted_of or len(self._evicted_of) < MAX_USERS):
            self._evicted_of[user] += 1
        if group and (group in self._evicted_in or len(self._evicted_in) < MAX_GROUPS):
            self._evicted_in[group] += 1

    def take(self, model: Model, time_ns: int) -> None:
        """Add a point. A time that is not later than the last one is ignored."""
        if self.points and time_ns <= self.points[-1][0]:
            return
        waiting = _waiting(model)
        found: dict[str, UsePoint] = {}
        for path, queue in model.queues.items():
            if len(found) == MAX_QUEUES:
                break
            found[path] = UsePoint(
                queue.allocated,
                queue.pending,
                queue.max_resource,
                waiting[path],
                self._evicted[path],
            )
        _append(self.points, time_ns, found)
        users, groups = _Sums(MAX_USERS), _Sums(MAX_GROUPS)
        for view in model.applications.values():
            users.add(view.summary.user, view)
            groups.add(view.summary.group, view)
        _append(self.users, time_ns, users.points(self._evicted_of))
        _append(self.groups, time_ns, groups.points(self._evicted_in))
        for counts in (self._evicted, self._evicted_of, self._evicted_in):
            counts.clear()

    def go_on_from(self, before: "Hour") -> None:
        """Prepend the points of a previous projection."""
        first_ns = self.points[0][0] if self.points else None

        def joined(older: deque[Point], own: deque[Point]) -> deque[Point]:
            kept = [item for item in older if first_ns is None or item[0] < first_ns]
            return deque([*kept, *own], maxlen=MAX_POINTS)

        self.points = joined(before.points, self.points)
        self.users = joined(before.users, self.users)
        self.groups = joined(before.groups, self.groups)

    def of(self, path: str) -> Iterator[tuple[int, UsePoint]]:
        """Yield the points of a queue with their times, the oldest first."""
        return _named(self.points, path)

    def of_user(self, name: str) -> Iterator[tuple[int, UsePoint]]:
        """Yield the points of a user with their times, the oldest first."""
        return _named(self.users, name)

    def of_group(self, name: str) -> Iterator[tuple[int, UsePoint]]:
        """Yield the points of a group with their times, the oldest first."""
        return _named(self.groups, name)


def _named(points: deque[Point], name: str) -> Iterator[tuple[int, UsePoint]]:
    for time_ns, found in points:
        if name in found:
            yield time_ns, found[name]


def _append(points: deque[Point], time_ns: int, found: dict[str, UsePoint]) -> None:
    """Add a point; values unchanged since the last one are stored once."""
    last = points[-1][1] if points else {}
    kept = {name: last[name] if last.get(name) == point else point for name, point in found.items()}
    points.append((time_ns, kept))


@dataclass(slots=True)
class _Sums:
    """Sums over live applications, by their user or group."""

    limit: int
    _of: dict[str, tuple[Resource, Resource, list[int]]] = field(default_factory=dict)

    def add(self, name: str, view: ApplicationView) -> None:
        """Add an application to those of a name; "" is none."""
        if not name or (name not in self._of and len(self._of) == self.limit):
            return
        allocated, pending, waiting = self._of.setdefault(name, ({}, {}, [0]))
        add_into(allocated, view.summary.allocated)
        add_into(allocated, view.summary.allocated_placeholder)
        add_into(pending, view.summary.pending)
        waiting[0] += len(view.asks)

    def points(self, evicted: Counter[str]) -> dict[str, UsePoint]:
        """Return a point for each name."""
        return {
            name: UsePoint(allocated, pending, None, waiting, evicted[name])
            for name, (allocated, pending, (waiting,)) in self._of.items()
        }


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
