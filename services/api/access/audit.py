"""The audit log: a line for each request that may change something, and for each refused one.

    {"logger": "muster.audit", "event": "request", "who": "ada", "role": "submit", "from": …,
     "method": "DELETE", "path": "/v1/applications/spark-pi", "status": 200, "what": …}

Rule 1: the line is written after the answer, or with status 0 if there is none, because the client
        left or there was a bug.
Rule 2: no log level silences it.
Rule 3: ``what`` has the route's details (``note``): names of submitted objects, the checksum of a
        configuration. No body, no token, no key.
Limits: MAX_PATH characters, MAX_NAMES names, MAX_UNKNOWN lines a minute without a user; the next
line has the number of omitted ones.
"""

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.access.identity import Identity
from services.api.access.roles import Role, role_of
from shared.runtime.logs import audit_log

MAX_PATH = 300  # characters of a path in the audit log; cut
MAX_NAMES = 20  # names on a line of the audit log; "… and N more"
MAX_UNKNOWN = 60  # lines of the audit log a minute for requests without a token; counted
_MINUTE_SECONDS = 60.0
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_WHAT = "what"
log = audit_log()


def note(request: Request, verb: str, names: Sequence[str]) -> None:
    """Add the subject of a request to its line of the log."""
    more = [f"… and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    said = ", ".join([*names[:MAX_NAMES], *more])
    request.scope.setdefault("state", {})[_WHAT] = f"{verb} {said}"


class Audit:
    """Writes the audit log of an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._minute = -_MINUTE_SECONDS
        self._unknown = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log its result."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            may_change = role_of(scope["method"], scope["path"]) >= Role.SUBMIT
            if may_change or status in {_UNAUTHORIZED, _FORBIDDEN}:
                self._write(scope, status)

    def _write(self, scope: Scope, status: int) -> None:
        who: Identity | None = scope.get("user")
        left_out = 0
        if who is None:
            now = time.monotonic()
            if now - self._minute >= _MINUTE_SECONDS:
                left_out = max(0, self._unknown - MAX_UNKNOWN)
                self._minute, self._unknown = now, 0
            self._unknown += 1
            if self._unknown > MAX_UNKNOWN:
                return
        client = scope.get("client")
        told = {
            "logger": "muster.audit",
            "who": who.name if who else "",
            "role": who.role.label if who else "",
            "from": client[0] if client else "",
            "method": scope["method"][:20],
            "path": scope["path"][:MAX_PATH],
            "status": status,
        }
        if what := scope.get("state", {}).get(_WHAT):
            told["what"] = what
        if left_out:
            told["left_out"] = left_out
        log.info("request", **told)
