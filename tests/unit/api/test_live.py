"""The stream of the live page: snapshot and differences come to what is; who is slow starts over."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.projection import live as rows
from services.api.projection.live import APPLICATION_COLUMNS, MAX_EVENTS, Feed
from services.api.replica import Replica
from services.api.routes import live
from services.api.routes.live import (
    MAX_WAITING_FRAMES,
    STUCK_SECONDS,
    LivePages,
    LiveStreams,
    server_sent,
)
from services.api.web.answers import AnswerError
from shared.messages.interface import NodeAction, NodeInfo, RemoveApplicationRequest
from shared.messages.protocol import SyncBegin, SyncEnd
from tests.unit.api.following import System, _no_host

ONE = {"vcore": 1000}


class Browser:
    """What a page knows, applied as page/live.js does."""

    def __init__(self) -> None:
        self.number = 0

    def snapshot(self, frame) -> None:
        self.number, self.types = frame["number"], frame["types"]
        self.nodes = {row[0]: row for row in frame["nodes"]}
        self.queues = {row["path"]: row for row in frame["queues"]}
        self.applications = {row[0]: row for row in frame["applications"]}

    def difference(self, frame) -> None:
        assert frame["number"] == self.number + 1
        self.number, self.types = frame["number"], frame.get("types", self.types)
        for kind, table, key in (
            ("nodes", self.nodes, 0),
            ("queues", self.queues, "path"),
            ("applications", self.applications, 0),
        ):
            for row in frame.get(kind, ()):
                table[row[key]] = row
            for name in frame.get(f"{kind}Gone", ()):
                table.pop(name, None)

    def seen(self):
        """Return everything; amounts end with the last that is not zero."""

        def full(value):
            if isinstance(value, list):
                ended = [full(item) for item in value]
                while ended and ended[-1] == 0 and not isinstance(ended[-1], bool):
                    ended.pop()
                return ended
            return {k: full(v) for k, v in value.items()} if isinstance(value, dict) else value

        return full(self.nodes), full(self.queues), full(self.applications)


def fresh(system):
    """Return what a page sees that opens now."""
    browser = Browser()
    changes = rows.Changes()
    feed = Feed(changes)
    feed._types = dict.fromkeys(system.types)
    browser.snapshot(feed.snapshot(system.model, 0))
    return browser


class Followed(System):
    """A core whose replica is followed by one page."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = Feed(self.projection.changes)
        self.browser = Browser()
        self.follow()

    @property
    def types(self):
        return self.browser.types

    def follow(self) -> None:
        if self.feed.needs_snapshot(self.model):
            self.browser.snapshot(self.feed.snapshot(self.model, 0))
        while (frame := self.feed.difference(self.model, 0)) is not None:
            self.browser.difference(frame)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("node", "gang", "asks", "quiet", "end", "drop", "new core", "gpu")),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS)
def test_a_snapshot_and_its_differences_are_what_a_new_page_would_see(steps):
    system = Followed()
    does = {
        "node": lambda at: system.node(f"node-{at}", vcore=4000, memory=2**30),
        "gpu": lambda at: system.node(f"gpu-{at}", gpu=2),
        "gang": lambda at: system.gang(f"gang-{at}", 3 + at, ONE),
        "asks": lambda at: _plain(system, f"plain-{at}"),
        "quiet": lambda at: system.application(f"quiet-{at}"),
        "end": lambda at: system.update(
            remove_applications=(RemoveApplicationRequest(f"gang-{at}"),)
        ),
        "drop": lambda at: system.update(nodes=(_gone(f"node-{at}"),)),
        "new core": lambda at: _new_epoch(system),
    }
    for what, at, is_followed in steps:
        does[what](at)
        if is_followed:
            system.follow()
    system.follow()
    now, known = fresh(system), system.browser
    assert known.seen() == now.seen()


def _plain(system, name):
    system.application(name)
    system.asks(name, [f"{name}-{at}" for at in range(3)], ONE)


def _gone(name):
    return NodeInfo(name, NodeAction.DECOMISSION)


def _new_epoch(system):
    system.epoch += 1
    system.send(SyncBegin("", ()))
    system.send(SyncEnd(0, 0, 0))


def test_a_thousand_changes_of_a_row_between_two_frames_are_one():
    system = Followed()
    system.node("n", vcore=64_000)
    system.application("a")
    for at in range(50):
        system.asks("a", [f"k{at}"], ONE)
    frame = system.feed.difference(system.model, 0)
    assert len(frame["nodes"]) == len(frame["applications"]) == 1
    assert dict(zip(APPLICATION_COLUMNS, frame["applications"][0], strict=True))["running"] == 50


def test_of_many_events_those_of_single_pods_are_left_out_and_counted():
    system = Followed()
    system.node("n", vcore=500_000)
    system.follow()
    before = system.model.events.next
    system.application("a")
    system.asks("a", [f"k{at}" for at in range(300)], ONE)
    frame = system.feed.difference(system.model, 0)
    details = [row[6] for row in frame["events"]]
    assert len(details) <= MAX_EVENTS
    assert "APP_RUNNING" in details
    assert "NODE_ALLOC" not in details
    assert system.model.events.next - before > 900
    assert frame["eventsLeftOut"] == system.model.events.next - before - len(details)


def test_nothing_is_noted_while_nobody_follows():
    system = System()
    system.node("n", vcore=4000)
    system.gang("g", 3, ONE)
    changes = system.projection.changes
    assert not changes.nodes
    assert not changes.applications
    assert not changes.queues


def test_pods_that_were_evicted_are_counted_by_what_became_of_them():
    system = Followed()
    system.node("n", vcore=4000)
    system.application("a")
    system.asks("a", ["k0", "k1"], ONE)
    system.update(nodes=(_gone("n"),))
    system.follow()
    row = dict(zip(APPLICATION_COLUMNS, system.browser.applications["a"], strict=True))
    assert (row["lost"], row["evicted"], row["ended"]) == (2, 0, 0)


# --- streams --------------------------------------------------------------------------------------


class Streams(LiveStreams):
    """Streams whose clock is the test's; nothing runs by itself."""

    def __init__(self, system) -> None:
        super().__init__(Replica(_no_host, lambda: system.machine))
        self.now = 100.0

    async def _run(self) -> None:
        await asyncio.Event().wait()

    def beat(self, seconds: float = 0.1) -> None:
        self.now += seconds
        self.tick(self.now, 1)


def read(frame: bytes):
    kind, data, *_ = frame.decode().split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def reading(streams):
    stream = streams.open()
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    streams.beat()
    assert read(await task)[0] == "snapshot"
    return stream


async def test_who_does_not_read_is_told_no_differences_and_starts_over_with_a_snapshot():
    system = System()
    streams = Streams(system)
    slow = await reading(streams)
    (client,) = streams._clients
    for at in range(4 * MAX_WAITING_FRAMES):
        system.node(f"n{at}", vcore=1)
        streams.beat()
        assert client.frames.qsize() <= MAX_WAITING_FRAMES
    assert client.frames.empty()
    task = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0)
    streams.beat()
    kind, frame = read(await task)
    assert kind == "snapshot"
    assert len(frame["nodes"]) == 4 * MAX_WAITING_FRAMES
    await slow.aclose()
    assert not streams._clients


async def test_a_stream_that_is_stuck_ends_and_frees_its_place():
    system = System()
    streams = Streams(system)
    stuck = await reading(streams)
    for at in range(2 * MAX_WAITING_FRAMES):
        system.node(f"n{at}", vcore=1)
        streams.beat()
    streams.beat(STUCK_SECONDS + 1)
    assert not streams._clients
    with pytest.raises(StopAsyncIteration):
        await anext(stuck)


async def test_a_new_epoch_and_a_new_machine_are_told_by_a_snapshot():
    system = System()
    system.node("n1", vcore=1000)
    streams = Streams(system)
    stream = await reading(streams)
    _new_epoch(system)
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    streams.beat()
    frames = [read(await task)]
    while frames[-1][0] == "beat":
        frames.append(read(await anext(stream)))
    kind, frame = frames[-1]
    assert (kind, frame["epoch"], frame["nodes"]) == ("snapshot", 2, [])
    system.machine = type(system.machine)("two")
    streams.beat(2.0)
    frames = [read(await anext(stream))]
    while frames[-1][0] != "beat":
        frames.append(read(await anext(stream)))
    assert frames[-1][1]["isReady"] is False
    await stream.aclose()


async def test_half_of_a_change_is_not_shown():
    system = System()
    system.node("n1", vcore=1)
    streams = Streams(system)
    stream = streams.open()
    (client,) = streams._clients
    system.projection.changes.is_whole = False
    streams.beat()
    assert client.frames.empty()
    system.projection.changes.is_whole = True
    streams.beat()
    assert read(await anext(stream))[0] == "snapshot"
    await stream.aclose()


async def test_there_are_only_so_many_streams(monkeypatch):
    monkeypatch.setattr(live, "MAX_CLIENTS", 1)
    system = System()
    pages = LivePages(Replica(_no_host, lambda: system.machine))
    first = pages.open("default")
    with pytest.raises(AnswerError, match="live pages are open") as error:
        pages.open("default")
    assert error.value.status == 503
    await first.aclose()


def test_half_a_character_goes_as_an_escape():
    assert b"\\ud800" in server_sent("x", {"a": "\ud800"})


# --- files ----------------------------------------------------------------------------------------


async def test_the_page_is_served_with_headers_that_let_nothing_else_in():
    system = System()
    page = await system.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    again = await system.get("/", **{"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = await system.get("/", **{"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == page.content


async def test_only_files_of_the_page_are_served():
    system = System()
    for name in ("no.js", "..%2Froutes_page.py", "%2e%2e/routes.py", "index.html%00"):
        assert (await system.get(f"/page/{name}")).status_code == 404
