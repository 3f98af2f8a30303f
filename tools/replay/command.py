"""`muster replay`: a trace in, a table, JSON and a page out."""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from services.cli.answers import Report, Shape, show
from services.cli.exits import Exit, status_of
from services.cli.options import Output
from services.cli.said import complain
from services.cli.snapshot_file import SnapshotError, read_snapshot
from services.shim_adapter.queue_file import QueueFile
from shared.messages.interface import GangSchedulingStyle
from tools.replay.comparison import compared
from tools.replay.curves import curves_of
from tools.replay.figures import Figures, figures_of
from tools.replay.figures_table import compared_parts, parts
from tools.replay.formats import read
from tools.replay.jobs import Trace, TraceError
from tools.replay.jobs_out import write_jobs
from tools.replay.page.page import Replayed, page_of
from tools.replay.run import Outcome, Replay, Watch
from tools.replay.setup import Setup, read_queues, read_setup, setup_of
from tools.replay.too_large import warning_of
from tools.replay.tune import TRIED, by_goal, tuned_parts, tuned_value

MAX_SETUPS = 10  # setups of one `muster replay --compare`; more are an error
_GC_THRESHOLD = 100_000  # objects; a replay makes few circles and keeps much


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for, as it was typed."""

    trace: Path
    nodes: str = ""
    capacity: str = ""
    queues: Path | None = None
    scheduler: Mapping[str, str] = field(default_factory=dict)
    compare: tuple[Path, ...] = ()
    jobs: int = 0  # 0: all
    seeds: int = 1
    spread_seconds: int = 3600
    html: Path | None = None
    snapshot: Path | None = None  # what is not stated else is its
    jobs_out: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    forecasts: int = 0  # every so-many-th job that waits is asked about; 0: none
    tune: str = ""  # the goal by which settings are chosen
    is_allocated: bool = False  # jobs of SWF have the processors that they got
    placeholder_timeout_s: int = 0
    gang_style: GangSchedulingStyle = GangSchedulingStyle.SOFT
    preemption_cost_s: int | None = None  # None: all that was run is lost
    resample: bool = False  # seeds are other months, drawn from the trace

    def of_seed(self, trace: Trace, seed: int) -> Trace:
        """Return what a seed makes of a trace. Raises TraceError."""
        if self.resample:
            return trace.resampled(seed)
        return trace.seeded(seed, self.spread_seconds)


def replay(wanted: Wanted, output: Output) -> int:
    """Replay a trace on one setup, or on several; return the exit status."""
    try:
        trace = read(wanted.trace, wanted.columns, is_allocated=wanted.is_allocated)
        trace = trace.first(wanted.jobs) if wanted.jobs else trace
        setups = _setups(trace, wanted)
        for setup in setups:
            for warning in setup.warnings:
                complain(f"muster: {setup.name}: scheduler: warning: {warning}")
            if large := warning_of(trace, setup.nodes):
                complain(f"muster: {setup.name}: warning: {large}")
        _judge_files(wanted, len(setups))
        if wanted.resample:
            trace.resampled(1)  # whether others can be drawn from it
        replays = [_replayed(trace, setup, wanted) for setup in setups]
        seeds = [replayed.seeds for replayed in replays]
        show(lambda: _report(seeds, wanted.tune), Shape(output))
        if wanted.html is not None:
            spread = None if wanted.resample else wanted.spread_seconds
            _write_page(wanted.html, page_of(replays, spread))
    except TraceError as error:
        complain(f"muster: {error}")
        return status_of(error, Exit.USAGE)
    return Exit.DONE


def _setups(trace: Trace, wanted: Wanted) -> list[Setup]:
    """Return what is replayed on. Raises TraceError."""
    files = wanted.compare
    if len(files) > MAX_SETUPS:
        raise TraceError(f"--compare: at most {MAX_SETUPS} setups, found {len(files)}")
    if len(set(files)) < len(files):
        raise TraceError("--compare: a setup is named twice")
    if wanted.tune and files:
        raise TraceError("--tune tries setups of its own: --compare has others")
    if files:
        stems = [file.stem for file in files]
        return [
            read_setup(trace, file, file.stem if stems.count(file.stem) == 1 else str(file))
            for file in files
        ]
    taken = _taken(wanted.snapshot)
    own_nodes = str(wanted.snapshot) if wanted.snapshot is not None else ""
    tried: Mapping[str, Mapping[str, str]] = TRIED if wanted.tune else {"setup": {}}
    return [
        setup_of(
            trace,
            name,
            nodes=wanted.nodes or own_nodes,
            capacity=wanted.capacity,
            queues=read_queues(wanted.queues) if wanted.queues is not None else taken.text,
            scheduler={**taken.settings, **settings, **wanted.scheduler},
            placeholder_timeout_s=wanted.placeholder_timeout_s,
            gang_style=wanted.gang_style,
            preemption_cost_s=wanted.preemption_cost_s,
        )
        for name, settings in tried.items()
    ]


def _taken(file: Path | None) -> QueueFile:
    """Return the queues and settings of a snapshot, none without one. Raises TraceError."""
    try:
        return QueueFile("") if file is None else read_snapshot(file).config
    except OSError as error:
        raise TraceError(f"--from {file}: {error.strerror}") from error
    except SnapshotError as error:
        raise TraceError(f"--from {error}") from error


def _replayed(trace: Trace, setup: Setup, wanted: Wanted) -> Replayed:
    """Replay every seed; what was drawn from the first is kept, and of the others the figures."""
    outcome, figures = measured(trace, setup, forecasts=wanted.forecasts)
    if wanted.jobs_out is not None:
        write_jobs(wanted.jobs_out, outcome)
    curves = curves_of(outcome)
    del outcome  # all its jobs
    others = [
        measured(wanted.of_seed(trace, seed), setup, seed)[1] for seed in range(1, wanted.seeds)
    ]
    return Replayed(setup, [figures, *others], curves)


def _judge_files(wanted: Wanted, setups: int) -> None:
    """Say before a replay, and not after it, where no file can be. Raises TraceError."""
    if wanted.jobs_out is not None and setups > 1:
        raise TraceError("--jobs-out is of one setup: --compare has several")
    read = (wanted.trace, *wanted.compare, *((wanted.queues,) if wanted.queues else ()))
    files = {"--html": wanted.html, "--jobs-out": wanted.jobs_out}
    for option, file in files.items():
        if file is not None:
            _judge_file(f"{option} {file}", file, read)
    if wanted.html is not None and wanted.html == wanted.jobs_out:
        raise TraceError(f"--html and --jobs-out are both {wanted.html}")


def _judge_file(what: str, file: Path, read: Iterable[Path]) -> None:
    try:
        can_be = file.parent.is_dir() and not file.is_dir()
        if file.exists() and any(file.samefile(one) for one in read):
            raise TraceError(f"{what}: that is read here: another file was expected")
    except OSError as error:
        raise TraceError(f"{what}: {error.strerror}") from error
    if not can_be:
        raise TraceError(f"{what}: a file in a folder that is there was expected")


def _write_page(file: Path, page: bytes) -> None:
    try:
        file.write_bytes(page)
    except OSError as error:
        raise TraceError(f"--html {file}: {error.strerror}") from error


def _report(groups: Sequence[Sequence[Figures]], tune: str) -> Report:
    """Return one replay in full, or several side by side, by a goal where one is named."""
    if tune:
        found = by_goal(groups, tune)
        names = [seeds[0]["setup"] for seeds in found]
        return Report(tuned_value(found, tune), tuned_parts(found, tune), names)
    names = [seeds[0]["setup"] for seeds in groups]
    if len(groups) == len(groups[0]) == 1:
        return Report(groups[0][0], parts(groups[0][0]), names)
    rows = compared(groups)
    value = {"compared": rows, "replays": [found for seeds in groups for found in seeds]}
    return Report(value, compared_parts(groups, rows), names)


def measured(
    trace: Trace, setup: Setup, seed: int = 0, forecasts: int = 0
) -> tuple[Outcome, Figures]:
    """Replay once, with a bar for users who watch; return what became of it and the figures."""
    gc.set_threshold(_GC_THRESHOLD)
    with _bar(f"{setup.name}, seed {seed}", len(trace.jobs)) as watch:
        started = time.process_time()
        outcome = Replay(trace, setup, watch, ask_every=forecasts).run()
        return outcome, {"seed": seed, **figures_of(outcome, time.process_time() - started)}


@contextmanager
def _bar(name: str, jobs: int) -> Iterator[Watch]:
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    ) as progress:  # fmt: skip
        task = progress.add_task(name, total=jobs)
        yield lambda ended: progress.advance(task, ended)
