"""The figures of replays as tables: one replay by size and by queue, several side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from services.cli.answers import table
from services.cli.table import Column, Row
from tools.replay.comparison import COMPARED, GROUPS, text_of
from tools.replay.figures import Figures, left_out
from tools.replay.forecasts import forecast_line


def _figure(key: str) -> Callable[[Row], Any]:
    return lambda row: row.get(key, "")


def _columns(first: str) -> tuple[Column, ...]:
    return (
        Column(first, lambda row: row["name"]),
        Column("JOBS", _figure("jobs"), is_number=True),
        Column("MEAN WAIT S", _figure("meanWaitSeconds"), is_number=True),
        Column("MEDIAN", _figure("medianWaitSeconds"), drop=2, is_number=True),
        Column("95 %", _figure("p95WaitSeconds"), drop=1, is_number=True),
        Column("99 %", _figure("p99WaitSeconds"), drop=4, is_number=True),
        Column("LONGEST", _figure("longestWaitSeconds"), drop=3, is_number=True),
        Column("SLOWDOWN", _figure("boundedSlowdown"), drop=1, is_number=True),
    )


def parts(found: Figures) -> list[Any]:
    """Return what is printed of one replay."""
    sizes = [{"name": name, **group} for name, group in found["bySize"].items()]
    shares = found["utilisationByQueue"]
    queues = [
        {"name": name, "used": shares.get(name, 0), **group}
        for name, group in found["byQueue"].items()
    ]
    everything = {"name": "all", **found["all"]}
    head = (
        f"{found['trace']} on {found['nodes']} nodes, {found['capacity']} {found['unit']}: "
        f"{found['started']} of {found['jobs']} jobs started, {found['evictions']} evictions, "
        f"{found['cpuSeconds']} s of CPU"
    )
    use = (
        f"utilisation {found['utilisationPercent']} %, fragmentation "
        f"{found['fragmentationPercent']} %, waiting {found['meanWaiting']} on average, "
        f"{found['mostWaiting']} at most, held idle {found['heldIdlePercent']} %"
    )
    fair = (
        f"Jain's index of mean slowdowns: {found['jainOfQueues']} of queues, "
        f"{found['jainOfUsers']} of users"
    )
    lines: list[Any] = [head, use, fair]
    if found["forecasts"]["asked"]:
        lines.append(forecast_line(found["forecasts"]))
    lines += left_out(found)
    size_name = f"SIZE IN {found['unit']}"
    lines += ["", table([*sizes, everything], _columns(size_name))]
    if len(queues) > 1:
        used = Column("USED %", _figure("used"), drop=5, is_number=True)
        lines += ["", table(queues, (*_columns("QUEUE"), used))]
    return lines


def compared_parts(
    replays: Sequence[Sequence[Figures]], rows: Sequence[dict[str, Any]]
) -> list[Any]:
    """Return what is printed of several setups side by side: all, by size, by queue.

    What did not run, and why, is told of each setup's first seed.
    """
    columns = [Column(name.upper(), _interval_in(name), is_number=True) for name, _ in COMPARED]
    setups = [Column("SETUP", lambda row: row["setup"]), *columns]
    lines: list[Any] = [table(list(rows), setups)]
    differences = [
        {"setup": row["setup"], **row["difference"]} for row in rows if "difference" in row
    ]
    if differences:
        name = f"MORE THAN {rows[0]['setup']}"
        lines += ["", table(differences, [Column(name, lambda row: row["setup"]), *columns])]
    firsts = [seeds[0] for seeds in replays]
    left = [f"{found['setup']}: {text}" for found in firsts for text in left_out(found)]
    lines += ["", *left] if left else []
    for groups, head in zip(GROUPS, ("MEAN WAIT S BY SIZE", "MEAN WAIT S BY QUEUE"), strict=True):
        names = list({name: None for row in rows for name in row[groups]})
        waits = [{"name": name, "of": [row[groups].get(name) for row in rows]} for name in names]
        by_setup = [Column(row["setup"], _of(at), is_number=True) for at, row in enumerate(rows)]
        if len(names) > 1:
            lines += ["", table(waits, [Column(head, lambda row: row["name"]), *by_setup])]
    return lines


def _interval_in(key: str) -> Callable[[Row], str]:
    return lambda row: text_of(row[key])


def _of(at: int) -> Callable[[Row], str]:
    return lambda row: text_of(row["of"][at])
