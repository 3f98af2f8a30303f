"""A ring of the newest events, numbered from 0; the oldest are dropped.

A replica with several partitions has a ring of all events, and for each partition one of the latest
MAX_BESIDE with separate numbers. Events derived from the state (``projection.news``) are stored as
their source, and written out when they are read: a burst of a thousand pods costs one entry per
application.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Protocol

from services.api.projection.event_settings import MAX_EVENTS
from shared.messages.state import EventState

MAX_BESIDE = 2_000  # events of each of several partitions; the oldest are dropped


class DeferredEvents(Protocol):
    """Several events that are written out when they are read, always the same ones."""

    @property
    def count(self) -> int:
        """Their number."""

    def events(self) -> Iterator[EventState]:
        """Yield them in order."""


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
        """Append an event."""
        self._put(event, 1)

    def add_all(self, told: DeferredEvents) -> None:
        """Append several events."""
        if told.count:
            self._put(told, told.count)

    def hold(self, capacity: int) -> None:
        """Limit the number of events from now on; dropped ones do not return."""
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
        """Return a separate ring with the same events and numbers."""
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
        """The number of the next event."""
        return self._next

    @property
    def lowest(self) -> int:
        """The number of the oldest stored event; 0 if there is none."""
        return max(self._first, self._next - self._capacity)

    @property
    def next(self) -> int:
        """The number of the next event."""
        return self._next

    @property
    def highest(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return max(0, self._next - 1)

    def read(self, start: int, count: int) -> list[EventState]:
        """Return at most ``count`` events from a number on; none if that is not stored."""
        if not self.lowest <= start < self._next:
            return []
        found = list(islice(self._from(start), count))
        self.read_total += len(found)
        return found

    def newest(self, start: int) -> list[EventState]:
        """Return the events from a number on; the cost depends on the returned events only."""
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
