"""Clocks: the source of "now" for hosts and the scenario runner. Machines never read one."""

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
        """Sleep until that moment."""


def _running_ns() -> int:
    """Return the machine's uptime, or the closest approximation, in nanoseconds."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if boot is None else time.clock_gettime_ns(boot)


class SystemClock:
    """The wall clock at construction, advanced by the machine's uptime.

    Setting the wall clock, forward or back, has no effect: no wait ends early or starts over, and a
    single reading in the future does not stop the time of services that only let it increase. Time
    for which the machine was suspended counts.
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
        """Sleep until that moment; return at once if it has passed."""
        await asyncio.sleep(max(0, due_ns - self.now_ns()) / NANOS_PER_SECOND)


class VirtualClock:
    """A clock that only advances when told to; sleepers wake in order of their due times."""

    def __init__(self, start_ns: int) -> None:
        self._now_ns = start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._entered = 0

    def now_ns(self) -> int:
        """Return the current virtual time."""
        return self._now_ns

    async def sleep_until(self, due_ns: int) -> None:
        """Wait until the clock reaches that moment."""
        if due_ns <= self._now_ns:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entered += 1
        heappush(self._sleepers, (due_ns, self._entered, future))
        await future

    def next_due_ns(self) -> int | None:
        """Return when the first sleeper is due, or None."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move_to(self, moment_ns: int) -> None:
        """Advance the clock, and wake the sleepers due by then."""
        self._now_ns = max(moment_ns, self._now_ns)
        while self._sleepers and self._sleepers[0][0] <= self._now_ns:
            _, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
