"""Whole numbers in external texts: Go's syntax and ranges.

Decimal digits without blanks, dots or underscores; leading zeros have no meaning. A text that is
not such a number, or is out of range, is None; the caller decides what that means
(docs/rules/queues.md#properties). Inside a service numbers are Python's and never overflow; numbers
sent to others are int64 (docs/adr/0021).
"""

import re

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT32 = range(-(2**31), 2**31)
_SIGNED = re.compile(r"([+-]?)([0-9]+)")
_MOST_OF_A_SUM = 60  # digits of a sum; a longer one is invalid
_MOST_DIGITS = 20  # of 2^64; a longer text is out of every range, whatever its length


def parse_int32(text: str) -> int | None:
    """Parse a number with or without a sign like strconv.ParseInt(text, 10, 32), or None."""
    value = _signed(text)
    return value if value is not None and value in INT32 else None


def parse_int64(text: str) -> int | None:
    """Parse a number with or without a sign like strconv.ParseInt(text, 10, 64), or None."""
    value = _signed(text)
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def parse_uint64(text: str) -> int | None:
    """Parse a number without a sign like strconv.ParseUint(text, 10, 64), or None."""
    is_number = text.isascii() and text.isdecimal()
    value = _magnitude(text) if is_number else None
    return value if value is not None and value < 2**64 else None


def parse_digits(text: str) -> int | None:
    """Parse a number of at most _MOST_OF_A_SUM digits, or None; sums have no other limit."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_OF_A_SUM
    return int(text) if is_number else None


def saturated(value: int) -> int:
    """Return a number, or the nearest int64."""
    return max(INT64_MIN, min(INT64_MAX, value))


def _signed(text: str) -> int | None:
    match = _SIGNED.fullmatch(text)
    value = None if match is None else _magnitude(match.group(2))
    return -value if value is not None and match is not None and match.group(1) == "-" else value


def _magnitude(digits: str) -> int | None:
    """Return the number that digits stand for, or None if there are too many."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MOST_DIGITS else None
