"""The stream of the live page: a server-sent event with a snapshot, then one per difference.

Frames are made once for all clients, at most one per FRAME_SECONDS. While nothing changes, a
heartbeat shows that the stream works, and whether the read model follows the core. A slow client
gets no differences: after MAX_WAITING_FRAMES its waiting frames are dropped, and when it reads
again, it gets a current snapshot; after STUCK_SECONDS its stream ends. Limits: MAX_CLIENTS streams
(503 beyond), MAX_WAITING_FRAMES frames for each.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.api.projection.live import Feed, Frame
from services.api.projection.projection import Projection
from services.api.replica import Replica
from services.api.web.answers import AnswerError
from shared.model.names import DEFAULT_PARTITION

MAX_CLIENTS = 100
MAX_WAITING_FRAMES = 20
FRAME_SECONDS = 0.1
BEAT_SECONDS = 1.0
STUCK_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Client:
    """One browser and its waiting frames; None ends its stream."""

    frames: "asyncio.Queue[bytes | None]" = field(
        default_factory=lambda: asyncio.Queue(MAX_WAITING_FRAMES)
    )
    needs_snapshot: bool = True
    stuck_since: float = 0.0

    def put(self, frame: bytes, now: float) -> None:
        """Queue a frame; if too many wait, drop them all and send a snapshot later."""
        if self.frames.full():
            self.clear()
            self.needs_snapshot, self.stuck_since = True, self.stuck_since or now
        else:
            self.frames.put_nowait(frame)

    def clear(self) -> None:
        """Drop all waiting frames."""
        while not self.frames.empty():
            self.frames.get_nowait()


class LivePages:
    """The streams of a replica, by partition."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._of: dict[str, LiveStreams] = {}

    def open(self, partition: str) -> AsyncIterator[bytes]:
        """Return a new stream of a partition. Raises AnswerError 404, 503 if there are too many.

        A partition has one group of streams, because two would consume the same changes.
        """
        partitions, key = self._replica.partitions, partition.lower()
        if partitions.get(key) is None:
            raise AnswerError(404, "Partition not found")
        if sum(streams.count for streams in self._of.values()) >= MAX_CLIENTS:
            raise AnswerError(
                503, f"{MAX_CLIENTS} live pages are open on this replica: close one, or try again"
            )
        self._of = {name: s for name, s in self._of.items() if partitions.get(name) is not None}
        return self._of.setdefault(key, LiveStreams(self._replica, key)).open()


class LiveStreams:
    """The streams of a partition, and the task that makes their frames while there are any."""

    def __init__(self, replica: Replica, partition: str = DEFAULT_PARTITION) -> None:
        self._replica = replica
        self._partition = partition
        self._clients: dict[Client, None] = {}
        self._pump: asyncio.Task[None] | None = None
        self._projection: Projection | None = None
        self._feed: Feed | None = None
        self._beaten = 0.0

    @property
    def count(self) -> int:
        """The number of streams."""
        return len(self._clients)

    def open(self) -> AsyncIterator[bytes]:
        """Return a new stream."""
        client = Client()
        self._clients[client] = None
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run(), name="live-streams")
        return self._stream(client)

    async def _stream(self, client: Client) -> AsyncIterator[bytes]:
        try:
            while True:
                client.stuck_since = 0.0  # it has read what it was sent, and wants more
                frame = await client.frames.get()
                if frame is None:
                    return
                yield frame
        finally:
            self._clients.pop(client, None)

    async def _run(self) -> None:
        try:
            while self._clients:
                self.tick(time.monotonic(), time.time_ns())
                await asyncio.sleep(FRAME_SECONDS)
        finally:
            self._follow(None)

    def tick(self, now: float, now_ns: int) -> None:
        """Send every client what is new: a difference, a snapshot, or a heartbeat.

        If the partition was removed, all streams end.
        """
        projection = self._replica.partitions.get(self._partition)
        if projection is None:
            self._end(list(self._clients))
            return
        if projection is not self._projection:
            self._follow(projection)
        feed, model = self._feed, projection.model
        assert feed is not None
        if projection.changes.is_whole and model.partition is not None:
            if feed.needs_snapshot(model):
                for client in self._clients:
                    client.clear()
                    client.needs_snapshot = True
            elif (frame := feed.difference(model, now_ns)) is not None:
                self._send("difference", frame, now)
            self._send_snapshots(feed, projection, now_ns)
        if now - self._beaten >= BEAT_SECONDS:
            self._beaten = now
            self._send("beat", self._beat(feed, projection, now_ns), now)
            self._end([c for c in self._clients if self._is_stuck(c, now)])

    def _beat(self, feed: Feed, projection: Projection, now_ns: int) -> Frame:
        """Return the frame sent while nothing changes, with the parts that do not work."""
        away = self._replica.away()
        said = [item.sentence for item in away]
        return {
            "now": now_ns // 1_000_000,
            "number": feed.number,
            "epoch": projection.epoch,
            "isReady": self._replica.follows(self._partition),
            **({"away": said, "age": self._replica.age_seconds(away)} if away else {}),
            **self._others(),
        }

    def _others(self) -> Frame:
        """Return the partitions to choose from; {} if there is only one."""
        names = [projection.partition for projection in self._replica.partitions]
        return {"partitions": names} if len(names) > 1 else {}

    def _follow(self, projection: Projection | None) -> None:
        if self._feed is not None:
            self._feed.close()
        self._projection = projection
        self._feed = Feed(projection.changes) if projection is not None else None

    def _send(self, kind: str, frame: Frame, now: float) -> None:
        ready = [client for client in self._clients if not client.needs_snapshot]
        if ready:
            body = server_sent(kind, frame)
            for client in ready:
                client.put(body, now)

    def _send_snapshots(self, feed: Feed, projection: Projection, now_ns: int) -> None:
        """Send a snapshot to the clients that need one and are reading."""
        ready = [c for c in self._clients if c.needs_snapshot and not c.stuck_since]
        if ready:
            frame = feed.snapshot(projection.model, now_ns)
            body = server_sent("snapshot", {**frame, "epoch": projection.epoch})
            for client in ready:
                client.needs_snapshot = False
                client.put(body, 0.0)

    @staticmethod
    def _is_stuck(client: Client, now: float) -> bool:
        return bool(client.stuck_since) and now - client.stuck_since > STUCK_SECONDS

    def _end(self, clients: list[Client]) -> None:
        for client in clients:
            client.clear()
            client.frames.put_nowait(None)
            del self._clients[client]


def server_sent(kind: str, value: Any) -> bytes:
    """Return a server-sent event with JSON as its data."""
    try:
        data = orjson.dumps(value)
    except TypeError:  # half a character: orjson will not have it, JSON has an escape for it
        data = json.dumps(value, separators=(",", ":")).encode()
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
