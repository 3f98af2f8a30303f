"""`muster what-if`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.answers import Report, shown, table
from services.cli.client import Client, RefusedError
from services.cli.options import (
    asking,
    complete_applications,
    complete_nodes,
    partition_option,
)

app = typer.Typer()
_Manifest = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="If this manifest were submitted."),
]
_Deleted = Annotated[
    list[str] | None,
    typer.Option(
        metavar="APPLICATION",
        help="If this application were deleted; again for more.",
        autocompletion=complete_applications,
    ),
]


@app.command(name="what-if")
@shown
def what_if(
    client: Client,
    file: _Manifest = None,
    drain: Annotated[
        str,
        typer.Option(
            metavar="NODE", help="If this node were drained.", autocompletion=complete_nodes
        ),
    ] = "",
    queues: Annotated[
        Path | None, typer.Option(metavar="FILE", help="If these queues were applied.")
    ] = None,
    add_nodes: Annotated[
        int, typer.Option(metavar="N", help="If this many nodes were added.", min=0)
    ] = 0,
    like: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="The node to copy [default: the largest]",
            autocompletion=complete_nodes,
        ),
    ] = "",
    delete: _Deleted = None,
    partition: Annotated[
        str, partition_option("In which; without it, that of the node, or default.")
    ] = "",
) -> Report:
    """Show what a change would start, delay or evict.

    Changes can be combined. Nothing is changed by asking.
    """
    from services.cli.config_check import queues_in
    from services.cli.what_if import ask, what_if_parts

    if like and not add_nodes:
        raise typer.BadParameter("--like needs --add-nodes: how many nodes, like which one")
    rest = {"drain": drain, "addNodes": add_nodes, "like": like, "delete": delete or []}
    try:
        text = queues_in(queues).text if queues is not None else ""
    except RefusedError as error:
        raise RefusedError(f"{queues}: {error}") from error
    answer = ask(client, file, text, rest, asking(partition))
    names = [item["applicationID"] for item in answer["starts"]]
    return Report(answer, what_if_parts(answer, table), names)
