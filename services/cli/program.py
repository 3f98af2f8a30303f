"""A program of commands, as `muster` is one. Heavy imports wait until a command needs them."""

import os
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Annotated

import typer

from services.cli.client import ApiError
from services.cli.exits import status_of
from services.cli.options import COMPLETION
from services.cli.said import complain

_HELP = "Muster: a gang scheduler for batch and ML clusters."


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it by position
    if wanted:
        typer.echo(f"muster {metadata.version('muster')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="The version."),
    ] = False,
) -> None:
    pass


def program_of(commands: Iterable[typer.Typer]) -> typer.Typer:
    """Return the program with these commands, in this order."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(help=_HELP)(_options)
    for command in commands:
        app.add_typer(command)
    return app


def main(app: typer.Typer) -> None:
    """Run what was typed; a failure is one sentence on stderr (`exits.py`)."""
    if COMPLETION in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()  # the shells are known only then
    try:
        run(app, sys.argv[1:], "muster")
    except ApiError as error:
        complain(f"muster: {error}")
        sys.exit(status_of(error, error.exit_status))


def run(app: typer.Typer, words: list[str], name: str) -> None:
    """Run one command, under the name that was typed. Raises ApiError."""
    app(words, prog_name=name)
