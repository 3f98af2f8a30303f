"""`muster trace NAME`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client, path_of
from services.cli.options import ApplicationName

app = typer.Typer()


@app.command()
@shown
def trace(client: Client, name: ApplicationName) -> Listing:
    """Show every message behind an application's decisions, in order."""
    from services.cli.render import story_columns

    entries = client.get("/v1/trace" + path_of(name))
    return Listing(entries, story_columns(entries), "messageID")
