"""Setups side by side: what is compared, as means over seeds with their 95 % intervals.

Rule 1: an interval is mean ± t * s / sqrt(n), with s the standard deviation of the n seeds' figures
        and t the two-sided 95 % point of Student's t at n - 1 degrees of freedom (NIST/SEMATECH
        e-Handbook of Statistical Methods, 1.3.5.2). One seed has no interval.
Rule 2: setups see the same submissions seed by seed. So a difference is that of each seed, and its
        interval is that of those differences (the paired t; ibid. 1.3.5.3): it is told apart from
        chance although both of the figures move with the seed.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from tools.replay.figures import WIDE, Figures

# Two-sided 95 % points of Student's t, by degrees of freedom from 1 on (ibid. 1.3.6.7.2).
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)  # fmt: skip
_NORMAL95 = 1.959964
Find = Callable[[Figures], Any]
# What is compared: its name in the report, and how it is found among a replay's figures.
OF_WAITS: tuple[tuple[str, Find], ...] = (
    ("mean wait s", lambda found: found["all"].get("meanWaitSeconds")),
    (f"mean wait s of sizes over {WIDE}", lambda found: _group(found, "bySize", f"over {WIDE}")),
    ("slowdown", lambda found: found["all"].get("boundedSlowdown")),
)
OF_USE: tuple[tuple[str, Find], ...] = (
    ("utilisation %", lambda found: found["utilisationPercent"]),
    ("fragmentation %", lambda found: found["fragmentationPercent"]),
    ("evictions", lambda found: found["evictions"]),
    ("never started", lambda found: found["neverStarted"]),
)
COMPARED = (*OF_WAITS, *OF_USE)
GROUPS = ("bySize", "byQueue")
Interval = dict[str, float]


def _group(found: Figures, groups: str, name: str) -> Any:
    return found[groups].get(name, {}).get("meanWaitSeconds")


def compared(replays: Sequence[Sequence[Figures]]) -> list[dict[str, Any]]:
    """Return a row a setup: each figure over its seeds, mean waits by size and by queue.

    ``difference`` is what every setup but the first has more than that.
    """
    first = replays[0]
    rows: list[dict[str, Any]] = []
    for at, seeds in enumerate(replays):
        row: dict[str, Any] = {"setup": seeds[0]["setup"], "seeds": len(seeds)}
        row |= {name: over_seeds(seeds, find) for name, find in COMPARED}
        for groups in GROUPS:
            row[groups] = {
                name: over_seeds(seeds, lambda found, g=groups, n=name: _group(found, g, n))  # type: ignore[misc]
                for name in names_of(seeds, groups)
            }
        if at:
            row["difference"] = {name: _difference(first, seeds, find) for name, find in COMPARED}
        rows.append(row)
    return rows


def names_of(seeds: Sequence[Figures], groups: str) -> list[str]:
    """Return the sizes, or the queues, that any of some replays has, in the order of the report."""
    return list({name: None for found in seeds for name in found[groups]})


def over_seeds(seeds: Sequence[Figures], find: Find) -> Interval | None:
    """Return a figure's mean over the seeds that have it, and its interval; None: none has it."""
    return interval([value for value in map(find, seeds) if value is not None])


def _difference(first: Sequence[Figures], seeds: Sequence[Figures], find: Find) -> Interval | None:
    pairs = [(find(one), find(other)) for one, other in zip(first, seeds, strict=True)]
    return interval([b - a for a, b in pairs if a is not None and b is not None])


def interval(values: Sequence[float]) -> Interval | None:
    """Return the mean of values, and half the width of its interval where there are several."""
    if not values:
        return None
    mean = {"mean": round(fmean(values), 3)}
    if len(values) == 1:
        return mean
    half = t95(len(values) - 1) * stdev(values) / sqrt(len(values))
    return {**mean, "plusMinus": round(half, 3)}


def t95(freedom: int) -> float:
    """Return Student's two-sided 95 % point; beyond the table as a series about the normal's.

    The series is Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5; its error is
    below 0.0005 there.
    """
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = _NORMAL95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def text_of(found: Interval | None) -> str:
    """Return an interval as users write it."""
    if found is None:
        return "-"
    half = found.get("plusMinus")
    return f"{found['mean']:,.10g}" + (f" ± {half:,.10g}" if half is not None else "")
