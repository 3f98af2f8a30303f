"""Durations in Go's format (``30s``, ``1m30s``, ``500ms``), as in queues.yaml's properties."""

import re

from shared.model.numbers import INT64_MAX
from shared.model.units import NANOS_PER_MILLI, NANOS_PER_SECOND

_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_TEXT = re.compile(rf"[+-]?(?:{_PART.pattern})+")
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": NANOS_PER_MILLI,
    "s": NANOS_PER_SECOND,
    "m": 60 * NANOS_PER_SECOND,
    "h": 3_600 * NANOS_PER_SECOND,
}
_LONGEST = 1_000
_MOST_DIGITS = 19  # of 2^63; digits of a fraction beyond it are left out, as Go does


def parse_go_duration(text: str) -> int | None:
    """Parse a duration into nanoseconds; return None for an invalid one.

    Negative durations are invalid, and so are those beyond 2^63 ns, some 292 years.
    """
    sign, rest = text[:1], text.lstrip("+-")
    if len(text) > _LONGEST or len(text) - len(rest) > 1:
        return None
    if rest == "0":
        return 0
    if not _TEXT.fullmatch(rest):
        return None
    total = sum(_part_ns(*part) for part in _PART.findall(rest))
    is_one = total <= INT64_MAX and (sign != "-" or not total)
    return total if is_one else None


def _part_ns(whole: str, fraction: str, unit: str) -> int:
    """Return a number with its unit in nanoseconds; more than INT64_MAX if it is invalid."""
    digits = whole.lstrip("0")
    if len(digits) > _MOST_DIGITS or not whole + fraction:
        return INT64_MAX + 1
    part = fraction[:_MOST_DIGITS]
    unit_ns, scale = _UNITS_NS[unit], int("1" + "0" * len(part))
    return int(digits or 0) * unit_ns + int(part or 0) * unit_ns // scale


def go_duration(nanoseconds: int) -> str:
    """Format a duration as Go does: ``30s``, ``1m30s``, ``500ms``, ``0s``."""
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < NANOS_PER_SECOND:
        for unit in ("ms", "µs", "ns"):
            if nanoseconds >= _UNITS_NS[unit]:
                return _decimal(nanoseconds, _UNITS_NS[unit]) + unit
    hours, rest = divmod(nanoseconds, _UNITS_NS["h"])
    minutes, rest = divmod(rest, _UNITS_NS["m"])
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return text + _decimal(rest, NANOS_PER_SECOND) + "s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
