"""The format of answers: JSON as Go's encoder writes it, with YuniKorn's headers and errors.

Source: docs/rules/rest.md#every-answer.
"""

import gzip
import json
import re
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

GZIP_FROM_BYTES = 1400
_WEIGHT = re.compile(r"q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}
READ = ("GET", "OPTIONS")
JSON = "application/json; charset=UTF-8"


def cors_headers(methods: Sequence[str] = READ) -> dict[str, str]:
    """Return the headers of every answer; a route with other methods than GET names them."""
    return {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": ", ".join(methods),
        "Access-Control-Allow-Headers": "X-Requested-With,Content-Type,Accept,Origin",
    }


class AnswerError(Exception):
    """A request that cannot be answered: a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def answer(
    request: Request,
    value: Any,
    status: int = 200,
    *,
    indent: int | None = None,
    methods: Sequence[str] = READ,
) -> Response:
    """Return a value as JSON, on one line without ``indent``; large ones may be compressed."""
    return written(request, encoded(value, indent=indent) + b"\n", status, methods=methods)


def written(
    request: Request,
    body: bytes,
    status: int = 200,
    *,
    methods: Sequence[str] = READ,
    media_type: str = JSON,
) -> Response:
    """Return an encoded body; a large one may be compressed."""
    headers = cors_headers(methods)
    if len(body) >= GZIP_FROM_BYTES and accepts_gzip(request.headers):
        body = gzip.compress(body, compresslevel=1)
        headers |= gzip_headers()
    return Response(body, status, headers, media_type=media_type)


def gzip_headers() -> dict[str, str]:
    """Return the headers of a compressed body."""
    return {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


def encoded(value: Any, *, indent: int | None = None) -> bytes:
    """Encode a value as Go's encoder does, without the final newline."""
    if indent is not None:
        text = json.dumps(value, separators=(",", ": "), ensure_ascii=False, indent=indent)
        body = text.encode(errors="backslashreplace")  # half a character as JSON writes it
    else:
        try:
            body = orjson.dumps(value)
        except TypeError:  # half a character, a number of more than 64 bits
            text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            body = text.encode(errors="backslashreplace")
    for character, escape in _ESCAPES.items():
        if character in body:
            body = body.replace(character, escape)
    return body


def accepts_gzip(headers: Headers) -> bool:
    """Whether an Accept-Encoding header lists gzip with a weight above 0.

    An invalid weight counts as 0: the answer is then not compressed.
    """
    for item in ",".join(headers.getlist("accept-encoding")).split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name == "gzip":
            weights = [_WEIGHT.fullmatch(part) for part in parameters]
            return all(weight is not None and float(weight[1]) > 0 for weight in weights)
    return False


def error_answer(request: Request, status: int, message: str) -> Response:
    """Return an error in YuniKorn's format."""
    body = {"status_code": status, "message": message, "description": message}
    return answer(request, body, status)
