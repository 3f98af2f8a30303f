"""Shapes: asks that are alike are placed, refused and woken together.

A Shape is a request and its constraints, one object for the whole partition. In a leaf queue the
asks of one shape share a Bucket: whatever refuses one of them (a quota on the path, no node with
the room) refuses them all, so it is found out once, and kept until something that could change
it happens. That is why a decision does not cost more when more applications wait. Where limits of
users or groups apply, those of one owner share a bucket.

Inside an application the asks of one shape, priority and task group are an AskGroup, in order of
creation. A bucket orders the heads of its groups by their applications.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from shared.messages.constraints import NO_CONSTRAINTS, Constraints
from shared.messages.interface import AllocationAsk
from shared.model.reasons import Refusal

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application
    from services.core.scheduler.model.gates import Gate, PluginGate
    from services.core.scheduler.model.preemptors import Preemptors
    from services.core.scheduler.model.queues import Queue
    from services.core.scheduler.model.reservations import Reservation
    from services.core.scheduler.model.users import Owner

Labels = tuple[tuple[str, str], ...]
GroupKey = tuple["Shape", int, str, bool, bool]  # with priority, task group, kind of its asks
ShapeKey = tuple[tuple[tuple[str, int], ...], Constraints, Labels]
# What orders asks in a leaf: the application's key, then the ask's.
EntryKey = tuple[Any, ...]
SMALL_HEAP = 64  # a heap sheds its lapsed entries when it has twice what it had then


def in_heap_order(heap: list[Any]) -> Iterator[Any]:
    """Yield a heap's entries, the smallest first, and leave the heap as it is.

    The first k cost O(k log k), however many there are. The heap must not change meanwhile.
    """
    frontier = [(heap[0], 0)] if heap else []
    while frontier:
        entry, at = heappop(frontier)
        yield entry
        for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
            heappush(frontier, (heap[child], child))


@dataclass(slots=True, eq=False, repr=False)
class Shape:
    """A request with its constraints. ``name`` is short and stable within one core's life."""

    name: str
    resource: dict[str, int]
    constraints: Constraints
    labels: Labels = ()  # those that constraints of any pod ask about
    blocked_buckets: dict["Bucket", None] = field(default_factory=dict)  # no node has the room
    reservations: dict["Reservation", None] = field(default_factory=dict)
    # What the room ``nodes`` remembers of it: only that reads and writes these.
    view: Any = None  # what its constraints make of the nodes, and when
    candidates: Any = None  # the first nodes in order that take it
    plan: Any = None  # what its constraints ask of other pods


@dataclass(slots=True)
class LogLine:
    """One text of an ask's allocation log: how often it was said, when last, when last told."""

    count: int = 0
    last_ns: int = 0
    told_ns: int = 0


@dataclass(slots=True, eq=False)
class Ask:
    """An ask that is not allocated. ``sequence`` is the order of arrival.

    ``created_ns`` is when it was made, or where that is not said, when it came.
    """

    request: AllocationAsk
    shape: Shape
    sequence: int
    created_ns: int = 0
    told: str = ""  # who people were told has no headroom for it
    has_preempted: bool = False
    preemption_checked_ns: int = 0
    has_kept_room: bool = False  # in the queues on the path, which nobody else may take
    is_told: bool = False  # to the resource manager, that more nodes would help
    log: dict[str, LogLine] | None = None  # by text; None: it was never refused itself
    is_covered: bool = False  # by placeholders that go for it
    is_mismatch_told: bool = False  # to people, that it is larger than its placeholder
    key: str = field(init=False)
    order: tuple[int, int, int] = field(init=False)  # of asks of one application

    def __post_init__(self) -> None:
        request = self.request
        self.key = request.allocation_key
        self.order = (-request.priority, request.create_time_ns, self.sequence)


@dataclass(slots=True, eq=False, repr=False)
class AskGroup:
    """The asks of one application that differ in nothing but their identity.

    ``asks`` is the truth; ``_heap`` holds their order and may name asks that have gone.
    """

    application: "Application"
    bucket: "Bucket"
    task_group_name: str
    placeholder: bool
    is_covered: bool  # each by placeholders that go for it
    key: "GroupKey"
    asks: dict[str, Ask] = field(default_factory=dict)
    version: int = 0
    unplaced: Refusal | None = None  # why its head could not replace a placeholder
    refused: "tuple[Refusal, PluginGate] | None" = None  # by a plugin's capacity hook
    untold: deque[str] = field(default_factory=deque)  # may name asks that have gone
    told: int = 0  # asks that wait and were told of
    preemptors: "Preemptors | None" = None  # from the first look for victims on
    fresh: list[Ask] | None = None  # what has come since they were looked at last
    _heap: list[tuple[tuple[int, int, int], str]] = field(default_factory=list)

    def add(self, ask: Ask) -> None:
        """Put an ask in its place."""
        self.asks[ask.key] = ask
        if self.fresh is not None:
            self.fresh.append(ask)
        if ask.is_told:
            self.told += 1
            self.bucket.told += 1
        else:
            self.untold.append(ask.key)
            self.bucket.untold[self] = None
        heappush(self._heap, (ask.order, ask.key))

    def remove(self, key: str) -> Ask | None:
        """Take an ask out, or return None when it is not here."""
        ask = self.asks.pop(key, None)
        if ask is not None:
            self.told -= ask.is_told
            self.bucket.told -= ask.is_told
        return ask

    def next_untold(self) -> Ask | None:
        """Return an ask that waits and was not told of, which is not returned again; or None."""
        while self.untold:
            ask = self.asks.get(self.untold.popleft())
            if ask is not None and not ask.is_told:
                return ask
        self.bucket.untold.pop(self, None)
        return None

    def mark_told(self, ask: Ask) -> None:
        """Count an ask among those that people were told of."""
        ask.is_told = True
        self.told += 1
        self.bucket.told += 1

    def head(self) -> Ask | None:
        """Return the first ask, or None."""
        while self._heap:
            order, key = self._heap[0]
            ask = self.asks.get(key)
            if ask is not None and ask.order == order:
                return ask
            heappop(self._heap)
        return None

    def in_order(self) -> Iterator[Ask]:
        """Yield the asks, the first first; no ask may come or go meanwhile."""
        for order, key in in_heap_order(self._heap):
            ask = self.asks.get(key)
            if ask is not None and ask.order == order:
                yield ask


@dataclass(slots=True, eq=False, repr=False)
class Bucket:
    """The ask groups of one shape, and one owner, in one leaf queue, ordered by application.

    ``refusal`` is why none of them can be allocated now; ``blocked_at`` the gate that refused,
    None when it is the nodes that have no room. ``queued`` is the key under which the bucket
    stands in its leaf's heap, None when it does not.
    """

    leaf: "Queue"
    key: "BucketKey"
    refusal: Refusal | None = None
    refused_since_ns: int = 0
    blocked_at: "Gate | None" = None
    groups: dict[AskGroup, None] = field(default_factory=dict)
    untold: dict[AskGroup, None] = field(default_factory=dict)  # with asks to tell of
    told: int = 0  # asks that wait and were told of
    queued: EntryKey | None = None
    stamp: int = 0
    _heap: list[tuple[EntryKey, int, int, AskGroup]] = field(default_factory=list)
    _pushed: int = 0  # tells entries of one key apart
    _compact_at: int = SMALL_HEAP

    @property
    def shape(self) -> Shape:
        """Return the shape of the asks."""
        return self.key[0]

    @property
    def is_blocked_by_user(self) -> bool:
        """Return whether it is a limit of a user or group that refuses."""
        owner = self.key[1] or ()
        return any(tracker.gate is self.blocked_at for tracker in owner)

    def tell_last(self, group: AskGroup) -> None:
        """Let a group with asks to tell of have its turn after the others."""
        self.untold[group] = self.untold.pop(group)

    def push(self, group: AskGroup) -> None:
        """Enter a group, or renew its entry after its order changed; without asks it leaves."""
        group.version += 1
        head = group.head()
        if head is not None:
            self._pushed += 1
            key = group.application.order + head.order
            heappush(self._heap, (key, self._pushed, group.version, group))
        if len(self._heap) > self._compact_at:
            self._heap = [entry for entry in self._heap if entry[2] == entry[3].version]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def unblock(self) -> None:
        """Forget the refusal: something has changed that it stood on."""
        if self.refusal is None:
            return
        self.refusal = None
        self.shape.blocked_buckets.pop(self, None)
        if self.blocked_at is not None:
            self.blocked_at.buckets.discard(self)
            self.blocked_at = None

    def withdraw(self, group: AskGroup) -> None:
        """Let a group's entry lapse: it is held back until it is pushed again."""
        group.version += 1

    def clear(self) -> None:
        """Forget the order: what orders applications has changed, all are to be entered anew."""
        self._heap.clear()
        self.queued = None
        self.stamp += 1

    def first(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the first group with its key, or None."""
        while self._heap:
            key, _, version, group = self._heap[0]
            if version == group.version:
                return key, group
            heappop(self._heap)
        return None

    def in_order(self) -> Iterator[AskGroup]:
        """Yield the groups that may be scheduled, the first first; none may change meanwhile."""
        for _, _, version, group in in_heap_order(self._heap):
            if version == group.version:
                yield group


BucketKey = tuple[Shape, "Owner | None"]
ANY_SHAPE: BucketKey = (Shape("any", {}, NO_CONSTRAINTS), None)  # of a bucket that orders, no more


class BucketHeap:
    """The open buckets of a leaf, ordered by their first groups: the next is found in O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[EntryKey, int, int, Bucket]] = []
        self._pushed = 0
        self._compact_at = SMALL_HEAP

    def push(self, bucket: Bucket) -> None:
        """Enter a bucket, or move it forward because its first group comes earlier now."""
        entry = bucket.first()
        if entry is None or (bucket.queued is not None and bucket.queued <= entry[0]):
            return
        bucket.stamp += 1
        self._pushed += 1
        bucket.queued = entry[0]
        heappush(self._heap, (entry[0], self._pushed, bucket.stamp, bucket))
        if len(self._heap) > self._compact_at:
            self._heap = [held for held in self._heap if held[2] == held[3].stamp]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def withdraw(self, bucket: Bucket) -> None:
        """Let a bucket's entry lapse."""
        bucket.stamp += 1
        bucket.queued = None

    def first(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the first group of all, with its key, or None."""
        while self._heap:
            key, _, stamp, bucket = self._heap[0]
            if stamp == bucket.stamp:
                entry = bucket.first()
                if entry is not None and entry[0] == key:
                    return entry
                heappop(self._heap)
                self.withdraw(bucket)
                self.push(bucket)
            else:
                heappop(self._heap)
        return None

    def clear(self) -> None:
        """Forget the order: what orders applications has changed, all are to be entered anew."""
        self._heap.clear()


class ShapeTable:
    """The shapes that asks have, by what makes them one; a shape without asks is forgotten."""

    def __init__(self) -> None:
        self._shapes: dict[ShapeKey, Shape] = {}
        self._uses: dict[Shape, int] = {}
        self._made = 0

    def shape_of(self, ask: AllocationAsk, labels: Labels = ()) -> Shape:
        """Return the shape of an ask, the same object for every ask like it, and count its use."""
        key = _shape_key(ask.resource_per_alloc, ask.constraints, labels)
        shape = self._shapes.get(key)
        if shape is None:
            self._made += 1
            name = f"shape-{self._made}"
            shape = Shape(name, dict(ask.resource_per_alloc), ask.constraints, labels)
            self._shapes[key] = shape
        self.use(shape, 1)
        return shape

    def use(self, shape: Shape, times: int) -> None:
        """Count uses of a shape."""
        self._uses[shape] = self._uses.get(shape, 0) + times

    def release_shape(self, shape: Shape, times: int = 1) -> bool:
        """Count uses out; return whether that was the last one, and the shape is forgotten."""
        left = self._uses[shape] - times
        if left:
            self._uses[shape] = left
            return False
        del self._uses[shape]
        del self._shapes[_shape_key(shape.resource, shape.constraints, shape.labels)]
        return True

    def __len__(self) -> int:
        return len(self._shapes)


def _shape_key(resource: Mapping[str, int], constraints: Constraints, labels: Labels) -> ShapeKey:
    return (tuple(sorted(resource.items())), constraints, labels)
