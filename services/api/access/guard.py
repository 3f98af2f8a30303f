"""The check before every route: only requests that the user's role allows pass.

Rule 1: the required role depends on method and path only (``roles.py``), before anything else of
        the request is read.
Rule 2: a token is accepted only in one ``Authorization: Bearer`` header of at most MAX_TOKEN_BYTES:
        not in an address, which is logged, nor in a cookie, which browsers send by themselves.
Rule 3: a request without a user gets 401 with ``WWW-Authenticate``, one with too small a role 403
        (RFC 6750).
Rule 4: an endless answer ends when its token expires or is revoked: that is checked while sending,
        every AGAIN_SECONDS, and while nothing is sent, every QUIET_SECONDS.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.access.identity import (
    ANYBODY,
    Authenticator,
    Identity,
    KeysError,
    TokenError,
)
from services.api.access.roles import METRICS, Role, role_of
from services.api.web.answers import error_answer

MAX_TOKEN_BYTES = 8_192  # a bearer token; 401
AGAIN_SECONDS = 5.0
QUIET_SECONDS = 5.0
_END_SECONDS = 1.0  # for the end of an answer whose reader has left
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_UNAUTHORIZED, _FORBIDDEN, _NOT_NOW = 401, 403, 503
_HOW = "send `Authorization: Bearer TOKEN` (muster: --token, MUSTER_TOKEN)"


@dataclass(frozen=True, slots=True)
class Access:
    """The accepted issuers of tokens; without any, all requests pass. ``metrics``: their role."""

    authenticators: Sequence[Authenticator] = ()
    metrics: Role = Role.READ

    def role_of(self, method: str, path: str) -> Role:
        """Return the role that a request requires."""
        return self.metrics if f"{method} {path}" in METRICS else role_of(method, path)

    async def identify(self, headers: Headers) -> Identity | None:
        """Return the user; None without a token. Raises TokenError, KeysError."""
        given = headers.getlist("authorization")
        if not given:
            return None
        kind, _, token = given[0].partition(" ")
        token = token.strip(" ")
        if len(given) > 1 or kind.lower() != "bearer":
            raise TokenError("one Authorization header is expected, of the kind Bearer")
        if len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
            raise TokenError(f"a token has 1 to {MAX_TOKEN_BYTES} letters, digits and ._~+/-=")
        for authenticator in self.authenticators:
            found = await authenticator.identify(token)
            if found is not None:
                return found
        raise TokenError("unknown token")


class Guard:
    """Passes allowed requests on, with their user in ``scope["user"]``."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._access.authenticators:
            scope["user"] = ANYBODY
            await self._app(scope, receive, send)
            return
        needed = self._access.role_of(scope["method"], scope["path"])
        refused = await self._refusal(scope, needed) if needed else None
        if refused is not None:
            await refused(scope, receive, send)
            return
        if needed:
            await _Watched(self._access, scope, send, needed).run(self._app, receive)
        else:
            await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, needed: Role) -> Response | None:
        try:
            identity = await self._access.identify(Headers(scope=scope))
        except TokenError as error:
            return _refused(scope, _UNAUTHORIZED, f"{error}; {_HOW}", ', error="invalid_token"')
        except KeysError as error:
            return error_answer(Request(scope), _NOT_NOW, f"{error}: try again in a moment")
        if identity is None:
            said = f"this needs a token with the role {needed.label}: {_HOW}"
            return _refused(scope, _UNAUTHORIZED, said)
        scope["user"] = identity
        if identity.role < needed:
            has = f"the role {identity.role.label}" if identity.role else "no role"
            said = f"this needs the role {needed.label}; {identity.name!a} has {has}"
            more = f', error="insufficient_scope", scope="{needed.label}"'
            return _refused(scope, _FORBIDDEN, said, more)
        return None


def _refused(scope: Scope, status: int, said: str, more: str = "") -> Response:
    answer = error_answer(Request(scope), status, said)
    answer.headers["WWW-Authenticate"] = f'Bearer realm="muster"{more}'
    return answer


class _Watched:
    """Sends an answer while its reader's token is valid."""

    def __init__(self, access: Access, scope: Scope, send: Send, needed: Role) -> None:
        self._access = access
        self._scope = scope
        self._send = send
        self._needed = needed
        self._checked = time.monotonic()
        self._life = asyncio.timeout(None)
        self._watching: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        """Run the application until its answer ends, or the token is no longer valid."""
        try:
            async with self._life:
                await app(self._scope, receive, self)
        except TimeoutError:
            if not self._life.expired():
                raise
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._end()
        finally:
            if self._watching is not None:
                self._watching.cancel()

    async def __call__(self, message: Message) -> None:
        """Send a part, or end the answer. Raises OSError after its end, as for a lost reader."""
        now = time.monotonic()
        if message.get("more_body") and self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="token-watch")
        if message.get("more_body") and now - self._checked > AGAIN_SECONDS:
            self._checked = now
            if not await self._still_may():
                await self._end()
                raise ConnectionAbortedError("the token is no longer valid")
        await self._send(message)

    async def _watch(self) -> None:
        """End an answer whose token became invalid while nothing was sent."""
        while True:
            await asyncio.sleep(QUIET_SECONDS)
            may = await self._still_may()
            if not may:
                self._life.reschedule(asyncio.get_running_loop().time())
                return

    async def _end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _still_may(self) -> bool:
        try:
            identity = await self._access.identify(Headers(scope=self._scope))
        except KeysError:
            return True
        except TokenError:
            return False
        return identity is not None and identity.role >= self._needed
