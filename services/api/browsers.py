"""What a page in somebody's browser may not do here: change anything, unless the page is ours.

A browser sends a request to any address that a page names, with the rights of the network that it
stands in. So what changes something is taken only if

Rule 1: its ``Host`` is an address, a name without a dot, a cluster's (``.svc``), or one that the
        operator names (MUSTER_HTTP_NAMES): any other may be a name of a stranger's that leads here.
Rule 2: it comes from no page, or from one of the same origin: ``Origin``, ``Sec-Fetch-Site``.
Rule 3: its body is of no type that a form sends without asking first.
Rule 4: the answer lets no page of another origin read it.

Reading, and YuniKorn's validation, which changes nothing, keep the headers of contract section 5.1.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.answers import READ, error_answer

_READS = {*READ, "HEAD"}
_CHANGES_NOTHING = ("/ws/v1/",)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_OF_A_CLUSTER = (".svc", ".svc.cluster.local", ".localhost")
_FORMS = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded")
_CORS = b"access-control-"
_FORBIDDEN, _MISDIRECTED, _UNSUPPORTED = 403, 421, 415


class OnlyOurPages:
    """Refuses what changes something and comes from another's page. ``names``: further hosts."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or not _may_change(scope):
            await self._app(scope, receive, send)
            return
        status, why = self._refusal(Headers(scope=scope))
        answers = error_answer(Request(scope), status, why) if status else self._app
        await answers(scope, receive, _without_cors(send))

    def _refusal(self, headers: Headers) -> tuple[int, str]:
        host = headers.get("host", "")
        if not self._is_ours(host):
            said = f"the Host {host[:100]!a} is no name of this API"
            return _MISDIRECTED, f"{said}: use its address, or name it in MUSTER_HTTP_NAMES"
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != host.lower():
            return _FORBIDDEN, f"a page of {origin[:100]!a} may not change anything here"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _FORBIDDEN, "a page of another origin may not change anything here"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _FORMS:
            said = f"a body of type {kind} is what forms send"
            return _UNSUPPORTED, f"{said}: send it as application/yaml or application/json"
        return 0, ""

    def _is_ours(self, host: str) -> bool:
        """Return whether a Host header leads nowhere else, whoever wrote the name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.rstrip(".") in self._names:
            return True
        try:
            ip_address(name.partition("%")[0])
        except ValueError:
            name = name.rstrip(".")
            return bool(_NAME.fullmatch(name)) and ("." not in name or name.endswith(_OF_A_CLUSTER))
        return True


def _host_of(origin: str) -> str:
    """Return the host and port of an origin as a Host header has them; "" of ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _may_change(scope: Scope) -> bool:
    return scope["method"] not in _READS and not scope["path"].startswith(_CHANGES_NOTHING)


def _without_cors(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [item for item in message["headers"] if not item[0].lower().startswith(_CORS)]
            message = {**message, "headers": kept}
        await send(message)

    return sent
