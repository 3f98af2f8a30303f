"""A trace as a waterfall: a row a step, and on one scale of time when it waited and was handled.

Pauses in which nothing happened are longer than all that did: they are folded, so that what is
drawn can be distinguished.
"""

from collections.abc import Callable
from itertools import pairwise

from services.cli.table import Column, Row
from shared.model.units import NANOS_PER_MILLI, NANOS_PER_SECOND

BAR = 14
WIDEST = 110  # columns of a terminal that a trace takes; what was decided is folded
_WAITED, _HANDLED = "░", "█"
_MOST_PAUSE = 4  # of what happened, together, at most a pause is a quarter
_SHORT = {"shim_adapter": "shim"}  # where there is little room
_A_SECOND_MS = 1_000
_Span = tuple[int, int]


def waterfall_columns(entries: list[Row]) -> tuple[Column, ...]:
    """Return the columns of a trace, a step a row."""
    start_ns = entries[0]["time"] if entries else 0
    bars = _bars(entries)
    reasons = {entry["messageID"]: entry["reason"] for entry in entries}
    return (
        Column("AT", lambda e: e["time"], lambda e: _after(e, start_ns), is_number=True),
        Column("WATERFALL", lambda e: e["time"], lambda e: bars[e["spanID"]], drop=2),
        Column("MESSAGE", lambda e: e["message"]),
        Column("FROM", lambda e: e["from"], lambda e: _short(e["from"])),
        Column("TO", lambda e: e["to"], lambda e: _short(e["to"])),
        _took("QUEUED", "queuedMs"),
        _took("HANDLED", "handledMs"),
        Column("DECISION", lambda e: e["decision"] or e["contents"], wraps=40, is_below=True),
        Column("REASON", lambda e: _reason(e, reasons), wraps=40, is_below=True),
    )


def _short(service: str) -> str:
    return _SHORT.get(service, service)


def _took(name: str, key: str) -> Column:
    return Column(name, lambda e: e[key], lambda e: _duration(e[key]), is_number=True)


def _duration(took_ms: float) -> str:
    return f"{took_ms:.1f}ms" if took_ms < _A_SECOND_MS else f"{took_ms / _A_SECOND_MS:.1f}s"


def _after(entry: Row, start_ns: int) -> str:
    return f"+{(entry['time'] - start_ns) / NANOS_PER_SECOND:.3f}s"


def _reason(entry: Row, reasons: dict[str, str]) -> str:
    """Return why, unless what caused the step has said so already."""
    reason: str = entry["reason"]
    return "" if reasons.get(entry["causeID"]) == reason else reason


def _bars(entries: list[Row]) -> dict[str, str]:
    """Return each step's bar, by its span."""
    spans = {entry["spanID"]: _span(entry) for entry in entries}
    place = _scale(sorted(spans.values()))
    bars: dict[str, str] = {}
    for entry in entries:
        begun_ns, ended_ns = spans[entry["spanID"]]
        first, middle, last = place(begun_ns), place(entry["time"]), place(ended_ns)
        handled = max(1, last - middle)
        middle = min(middle, BAR - handled)
        waited = middle - min(first, middle)
        bars[entry["spanID"]] = " " * (middle - waited) + _WAITED * waited + _HANDLED * handled
    return bars


def _span(entry: Row) -> _Span:
    """Return when a step was published and when it had been handled."""
    queued_ns = round(entry["queuedMs"] * NANOS_PER_MILLI)
    return entry["time"] - queued_ns, entry["time"] + round(entry["handledMs"] * NANOS_PER_MILLI)


def _scale(spans: list[_Span]) -> Callable[[int], int]:
    """Return what turns a time into a place from 0 to BAR, with the pauses between folded."""
    busy: list[_Span] = []
    for begun_ns, ended_ns in spans:
        if busy and begun_ns <= busy[-1][1]:
            busy[-1] = (busy[-1][0], max(busy[-1][1], ended_ns))
        else:
            busy.append((begun_ns, ended_ns))
    happened_ns = sum(ended_ns - begun_ns for begun_ns, ended_ns in busy)
    most_ns = max(1, happened_ns // max(_MOST_PAUSE, len(busy)))
    starts = [0]
    for (begun_ns, ended_ns), (next_ns, _) in pairwise(busy):
        starts.append(starts[-1] + ended_ns - begun_ns + min(most_ns, next_ns - ended_ns))
    whole_ns = max(1, starts[-1] + busy[-1][1] - busy[-1][0]) if busy else 1

    def place(time_ns: int) -> int:
        at = max((n for n, (begun_ns, _) in enumerate(busy) if begun_ns <= time_ns), default=0)
        since_ns = min(time_ns, busy[at][1]) - busy[at][0]
        return BAR * (starts[at] + since_ns) // whole_ns

    return place
