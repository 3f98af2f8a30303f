"""`muster pods`."""

from typing import Annotated

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client
from services.cli.options import AnyPartition, complete_applications, complete_nodes

app = typer.Typer()
_MORE = "there are more; choose one --app, --queue or --node"


@app.command()
@shown
def pods(
    client: Client,
    application: Annotated[
        str,
        typer.Option(
            "--app",
            metavar="NAME",
            help="Only pods of this application.",
            autocompletion=complete_applications,
        ),
    ] = "",
    queue: Annotated[
        str, typer.Option("--queue", metavar="PATH", help="Only pods in this queue.")
    ] = "",
    node: Annotated[
        str,
        typer.Option(
            "--node", metavar="NAME", help="Only pods on this node.", autocompletion=complete_nodes
        ),
    ] = "",
    partition: AnyPartition = "",
) -> Listing:
    """Show pods: where they run, or why they wait."""
    from services.cli.render import PODS, with_partition

    wanted = {"application": application, "queue": queue, "node": node, "partition": partition}
    answer = client.get("/v1/pods", {key: value for key, value in wanted.items() if value})
    rows, total = answer["pods"], answer["total"]
    beside = [f"the first {len(rows)} of {total} pods; {_MORE}"] if total > len(rows) else []
    return Listing(
        rows, with_partition(rows, PODS), "name", whole=answer, empty="no pods", beside=beside
    )
