"""TCP links to brokers that can stall, stall one way, and be cut: one a service instance and broker.

What is sent on a stalled link arrives when it is mended, as on a network that loses packets for a
while: neither end is told anything. A link that is cut resets what is open and refuses what comes.
Held for a stalled direction: one read of CHUNK_BYTES; the rest waits in the sender's sockets.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 64 * 1024


class Link:
    """A port of this machine that leads to another one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.up = asyncio.Event()  # set: what the client says goes on
        self.down = asyncio.Event()  # set: what the broker says goes on
        self.is_cut = False
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.mend()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._on_client, "127.0.0.1", 0, limit=CHUNK_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump

    def mend(self) -> None:
        self.is_cut = False
        self.up.set()
        self.down.set()

    def cut(self) -> None:
        self.is_cut = True
        for writer in list(self._open):
            writer.transport.abort()

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            reading, writing = await asyncio.open_connection(
                "127.0.0.1", self.target, limit=CHUNK_BYTES
            )
        except OSError:
            writer.transport.abort()
            return
        for pump in (self._pump(reader, writing, self.up), self._pump(reading, writer, self.down)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        self._open.add(writer)
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await gate.wait()
                writer.write(data)
                await writer.drain()
        await gate.wait()  # an end is told no sooner than what was said before it
        self._open.discard(writer)
        writer.close()


class Links:
    """All links, in a loop and thread of their own; every method may be called from outside.

    What is done to a name is done to each of its links: to every broker that it leads to.
    """

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._runs = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(),), name="links")

    def __enter__(self) -> Self:
        self._thread.start()
        self._runs.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end.set)
        self._thread.join()

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._runs.set()
        await self._end.wait()
        for links in self._links.values():
            for link in links:
                await link.close()

    def add(self, name: str, target: int) -> int:
        """Return the port of a new link of this name that leads to a port."""

        async def made() -> Link:
            link = Link(target)
            await link.start()
            return link

        link = asyncio.run_coroutine_threadsafe(made(), self._loop).result()
        self._links.setdefault(name, []).append(link)
        return link.port

    def stall(self, name: str, *, up: bool = True, down: bool = True) -> None:
        """Let nothing through: of what the client says (``up``), of what the broker says."""
        self._stall(self._links[name], up=up, down=down)

    def stall_all_to(self, target: int) -> None:
        """Let nothing through on any link that leads to a port."""
        self._stall(self._to(target), up=True, down=True)

    def mend_all_to(self, target: int) -> None:
        for link in self._to(target):
            self._do(link.mend)

    def cut(self, name: str) -> None:
        for link in self._links[name]:
            self._do(link.cut)

    def mend(self, name: str) -> None:
        for link in self._links[name]:
            self._do(link.mend)

    def _to(self, target: int) -> list[Link]:
        return [link for links in self._links.values() for link in links if link.target == target]

    def _stall(self, links: list[Link], *, up: bool, down: bool) -> None:
        for link in links:
            for gate, is_meant in ((link.up, up), (link.down, down)):
                if is_meant:
                    self._do(gate.clear)

    def _do(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)
