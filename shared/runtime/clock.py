"""Clocks: the source of "now". Machines never see one; hosts and the scenario runner do."""

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from shared.model.units import NANOS_PER_SECOND


class Clock(Protocol):
    """A source of time."""

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch."""

    async def sleep_until(self, due_ns: int) -> None:
        """Return at that moment."""


def _running_ns() -> int:
    """Return the machine's uptime, or the closest approximation, in nanoseconds."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if boot is None else time.clock_gettime_ns(boot)


class SystemClock:
    """The machine's clock as it stood when this was made, and what has run since.

    A wall clock that is set, forward or back, moves nothing here: no wait ends early, none starts
    over, and one reading in the future does not stop the time of those who only let it get later.
    Time for which the machine was suspended counts.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        running_ns: Callable[[], int] = _running_ns,
    ) -> None:
        self._running_ns = running_ns
        self._offset_ns = wall_ns() - running_ns()

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch."""
        return self._offset_ns + self._running_ns()

    async def sleep_until(self, due_ns: int) -> None:
        """Sleep; a moment that has passed returns at once."""
        await asyncio.sleep(max(0, due_ns - self.now_ns()) / NANOS_PER_SECOND)


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
        """Return the earliest end of a sleep, or None."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move_to(self, moment_ns: int) -> None:
        """Move on, and wake the sleeps that end by then."""
        self._now_ns = max(moment_ns, self._now_ns)
        while self._sleepers and self._sleepers[0][0] <= self._now_ns:
            _, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
