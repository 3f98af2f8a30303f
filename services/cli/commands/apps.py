"""`muster apps` and `muster app NAME`."""

import typer

from services.cli.answers import Listing, Report, shown, table
from services.cli.client import Client, path_of
from services.cli.options import AnyPartition, ApplicationName, asking

app = typer.Typer()


@app.command()
@shown
def apps(client: Client, partition: AnyPartition = "") -> Listing:
    """Show all applications, and why they wait."""
    from services.cli.render import APPLICATIONS, with_partition

    rows = client.get("/v1/applications", asking(partition))
    empty = "no applications; submit some with `muster submit -f FILE`"
    return Listing(rows, with_partition(rows, APPLICATIONS), "applicationID", empty=empty)


@app.command(name="app")
@shown
def application(client: Client, name: ApplicationName, partition: AnyPartition = "") -> Report:
    """Show one application: its groups and its pods."""
    from services.cli.render import application_parts

    detail = client.get("/v1/applications" + path_of(name), asking(partition))
    names = [pod["name"] for pod in detail["pods"]]
    return Report(detail, application_parts(detail, table), names)
