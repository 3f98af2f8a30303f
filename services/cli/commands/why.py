"""`muster why NAME`."""

from typing import Annotated

import typer

from services.cli.answers import Report, shown, table
from services.cli.client import Client, checked_name, path_of
from services.cli.options import checking, complete_applications

app = typer.Typer()
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="An application's ID, or a pod's name.",
        callback=checking(checked_name),
        autocompletion=complete_applications,
    ),
]


@app.command()
@shown
def why(client: Client, name: Name) -> Report:
    """Say why an application or a pod is where it is: one sentence, then the evidence."""
    from services.cli.why import why_parts

    answer = client.get("/v1/why" + path_of(name))
    return Report(answer, why_parts(answer, table), [answer["name"]])
