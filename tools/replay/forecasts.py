"""Forecasts asked for in a replay, and whether they held.

Rule 1: of the jobs that wait after the moment of their submission every one so-many-th is asked
        about, with the question that ``muster when`` asks (``shared/messages/what_if.py``).
Rule 2: the error is how far the median that was told is from the start that came, as a share of
        the wait that came, which counts as LEAST_NS at least.
"""

from dataclasses import dataclass
from statistics import median
from typing import Any

from shared.model.units import seconds
from tools.replay.run import Forecasted

LEAST_NS = seconds(60)


@dataclass(frozen=True, slots=True)
class _Held:
    error: float
    is_in_time: bool


def forecast_figures(asked: list[Forecasted]) -> dict[str, Any]:
    """Return how many forecasts there were, how many told a start, and how they held."""
    told = [each for each in asked if each.start_ns]
    held = [_held(each) for each in told if each.run.started_ns >= 0]
    return {
        "asked": len(asked),
        "told": len(told),
        "toldPercent": _percent(len(told), len(asked)),
        "medianErrorPercent": round(100 * median(each.error for each in held), 1) if held else None,
        "inTimePercent": _percent(sum(each.is_in_time for each in held), len(held)),
    }


def forecast_line(found: dict[str, Any]) -> str:
    """Return it as one line."""
    return (
        f"forecasts: {found['told']} of {found['asked']} were told a start; median error "
        f"{found['medianErrorPercent']} % of the wait; {found['inTimePercent']} % started by the "
        "time told for nine of ten"
    )


def _held(each: Forecasted) -> _Held:
    wait_ns = max(each.run.started_ns - each.asked_ns, LEAST_NS)
    error_ns = abs(each.start_ns - each.run.started_ns)
    return _Held(error_ns / wait_ns, each.run.started_ns <= each.latest_ns)


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None
