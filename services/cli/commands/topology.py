"""`muster topology`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client
from services.cli.options import OnePartition, asking
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


@app.command()
@shown
def topology(client: Client, partition: OnePartition = DEFAULT_PARTITION) -> Listing:
    """Show the topology: what is used and free per domain.

    By level.
    """
    from services.cli.render import TOPOLOGY, domain_rows

    value = client.get("/v1/topology", asking(partition))
    empty = "no topology: topologyLevels names no labels, or no node has them all"
    return Listing(domain_rows(value), TOPOLOGY, "path", whole=value, empty=empty)
