"""How much is encoded or decoded in one go: a connection whose heartbeats stop is lost."""

import asyncio

MAX_BYTES_AT_ONCE = 256 * 1024  # encoded or decoded while nothing else of the loop goes on


class Pace:
    """Lets the loop do what else there is after every MAX_BYTES_AT_ONCE written or read."""

    def __init__(self) -> None:
        self._bytes = 0

    async def count(self, body: bytes) -> None:
        """Count a body; now and then, let others go on."""
        self._bytes += len(body)
        if self._bytes >= MAX_BYTES_AT_ONCE:
            self._bytes = 0
            await asyncio.sleep(0)
