"""`muster top`."""

from enum import StrEnum
from typing import Annotated

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client
from services.cli.options import OnePartition, asking, in_partition
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


class What(StrEnum):
    """Kinds of rows whose usage can be shown."""

    NODES = "nodes"
    QUEUES = "queues"
    APPS = "apps"
    USERS = "users"


@app.command()
@shown
def top(
    client: Client,
    what: Annotated[What, typer.Argument(help="What to show.")] = What.NODES,
    partition: OnePartition = DEFAULT_PARTITION,
) -> Listing:
    """Show nodes, queues, apps or users by usage."""
    from services.cli import top as tables

    match what:
        case What.NODES:
            return tables.top_nodes(client.get(in_partition(partition, "nodes")))
        case What.QUEUES:
            return tables.top_queues(client.get("/v1/queues", asking(partition)))
        case What.APPS:
            path = in_partition(partition, "applications", "active")
            return tables.top_applications(client.get(path))
        case What.USERS:
            return tables.top_users(client.get(in_partition(partition, "usage", "users")))
