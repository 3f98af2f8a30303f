"""`muster apps` and `muster app NAME`."""

import typer

from services.cli.answers import Listing, Report, shown, table
from services.cli.client import Client, path_of
from services.cli.options import ApplicationName

app = typer.Typer()


@app.command()
@shown
def apps(client: Client) -> Listing:
    """Show every application: its state, its gang's progress and what it waits for."""
    from services.cli.render import APPLICATIONS

    rows = client.get("/v1/applications")
    empty = "no applications; submit some with `muster submit -f FILE`"
    return Listing(rows, APPLICATIONS, "applicationID", empty=empty)


@app.command(name="app")
@shown
def application(client: Client, name: ApplicationName) -> Report:
    """Show one application: its groups, its pods, where they run and what they wait for."""
    from services.cli.render import application_parts

    detail = client.get("/v1/applications" + path_of(name))
    names = [pod["name"] for pod in detail["pods"]]
    return Report(detail, application_parts(detail, table), names)
