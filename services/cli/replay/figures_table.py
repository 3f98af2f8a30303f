"""The figures of replays as tables: one replay by size and by queue, several side by side."""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from services.cli.answers import table
from services.cli.replay.figures import Figures
from services.cli.table import Column, Row

# Two-sided 95 % of Student's t, by degrees of freedom from 1 on; beyond them the normal's.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)  # fmt: skip
_NORMAL95 = 1.96
# What is compared: its name in the report, and how it is found among a replay's figures.
COMPARED: tuple[tuple[str, Callable[[Figures], Any]], ...] = (
    ("mean wait s", lambda found: found["all"].get("meanWaitSeconds")),
    ("gangs over 8 s", lambda found: found["bySize"].get("over 8", {}).get("meanWaitSeconds")),
    ("slowdown", lambda found: found["all"].get("boundedSlowdown")),
    ("utilisation %", lambda found: found["utilisationPercent"]),
    ("fragmentation %", lambda found: found["fragmentationPercent"]),
    ("evictions", lambda found: found["evictions"]),
    ("never started", lambda found: found["neverStarted"]),
)


def _figure(key: str) -> Callable[[Row], Any]:
    return lambda row: row.get(key, "")


def _columns(first: str) -> tuple[Column, ...]:
    return (
        Column(first, lambda row: row["name"]),
        Column("JOBS", _figure("jobs"), is_number=True),
        Column("MEAN WAIT S", _figure("meanWaitSeconds"), is_number=True),
        Column("MEDIAN", _figure("medianWaitSeconds"), drop=2, is_number=True),
        Column("95 %", _figure("p95WaitSeconds"), drop=1, is_number=True),
        Column("LONGEST", _figure("longestWaitSeconds"), drop=3, is_number=True),
        Column("SLOWDOWN", _figure("boundedSlowdown"), drop=1, is_number=True),
    )


def parts(found: Figures) -> list[Any]:
    """Return what is printed of one replay."""
    sizes = [{"name": name, **group} for name, group in found["bySize"].items()]
    queues = [{"name": name, **group} for name, group in found["byQueue"].items()]
    everything = {"name": "all", **found["all"]}
    head = (
        f"{found['trace']} on {found['nodes']} nodes, {found['capacity']} {found['unit']}: "
        f"{found['started']} of {found['jobs']} jobs started, {found['evictions']} evictions, "
        f"{found['cpuSeconds']} s of CPU"
    )
    use = (
        f"utilisation {found['utilisationPercent']} %, fragmentation "
        f"{found['fragmentationPercent']} %, waiting {found['meanWaiting']} on average, "
        f"{found['mostWaiting']} at most"
    )
    lines: list[Any] = [head, use]
    if found["refused"]:
        lines.append(f"{found['refused']} jobs were refused, the first: {found['refusedFor']}")
    size_name = f"SIZE IN {found['unit']}"
    lines += ["", table([*sizes, everything], _columns(size_name))]
    if len(queues) > 1:
        lines += ["", table(queues, _columns("QUEUE"))]
    return lines


def compared(groups: Sequence[Sequence[Figures]]) -> list[dict[str, Any]]:
    """Return a row a setup: means over its seeds with half the width of their 95 % interval."""
    rows: list[dict[str, Any]] = []
    for seeds in groups:
        row: dict[str, Any] = {"setup": seeds[0]["setup"], "seeds": len(seeds)}
        for name, find in COMPARED:
            values = [value for value in map(find, seeds) if value is not None]
            row[name] = _interval(values) if values else None
        rows.append(row)
    return rows


def _interval(values: Sequence[float]) -> dict[str, float]:
    if len(values) < 2:  # noqa: PLR2004 - one has no spread
        return {"mean": round(values[0], 3)}
    t95 = _T95[len(values) - 2] if len(values) - 2 < len(_T95) else _NORMAL95
    half = t95 * stdev(values) / sqrt(len(values))
    return {"mean": round(fmean(values), 3), "plusMinus": round(half, 3)}


def compared_parts(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return what is printed of several setups side by side."""
    columns = [Column("SETUP", lambda row: row["setup"])]
    columns += [
        Column(name.upper(), lambda row, name=name: _cell(row[name]), is_number=True)  # type: ignore[misc]
        for name, _ in COMPARED
    ]
    return [table(list(rows), columns)]


def _cell(interval: dict[str, float] | None) -> str:
    if interval is None:
        return "-"
    half = interval.get("plusMinus")
    return f"{interval['mean']:g}" + (f" ± {half:g}" if half is not None else "")
