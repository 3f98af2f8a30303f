"""Detects that the running task was cancelled."""

import asyncio


def stop_if_cancelled() -> None:
    """Raise CancelledError in a task whose cancellation was swallowed.

    If an awaited result arrives at the same moment, ``asyncio.wait_for`` (Python 3.11) and broker
    clients return it and the cancellation is lost. An endless loop calls this at each turn.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
