"""Shapes: asks that are alike are placed, refused and woken together.

A Shape is a request and its constraints, one object for the whole partition. In a leaf queue the
asks of one shape share a Bucket: whatever refuses one of them (a quota on the path, no node with
the room) refuses them all, so it is found out once, and kept until something that could change
it happens. That is why a decision does not cost more when more applications wait.

Inside an application the asks of one shape, priority and task group are an AskGroup, in order of
creation. A bucket orders the heads of its groups by their applications.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from shared.messages.interface import AllocationAsk, Constraints
from shared.model.reasons import Refusal

if TYPE_CHECKING:
    from services.core.scheduler.application import Application
    from services.core.scheduler.queues import Queue

ShapeKey = tuple[tuple[tuple[str, int], ...], Constraints]
# What orders asks in a leaf: the application's key, then the ask's.
EntryKey = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Shape:
    """A request with its constraints. ``name`` is short and stable within one core's life."""

    name: str
    resource: dict[str, int]
    constraints: Constraints
    blocked_buckets: dict["Bucket", None] = field(default_factory=dict)  # no node has the room


@dataclass(slots=True, eq=False)
class Ask:
    """An ask that is not allocated. ``sequence`` is the order of arrival."""

    request: AllocationAsk
    shape: Shape
    sequence: int

    @property
    def key(self) -> str:
        """Return the allocation key."""
        return self.request.allocation_key

    @property
    def order(self) -> tuple[int, int, int]:
        """Return what orders asks of one application: priority, creation, arrival."""
        return (-self.request.priority, self.request.create_time_ns, self.sequence)


@dataclass(slots=True, eq=False)
class AskGroup:
    """The asks of one application that differ in nothing but their identity.

    ``asks`` is the truth; ``_heap`` holds their order and may name asks that have gone.
    """

    application: "Application"
    bucket: "Bucket"
    task_group_name: str
    placeholder: bool
    asks: dict[str, Ask] = field(default_factory=dict)
    version: int = 0
    unplaced: Refusal | None = None  # why its head could not replace a placeholder
    _heap: list[tuple[tuple[int, int, int], str]] = field(default_factory=list)

    def add(self, ask: Ask) -> None:
        """Put an ask in its place."""
        self.asks[ask.key] = ask
        heappush(self._heap, (ask.order, ask.key))

    def remove(self, key: str) -> Ask | None:
        """Take an ask out, or return None when it is not here."""
        return self.asks.pop(key, None)

    def head(self) -> Ask | None:
        """Return the first ask, or None."""
        while self._heap:
            order, key = self._heap[0]
            ask = self.asks.get(key)
            if ask is not None and ask.order == order:
                return ask
            heappop(self._heap)
        return None


@dataclass(slots=True, eq=False)
class Bucket:
    """The ask groups of one shape in one leaf queue, ordered by their applications.

    ``refusal`` is why none of them can be allocated now; ``blocked_by`` the queue that has no
    headroom, None when it is the nodes that have no room.
    """

    leaf: "Queue"
    shape: Shape
    refusal: Refusal | None = None
    refused_since_ns: int = 0
    blocked_by: "Queue | None" = None
    group_count: int = 0
    _heap: list[tuple[EntryKey, int, AskGroup]] = field(default_factory=list)

    def push(self, group: AskGroup) -> None:
        """Enter a group, or renew its entry after its order changed; without asks it leaves."""
        group.version += 1
        head = group.head()
        if head is not None:
            heappush(self._heap, (group.application.order + head.order, group.version, group))

    def unblock(self) -> None:
        """Forget the refusal: something has changed that it stood on."""
        self.refusal = None
        self.shape.blocked_buckets.pop(self, None)
        if self.blocked_by is not None:
            self.blocked_by.blocked_buckets.pop(self, None)
            self.blocked_by = None

    def withdraw(self, group: AskGroup) -> None:
        """Let a group's entry lapse: it is held back until it is pushed again."""
        group.version += 1

    def clear(self) -> None:
        """Forget the order: what orders applications has changed, all are to be entered anew."""
        self._heap.clear()

    def first(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the first group with its key, or None."""
        while self._heap:
            key, version, group = self._heap[0]
            if version == group.version:
                return key, group
            heappop(self._heap)
        return None


class ShapeTable:
    """Every shape that the partition has seen, by what makes it one.

    A shape that no ask has any more is forgotten once MAX_SHAPES are known.
    """

    MAX_SHAPES = 10_000

    def __init__(self) -> None:
        self._shapes: dict[ShapeKey, Shape] = {}
        self._made = 0

    def shape_of(self, ask: AllocationAsk) -> Shape:
        """Return the shape of an ask, the same object for every ask like it."""
        key = (tuple(sorted(ask.resource_per_alloc.items())), ask.constraints)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= self.MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
            self._made += 1
            shape = Shape(f"shape-{self._made}", dict(ask.resource_per_alloc), ask.constraints)
            self._shapes[key] = shape
        return shape
