"""The rows that know one another: nodes, queues, users, applications, and what waits in them.

In a leaf queue the asks of one shape share a Bucket: whatever refuses one of them (a quota on the
path, no node with the room) refuses them all, so it is found out once, and kept until something
that could change it happens. That is why a decision does not cost more when more applications
wait. Where limits of users or groups apply, those of one owner share a bucket. Inside an
application the asks of one shape, priority and task group are an AskGroup, in order of creation. A
bucket orders the heads of its groups by their applications.

Rule 1: the state changes by ``fire`` alone, along the rows of the table in ``shared.model.states``.
Rule 2: ``allocated`` is the sum of the real allocations, ``allocated_placeholder`` that of the
        placeholders, ``pending`` that of the asks in ``groups``. An ask whose placeholder is being
        released for it is in ``replacing``, in none of the sums.
Source: docs/rules/applications.md#states, docs/rules/gangs.md#the-course and
docs/rules/scheduling.md#order-of-applications. Who waits, and is requeued:
``ordering/queueing.py``.
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

# From the old pod's end on: longer than a controller backs off before its first two retries.
WAIT_NS = seconds(60)
AHEAD_NS = seconds(10 * 60)  # for how long a place is kept for a pod whose node drains
GroupKey = tuple[Shape, int, str, bool, bool]  # with priority, task group, kind of its asks
# What orders asks in a leaf: the application's key, then the ask's.
EntryKey = tuple[Any, ...]
# What orders those who want a node: priority at the root, creation, arrival. No two are alike.
Rank = tuple[int, int, int]
DeviceHolder = tuple[bool, str]  # whether another scheduler placed it, and the allocation's key
Members = tuple[Shape, int]  # of a gang, on one node
BY_ASK, BY_HEAD_GANG, NOT_CLOSED = 2, 1, 4  # by what a node is reserved; the last closes nothing
CLOSED = BY_ASK | BY_HEAD_GANG
ENTRY_TAIL = 5  # of an entry's key: submission, sequence, and the three of the ask


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
    kept: Resource = field(default_factory=dict)  # by claims that take of its free room
    expected: Resource = field(default_factory=dict)  # by the open statement: coming, less taken
    head_claim: "Claim | None" = None  # of the head gang
    claimed: int = 0  # the sum of BY_ASK, BY_HEAD_GANG and NOT_CLOSED, as its reservations are
    devices: list[int] = field(default_factory=list)  # GPUs: what each has free, in thousandths
    held_devices: dict[DeviceHolder, Devices] = field(default_factory=dict)
    assumed_devices: dict[DeviceHolder, None] = field(default_factory=dict)  # assumed, not stated
    score: float = 0.0  # its place in the order: smaller is better
    changed: int = -1  # when its row changed last, by the index's log
    volume_limits: dict[str, int] = field(default_factory=dict)  # by driver; of others any number
    domain: tuple[str, ...] = ()  # its path in the cluster's topology; (): it is in none

    @property
    def is_held(self) -> bool:
        """Return whether the head gang has a claim on it."""
        return self.head_claim is not None

    @property
    def is_closed(self) -> bool:
        """Return whether an ask or the head gang has a claim on all of it."""
        return self.claimed & CLOSED != 0


class Purpose(StrEnum):
    """What a claim is for."""

    AGED = "aged"  # an ask that has waited long; it closes its node to others
    REQUIRED = "required"  # an ask that requires its node; so does it
    PREEMPTOR = "preemptor"  # an ask for which victims go; so does it
    SHARE = "share"  # an ask that waits for a part of a shared GPU; it closes nothing
    MOVED = "moved"  # the pod that replaces one which is moved
    PLACEHOLDERS = "placeholders"  # an ask for which several placeholders go
    HEAD_GANG = "head gang"  # some members of the head gang; it closes its node to others
    GANG = "gang"  # the members that an admitted gang lacks, on any node; gangs alone count it


@dataclass(slots=True, eq=False, repr=False)
class Claim:
    """Room that is kept for an ask or a gang: on a node, and in the queues on its path.

    ``key`` is the ask's, that of the pod that is moved, the head gang's node, or WHOLE_GANG;
    ``wanted`` is all that is needed there. Of it
    ``on_node`` is taken from the node's free room, and ``in_queues`` from the headroom of queues
    and, for placeholders, of user limits. What pods hold that go for it, ``awaited``, is in neither
    until they have gone; ``freed`` is their sum, ``freed_here`` that of those on the node.
    """

    purpose: Purpose
    application: "Application"
    key: str
    node: Node
    wanted: ResourceView
    claimant: Ask | None = None  # who has come for the room, if it is known
    pod: Allocation | None = None  # that is moved
    on_node: Resource = field(default_factory=dict)
    in_queues: Resource = field(default_factory=dict)
    awaited: dict[str, ResourceView] = field(default_factory=dict)  # by pod, what it holds
    freed: Resource = field(default_factory=dict)
    freed_here: Resource = field(default_factory=dict)
    members: Members | None = None  # of the head gang
    leaves: Resource = field(default_factory=dict)  # what those leave of what is free now
    until_ns: int = 0  # when it lapses, from when the moved pod has gone on; 0: it does not
    since_ns: int = 0
    is_ahead: bool = False  # of a pod that runs yet, on a node that drains
    is_for_restart: bool = False  # of a member that ended; it lapses, who comes for it or not
    has_preempted: bool = False
    rank: Rank = (0, 0, 0)  # the ask's, when it was made
    expected_ns: int = 0  # when the node was expected to have the room; 0: not known
    reported_ns: int = 0  # when its event said that no victim was found
    waits_at: "WaitList | None" = None  # the waiting list of what refused it last
    to_try: "dict[Claim, None]" = field(default_factory=dict)  # those that the next cycle tries

    @property
    def ask(self) -> Ask:
        """Return the ask that it is for; there is one, but for a moved pod that has gone."""
        assert self.claimant is not None
        return self.claimant

    @property
    def closes_node(self) -> bool:
        """Return whether it closes the node to all but its ask, however much of it is claimed."""
        return self.purpose in (Purpose.AGED, Purpose.REQUIRED, Purpose.PREEMPTOR)

    @property
    def is_reservation(self) -> bool:
        """Return whether its ask is tried on the node before all that are not reserved."""
        return self.closes_node or self.purpose is Purpose.SHARE

    @property
    def counts_for_users(self) -> bool:
        """Return whether what the queues keep is kept under the limits of its user too."""
        return self.purpose in (Purpose.PLACEHOLDERS, Purpose.GANG)

    @property
    def is_required(self) -> bool:
        """Return whether its ask requires the node."""
        return self.purpose is Purpose.REQUIRED

    @property
    def is_ordinary(self) -> bool:
        """Return whether it was made for age alone: not by need of the node, nor by preemption."""
        return self.purpose is Purpose.AGED

    @property
    def lapses_ns(self) -> int:
        """Return when it ends by itself; 0: it does not."""
        if self.until_ns or not self.is_ahead:
            return self.until_ns
        return self.since_ns + AHEAD_NS

    def is_like(self, ask: Ask) -> bool:
        """Return whether an ask may take the place of the pod that is moved, and none has."""
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
        """Count a pod that goes for it with what it holds, or (None) no more."""
        before = self.awaited.pop(pod.allocation_key, {})
        if amount is not None:
            self.awaited[pod.allocation_key] = amount
        is_here = pod.node_id == self.node.node_id
        for ledger in (self.freed, self.freed_here) if is_here else (self.freed,):
            subtract_into(ledger, before)
            add_into(ledger, amount or {})

    def expect(self, at_ns: int) -> None:
        """Record when the node is expected to have the room."""
        self.expected_ns = at_ns

    def wait_at(self, wait_list: "WaitList") -> None:
        """Wait until a waiting list is requeued."""
        self.waits_at = wait_list
        wait_list.reservations[self] = None

    def retry(self) -> None:
        """Have its ask tried in the next cycle; it waits in no list any more."""
        if self.waits_at is not None:
            self.waits_at.reservations.pop(self, None)
            self.waits_at = None
        self.to_try[self] = None


_NONE: Mapping[str, Claim] = {}
NO_NODE: Any = None  # of a claim on any
WHOLE_GANG = ""  # the key of a gang's claim


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
    refused: "tuple[Refusal, PluginWaitList] | None" = None  # by a plugin's capacity hook
    unmarked: deque[str] = field(default_factory=deque)  # may name asks that have gone
    marked: int = 0  # asks that wait and are marked Unschedulable
    preemptors: Preemptors | None = None  # from the first look for victims on
    _heap: list[tuple[tuple[int, int, int], str]] = field(default_factory=list)

    def add(self, ask: Ask) -> None:
        """Put an ask in its place."""
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
        """Take an ask out, or return None when it is not here."""
        ask = self.asks.pop(key, None)
        if ask is not None:
            self.marked -= ask.is_marked
            self.bucket.marked -= ask.is_marked
        return ask

    def take_head(self, head: Ask) -> None:
        """Take the first ask out, which ``head`` has found."""
        del self.asks[head.key]
        heappop(self._heap)
        if head.is_marked:
            self.marked -= 1
            self.bucket.marked -= 1

    def next_unmarked(self) -> Ask | None:
        """Return an ask that waits and is not marked, which is not returned again; or None."""
        while self.unmarked:
            ask = self.asks.get(self.unmarked.popleft())
            if ask is not None and not ask.is_marked:
                return ask
        self.bucket.unmarked.pop(self, None)
        return None

    def mark(self, ask: Ask) -> None:
        """Count an ask among those that are marked Unschedulable."""
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
        """Yield the asks, the first first; no ask may come or go meanwhile."""
        for order, key in in_heap_order(self._heap):
            ask = self.asks.get(key)
            if ask is not None and ask.order == order:
                yield ask


@dataclass(slots=True, eq=False, repr=False)
class _OwnGroups:
    """The groups of one application in a bucket, in the order of their first asks.

    ``order`` is the application's, as it is entered with in the bucket; None: it is not.
    """

    application: "Application"
    order: tuple[object, ...] | None = None
    heap: list[tuple[tuple[int, int, int], int, int, AskGroup]] = field(default_factory=list)
    _compact_at: int = SMALL_HEAP

    def push(self, head: Ask, pushed: int, group: AskGroup) -> None:
        """Enter a group under its first ask."""
        heappush(self.heap, (head.order, pushed, group.version, group))
        if len(self.heap) > self._compact_at:
            self.heap = [entry for entry in self.heap if entry[2] == entry[3].version]
            heapify(self.heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self.heap))

    def first(self) -> AskGroup | None:
        """Return the first group, whose entry is the first of the heap, or None."""
        heap = self.heap
        while heap:
            _, _, version, group = heap[0]
            if version == group.version:
                return group
            heappop(heap)
        return None

    def entries(self) -> Iterator[tuple[tuple[int, int, int], AskGroup]]:
        """Yield the groups that may be scheduled, in no order."""
        for order, _, version, group in self.heap:
            if version == group.version:
                yield order, group

    def in_order(self) -> Iterator[AskGroup]:
        """Yield the groups that may be scheduled, the first first; none may change meanwhile."""
        for _, _, version, group in in_heap_order(self.heap):
            if version == group.version:
                yield group


@dataclass(slots=True, eq=False, repr=False)
class Bucket:
    """The ask groups of one shape, and one owner, in one leaf queue, ordered by application.

    ``refusal`` is why none of them can be allocated now; ``blocked_at`` the waiting list that
    refused, None when it is the nodes that have no room. ``queued`` is the bucket's key in its
    leaf's heap, None when it is not there. Applications are in order, and of each its
    groups: one that comes later than when it was entered is moved back when it is the first.
    """

    leaf: "Queue"
    key: "BucketKey"
    refusal: Refusal | None = None
    refused_since_ns: int = 0
    blocked_at: "WaitList | None" = None
    groups: dict[AskGroup, None] = field(default_factory=dict)
    unmarked: dict[AskGroup, None] = field(default_factory=dict)  # with asks to mark
    marked: int = 0  # asks that wait and are marked Unschedulable
    queued: EntryKey | None = None
    waking: EntryKey | None = None  # the same among the blocked ones that may fit
    stamp: int = 0
    _heap: list[tuple[tuple[object, ...], int, _OwnGroups]] = field(default_factory=list)
    _own: "dict[Application, _OwnGroups]" = field(default_factory=dict)
    _pushed: int = 0  # breaks ties of one key
    _compact_at: int = SMALL_HEAP
    _by_run_time: "LazyHeap[AskGroup] | None" = None  # from when it is asked for

    @property
    def shape(self) -> Shape:
        """Return the shape of the asks."""
        return self.key[0]

    @property
    def is_blocked_by_nodes(self) -> bool:
        """Return whether it is the nodes that have no room."""
        return self.refusal is not None and self.blocked_at is None

    @property
    def waits_for_nodes(self) -> bool:
        """Return whether room on the nodes is lacking: the root's max is the sum of that."""
        at = self.blocked_at
        return self.refusal is not None and (at is None or at is self.leaf.root.wait_list)

    @property
    def owner(self) -> "Owner":
        """Return the user and group of the asks, where a limit concerns them."""
        return self.key[1] or ()

    @property
    def is_blocked_by_user(self) -> bool:
        """Return whether it is a limit of a user or group that refuses."""
        wait_list = self.blocked_at
        return wait_list is not None and any(
            tracker.wait_list is wait_list for tracker in self.owner
        )

    def mark_last(self, group: AskGroup) -> None:
        """Let a group with asks to mark have its turn after the others."""
        self.unmarked[group] = self.unmarked.pop(group)

    def push(self, group: AskGroup) -> None:
        """Enter a group, or renew its entry after its order changed; without asks it leaves."""
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
        """Give an application the place that it has now."""
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
        """Let the entry of an application lapse that has no groups here, and forget it."""
        own.order = None
        del self._own[own.application]

    def left_by(self, application: "Application") -> None:
        """Forget an application that has gone, or has another bucket; one with groups stays."""
        own = self._own.get(application)
        if own is not None and own.first() is None:
            self._forget(own)

    def unblock(self) -> None:
        """Forget the refusal: something has changed that it stood on."""
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
        """Let a group's entry lapse: it is held back until it is pushed again."""
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
                if group is None:  # it mostly comes back
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
        """Return whether its groups are ordered by run time, too."""
        return self._by_run_time is not None

    def shortest(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the group of the application that is expected to run shortest, with that key."""
        if self._by_run_time is None:
            self._by_run_time = LazyHeap(lambda group: group.version)
            for key, group in self.entries():
                self._by_run_time.push(_of_gang(key, group), group.version, group)
        return self._by_run_time.first()

    def entries(self) -> Iterator[tuple[EntryKey, AskGroup]]:
        """Yield the groups that may be scheduled with their keys, in no order."""
        for application, own in self._own.items():
            for order, group in own.entries():
                yield application.order + order, group

    def entries_by_run_time(self) -> Iterator[tuple[EntryKey, EntryKey]]:
        """Yield the key by run time of every group that has one, and what it would be now."""
        for key, group in self._by_run_time.entries() if self._by_run_time is not None else ():
            head = group.head()
            if head is not None:
                yield key, _of_gang(group.application.order + head.order, group)

    def in_order(self) -> Iterator[AskGroup]:
        """Yield the groups that may be scheduled, the first first; none may change meanwhile."""
        for own in [each for each in self._own.values() if each.first() is not None]:
            if own.order is not own.application.order:
                self._enter(own)
        for order, _, own in in_heap_order(self._heap):
            if own.order is order:
                yield from own.in_order()


BucketKey = tuple[Shape, "Owner | None"]
ANY_SHAPE: BucketKey = (Shape("any", {}, NO_CONSTRAINTS), None)  # of a bucket that orders, no more


class BucketHeap:
    """The open buckets of a leaf, ordered by their first groups: the next is found in O(log n).

    Blocked ones that may fit are among them as soon as none comes before them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[EntryKey, int, int, Bucket]] = []
        self._waking: list[tuple[EntryKey, int, Bucket]] = []  # a heap of blocked ones
        self._pushed = 0
        self._compact_at = SMALL_HEAP
        self._by_run_time: LazyHeap[Bucket] | None = None  # from when it is asked for

    def push(self, bucket: Bucket) -> None:
        """Enter a bucket, or move it forward because its first group comes earlier now."""
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
        """Let a bucket's entry lapse."""
        bucket.stamp += 1
        bucket.queued = None

    def entries(self) -> Iterator[tuple[EntryKey, Bucket]]:
        """Yield the buckets that are entered with their keys, in no order."""
        for key, _, stamp, bucket in self._heap:
            if stamp == bucket.stamp:
                yield key, bucket

    def first(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the first group of all, with its key, or None."""
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
        """Let a blocked bucket whose shape may fit have its turn."""
        entry = bucket.first()
        if entry is not None and (bucket.waking is None or entry[0] < bucket.waking):
            self._pushed += 1
            bucket.waking = entry[0]
            heappush(self._waking, (entry[0], self._pushed, bucket))

    def _first_waking(
        self, first: tuple[EntryKey, AskGroup] | None
    ) -> tuple[EntryKey, AskGroup] | None:
        """Enter the blocked buckets that come before the first of the others; return the first."""
        waking = self._waking
        may_fit = waking[0][2].leaf.root.may_fit
        while waking and (first is None or waking[0][0] <= first[0]):
            key, number, bucket = waking[0]
            is_blocked = bucket.refusal is not None and bucket.blocked_at is None
            entry = bucket.first() if is_blocked and bucket.key[0] in may_fit else None
            if entry is not None and entry[0] > key:  # it comes later by now
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
        """Return the group of the shape that is expected to run shortest, with that key, or None.

        What orders groups of several shapes has no run time, and comes last.
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
    """Return the key of an entry with the run time where its order says when it was submitted.

    What counts for more than that counts for more than the run time; what is not known is last.
    """
    by_priority = group.application.queue.settings.priority_sorting
    at = -ENTRY_TAIL if by_priority else -ENTRY_TAIL - 1
    return (*key[:at], not expected_ns, expected_ns, *key[at:])


class GangList(Protocol):
    """Where gangs wait for places on the nodes."""

    def class_of(self, application: "Application", refusal: "Refusal") -> "EquivalenceClass | None":
        """Return the class of gangs that lack the same places; None if no node can help."""

    def remove(self, application: "Application") -> None:
        """Forget a gang; one that does not wait is no error."""


class Home(Protocol):
    """Where a class waits."""

    def forget(self, waiting: "EquivalenceClass") -> None:
        """Remove an empty class."""

    def was_tried(self, waiting: "EquivalenceClass") -> None:
        """Note that the representative of a class has been tried, or is another one."""


@dataclass(slots=True, eq=False, repr=False)
class EquivalenceClass:
    """Applications of one leaf that are refused alike, in its order.

    ``tried`` is the one that is to be considered for all of them; it is not in ``members``.
    """

    home: Home
    key: Hashable
    leaf: "Queue"
    members: dict["Application", int] = field(default_factory=dict)  # -> its entry that counts
    tried: "Application | None" = None
    tried_since_ns: int = 0  # since when it has been refused
    _heap: list[tuple[tuple[object, ...], int, "Application"]] = field(default_factory=list)
    _pushed: int = 0
    _compact_at: int = SMALL_HEAP

    def add(self, application: "Application") -> None:
        """Let an application wait, or find its place again after its order changed."""
        self._pushed += 1
        self.members[application] = self._pushed
        heappush(self._heap, (application.order, self._pushed, application))
        if len(self._heap) > self._compact_at:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapify(self._heap)
            self._compact_at = max(SMALL_HEAP, 2 * len(self._heap))

    def remove(self, application: "Application") -> None:
        """Let an application wait no more."""
        self.members.pop(application, None)
        self.forget_if_over()

    def head(self) -> "Application | None":
        """Return the first of those who wait, or None."""
        while self._heap:
            if self._is_valid(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def entries(self) -> Iterator[tuple[tuple[object, ...], "Application"]]:
        """Yield those who wait with their keys, in no order."""
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
    """Who waits for more room: buckets, classes of applications, reservations.

    ``queue`` is whose room it is, where a need can be compared with it: not a user's.
    """

    queue: "Queue | None" = None
    buckets: Waiters["Bucket"] = field(default_factory=Waiters)
    classes: Waiters[EquivalenceClass] = field(default_factory=Waiters)
    reservations: "dict[Claim, None]" = field(default_factory=dict)
    by_key: dict[Hashable, EquivalenceClass] = field(default_factory=dict)

    def block(self, bucket: "Bucket", *, by_need: bool) -> None:
        """Let a bucket wait; ``by_need``: until its shape fits, not for every chance."""
        self.buckets.add(bucket, bucket.shape.resource if by_need and self.queue else None)

    def try_always(self, waiting: EquivalenceClass) -> None:
        """Have a class tried at every chance: others wait for one of it, if it is room it lacks."""
        self.classes.add(waiting, None)

    def forget(self, waiting: EquivalenceClass) -> None:
        """Remove an empty class."""
        self.by_key.pop(waiting.key, None)
        self.classes.discard(waiting)

    def was_tried(self, waiting: EquivalenceClass) -> None:
        """Do nothing: all of a waiting list are tried when it is requeued."""


@dataclass(slots=True, eq=False, repr=False)
class PluginWaitList(WaitList):
    """Who waits for one hook to accept; of an application's asks only those that it refused."""

    groups: dict["AskGroup", None] = field(default_factory=dict)

    def hold(self, group: "AskGroup", refusal: "Refusal") -> None:
        """Set a group aside."""
        group.refused = (refusal, self)
        group.bucket.withdraw(group)
        self.groups[group] = None


@dataclass(slots=True, eq=False, repr=False)
class Queue(QueueLedger):
    """One queue: its ledger, and what waits in it.

    Rule: what a queue refused is on its waiting list, and is tried again only when that queue has
    more room than before.
    """

    applications: dict[str, "Application"] = field(default_factory=dict)
    buckets: dict[BucketKey, Bucket] = field(default_factory=dict)
    active_buckets: BucketHeap = field(default_factory=BucketHeap)
    to_admit: Bucket = field(init=False)  # of all shapes: the gangs that wait for their admission
    behind: Bucket = field(init=False)  # of all shapes: who may not start before ``overdue_gang``
    overdue_gang: "Application | None" = None
    promised_gangs: dict["Application", None] = field(default_factory=dict)  # of this leaf
    wait_list: WaitList = field(default_factory=WaitList)
    # Of what may not be preempted:
    quota_wait_list: PluginWaitList = field(default_factory=PluginWaitList)
    # At the root, of all queues:
    blocked_buckets: dict[Shape, dict[Bucket, None]] = field(default_factory=dict)  # by no node
    may_fit: dict[Shape, None] = field(default_factory=dict)  # of those: on nodes that were freed
    trying: dict[EquivalenceClass, None] = field(default_factory=dict)
    asking: dict["Application", None] = field(default_factory=dict)  # those with groups
    requeued: "dict[Queue | Application, None]" = field(default_factory=dict)  # whose refusal was
    # withdrawn, which is not in the journal yet
    changed_buckets: dict[Bucket, None] = field(default_factory=dict)  # what is published of them
    blocked_lately: dict[Bucket, None] = field(default_factory=dict)  # by the nodes or the root, or
    # with other asks since then
    to_watch: dict["Application", None] = field(default_factory=dict)  # gangs that were let start,
    # hold nothing and have changed
    starter: "Application | None" = None  # the one that is let start, where one at a time is

    def __post_init__(self) -> None:
        QueueLedger.__post_init__(self)
        self.wait_list.queue = self
        self.to_admit = Bucket(self, ANY_SHAPE)
        self.behind = Bucket(self, ANY_SHAPE)

    # --- buckets --------------------------------------------------------------------------------

    def bucket(self, key: BucketKey) -> Bucket:
        """Return this leaf's bucket of a shape and, where limits apply to them, of an owner."""
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(self, key)
            self.root.changed_buckets[bucket] = None
        return bucket

    def forget_order(self) -> None:
        """Drop the heaps of waiting asks, and the starved gang: the sort keys changed."""
        self.overdue_gang = None
        for bucket in (*self.buckets.values(), self.to_admit, self.behind):
            bucket.clear()
        self.active_buckets.clear()

    def activate(self) -> None:
        """Say that this leaf may have something to schedule."""
        queue = self
        while queue.parent is not None:
            if queue.name in queue.parent.active_children:
                return
            queue.parent.active_children[queue.name] = queue
            queue.moved()
            queue = queue.parent

    def deactivate(self) -> None:
        """Say that this leaf has nothing to schedule now."""
        queue = self
        while queue.parent is not None:
            queue.parent.active_children.pop(queue.name, None)
            queue.turn = None
            queue.parent.turns.unordered.pop(queue, None)
            if queue.parent.active_children:
                return
            queue = queue.parent

    def first_group(self) -> tuple[EntryKey, AskGroup] | None:
        """Return the group whose head ask is this leaf's next, or None."""
        return self.active_buckets.first()

    def shortest_group(self) -> AskGroup | None:
        """Return the group that is expected to run shortest, of those of one priority, or None."""
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
        """Set a bucket aside: a waiting list refuses it, or (None) no node has the room.

        ``by_need`` leaves it aside until its shape fits what the waiting list's queue has left.
        """
        self.active_buckets.withdraw(bucket)
        bucket.refusal = refusal
        bucket.refused_since_ns = now_ns
        bucket.blocked_at = at
        self.root.changed_buckets[bucket] = None
        if at is None or at is self.root.wait_list:
            self.root.blocked_lately[bucket] = None
        if at is not None:
            at.block(bucket, by_need=by_need)
        else:
            self.root.blocked_buckets.setdefault(bucket.shape, {})[bucket] = None

    def wake(self, shape: Shape) -> None:
        """Let, at the root, the buckets of a shape that may fit by now have their turn."""
        self.may_fit[shape] = None
        for bucket in self.blocked_buckets.get(shape, ()):
            bucket.leaf.active_buckets.wake(bucket)
            bucket.leaf.activate()

    def pass_over(self, shapes: Iterable[Shape]) -> None:
        """Let, at the root, buckets of shapes that may fit wait on: they have no turn."""
        for shape in shapes:
            del self.may_fit[shape]

    def take_blocked_lately(self) -> list[Bucket]:
        """Return, at the root, who has begun to wait for nodes since this was asked last."""
        found, self.blocked_lately = list(self.blocked_lately), {}
        return found

    def drop(self, bucket: Bucket) -> None:
        """Forget a bucket whose last group has gone."""
        bucket.unblock()
        self.active_buckets.withdraw(bucket)
        self.buckets.pop(bucket.key, None)
        self.root.changed_buckets[bucket] = None

    def no_longer_blocked(self, bucket: Bucket) -> None:
        """Take a bucket off those that no node has the room for."""
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
    """One user or one group: its ledger, and who waits for room under its limits."""

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
_BEHIND_ALL_BITS = 64  # a submission in ns has fewer: a turn times 2 to the power of it is later


def group_key(ask: Ask) -> GroupKey:
    """Return what makes asks of one application one group."""
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
    state_messages: list[str] = field(default_factory=list)  # beside each of ``state_log``
    start_time_ns: int = 0
    finished_time_ns: int = 0
    message: str = ""
    fact: Fact | None = None  # the numbers of the message, if it has any
    groups: dict[GroupKey, AskGroup] = field(default_factory=dict)
    group_of: dict[str, AskGroup] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    placeholder_used: dict[str, int] = field(default_factory=dict)  # when the placeholder was made
    placed_ns: dict[str, int] = field(default_factory=dict)  # since when allocations run, by key
    began_ns: int = 0  # when the first of them did, of those since it had none
    evicted_ns: int = 0  # when a pod of it was made to go last; 0: never
    history: History = field(default_factory=dict)  # of what it has used, when that ended
    notes: dict[tuple[str, str], None] = field(default_factory=dict)  # (reason, sentence)
    released: dict[str, str] = field(default_factory=dict)  # key -> why, until confirmed
    stuck: dict[str, int] = field(default_factory=dict)  # key -> since when; it does not go
    replacing: dict[str, Replacement] = field(default_factory=dict)  # by placeholder key
    positions: dict[str, int] = field(default_factory=dict)  # of allocations, when they were asks
    replacing_ask: dict[str, str] = field(default_factory=dict)  # ask key -> placeholder key
    claims: dict[Purpose, dict[str, Claim]] = field(default_factory=dict)  # by key; none empty
    covering: dict[str, Claim] = field(default_factory=dict)  # by placeholder that goes for one
    task_groups: dict[str, TaskGroupCount] = field(default_factory=dict)
    allocated: Resource = field(default_factory=dict)
    allocated_placeholder: Resource = field(default_factory=dict)
    max_allocated: Resource = field(default_factory=dict)
    pending: Resource = field(default_factory=dict)
    pending_placeholders: int = 0
    ask_priorities: PriorityCounts = field(default_factory=PriorityCounts)
    starts_in_part: bool = False  # the whole gang need not fit for its placeholders to start
    starts_placed: bool = False  # every one of them must have a place on the nodes
    enforces_minimum: bool = False  # a gang that has fallen below it starts again as a whole
    tree: GangTree | None = None  # of a gang that starts without placeholders
    passed_over: frozenset[str] = frozenset()  # task groups without a place, while others are tried
    layout: GangTree | None = None  # of one of which pods are to be in one domain of the nodes
    is_kai: bool = False  # under the policy kai: it grows within its quota
    takes_turns: bool = False  # a gang that grows behind what has less for its minimum
    is_fixed: bool = False  # it is, and of its pods one may not be preempted
    fixed: Resource = field(default_factory=dict)  # what its queues count of it as such
    going: Resource = field(default_factory=dict)  # under kai: what is being released of it
    refused_needs: dict[Shape, int] | None = None  # what had no places, while it waits for them
    waiting_among: GangList | None = None
    is_gang_over: bool = False  # given up: it goes on without
    is_placeholder_wait_over: bool = False  # real asks have waited long enough for the first one
    gang_admitted: bool = False
    trackers: Owner = ()  # of its user and, where a limit names one, its group
    owner: Owner | None = None  # the same, where any limit concerns them
    reservations: dict[str, Claim] = field(default_factory=dict)  # those on closed nodes, by ask
    refusal: Refusal | None = None
    refused_since_ns: int = 0
    waits_in: EquivalenceClass | None = None  # with those who are refused alike
    trying_for: EquivalenceClass | None = None  # the class that it is tried for
    patience_due_ns: int = 0  # when it will have waited too long, if that is being watched
    backoff_until_ns: int = 0
    cannot_run: tuple[str, ...] = ()  # whose limits its event named, that it may not start yet
    succeeded: int = 0  # pods that ran to their end, and well
    stale_since_ns: dict[str, int] = field(default_factory=dict)  # since when parts of a gang that
    # ran are below their minimum, by name; "" is the gang itself
    reservation_start_ns: int = 0
    execution_start_ns: int = 0  # when it ran first, in whichever core; 0: not yet
    timers: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> generation, due
    order: tuple[object, ...] = ()
    keys_before: "Callable[[Application], tuple[int, ...]] | None" = None  # those of plugins
    keys_follow_use: bool = False
    served: tuple[int, int] = (0, 0)  # device-ns and vcore-ns of pods that ended, in thousandths
    service_level: int = 0  # of its leaf, by what it has had; judged when a pod ends
    usage_rank: int = 0  # its user's in its leaf, and of what the user's others before it ask for

    def __post_init__(self) -> None:
        if self.request.gang.subgroups and not self.is_gang:
            self._plant()
        self._lay_out()
        self.takes_turns = self.takes_turns and (self.tree is not None or self.is_gang)
        self.keys_follow_use = self.takes_turns or self.tree is not None
        self.usage_rank = self.queue.rank_of_user(self.request.ugi.user)
        self.order = self.order_at(self.in_use())

    def _plant(self) -> None:
        """Take over the tree of a gang that starts without placeholders, and its minimums."""
        tree = self.tree = tree_of(self.request.gang)
        assert tree is not None
        for name, least in tree.minima().items():
            self.task_groups[name] = TaskGroupCount(count=least, replaced=least)

    def replant(self, request: AddApplicationRequest) -> None:
        """Have other minimums, and perhaps more parts, as a request has them."""
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
        """Know the tree of a gang with parts that are to be near each other: it starts whole."""
        tree = self.tree or layout_of(self.request.gang)
        if tree is None or not tree.has_topology:
            return
        self.layout = tree
        self.starts_placed, self.starts_in_part = True, False

    @property
    def has_topology(self) -> bool:
        """Return whether pods of its gang are to be in one domain of the nodes."""
        return self.layout is not None

    @cached_property
    def id(self) -> str:
        """Return the application's id."""
        return self.request.application_id

    @cached_property
    def is_hard(self) -> bool:
        """Return whether a placeholder timeout fails the application; unknown styles are Soft."""
        return self.request.gang_scheduling_style == GangSchedulingStyle.HARD

    @cached_property
    def is_gang(self) -> bool:
        """Return whether the application reserves all its members before it starts."""
        return not is_zero(self.request.placeholder_ask)

    @property
    def max_priority(self) -> int:
        """Return the highest priority of the asks that wait; NO_PRIORITY when none does."""
        return self.ask_priorities.highest

    @property
    def may_schedule(self) -> bool:
        """Return whether the application's asks may be allocated in its present state."""
        return self.state in _SCHEDULING_STATES and self.refusal is None

    @property
    def awaits_admission(self) -> bool:
        """Return whether members are asked for that wait for the gang's admission."""
        is_first = not self.gang_admitted and self.pending_placeholders > 0 and self.is_gang
        return is_first or (self.enforces_minimum and bool(self.groups) and self._awaits_others)

    @property
    def missing(self) -> dict[str, int]:
        """Return how many real pods each task group lacks of the gang's minimum.

        None are missing before every placeholder was replaced or has gone, once the gang was given
        up, and of one that is finishing: a pod of it has succeeded.
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
        """Return whether a gang runs with less than its minimum; what is leaving counts yet."""
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
        """Return which parts of a gang run with less than their minimum; ("",): the gang itself.

        A part of which enough others run is so by itself alone.
        """
        if self.is_below_minimum:
            return ("",)
        if self.tree is None or not self.enforces_minimum or self.is_gang_over or self.succeeded:
            return ()
        return tuple(self.tree.broken(self.real_pods(with_released=True)))

    @property
    def is_whole(self) -> bool:
        """Return whether a gang has every member that it needs, none by a placeholder."""
        if self.tree is not None:
            return self.tree.is_satisfied(self.real_pods())
        groups = self.task_groups.values()
        return all(count.is_used_up and count.real >= count.members for count in groups)

    def real_pods(self, *, with_released: bool = False) -> dict[str, int]:
        """Return how many real pods of each task group run, or have yet to go."""
        found = {name: counts.real for name, counts in self.task_groups.items()}
        for key in self.released if with_released else ():
            allocation = self.allocations[key]
            if not allocation.placeholder and allocation.task_group_name in found:
                found[allocation.task_group_name] += 1
        return found

    def waiting_pods(self) -> dict[str, int]:
        """Return how many real pods of each task group wait, but for those passed over."""
        found: dict[str, int] = {}
        for group in self.groups.values():
            name = group.task_group_name
            if not group.placeholder and name not in self.passed_over:
                found[name] = found.get(name, 0) + len(group.asks)
        return found

    def next_pods(self) -> dict[str, int]:
        """Return which pods of a gang start next, together: what it lacks, or one more."""
        if self.tree is None or self.succeeded or self.is_gang_over:
            return self.missing
        return self.tree.next(self.real_pods(), self.waiting_pods())

    @property
    def is_restarting(self) -> bool:
        """Return whether several members of a gang that ran must start at once, or none."""
        return self.enforces_minimum and self._start_together(self.next_pods())

    @property
    def _awaits_others(self) -> bool:
        """Return whether a member waits that must start at once with others, or not at all."""
        following = self.next_pods()
        return self._start_together(following) and any(
            group.task_group_name in following for group in self.groups.values()
        )

    def _start_together(self, pods: Mapping[str, int]) -> bool:
        return sum(pods.values()) > (0 if self.has_topology else 1)

    def pass_over(self, task_group: str) -> bool:
        """Leave a task group out of what starts next; return whether other parts would do."""
        if self.tree is None or task_group in self.passed_over:
            return False
        self.passed_over |= {task_group}
        return self._start_together(self.tree.startable(self.real_pods(), self.waiting_pods()))

    def let_start(self, task_group: str) -> None:
        """Let a task group that was passed over be of what starts next again."""
        self.passed_over -= {task_group}

    @property
    def keeps_minimum(self) -> bool:
        """Return whether a search takes no more of its gang than it has above its minimum.

        Under kai a search takes that first, and then the gang as a whole.
        """
        return self.enforces_minimum and not self.is_kai

    def surplus(self, task_group: str) -> int:
        """Return how many pods of a task group may go: those above its minimum.

        None of one that goes only together with others.
        """
        counts = self.task_groups.get(task_group)
        if counts is None or self.is_gang_over or self.succeeded:
            return len(self.allocations)
        if self.tree is not None and self.tree.is_kept_together(task_group):
            return 0
        return max(0, counts.real - counts.members)

    def pass_over_none(self) -> None:
        """Let every task group be what starts next again."""
        self.passed_over = frozenset()

    @property
    def awaits_placeholders(self) -> bool:
        """Return whether a gang was announced of which no placeholder has been asked for yet.

        Real asks wait for the first, but those of a gang that starts in part.
        """
        return (
            self.is_gang
            and not self.starts_in_part
            and not (self.task_groups or self.is_gang_over or self.is_placeholder_wait_over)
            and self.state in _RESERVING_STATES
        )

    @property
    def holds_real_back(self) -> bool:
        """Return whether real asks wait until no placeholder is pending.

        YuniKorn's core never holds them back, its shim does: a gang that starts in part follows it
        (docs/rules/gangs.md#the-course).
        """
        return self.pending_placeholders > 0 and not self.starts_in_part

    @property
    def is_reserving(self) -> bool:
        """Return whether it has not run yet, nor has its gang been given up."""
        return not self.is_gang_over and self.state in _RESERVING_STATES

    @property
    def needs_places(self) -> bool:
        """Return whether all members that wait must have a place before any is allocated."""
        return self.awaits_admission and (
            (self.starts_placed and self.is_reserving) or self.is_restarting
        )

    @property
    def waits_as_a_whole(self) -> bool:
        """Return whether its queue or the nodes lack room for the whole gang: no user's limit."""
        return self.waits_for_its_queue or self.is_refused_for(Reason.GANG_PLACES)

    @property
    def waits_at(self) -> WaitList | None:
        """Return the waiting list at which the whole application waits, or None."""
        home = self.waits_in.home if self.waits_in is not None else None
        return home if isinstance(home, WaitList) else None

    @property
    def waits_for_its_queue(self) -> bool:
        """Return whether a queue has not enough room for the whole gang: the limit of no user."""
        refusal = self.refusal
        return (
            refusal is not None
            and refusal.reason is Reason.GANG_HEADROOM
            and any(queue.wait_list is self.waits_at for queue in self.queue.lineage())
        )

    @property
    def is_starting(self) -> bool:
        """Return whether it waits for its first allocation, and no room was freed for it."""
        return (
            self.state is ApplicationState.ACCEPTED
            and not self.allocations
            and not self.replacing
            and not (self.is_admitted and self.id in self.queue.allocating_accepted)
            and not any(held.has_preempted for held in self.reservations.values())
        )

    @property
    def is_admitted(self) -> bool:
        """Return whether its gang was let start and has not been given up."""
        return self.gang_admitted and not self.is_gang_over

    @property
    def waits_for_first_member(self) -> bool:
        """Return whether its gang was let start and holds nothing yet: no limit keeps it whole."""
        return (
            self.is_admitted
            and self.pending_placeholders > 0
            and self.refusal is None
            and self.is_starting
        )

    @property
    def is_behind_starved_gang(self) -> bool:
        """Return whether it may not start before a gang of its leaf that has waited too long."""
        gang = self.queue.overdue_gang
        return (
            gang is not None and gang is not self and self.order > gang.order and self.is_starting
        )

    @property
    def has_nothing(self) -> bool:
        """Return whether no real allocation and no ask is left, nor one being swapped in."""
        return is_zero(self.allocated) and is_zero(self.pending) and not self.replacing

    def placeholder_timeout_ms(self, now_ns: int) -> int:
        """Return how long the placeholders may be held, from now on.

        What is no timeout, as one that overflows, is the default of fifteen minutes. A creation
        time in the tags (docs/rules/gangs.md#the-course) has the time since then taken off, so that
        a resource manager without a better memory does not start the clock again.
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
        """Return how long the application may run from its first start on; 0: for ever.

        Without a placeholder timeout of its own what is said is that one
        (docs/rules/gangs.md#the-course).
        """
        request = self.request
        is_own = request.placeholder_timeout_milli_seconds > 0
        return max(0, request.execution_timeout_milli_seconds) if is_own else 0

    def note(self, reason: str, message: str) -> bool:
        """Keep a sentence for the application's users; return whether it is a new one.

        The first MAX_NOTES stay; what the application waits for goes with its state.
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
        """Put an ask into a group; ``count_waiting`` is the caller's to call."""
        group.add(ask)
        self.group_of[ask.key] = group
        self.pending_placeholders += group.placeholder

    def found(self, group: AskGroup) -> None:
        """Begin a group, which has yet to get its first ask."""
        self.groups[group.key] = group
        group.bucket.groups[group] = None
        self.queue.root.asking[self] = None

    def drop(self, group: AskGroup) -> None:
        """Forget a group that has no asks any more."""
        group.bucket.withdraw(group)
        if group.refused is not None:
            group.refused[1].groups.pop(group, None)
        self.groups.pop(group.key)
        if not self.groups:
            self.queue.root.asking.pop(self, None)
        self.leave(group)

    def leave(self, group: AskGroup) -> None:
        """Take a group out of its bucket."""
        bucket = group.bucket
        bucket.groups.pop(group)
        bucket.left_by(self)
        bucket.unmarked.pop(group, None)
        bucket.marked -= sum(ask.is_marked for ask in group.asks.values())
        if not bucket.groups:
            self.queue.drop(bucket)

    def asks(self) -> Iterator[Ask]:
        """Yield every ask that waits."""
        for group in self.groups.values():
            yield from group.asks.values()

    # --- order and entry ------------------------------------------------------------------------

    def order_at(self, used: ResourceView) -> tuple[object, ...]:
        """Return what its place among those of its leaf would be if it used so much.

        By shares a gang that is getting its members is where it was before it had the first: else
        several would have a part each.
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
        """Return the keys with what comes before age under kai: below the minimum, at it, above it.

        A pod that is of no gang is a gang of one that has not started.
        """
        turn = self.turn if self.takes_turns else -1
        if self.queue.settings.priority_sorting:
            return (first[0], turn, *first[1:])
        return (turn, *first)

    def _later_ns(self) -> int:
        """Return its submission, moved behind every other where it has its minimum."""
        moved = 0 if self.is_kai else self.turn + 1
        return self.submission_time_ns + (moved << _BEHIND_ALL_BITS)

    @property
    def turn(self) -> int:
        """Return what orders gangs that grow (``gang_tree.turn_of``); -1 where it has no minimum.

        That is so of one that was given up, or is getting its first members.
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
        """Return for how long its gang is expected to run, its longest member; 0: not known."""
        members = [g.bucket.shape.expected_ns for g in self.groups.values() if g.placeholder]
        return max(members) if members and all(members) else 0

    def in_use(self) -> Resource:
        """Return what all allocations hold, placeholders included."""
        return add(self.allocated, self.allocated_placeholder)

    def _usage_shares(self, used: ResourceView) -> tuple[float, ...]:
        """Return usage over the queue's guaranteed, largest first; raw where there is none."""
        guaranteed = self.queue.guaranteed_resource or {}
        shares = (
            value / guaranteed[name] if guaranteed.get(name, 0) > 0 else float(value)
            for name, value in used.items()
        )
        return tuple(sorted(shares, reverse=True))

    @property
    def is_refused_as_a_whole(self) -> bool:
        """Return whether it waits for headroom for all of it, or for a plugin."""
        return self.is_refused_for(Reason.GANG_HEADROOM) or self.is_refused_for(Reason.PLUGIN)

    def needs_of_the_whole(self) -> Hashable:
        """Return all that decides over the gang's admission, in the order in which it is tried."""
        announced = tuple(sorted(self.outstanding().items()))
        if not (self.starts_placed or self.starts_in_part or self.is_restarting):
            return announced
        groups = tuple((group.bucket.shape, count) for group, count in self.to_start())
        return announced, self.needs_places, groups

    def lacks_the_same_places(self) -> bool:
        """Return whether a gang that the nodes have refused still asks for what they refused."""
        return self.needs_places and self.placeholder_needs() == self.refused_needs

    def to_start(self) -> "list[tuple[AskGroup, int]]":
        """Return the groups whose first asks start together, and how many of each.

        They are the placeholders that wait; of a gang that starts again its real pods, so many as
        it lacks.
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
        """Return how many members of each shape wait to start together."""
        wanted: dict[Shape, int] = {}
        for group, count in self.to_start():
            shape = group.bucket.shape
            wanted[shape] = wanted.get(shape, 0) + count
        return wanted

    def is_refused_for(self, reason: Reason) -> bool:
        """Return whether a reason keeps the whole application out of its buckets."""
        return self.refusal is not None and self.refusal.reason is reason

    # --- claims of the gang ---------------------------------------------------------------------

    @property
    def promise(self) -> ResourceView:
        """Return what its queues keep for the members that an admitted gang lacks."""
        claim = self.claims_for(Purpose.GANG).get(WHOLE_GANG)
        return claim.in_queues if claim is not None else {}

    @property
    def holds_whole_gang(self) -> bool:
        """Return whether its placeholders are all that was announced; a type of 0 is none."""
        return self.allocated_placeholder == without_zeros(self.request.placeholder_ask)

    def claimed_room(self) -> Resource:
        """Return what its queues keep for its asks by claims on closed nodes."""
        total: Resource = {}
        for key, claim in self.reservations.items():
            if key not in self.claims_for(Purpose.PLACEHOLDERS):
                add_into(total, claim.in_queues)
        return total

    def fixed_use(self) -> Resource:
        """Return what it takes of the quotas of its queues, as far as it may not be preempted."""
        if not self.is_fixed:
            return self._minimum_use()
        used = add(self.in_use(), self.claimed_room())
        return subtract(used, self.going) if self.going else used

    def _minimum_use(self) -> Resource:
        """Return what its minimum takes; of a task group all pods count as the last that came."""
        used: Resource = {}
        assert self.tree is not None
        for name, count in self.tree.core(self.real_pods()).items():
            add_into(used, multiply(self.task_groups[name].of_one, count))
        return used

    @property
    def keeps_minimum_in_quota(self) -> bool:
        """Return whether its minimum may not be preempted, and what it has above it may be."""
        is_semi = self.is_kai and self.request.gang.keeps_minimum
        return is_semi and self.tree is not None and not self.is_fixed

    @property
    def asks_within_quota(self) -> bool:
        """Return whether what starts next of it may not be preempted, so that quotas bound it."""
        return self.is_fixed or (self.keeps_minimum_in_quota and bool(self.missing))

    def has_claimed_room(self, ask: Ask) -> bool:
        """Return whether its queues count what an ask needs: others have gone for it."""
        claim = self.reservations.get(ask.key)
        return claim is not None and bool(claim.in_queues)

    def outstanding(self) -> Resource:
        """Return what the gang was announced with, less the placeholders it holds.

        Of one that starts again it is what its members ask for.
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
        """Yield every waiting list at which the application's asks may wait."""
        for queue in self.queue.lineage():
            yield queue.wait_list
            if self.is_fixed or self.keeps_minimum_in_quota:
                yield queue.quota_wait_list
        for tracker in self.trackers:
            yield tracker.wait_list

    # --- allocations ----------------------------------------------------------------------------

    def hold_allocation(self, allocation: Allocation, now_ns: int) -> None:
        """Hold an allocation; its amounts are counted in by ``application_ledger``.

        The application began with the first; growing begins nothing. What exists already, and is
        older, shows that it began before.
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
        """Count a real pod into its task group, or out of it when it goes."""
        counts = self.task_groups.get(allocation.task_group_name)
        if counts is not None and not allocation.placeholder:
            counts.real += change
            if change > 0 and self.keeps_minimum_in_quota:
                counts.of_one = dict(allocation.resource_per_alloc)

    def count_going(self, allocation: Allocation, change: int, amount: ResourceView) -> None:
        """Count what a real pod holds as being released, or no more so; under kai alone."""
        if self.is_kai and not allocation.placeholder:
            (add_into if change > 0 else subtract_into)(self.going, amount)

    def moved(self, key: str) -> Claim | None:
        """Return the claim for what replaces a pod that is moved, until it has gone."""
        claim = self.claims_for(Purpose.MOVED).get(key)
        return claim if claim is not None and not claim.until_ns else None

    def claims_for(self, purpose: Purpose) -> Mapping[str, Claim]:
        """Return the claims of a purpose, by their keys."""
        return self.claims.get(purpose, _NONE)

    def mark_released(self, key: str, why: str) -> None:
        """Write down that a release was decided, so that it is decided once."""
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
        """Forget that an allocation is being released; return what it was released for."""
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
        """Count a placeholder that was asked for and will never be allocated as timed out."""
        self.task_groups[task_group_name].timedout += 1

    def count_placeholder(
        self, task_group_name: str, resource: ResourceView, *, exists: bool = False
    ) -> None:
        """Count a placeholder that is asked for, or that ``exists`` already.

        While its gang reserves one that is asked for takes the place of one of its group that was
        lost, if any was: the group has no more members for that. One that exists was lost with its
        node, and is back with it.
        """
        counts = self._counts_in(task_group_name)
        if counts.timedout and (exists or self.is_reserving):
            counts.timedout -= 1
        else:
            counts.count += 1
        counts.min_resource = dict(resource)
