"""Gates: whoever is refused for want of room waits at the gate of who refused it.

A queue, a user and a group have one each. When their room grows, the gate opens, and only those
who waited at it are looked at again.

Rule 1: buckets and reservations that wait are each tried again.
Rule 2: applications that wait are classed: who is in one class is refused alike, for the same
        reason and the same need, in the same leaf. Only the first of a class, in the order of its
        leaf, is tried. Refused again, it is back among its class, and the others sleep on: they
        cost nothing. Whatever else comes of it, the next of the class is tried at once.
Rule 3: of gangs that a queue's own max refuses only the classes are tried that fit what is left
        of it, and the one in which is a gang that others wait for.
Rule 4: a refusal stays as it was said first: its numbers are those of ``since``. An application
        that is refused again alike is not told again.
Source: ADR 30.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from services.core.scheduler.needs import NeedTable
from shared.model.numbers import INT64_MAX
from shared.model.reasons import Reason, Refusal
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.application import Application
    from services.core.scheduler.queues import Queue
    from services.core.scheduler.reservations import Reservation
    from services.core.scheduler.shapes import Bucket

_BY_NEED = (Reason.GANG_HEADROOM,)  # what a gang has yet to allocate decides; else it does not
_SMALL_HEAP = 64  # a heap sheds its lapsed entries when it has twice what it had then


def class_key(application: "Application", refusal: Refusal) -> Hashable:
    """Return what those have in common whom a gate refuses alike."""
    if application.starts_placed:  # what it needs of the nodes is its own
        return (application.id,)
    need = sorted(application.outstanding().items()) if refusal.reason in _BY_NEED else ()
    return (refusal.reason, application.queue, application.owner, tuple(need))


@dataclass(slots=True, eq=False, repr=False)
class WaitingClass:
    """Applications of one leaf that a gate refuses alike.

    ``tried`` is the one that is considered at present, for all of them; it is not in ``members``.
    """

    gate: "Gate"
    leaf: "Queue"
    key: Hashable
    members: dict["Application", int] = field(default_factory=dict)  # -> its entry that counts
    tried: "Application | None" = None
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

    def try_next(self) -> None:
        """Let the first of the class be considered, unless one is already.

        One that has nothing to be considered for wakes all the same, and the next is taken.
        """
        while self.tried is None and self.members:
            while not self._is_valid(self._heap[0]):
                heappop(self._heap)
            head = self._heap[0][2]
            self.tried = head
            self.leaf.root.trying[self] = None
            head.trying_for = self
            if not head.unpark():
                self._settle()

    def settle(self) -> None:
        """Try the next: the one that was considered has started, or something else keeps it."""
        self._settle()
        self.try_next()

    def rest(self) -> None:
        """Sleep on: the one that was considered is refused again, and so would the others be."""
        self._settle()

    def disband(self) -> None:
        """Let every member be considered: what made them alike may not hold any more."""
        for application in list(self.members):
            application.unpark()
            application.refused_before = None
        self._settle()

    def _settle(self) -> None:
        tried, self.tried = self.tried, None
        self.leaf.root.trying.pop(self, None)
        if tried is not None:
            tried.trying_for = None
        self._forget_if_over()

    def _is_valid(self, entry: tuple[tuple[object, ...], int, "Application"]) -> bool:
        return self.members.get(entry[2]) == entry[1]

    def _forget_if_over(self) -> None:
        if not self.members and self.tried is None:
            self.gate.forget(self)


@dataclass(slots=True, eq=False, repr=False)
class Gate:
    """Who waits for more room: buckets, classes of applications, reservations."""

    buckets: dict["Bucket", None] = field(default_factory=dict)
    classes: dict[Hashable, WaitingClass] = field(default_factory=dict)
    reservations: dict["Reservation", None] = field(default_factory=dict)
    room: Callable[[], ResourceView] | None = None  # for whole gangs, of the types with a limit
    by_need: NeedTable[WaitingClass] = field(default_factory=NeedTable)  # tried where they fit it
    always: dict[WaitingClass, None] = field(default_factory=dict)  # tried whatever the room is

    def class_of(self, application: "Application", refusal: Refusal) -> WaitingClass:
        """Return the class of applications that are refused like this one."""
        key = class_key(application, refusal)
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = WaitingClass(self, application.queue, key)
            is_by_need = self.room is not None and refusal.reason in _BY_NEED
            is_by_need = is_by_need and not application.starts_placed
            if is_by_need and not application.queue.settings.state_aware:
                self.by_need.add(found, application.outstanding())
            else:  # where one starts at a time, to be considered is to be that one
                self.always[found] = None
        return found

    def try_always(self, waiting: WaitingClass) -> None:
        """Have a class tried even if its need is over the room: others wait for one in it."""
        self.by_need.discard(waiting)
        self.always[waiting] = None

    def forget(self, waiting: WaitingClass) -> None:
        """Forget a class in which nobody is left."""
        self.classes.pop(waiting.key, None)
        self.by_need.discard(waiting)
        self.always.pop(waiting, None)

    def _classes_to_try(self) -> list[WaitingClass]:
        """Return the classes that may have a chance: not those that the gate itself still refuses.

        The first of them might be refused for another reason now; what it is told is true as well.
        """
        found = list(self.always)
        if self.by_need and self.room is not None:
            found += self.by_need.fitting(self.room(), unnamed=INT64_MAX)
        return found

    def open(self) -> None:
        """Let those who wait here be considered again, of like applications the first."""
        if self.buckets:
            for bucket in list(self.buckets):
                bucket.leaf.open(bucket)
        if self.classes:
            for waiting in self._classes_to_try():
                waiting.try_next()
        if self.reservations:
            reservations, self.reservations = self.reservations, {}
            for reservation in reservations:
                reservation.retry()

    def open_for_all(self) -> None:
        """Let everybody who waits here be considered again: a limit is another one."""
        self.open()
        self.disband()

    def disband(self) -> None:
        """Let every application be considered: what made some alike may not hold any more."""
        for waiting in list(self.classes.values()):
            waiting.disband()
