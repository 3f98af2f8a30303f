"""Numbers as Go reads them from text: queues.yaml's properties and tags use them.

Decimal digits, with no blanks, dots or underscores; leading zeros mean nothing. What is not such a
number, or is out of range, is None: what that means is the reader's to say (contract section 1.5).
"""

import re

_SIGNED = re.compile(r"([+-]?)([0-9]+)")
_MOST_DIGITS = 20  # of 2^64; a longer text is out of every range, whatever its length


def parse_int32(text: str) -> int | None:
    """Return a number with or without a sign, as strconv.ParseInt(text, 10, 32) does, or None."""
    match = _SIGNED.fullmatch(text)
    value = None if match is None else _magnitude(match.group(2))
    if match is None or value is None:
        return None
    value = -value if match.group(1) == "-" else value
    return value if -(2**31) <= value < 2**31 else None


def parse_uint64(text: str) -> int | None:
    """Return a number without a sign, as strconv.ParseUint(text, 10, 64) does, or None."""
    is_number = text.isascii() and text.isdecimal()
    value = _magnitude(text) if is_number else None
    return value if value is not None and value < 2**64 else None


def _magnitude(digits: str) -> int | None:
    """Return a number of digits; its size is judged before it is read."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MOST_DIGITS else None
