"""The names in a request's path: the path is split at ``/`` before its parts are decoded.

A queue, or a user, may have a ``/`` in its name: ``root.a%2Fb`` is one part of a path, one name.

Rule 1: what stands before every route sees the path part by part: each decoded once, with only
        ``%`` and ``/`` inside of a part written as ``%25`` and ``%2F``. Routes, roles and the audit
        see the same text.
Rule 2: a route gets its parameters decoded: the names as they are.
"""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import unquote

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send


def path_by_parts(raw: str) -> str:
    """Decode the parts of a path, keeping them separate."""
    return "/".join(escaped(unquote(part)) for part in raw.split("/"))


def escaped(part: str) -> str:
    """Escape a name as a part of such a path."""
    return part.replace("%", "%25").replace("/", "%2F")


class Segments:
    """Passes every path on decoded part by part."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            raw = scope.get("raw_path")
            path = path_by_parts(raw.decode("latin-1")) if raw else scope["path"]
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


class NamedRoute(APIRoute):
    """A route whose parameters are decoded after the route was found."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that decodes its parameters."""
        handle = super().get_route_handler()

        async def with_names(request: Request) -> Response:
            found = request.scope.get("path_params", {})
            request.scope["path_params"] = {key: unquote(value) for key, value in found.items()}
            return await handle(request)

        return with_names
