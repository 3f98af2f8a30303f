"""Long lists, row by row: what has not changed since it was asked for last is not written again.

Rule 1: a row is kept with what it tells of (``written``), and forgotten when that changes; that of
        an application with asks is also of why its queue refuses them.
Rule 2: a list is put together in slices of SLICE rows, and others have their turn in between. So a
        row says what is so when it is written, and the list is of no single moment; YuniKorn's is
        neither.
Memory: what was asked for once is kept, about 500 bytes an allocation.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from services.api.answers import encoded, written_aside
from services.api.projection.model import ApplicationView, Model, NodeView
from services.api.ws_v1 import application_info, node_info

SLICE = 100
Row = TypeVar("Row")


def node_row(node: NodeView) -> bytes:
    """Return NodeDAOInfo, written."""
    if node.written is None:
        node.written = encoded(node_info(node))
    return node.written


def application_row(model: Model, view: ApplicationView) -> bytes:
    """Return ApplicationDAOInfo, written."""
    queue = model.queues.get(view.summary.queue_name) if view.asks else None
    refusals = queue.waiting if queue is not None else ()
    if view.written is None or view.written[0] != refusals:
        view.written = (refusals, encoded(application_info(model, view)))
    return view.written[1]


async def listed(request: Request, rows: Iterable[Row], write: Callable[[Row], bytes]) -> Response:
    """Return a list as an answer."""
    waiting = list(rows)
    slices: list[bytes] = []
    for at in range(0, len(waiting), SLICE):
        slices.append(b",".join(map(write, waiting[at : at + SLICE])))
        await asyncio.sleep(0)
    return await written_aside(request, b"[" + b",".join(slices) + b"]\n")
