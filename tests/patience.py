"""How tests wait: for the state that they mean, with long patience, and never for a time.

A machine may be many times slower than the one a test was written on. PATIENCE_SECONDS is far more
than anything here takes; what has not come by then does not come, and the failure says what it was.
A test of what must not happen waits for something that comes after it, and looks then.
``TEST_PATIENCE`` is another patience, in seconds: in a trial most of what is waited for never comes.
"""

import asyncio
import contextlib
import inspect
import os
import signal
from collections.abc import Iterator

# below the limit of a test (tests/limits.py), so that this is what is said
PATIENCE_SECONDS = float(os.environ.get("TEST_PATIENCE", "100"))


async def until(holds, what="it", patience=PATIENCE_SECONDS, pause=0.01):
    """Wait until ``holds()``, or what it awaits, is true, and return that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if loop.time() > deadline:
            raise AssertionError(f"{what} did not come to hold within {patience:g} s: {found!r}")
        await asyncio.sleep(pause)


def patience():
    """Return the time that something may take which ends by itself, to be entered."""
    return asyncio.timeout(PATIENCE_SECONDS)


@contextlib.contextmanager
def longer(seconds: float) -> Iterator[None]:
    """Stop the time of the running test, for at most so many seconds, for what it only waits for.

    An image is pulled, a broker starts: that has a limit of its own.
    """
    left, again = signal.getitimer(signal.ITIMER_REAL)
    if not left:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, left + seconds, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)
