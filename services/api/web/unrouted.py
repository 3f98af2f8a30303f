"""What no route takes, answered as YuniKorn's router does (docs/rules/rest.md#every-answer).

Rule 1: a path that a route of the same method would take without its last slash, with one, with
        ``//`` and ``..`` worked out, or in another case, is redirected there: 301 for GET, 308 for
        what has a body.
Rule 2: OPTIONS on a path that some method takes is 200 with ``Allow``; another method is 405 with
        it.
Rule 3: all else is 404, in plain text.
"""

import html
import posixpath
import re
from collections.abc import Callable
from http import HTTPStatus
from itertools import chain, zip_longest
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from services.api.web.answers import READ, cors_headers

NOT_FOUND = "404 page not found\n"
_PARAMETER = re.compile(r"\{[^/{}]+\}")
_SAFE = "/:@!$&'()*+,;=~-._%"  # what Go leaves as it is in a path; % and / of names have escapes
Paths = dict[str, list[str]]  # the methods of every path, with its parameters in braces


class Unrouted:
    """Answers requests without a route. ``paths`` is called once, on first use."""

    def __init__(self, paths: Callable[[], Paths]) -> None:
        self._paths = paths
        self._known: list[tuple[str, re.Pattern[str], list[str]]] | None = None

    def answer(self, request: Request) -> Response:
        """Return the answer to a request without a route."""
        path, method = request.url.path, request.method
        path = request.scope.get("path", path)
        fixed = self._fixed(path, method)
        if fixed is not None and fixed != path:
            return _redirect(request, fixed)
        allowed = self._allowed(path)
        if not allowed:
            return PlainTextResponse(NOT_FOUND, HTTPStatus.NOT_FOUND)
        headers = {"Allow": ", ".join(allowed)}
        if method == "OPTIONS":
            told = allowed if path.startswith("/ws/") else [m for m in allowed if m in READ]
            return Response(b"", HTTPStatus.OK, cors_headers(told) | headers)
        text = "Method Not Allowed\n"
        return PlainTextResponse(text, HTTPStatus.METHOD_NOT_ALLOWED, headers)

    def _routes(self) -> list[tuple[str, re.Pattern[str], list[str]]]:
        if self._known is None:
            self._known = [
                (path, pattern_of(path), methods) for path, methods in self._paths().items()
            ]
        return self._known

    def _fixed(self, path: str, method: str) -> str | None:
        """Return the path of a route of this method that was probably meant, or None."""
        if path == "/":
            return None
        clean = re.sub("^/+", "/", posixpath.normpath(path))
        for route, pattern, methods in self._routes():
            found = pattern.fullmatch(clean) if method in methods else None
            if found is not None:
                return _filled(route, found.groups())
        return None

    def _allowed(self, path: str) -> list[str]:
        """Return the methods of a path, including OPTIONS; none if it is unknown."""
        for _, pattern, methods in self._routes():
            found = pattern.fullmatch(path)
            if found is not None:
                return sorted({*methods, "OPTIONS"})
        return []


def pattern_of(path: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Return a pattern that matches a path with parameters, with a group for each."""
    parts = [re.escape(part) for part in _PARAMETER.split(path)]
    return re.compile("([^/]+)".join(parts), flags | re.DOTALL)


def _filled(route: str, values: tuple[str, ...]) -> str:
    """Return a route's path with its parameters replaced by values."""
    parts = _PARAMETER.split(route)
    return "".join(chain.from_iterable(zip_longest(parts, values, fillvalue="")))


def _redirect(request: Request, path: str) -> Response:
    where = quote(path, safe=_SAFE)
    if request.url.query:
        where += f"?{request.url.query}"
    if request.method != "GET":
        return Response(b"", HTTPStatus.PERMANENT_REDIRECT, {"Location": where})
    return moved_permanently(where)


def moved_permanently(where: str) -> Response:
    """Return a redirect in Go's format."""
    body = f'<a href="{html.escape(where)}">Moved Permanently</a>.\n\n'
    media = "text/html; charset=utf-8"
    return Response(body, HTTPStatus.MOVED_PERMANENTLY, {"Location": where}, media_type=media)
