"""`muster queues`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client

app = typer.Typer()


@app.command()
@shown
def queues(client: Client) -> Listing:
    """Show the queue tree: limits, use, priority, and what holds each queue back."""
    from services.cli.render import QUEUES, configuration_lines, queue_rows

    root = client.get("/v1/queues")
    beside = configuration_lines(client.get("/v1/config"))
    return Listing(queue_rows(root), QUEUES, "queuename", whole=root, beside=[*beside])
