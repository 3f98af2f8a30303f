"""`muster simulate`: seeds in, one line for each that does not hold, and a table at the end.

The first seed that does not hold ends it: its faults are made as few as they can be, and the
command that replays it is said.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.cli.exits import Exit
from services.cli.simulate.guards import without_guard
from services.cli.simulate.run import Outcome, run
from services.cli.simulate.shrink import shrunk

_MOST_SHOWN = 10  # sentences of a run that does not hold; the others are left out
_SECONDS_A_MINUTE = 60
_LEVEL = 50  # critical: what goes wrong here goes wrong on purpose


def simulate_seeds(
    first: int, runs: int, minutes: float | None, only: set[int] | None, guard: str | None
) -> int:
    """Run seeds until one does not hold, or all have run; return the exit status."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVEL))
    started = time.process_time()
    totals: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    with without_guard(guard):
        for outcome in _outcomes(first, runs, minutes, only):
            totals.update(runs=1, messages=outcome.published, faults=len(outcome.faults))
            happened += outcome.happened
            if not outcome.holds:
                _tell_failure(outcome, only, guard)
                _tell_totals(totals, happened, time.process_time() - started)
                return Exit.REFUSED
    if totals["runs"] == 1:
        print(f"seed {first} holds, digest {outcome.digest}")
    _tell_totals(totals, happened, time.process_time() - started)
    return Exit.DONE


def _outcomes(
    first: int, runs: int, minutes: float | None, only: set[int] | None
) -> Iterator[Outcome]:
    """Run seed after seed, with a bar for people who watch."""
    until = time.monotonic() + minutes * _SECONDS_A_MINUTE if minutes is not None else None
    columns = (TextColumn("seed {task.fields[seed]}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True,
        disable=not console.is_terminal or (runs == 1 and until is None),
    ) as progress:  # fmt: skip
        task = progress.add_task("", total=None if until else runs, seed=first)
        seed = first
        while time.monotonic() < until if until is not None else seed < first + runs:
            progress.update(task, seed=seed)
            yield run(seed, only)
            seed += 1
            progress.advance(task)


def _tell_failure(outcome: Outcome, only: set[int] | None, guard: str | None) -> None:
    print(f"FAILED  seed {outcome.seed}, with {len(outcome.faults)} faults:")
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
    taken = f" --without {guard}" if guard else ""
    print(f"replay: muster simulate --seed {outcome.seed} --faults '{indices}'{taken}")


def _tell_totals(totals: Counter[str], happened: Counter[str], spent: float) -> None:
    rate = totals["runs"] / spent if spent else 0
    print(
        f"{totals['runs']} runs, {totals['messages']} messages, {totals['faults']} faults, "
        f"{rate:.1f} runs a second of CPU"
    )
    for kind, count in sorted(happened.items()):
        print(f"  {kind:<18} {count}")
