"""The newest events, numbered from 0 on; the oldest go when there are more than the ring holds."""

from collections import deque
from itertools import islice

from shared.messages.state import EventState

MAX_EVENTS = 100_000


class EventRing:
    """Events with their numbers. Source: contract section 7.2, case W-17."""

    def __init__(self, capacity: int = MAX_EVENTS) -> None:
        self._events: deque[EventState] = deque(maxlen=capacity)
        self._next = 0

    def add(self, event: EventState) -> None:
        """Take an event in."""
        self._events.append(event)
        self._next += 1

    @property
    def lowest(self) -> int:
        """Return the number of the oldest event that is held; 0 while there is none."""
        return self._next - len(self._events)

    @property
    def highest(self) -> int:
        """Return the number of the newest event; 0 while there is none."""
        return max(0, self._next - 1)

    def read(self, start: int, count: int) -> list[EventState]:
        """Return at most ``count`` events from a number on; none where it is not held."""
        if not self.lowest <= start < self._next:
            return []
        at = start - self.lowest
        return list(islice(self._events, at, at + count))
