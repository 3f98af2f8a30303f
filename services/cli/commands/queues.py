"""`muster queues`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client
from services.cli.options import OnePartition, asking
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


@app.command()
@shown
def queues(client: Client, partition: OnePartition = DEFAULT_PARTITION) -> Listing:
    """Show the queue tree: limits, use, priority, and what holds each queue back."""
    from services.cli.render import QUEUES, configuration_lines, queue_rows

    root = client.get("/v1/queues", asking(partition))
    beside = configuration_lines(client.get("/v1/config", asking(partition)))
    return Listing(queue_rows(root), QUEUES, "queuename", whole=root, beside=[*beside])
