"""Closes idle and stuck connections; those that request, get answers and read them stay open.

Rule 1: a request's head arrives within HEAD_SECONDS, its body without a pause of PAUSE_SECONDS and
        within BODY_SECONDS.
Rule 2: part of an answer is read every WRITE_SECONDS, or the connection is closed: an
        unread answer costs memory.
Rule 3: at MAX_CONNECTIONS, or MAX_OF_AN_ADDRESS of one client's address, the one idle for the
        longest time is closed for a new one. If none is idle, the new one is refused.
So a thousand idle connections keep no client out, health checks least of all.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 1_000
MAX_OF_AN_ADDRESS = 500
HEAD_SECONDS = 10.0
PAUSE_SECONDS = 10.0
BODY_SECONDS = 60.0
WRITE_SECONDS = 30.0
SWEEP_SECONDS = 1.0


class Connection(H11Protocol):
    """A connection with the time of its last activity, in seconds of the loop's clock."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, if there is room or an idle one can be ended."""
        self._began = self._heard = self._wrote = self.loop.time()
        self._unread = 0
        self._asked: object = None  # the request that ``_began`` is about
        super().connection_made(transport)
        if not self._has_room():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Record that data arrived."""
        self._heard = self.loop.time()
        super().data_received(data)
        if self.cycle is not self._asked:
            self._asked, self._began = self.cycle, self._heard

    def on_response_complete(self) -> None:
        """Record that the next request may arrive."""
        self._began = self.loop.time()
        super().on_response_complete()
        if self.cycle is not self._asked:  # it was there already
            self._asked = self.cycle

    @property
    def is_idle(self) -> bool:
        """Whether no request is being received or answered, and no data is left to send."""
        is_over = self.cycle is None or self.cycle.response_complete
        return is_over and not self.transport.get_write_buffer_size()

    def is_late(self, now: float) -> bool:
        """Return whether the client exceeds a time limit; called once per sweep."""
        unread = self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._wrote = now
        self._unread = unread
        if unread:
            return now - self._wrote > WRITE_SECONDS
        if self.is_idle:
            return now - self._began > HEAD_SECONDS
        if self.cycle.more_body and not self.cycle.response_complete:
            return now - self._heard > PAUSE_SECONDS or now - self._began > BODY_SECONDS
        return False

    def end(self) -> None:
        """Close the connection at once; unsent data is lost."""
        self.transport.abort()

    def _has_room(self) -> bool:
        others: set[Connection] = self.connections  # type: ignore[assignment]
        address = self.client[0] if self.client else ""
        of_address = [item for item in others if item.client and item.client[0] == address]
        return _makes_room(of_address, MAX_OF_AN_ADDRESS, self) and _makes_room(
            others, MAX_CONNECTIONS, self
        )


def _makes_room(there: Iterable[Connection], most: int, newest: Connection) -> bool:
    """End the connection that was idle for the longest time; return whether there is room."""
    counted = [item for item in there if not item.transport.is_closing()]
    if len(counted) <= most:
        return True
    idle = [item for item in counted if item is not newest and item.is_idle]
    if not idle:
        return False
    min(idle, key=lambda item: item._began).end()
    return True


async def sweep(connections: set[Any]) -> None:
    """End late connections, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = loop.time()
        for connection in [item for item in connections if item.is_late(now)]:
            connection.end()
