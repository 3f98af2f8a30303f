"""`muster nodes`, `muster drain NODE` and `muster undrain NODE`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import DEFAULT_URL, Client, path_of
from services.cli.options import NodeName, OnePartition, Token, Url, in_partition
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


@app.command()
@shown
def nodes(client: Client, partition: OnePartition = DEFAULT_PARTITION) -> Listing:
    """Show the nodes: what is allocated on each, and what is left."""
    from services.cli.render import node_columns

    rows = client.get(in_partition(partition, "nodes"))
    return Listing(rows, node_columns(rows), "nodeID", empty="no nodes")


@app.command()
def drain(node: NodeName, url: Url = DEFAULT_URL, token: Token = "") -> None:
    """Let no new pods onto a node; those that run there stay until they end."""
    Client(url, token).post("/v1/nodes" + path_of(node, "drain"))
    print(f"{node} is drained: its pods run on, and no new ones come; `muster undrain {node}`")


@app.command()
def undrain(node: NodeName, url: Url = DEFAULT_URL, token: Token = "") -> None:
    """Let new pods onto a node again."""
    Client(url, token).post("/v1/nodes" + path_of(node, "undrain"))
    print(f"{node} takes new pods again")
