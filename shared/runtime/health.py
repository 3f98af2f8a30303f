"""Serves health, readiness and metrics of a service on a separate port.

The container's health check is a few lines of shell (``deploy/Dockerfile``).
"""

import asyncio
from collections.abc import Callable

from prometheus_client import generate_latest

_MAX_REQUEST_BYTES = 8_192
_READ_SECONDS = 5.0


async def serve_health(host: str, port: int, is_ready: Callable[[], bool]) -> asyncio.Server:
    """Serve /health/live, /health/ready and /metrics. Raises OSError when the port is taken."""

    async def on_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            path = head[:_MAX_REQUEST_BYTES].split(b" ")[1].decode(errors="replace")
            status, body = _respond(path, is_ready)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
                "Content-Type: text/plain; charset=utf-8\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (TimeoutError, OSError, IndexError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(on_request, host, port, limit=_MAX_REQUEST_BYTES)


def _respond(path: str, is_ready: Callable[[], bool]) -> tuple[str, bytes]:
    if path == "/health/live":
        return "200 OK", b"live\n"
    if path == "/health/ready":
        return ("200 OK", b"ready\n") if is_ready() else ("503 Service Unavailable", b"waiting\n")
    if path == "/metrics":
        return "200 OK", generate_latest()
    return "404 Not Found", b"404 page not found\n"
