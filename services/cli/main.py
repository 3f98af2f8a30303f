"""`muster`: see `muster --help`. Heavy imports wait until a command needs them."""

import os
import sys

import typer

from services.cli.client import ApiError
from services.cli.commands import COMMANDS
from services.cli.options import COMPLETION
from services.cli.said import complain

app = typer.Typer(
    help="Muster: a gang scheduler for batch and ML clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for command in COMMANDS:
    app.add_typer(command)


def main() -> None:
    """Run the command line; a failure is one sentence on stderr (`exits.py`)."""
    if COMPLETION in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()  # the shells are known only then
    try:
        run(sys.argv[1:], "muster")
    except ApiError as error:
        complain(f"muster: {error}")
        sys.exit(error.exit_status)


def run(words: list[str], name: str) -> None:
    """Run one command, under the name that was typed. Raises ApiError."""
    app(words, prog_name=name)


if __name__ == "__main__":
    main()
