"""`muster queues`."""

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Output, OutputOption, Url

app = typer.Typer()


@app.command()
def queues(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show the queue tree: limits, use, priority, and what holds each queue back."""
    from services.cli import render

    client = Client(url)
    value = client.get("/v1/queues")
    if output is Output.JSON:
        render.print_json(value)
    else:
        out = render.console()
        out.print(render.queues_table(value))
        render.configuration_lines(out, client.get("/v1/config"))
