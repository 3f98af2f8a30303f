"""`muster why NAME`."""

from typing import Annotated

import typer

from services.cli.answers import Report, shown, table
from services.cli.client import Client, path_of
from services.cli.options import AnyPartition, asking, complete_applications, name_argument

app = typer.Typer()
Name = Annotated[
    str, name_argument("NAME", "An application's ID, or a pod's name.", complete_applications)
]


@app.command()
@shown
def why(client: Client, name: Name, partition: AnyPartition = "") -> Report:
    """Explain why an application or pod waits or runs.

    One sentence, then the evidence.
    """
    from services.cli.why import why_parts

    answer = client.get("/v1/why" + path_of(name), asking(partition))
    return Report(answer, why_parts(answer, table), [answer["name"]])
