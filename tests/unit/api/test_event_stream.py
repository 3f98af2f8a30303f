"""``/ws/v1/events/stream``: its lines, its limits, and who is dropped.

Source: docs/rules/rest.md#event-streams.
"""

import asyncio
import json
from contextlib import suppress

import httpx
import pytest

from services.api.machine import ApiMachine
from services.api.projection.event_settings import MAX_STREAMS, MAX_STREAMS_PER_HOST
from services.api.projection.events import MAX_EVENTS
from services.api.replica import Replica
from services.api.routes.app import make_app
from services.api.web.server import listen, serve
from services.api.yunikorn import event_stream
from services.api.yunikorn.event_stream import DROPPED, MAX_BEHIND
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.state import EventState, PartitionState, StateDelta
from tests.patience import PATIENCE_SECONDS, until
from tests.unit.api.following import System, _no_host

PATH = "/ws/v1/events/stream"


def event(at):
    return EventState(1, f"k{at}", f"event {at}", at + 1)


class Following:
    """A replica that is told of events, and its streams as an HTTP server would see them."""

    def __init__(self):
        self.machine = ApiMachine("one")
        self.seq = 0
        partition = PartitionState("default", "rm", "Active", {}, {}, "fair", {}, True, "", "", 1)
        self.tell_delta(StateDelta(reset=True, partitions=(partition,)))
        self.app = make_app(Replica(_no_host, lambda: self.machine))
        self.told = 0

    def tell_delta(self, delta):
        self.seq += 1
        self.machine.handle(
            Envelope("e", "StateDelta", delta, API_ALL, "core", epoch=1, seq=self.seq), 1
        )

    def tell(self, count):
        events = tuple(event(at) for at in range(self.told, self.told + count))
        self.told += count
        self.tell_delta(StateDelta(events=events))

    def open(self, query="", host="muster"):
        return Consumer(self.app, query, host)


class Consumer:
    """The other side of a stream: it takes what is sent, or does not."""

    def __init__(self, app, query, host):
        self.status, self.headers, self.text = 0, {}, ""
        self.takes = asyncio.Event()
        self.takes.set()
        self.leaves = asyncio.Event()
        self.is_over = False
        scope = {
            "type": "http", "method": "GET", "path": PATH, "query_string": query.encode(),
            "headers": [(b"host", host.encode()), (b"accept-encoding", b"gzip")],
            "scheme": "http", "server": ("muster", 80), "http_version": "1.1", "root_path": "",
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if not hasattr(self, "_asked"):
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        await self.takes.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.text += message["body"].decode()
            self.is_over = not message.get("more_body", False)

    @property
    def lines(self):
        return [json.loads(line) for line in self.text.splitlines()]

    async def has(self, count):
        return await until(
            lambda: self.lines if len(self.lines) >= count else None, f"{count} lines", pause=0.002
        )

    async def close(self):
        self.takes.set()
        self.leaves.set()
        await asyncio.wait_for(self.task, PATIENCE_SECONDS)


async def test_the_first_line_names_the_replica_and_the_past_comes_before_what_is_new():
    replica = Following()
    replica.tell(5)
    stream = replica.open("count=2")
    first, *events = await stream.has(3)
    assert first == {"InstanceUUID": replica.machine.uuid}
    assert [item["objectID"] for item in events] == ["k3", "k4"]
    replica.tell(3)
    assert [item["objectID"] for item in (await stream.has(6))[3:]] == ["k5", "k6", "k7"]
    assert stream.headers["content-type"] == "application/json; charset=UTF-8"
    assert "content-encoding" not in stream.headers  # case W-16: never
    assert "content-length" not in stream.headers
    await stream.close()
    assert not replica.machine.streams.open


@pytest.mark.parametrize(
    ("query", "past"), [("", 0), ("count=", 0), ("count=99", 5), ("count=0", 0)]
)
async def test_how_much_of_the_past_is_told(query, past):
    replica = Following()
    replica.tell(5)
    stream = replica.open(query)
    await stream.has(1 + past)
    replica.tell(1)
    assert (await stream.has(2 + past))[-1]["objectID"] == "k5"
    assert len(stream.lines) == 2 + past
    await stream.close()


@pytest.mark.parametrize("query", ["count=x", "count=-1", "count=18446744073709551616"])
async def test_a_count_that_is_none_is_refused(query):
    replica = Following()
    stream = replica.open(query)
    await stream.task
    assert stream.status == 400
    assert "strconv.ParseUint" in stream.lines[0]["message"]
    assert not replica.machine.streams.open


async def test_a_host_has_so_many_streams_and_a_replica_too():
    replica = Following()
    streams = [replica.open(host="a") for _ in range(MAX_STREAMS_PER_HOST)]
    await asyncio.gather(*(stream.has(1) for stream in streams))
    refused = replica.open(host="a")
    await refused.task
    assert (refused.status, refused.lines[0]["message"]) == (503, "Too many streaming connections")
    while len(streams) < MAX_STREAMS:
        streams.append(replica.open(host=f"h{len(streams)}"))
    await asyncio.gather(*(stream.has(1) for stream in streams))
    refused = replica.open(host="z")
    await refused.task
    assert refused.status == 503
    names = [item["Name"] for item in replica.machine.streams.info()]
    assert len(set(names)) == MAX_STREAMS
    assert all(item["CreatedAt"].endswith("Z") for item in replica.machine.streams.info())
    await asyncio.gather(*(stream.close() for stream in streams))
    again = replica.open(host="a")
    await again.has(1)
    await again.close()


async def test_who_takes_nothing_and_is_far_behind_is_told_so_and_dropped(monkeypatch):
    monkeypatch.setattr(event_stream, "STALL_SECONDS", 0.02)
    replica = Following()
    slow, quick = replica.open(), replica.open()
    await slow.has(1)
    slow.takes.clear()
    replica.tell(1)
    await quick.has(2)
    await asyncio.sleep(0.1)  # several STALL_SECONDS: who were dropped for time alone would be now
    assert len(replica.machine.streams.open) == 2  # behind by little: it may take its time
    replica.tell(MAX_BEHIND + 1)
    assert len(await quick.has(MAX_BEHIND + 3)) == MAX_BEHIND + 3
    await until(lambda: len(replica.machine.streams.open) == 1, "one is dropped")
    assert [item.name for item in replica.machine.streams.open] == ["muster-2"]
    await asyncio.wait_for(slow.task, PATIENCE_SECONDS)
    await quick.close()


async def test_the_last_line_says_that_it_was_dropped(monkeypatch):
    monkeypatch.setattr(event_stream, "STALL_SECONDS", 0.5)
    replica = Following()
    stream = replica.open()
    await stream.has(1)
    stream.takes.clear()
    replica.tell(1)
    (place,) = replica.machine.streams.open
    await until(lambda: place.next_id, "it is about to send that one", pause=0.001)
    replica.tell(MAX_BEHIND + 1)
    await until(lambda: not replica.machine.streams.open, "it is dropped", pause=0.001)
    stream.takes.set()
    await asyncio.wait_for(stream.task, PATIENCE_SECONDS)
    assert stream.lines[-1]["message"] == DROPPED
    assert stream.is_over


async def test_a_burst_drops_nobody_who_takes_it():
    replica = Following()
    stream = replica.open()
    await stream.has(1)
    replica.tell(5 * MAX_BEHIND)
    lines = await stream.has(1 + 5 * MAX_BEHIND)
    assert [item["objectID"] for item in lines[1:]] == [f"k{at}" for at in range(5 * MAX_BEHIND)]
    await stream.close()


async def test_who_misses_what_is_not_held_any_more_is_dropped():
    replica = Following()
    stream = replica.open()
    await stream.has(1)
    for _ in range(2):
        replica.tell(MAX_EVENTS)
    lines = await stream.has(2)
    assert lines[-1]["message"] == DROPPED
    await asyncio.wait_for(stream.task, PATIENCE_SECONDS)


async def test_a_replica_that_starts_over_ends_its_streams():
    replica = Following()
    stream = replica.open()
    await stream.has(1)
    replica.machine = ApiMachine("one")
    await asyncio.wait_for(stream.task, PATIENCE_SECONDS)
    assert stream.lines[-1]["message"] == DROPPED


async def test_over_a_real_connection():
    system = System()
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = make_app(Replica(_no_host, lambda: system.machine))
    server = asyncio.create_task(serve(app, listening))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def answers():
                with suppress(httpx.ConnectError):
                    return await client.get("/health/live")

            await until(answers, "the server")
            async with client.stream("GET", PATH) as response:
                lines = response.aiter_lines()
                assert json.loads(await anext(lines)) == {"InstanceUUID": system.machine.uuid}
                system.node("node-1", vcore=1)
                told = [json.loads(await anext(lines))["objectID"] for _ in range(2)]
                assert told == ["root", "node-1"]  # its max is the sum of the nodes
            await until(lambda: not system.machine.streams.open, "who has left is forgotten")
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
