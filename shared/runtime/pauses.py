"""The pause between two tries of what the bus, or a disk, cannot take now."""

from tenacity import RetryCallState, wait_exponential

RETRY_FIRST_SECONDS = 0.1
RETRY_LONGEST_SECONDS = 2.0
PAUSE = wait_exponential(multiplier=RETRY_FIRST_SECONDS, max=RETRY_LONGEST_SECONDS)


def why_failed(attempts: RetryCallState) -> str:
    """Return what the last attempt failed with."""
    return str(attempts.outcome.exception()) if attempts.outcome is not None else ""
