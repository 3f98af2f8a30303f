"""`muster simulate`: runs seeds, prints a line for each failure, and a table at the end.

The first failing seed ends it: its faults are reduced to as few as possible, and the command that
replays it is printed. With several jobs every seed runs in one of as many processes; results are
taken in the order of the seeds, so that the output is the same.
"""

import multiprocessing
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count, islice

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.cli.exits import Exit
from shared.model.units import NANOS_PER_SECOND
from tools.simulate.guards import without_guard
from tools.simulate.run import Outcome, run
from tools.simulate.shrink import shrunk

_MOST_SHOWN = 10  # sentences of a failed run; the others are omitted
_SECONDS_A_MINUTE = 60
_LEVEL = 50  # critical: what goes wrong here goes wrong on purpose
_AHEAD = 4  # seeds handed to each job before the first of them is told
_FOR_GOOD = ExitStack()
_Outcomes = Generator[Outcome, None, None]


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds to run: ``runs`` from ``first`` on (None: no end), ``jobs`` at a time.

    Each has ``partitions`` partitions, or as many as it draws.
    """

    first: int
    runs: int | None
    jobs: int = 1
    partitions: int | None = None

    def __iter__(self) -> Iterator[int]:
        every = count(self.first)
        return every if self.runs is None else islice(every, self.runs)


@dataclass(slots=True)
class Totals:
    """The sums over runs."""

    runs: int = 0
    messages: int = 0
    happened: Counter[str] = field(default_factory=Counter)  # faults by kind
    spent_ns: int = 0  # of CPU

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        self.runs += 1
        self.messages += outcome.published
        self.happened += outcome.happened
        self.spent_ns += outcome.spent_ns

    def print(self) -> None:
        """Print them."""
        rate = self.runs * NANOS_PER_SECOND / self.spent_ns if self.spent_ns else 0
        print(
            f"{self.runs} runs, {self.messages} messages, {self.happened.total()} faults, "
            f"{rate:.1f} runs a second of CPU"
        )
        for kind, happened in sorted(self.happened.items()):
            print(f"  {kind:<18} {happened}")


def simulate_seeds(
    seeds: Seeds, minutes: float | None, only: set[int] | None, guard: str | None
) -> int:
    """Run seeds until one fails, or all have run; return the exit status."""
    totals = Totals()
    outcomes = _with_a_bar(_outcomes(seeds, only, guard), seeds, minutes)
    with ExitStack() as taken_out, closing(outcomes):
        _begin(guard, taken_out)
        for outcome in outcomes:
            totals.add(outcome)
            if not outcome.holds:
                _print_failure(outcome, only, guard, seeds.partitions)
                totals.print()
                return Exit.REFUSED
    if totals.runs == 1:
        print(f"seed {seeds.first} holds, digest {outcome.digest}")
    totals.print()
    return Exit.DONE


def _begin(guard: str | None, taken_out: ExitStack) -> None:
    """Disable logging, and remove a guard for as long as the stack is open."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVEL))
    taken_out.enter_context(without_guard(guard))


def _begin_job(guard: str | None) -> None:
    """Start a worker process, which Ctrl-C ends through its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _begin(guard, _FOR_GOOD)


def _outcomes(seeds: Seeds, only: set[int] | None, guard: str | None) -> _Outcomes:
    """Run seed after seed, or as many at a time as there are jobs."""
    if seeds.jobs == 1:
        yield from (run(seed, only, seeds.partitions) for seed in seeds)
        return
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(seeds.jobs, spawn, initializer=_begin_job, initargs=(guard,))
    left = iter(seeds)
    ahead: deque[Future[Outcome]] = deque()
    try:
        while True:
            more = islice(left, seeds.jobs * _AHEAD - len(ahead))
            ahead.extend(pool.submit(run, seed, only, seeds.partitions) for seed in more)
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _with_a_bar(outcomes: _Outcomes, seeds: Seeds, minutes: float | None) -> _Outcomes:
    """Yield outcomes while there is time, with a progress bar."""
    until = time.monotonic() + minutes * _SECONDS_A_MINUTE if minutes is not None else None
    columns = (TextColumn("seed {task.fields[seed]}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with closing(outcomes), Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True,
        disable=not console.is_terminal or seeds.runs == 1,
    ) as progress:  # fmt: skip
        task = progress.add_task("", total=seeds.runs, seed=seeds.first)
        for outcome in outcomes:
            progress.update(task, seed=outcome.seed, advance=1)
            yield outcome
            if until is not None and time.monotonic() > until:
                return


def _print_failure(
    outcome: Outcome, only: set[int] | None, guard: str | None, partitions: int | None
) -> None:
    where = f" in {outcome.partitions} partitions" if outcome.partitions > 1 else ""
    print(f"FAILED  seed {outcome.seed}{where}, with {len(outcome.faults)} faults:")
    for sentence in outcome.violations[:_MOST_SHOWN]:
        print(f"  {sentence}")
    if only is None:
        print("making its faults fewer ...", file=sys.stderr)
        outcome = shrunk(outcome)
        print(f"{len(outcome.faults)} of them are enough:")
    for fault in sorted(outcome.faults, key=lambda fault: fault.index):
        print(f"  {fault}")
    for sentence in outcome.violations[:_MOST_SHOWN] if only is None else ():
        print(f"  leads to: {sentence}")
    indices = ",".join(str(fault.index) for fault in outcome.faults)
    more = f" --partitions {partitions}" if partitions else ""
    more += f" --without {guard}" if guard else ""
    print(f"replay: muster simulate --seed {outcome.seed} --faults '{indices}'{more}")
