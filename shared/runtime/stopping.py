"""Whether the running task is asked to stop."""

import asyncio


def stop_if_cancelled() -> None:
    """Raise CancelledError in a task that is asked to stop, and has not heard of it.

    Its awaited result arrived at the same moment: ``asyncio.wait_for`` (Python 3.11), and what a
    client of a broker has of its own, then return that, and the request is lost. An endless
    loop calls this at each turn.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
