"""`muster events`."""

from typing import Annotated

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import Filter, Output, OutputOption, Token, Url

app = typer.Typer()


@app.command()
def events(
    about: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="Only events of this application, node or queue."),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new ones until Ctrl-C.")
    ] = False,
    last: Annotated[
        int,
        typer.Option("--last", metavar="N", help="How many past ones to show.", min=0, max=10_000),
    ] = 50,
    filter: Filter = None,  # noqa: A002 - the option's name
    output: OutputOption = Output.TABLE,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Show events, newest last.

    -o json prints a line for each.
    """
    from services.cli.events import show_events

    show_events(Client(url, token), about, tuple(filter or ()), output, last=last, follows=follow)
