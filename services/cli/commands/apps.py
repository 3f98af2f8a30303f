"""`muster apps` and `muster app NAME`."""

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Output, OutputOption, Url

app = typer.Typer()


@app.command()
def apps(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show every application: its state, its gang's progress and what it waits for."""
    from services.cli import render

    value = Client(url).get("/v1/applications")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.console().print(render.applications_table(value))


@app.command(name="app")
def application(name: str, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show one application."""
    from services.cli import render

    value = Client(url).get(f"/v1/applications/{name}")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.application_lines(render.console(), value)
