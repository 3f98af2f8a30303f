"""`muster dead-letters`."""

import typer

from services.cli.answers import Listing, shown
from services.cli.client import Client

app = typer.Typer()


@app.command(name="dead-letters")
@shown
def dead_letters(client: Client) -> Listing:
    """Show the messages that could not be handled and were put aside, and why."""
    from services.cli.render import DEAD_LETTERS

    answer = client.get("/v1/dead-letters")
    rows, total = answer["deadLetters"], answer["total"]
    empty = "no dead letters: every message was handled"
    beside = [f"the first {len(rows)} of {total}"] if total > len(rows) else []
    return Listing(rows, DEAD_LETTERS, "messageID", whole=answer, empty=empty, beside=[*beside])
