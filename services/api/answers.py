"""How an answer looks on the wire: as Go's encoder writes it, with YuniKorn's headers and errors.

Source: contract section 5.1.
"""

import gzip
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

GZIP_FROM_BYTES = 1400
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "X-Requested-With,Content-Type,Accept,Origin",
}


class AnswerError(Exception):
    """A request that cannot be answered: a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def answer(
    request: Request, value: Any, status: int = 200, *, indent: int | None = None
) -> Response:
    """Return a value as JSON, on one line without ``indent``; large ones may be compressed."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, separators=separators, ensure_ascii=False, indent=indent)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    body = text.encode() + b"\n"
    headers = dict(_HEADERS)
    if len(body) >= GZIP_FROM_BYTES and accepts_gzip(request.headers):
        body = gzip.compress(body, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
        headers["Vary"] = "Accept-Encoding"
    return Response(body, status, headers, media_type="application/json; charset=UTF-8")


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether the Accept-Encoding header lists gzip with a weight that is not 0."""
    for item in headers.get("accept-encoding", "").split(","):
        name, _, weight = item.strip().partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def error_answer(request: Request, status: int, message: str) -> Response:
    """Return an error in YuniKorn's form."""
    body = {"status_code": status, "message": message, "description": message}
    return answer(request, body, status)
