"""`muster config check` and `muster config apply`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.answers import Report, shown
from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Token, Url

app = typer.Typer(name="config", help="Queue configurations.", no_args_is_help=True)


@app.command("check")
def config_check(
    files: Annotated[list[Path], typer.Argument(help="queues.yaml files; - is stdin.")],
) -> None:
    """Judge queues.yaml files by YuniKorn's rules: 0 all hold, 1 one does not."""
    from services.cli.config_check import check_files

    raise typer.Exit(check_files(files))


@app.command("apply")
def apply(
    file: Annotated[Path, typer.Argument(help="A queues.yaml; - is stdin.")],
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Reload the queue configuration of a running Muster; a bad file changes nothing."""
    from services.cli.config_check import apply_file

    raise typer.Exit(apply_file(Client(url, token), file))


@app.command("show")
@shown
def config_show(client: Client) -> Report:
    """Show the queues.yaml that holds now; on stderr, what was refused since."""
    from services.cli.config_check import shown_config

    return shown_config(client)
