"""`muster delete`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.client import DEFAULT_URL, Client, RefusedError, path_of
from services.cli.exits import Exit
from services.cli.options import (
    AnyPartition,
    Token,
    Url,
    asking,
    checked_names,
    complete_applications,
)
from services.cli.said import complain

app = typer.Typer()


@app.command()
def delete(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="APPLICATION",
            help="Applications to delete with their pods.",
            callback=checked_names,
            autocompletion=complete_applications,
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Delete what a manifest describes; - is stdin."
        ),
    ] = None,
    partition: AnyPartition = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Delete applications, or what a manifest describes."""
    from services.cli.submit import delete_files

    if not names and not file:
        raise typer.BadParameter("name an application, or a manifest with -f")
    client = Client(url, token)
    worst = [_delete(client, name, partition) for name in names or ()]
    if file:
        worst.append(delete_files(client, file))
    raise typer.Exit(max(worst))


def _delete(client: Client, name: str, partition: str) -> int:
    """Delete an application; a refusal is said, and the next one has its turn."""
    try:
        answer = client.delete("/v1/applications" + path_of(name), asking(partition))
    except RefusedError as error:
        complain(f"muster: {error}")
        return error.exit_status
    ended = ": it had ended, and stays among those in `muster apps`" if answer["hadEnded"] else ""
    print(f"deleted {name}{ended}")
    return Exit.DONE
