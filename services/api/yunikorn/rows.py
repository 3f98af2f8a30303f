"""Long lists, row by row: unchanged rows are not encoded again.

Rule 1: a row is cached with its source (``written``), and dropped when that changes; that of an
        application with asks also depends on why its queue refuses them.
Rule 2: a list is written in pieces of PIECE_BYTES, a row of the next one more, compressed piece by
        piece if requested, and sent as it is written; other tasks run in between. So a row has the
        state at its own moment, and the list is of no single moment, as in YuniKorn. A list of one
        piece has a length, a longer one is sent without.
Memory: rows requested once stay cached, about 500 bytes per allocation.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from services.api.projection.model import ApplicationView, Model, NodeView
from services.api.web.answers import (
    JSON,
    accepts_gzip,
    cors_headers,
    encoded,
    gzip_headers,
    written,
)
from services.api.yunikorn.answers import application_info, node_info

PIECE_BYTES = 131_072
_GZIP_WINDOW = 31  # zlib's number for gzip's own format
Row = TypeVar("Row")


def node_row(node: NodeView) -> bytes:
    """Return NodeDAOInfo, encoded."""
    if node.written is None:
        node.written = encoded(node_info(node))
    return node.written


def application_row(model: Model, view: ApplicationView) -> bytes:
    """Return ApplicationDAOInfo, encoded."""
    refusals = model.refusals.get(view.summary.queue_name) if view.asks else None
    version = (refusals, refusals.version) if refusals is not None else None
    if view.written is None or view.written[0] != version:
        view.written = (version, encoded(application_info(model, view)))
    return view.written[1]


async def listed(request: Request, rows: Iterable[Row], write: Callable[[Row], bytes]) -> Response:
    """Return a list of rows as an answer."""
    pieces = _pieces(list(rows), write)
    first = await anext(pieces)
    if first.endswith(b"\n"):  # no row holds one
        return written(request, first)
    headers, body = cors_headers(), _after(first, pieces)
    if accepts_gzip(request.headers):
        headers, body = headers | gzip_headers(), _packed(body)
    return StreamingResponse(body, headers=headers, media_type=JSON)


async def _pieces(rows: list[Row], write: Callable[[Row], bytes]) -> AsyncIterator[bytes]:
    """Yield an encoded list in pieces; the last one ends with a newline."""
    parts, size, before = [b"["], 0, b""
    for row in rows:
        if size >= PIECE_BYTES:
            yield b"".join(parts)
            await asyncio.sleep(0)
            parts, size = [], 0
        text = write(row)
        parts += (before, text)
        size += len(text)
        before = b","
    yield b"".join([*parts, b"]\n"])


async def _after(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


async def _packed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces compressed with gzip, at its fastest level."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)
    async for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()
