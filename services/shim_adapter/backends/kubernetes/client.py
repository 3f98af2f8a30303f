"""A thin client of the API server: JSON requests, watches line by line, errors as values.

Limits: IN_FLIGHT requests at a time besides the watches; REQUEST_SECONDS per request, LATE_SECONDS
beyond the requested time of a watch, MAX_LINE per line. A silent watch is not considered broken,
because quiet kinds have no bookmarks: TCP keep-alives detect a lost server. A 429 or 503 with
Retry-After delays every request for that time. Callers that pause because of a failing server are
woken once it works again (``until_back``), so that a pause that grew during an outage is not waited
out after it.
"""

import asyncio
import random
import re
import socket
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from services.shim_adapter.backends.kubernetes.access import Access

IN_FLIGHT = 16
REQUEST_SECONDS = 15.0
LATE_SECONDS = 30.0
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4}  # dead within 70 s
MAX_LINE = 8 * 1024 * 1024
LONGEST_HOLD_SECONDS = 30.0
AWAY_SECONDS = 1.0  # without a success while requests fail: an outage
_TRANSIENT = (408, 429, 500, 502, 503, 504)
# As the authorizer says it; quotas and admission, whose 403 is final, say it otherwise.
_NOT_AUTHORIZED = re.compile(
    r'\S+( "[^"]*")? is forbidden: User ".*?" cannot (?P<verb>[a-z]+) resource '
    r'("(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)")?'
)
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


def jittered(seconds: float) -> float:
    """Return about ``seconds``, at random, so that waiting clients do not retry together."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 - jitter


class ApiServerError(Exception):
    """A failed request. ``code`` 0: no answer; the request may have been carried out."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}" if code else message)
        self.code, self.reason, self.message = code, reason, message

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code == 0 or self.code in _TRANSIENT or self.is_about_rights

    @property
    def is_about_rights(self) -> bool:
        """Whether it is an authorization error; a starting server returns them for a second."""
        if self.code == HTTPStatus.UNAUTHORIZED:
            return True
        return self.code == HTTPStatus.FORBIDDEN and bool(_NOT_AUTHORIZED.match(self.message))

    @property
    def missing_right(self) -> str:
        """The missing right, in terms of a role ("": another error)."""
        if not self.is_about_rights:
            return ""
        found = _NOT_AUTHORIZED.match(self.message)
        if found is None or not found["resource"]:
            return f"the API server does not accept our credentials: {self.message or self.reason}"
        return (
            f'the role of Muster\'s service account lacks the verb "{found["verb"]}" on resource '
            f'"{found["resource"]}" in API group "{found["group"]}" (deploy/kubernetes/rbac.yaml)'
        )

    @property
    def is_about_budgets(self) -> bool:
        """Whether a PodDisruptionBudget blocks the eviction, or more than one matches."""
        return self.code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR) and (
            "disruption budget" in self.message or "PodDisruptionBudget" in self.message
        )


class ApiClient:
    """Requests to one API server. It belongs to one event loop, and must be closed."""

    def __init__(self, access: Access, agent: str = "muster") -> None:
        self.access = access
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._held_until = 0.0
        self._answered_at = -AWAY_SECONDS
        self._has_missed = False  # since it answered
        self._back = asyncio.Event()  # for those that wait now; others get another

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send a request and return the object of the answer. Raises ApiServerError."""
        async with self._slots:
            await self._hold()
            headers = self._headers(content_type)
            data = None if body is None else _written(body)
            try:
                async with self._open().request(
                    method,
                    self.access.url + path,
                    data=data,
                    params=query,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
                ) as response:
                    answer = await response.read()
                    if response.status >= HTTPStatus.BAD_REQUEST:
                        raise self._error(response, answer)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._has_missed = True
                raise ApiServerError(0, "", f"no answer to {method} {path}: {error!r}") from error
        self._note_answer()
        return _parsed(answer)

    async def until_back(self) -> None:
        """Wait until the API server answers after an outage."""
        await self._back.wait()

    def _note_answer(self) -> None:
        """Record a successful answer; it ends an outage if no other succeeded for AWAY_SECONDS.

        A request that fails permanently while others succeed thus keeps its pause.
        """
        now = asyncio.get_running_loop().time()
        if self._has_missed and now - self._answered_at > AWAY_SECONDS:
            self._back.set()
            self._back = asyncio.Event()
        self._answered_at, self._has_missed = now, False

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Any]:
        """Yield the events of a watch until it ends. Raises ApiServerError, also for ERROR events.

        The server ends it after the query's ``timeoutSeconds``.
        """
        silence = int(query["timeoutSeconds"]) + LATE_SECONDS
        timeout = aiohttp.ClientTimeout(sock_read=silence, connect=REQUEST_SECONDS)
        await self._hold()
        try:
            async with self._open().get(
                self.access.url + path,
                params={**query, "watch": "1", "allowWatchBookmarks": "true"},
                headers=self._headers(""),
                timeout=timeout,
            ) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise self._error(response, await response.read())
                self._note_answer()
                async for line in response.content:
                    event = _parsed(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object") or {}
                        code = int(status.get("code") or 500)
                        raise ApiServerError(
                            code, str(status.get("reason")), str(status.get("message"))
                        )
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._has_missed = True
            raise ApiServerError(0, "", f"the watch of {path} broke: {error!r}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, ssl=self.access.tls or True, socket_factory=_with_keepalive
            )
            self._session = aiohttp.ClientSession(connector=connector, read_bufsize=MAX_LINE)
        return self._session

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        authorization = self.access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    async def _hold(self) -> None:
        wait = self._held_until - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)

    def _error(self, response: aiohttp.ClientResponse, answer: bytes) -> ApiServerError:
        try:
            status = orjson.loads(answer)
            reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        except (ValueError, AttributeError):
            reason, message = "", answer[:200].decode(errors="replace")
        self._has_missed |= response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        after = response.headers.get("Retry-After", "")
        is_budget = "disruption budget" in message  # about one pod, not about our pace
        if after.isdecimal() and not is_budget:
            until = asyncio.get_running_loop().time() + min(int(after), LONGEST_HOLD_SECONDS)
            self._held_until = max(self._held_until, until)
        return ApiServerError(response.status, reason, message)


def _with_keepalive(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket with keep-alives, so that a lost peer is detected."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _written(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:  # a number beyond 64 bits, half a character
        raise ApiServerError(HTTPStatus.BAD_REQUEST, "", f"cannot be sent: {error}") from error


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data) if data else {}
    except ValueError as error:
        raise ApiServerError(0, "", f"not JSON: {error}") from error
