"""Queues: a tree of ledgers with limits, and the order in which they are served.

Rule 1: ``allocated`` of a parent is the sum of its children's; a leaf's is the sum of its
        applications', placeholders included.
Rule 2: an ask fits a queue when it fits every queue on the path to the root. A type that a
        queue's max lacks is unlimited there; the root's max is the cluster, and must have it.
Rule 3: whoever is refused by a queue is written down there, and looked at again only when that
        queue has more room than before.
Source: contract sections 6.2, 6.3, 6.5 and 6.11.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.core.scheduler.shapes import AskGroup, Bucket, EntryKey, Shape
from shared.model.reasons import Refusal
from shared.model.resources import (
    Resource,
    ResourceView,
    add,
    add_into,
    go_map,
    smaller_of,
    subtract_into,
)

if TYPE_CHECKING:
    from services.core.scheduler.application import Application

ROOT = "root"
FIFO = "fifo"
FAIR = "fair"
NO_PRIORITY = -(2**31)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """What a queues.yaml says of one queue; None is "not set". ``children`` are in file order."""

    name: str
    parent: bool = False
    max_resource: Resource | None = None
    guaranteed_resource: Resource | None = None
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    children: tuple["QueueConfig", ...] = ()


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. ``max_resource`` is its own limit; the root's is the sum of the nodes."""

    name: str
    parent: "Queue | None" = None
    is_leaf: bool = True
    is_managed: bool = True
    status: str = "Active"
    max_resource: Resource | None = None
    guaranteed_resource: Resource | None = None
    max_applications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    sort_policy: str = FIFO
    priority_sorting: bool = True
    children: dict[str, "Queue"] = field(default_factory=dict)
    applications: dict[str, "Application"] = field(default_factory=dict)
    allocated: Resource = field(default_factory=dict)
    pending: Resource = field(default_factory=dict)
    promised: Resource = field(default_factory=dict)  # to admitted gangs, not allocated yet
    running_apps: int = 0
    allocating_accepted: dict[str, None] = field(default_factory=dict)
    priorities: dict[int, int] = field(default_factory=dict)
    buckets: dict[Shape, Bucket] = field(default_factory=dict)
    open_buckets: dict[Bucket, None] = field(default_factory=dict)
    active_children: dict[str, "Queue"] = field(default_factory=dict)
    blocked_buckets: dict[Bucket, None] = field(default_factory=dict)
    parked: dict[str, "Application"] = field(default_factory=dict)
    path: str = ""

    def __post_init__(self) -> None:
        self.path = self.name if self.parent is None else f"{self.parent.path}.{self.name}"

    def lineage(self) -> Iterator["Queue"]:
        """Yield this queue and every one above it, the root last."""
        queue: Queue | None = self
        while queue is not None:
            yield queue
            queue = queue.parent

    def effective_max(self) -> Resource | None:
        """Return the tightest limit on the path to the root, type by type; None is no limit."""
        result: Resource | None = None
        for queue in self.lineage():
            if queue.max_resource is not None:
                result = smaller_of(result or {}, queue.max_resource)
        return result

    def first_without_room(
        self, amount: ResourceView, *, heed_promises: bool = False
    ) -> tuple["Queue", str] | None:
        """Return the nearest queue on the path that cannot take an amount, with the sentence.

        ``heed_promises`` counts what admitted gangs have yet to allocate as allocated.
        """
        for queue in self.lineage():
            limit = queue.max_resource
            if limit is None:
                continue
            used = add(queue.allocated, queue.promised) if heed_promises else queue.allocated
            for name, value in amount.items():
                most = limit.get(name)
                if most is None:
                    if queue.parent is not None or value <= 0:
                        continue
                    most = 0
                left = most - used.get(name, 0)
                if 0 < value > left:
                    return queue, (
                        f"{name}: queue {queue.path} has {max(left, 0)} of {most} left, "
                        f"requested {value} (all of it: {go_map(amount)})"
                    )
        return None

    def first_over_applications(self, application_id: str) -> "Queue | None":
        """Return the nearest queue on the path that may not run one more application."""
        for queue in self.lineage():
            if application_id in queue.allocating_accepted:
                continue
            running = queue.running_apps + len(queue.allocating_accepted)
            if queue.max_applications and running >= queue.max_applications:
                return queue
        return None

    def allocate(self, amount: ResourceView) -> None:
        """Add to the ledgers from here to the root."""
        for queue in self.lineage():
            add_into(queue.allocated, amount)

    def release(self, amount: ResourceView) -> None:
        """Take from the ledgers from here to the root, and wake whom that refused."""
        for queue in self.lineage():
            subtract_into(queue.allocated, amount)
            queue.wake()

    def change_promise(self, before: ResourceView, after: ResourceView) -> None:
        """Change what an admitted gang has yet to allocate, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.promised, before)
            add_into(queue.promised, after)

    def add_pending(self, amount: ResourceView) -> None:
        """Add to what waits, from here to the root."""
        for queue in self.lineage():
            add_into(queue.pending, amount)

    def remove_pending(self, amount: ResourceView) -> None:
        """Take from what waits, from here to the root."""
        for queue in self.lineage():
            subtract_into(queue.pending, amount)

    def set_max(self, limit: Resource | None) -> None:
        """Change the queue's own limit; whoever it refused is looked at again."""
        self.max_resource = limit
        self.wake()

    def wake(self) -> None:
        """Open the buckets, and enter the applications, that this queue has refused."""
        for bucket in list(self.blocked_buckets):
            bucket.leaf.open(bucket)
        parked, self.parked = self.parked, {}
        for application in parked.values():
            application.unpark()

    def bucket(self, shape: Shape) -> Bucket:
        """Return this leaf's bucket of a shape."""
        bucket = self.buckets.get(shape)
        if bucket is None:
            bucket = self.buckets[shape] = Bucket(self, shape)
        return bucket

    def open(self, bucket: Bucket) -> None:
        """Let a bucket be considered; a bucket that was blocked is no longer."""
        bucket.unblock()
        self.open_buckets[bucket] = None
        self.activate()

    def enter(self, group: AskGroup) -> None:
        """Let a group be considered, unless its bucket is blocked: then it waits with it."""
        group.bucket.push(group)
        if group.bucket.refusal is None:
            self.open(group.bucket)

    def activate(self) -> None:
        """Say that this leaf may have something to schedule."""
        queue = self
        while queue.parent is not None:
            if queue.name in queue.parent.active_children:
                return
            queue.parent.active_children[queue.name] = queue
            queue = queue.parent

    def deactivate(self) -> None:
        """Say that this leaf has nothing to schedule now."""
        queue = self
        while queue.parent is not None:
            queue.parent.active_children.pop(queue.name, None)
            if queue.parent.active_children:
                return
            queue = queue.parent

    def first_group(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the group whose head ask is this leaf's next, or None."""
        best: tuple[EntryKey, AskGroup] | None = None
        for bucket in list(self.open_buckets):
            entry = bucket.first()
            if entry is None:
                del self.open_buckets[bucket]
            elif best is None or entry[0] < best[0]:
                best = entry
        return best

    def block(self, bucket: Bucket, refusal: Refusal, at: "Queue | None", now_ns: int) -> None:
        """Set a bucket aside: a queue without headroom refuses it, or (None) the nodes do."""
        self.open_buckets.pop(bucket, None)
        bucket.refusal = refusal
        bucket.refused_since_ns = bucket.refused_since_ns or now_ns
        bucket.blocked_by = at
        if at is not None:
            at.blocked_buckets[bucket] = None
        else:
            bucket.shape.blocked_buckets[bucket] = None

    def drop(self, bucket: Bucket) -> None:
        """Forget a bucket whose last group has gone."""
        bucket.unblock()
        self.open_buckets.pop(bucket, None)
        self.buckets.pop(bucket.shape, None)

    def count_priority(self, priority: int, change: int) -> None:
        """Count an application with this highest ask priority in or out (leaf only)."""
        count = self.priorities.get(priority, 0) + change
        if count:
            self.priorities[priority] = count
        else:
            self.priorities.pop(priority, None)

    def current_priority(self) -> int:
        """Return the highest priority that waits here; NO_PRIORITY when nothing does."""
        if self.is_leaf:
            return max(self.priorities, default=NO_PRIORITY)
        return max(
            (child.current_priority() for child in self.children.values()), default=NO_PRIORITY
        )

    def fair_share(self, fair_max: ResourceView) -> float:
        """Return the largest share of what this queue is promised, over its types.

        The share of a type is of guaranteed where that names it, else of ``fair_max`` (the
        cluster, overwritten by the maxima on the way down), else it is left out.
        """
        largest = 0.0
        for name, value in self.allocated.items():
            if value < 0:
                continue
            promised = (self.guaranteed_resource or {}).get(name)
            if promised is None:
                promised = fair_max.get(name)
            if promised is None:
                continue
            share = value / promised if promised > 0 else float(value > 0)
            largest = max(largest, share)
        return largest

    def fair_max(self) -> Resource:
        """Return the cluster's size overwritten by the maxima on the path down to this queue."""
        above = self.parent.fair_max() if self.parent is not None else {}
        return {**above, **(self.max_resource or {})}

    def next_child(self) -> "Queue | None":
        """Return the active child to serve first, or None.

        Priority, then fair share, then the larger pending; with priority sorting off the fair
        share comes first. Equal children are served in the order of their names.
        """
        children = [child for child in self.active_children.values() if child.status != "Stopped"]
        if not children:
            return None
        if len(children) == 1:
            return children[0]
        return min(children, key=self._order_of)

    def _order_of(self, child: "Queue") -> tuple[float, float, int, str]:
        share = child.fair_share(child.fair_max())
        priority = -child.current_priority()
        pending = -sum(child.pending.values())
        if self.priority_sorting:
            return (priority, share, pending, child.path)
        return (share, priority, pending, child.path)


def depth_first(root: Queue) -> Iterator[Queue]:
    """Yield every queue, parents before their children."""
    yield root
    for child in root.children.values():
        yield from depth_first(child)
