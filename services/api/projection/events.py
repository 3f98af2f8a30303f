"""The newest events, numbered from 0 on; the oldest go when there are more than the ring holds.

A replica of several partitions has a ring of all, and one of each with the latest MAX_BESIDE, in
numbers of its own.

Events that are made of the state (``projection.news``) are held as what they are made of, and
written out when they are read: a burst of a thousand pods costs one entry an application.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Protocol

from services.api.projection.event_settings import MAX_EVENTS
from shared.messages.state import EventState

MAX_BESIDE = 2_000  # events of each of several partitions; the oldest are dropped


class DeferredEvents(Protocol):
    """Several events that are written out when they are read; always the same ones."""

    @property
    def count(self) -> int:
        """Return how many they are."""

    def events(self) -> Iterator[EventState]:
        """Yield them in their order."""


class EventRing:
    """Events with their numbers. Source: docs/rules/events.md#what-is-recorded, case W-17."""

    def __init__(self, capacity: int = MAX_EVENTS) -> None:
        self._entries: deque[tuple[int, EventState | DeferredEvents]] = deque()  # by first number
        self._capacity = capacity
        self._whole: EventRing | None = None  # what is put in here is put in there as well
        self.is_open = True  # whether what comes is taken in
        self._next = 0
        self._first = 0  # below it all was forgotten while fewer were held
        self.read_total = 0  # how many were read, by all readers

    def add(self, event: EventState) -> None:
        """Take an event in."""
        self._put(event, 1)

    def add_all(self, told: DeferredEvents) -> None:
        """Take several events in."""
        if told.count:
            self._put(told, told.count)

    def hold(self, capacity: int) -> None:
        """Keep at most so many events from now on; forgotten ones do not return."""
        if self._whole is not None:
            self._whole.hold(capacity)
            capacity = min(capacity, MAX_BESIDE)
        self._first = self.lowest
        self._capacity = capacity
        self._forget()

    def join(self, whole: "EventRing") -> None:
        """Also append new events to the ring of all partitions, and keep only the latest here."""
        self.hold(min(self._capacity, MAX_BESIDE))
        self._whole = whole

    def copy(self) -> "EventRing":
        """Return a ring of its own with the same events under the same numbers."""
        ring = EventRing(self._capacity)
        ring._entries, ring.read_total = self._entries.copy(), self.read_total
        ring._next, ring._first = self._next, self._first
        return ring

    def _put(self, entry: EventState | DeferredEvents, count: int) -> None:
        if not self.is_open:
            return
        self._entries.append((self._next, entry))
        self._next += count
        self._forget()
        if self._whole is not None:
            self._whole._put(entry, count)

    def _forget(self) -> None:
        while len(self._entries) > 1 and self._entries[1][0] <= self.lowest:
            self._entries.popleft()

    @property
    def next_id(self) -> int:
        """Return the number that the next event gets."""
        return self._next

    @property
    def lowest(self) -> int:
        """Return the number of the oldest event that is held; 0 while there is none."""
        return max(self._first, self._next - self._capacity)

    @property
    def next(self) -> int:
        """Return the number of the next event."""
        return self._next

    @property
    def highest(self) -> int:
        """Return the number of the newest event; 0 while there is none."""
        return max(0, self._next - 1)

    def read(self, start: int, count: int) -> list[EventState]:
        """Return at most ``count`` events from a number on; none where it is not held."""
        if not self.lowest <= start < self._next:
            return []
        found = list(islice(self._from(start), count))
        self.read_total += len(found)
        return found

    def newest(self, start: int) -> list[EventState]:
        """Return the events from a number on; it costs what is returned, not what is held."""
        found: list[list[EventState]] = []
        for first, entry in reversed(self._entries):
            if isinstance(entry, EventState):
                if first < start:
                    break
                found.append([entry])
                continue
            if first + entry.count <= start:
                break
            found.append(list(islice(entry.events(), max(0, start - first), None)))
        return list(chain.from_iterable(reversed(found)))

    def _from(self, start: int) -> Iterator[EventState]:
        for first, entry in self._entries:
            if isinstance(entry, EventState):
                if first >= start:
                    yield entry
            elif first + entry.count > start:
                yield from islice(entry.events(), max(0, start - first), None)
