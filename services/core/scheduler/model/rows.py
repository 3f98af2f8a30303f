"""The rows of the model that refer to each other: nodes, queues, users, applications, buckets.

In a leaf the asks of one shape share a Bucket: a refusal of one (a quota on the path, no node that
fits) applies to all, so it is computed once, and kept until something that could change it happens.
So a decision costs no more when more applications wait. If limits of users or groups apply, a
bucket is of one owner. In an application the asks of one shape, priority and task group are an
AskGroup, in order of creation. A bucket orders the first asks of its groups by their applications.

Rule 1: the state changes only by ``fire``, along the table in ``shared.model.states``.
Rule 2: ``allocated`` is the sum of the real allocations, ``allocated_placeholder`` that of the
        placeholders, ``pending`` that of the asks in ``groups``. An ask whose placeholder is being
        released for it is in ``replacing``, and in none of the sums.
Source: docs/rules/applications.md#states, docs/rules/gangs.md#the-course and
docs/rules/scheduling.md#order-of-applications. Waiting and requeueing: ``ordering/queueing.py``.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Any, Protocol

from services.core.scheduler.model.lazy_heap import SMALL_HEAP, LazyHeap
from services.core.scheduler.model.needs import Waiters
from services.core.scheduler.model.preemptors import Preemptors
from services.core.scheduler.model.priority_counts import PriorityCounts
from services.core.scheduler.model.queue_ledger import QueueLedger
from services.core.scheduler.model.queue_settings import FAIR, USAGE
from services.core.scheduler.model.resource_history import History
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.task_groups import Replacement, TaskGroupCount
from services.core.scheduler.model.user_ledger import UserLedger
from shared.messages.constraints import NO_CONSTRAINTS, Taint
from shared.messages.gang_tree import GangTree, layout_of, tree_of, turn_of
from shared.messages.interface import (
    DEFAULT_PLACEHOLDER_TIMEOUT_MS,
    AddApplicationRequest,
    Allocation,
    GangSchedulingStyle,
    TerminationType,
)
from shared.model.gpus import Devices
from shared.model.numbers import parse_int64
from shared.model.reasons import Fact, Reason, Refusal
from shared.model.resources import (
    Resource,
    ResourceView,
    add,
    add_into,
    is_zero,
    multiply,
    subtract,
    subtract_into,
    without_zeros,
)
from shared.model.states import ApplicationEvent, ApplicationState, next_state
from shared.model.units import NANOS_PER_MILLI, seconds, timeout_ms

# Counted from the old pod's end: longer than a controller's backoff before its first two retries.
WAIT_NS = seconds(60)
GROW_AGAIN_NS = seconds(60)  # a gang that made way for others does not grow for so long
AHEAD_NS = seconds(10 * 60)  # how long a place is claimed for a pod on a draining node
GroupKey = tuple[Shape, int, str, bool, bool]  # shape, priority, task group, placeholder, covered
# Sort key of asks in a leaf: the application's key, then the ask's.
EntryKey = tuple[Any, ...]
# Sort key of asks for nodes: priority at the root, creation, arrival (unique).
Rank = tuple[int, int, int]
DeviceHolder = tuple[bool, str]  # whether it is a foreign pod, and its key
Members = tuple[Shape, int]  # of the head gang, on one node
BY_ASK, BY_HEAD_GANG, NOT_CLOSED = 2, 1, 4  # flags: what claims a node; the last does not close it
CLOSED = BY_ASK | BY_HEAD_GANG
ENTRY_TAIL = 5  # last parts of an entry's key: submission, sequence, and three of the ask


def in_heap_order(heap: list[Any]) -> Iterator[Any]:
    """Yield a heap's entries, smallest first, without changing it.

    The first k cost O(k log k), whatever the size. The heap must not change meanwhile.
    """
    frontier = [(heap[0], 0)] if heap else []
    while frontier:
        entry, at = heappop(frontier)
        yield entry
        for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
            heappush(frontier, (heap[child], child))


@dataclass(slots=True, eq=False)
class Node:
    """One node. ``allocated`` is the sum of ``allocations``, ``occupied`` that of ``foreign``."""

    node_id: str
    row: int
    capacity: Resource
    attributes: dict[str, str]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    schedulable: bool
    allocated: Resource = field(default_factory=dict)
    occupied: Resource = field(default_factory=dict)
    available: Resource = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    foreign: dict[str, Allocation] = field(default_factory=dict)
    reservations: dict[str, "Claim"] = field(default_factory=dict)  # by ask, oldest first
    reserved: Resource = field(default_factory=dict)  # reserved by claims
    expected: Resource = field(default_factory=dict)  # open statement: released, less nominated
    head_claim: "Claim | None" = None  # of the head gang
    claimed: int = 0  # the flags BY_ASK, BY_HEAD_GANG and NOT_CLOSED of its reservations
    devices: list[int] = field(default_factory=list)  # free part of each GPU, in thousandths
    held_devices: dict[DeviceHolder, Devices] = field(default_factory=dict)
    assumed_devices: dict[DeviceHolder, None] = field(default_factory=dict)  # assumed, not stated
    score: float = 0.0  # its sort key: smaller is better
    changed: int = -1  # version of its last change, in the index's log
    volume_limits: dict[str, int] = field(default_factory=dict)  # by driver; others are unlimited
    domain: tuple[str, ...] = ()  # its path in the cluster's topology; (): none

    @property
    def is_held(self) -> bool:
        """Whether the head gang has a claim on it."""
        return self.head_claim is not None

    @property
    def is_closed(self) -> bool:
        """Whether an ask or the head gang claims all of it."""
        return self.claimed & CLOSED != 0


class Purpose(StrEnum):
    """The purpose of a claim."""

    AGED = "aged"  # an ask that has waited long; closes its node to others
    REQUIRED = "required"  # an ask that requires its node; closes it
    PREEMPTOR = "preemptor"  # an ask whose victims are being released; closes its node
    SHARE = "share"  # an ask that waits for a part of a shared GPU; does not close its node
    MOVED = "moved"  # the replacement of a moved pod
    PLACEHOLDERS = "placeholders"  # an ask that replaces several placeholders
    HEAD_GANG = "head gang"  # members of the head gang; closes its node to others
    GANG = "gang"  # what an admitted gang lacks, on any node; counted by other gangs only


@dataclass(slots=True, eq=False, repr=False)
class Claim:
    """Capacity reserved for an ask or a gang: on a node, and in the queues on its path.

    ``key`` is the ask's, the moved pod's, the head gang's node, or WHOLE_GANG; ``wanted`` is the
    full amount. ``on_node`` of it is reserved of the node's free capacity, ``in_queues`` of the
    headroom of queues and, for placeholders, of user limits. What pods being released for it,
    ``awaited``, still occupy is in neither; ``freed`` is their sum, ``freed_here`` that of those on
    the node.
    """

    purpose: Purpose
    application: "Application"
    key: str
    node: Node
    wanted: ResourceView
    claimant: Ask | None = None  # its ask, if there is one yet
    pod: Allocation | None = None  # the moved pod
    on_node: Resource = field(default_factory=dict)
    in_queues: Resource = field(default_factory=dict)
    awaited: dict[str, ResourceView] = field(default_factory=dict)  # pods being released for it
    freed: Resource = field(default_factory=dict)
    freed_here: Resource = field(default_factory=dict)
    members: Members | None = None  # of the head gang
    leaves: Resource = field(default_factory=dict)  # what those leave of the free capacity
    until_ns: int = 0  # when it expires, set when the moved pod has ended; 0: not set
    since_ns: int = 0
    is_ahead: bool = False  # for a pod that still runs on a draining node
    is_for_restart: bool = False  # for an ended gang member; it expires even with an ask
    has_preempted: bool = False
    rank: Rank = (0, 0, 0)  # the ask's, when it was made
    expected_ns: int = 0  # when its capacity is expected; 0: unknown
    reported_ns: int = 0  # time of its event that no victim was found
    waits_at: "WaitList | None" = None  # the waiting list that blocks it
    to_try: "dict[Claim, None]" = field(default_factory=dict)  # the next cycle's reserved asks

    @property
    def ask(self) -> Ask:
        """Return its ask; it has one unless it is for a moved pod without one yet."""
        assert self.claimant is not None
        return self.claimant

    @property
    def closes_node(self) -> bool:
        """Whether it closes the node to all other asks, however little it needs."""
        return self.purpose in (Purpose.AGED, Purpose.REQUIRED, Purpose.PREEMPTOR)

    @property
    def is_reservation(self) -> bool:
        """Whether its ask is tried on the node before all others."""
        return self.closes_node or self.purpose is Purpose.SHARE

    @property
    def counts_for_users(self) -> bool:
        """Whether its amount in the queues counts for user limits too."""
        return self.purpose in (Purpose.PLACEHOLDERS, Purpose.GANG)

    @property
    def is_required(self) -> bool:
        """Whether its ask requires the node."""
        return self.purpose is Purpose.REQUIRED

    @property
    def is_ordinary(self) -> bool:
        """Whether it was made for age, and not for a required node or by preemption."""
        return self.purpose is Purpose.AGED

    @property
    def expires_ns(self) -> int:
        """Return when it expires; 0: never."""
        if self.until_ns or not self.is_ahead:
            return self.until_ns
        return self.since_ns + AHEAD_NS

    def is_like(self, ask: Ask) -> bool:
        """Whether an ask equals the moved pod, and the claim has no ask yet."""
        old, new = self.pod, ask.request
        return (
            old is not None
            and self.claimant is None
            and not (self.is_ahead and not self.until_ns)
            and (old.task_group_name, old.placeholder) == (new.task_group_name, new.placeholder)
            and old.priority == new.priority
            and old.resource_per_alloc == new.resource_per_alloc
            and old.constraints == new.constraints
        )

    def await_pod(self, pod: Allocation, amount: ResourceView | None) -> None:
        """Record the amount of a pod being released for it, or (None) that it has ended."""
        before = self.awaited.pop(pod.allocation_key, {})
        if amount is not None:
            self.awaited[pod.allocation_key] = amount
        is_here = pod.node_id == self.node.node_id
        for ledger in (self.freed, self.freed_here) if is_here else (self.freed,):
            subtract_into(ledger, before)
            add_into(ledger, amount or {})

    def expect(self, at_ns: int) -> None:
        """Record when the capacity is expected."""
        self.expected_ns = at_ns

    def wait_at(self, wait_list: "WaitList") -> None:
        """Wait until a waiting list is requeued."""
        self.waits_at = wait_list
        wait_list.reservations[self] = None

    def retry(self) -> None:
        """Let the next cycle try its ask, and leave its waiting list."""
        if self.waits_at is not None:
            self.waits_at.reservations.pop(self, None)
            self.waits_at = None
        self.to_try[self] = None


_NONE: Mapping[str, Claim] = {}
NO_NODE: Any = None  # the node of a claim on any node
WHOLE_GANG = ""  # the key of a gang's claim


@dataclass(slots=True, eq=False, repr=False)
class AskGroup:
    """The asks of one application that are equal except for their identity.

    ``asks`` is authoritative; ``_heap`` has their order and may contain ended asks.
    """

    application: "Application"
    bucket: "Bucket"
    task_group_name: str
    placeholder: bool
    is_covered: bool  # several placeholders are being released for each
    key: "GroupKey"
    asks: dict[str, Ask] = field(default_factory=dict)
    version: int = 0
    unplaced: Refusal | None = None  # why its head could not replace a placeholder
    refused: "tuple[Refusal, PluginWaitList] | None" = None  # by a capacity hook
    unmarked: deque[str] = field(default_factory=deque)  # may contain ended asks
    marked: int = 0  # waiting asks that are marked unschedulable
    preemptors: Preemptors | None = None  # from the first search for victims on
    _heap: list[tuple[tuple[int, int, int], str]] = field(default_factory=list)

    def add(self, ask: Ask) -> None:
        """Add an ask in order."""
        self.asks[ask.key] = ask
        if self.preemptors is not None:
            self.preemptors.fresh.append(ask)
        if ask.is_marked:
            self.marked += 1
            self.bucket.marked += 1
        else:
            self.unmarked.append(ask.key)
            self.bucket.unmarked[self] = None
        heappush(self._heap, (ask.order, ask.key))

    def remove(self, key: str) -> Ask | None:
        """Remove an ask; None if it is not here."""
        ask = self.asks.pop(key, None)
        if ask is not None:
            self.marked -= ask.is_marked
            self.bucket.marked -= ask.is_marked
        return ask

    def take_head(self, head: Ask) -> None:
        """Remove the first ask, which ``head`` returned."""
        del self.asks[head.key]
        heappop(self._heap)
        if head.is_marked:
            self.marked -= 1
            self.bucket.marked -= 1

    def next_unmarked(self) -> Ask | None:
        """Return a waiting ask that is not marked, each once; or None."""
        while self.unmarked:
            ask = self.asks.get(self.unmarked.popleft())
            if ask is not None and not ask.is_marked:
                return ask
        self.bucket.unmarked.pop(self, None)
        return None

    def mark(self, ask: Ask) -> None:
        """Mark an ask as unschedulable."""
        ask.is_marked = True
        self.marked += 1
        self.bucket.marked += 1

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
        """Yield the asks in order; they must not change meanwhile."""
        for order, key in in_heap_order(self._heap):
            ask = self.asks.get(key)
            if ask is not None and ask.order == order:
                yield ask


@dataclass(slots=True, eq=False, repr=False)
class _OwnGroups:
    """The groups of one application in a bucket, by their first asks.

    ``order`` is the application's sort key in the bucket's heap; None: it has no entry.
    """

    application: "Application"
    order: tuple[object, ...] | None = None
    heap: list[tuple[tuple[int, int, int], int, int, AskGroup]] = field(default_factory=list)
    _compact_at: int = SMALL_HEAP

    def push(self, head: Ask, pushed: int, group: AskGroup) -> None:
        """Add a group with its first ask's key."""
        heappush(self.heap, (head.order, pushed, group.version, group))
        if len(self.heap) > self._compact_at:
            self.heap = [entry for entry in self.heap if entry[2] == entry[3].version]
            heapify(self.heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self.heap))

    def first(self) -> AskGroup | None:
        """Return the first group, whose entry is then the first of the heap, or None."""
        heap = self.heap
        while heap:
            _, _, version, group = heap[0]
            if version == group.version:
                return group
            heappop(heap)
        return None

    def entries(self) -> Iterator[tuple[tuple[int, int, int], AskGroup]]:
        """Yield the queued groups, unordered."""
        for order, _, version, group in self.heap:
            if version == group.version:
                yield order, group

    def in_order(self) -> Iterator[AskGroup]:
        """Yield the queued groups in order; they must not change meanwhile."""
        for _, _, version, group in in_heap_order(self.heap):
            if version == group.version:
                yield group


@dataclass(slots=True, eq=False, repr=False)
class Bucket:
    """The ask groups of one shape, and one owner, in one leaf, ordered by application.

    ``refusal`` is why none of them can be allocated now; ``blocked_at`` the waiting list that
    blocks them, None if no node fits. ``queued`` is the bucket's key in its leaf's heap, None if it
    has no entry. Applications are in order, and in each its groups: one that comes later than its
    entry says is moved when it is first.
    """

    leaf: "Queue"
    key: "BucketKey"
    refusal: Refusal | None = None
    refused_since_ns: int = 0
    blocked_at: "WaitList | None" = None
    groups: dict[AskGroup, None] = field(default_factory=dict)
    unmarked: dict[AskGroup, None] = field(default_factory=dict)  # with asks to mark
    marked: int = 0  # waiting asks that are marked unschedulable
    queued: EntryKey | None = None
    waking: EntryKey | None = None  # its key in the leaf's heap of blocked buckets that may fit
    stamp: int = 0
    _heap: list[tuple[tuple[object, ...], int, _OwnGroups]] = field(default_factory=list)
    _own: "dict[Application, _OwnGroups]" = field(default_factory=dict)
    _pushed: int = 0  # breaks ties of equal keys
    _compact_at: int = SMALL_HEAP
    _by_run_time: "LazyHeap[AskGroup] | None" = None  # created on first use

    @property
    def shape(self) -> Shape:
        """Return the shape of the asks."""
        return self.key[0]

    @property
    def is_blocked_by_nodes(self) -> bool:
        """Whether it is blocked because no node fits."""
        return self.refusal is not None and self.blocked_at is None

    @property
    def waits_for_nodes(self) -> bool:
        """Whether node capacity is lacking; the root's max is its sum."""
        at = self.blocked_at
        return self.refusal is not None and (at is None or at is self.leaf.root.wait_list)

    @property
    def owner(self) -> "Owner":
        """Return the user and group of the asks if a limit applies to them."""
        return self.key[1] or ()

    @property
    def is_blocked_by_user(self) -> bool:
        """Whether a limit of its user or group blocks it."""
        wait_list = self.blocked_at
        return wait_list is not None and any(
            tracker.wait_list is wait_list for tracker in self.owner
        )

    def mark_last(self, group: AskGroup) -> None:
        """Move a group with unmarked asks to the end."""
        self.unmarked[group] = self.unmarked.pop(group)

    def push(self, group: AskGroup) -> None:
        """Queue a group, or update its entry after its order changed; without asks it leaves."""
        group.version += 1
        head = group.head()
        if head is not None:
            self._pushed += 1
            application = group.application
            own = self._own.get(application)
            if own is None:
                own = self._own[application] = _OwnGroups(application)
            own.push(head, self._pushed, group)
            if own.order is not application.order:
                self._enter(own)
            if self._by_run_time is not None:
                key = application.order + head.order
                self._by_run_time.push(_of_gang(key, group), group.version, group)

    def _enter(self, own: _OwnGroups) -> None:
        """Add an application with its present sort key."""
        self._pushed += 1
        own.order = own.application.order
        heappush(self._heap, (own.order, self._pushed, own))
        if len(self._heap) > self._compact_at or len(self._own) > self._compact_at:
            for each in [each for each in self._own.values() if each.first() is None]:
                self._forget(each)
            self._heap = [entry for entry in self._heap if entry[2].order is entry[0]]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def _forget(self, own: _OwnGroups) -> None:
        """Remove an application without groups; its entry becomes stale."""
        own.order = None
        del self._own[own.application]

    def left_by(self, application: "Application") -> None:
        """Remove an application that ended or changed its bucket, if it has no groups here."""
        own = self._own.get(application)
        if own is not None and own.first() is None:
            self._forget(own)

    def unblock(self) -> None:
        """Clear the refusal: its cause may have changed."""
        if self.refusal is None:
            return
        self.refusal = None
        self.leaf.root.changed_buckets[self] = None
        if self.blocked_at is None:
            self.leaf.no_longer_blocked(self)
        else:
            self.blocked_at.buckets.discard(self)
            self.blocked_at = None

    def withdraw(self, group: AskGroup) -> None:
        """Make a group's entry stale: it is blocked until it is pushed again."""
        group.version += 1

    def clear(self) -> None:
        """Drop the heap: the sort keys changed."""
        self._heap.clear()
        self._own.clear()
        self._by_run_time = None
        self.queued = self.waking = None
        self.stamp += 1

    def first(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the first group with its key, or None."""
        while self._heap:
            order, _, own = self._heap[0]
            if own.order is order:
                group = own.first()
                if group is None:  # kept in _own, it usually gets groups again
                    own.order = None
                elif own.application.order is order:
                    return order + own.heap[0][0], group
                else:
                    self._enter(own)
                    continue
            heappop(self._heap)
        return None

    @property
    def is_by_run_time(self) -> bool:
        """Whether its groups are ordered by run time too."""
        return self._by_run_time is not None

    def shortest(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the group of the application with the shortest expected run time, with its key."""
        if self._by_run_time is None:
            self._by_run_time = LazyHeap(lambda group: group.version)
            for key, group in self.entries():
                self._by_run_time.push(_of_gang(key, group), group.version, group)
        return self._by_run_time.first()

    def entries(self) -> Iterator[tuple[EntryKey, AskGroup]]:
        """Yield the queued groups with their keys, unordered."""
        for application, own in self._own.items():
            for order, group in own.entries():
                yield application.order + order, group

    def entries_by_run_time(self) -> Iterator[tuple[EntryKey, EntryKey]]:
        """Yield every group's stored key by run time, and its present one; for checks."""
        for key, group in self._by_run_time.entries() if self._by_run_time is not None else ():
            head = group.head()
            if head is not None:
                yield key, _of_gang(group.application.order + head.order, group)

    def in_order(self) -> Iterator[AskGroup]:
        """Yield the queued groups in order; they must not change meanwhile."""
        for own in [each for each in self._own.values() if each.first() is not None]:
            if own.order is not own.application.order:
                self._enter(own)
        for order, _, own in in_heap_order(self._heap):
            if own.order is order:
                yield from own.in_order()


BucketKey = tuple[Shape, "Owner | None"]
ANY_SHAPE: BucketKey = (Shape("any", {}, NO_CONSTRAINTS), None)  # of buckets for any shape


class BucketHeap:
    """The open buckets of a leaf by their first groups: the next is found in O(log n).

    Blocked buckets that may fit freed nodes are added when none comes before them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[EntryKey, int, int, Bucket]] = []
        self._waking: list[tuple[EntryKey, int, Bucket]] = []  # a heap of blocked ones
        self._pushed = 0
        self._compact_at = SMALL_HEAP
        self._by_run_time: LazyHeap[Bucket] | None = None  # created on first use

    def push(self, bucket: Bucket) -> None:
        """Add a bucket, or move it forward because its first group comes earlier now."""
        self._enter(bucket, bucket.first())

    def _enter(self, bucket: Bucket, entry: tuple[EntryKey, AskGroup] | None) -> None:
        if entry is None or (bucket.queued is not None and bucket.queued <= entry[0]):
            return
        bucket.stamp += 1
        self._pushed += 1
        bucket.queued = entry[0]
        heappush(self._heap, (entry[0], self._pushed, bucket.stamp, bucket))
        if self._by_run_time is not None:
            self._by_run_time.push(_of_bucket(bucket, entry), bucket.stamp, bucket)
        if len(self._heap) > self._compact_at:
            self._heap = [held for held in self._heap if held[2] == held[3].stamp]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def withdraw(self, bucket: Bucket) -> None:
        """Make a bucket's entry stale."""
        bucket.stamp += 1
        bucket.queued = None

    def entries(self) -> Iterator[tuple[EntryKey, Bucket]]:
        """Yield the queued buckets with their keys, unordered."""
        for key, _, stamp, bucket in self._heap:
            if stamp == bucket.stamp:
                yield key, bucket

    def first(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the first group of all buckets with its key, or None."""
        while self._heap:
            key, _, stamp, bucket = self._heap[0]
            if stamp == bucket.stamp:
                entry = bucket.first()
                if entry is not None and entry[0] == key:
                    return self._first_waking(entry) if self._waking else entry
                heappop(self._heap)
                self.withdraw(bucket)
                self._enter(bucket, entry)
            else:
                heappop(self._heap)
        return self._first_waking(None) if self._waking else None

    def wake(self, bucket: Bucket) -> None:
        """Give a blocked bucket whose shape may fit its turn."""
        entry = bucket.first()
        if entry is not None and (bucket.waking is None or entry[0] < bucket.waking):
            self._pushed += 1
            bucket.waking = entry[0]
            heappush(self._waking, (entry[0], self._pushed, bucket))

    def _first_waking(
        self, first: tuple[EntryKey, AskGroup] | None
    ) -> tuple[EntryKey, AskGroup] | None:
        """Add the blocked buckets that come before the first of the others; return the first."""
        waking = self._waking
        may_fit = waking[0][2].leaf.root.may_fit
        while waking and (first is None or waking[0][0] <= first[0]):
            key, number, bucket = waking[0]
            is_blocked = bucket.refusal is not None and bucket.blocked_at is None
            entry = bucket.first() if is_blocked and bucket.key[0] in may_fit else None
            if entry is not None and entry[0] > key:  # it comes later now
                bucket.waking = entry[0]
                heapreplace(waking, (entry[0], number, bucket))
                continue
            heappop(waking)
            bucket.waking = None
            self._enter(bucket, entry)
            if entry is not None and (first is None or entry[0] < first[0]):
                first = entry
        return first

    def shortest(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the group of the shape with the shortest expected run time, with its key, or None.

        Buckets for several shapes have no run time, and come last.
        """
        if self._by_run_time is None:
            self._by_run_time = LazyHeap(lambda bucket: bucket.stamp)
            for _, _, stamp, bucket in self._heap:
                entry = bucket.first()
                if stamp == bucket.stamp and entry is not None:
                    self._by_run_time.push(_of_bucket(bucket, entry), stamp, bucket)
        while (found := self._by_run_time.first()) is not None:
            key, bucket = found
            entry = bucket.first()
            if entry is not None and key == _of_bucket(bucket, entry):
                return key, entry[1]
            self.withdraw(bucket)
            self._enter(bucket, entry)
        return None

    def clear(self) -> None:
        """Drop the heap: the sort keys changed."""
        self._heap.clear()
        self._waking.clear()
        self._by_run_time = None


def _of_gang(key: EntryKey, group: AskGroup) -> EntryKey:
    return run_time_key(key, group, group.application.expected_ns)


def _of_bucket(bucket: Bucket, entry: tuple[EntryKey, AskGroup]) -> EntryKey:
    return run_time_key(*entry, bucket.shape.expected_ns)


def run_time_key(key: EntryKey, group: AskGroup, expected_ns: int) -> EntryKey:
    """Return an entry's key with the run time inserted before the submission time.

    Keys before that still take precedence; an unknown run time sorts last.
    """
    by_priority = group.application.queue.settings.priority_sorting
    at = -ENTRY_TAIL if by_priority else -ENTRY_TAIL - 1
    return (*key[:at], not expected_ns, expected_ns, *key[at:])


class GangList(Protocol):
    """The list of gangs that wait for places on the nodes."""

    def class_of(self, application: "Application", refusal: "Refusal") -> "EquivalenceClass | None":
        """Return the class of gangs that lack the same places; None if no node can help."""

    def remove(self, application: "Application") -> None:
        """Remove a gang; an unknown one is no error."""


class Home(Protocol):
    """The list in which a class waits."""

    def forget(self, waiting: "EquivalenceClass") -> None:
        """Remove an empty class."""

    def was_tried(self, waiting: "EquivalenceClass") -> None:
        """Record that the representative of a class has been tried, or changed."""


@dataclass(slots=True, eq=False, repr=False)
class EquivalenceClass:
    """Applications of one leaf that are refused alike, in the leaf's order.

    ``tried`` is the representative that is being tried for all; it is not in ``members``.
    """

    home: Home
    key: Hashable
    leaf: "Queue"
    members: dict["Application", int] = field(default_factory=dict)  # -> its valid entry
    tried: "Application | None" = None
    tried_since_ns: int = 0  # since when ``tried`` has been refused
    _heap: list[tuple[tuple[object, ...], int, "Application"]] = field(default_factory=list)
    _pushed: int = 0
    _compact_at: int = SMALL_HEAP

    def add(self, application: "Application") -> None:
        """Add an application, or update its position after its order changed."""
        self._pushed += 1
        self.members[application] = self._pushed
        heappush(self._heap, (application.order, self._pushed, application))
        if len(self._heap) > self._compact_at:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def remove(self, application: "Application") -> None:
        """Remove an application."""
        self.members.pop(application, None)
        self.forget_if_over()

    def head(self) -> "Application | None":
        """Return the first member, or None."""
        while self._heap:
            if self._is_valid(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def entries(self) -> Iterator[tuple[tuple[object, ...], "Application"]]:
        """Yield the members with their keys, unordered."""
        for entry in self._heap:
            if self._is_valid(entry):
                yield entry[0], entry[2]

    def _is_valid(self, entry: tuple[tuple[object, ...], int, "Application"]) -> bool:
        return self.members.get(entry[2]) == entry[1]

    def forget_if_over(self) -> None:
        """Remove the class when it is empty."""
        if not self.members and self.tried is None:
            self.home.forget(self)


@dataclass(slots=True, eq=False, repr=False)
class WaitList:
    """A waiting list: buckets, classes of applications, reservations.

    ``queue`` is the queue whose headroom they lack, if needs can be compared with it: not for
    users.
    """

    queue: "Queue | None" = None
    buckets: Waiters["Bucket"] = field(default_factory=Waiters)
    classes: Waiters[EquivalenceClass] = field(default_factory=Waiters)
    reservations: "dict[Claim, None]" = field(default_factory=dict)
    by_key: dict[Hashable, EquivalenceClass] = field(default_factory=dict)

    def block(self, bucket: "Bucket", *, by_need: bool) -> None:
        """Add a bucket; ``by_need``: it is skipped until its shape fits."""
        self.buckets.add(bucket, bucket.shape.resource if by_need and self.queue else None)

    def try_always(self, waiting: EquivalenceClass) -> None:
        """Try a class at every requeue: others wait behind one of its gangs."""
        self.classes.add(waiting, None)

    def forget(self, waiting: EquivalenceClass) -> None:
        """Remove an empty class."""
        self.by_key.pop(waiting.key, None)
        self.classes.discard(waiting)

    def was_tried(self, waiting: EquivalenceClass) -> None:
        """Do nothing: all of a waiting list are tried when it is requeued."""


@dataclass(slots=True, eq=False, repr=False)
class PluginWaitList(WaitList):
    """The waiting list of one hook; of an application only the groups that it refused."""

    groups: dict["AskGroup", None] = field(default_factory=dict)

    def hold(self, group: "AskGroup", refusal: "Refusal") -> None:
        """Block a group."""
        group.refused = (refusal, self)
        group.bucket.withdraw(group)
        self.groups[group] = None


@dataclass(slots=True, eq=False, repr=False)
class Queue(QueueLedger):
    """One queue: its ledger, and what waits in it.

    Rule: what a queue refused is in its waiting list, and is requeued only when that queue has more
    headroom than before.
    """

    applications: dict[str, "Application"] = field(default_factory=dict)
    buckets: dict[BucketKey, Bucket] = field(default_factory=dict)
    active_buckets: BucketHeap = field(default_factory=BucketHeap)
    to_admit: Bucket = field(init=False)  # gangs that wait for admission, of all shapes
    behind: Bucket = field(init=False)  # applications behind ``starved_gang``, of all shapes
    starved_gang: "Application | None" = None
    promised_gangs: dict["Application", None] = field(default_factory=dict)  # of this leaf
    wait_list: WaitList = field(default_factory=WaitList)
    # Of non-preemptible asks:
    quota_wait_list: PluginWaitList = field(default_factory=PluginWaitList)
    # Used at the root only, for all queues:
    blocked_buckets: dict[Shape, dict[Bucket, None]] = field(default_factory=dict)  # by nodes
    may_fit: dict[Shape, None] = field(default_factory=dict)  # of these: may fit freed nodes
    trying: dict[EquivalenceClass, None] = field(default_factory=dict)
    asking: dict["Application", None] = field(default_factory=dict)  # with waiting asks
    requeued: "dict[Queue | Application, None]" = field(default_factory=dict)  # refusal withdrawn,
    # not yet in the journal
    changed_buckets: dict[Bucket, None] = field(default_factory=dict)  # with a changed refusal
    newly_blocked: dict[Bucket, None] = field(default_factory=dict)  # blocked by nodes or root, or
    # with new asks, since the last ``take_newly_blocked``
    to_watch: dict["Application", None] = field(default_factory=dict)  # admitted gangs without
    # allocations that have changed
    starter: "Application | None" = None  # the starting application of a stateaware leaf

    def __post_init__(self) -> None:
        QueueLedger.__post_init__(self)
        self.wait_list.queue = self
        self.to_admit = Bucket(self, ANY_SHAPE)
        self.behind = Bucket(self, ANY_SHAPE)

    # --- buckets --------------------------------------------------------------------------------

    def bucket(self, key: BucketKey) -> Bucket:
        """Return this leaf's bucket of a shape and, if limits apply, of an owner."""
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(self, key)
            self.root.changed_buckets[bucket] = None
        return bucket

    def forget_order(self) -> None:
        """Drop the heaps of waiting asks, and the starved gang: the sort keys changed."""
        self.starved_gang = None
        for bucket in (*self.buckets.values(), self.to_admit, self.behind):
            bucket.clear()
        self.active_buckets.clear()

    def activate(self) -> None:
        """Record that this leaf may have something to schedule."""
        queue = self
        while queue.parent is not None:
            if queue.name in queue.parent.active_children:
                return
            queue.parent.active_children[queue.name] = queue
            queue.moved()
            queue = queue.parent

    def deactivate(self) -> None:
        """Record that this leaf has nothing to schedule now."""
        queue = self
        while queue.parent is not None:
            queue.parent.active_children.pop(queue.name, None)
            queue.turn = None
            queue.parent.turns.unordered.pop(queue, None)
            if queue.parent.active_children:
                queue.parent.next_changed()
                return
            queue = queue.parent

    def first_group(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the group with this leaf's next ask, or None."""
        return self.active_buckets.first()

    def shortest_group(self) -> AskGroup | None:
        """Return the group with the shortest expected run time, priority first, or None."""
        first_two = self.active_buckets.shortest(), self.to_admit.shortest()
        found = [entry for entry in first_two if entry is not None]
        return min(found, key=itemgetter(0))[1] if found else None

    def block(
        self,
        bucket: Bucket,
        refusal: Refusal,
        at: WaitList | None,
        now_ns: int,
        *,
        by_need: bool = False,
    ) -> None:
        """Block a bucket: by a waiting list, or (None) because no node fits.

        With ``by_need`` it is skipped until its shape fits the waiting list's queue.
        """
        self.active_buckets.withdraw(bucket)
        bucket.refusal = refusal
        bucket.refused_since_ns = now_ns
        bucket.blocked_at = at
        self.root.changed_buckets[bucket] = None
        if at is None or at is self.root.wait_list:
            self.root.newly_blocked[bucket] = None
        if at is not None:
            at.block(bucket, by_need=by_need)
        else:
            self.root.blocked_buckets.setdefault(bucket.shape, {})[bucket] = None

    def wake(self, shape: Shape) -> None:
        """At the root: give the blocked buckets of a shape that may fit their turn."""
        self.may_fit[shape] = None
        for bucket in self.blocked_buckets.get(shape, ()):
            bucket.leaf.active_buckets.wake(bucket)
            bucket.leaf.activate()

    def pass_over(self, shapes: Iterable[Shape]) -> None:
        """At the root: leave the buckets of shapes blocked."""
        for shape in shapes:
            del self.may_fit[shape]

    def take_newly_blocked(self) -> list[Bucket]:
        """At the root: return the buckets blocked by nodes since the last call."""
        found, self.newly_blocked = list(self.newly_blocked), {}
        return found

    def drop(self, bucket: Bucket) -> None:
        """Remove a bucket without groups."""
        bucket.unblock()
        self.active_buckets.withdraw(bucket)
        self.buckets.pop(bucket.key, None)
        self.root.changed_buckets[bucket] = None

    def no_longer_blocked(self, bucket: Bucket) -> None:
        """Remove a bucket from those blocked by nodes."""
        blocked = self.root.blocked_buckets[bucket.shape]
        del blocked[bucket]
        if not blocked:
            del self.root.blocked_buckets[bucket.shape]


def depth_first(root: Queue) -> Iterator[Queue]:
    """Yield every queue, parents before their children."""
    yield root
    for child in root.children.values():
        yield from depth_first(child)


@dataclass(slots=True, eq=False, repr=False)
class Tracker(UserLedger):
    """One user or one group: its ledger, and the waiting list of its limits."""

    wait_list: WaitList = field(default_factory=WaitList)


Owner = tuple[Tracker, ...]


MAX_NOTES = 8  # sentences about an application; more say nothing new
CREATION_TIME_TAG = "yunikorn.apache.org/creationTime"
_SCHEDULING_STATES = (
    ApplicationState.ACCEPTED,
    ApplicationState.RUNNING,
    ApplicationState.COMPLETING,
)
_RESERVING_STATES = (ApplicationState.NEW, ApplicationState.ACCEPTED)
_BEHIND_ALL_BITS = 64  # more than a time in ns has: a turn shifted by it sorts after any time


def group_key(ask: Ask) -> GroupKey:
    """Key of the group that an ask belongs to."""
    request = ask.request
    group = request.task_group_name
    return ask.shape, request.priority, group, request.placeholder, ask.is_covered


@dataclass(eq=False, repr=False)
class Application:
    """One application in a leaf queue."""

    request: AddApplicationRequest
    queue: Queue
    sequence: int
    submission_time_ns: int
    state: ApplicationState = ApplicationState.NEW
    state_log: list[tuple[int, str]] = field(default_factory=list)
    state_messages: list[str] = field(default_factory=list)  # one for each of ``state_log``
    start_time_ns: int = 0
    finished_time_ns: int = 0
    message: str = ""
    fact: Fact | None = None  # the numbers of the message, if it has any
    groups: dict[GroupKey, AskGroup] = field(default_factory=dict)
    group_of: dict[str, AskGroup] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    placeholder_used: dict[str, int] = field(default_factory=dict)  # placeholder's creation, by key
    placed_ns: dict[str, int] = field(default_factory=dict)  # allocation times, by key
    began_ns: int = 0  # first allocation since it had none
    evicted_ns: int = 0  # its last eviction; 0: never
    history: History = field(default_factory=dict)  # usage of ended allocations
    notes: dict[tuple[str, str], None] = field(default_factory=dict)  # (reason, text)
    released: dict[str, str] = field(default_factory=dict)  # key -> type, until confirmed
    stuck: dict[str, int] = field(default_factory=dict)  # key -> release time of stuck victims
    replacing: dict[str, Replacement] = field(default_factory=dict)  # by placeholder key
    positions: dict[str, int] = field(default_factory=dict)  # allocations' sequence as asks
    replacing_ask: dict[str, str] = field(default_factory=dict)  # ask key -> placeholder key
    claims: dict[Purpose, dict[str, Claim]] = field(default_factory=dict)  # by key; none empty
    covering: dict[str, Claim] = field(default_factory=dict)  # claims by placeholder in a set
    task_groups: dict[str, TaskGroupCount] = field(default_factory=dict)
    allocated: Resource = field(default_factory=dict)
    allocated_placeholder: Resource = field(default_factory=dict)
    max_allocated: Resource = field(default_factory=dict)
    pending: Resource = field(default_factory=dict)
    pending_placeholders: int = 0
    ask_priorities: PriorityCounts = field(default_factory=PriorityCounts)
    starts_in_part: bool = False  # placeholders may start before the whole gang fits
    starts_placed: bool = False  # every member must have a place on the nodes first
    enforces_minimum: bool = False  # a gang below its minimum restarts as a whole
    tree: GangTree | None = None  # tree of a gang that starts without placeholders
    passed_over: frozenset[str] = frozenset()  # task groups left out while others are tried
    layout: GangTree | None = None  # tree of a gang with topology constraints
    is_kai: bool = False  # under the policy kai
    takes_turns: bool = False  # grows after applications with a lower ratio to their minimum
    yields_surplus: bool = False  # pods above its minimum make way for others that wait
    grows_at_ns: int = 0  # when it may grow again after it made way; 0: now
    is_non_preemptible: bool = False  # under kai: one of its pods is not preemptible
    non_preemptible: Resource = field(default_factory=dict)  # such usage in its queues
    releasing: Resource = field(default_factory=dict)  # under kai: amount being released
    refused_needs: dict[Shape, int] | None = None  # members without places, while it waits
    waiting_among: GangList | None = None
    is_gang_over: bool = False  # the gang gave up: it continues without
    is_placeholder_wait_over: bool = False  # real asks wait for placeholders no longer
    gang_admitted: bool = False
    trackers: Owner = ()  # of its user and, where a limit names one, its group
    owner: Owner | None = None  # the same if any limit applies to them
    reservations: dict[str, Claim] = field(default_factory=dict)  # those on closed nodes, by ask
    refusal: Refusal | None = None
    refused_since_ns: int = 0
    waits_in: EquivalenceClass | None = None  # its class while it is blocked
    trying_for: EquivalenceClass | None = None  # the class that it is tried for
    starved_at_ns: int = 0  # when it becomes starved; 0: not watched
    backoff_until_ns: int = 0
    cannot_run: tuple[str, ...] = ()  # limits reported as blocking its start
    succeeded: int = 0  # succeeded pods
    stale_since_ns: dict[str, int] = field(default_factory=dict)  # since when parts of a running
    # gang are below their minimum, by name; "" is the gang itself
    reservation_start_ns: int = 0
    execution_start_ns: int = 0  # its first Running, in any core; 0: not yet
    timers: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> generation, due
    order: tuple[object, ...] = ()
    keys_before: "Callable[[Application], tuple[int, ...]] | None" = None  # plugins' sort keys
    keys_follow_use: bool = False
    served: tuple[int, int] = (0, 0)  # device-ns and vcore-ns of pods that ended, in thousandths
    service_level: int = 0  # its service level; updated when a pod ends
    usage_rank: int = 0  # by usage over time of its user, with the user's earlier applications

    def __post_init__(self) -> None:
        if self.request.gang.subgroups and not self.is_gang:
            self._plant()
        self._lay_out()
        self.takes_turns = self.takes_turns and (self.tree is not None or self.is_gang)
        self.yields_surplus = self.yields_surplus and (self.tree is not None or self.is_gang)
        self.keys_follow_use = self.takes_turns or self.tree is not None
        self.usage_rank = self.queue.rank_of_user(self.request.ugi.user)
        self.order = self.order_at(self.in_use())

    def _plant(self) -> None:
        """Set the tree and the minimums of a gang that starts without placeholders."""
        tree = self.tree = tree_of(self.request.gang)
        assert tree is not None
        for name, least in tree.minima().items():
            self.task_groups[name] = TaskGroupCount(count=least, replaced=least)

    def replant(self, request: AddApplicationRequest) -> None:
        """Apply other minimums, and possibly more parts, from a request."""
        self.request = request
        tree = self.tree = tree_of(request.gang)
        assert tree is not None
        for name, least in tree.minima().items():
            counts = self.task_groups.setdefault(name, TaskGroupCount())
            counts.count = counts.replaced = least
            counts.timedout = 0
        if self.layout is not None:
            self.layout = tree

    def _lay_out(self) -> None:
        """Set the layout of a gang with topology constraints: it starts as a whole."""
        tree = self.tree or layout_of(self.request.gang)
        if tree is None or not tree.has_topology:
            return
        self.layout = tree
        self.starts_placed, self.starts_in_part = True, False

    @property
    def has_topology(self) -> bool:
        """Whether its gang has topology constraints."""
        return self.layout is not None

    @cached_property
    def id(self) -> str:
        """Return the application's id."""
        return self.request.application_id

    @cached_property
    def is_hard(self) -> bool:
        """Whether a placeholder timeout fails the application; unknown styles are Soft."""
        return self.request.gang_scheduling_style == GangSchedulingStyle.HARD

    @cached_property
    def is_gang(self) -> bool:
        """Whether the application reserves all its members before it starts."""
        return not is_zero(self.request.placeholder_ask)

    @property
    def max_priority(self) -> int:
        """Return the highest priority of the waiting asks; NO_PRIORITY without any."""
        return self.ask_priorities.highest

    @property
    def may_schedule(self) -> bool:
        """Whether the application's asks may be allocated in its present state."""
        return self.state in _SCHEDULING_STATES and self.refusal is None

    @property
    def awaits_admission(self) -> bool:
        """Whether its waiting members need the gang's admission."""
        is_first = not self.gang_admitted and self.pending_placeholders > 0 and self.is_gang
        return is_first or (self.enforces_minimum and bool(self.groups) and self._awaits_others)

    @property
    def missing(self) -> dict[str, int]:
        """Return how many real pods each task group lacks of the gang's minimum.

        Empty before every placeholder was replaced or has ended, after the gang gave up, and after
        a pod has succeeded.
        """
        counts = self.task_groups
        if not self.enforces_minimum or self.is_gang_over or self.succeeded:
            return {}
        if self.tree is not None:
            return self.tree.missing(self.real_pods(), self.waiting_pods())
        found = {
            name: count.members - count.real
            for name, count in counts.items()
            if count.real < count.members
        }
        is_up = not found or all(count.is_used_up for count in counts.values())
        return found if is_up else {}

    @property
    def is_below_minimum(self) -> bool:
        """Whether a running gang is below its minimum; pods being released still count."""
        if self.tree is not None and self.missing:
            held = self.real_pods(with_released=True)
            return any(held.values()) and not self.tree.is_satisfied(held)
        missing = self.missing
        if not missing or not any(count.real for count in self.task_groups.values()):
            return False
        for key in self.released:
            name = self.allocations[key].task_group_name
            if name in missing and not self.allocations[key].placeholder:
                missing[name] -= 1
        return any(lacking > 0 for lacking in missing.values())

    def parts_below_minimum(self) -> tuple[str, ...]:
        """Return the parts of a running gang below their minimum; ("",): the gang itself.

        A part is listed alone if the gang does not need it.
        """
        if self.is_below_minimum:
            return ("",)
        if self.tree is None or not self.enforces_minimum or self.is_gang_over or self.succeeded:
            return ()
        return tuple(self.tree.broken(self.real_pods(with_released=True)))

    @property
    def is_whole(self) -> bool:
        """Whether a gang has every member that it needs as a real pod."""
        if self.tree is not None:
            return self.tree.is_satisfied(self.real_pods())
        groups = self.task_groups.values()
        return all(count.is_used_up and count.real >= count.members for count in groups)

    def real_pods(self, *, with_released: bool = False) -> dict[str, int]:
        """Return the number of running real pods of each task group."""
        found = {name: counts.real for name, counts in self.task_groups.items()}
        for key in self.released if with_released else ():
            allocation = self.allocations[key]
            if not allocation.placeholder and allocation.task_group_name in found:
                found[allocation.task_group_name] += 1
        return found

    def waiting_pods(self) -> dict[str, int]:
        """Return the number of waiting real pods of each task group that is not left out."""
        found: dict[str, int] = {}
        for group in self.groups.values():
            name = group.task_group_name
            if not group.placeholder and name not in self.passed_over:
                found[name] = found.get(name, 0) + len(group.asks)
        return found

    def next_pods(self) -> dict[str, int]:
        """Return the pods of a gang that start together next: what it lacks, or one more."""
        if self.tree is None or self.succeeded or self.is_gang_over:
            return self.missing
        return self.tree.next(self.real_pods(), self.waiting_pods())

    @property
    def is_restarting(self) -> bool:
        """Whether several members of a gang that ran must start together."""
        return self.enforces_minimum and self._start_together(self.next_pods())

    @property
    def _awaits_others(self) -> bool:
        """Whether a waiting member must start together with others."""
        following = self.next_pods()
        return self._start_together(following) and any(
            group.task_group_name in following for group in self.groups.values()
        )

    def _start_together(self, pods: Mapping[str, int]) -> bool:
        """Return whether pods need their places at once; one does where another part would do."""
        return sum(pods.values()) > (0 if self.has_topology or self._starts_by_choice else 1)

    @property
    def _starts_by_choice(self) -> bool:
        """Return whether some of a gang's parts are enough for its minimum, which it lacks."""
        tree = self.tree
        return tree is not None and tree.has_choice and not tree.is_satisfied(self.real_pods())

    def pass_over(self, task_group: str) -> bool:
        """Leave a task group out of the next start; return whether other parts are sufficient."""
        if self.tree is None or task_group in self.passed_over:
            return False
        self.passed_over |= {task_group}
        return self._start_together(self.tree.startable(self.real_pods(), self.waiting_pods()))

    def let_start(self, task_group: str) -> None:
        """Include a left out task group again."""
        self.passed_over -= {task_group}

    @property
    def keeps_minimum(self) -> bool:
        """Whether searches evict only its gang's surplus above the minimum.

        Under kai a search evicts the surplus first, and then the gang as a whole.
        """
        return self.enforces_minimum and not self.is_kai

    def surplus(self, task_group: str) -> int:
        """Return how many pods of a task group are above its minimum, and may be evicted.

        0 if it can be evicted only together with others.
        """
        counts = self.task_groups.get(task_group)
        if counts is None or self.is_gang_over or self.succeeded:
            return len(self.allocations)
        if self.tree is not None and self.tree.is_kept_together(task_group):
            return 0
        return max(0, counts.real - counts.members)

    @property
    def has_surplus(self) -> bool:
        """Whether its gang has pods above its minimum that make way for others."""
        return self.yields_surplus and not self.succeeded and self.turn > 0

    @property
    def has_its_minimum(self) -> bool:
        """Whether its gang makes way for others, and all that it still asks for is growth."""
        return self.yields_surplus and not self.succeeded and self.turn >= 0

    def is_member(self, task_group: str) -> bool:
        """Whether pods of a task group are members of its gang."""
        if self.tree is not None:
            return task_group in self.tree.minima()
        counts = self.task_groups.get(task_group)
        return counts is not None and counts.members > 0

    def pass_over_none(self) -> None:
        """Include every task group in the next start again."""
        self.passed_over = frozenset()

    @property
    def awaits_placeholders(self) -> bool:
        """Whether an announced gang has not asked for any placeholder yet.

        Real asks wait for the first one, except those of a gang that starts in part.
        """
        return (
            self.is_gang
            and not self.starts_in_part
            and not (self.task_groups or self.is_gang_over or self.is_placeholder_wait_over)
            and self.state in _RESERVING_STATES
        )

    @property
    def holds_real_back(self) -> bool:
        """Whether real asks wait until no placeholder is pending.

        In YuniKorn the shim does this, not the core; a gang that starts in part follows the core
        (docs/rules/gangs.md#the-course).
        """
        return self.pending_placeholders > 0 and not self.starts_in_part

    @property
    def is_reserving(self) -> bool:
        """Whether it has neither run nor given up its gang."""
        return not self.is_gang_over and self.state in _RESERVING_STATES

    @property
    def needs_places(self) -> bool:
        """Whether all waiting members need a place before any is allocated."""
        return self.awaits_admission and (
            (self.starts_placed and self.is_reserving) or self.is_restarting
        )

    @property
    def waits_as_a_whole(self) -> bool:
        """Whether queues or nodes lack capacity for the whole gang; not for a user's limit."""
        return self.waits_for_its_queue or self.is_refused_for(Reason.GANG_PLACES)

    @property
    def waits_at(self) -> WaitList | None:
        """Return the waiting list of the whole application, or None."""
        home = self.waits_in.home if self.waits_in is not None else None
        return home if isinstance(home, WaitList) else None

    @property
    def waits_for_its_queue(self) -> bool:
        """Whether a queue lacks headroom for the whole gang; not for a user's limit."""
        refusal = self.refusal
        return (
            refusal is not None
            and refusal.reason is Reason.GANG_HEADROOM
            and any(queue.wait_list is self.waits_at for queue in self.queue.lineage())
        )

    @property
    def is_starting(self) -> bool:
        """Whether it waits for its first allocation, and no capacity was freed for it."""
        return (
            self.state is ApplicationState.ACCEPTED
            and not self.allocations
            and not self.replacing
            and not (self.is_admitted and self.id in self.queue.allocating_accepted)
            and not any(held.has_preempted for held in self.reservations.values())
        )

    @property
    def is_admitted(self) -> bool:
        """Whether its gang was admitted and has not given up."""
        return self.gang_admitted and not self.is_gang_over

    @property
    def waits_for_first_member(self) -> bool:
        """Whether its gang is admitted without any allocation yet."""
        return (
            self.is_admitted
            and self.pending_placeholders > 0
            and self.refusal is None
            and self.is_starting
        )

    @property
    def is_behind_starved_gang(self) -> bool:
        """Whether it must wait behind a starved gang of its leaf."""
        gang = self.queue.starved_gang
        return (
            gang is not None and gang is not self and self.order > gang.order and self.is_starting
        )

    @property
    def has_nothing(self) -> bool:
        """Whether no real allocation, ask or replacement is left."""
        return is_zero(self.allocated) and is_zero(self.pending) and not self.replacing

    def placeholder_timeout_ms(self, now_ns: int) -> int:
        """Return how long placeholders may exist, from now on.

        Invalid timeouts, also those that overflow, are the default of fifteen minutes. With a
        creation time in the tags (docs/rules/gangs.md#the-course) the time since then is
        subtracted, so that a restarted resource manager does not restart the timeout.
        """
        request = self.request
        timeout = (
            timeout_ms(request.placeholder_timeout_milli_seconds)
            or timeout_ms(request.execution_timeout_milli_seconds)
            or DEFAULT_PLACEHOLDER_TIMEOUT_MS
        )
        created = parse_int64(self.request.tags.get(CREATION_TIME_TAG, ""))
        if created is not None and created >= 0:
            elapsed_ms = now_ns // NANOS_PER_MILLI - created * 1000
            timeout = max(1, timeout - max(0, elapsed_ms))
        return timeout

    @property
    def execution_timeout_ms(self) -> int:
        """Return how long the application may run from its first start; 0: no limit.

        Without a placeholder timeout the stated value is the placeholder timeout instead
        (docs/rules/gangs.md#the-course).
        """
        request = self.request
        is_own = request.placeholder_timeout_milli_seconds > 0
        return max(0, request.execution_timeout_milli_seconds) if is_own else 0

    def note(self, reason: str, message: str) -> bool:
        """Add a note for the application's users; return whether it is new.

        The first MAX_NOTES are kept; notes on its ending are removed with the next state.
        """
        key = (reason, message)
        if key in self.notes or len(self.notes) >= MAX_NOTES:
            return False
        self.notes[key] = None
        return True

    def fire(self, event: ApplicationEvent, now_ns: int, message: str = "") -> bool:
        """Move to the next state; return whether it differs. Raises IllegalTransitionError."""
        state = next_state(self.state, event)
        if state is self.state:
            return False
        self.state = state
        self.is_gang_over |= state is ApplicationState.RESUMING
        self.message, self.fact = message, None
        for key in [key for key in self.notes if key[0] == Reason.APPLICATION_ENDING]:
            del self.notes[key]
        self.state_log.append((now_ns, state.value))
        self.state_messages.append(message)
        if state is ApplicationState.RUNNING and not self.start_time_ns:
            self.start_time_ns = now_ns
        return True

    # --- asks -----------------------------------------------------------------------------------

    def join(self, group: AskGroup, ask: Ask) -> None:
        """Add an ask to a group; the caller calls ``count_waiting``."""
        group.add(ask)
        self.group_of[ask.key] = group
        self.pending_placeholders += group.placeholder

    def found(self, group: AskGroup) -> None:
        """Add a new group, which has no asks yet."""
        self.groups[group.key] = group
        group.bucket.groups[group] = None
        self.queue.root.asking[self] = None

    def drop(self, group: AskGroup) -> None:
        """Remove a group without asks."""
        group.bucket.withdraw(group)
        if group.refused is not None:
            group.refused[1].groups.pop(group, None)
        self.groups.pop(group.key)
        if not self.groups:
            self.queue.root.asking.pop(self, None)
        self.leave(group)

    def leave(self, group: AskGroup) -> None:
        """Remove a group from its bucket."""
        bucket = group.bucket
        bucket.groups.pop(group)
        bucket.left_by(self)
        bucket.unmarked.pop(group, None)
        bucket.marked -= sum(ask.is_marked for ask in group.asks.values())
        if not bucket.groups:
            self.queue.drop(bucket)

    def asks(self) -> Iterator[Ask]:
        """Yield every waiting ask."""
        for group in self.groups.values():
            yield from group.asks.values()

    # --- order and entry ------------------------------------------------------------------------

    def order_at(self, used: ResourceView) -> tuple[object, ...]:
        """Return its sort key in its leaf for a given usage.

        In a fair leaf a gang with pending placeholders stays where it was before the first,
        otherwise several gangs would get a part each.
        """
        priority, settings = -self.max_priority, self.queue.settings
        if settings.sort_policy == FAIR:
            is_gathering = self.is_admitted and self.pending_placeholders > 0
            shares = self._usage_shares(self.allocated if is_gathering else used)
            first: tuple[object, ...] = (
                (priority, shares) if settings.priority_sorting else (shares, priority)
            )
        else:
            since_ns = self._later_ns() if self.takes_turns else self.submission_time_ns
            first = (since_ns, priority)
            if settings.priority_sorting:
                first = (priority, since_ns)
        if self.is_kai and settings.sort_policy != FAIR:
            first = self._with_turn(first)
        if settings.sort_policy == USAGE:
            at = int(settings.priority_sorting)
            first = (*first[:at], self.usage_rank, *first[at:])
        if settings.service_levels_ns:
            at = int(settings.priority_sorting)
            first = (*first[:at], self.service_level, *first[at:])
        if self.keys_before is not None:
            first = (*self.keys_before(self), *first)
        return (*first, self.sequence)

    def _with_turn(self, first: tuple[object, ...]) -> tuple[object, ...]:
        """Insert what precedes age under kai: below the minimum, at it, above it.

        A pod without a gang counts as below its minimum.
        """
        turn = self.turn if self.takes_turns else -1
        if self.queue.settings.priority_sorting:
            return (first[0], turn, *first[1:])
        return (turn, *first)

    def _later_ns(self) -> int:
        """Return its submission time, shifted behind all others if it has its minimum."""
        moved = 0 if self.is_kai else self.turn + 1
        return self.submission_time_ns + (moved << _BEHIND_ALL_BITS)

    @property
    def turn(self) -> int:
        """Return the sort key of growing gangs (``gang_tree.turn_of``), -1 below the minimum.

        -1 also after the gang gave up.
        """
        if self.is_gang_over:
            return -1
        if self.tree is not None:
            return self.tree.turn(self.real_pods())
        groups = self.task_groups.values()
        if not groups or not self.is_whole:
            return -1
        pods, least = sum(count.real for count in groups), sum(count.members for count in groups)
        return turn_of(int(pods > least), pods, least)

    @property
    def expected_ns(self) -> int:
        """Return its gang's longest expected run time; 0: unknown."""
        members = [g.bucket.shape.expected_ns for g in self.groups.values() if g.placeholder]
        return max(members) if members and all(members) else 0

    def in_use(self) -> Resource:
        """Return the sum of all allocations, placeholders included."""
        return add(self.allocated, self.allocated_placeholder)

    def _usage_shares(self, used: ResourceView) -> tuple[float, ...]:
        """Return usage divided by the queue's guarantee, largest first; undivided without one."""
        guaranteed = self.queue.guaranteed_resource or {}
        shares = (
            value / guaranteed[name] if guaranteed.get(name, 0) > 0 else float(value)
            for name, value in used.items()
        )
        return tuple(sorted(shares, reverse=True))

    @property
    def is_refused_as_a_whole(self) -> bool:
        """Whether headroom or a plugin blocks it as a whole."""
        return self.is_refused_for(Reason.GANG_HEADROOM) or self.is_refused_for(Reason.PLUGIN)

    def needs_of_the_whole(self) -> Hashable:
        """Key of everything that decides the gang's admission."""
        announced = tuple(sorted(self.outstanding().items()))
        if not (self.starts_placed or self.starts_in_part or self.is_restarting):
            return announced
        groups = tuple((group.bucket.shape, count) for group, count in self.to_start())
        return announced, self.needs_places, groups

    def lacks_the_same_places(self) -> bool:
        """Whether a gang that nodes refused still needs the refused places."""
        return self.needs_places and self.placeholder_needs() == self.refused_needs

    def to_start(self) -> "list[tuple[AskGroup, int]]":
        """Return the groups whose first asks start together, with their numbers.

        These are the waiting placeholders; for a restarting gang the real pods that it lacks.
        """
        if not self.is_restarting:
            return [(g, len(g.asks)) for g in self.groups.values() if g.placeholder and g.asks]
        missing, found = self.next_pods(), []
        for group in self.groups.values():
            lacking = missing.get(group.task_group_name, 0)
            if lacking and group.asks and not (group.placeholder or group.refused):
                count = min(lacking, len(group.asks))
                missing[group.task_group_name] = lacking - count
                found.append((group, count))
        return found

    def placeholder_needs(self) -> dict[Shape, int]:
        """Return how many waiting members of each shape start together."""
        wanted: dict[Shape, int] = {}
        for group, count in self.to_start():
            shape = group.bucket.shape
            wanted[shape] = wanted.get(shape, 0) + count
        return wanted

    def is_refused_for(self, reason: Reason) -> bool:
        """Whether a reason blocks the whole application."""
        return self.refusal is not None and self.refusal.reason is reason

    # --- claims of the gang ---------------------------------------------------------------------

    @property
    def promise(self) -> ResourceView:
        """Return what its queues reserve for an admitted gang's outstanding members."""
        claim = self.claims_for(Purpose.GANG).get(WHOLE_GANG)
        return claim.in_queues if claim is not None else {}

    @property
    def holds_whole_gang(self) -> bool:
        """Whether its placeholders are the whole announced gang; types of 0 are ignored."""
        return self.allocated_placeholder == without_zeros(self.request.placeholder_ask)

    def claimed_room(self) -> Resource:
        """Return the amount claimed in its queues by reservations."""
        total: Resource = {}
        for key, claim in self.reservations.items():
            if key not in self.claims_for(Purpose.PLACEHOLDERS):
                add_into(total, claim.in_queues)
        return total

    def non_preemptible_use(self) -> Resource:
        """Return its non-preemptible usage, which counts for the quotas of its queues."""
        if not self.is_non_preemptible:
            return self._minimum_use()
        used = add(self.in_use(), self.claimed_room())
        return subtract(used, self.releasing) if self.releasing else used

    def _minimum_use(self) -> Resource:
        """Return its minimum's usage; all pods of a task group count as the latest one."""
        used: Resource = {}
        assert self.tree is not None
        for name, count in self.tree.core(self.real_pods()).items():
            add_into(used, multiply(self.task_groups[name].of_one, count))
        return used

    @property
    def keeps_minimum_in_quota(self) -> bool:
        """Whether only its minimum is non-preemptible (semi-preemptible)."""
        is_semi = self.is_kai and self.request.gang.keeps_minimum
        return is_semi and self.tree is not None and not self.is_non_preemptible

    @property
    def asks_within_quota(self) -> bool:
        """Whether its next pods are non-preemptible, so that quotas limit them."""
        return self.is_non_preemptible or (self.keeps_minimum_in_quota and bool(self.missing))

    def has_claimed_room(self, ask: Ask) -> bool:
        """Whether an ask's amount is claimed in the queues because victims made room for it."""
        claim = self.reservations.get(ask.key)
        return claim is not None and bool(claim.in_queues)

    def outstanding(self) -> Resource:
        """Return the announced gang's amount less its placeholders.

        For a restarting gang it is the amount of its starting members.
        """
        if self.enforces_minimum and self.is_restarting:
            total: Resource = {}
            for group, count in self.to_start():
                add_into(total, multiply(group.bucket.shape.resource, count))
            return total
        held = self.allocated_placeholder
        return {
            name: value - held.get(name, 0)
            for name, value in self.request.placeholder_ask.items()
            if value > held.get(name, 0)
        }

    def wait_lists(self) -> Iterator[WaitList]:
        """Yield every waiting list that may block the application's asks."""
        for queue in self.queue.lineage():
            yield queue.wait_list
            if self.is_non_preemptible or self.keeps_minimum_in_quota:
                yield queue.quota_wait_list
        for tracker in self.trackers:
            yield tracker.wait_list

    # --- allocations ----------------------------------------------------------------------------

    def hold_allocation(self, allocation: Allocation, now_ns: int) -> None:
        """Add an allocation; ``application_ledger`` adds its amounts.

        ``began_ns`` is set by the first one; an older existing one moves it back.
        """
        key = allocation.allocation_key
        since_ns = self.placed_ns[key] = allocation.allocated_ns or now_ns
        if not self.allocations or (allocation.allocated_ns and since_ns < self.began_ns):
            self.began_ns = since_ns
        self.allocations[key] = allocation
        if allocation.placeholder:
            self.counts_of(allocation).held[key] = None
        elif self.task_groups:
            self.count_real(allocation, 1)

    def count_real(self, allocation: Allocation, change: int) -> None:
        """Count a real pod in its task group (1), or remove it (-1)."""
        counts = self.task_groups.get(allocation.task_group_name)
        if counts is not None and not allocation.placeholder:
            counts.real += change
            if change > 0 and self.keeps_minimum_in_quota:
                counts.of_one = dict(allocation.resource_per_alloc)

    def count_going(self, allocation: Allocation, change: int, amount: ResourceView) -> None:
        """Count a real pod's amount as being released (1), or not (-1); under kai only."""
        if self.is_kai and not allocation.placeholder:
            (add_into if change > 0 else subtract_into)(self.releasing, amount)

    def moved(self, key: str) -> Claim | None:
        """Return the claim of a moved pod that has not ended."""
        claim = self.claims_for(Purpose.MOVED).get(key)
        return claim if claim is not None and not claim.until_ns else None

    def claims_for(self, purpose: Purpose) -> Mapping[str, Claim]:
        """Return the claims of a purpose, by key."""
        return self.claims.get(purpose, _NONE)

    def mark_released(self, key: str, why: str) -> None:
        """Record that an allocation is being released."""
        allocation = self.allocations[key]
        if key not in self.released:
            self.count_real(allocation, -1)
            self.count_going(allocation, 1, allocation.resource_per_alloc)
        self.released[key] = why
        if allocation.placeholder:
            counts = self.counts_of(allocation)
            counts.held.pop(key, None)
            if why != TerminationType.PREEMPTED_BY_SCHEDULER:
                counts.unclaimed[key] = None

    def mark_kept(self, key: str) -> str:
        """Undo ``mark_released``; return the type of the release."""
        allocation = self.allocations[key]
        self.count_real(allocation, 1)
        self.count_going(allocation, -1, allocation.resource_per_alloc)
        return self.released.pop(key)

    def counts_of(self, item: Allocation) -> TaskGroupCount:
        """Return the counts of an allocation's task group."""
        return self._counts_in(item.task_group_name)

    def _counts_in(self, task_group_name: str) -> TaskGroupCount:
        counts = self.task_groups.get(task_group_name)
        if counts is None:
            known = self.allocations.items()
            real = sum(
                not (item.placeholder or key in self.released)
                for key, item in known
                if item.task_group_name == task_group_name
            )
            counts = self.task_groups[task_group_name] = TaskGroupCount(real=real)
        return counts

    def count_dropped(self, task_group_name: str) -> None:
        """Count a requested placeholder that will never be allocated as timed out."""
        self.task_groups[task_group_name].timedout += 1

    def count_placeholder(
        self, task_group_name: str, resource: ResourceView, *, exists: bool = False
    ) -> None:
        """Count a requested placeholder, or one that ``exists``.

        While the gang reserves, a requested one replaces a lost one of its group, if there is any:
        the group does not grow. An existing one was lost with its node, and is back with it.
        """
        counts = self._counts_in(task_group_name)
        if counts.timedout and (exists or self.is_reserving):
            counts.timedout -= 1
        else:
            counts.count += 1
        counts.min_resource = dict(resource)
