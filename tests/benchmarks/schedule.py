"""The schedule itself: ``make bench-schedule``, the rows of docs/schedule.md.

    make bench-schedule                              # every row, a quarter of an hour
    make bench-schedule ARGS="--only micro"          # rows whose name contains a word

Each row is a replay in virtual time (docs/replay.md): the same on any machine, but for its CPU.
Traces of others are read from the folder of ``--traces``; rows of one that is not there say so.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from services.cli.replay.command import measured
from services.cli.replay.formats import read
from services.cli.replay.setup import setup_of
from tests.property.rigid import Line, bounded_slowdown, drawn, repeated, starts_of
from tests.property.wide import micro_row


def _micro(settings: dict[str, str]) -> Callable[[Path], str]:
    def row(_: Path) -> str:
        rows = [micro_row(seed, settings) for seed in range(5)]
        waits = ", ".join("/".join(f"{wait:.0f}" for wait in found) for found, _ in rows)
        return (
            f"waits of 16/32 GPUs, s: {waits}; a queue loses {max(lost for _, lost in rows):.1f} %"
        )

    return row


def _philly(nodes: int, settings: dict[str, str]) -> Callable[[Path], str]:
    def row(traces: Path) -> str:
        file = traces / "philly" / "philly.csv.gz"
        if not file.exists():
            return f"{file} is not there"
        trace = read(file)
        found = measured(trace, setup_of(trace, "x", nodes=str(nodes), scheduler=settings))[1]
        sizes = found["bySize"]
        return (
            f"mean wait {found['all']['meanWaitSeconds']:,.0f} s; over 8 GPUs "
            f"{sizes['over 8']['meanWaitSeconds']:,.0f} s; of 8 "
            f"{sizes['8']['meanWaitSeconds']:,.0f} s; {found['cpuSeconds']:.0f} s of CPU"
        )

    return row


LOADS, LOGS, JOBS, PROCESSORS = (0.9, 1.1), range(3), 400, 32


def _prediction(make: Callable[[int, int, int, float], list[Line]]) -> Callable[[Path], str]:
    """Compare EASY by stated wall times with EASY by predictions alone, on logs drawn by seed."""

    def row(_: Path) -> str:
        found = []
        for load in LOADS:
            logs = [make(seed, JOBS, PROCESSORS, load) for seed in LOGS]
            stated, predicted = (
                [bounded_slowdown(log, starts_of(log, PROCESSORS, is_stated=way)) for log in logs]
                for way in (True, False)
            )
            better = sum(one > other for one, other in zip(stated, predicted, strict=True))
            found.append(
                f"load {load}: stated {fmean(stated):.1f}, predicted {fmean(predicted):.1f}, "
                f"better in {better} of {len(logs)}"
            )
        return f"average bounded slowdown; {'; '.join(found)}"

    return row


MUSTER = {"preset": "muster"}
ROWS: dict[str, Callable[[Path], str]] = {
    "micro, muster": _micro(MUSTER),
    "micro, cluster without a lane": _micro({"gangAdmission": "cluster"}),
    "log drawn at random, prediction": _prediction(drawn),
    "log of people who repeat, prediction": _prediction(repeated),
    "philly 75 nodes, muster": _philly(75, MUSTER),
    "philly 72 nodes, muster": _philly(72, MUSTER),
    "philly 75 nodes, muster, backfill": _philly(75, {**MUSTER, "backfill": "enabled"}),
    "philly 75 nodes, defaults": _philly(75, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--traces", type=Path, default=Path("../shared/data/traces"))
    options = parser.parse_args()
    table = Table("row", "figures", box=None)
    for name, row in ROWS.items():
        if not options.only or any(word in name for word in options.only):
            table.add_row(name, row(options.traces))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
