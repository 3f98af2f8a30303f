"""Protects against cross-site requests: foreign pages may neither read nor change anything.

A browser sends requests to any address that a page names, from inside the user's network. So a
request is accepted only if
Rule 1: its ``Host`` is an address, a name without a dot, a cluster's (``.svc``), or one that the
        operator names (MUSTER_HTTP_NAMES): any other may be a foreign name that resolves to us.
Rule 2: it is sent by no page, or by one of the same origin. Read requests may also be sent by pages
        of a host that the operator names, such as YuniKorn's web client at its own address.
and a request that changes something only if, in addition,
Rule 3: by ``Sec-Fetch-Site``, too, it is sent by no page or by one of the same origin.
Rule 4: its content type is none that browser forms can send.
Rule 5: the answer does not allow a page of another origin to read it.
Health checks answer under any name, because they are not confidential. YuniKorn's validation
changes nothing; it and read requests keep the headers of YuniKorn's answers.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.web.answers import READ, error_answer

_READS = {*READ, "HEAD"}
_CHANGES_NOTHING = ("/ws/v1/",)
_HEALTH = "/health/"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_OF_A_CLUSTER = (".svc", ".svc.cluster.local", ".localhost")
_FORMS = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded")
_CORS = b"access-control-"
_FORBIDDEN, _MISDIRECTED, _UNSUPPORTED = 403, 421, 415


class OnlyOurPages:
    """Refuses what another site's page sends. ``names``: further hosts, with a port or without."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"].startswith(_HEALTH):
            await self._app(scope, receive, send)
            return
        headers, changes = Headers(scope=scope), _may_change(scope)
        status, why = self._refusal_of_any(headers, changes=changes)
        if changes and not status:
            status, why = _refusal_of_a_change(headers)
        answers = error_answer(Request(scope), status, why) if status else self._app
        await answers(scope, receive, _without_cors(send) if changes or status else send)

    def _refusal_of_any(self, headers: Headers, *, changes: bool) -> tuple[int, str]:
        host = headers.get("host", "")
        if not self._is_ours(host.lower()):
            said = f"the Host {host[:100]!a} is no name of this API"
            return _MISDIRECTED, f"{said}: use its address, or name it in MUSTER_HTTP_NAMES"
        origin = headers.get("origin")
        if origin is None or _host_of(origin) == host.lower():
            return 0, ""
        if changes:
            return _FORBIDDEN, f"a page of {origin[:100]!a} may not change anything here"
        if not self._is_named(_host_of(origin)):
            said = f"a page of {origin[:100]!a} may not read anything here"
            return _FORBIDDEN, f"{said}: name its host in MUSTER_HTTP_NAMES if it may"
        return 0, ""

    def _is_named(self, host: str) -> bool:
        """Return whether the operator names a host, with its port or without any."""
        return host in self._names or _name_of(host) in self._names

    def _is_ours(self, host: str) -> bool:
        """Return whether a Host header can only mean this API."""
        return self._is_named(host) or _leads_here(_name_of(host))


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, without its port; "" where there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _leads_here(name: str) -> bool:
    """Return whether a name is an address, or can be no other site's."""
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return bool(_NAME.fullmatch(name)) and ("." not in name or name.endswith(_OF_A_CLUSTER))
    return True


def _refusal_of_a_change(headers: Headers) -> tuple[int, str]:
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return _FORBIDDEN, "a page of another origin may not change anything here"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _FORMS:
        said = f"a body of type {kind} is not accepted: browser forms send it"
        return _UNSUPPORTED, f"{said}: send it as application/yaml or application/json"
    return 0, ""


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
