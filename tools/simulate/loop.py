"""An event loop in virtual time: it never waits; time advances when nothing else is left to do.

Work for threads runs at once, on the loop's own thread, so that the order is deterministic.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from shared.model.units import NANOS_PER_SECOND


class StalledError(RuntimeError):
    """A deadlock: all tasks wait, and nothing is due."""


class _Skipping(selectors.SelectSelector):
    """A selector that reports nothing and advances the time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: Callable[[float | None], None] = lambda _: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.waited(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. Its time starts at 0 and is the only true time of a run."""

    def __init__(self) -> None:
        selector = _Skipping()
        super().__init__(selector)
        self._seconds = 0.0
        self._look: Callable[[], None] | None = None
        self._every_seconds = 0.0
        self._next_seconds = 0.0
        selector.waited = self._pass

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self._seconds

    @property
    def now_ns(self) -> int:
        """The virtual time in nanoseconds since the start."""
        return round(self._seconds * NANOS_PER_SECOND)

    def observe(self, look: Callable[[], None] | None, every_seconds: float) -> None:
        """Call ``look`` at every interval of virtual time from now on; None stops that.

        It is called while the time advances and not by a timer, so that it does not change what the
        loop runs, or in which order. It must only read.
        """
        self._look, self._every_seconds, self._next_seconds = look, every_seconds, self._seconds

    def _pass(self, timeout: float | None) -> None:
        if timeout is None:
            raise StalledError("everybody waits, and nothing is due")
        if timeout > 0:
            due = max(self._seconds, self._scheduled[0].when())  # type: ignore[attr-defined]
            while self._look is not None and self._next_seconds < due:
                self._seconds = max(self._seconds, self._next_seconds)
                self._look()
                self._next_seconds += self._every_seconds
            self._seconds = due

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run the function now."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future
