"""`muster token NAME`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of its user or program.")],
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="read, submit or operate.")
    ] = "read",
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Add it to this MUSTER_TOKENS_FILE of the API."
        ),
    ] = None,
) -> None:
    """Create a token for the API; it is printed once.

    The API's file has only its hash.
    """
    from services.api.access.tokens import new_token

    try:
        made, line = new_token(name, role)
    except ValueError as error:
        raise typer.BadParameter(str(error).removeprefix("line 1: ")) from error
    if file is None:
        print(f"add this line to the API's MUSTER_TOKENS_FILE:\n{line}", file=sys.stderr)
    else:
        try:
            file.touch(mode=0o600)
            with file.open("a") as opened:
                opened.write(f"{line}\n")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}") from error
    print(made)
