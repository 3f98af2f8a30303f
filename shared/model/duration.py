"""Durations as Go writes them: ``30s``, ``1m30s``, ``500ms``; queues.yaml's properties use them."""

import re

from shared.model.units import NANOS_PER_MILLI, NANOS_PER_SECOND

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": NANOS_PER_MILLI,
    "s": NANOS_PER_SECOND,
    "m": 60 * NANOS_PER_SECOND,
    "h": 3_600 * NANOS_PER_SECOND,
}
_LONGEST = 64


def parse_go_duration(text: str) -> int | None:
    """Return a positive or zero duration in nanoseconds, or None when the text is not one."""
    if text == "0":
        return 0
    parts = list(_PART.finditer(text)) if len(text) <= _LONGEST else []
    if not parts or "".join(part.group(0) for part in parts) != text:
        return None
    total = 0
    for part in parts:
        whole, _, fraction = part.group(1).partition(".")
        unit = _UNITS_NS[part.group(2)]
        total += int(whole or 0) * unit
        if fraction:
            total += int(fraction) * unit // 10 ** len(fraction)
    return total


def go_duration(nanoseconds: int) -> str:
    """Return a duration as Go prints it: ``30s``, ``1m30s``, ``500ms``, ``0s``."""
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
