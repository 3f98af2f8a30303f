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


@app.command(name="what-if")
@shown
def what_if(
    client: Client,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="If this manifest were submitted.")
    ] = None,
    drain: Annotated[
        str, typer.Option(help="If this node were drained.", autocompletion=complete_nodes)
    ] = "",
    queues: Annotated[Path | None, typer.Option(help="If this queues.yaml were applied.")] = None,
    add_nodes: Annotated[int, typer.Option(help="If there were so many nodes more.", min=0)] = 0,
    like: Annotated[
        str,
        typer.Option(
            help="The node that those are like [default: the largest]",
            autocompletion=complete_nodes,
        ),
    ] = "",
    delete: Annotated[
        list[str] | None,
        typer.Option(
            help="If this application were deleted; again for more.",
            autocompletion=complete_applications,
        ),
    ] = None,
    partition: Annotated[
        str, partition_option("In which; without it, that of the node, or default.")
    ] = "",
) -> Report:
    """Say what a change would start, delay or evict.

    Any of the changes together; nothing is changed by asking.
    """
    from services.cli.config_check import queues_in
    from services.cli.what_if import ask, what_if_parts

    if like and not add_nodes:
        raise typer.BadParameter("--like goes with --add-nodes: how many, like which one")
    rest = {"drain": drain, "addNodes": add_nodes, "like": like, "delete": delete or []}
    try:
        text = queues_in(queues).text if queues is not None else ""
    except RefusedError as error:
        raise RefusedError(f"{queues}: {error}") from error
    answer = ask(client, file, text, rest, asking(partition))
    names = [item["applicationID"] for item in answer["starts"]]
    return Report(answer, what_if_parts(answer, table), names)
