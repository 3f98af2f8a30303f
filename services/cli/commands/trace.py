"""`muster trace`."""

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Output, OutputOption, Url

app = typer.Typer()


@app.command()
def trace(name: str, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show every message behind an application's decisions, in order."""
    from services.cli import render

    value = Client(url).get(f"/v1/trace/{name}")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.console().print(render.trace_table(value))
