"""`muster scenario run`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.options import Output, OutputOption

app = typer.Typer(name="scenario", help="Scenario files: policy tests.", no_args_is_help=True)


@app.command("run")
def scenario_run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario files.")],
    bus: Annotated[
        str, typer.Option(metavar="URL", help="memory, or amqp://user:password@host/")
    ] = "memory",
    speed: Annotated[
        float,
        typer.Option(
            metavar="FACTOR", help="With a broker: how much faster than real time.", min=0.001
        ),
    ] = 1.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run scenario files.

    Exit status 0: all pass; 1: a step failed; 2: a file is malformed.
    """
    from tools.scenario.command import run_files

    raise typer.Exit(run_files(files, bus, speed, as_json=output is Output.JSON))
