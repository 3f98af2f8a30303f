"""Clocks: where "now" comes from. Machines never see one; hosts and the scenario runner do."""

import asyncio
import time
from heapq import heappop, heappush
from typing import Protocol

from shared.model.units import NANOS_PER_SECOND


class Clock(Protocol):
    """A source of time."""

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch."""

    async def sleep_until(self, due_ns: int) -> None:
        """Return once that moment has come."""


class SystemClock:
    """The machine's own clock."""

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch."""
        return time.time_ns()

    async def sleep_until(self, due_ns: int) -> None:
        """Sleep; a moment that has passed returns at once."""
        await asyncio.sleep(max(0, due_ns - time.time_ns()) / NANOS_PER_SECOND)


class VirtualClock:
    """A clock that stands still until it is moved; sleepers wake in the order of their moments."""

    def __init__(self, start_ns: int) -> None:
        self._now_ns = start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._entered = 0

    def now_ns(self) -> int:
        """Return the moment at which the clock stands."""
        return self._now_ns

    async def sleep_until(self, due_ns: int) -> None:
        """Wait until the clock is moved to that moment."""
        if due_ns <= self._now_ns:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entered += 1
        heappush(self._sleepers, (due_ns, self._entered, future))
        await future

    def next_due_ns(self) -> int | None:
        """Return the first moment that somebody sleeps for, or None."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move_to(self, moment_ns: int) -> None:
        """Move on, and wake whoever slept until then or earlier."""
        self._now_ns = max(moment_ns, self._now_ns)
        while self._sleepers and self._sleepers[0][0] <= self._now_ns:
            _, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
