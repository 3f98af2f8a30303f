"""`muster dead-letters`, and what becomes of one: `show`, `replay`, `drop`."""

import inspect
from typing import Annotated, Any

import typer

from services.cli.answers import Listing, Report, shown
from services.cli.client import DEFAULT_URL, Client, path_of
from services.cli.options import Token, Url
from services.cli.said import complain

app = typer.Typer(name="dead-letters")
_PATH = "/v1/dead-letters"
_REFUSED = 1
_MessageID = Annotated[str, typer.Argument(metavar="ID", help="A message's identity.")]
_SomeID = Annotated[str, typer.Argument(metavar="[ID]", help="A message's identity.")]
_Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="All whose reason contains this text.")
]


def dead_letters(client: Client, reason: _Reason = "") -> Listing:
    """Show messages that could not be handled, and why."""
    from services.cli.render import DEAD_LETTERS

    answer = client.get(_PATH, {"reason": reason} if reason else None)
    rows, total = answer["deadLetters"], answer["total"]
    empty = "no dead letters: every message was handled"
    if total and not rows:
        empty = "no dead letters with this reason"
    beside = [f"the first {len(rows)} of {total}"] if total > len(rows) else []
    return Listing(rows, DEAD_LETTERS, "messageID", whole=answer, empty=empty, beside=[*beside])


def _unless_a_command_follows() -> Any:
    """Return the list as what the group does by itself."""
    listed = shown(dead_letters)

    def run(context: typer.Context, **taken: Any) -> None:
        if context.invoked_subcommand is None:
            listed(**taken)

    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    own = inspect.signature(listed)
    parameters = [context, *own.parameters.values()]
    run.__doc__ = dead_letters.__doc__
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run


app.callback(invoke_without_command=True)(_unless_a_command_follows())


@app.command()
@shown
def show(client: Client, message_id: _MessageID) -> Report:
    """Show one of them, with the beginning of its body."""
    from services.cli.render import hanging

    letter = client.get(_PATH + path_of(message_id))
    lines = [
        f"message   {letter['kind']}",
        f"inbox     {letter['inbox']}",
        f"reason    {letter['reason']}",
        f"bytes     {letter['bytes']}" + ("" if letter["isWhole"] else ", the first of them below"),
        f"body      {letter['body']!a}",
    ]
    return Report(letter, [hanging(line) for line in lines], [letter["messageID"]])


@app.command()
def replay(
    message_id: _SomeID = "", reason: _Reason = "", url: Url = DEFAULT_URL, token: Token = ""
) -> None:
    """Replay it to its service.

    Once the cause is fixed.
    """
    path, params = _meant(message_id, reason)
    where = path + "/replay" if message_id else path
    answer = Client(url, token).judged("POST", where, b"", params)
    for name in answer["replayed"]:
        print(f"{name} was handled")
    for item in answer["refused"]:
        complain(f"{item['messageID']} stays: {item['reason']}")
    raise typer.Exit(_REFUSED if answer["refused"] else 0)


@app.command()
def drop(
    message_id: _SomeID = "", reason: _Reason = "", url: Url = DEFAULT_URL, token: Token = ""
) -> None:
    """Forget it for good."""
    path, params = _meant(message_id, reason)
    for name in Client(url, token).delete(path, params)["dropped"]:
        print(f"{name} is gone")


def _meant(message_id: str, reason: str) -> tuple[str, dict[str, str]]:
    """Return the path and what it is asked with: one by its identity, or those with a reason."""
    if bool(message_id) == bool(reason):
        raise typer.BadParameter("an ID or --reason is expected, and not both")
    return (_PATH + path_of(message_id), {}) if message_id else (_PATH, {"reason": reason})
