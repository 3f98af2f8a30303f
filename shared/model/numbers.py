"""Whole numbers at the border: how Go reads them from text, and how large they may be.

Decimal digits, with no blanks, dots or underscores; leading zeros mean nothing. What is not such a
number, or is out of range, is None: what that means is the reader's to say
(docs/rules/queues.md#properties). Inside a service numbers are Python's own and never overflow;
where one goes out on a wire it is an int64 (docs/adr/0021).
"""

import re

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT32 = range(-(2**31), 2**31)
_SIGNED = re.compile(r"([+-]?)([0-9]+)")
_MOST_OF_A_SUM = 60  # digits of a sum; a longer one is invalid
_MOST_DIGITS = 20  # of 2^64; a longer text is out of every range, whatever its length


def parse_int32(text: str) -> int | None:
    """Return a number with or without a sign, as strconv.ParseInt(text, 10, 32) does, or None."""
    value = _signed(text)
    return value if value is not None and value in INT32 else None


def parse_int64(text: str) -> int | None:
    """Return a number with or without a sign, as strconv.ParseInt(text, 10, 64) does, or None."""
    value = _signed(text)
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def parse_uint64(text: str) -> int | None:
    """Return a number without a sign, as strconv.ParseUint(text, 10, 64) does, or None."""
    is_number = text.isascii() and text.isdecimal()
    value = _magnitude(text) if is_number else None
    return value if value is not None and value < 2**64 else None


def parse_digits(text: str) -> int | None:
    """Return a number of at most _MOST_OF_A_SUM digits, or None: sums have no other bound."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_OF_A_SUM
    return int(text) if is_number else None


def saturated(value: int) -> int:
    """Return a number, or the int64 that is nearest to it."""
    return max(INT64_MIN, min(INT64_MAX, value))


def _signed(text: str) -> int | None:
    match = _SIGNED.fullmatch(text)
    value = None if match is None else _magnitude(match.group(2))
    return -value if value is not None and match is not None and match.group(1) == "-" else value


def _magnitude(digits: str) -> int | None:
    """Return a number of digits; its size is judged before it is read."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MOST_DIGITS else None
