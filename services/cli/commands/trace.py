"""`muster trace NAME`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client, path_of
from services.cli.options import AnyPartition, ApplicationName, asking

app = typer.Typer()


@app.command()
@shown
def trace(client: Client, name: ApplicationName, partition: AnyPartition = "") -> Listing:
    """Show the messages behind an application.

    Each with its decision and reason.

    A pale bar is time in an inbox, a full one handling; long pauses are folded. A step stands
    after what caused it; "-o json" has each one's cause, and what else led to it.
    """
    from services.cli.waterfall import WIDEST, waterfall_columns

    entries = client.get("/v1/trace" + path_of(name), asking(partition))
    return Listing(entries, waterfall_columns(entries), "messageID", most=WIDEST)
