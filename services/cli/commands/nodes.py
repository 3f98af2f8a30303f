"""`muster nodes`, `muster node NODE`, `muster drain NODE` and `muster undrain NODE`."""

import typer

from services.cli.answers import Listing, Report, shown, table
from services.cli.client import DEFAULT_URL, Client, path_of
from services.cli.options import NodeName, OnePartition, Token, Url, asking, in_partition
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


@app.command()
@shown
def nodes(client: Client, partition: OnePartition = DEFAULT_PARTITION) -> Listing:
    """Show the nodes: what is used and what is free."""
    from services.cli.render import node_columns

    rows = client.get(in_partition(partition, "nodes"))
    return Listing(rows, node_columns(rows), "nodeID", empty="no nodes")


@app.command()
@shown
def node(client: Client, name: NodeName, partition: OnePartition = DEFAULT_PARTITION) -> Report:
    """Show one node: its pods and reservations."""
    from services.cli.one import node_parts

    unknown = {"Node not found": f"no node is called {name}; `muster nodes` shows all"}
    found = client.get(in_partition(partition, "node", name), refusals=unknown)
    where = asking(partition)
    pods = client.get("/v1/pods", {"node": name, **where})["pods"]
    waiting = client.get("/v1/pods", where)["pods"] if found.get("reservations") else []
    names = [pod["name"] for pod in pods]
    return Report({**found, "pods": pods}, node_parts(found, pods, waiting, table), names)


@app.command()
def drain(node: NodeName, url: Url = DEFAULT_URL, token: Token = "") -> None:
    """Keep new pods off a node; running pods stay."""
    Client(url, token).post("/v1/nodes" + path_of(node, "drain"))
    print(f"{node} is drained: its pods keep running, it gets no new ones; `muster undrain {node}`")


@app.command()
def undrain(node: NodeName, url: Url = DEFAULT_URL, token: Token = "") -> None:
    """Allow new pods on a node again."""
    Client(url, token).post("/v1/nodes" + path_of(node, "undrain"))
    print(f"{node} accepts new pods again")
