"""The live page at ``/``: its files, and its stream.

The files in the folder ``page`` are sent unchanged: no build step, nothing from another host.
Headers restrict the page to this origin.
"""

import gzip
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from services.api.replica import OnePartition, Replica
from services.api.routes.live import LivePages
from services.api.web.answers import AnswerError, accepts_gzip
from services.api.web.segments import NamedRoute
from shared.model.names import DEFAULT_PARTITION

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, ready to send."""

    body: bytes
    compressed: bytes
    media_type: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """Return the files of the page by name."""
    found: dict[str, PageFile] = {}
    for item in (Path(__file__).parents[1] / "page").iterdir():
        media_type = _TYPES.get(item.name.rpartition(".")[2])
        if media_type is not None:
            body = item.read_bytes()
            tag = f'"{sha256(body).hexdigest()[:32]}"'
            found[item.name] = PageFile(body, gzip.compress(body, mtime=0), media_type, tag)
    return found


def page_routes(replica: Replica) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(route_class=NamedRoute, include_in_schema=False)
    known = page_files()
    pages = LivePages(replica)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return _file(request, known["index.html"])

    @router.api_route("/page/{name}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str) -> Response:
        if name not in known:
            raise AnswerError(404, f"the page has no file {name}")
        return _file(request, known[name])

    @router.get("/v1/live")
    async def live(partition: OnePartition = DEFAULT_PARTITION) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(pages.open(partition), 200, headers, "text/event-stream")

    return router


def _file(request: Request, file: PageFile) -> Response:
    headers = {**_HEADERS, "ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(None, 304, headers)
    body = file.body
    if accepts_gzip(request.headers):
        headers["Content-Encoding"], body = "gzip", file.compressed
    return Response(body, 200, headers, file.media_type)
