"""`muster when NAME`."""

from typing import Annotated

import typer

from services.cli.answers import Report, shown
from services.cli.client import Client, path_of
from services.cli.options import AnyPartition, asking, complete_applications, name_argument

app = typer.Typer()
Name = Annotated[str, name_argument("NAME", "An application's ID.", complete_applications)]


@app.command()
@shown
def when(client: Client, name: Name, partition: AnyPartition = "") -> Report:
    """Forecast when an application starts.

    The median, and the time by which it starts in nine of ten cases.
    """
    from services.cli.render import hanging

    answer = client.get("/v1/when" + path_of(name), asking(partition))
    return Report(
        answer, [hanging(f"when         {answer['sentence']}")], [answer["applicationID"]]
    )
