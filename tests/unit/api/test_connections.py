"""Connections that say nothing, come slowly or never read keep nobody else out."""

import asyncio
from contextlib import suppress

import pytest
from fastapi import FastAPI, Request, Response

from services.api.web import connections
from services.api.web.server import listen, serve
from tests.patience import patience, until

LARGE = b"x" * 20_000_000
HEAD = b"GET /small HTTP/1.1\r\nHost: a\r\n"
QUICK = {"HEAD_SECONDS": 0.2, "PAUSE_SECONDS": 0.2, "WRITE_SECONDS": 0.2, "SWEEP_SECONDS": 0.02}


class Served:
    """A server, and clients of it that do as they are told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.gone = asyncio.Event()
        self.asked = 0  # what is answered late
        self.writers = []

    async def open(self, said=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**16)
        writer.write(said)
        self.writers.append(writer)
        return reader, writer

    async def asks(self):
        """Ask as an honest client does; return the status line."""
        reader, _ = await self.open(HEAD + b"Connection: close\r\n\r\n")
        async with patience():
            return (await reader.readline()).split(b"\r")[0]


@pytest.fixture
async def served(monkeypatch):
    app = FastAPI()

    @app.get("/small")
    async def small() -> Response:
        return Response(b"small")

    @app.get("/large")
    async def large() -> Response:
        return Response(LARGE)

    @app.post("/body")
    async def body(request: Request) -> Response:
        with suppress(Exception):
            await request.body()
        served.gone.set()
        return Response(b"heard")

    @app.get("/long")
    async def long() -> Response:
        served.asked += 1
        await asyncio.sleep(3600)
        return Response(b"late")

    listening = listen("127.0.0.1", 0)
    served = Served(listening.getsockname()[1])
    task = asyncio.create_task(serve(app, listening))
    yield served
    task.cancel()
    for writer in served.writers:
        writer.close()
    with suppress(asyncio.CancelledError):
        await task


async def ended(reader):
    """Return whether the server ends a connection, having read what it says."""
    with suppress(ConnectionError):
        async with patience():
            while await reader.read(2**16):
                pass
    return True


def gone(reader):
    """Return whether a connection is over, as far as is known."""
    return reader.at_eof() or reader.exception() is not None


def hurry(monkeypatch, **more):
    for name, value in {**QUICK, **more}.items():
        monkeypatch.setattr(connections, name, value)


@pytest.mark.parametrize(
    "said", [b"", b"GET", HEAD], ids=["nothing", "a word", "half a head"]
)  # fmt: skip
async def test_who_does_not_end_its_question_is_cut_off(served, monkeypatch, said):
    hurry(monkeypatch)
    reader, _ = await served.open(said)
    assert await ended(reader)
    monkeypatch.undo()  # an honest client has the time that it has
    assert await served.asks() == b"HTTP/1.1 200 OK"


async def test_a_head_that_comes_letter_by_letter_has_no_more_time(served, monkeypatch):
    hurry(monkeypatch)
    reader, writer = await served.open(HEAD)

    async def trickle():
        with suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.01)

    trickling = asyncio.create_task(trickle())
    assert await ended(reader)
    trickling.cancel()


async def test_a_body_that_does_not_come_is_waited_for_no_longer(served, monkeypatch):
    hurry(monkeypatch)
    head = b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"
    reader, _ = await served.open(head)
    assert await ended(reader)
    async with patience():
        await served.gone.wait()


async def test_an_answer_that_nobody_reads_is_let_go(served, monkeypatch):
    hurry(monkeypatch)
    _, writer = await served.open(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    async with patience():
        with suppress(ConnectionError):
            while True:
                writer.write(b"\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)


async def test_an_answer_that_is_read_slowly_comes_whole(served, monkeypatch):
    hurry(monkeypatch, WRITE_SECONDS=4.0)
    reader, _ = await served.open(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    size = 0
    async with patience():
        while part := await reader.read(2**20):
            size += len(part)
            await asyncio.sleep(0.015)  # 20 MB in pieces of 64 KiB: longer than WRITE_SECONDS
    assert size > len(LARGE)


async def test_who_waits_for_an_answer_is_not_cut_off(served, monkeypatch):
    hurry(monkeypatch)
    reader, _ = await served.open(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
    silent, _ = await served.open()
    assert await ended(silent)  # the times of who came after it are over
    assert not gone(reader)


@pytest.mark.parametrize("limit", ["MAX_CONNECTIONS", "MAX_OF_AN_ADDRESS"])
async def test_those_who_say_nothing_make_room_for_those_who_ask(served, monkeypatch, limit):
    monkeypatch.setattr(connections, limit, 5)
    readers = [(await served.open())[0] for _ in range(20)]
    for _ in range(3):
        assert await served.asks() == b"HTTP/1.1 200 OK"
    assert await ended(readers[0])


async def test_while_all_ask_who_comes_is_turned_away_and_nobody_else(served, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    asking = [(await served.open(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n"))[0] for _ in range(3)]
    await until(lambda: served.asked == len(asking), "all of them ask")
    reader, _ = await served.open()
    assert await ended(reader)
    assert not any(map(gone, asking))
