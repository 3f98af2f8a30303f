"""Connections to a broker, and detection of lost ones."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import aio_pika
import aiormq.exceptions
from aio_pika.abc import AbstractChannel, AbstractConnection, UnderlayConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, AMQPError, DeliveryError
from aiormq.abc import AbstractConnection as AbstractWire
from yarl import URL

from shared.bus.errors import BusUnavailableError

CLOSE_SECONDS = 2.0
_LOST = (*CONNECTION_EXCEPTIONS, AMQPError, aiormq.exceptions.AMQPError, OSError, RuntimeError)


@contextmanager
def away(what: str) -> Iterator[None]:
    """Raise BusUnavailableError for any error that a lost connection causes.

    Closing a connection cancels its pending confirms. Such a CancelledError does not mean that the
    task should stop; ``task.cancelling()`` distinguishes the two. Other waits fail with the reason
    of the end, or with a bare ``Exception`` if there is none. A task that is cancelled at the same
    moment stops.
    A DeliveryError passes through: the connection works, the broker refused one message.
    """
    try:
        yield
    except DeliveryError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        reason = _reason(error)
        if not reason:
            raise
        raise BusUnavailableError(f"{what}: {reason}") from error


def _reason(error: BaseException) -> str:
    """Return the reason of a lost connection, "" for any other error."""
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    if isinstance(error, _LOST):
        return repr(error)
    if isinstance(error, asyncio.CancelledError) or type(error) is Exception:
        return "the connection was closed meanwhile"
    return ""


class _Wire(aiormq.Connection):
    """A connection that is considered lost after one and a half heartbeats (and some) of silence.

    At 3 s these are 6 s: the broker sends one every 1.5 s. The library's own 12 s are more than
    a broker's node that stands still may cost.
    ``on_end`` is called as soon as nothing more is read. The library closes the connection after
    that, which takes another 6 s where the broker reads nothing either.
    """

    HEARTBEAT_GRACE_MULTIPLIER = 1.5  # type: ignore[assignment]
    has_ended = False
    on_end: Callable[[], None] | None = None

    def _on_reader_done(self, task: "asyncio.Task[Any]") -> None:
        super()._on_reader_done(task)
        self.has_ended = True
        if self.on_end is not None:
            self.on_end()


class _Underlay(UnderlayConnection):
    """The transport of a connection."""

    @classmethod
    async def make_connection(
        cls,
        url: URL,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's
        **kwargs: Any,
    ) -> AbstractWire:
        """Connect. Raises TimeoutError, OSError."""
        connection = _Wire(url, **kwargs)
        await asyncio.wait_for(connection.connect(), timeout)
        await connection.ready()
        return connection


class Connection(aio_pika.Connection):
    """A connection that only its owner closes.

    The library's class also closes it in the garbage collector, with a coroutine. That coroutine
    never runs if the collector runs in a thread without a loop, and a failed connection needs no
    closing.
    """

    async def connect(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the library's
        """Connect. Raises TimeoutError, OSError."""
        self.transport = await _Underlay.connect(
            self.url, self._on_connection_close, timeout=timeout, **self.kwargs
        )
        await self._on_connected()

    def __del__(self) -> None:
        """Close nothing."""


def call_at_end(connection: AbstractConnection, on_end: Callable[[], None]) -> None:
    """Call a function once a connection ends; at once if it has ended."""
    wire = wire_of(connection)
    assert isinstance(wire, _Wire)
    wire.on_end = on_end
    if wire.has_ended:
        on_end()


def wire_of(connection: AbstractConnection) -> AbstractWire:
    """Return a connection's transport. Raises BusUnavailableError if the connection was closed."""
    if connection.transport is None:
        raise BusUnavailableError("the connection was closed meanwhile")
    return connection.transport.connection


async def close(what: AbstractConnection | AbstractChannel) -> None:
    """Close a connection or a channel within CLOSE_SECONDS."""
    with suppress(BusUnavailableError), away("it would not close"):
        async with asyncio.timeout(CLOSE_SECONDS):
            await what.close()


class Closing:
    """Closes connections and channels in the background, so that a hanging one delays nothing."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}  # each takes CLOSE_SECONDS at most

    def begin(self, what: AbstractConnection | AbstractChannel) -> None:
        """Start to close a connection or a channel."""
        task = asyncio.create_task(close(what))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def finish(self) -> None:
        """Wait until all are closed."""
        await asyncio.gather(*self._tasks)
