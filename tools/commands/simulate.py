"""`muster simulate`."""

import re
from typing import Annotated

import typer

from services.cli.options import checking

MAX_JOBS = 256  # parallel processes; more are refused
_FAULT = re.compile(r"[0-9]{1,9}")
app = typer.Typer()


def _indices(text: str) -> str:
    """Return a list of faults as it was typed. Raises ValueError."""
    if not all(_FAULT.fullmatch(part) for part in text.split(",") if part):
        raise ValueError("numbers with commas between them, such as 3,17; '' for no fault")
    return text


def _guard(text: str) -> str:
    """Return the name of a guard. Raises ValueError."""
    from tools.simulate.guards import GUARDS

    if text not in GUARDS:
        raise ValueError(f"there are {', '.join(GUARDS)}")
    return text


@app.command()
def simulate(
    seed: Annotated[int, typer.Option(metavar="N", help="The first seed.", min=0)] = 0,
    runs: Annotated[
        int, typer.Option(metavar="N", help="How many seeds, one after the other.", min=1)
    ] = 1,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="Instead of --runs, as many seeds as fit.", min=0),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", help="How many at a time, one process each.", min=1, max=MAX_JOBS
        ),
    ] = 1,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Only the faults with these numbers: 3,17.",
            callback=checking(_indices),
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", help="Partitions per seed; default: drawn.", min=1, max=2),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            metavar="GUARD",
            help="Remove this guard; a run should notice.",
            callback=checking(_guard),
        ),
    ] = None,
) -> None:
    """Run all services on one thread, with faults.

    Exit status 0: all pass; 1: a seed fails.
    """
    from tools.simulate.command import Seeds, simulate_seeds

    only = None if faults is None else {int(part) for part in faults.split(",") if part}
    seeds = Seeds(seed, runs if minutes is None else None, jobs, partitions)
    raise typer.Exit(simulate_seeds(seeds, minutes, only, without))
