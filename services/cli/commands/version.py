"""`muster version`."""

from importlib import metadata

import typer

from services.cli.answers import Report, shown
from services.cli.client import ApiError, Client

app = typer.Typer()


@app.command()
@shown
def version(client: Client) -> Report:
    """Show the versions, here and where Muster runs."""
    from services.cli.render import hanging

    own = metadata.version("muster")
    value = {"client": own, "server": "", "url": client.url}
    lines = [f"muster       {own}"]
    try:
        value["server"] = client.get("/v1/version")["version"]
        lines.append(f"server       {value['server']} at {client.url}")
    except ApiError as error:
        lines.append(f"server       {error}")
    return Report(value, [hanging(line) for line in lines], [own])
