"""`muster config`: check, diff, apply and show the queues.

A file is a queues.yaml, YuniKorn's ConfigMaps, or the values of a Helm chart, its or Muster's.
"""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.answers import Report, shown
from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Token, Url

app = typer.Typer(
    name="config", help="Check, compare, apply and show the queues.", no_args_is_help=True
)


@app.command("check")
def config_check(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="queues.yaml, ConfigMaps or Helm values; - is stdin."
        ),
    ],
) -> None:
    """Check queues by YuniKorn's rules, with line numbers.

    Exit status 0: all valid; 1: one is not.
    """
    from services.cli.config_check import check_files

    raise typer.Exit(check_files(files))


@app.command("apply")
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As for check; - is stdin.")],
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Reload the queues; a bad file changes nothing."""
    from services.cli.config_check import apply_file

    raise typer.Exit(apply_file(Client(url, token), file))


@app.command("diff")
@shown
def diff(
    client: Client,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As for check; - is stdin.")],
) -> Report:
    """Show what a file would change, and for which applications."""
    from services.cli.config_check import diff_file

    return diff_file(client, file)


@app.command("show")
@shown
def config_show(client: Client) -> Report:
    """Show the queues.yaml in use.

    On stderr: what was refused since then.
    """
    from services.cli.config_check import shown_config

    return shown_config(client)
