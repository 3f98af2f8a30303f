"""Between Muster and an API server: every request is seen, counted, and may be made to wait.

A trap is a moment: the nth request of a kind, before it is passed on or after it was carried out. Then
nothing passes any more, neither a request nor an answer, until ``open`` is called; what is seen by a
watch goes on. So something can be killed at a moment that is counted, not slept for. An API server that
is not there is one that breaks off connections; how often it did is ``refused``.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

from services.shim_adapter.backends.kubernetes.access import Access
from tests.patience import until

_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_SECONDS = 60.0  # more than the shim adapter waits
_LOOK_SECONDS = 0.1  # whether whoever asked is still there


@dataclass(slots=True)
class Trap:
    """The moment of the nth request that ``matches`` (method and path)."""

    matches: Callable[[str, str], bool]
    count: int
    is_done: bool  # it is carried out, and only its answer waits
    path: str = ""  # of the request, once it came
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


class Between:
    """The way to an API server. ``url`` is where it begins, once started."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._gate = asyncio.Event()
        self._gate.set()
        self._life = 0  # of the server behind: answers of an earlier one do not come any more
        self._trap: Trap | None = None
        self.refused = 0
        self.failed = 0  # answers that said that the server cannot do it now
        self.url = ""

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._access.tls or True)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
        )
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.open()
        await self._runner.cleanup()
        await self._session.close()

    def set_trap(self, trap: Trap) -> None:
        self._trap = trap

    def close(self) -> None:
        """Let nothing pass."""
        self._gate.clear()

    def open(self, *, are_answers_lost: bool = False) -> None:
        """Let everything pass; ``are_answers_lost``: whoever had given those that wait has died."""
        if are_answers_lost:
            self._life += 1
        self._gate.set()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        await self._gate.wait()
        trap = self._trap_for(request)
        if trap is not None and not trap.is_done:
            await self._spring(trap, request)
        found = await self._asked(request, body)
        if found is None:
            self.refused += 1
            return _broken_off(request)
        if not isinstance(found, web.Response):
            return found  # a watch that is over
        self.failed += found.status >= 500
        life = self._life
        if trap is not None and trap.is_done:
            await self._spring(trap, request)
        await self._gate.wait()
        return found if life == self._life else _broken_off(request)

    async def _asked(self, request: web.Request, body: bytes) -> web.StreamResponse | None:
        """Return the server's answer; None: it has none, or nobody waits for it any longer."""
        asking = asyncio.create_task(self._ask(request, body))
        try:
            while not asking.done() and request.transport is not None:
                await asyncio.wait({asking}, timeout=_LOOK_SECONDS)
        finally:
            asking.cancel()
        with suppress(aiohttp.ClientError, TimeoutError, OSError, asyncio.CancelledError):
            return await asking
        return None

    async def _ask(self, request: web.Request, body: bytes) -> web.StreamResponse:
        async with self._session.request(
            request.method,
            URL(self._access.url + request.raw_path, encoded=True),
            data=body or None,
            headers=self._headers(request),
            timeout=aiohttp.ClientTimeout(sock_read=None, total=self._total(request)),
        ) as answer:
            if "watch=" in request.query_string and answer.status < 400:
                return await self._pass_on(request, answer)
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers=_kept(answer, "Content-Type", "Content-Encoding", "Retry-After"),
            )

    def _trap_for(self, request: web.Request) -> Trap | None:
        trap = self._trap
        if trap is None or not trap.matches(request.method, request.path):
            return None
        trap.count -= 1
        if trap.count:
            return None
        self._trap = None
        return trap

    async def _spring(self, trap: Trap, request: web.Request) -> None:
        self.close()
        trap.path = request.path
        trap.sprung.set()
        await self._gate.wait()

    def _headers(self, request: web.Request) -> dict[str, str]:
        headers = {key: request.headers[key] for key in _HEADERS if key in request.headers}
        authorization = self._access.authorization()
        return headers | ({"Authorization": authorization} if authorization else {})

    @staticmethod
    def _total(request: web.Request) -> float | None:
        return None if "watch=" in request.query_string else _SECONDS

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """Pass a watch on for as long as it goes; one that breaks off breaks off on both sides."""
        response = web.StreamResponse(headers=_kept(answer, "Content-Type"))
        response.enable_chunked_encoding()
        await response.prepare(request)
        with suppress(ConnectionError):
            async for data in answer.content.iter_any():
                await response.write(data)
        return response


def _kept(answer: aiohttp.ClientResponse, *names: str) -> dict[str, str]:
    return {name: answer.headers[name] for name in names if name in answer.headers}


def _broken_off(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def until_felt(between: Between, times: int) -> None:
    """Wait until Muster has met the server's absence so many times from now on."""
    start = between.refused + between.failed
    await until(lambda: between.refused + between.failed - start >= times, "it is felt")
