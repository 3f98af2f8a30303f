"""The pause between two attempts of an operation that the bus or a disk cannot do now."""

from tenacity import RetryCallState, wait_exponential

RETRY_FIRST_SECONDS = 0.1
RETRY_LONGEST_SECONDS = 2.0
PAUSE = wait_exponential(multiplier=RETRY_FIRST_SECONDS, max=RETRY_LONGEST_SECONDS)


def why_failed(attempts: RetryCallState) -> str:
    """Return the error of the last attempt."""
    return str(attempts.outcome.exception()) if attempts.outcome is not None else ""
