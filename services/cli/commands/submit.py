"""`muster submit`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Output, OutputOption, Token, Url

app = typer.Typer()


@app.command()
def submit(
    file: Annotated[
        list[Path], typer.Option("--file", "-f", metavar="FILE", help="A manifest; - is stdin.")
    ],
    output: OutputOption = Output.TABLE,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Submit manifests to the simulated cluster.

    Pods, jobs, and the workloads of many operators.
    """
    from services.cli.submit import submit_files

    raise typer.Exit(submit_files(Client(url, token), file, output))
