"""uvicorn as a task in somebody else's loop: it leaves signals to whoever owns the process."""

import contextlib
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

MAX_CONNECTIONS = 1_000


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: FastAPI, host: str, port: int) -> None:
    """Serve until cancelled. Raises OSError when the port is taken."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    try:
        await server.serve()
    except SystemExit:
        raise OSError(f"cannot listen on {host}:{port}: the port is taken") from None
