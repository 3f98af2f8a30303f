"""The figures of replays as tables: one replay by size and by queue, several side by side."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len

from services.cli.answers import table
from services.cli.table import GAP, Column, Row
from tools.replay.comparison import GROUPS, OF_USE, OF_WAITS, text_of
from tools.replay.figures import Figures, left_out
from tools.replay.forecasts import forecast_line

MAX_WIDTH = 100  # characters of a line in a table of setups; another table follows


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
    if found["evictions"]:
        lines.append(f"evictions lost {found['lostPercent']} % of what ran")
    if found["gangsOfOneRack"]:
        lines.append(
            f"{found['overSeveralRacks']:,} of {found['gangsOfOneRack']:,} gangs that one rack "
            "could hold were in several"
        )
    if found["timedOut"]:
        lines.append(f"the placeholders of {found['timedOut']:,} gangs timed out")
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
    lines: list[Any] = [*_tables_of("SETUP", rows)]
    differences = [
        {"setup": row["setup"], **row["difference"]} for row in rows if "difference" in row
    ]
    if differences:
        lines += ["", *_tables_of(f"MORE THAN {rows[0]['setup']}", differences)]
    firsts = [seeds[0] for seeds in replays]
    left = [f"{found['setup']}: {text}" for found in firsts for text in left_out(found)]
    lines += ["", *left] if left else []
    for groups, head in zip(GROUPS, ("MEAN WAIT S BY SIZE", "MEAN WAIT S BY QUEUE"), strict=True):
        names = list({name: None for row in rows for name in row[groups]})
        waits = [{"name": name, "of": [row[groups].get(name) for row in rows]} for name in names]
        by_setup = [Column(row["setup"], _of(at), is_number=True) for at, row in enumerate(rows)]
        if len(names) > 1:
            name = Column(head, lambda row: row["name"])
            lines += [part for few in _few(waits, name, by_setup) for part in ("", few)]
    return lines


def _tables_of(head: str, rows: Sequence[Row]) -> list[Any]:
    """Return what is compared as two tables: the waits, and how the cluster was used."""
    first = Column(head, lambda row: row["setup"])
    tables = [
        table(
            list(rows),
            [first, *(Column(name.upper(), _interval_in(name), is_number=True) for name, _ in few)],
        )
        for few in (OF_WAITS, OF_USE)
    ]
    return [tables[0], "", tables[1]]


def _few(rows: list[Row], first: Column, columns: Sequence[Column]) -> Iterator[Any]:
    """Yield tables of as many of the columns as MAX_WIDTH has room for, at least one in each."""

    def width(column: Column) -> int:
        return GAP + max(cell_len(text) for text in (column.name, *map(_plain(column), rows)))

    chosen: list[Column] = []
    room = MAX_WIDTH - width(first) + GAP
    left = room
    for column in columns:
        if chosen and width(column) > left:
            yield table(rows, [first, *chosen])
            chosen, left = [], room
        chosen.append(column)
        left -= width(column)
    yield table(rows, [first, *chosen])


def _plain(column: Column) -> Callable[[Row], str]:
    return lambda row: column.cell(row).plain


def _interval_in(key: str) -> Callable[[Row], str]:
    return lambda row: text_of(row[key])


def _of(at: int) -> Callable[[Row], str]:
    return lambda row: text_of(row["of"][at])
