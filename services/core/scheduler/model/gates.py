"""Who waits for more room, and who of them is to be tried when there is some.

A queue, a user and a group have a waiting list each. When their room grows, the list is requeued,
and only those who waited on it are looked at again.

Rule 1: buckets and reservations that wait are each tried again. Who is refused by the own max of a
        queue is not, as long as its need is more than that leaves, found for all in one comparison;
        but only where nobody preempts: there each refusal sets the moment of the next look.
Rule 2: applications that wait are classed. Who is in one class is refused alike: whatever refuses
        one of them refuses all, as long as nothing is placed in between (``class_key``). Of a
        class only the first in the order of its leaf is tried. Refused as before, it goes back,
        and the others sleep on; whatever else comes of it (it starts, ends, has changed, is
        refused for another reason), the next is tried at once. One that is not considered in a
        cycle, because those of its shape are refused already, keeps nobody asleep either.
Rule 3: an application whose key is no longer that of its class leaves it and is tried by itself.
        To be tried once too often costs time, to be left asleep a start: in doubt it is tried.
Source: ADR 30.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from services.core.scheduler.model.needs import NeedTable
from shared.model.numbers import INT64_MAX
from shared.model.reasons import Reason, Refusal
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application
    from services.core.scheduler.model.queues import Queue
    from services.core.scheduler.model.reservations import Reservation
    from services.core.scheduler.model.shapes import AskGroup, Bucket
    from shared.model.reasons import Refusal

K = TypeVar("K")
_SMALL_HEAP = 64  # a heap sheds its lapsed entries when it has twice what it had then
_AS_A_WHOLE = (Reason.GANG_HEADROOM, Reason.GANG_PLACES)


def class_key(application: "Application", refusal: Refusal) -> Hashable:
    """Return what decides over a refused application, the ledgers and the nodes aside.

    Two of one key, considered one after the other, get the same answer: it is made of nothing but
    this, the place in the order (who is behind an overdue gang is refused all the same) and what
    is the same for all. Whose answer hangs on more is alone.
    """
    leaf = application.queue
    alone = (application.id,)
    if leaf.settings.state_aware:  # to be considered may be to be the one that is let start
        return alone
    what: Hashable
    if refusal.reason in _AS_A_WHOLE:
        what = application.needs_of_the_whole()
    elif refusal.reason is not Reason.MAX_APPLICATIONS:
        return alone
    elif application.allocations or application.id in leaf.allocating_accepted:
        return alone  # where it runs already it is not one more
    elif application.awaits_admission:
        what = None
    else:  # it is considered when one of its buckets is
        what = frozenset(group.bucket for group in application.groups.values())
    state, is_starting = application.state, application.is_starting
    return refusal.reason, leaf, application.owner, state, is_starting, what


class GangList(Protocol):
    """Where gangs wait for places on the nodes."""

    def class_of(self, application: "Application", refusal: "Refusal") -> "EquivalenceClass | None":
        """Return the class of gangs that lack the same places; None if no node can help."""

    def remove(self, application: "Application") -> None:
        """Forget a gang; one that does not wait is no error."""


class Home(Protocol):
    """Where a class waits."""

    def forget(self, waiting: "EquivalenceClass") -> None:
        """Forget a class in which nobody is left."""


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
    _compact_at: int = _SMALL_HEAP

    def add(self, application: "Application") -> None:
        """Let an application wait, or find its place anew after its order changed."""
        self._pushed += 1
        self.members[application] = self._pushed
        heappush(self._heap, (application.order, self._pushed, application))
        if len(self._heap) > self._compact_at:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapify(self._heap)
            self._compact_at = max(_SMALL_HEAP, 2 * len(self._heap))

    def remove(self, application: "Application") -> None:
        """Let an application wait no more."""
        self.members.pop(application, None)
        self._forget_if_over()

    def requeue(self) -> None:
        """Let the first be considered for all, unless one that comes before it already is."""
        head = self._head()
        if head is None or (self.tried is not None and self.tried.order < head.order):
            return
        if self.tried is not None:
            self.tried.trying_for = None
        self.tried, self.tried_since_ns = head, head.parked_since_ns
        self.leaf.root.trying[self] = None
        head.trying_for = self
        head.unpark()

    def was_tried(self) -> None:
        """Sleep on if the one that was considered is back; if not, let the next be considered."""
        tried, self.tried = self.tried, None
        self.leaf.root.trying.pop(self, None)
        if tried is not None:
            tried.trying_for = None
        if tried not in self.members:
            self.requeue()
        self._forget_if_over()

    def _head(self) -> "Application | None":
        while self._heap:
            if self._is_valid(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def _is_valid(self, entry: tuple[tuple[object, ...], int, "Application"]) -> bool:
        return self.members.get(entry[2]) == entry[1]

    def _forget_if_over(self) -> None:
        if not self.members and self.tried is None:
            self.home.forget(self)


class Waiters(Generic[K]):
    """Who waits on one list: those of whom it is known how much room they need, and others."""

    def __init__(self) -> None:
        self._by_need: NeedTable[K] = NeedTable()
        self._others: dict[K, None] = {}

    def add(self, key: K, need: ResourceView | None) -> None:
        """Let one wait for so much room; None: for any."""
        self.discard(key)
        if need is None:
            self._others[key] = None
        else:
            self._by_need.add(key, need)

    def discard(self, key: K) -> None:
        """Let one wait no more, if it does."""
        self._by_need.discard(key)
        self._others.pop(key, None)

    def to_try(self, room: ResourceView) -> list[K]:
        """Return whom a room might be enough for; it has any amount of a type it does not name."""
        return [*self._others, *self._by_need.fitting(room, unnamed=INT64_MAX)]

    def __iter__(self) -> Iterator[K]:
        yield from self._others
        yield from self._by_need

    def __len__(self) -> int:
        return len(self._others) + len(self._by_need)


@dataclass(slots=True, eq=False, repr=False)
class Gate:
    """Who waits for more room: buckets, classes of applications, reservations.

    ``queue`` is whose room it is, where a need can be compared with it: not a user's, and not the
    root's, of which the size is what the nodes are told of.
    """

    queue: "Queue | None" = None
    buckets: Waiters["Bucket"] = field(default_factory=Waiters)
    classes: Waiters[EquivalenceClass] = field(default_factory=Waiters)
    reservations: dict["Reservation", None] = field(default_factory=dict)
    _by_key: dict[Hashable, EquivalenceClass] = field(default_factory=dict)

    def block(self, bucket: "Bucket", *, by_need: bool) -> None:
        """Let a bucket wait; ``by_need``: until its shape fits, not for every chance."""
        self.buckets.add(bucket, bucket.shape.resource if by_need and self.queue else None)

    def class_of(
        self, application: "Application", refusal: Refusal, *, by_need: bool
    ) -> EquivalenceClass:
        """Return the class of applications that are refused like this one."""
        key = class_key(application, refusal)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = EquivalenceClass(self, key, application.queue)
            is_by_need = (
                by_need
                and self.queue is not None
                and refusal.reason is Reason.GANG_HEADROOM
                and not application.starts_in_part
                and application.owner is None
                and not application.queue.settings.state_aware
            )
            self.classes.add(found, application.outstanding() if is_by_need else None)
        return found

    def try_always(self, waiting: EquivalenceClass) -> None:
        """Have a class tried at every chance: others wait for one of it, if it is room it lacks."""
        self.classes.add(waiting, None)

    def forget(self, waiting: EquivalenceClass) -> None:
        """Forget a class in which nobody is left."""
        self._by_key.pop(waiting.key, None)
        self.classes.discard(waiting)

    def open(self) -> None:
        """Let those who wait here be considered again, of like applications the first."""
        if self.buckets:
            room = self.queue.own_room() if self.queue is not None else {}
            for bucket in self.buckets.to_try(room):
                bucket.leaf.open(bucket)
        if self.classes:
            room = self.queue.own_room(for_gangs=True) if self.queue is not None else {}
            for waiting in self.classes.to_try(room):
                waiting.requeue()
        if self.reservations:
            reservations, self.reservations = self.reservations, {}
            for reservation in reservations:
                reservation.retry()

    def open_for_all(self) -> None:
        """Let those be considered too whose need is more than there is: all may be different."""
        for bucket in list(self.buckets):
            bucket.leaf.open(bucket)
        for waiting in list(self.classes):
            waiting.requeue()
        self.open()


@dataclass(slots=True, eq=False, repr=False)
class PluginGate(Gate):
    """Who waits for one hook to say yes; of an application's asks only those that it refused."""

    groups: dict["AskGroup", None] = field(default_factory=dict)

    def hold(self, group: "AskGroup", refusal: "Refusal") -> None:
        """Set a group aside."""
        group.refused = (refusal, self)
        group.bucket.withdraw(group)
        self.groups[group] = None

    def open(self) -> None:
        """Let everybody who waits here be considered again."""
        Gate.open(self)
        groups, self.groups = self.groups, {}
        for group in groups:
            group.refused = None
        for application in dict.fromkeys(group.application for group in groups):
            application.enter()
            for reservation in application.reservations.values():
                reservation.retry()
