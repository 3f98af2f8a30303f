"""Units of time in messages: nanoseconds, as integers."""

from shared.model.numbers import INT64_MAX

NANOS_PER_MILLI = 1_000_000
NANOS_PER_SECOND = 1_000_000_000


def seconds(count: int) -> int:
    """Convert seconds to nanoseconds."""
    return count * NANOS_PER_SECOND


def milliseconds(count: int) -> int:
    """Convert milliseconds to nanoseconds."""
    return count * NANOS_PER_MILLI


MAX_DURATION_NS = 100 * 365 * 24 * 3600 * NANOS_PER_SECOND
"""What is longer than 100 years is as long: a moment that far from now is still an int64."""


def bounded_ns(duration_ns: int) -> int:
    """Limit a duration to MAX_DURATION_NS."""
    return min(duration_ns, MAX_DURATION_NS)


def timeout_ms(stated_ms: int) -> int:
    """Return a timeout in milliseconds as YuniKorn reads it; 0 (none) for an invalid one.

    Invalid are negative ones and those that overflow an int64 of nanoseconds, some 292 years.
    """
    return stated_ms if 0 < milliseconds(stated_ms) <= INT64_MAX else 0
