"""Where a value stands on an axis, in percent of it, and at which values it is marked."""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, log10

TICKS = 5  # of an axis of amounts, about
_APART = 17  # percent of an axis that two marks with times beside them are apart at least
_DAY = 86_400
# Seconds between two marks of time: what users count by; from days on 1, 2 and 5 times ten.
_ROUND_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600,
                  43_200)  # fmt: skip
_LOG_SECONDS = (1, 10, 60, 600, 3600, 21_600, _DAY, 10 * _DAY, 100 * _DAY, 1000 * _DAY,
                10_000 * _DAY)  # fmt: skip
_UNITS = ((_DAY, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: where a value stands, from 0 to 100, and its marks with what is written there."""

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]


def amounts(most: float, unit: str = "") -> Axis:
    """Return an axis of amounts from 0 to a round number that is not below the most."""
    step = _round_step(most / TICKS) if most > 0 else 1.0
    top = step * max(1, -(-most // step))
    values = [step * at for at in range(round(top / step) + 1)]
    ticks = tuple((100 * value / top, f"{value:,.10g}{unit}") for value in values)
    return Axis(lambda value: 100 * value / top, ticks)


def times(seconds: float) -> Axis:
    """Return an axis of time, from 0 to the end."""
    least = seconds * _APART / 100
    step = next((s for s in _ROUND_SECONDS if s >= least), 0)
    step = step or round(_round_step(least / _DAY)) * _DAY or _DAY
    marks = range(0, int(seconds) + 1, step)
    ticks = tuple((100 * at / seconds, duration(at)) for at in marks)
    return Axis(lambda value: 100 * value / seconds, ticks)


def waits(most: float) -> Axis:
    """Return an axis of waits, which is logarithmic from a second on: 0 stands at its beginning."""
    top = log10(1 + max(most, 10))
    return _logarithmic(lambda value: 100 * log10(1 + value) / top, (0, *_LOG_SECONDS), duration)


def ratios(most: float) -> Axis:
    """Return a logarithmic axis of factors from 1 on."""
    top = log10(max(most, 10))
    powers = [10**at for at in range(floor(top) + 1)]
    return _logarithmic(lambda value: 100 * log10(max(value, 1)) / top, powers, _factor)


def _factor(value: int) -> str:
    return f"{value:,}x" if value > 1 else "1"


def _logarithmic(
    place: Callable[[float], float],
    values: "list[int] | tuple[int, ...]",
    written: Callable[[int], str],
) -> Axis:
    ticks: list[tuple[float, str]] = []
    for value in values:
        at = place(value)
        if at <= 100 and (not ticks or at - ticks[-1][0] >= _APART):  # noqa: PLR2004 - percent
            ticks.append((at, written(value)))
    return Axis(place, tuple(ticks))


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, … and of their parts in ten that is not below that."""
    power = 10.0 ** floor(log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least * (1 - 1e-9))


def duration(seconds: float) -> str:
    """Return a time in the largest unit of which it is a whole number, or else in two digits."""
    whole = round(seconds)
    if not whole:
        return "0"
    for size, unit in _UNITS:
        if whole % size == 0:
            return f"{whole // size:,} {unit}"
    return f"{whole:,} s"
