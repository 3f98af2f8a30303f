"""`muster replay`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from services.cli.options import Output, OutputOption


class Goal(StrEnum):
    """What `--tune` chooses settings by."""

    MEAN = "mean"
    P95 = "p95"
    WIDE = "wide"
    FAIRNESS = "fairness"


class Resample(StrEnum):
    """What `--resample` draws of a log with replacement."""

    WEEKS = "weeks"


class Processors(StrEnum):
    """Which processors a job of the Standard Workload Format has."""

    REQUESTED = "requested"
    ALLOCATED = "allocated"


class Style(StrEnum):
    """What a gang does whose placeholders time out."""

    SOFT = "Soft"
    HARD = "Hard"


_YEAR = 366 * 86_400
app = typer.Typer()
From = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Nodes, queues, settings of a snapshot."),
]
Nodes = Annotated[
    str, typer.Option(metavar="N|FILE", help="Number or file of nodes; default: the trace's.")
]
Capacity = Annotated[
    str, typer.Option(metavar="LIST", help="Capacity of each node: cpu=64,nvidia.com/gpu=8.")
]
Scheduler = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A scheduler setting; may be repeated."),
]
Compare = Annotated[Path | None, typer.Option(metavar="SETUP", help="Files of setups to compare.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with charts.")]
Spread = Annotated[
    int,
    typer.Option(metavar="SECONDS", help="How far --seeds moves a submission.", min=0, max=_YEAR),
]
Queues = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A queues.yaml; else a fifo leaf for each queue."),
]
Seeds = Annotated[
    int,
    typer.Option(
        metavar="N", help="Number of runs; from the second on, submissions move.", min=1, max=1000
    ),
]
Resampled = Annotated[
    Resample | None,
    typer.Option(help="Make the other seeds other months, drawn by week."),
]
Tune = Annotated[
    Goal | None,
    typer.Option(help="Try presets and settings; rank them by this goal."),
]
Columns = Annotated[
    str, typer.Option(metavar="OURS=THEIRS,...", help="Map columns of another table.")
]
Forecasts = Annotated[
    int, typer.Option(metavar="N", help="Forecast the start of every Nth waiting job.", min=0)
]
JobsOut = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write one row per job; as SWF if it ends in .swf."),
]

Counted = Annotated[
    Processors, typer.Option("--processors", help="SWF: use requested or allocated processors.")
]
Timeout = Annotated[
    int,
    typer.Option(
        metavar="SECONDS", help="After this time a gang gives up; 0: never.", min=0, max=_YEAR
    ),
]
Cost = Annotated[
    int,
    typer.Option(
        metavar="SECONDS", help="Cost of a preemption; -1: all that the job ran.", min=-1, max=3_600
    ),
]
GangStyle = Annotated[Style, typer.Option(help="After its timeout: its pods one by one, or none.")]


def _settings(pairs: list[str] | None) -> dict[str, str]:
    """Return NAME=VALUE as a map, or end with a usage error."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--scheduler {pair}: NAME=VALUE was expected")
        if name in found:
            raise typer.BadParameter(f"--scheduler {pair}: {name} is named twice")
        found[name] = value
    return found


def _columns(text: str) -> dict[str, str]:
    """Return OURS=THEIRS,... as a map, or end with a usage error."""
    found: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs) or ours in found:
            raise typer.BadParameter(f"--columns {pair}: OURS=THEIRS,... was expected, each once")
        found[ours] = theirs
    return found


@app.command()
def replay(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="The trace; docs/replay.md has the formats.")
    ],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[SETUP]...", help="Further setups to compare.")
    ] = None,
    nodes: Nodes = "",
    capacity: Capacity = "",
    queues: Queues = None,
    scheduler: Scheduler = None,
    compare: Compare = None,
    tune: Tune = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Show at most so many rows; 0: all.", min=0)
    ] = 0,
    seeds: Seeds = 1,
    spread: Spread = 3600,
    resample: Resampled = None,
    html: Html = None,
    snapshot: From = None,
    columns: Columns = "",
    jobs_out: JobsOut = None,
    forecasts: Forecasts = 0,
    processors: Counted = Processors.REQUESTED,
    placeholder_timeout: Timeout = 0,
    gang_style: GangStyle = Style.SOFT,
    preemption_cost: Cost = -1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how long the jobs of a log would wait."""
    from shared.messages.interface import GangSchedulingStyle
    from tools.replay.command import Wanted
    from tools.replay.command import replay as run
    from tools.replay.setup import cost_of

    if more and compare is None:
        raise typer.BadParameter("one trace is replayed; setups go behind --compare")
    if resample and seeds == 1:
        raise typer.BadParameter("--resample is about seeds: --seeds 2 or more was expected")
    others = () if compare is None else (compare, *(more or ()))
    wanted = Wanted(
        trace, nodes, capacity, queues, _settings(scheduler), others, jobs, seeds, spread, html,
        snapshot, jobs_out, _columns(columns), forecasts, tune.value if tune is not None else "",
        processors is Processors.ALLOCATED, placeholder_timeout, GangSchedulingStyle(gang_style),
        cost_of(preemption_cost), resample is not None,
    )  # fmt: skip
    raise typer.Exit(run(wanted, output))
