"""Time in the units that messages carry: nanoseconds since the epoch, as integers."""

NANOS_PER_MILLI = 1_000_000
NANOS_PER_SECOND = 1_000_000_000


def seconds(count: int) -> int:
    """Return whole seconds in nanoseconds."""
    return count * NANOS_PER_SECOND


def milliseconds(count: int) -> int:
    """Return milliseconds in nanoseconds."""
    return count * NANOS_PER_MILLI
