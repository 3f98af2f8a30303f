"""A service's two connections to a broker: one publishes, one consumes.

A broker that blocks publishers thus still accepts acknowledgements and answers requests. Both
connections are opened, lost and closed together. If a node of a cluster does not answer or is lost,
the next address is tried.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import unquote, urlsplit

import aio_pika
import structlog
from aio_pika.abc import AbstractConnection
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_delay,
)

from shared.bus.addresses import addresses_of, order_of
from shared.bus.blocked import Blocked
from shared.bus.connection import Closing, Connection, call_at_end, wire_of
from shared.bus.errors import BusUnavailableError

CONNECT_SECONDS = 10.0
ATTEMPT_SECONDS = 2.0  # the first wait for an address; it doubles with each round of them
HEARTBEAT_SECONDS = 3  # the broker gives a silent connection up after two to three of them
_CONNECTING_ENDS = stop_after_delay(CONNECT_SECONDS)
log = structlog.get_logger("muster.bus")


class Links:
    """The two connections of one service, and the broker address that they use.

    ``url`` may name several brokers of a cluster, which are tried in an order that is ``name``'s
    own. ``on_end`` is called when one of the connections that are open ends.
    Raises UnknownBusError for a URL that names no broker.
    """

    def __init__(
        self, url: str, name: str, heartbeat_seconds: int, on_end: Callable[[], None]
    ) -> None:
        self.name = name
        self._on_end = on_end
        self._addresses = order_of(addresses_of(url), name)
        self.user = unquote(urlsplit(self._addresses[0]).username or "guest")
        self.connections: list[AbstractConnection] = []  # a new list for each connect
        slower = max(heartbeat_seconds / HEARTBEAT_SECONDS, 1.0)  # for slow machines
        self.blocked = Blocked(name, slower)
        self.closing = Closing()
        self._heartbeat_seconds = heartbeat_seconds
        self._at = 0  # the address of the next attempt
        self._failures = 0  # consecutive failed attempts
        self._watching: asyncio.Task[None] | None = None  # detects blocked publishing
        self._limits: dict[asyncio.Timeout, list[AbstractConnection]] = {}  # of waits for answers

    @property
    def are_up(self) -> bool:
        """Whether there are connections and none of them has ended."""
        return bool(self.connections) and not any(c.is_closed for c in self.connections)

    @property
    def address(self) -> str:
        """Host and port in use, or to be tried next."""
        return _shown(self._addresses[self._at])

    @property
    def has_others(self) -> bool:
        """Whether there is more than one address."""
        return len(self._addresses) > 1

    @property
    def publishing(self) -> AbstractConnection:
        """The connection that publishes.

        Raises BusUnavailableError if a concurrent call found it lost.
        """
        return self._connection(0)

    @property
    def reading(self) -> AbstractConnection:
        """The connection for consuming and requests, which works while publishing is blocked.

        Raises BusUnavailableError if a concurrent call found it lost.
        """
        return self._connection(1)

    def _connection(self, at: int) -> AbstractConnection:
        if len(self.connections) <= at:
            raise BusUnavailableError("the connection was closed meanwhile")
        return self.connections[at]

    async def open(self) -> None:
        """Open both connections, trying for CONNECT_SECONDS each; raises OSError after that."""
        for purpose in ("publish", "consume"):
            await self._open(purpose)
        ready = wire_of(self.publishing).ready
        self._watching = asyncio.create_task(self.blocked.watch(ready))

    def drop(self) -> None:
        """Close both connections in the background."""
        connections, self.connections = self.connections, []
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        for connection in connections:
            self.closing.begin(connection)

    def go_on(self) -> None:
        """Use the next address for the next attempt."""
        self._at = (self._at + 1) % len(self._addresses)

    @asynccontextmanager
    async def within(self, seconds: float | None) -> AsyncIterator[None]:
        """Limit the wait for an answer; the wait also ends when a connection ends.

        Opening a channel or writing may otherwise wait forever on a connection that the client has
        given up, because nothing consumes its write queue any more.
        """
        async with asyncio.timeout(seconds) as limit:
            self._limits[limit] = self.connections
            try:
                yield
            finally:
                del self._limits[limit]

    # --- connecting -----------------------------------------------------------------------------

    async def _open(self, purpose: str) -> None:
        """Open a connection to the first address that answers; pause only after a round of all."""
        again = AsyncRetrying(
            retry=retry_if_exception_type(OSError),
            wait=self._pause_after,
            stop=_CONNECTING_ENDS,
            reraise=True,
        )
        await again(self._open_once, purpose)

    def _pause_after(self, attempts: RetryCallState) -> float:
        rounds, within = divmod(attempts.attempt_number, len(self._addresses))
        return 0.0 if within else min(0.1 * 2.0 ** (rounds - 1), 1.0)

    async def _open_once(self, purpose: str) -> None:
        try:
            connection = await aio_pika.connect(
                self._addresses[self._at],
                timeout=self._attempt_seconds(),
                client_properties={"connection_name": f"{self.name} {purpose}"},
                heartbeat=self._heartbeat_seconds,
                connection_class=Connection,
            )
        except OSError as error:
            log.info("a broker does not answer", address=self.address, error=repr(error))
            self._failures += 1
            self.go_on()
            raise
        self._failures = 0
        self.connections.append(connection)
        call_at_end(connection, partial(self._ended, connection))

    def _attempt_seconds(self) -> float:
        """Return the time limit of one attempt: a dead address must not use up all the time."""
        rounds = self._failures // len(self._addresses)
        return min(ATTEMPT_SECONDS * 2.0**rounds, CONNECT_SECONDS)

    def _ended(self, connection: AbstractConnection) -> None:
        now = asyncio.get_running_loop().time()
        for limit, connections in self._limits.items():
            if connection in connections and not limit.expired():
                limit.reschedule(now)
        if connection in self.connections:
            self._on_end()


def _shown(address: str) -> str:
    """Return the host and port of an address."""
    rest = address.partition("://")[2].partition("/")[0].partition("?")[0]
    return rest.rpartition("@")[2]
