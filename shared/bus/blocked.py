"""Detects that a broker short of memory or disk has blocked publishing.

The broker notifies a connection when it publishes (``connection.blocked``), and again when the
alarm is over; readers continue. No message or connection is lost: publishers wait. Therefore the
wait for a confirm has no time limit while the connection is blocked.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog
from prometheus_client import Gauge

LOOK_SECONDS = 0.25  # between checks whether a connection is blocked
_BLOCKED = Gauge(
    "muster_broker_blocks",
    "Connections on which the broker accepts nothing, short of memory or disk",
)
_CONNECTIONS: "weakref.WeakSet[Blocked]" = weakref.WeakSet()  # of this process
log = structlog.get_logger("muster.bus")


def blocked_seconds() -> float | None:
    """How long the broker has blocked this process, in seconds; None if it does not."""
    since = [item.since for item in _CONNECTIONS if item.since is not None]
    return time.monotonic() - min(since) if since else None


class Blocked:
    """Whether a connection is blocked, since when, and the time limits of its waits for confirms.

    A wait's limit is suspended while the broker blocks and starts from its full length afterwards.
    All limits are multiplied by ``slower``, which accounts for slow machines.
    """

    def __init__(self, name: str, slower: float = 1.0) -> None:
        self.since: float | None = None  # of time.monotonic()
        self.name = name
        self._slower = slower
        self._limits: dict[asyncio.Timeout, float] = {}  # and how long each is when it is whole
        _CONNECTIONS.add(self)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.since = time.monotonic()
        _BLOCKED.inc()
        log.warning(
            "the broker accepts no messages: it is short of memory or disk; publishing waits",
            connection=self.name,
        )
        self._set_limits(None)
        try:
            yield
        finally:
            lasted = time.monotonic() - self.since
            self.since = None
            _BLOCKED.dec()
            self._set_limits(asyncio.get_running_loop().time())
            log.warning(
                "the broker accepts messages again, or its connection is lost",
                connection=self.name,
                seconds=round(lasted, 1),
            )

    def _set_limits(self, now: float | None) -> None:
        for limit, seconds in self._limits.items():
            if not limit.expired():
                limit.reschedule(None if now is None else now + seconds)

    @asynccontextmanager
    async def confirmed(
        self, seconds: float, waits: dict[asyncio.Timeout, None] | None = None
    ) -> AsyncIterator[None]:
        """Limit a wait for a confirm; the limit is in ``waits`` while the wait lasts.

        Raises TimeoutError.
        """
        whole = self._slower * seconds
        waits = {} if waits is None else waits
        async with asyncio.timeout(None if self.since is not None else whole) as limit:
            self._limits[limit] = whole
            waits[limit] = None
            try:
                yield
            finally:
                del self._limits[limit], waits[limit]

    async def watch(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Check for blocking until cancelled; ``ready`` waits while the connection is blocked."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            waiting = asyncio.ensure_future(ready())
            try:
                await asyncio.sleep(0)
                if not waiting.done():
                    with self._counted():
                        await waiting
            finally:
                waiting.cancel()
