"""`muster nodes`."""

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import PARTITION, Output, OutputOption, Url

app = typer.Typer()


@app.command()
def nodes(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show the nodes."""
    from services.cli import render

    value = Client(url).get(f"{PARTITION}/nodes")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.console().print(render.nodes_table(value))
