"""Limits how much is encoded or decoded at a stretch, so that heartbeats are not delayed."""

import asyncio

MAX_BYTES_AT_ONCE = 256 * 1024  # encoded or decoded while nothing else of the loop goes on


class Pace:
    """Yields to the event loop after every MAX_BYTES_AT_ONCE encoded or decoded bytes."""

    def __init__(self) -> None:
        self._bytes = 0

    async def count(self, body: bytes) -> None:
        """Count a body; yield to the loop when the limit is reached."""
        self._bytes += len(body)
        if self._bytes >= MAX_BYTES_AT_ONCE:
            self._bytes = 0
            await asyncio.sleep(0)
