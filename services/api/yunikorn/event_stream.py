"""``/ws/v1/events/stream``: events as they happen, one per line.

Rule 1: the first line names the replica; after it come at most ``count`` events of the past, then
        every one that is new, in the order of their numbers.
Rule 2: so many at once, and so many of those that asked for the same ``Host``, as is configured
        (``EventSettings``); one more is refused with 503.
Rule 3: a reader that has taken nothing for STALL_SECONDS, and is more than MAX_BEHIND events
        behind, or so far that they are no longer in the ring, gets a last line that says so, and is
        dropped. A stream stores nothing but its position in the ring of events.

Source: docs/rules/rest.md#event-streams.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count as numbers

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.api.projection.event_settings import EventSettings
from services.api.projection.events import EventRing
from services.api.web.answers import JSON, AnswerError, cors_headers, encoded
from services.api.yunikorn.answers import Answer, rfc3339
from services.api.yunikorn.events import event_info

MAX_BEHIND = 1_000
MAX_AT_ONCE = 500  # events in one piece of the answer
STALL_SECONDS = 1.0
DROPPED = "Event stream was closed by the producer"
UNSET = EventSettings()
TOO_MANY = "Too many streaming connections"


@dataclass(slots=True, eq=False)
class Stream:
    """One consumer: its host, and the number of its next event."""

    name: str
    host: str
    created_ns: int
    next_id: int


@dataclass(slots=True)
class EventStreams:
    """The streams of one replica."""

    open: dict[Stream, None] = field(default_factory=dict)
    _numbers: "numbers[int]" = field(default_factory=lambda: numbers(1))
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Wake the waiting streams to check for events."""
        if self.open:
            self._news.set()
            self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait until there may be events."""
        await self._news.wait()

    def join(
        self, host: str, ring: EventRing, past: int, now_ns: int, settings: EventSettings = UNSET
    ) -> Stream:
        """Return a new stream that starts with ``count`` past events. Raises AnswerError."""
        hosts = Counter(stream.host for stream in self.open)
        if len(self.open) >= settings.streams or hosts[host] >= settings.streams_per_host:
            raise AnswerError(503, TOO_MANY)
        first = max(ring.lowest, ring.next_id - past)
        stream = Stream(f"{host}-{next(self._numbers)}", host, now_ns, first)
        self.open[stream] = None
        return stream

    def leave(self, stream: Stream) -> None:
        """Remove a stream."""
        self.open.pop(stream, None)

    def info(self) -> list[Answer]:
        """Return the streams as the state dump lists them."""
        return [
            {"Name": stream.name, "CreatedAt": rfc3339(stream.created_ns)} for stream in self.open
        ]


class EventStreamResponse(Response):
    """An endless answer. ``ring_of`` returns the events, None if there are none now."""

    def __init__(
        self,
        streams: EventStreams,
        stream: Stream,
        uuid: str,
        ring_of: Callable[[], EventRing | None],
    ) -> None:
        super().__init__(b"", headers=cors_headers(), media_type=JSON)
        del self.headers["content-length"]
        self._streams = streams
        self._stream = stream
        self._uuid = uuid
        self._ring_of = ring_of

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send until the client leaves, or is dropped."""
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        sending = asyncio.create_task(self._send_all(head, send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.leave(self._stream)
            for task in (sending, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task

    async def _send_all(self, head: dict[str, object], send: Send) -> None:
        await send(head)
        piece: bytes | None = encoded({"InstanceUUID": self._uuid}) + b"\n"
        while piece is not None and await self._is_taken(send, piece):
            piece = await self._next_piece()
        self._streams.leave(self._stream)
        body = {"status_code": 500, "message": DROPPED, "description": DROPPED}
        last = {"type": "http.response.body", "body": encoded(body) + b"\n", "more_body": False}
        with suppress(TimeoutError):
            await asyncio.wait_for(send(last), STALL_SECONDS)

    async def _next_piece(self) -> bytes | None:
        """Return the events since the last piece, once there are any; None at the end."""
        while (ring := self._ring_of()) is not None and self._stream.next_id >= ring.lowest:
            events = ring.read(self._stream.next_id, MAX_AT_ONCE)
            if events:
                self._stream.next_id += len(events)
                return b"".join(encoded(event_info(event)) + b"\n" for event in events)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._streams.news(), STALL_SECONDS)
        return None

    async def _is_taken(self, send: Send, piece: bytes) -> bool:
        """Send a piece; return whether the client reads it before it is too far behind."""
        message = {"type": "http.response.body", "body": piece, "more_body": True}
        sending = asyncio.ensure_future(send(message))
        try:
            while not (await asyncio.wait({sending}, timeout=STALL_SECONDS))[0]:
                ring = self._ring_of()
                if ring is None or ring.next_id - self._stream.next_id > MAX_BEHIND:
                    return False
            await sending
            return True
        finally:
            sending.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
