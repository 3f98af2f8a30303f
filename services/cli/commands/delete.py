"""`muster delete`."""

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Url

app = typer.Typer()


@app.command()
def delete(application: str, url: Url = DEFAULT_URL) -> None:
    """Delete an application and its pods."""
    Client(url).delete(f"/v1/applications/{application}")
    print(f"deleted {application}")
