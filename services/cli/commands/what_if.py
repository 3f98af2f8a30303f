"""`muster what-if`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.answers import Report, shown, table
from services.cli.client import Client
from services.cli.options import asking, complete_nodes, partition_option

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
        typer.Option(help="The node that those are like.", autocompletion=complete_nodes),
    ] = "",
    partition: Annotated[
        str, partition_option("In which; without it, that of the node, or default.")
    ] = "",
) -> Report:
    """Say what would start, wait, or be evicted; nothing is changed."""
    from services.cli.what_if import ask, what_if_parts

    if bool(add_nodes) != bool(like):
        raise typer.BadParameter("--add-nodes and --like go together: how many, like which one")
    rest = {"drain": drain, "addNodes": add_nodes, "like": like}
    answer = ask(client, file, queues, rest, asking(partition))
    names = [item["applicationID"] for item in answer["starts"]]
    return Report(answer, what_if_parts(answer, table), names)
