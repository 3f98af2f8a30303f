"""Runs uvicorn as a task of another loop; signals are left to the process's owner."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from services.api.web.connections import Connection, sweep
from services.api.web.tls import Certificate, watch_certificates

_BACKLOG = 2_048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ListenError(OSError):
    """Listening on an address failed; the message has the address and the cause."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects a free port. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)  # its text alone: the address stands here
        said = os.strerror(number) if number else str(error)
        raise ListenError(f"cannot listen on {host}:{port}: {said}") from error


def _end(server: uvicorn.Server) -> None:
    """End open connections: a stream would continue while it is read."""
    for listening in server.servers:
        listening.close()
    for connection in list(server.server_state.connections):
        connection.transport.close()


async def serve(
    app: FastAPI, listening: socket.socket, certificate: Certificate | None = None
) -> None:
    """Serve on a socket until cancelled, by HTTPS if there is a certificate."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        http=Connection,
        ws="none",
        timeout_graceful_shutdown=1,
        ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
    )
    server = _Server(config)
    beside = [asyncio.create_task(sweep(server.server_state.connections))]
    if certificate:
        beside.append(asyncio.create_task(watch_certificates(certificate)))
    try:
        await server.serve(sockets=[listening])
    except asyncio.CancelledError:
        _end(server)
        raise
    finally:
        for task in beside:
            task.cancel()
