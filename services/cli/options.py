"""The options that several commands have, each said once."""

import os
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from services.cli.client import (
    DEFAULT_URL,
    ApiError,
    Client,
    checked_name,
    checked_url,
    path_of,
    read_token,
)
from services.cli.exits import Exit
from shared.model.names import DEFAULT_PARTITION

COMPLETION = "_MUSTER_COMPLETE"  # what a shell sets when it asks for the rest of a word
CAPACITY = "cpu=8,memory=32Gi,ephemeral-storage=100Gi,pods=110"  # of a simulated node
_COMPLETION_SECONDS = 1.0
_MOST_OFFERED = 200


class Output(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Shell(StrEnum):
    """Shells that completion is there for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def checking(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """Return what judges an option's text; a ValueError of ``check`` is a usage error."""

    def judge(text: str | None) -> str | None:
        try:
            return None if text is None else check(text)
        except ValueError as error:
            is_file = isinstance(error.__cause__, OSError)
            raise (NoFileError if is_file else typer.BadParameter)(str(error)) from error

    return judge


class NoFileError(typer.BadParameter):
    """An option names a file that cannot be read."""

    exit_code = Exit.NO_FILE


Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="MUSTER_API_URL",
        help="URL of the API.",
        callback=checking(checked_url),
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="MUSTER_TOKEN",
        help="Token for the API; @FILE reads it from a file.",
        callback=checking(read_token),
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="Output format; name: only names.")
]
Wide = Annotated[bool, typer.Option("--wide", help="All columns, one line per row, as in a pipe.")]
Watch = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Refresh until Ctrl-C; in a pipe, print changes."),
]
Interval = Annotated[
    float,
    typer.Option(
        "--interval", metavar="SECONDS", help="Seconds between refreshes of --watch.", min=0.2
    ),
]
Sort = Annotated[
    str, typer.Option("--sort", metavar="COLUMN", help="Sort by a column; -COLUMN: largest first.")
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="CONDITION",
        help="COLUMN=TEXT, != (is not), ~ (contains), < or > a number; or a text anywhere.",
    ),
]


def in_partition(partition: str, *names: str) -> str:
    """Return the path of what YuniKorn's API has of a partition."""
    return "/ws/v1/partition" + path_of(partition, *names)


def asking(partition: str) -> dict[str, str]:
    """Return what a question says of a partition; "" says nothing."""
    return {"partition": partition} if partition else {}


def complete_applications(incomplete: str) -> list[str]:
    """Return the applications' names that begin so; none without an answer at once."""
    return _names("/v1/applications", "applicationID", incomplete)


def complete_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the nodes' names that begin so, of --partition or, without it, of one after another.

    No further partition is asked after _COMPLETION_SECONDS, or once _MOST_OFFERED were found.
    """
    given = ctx.params.get("partition")
    end = time.monotonic() + _COMPLETION_SECONDS
    found: list[str] = []
    for partition in [given] if given else complete_partitions(""):
        found += _names(in_partition(partition, "nodes"), "nodeID", incomplete)
        if len(found) >= _MOST_OFFERED or time.monotonic() >= end:
            break
    return found[:_MOST_OFFERED]


def _names(
    path: str, key: str, incomplete: str, rows: Callable[[Any], list[Any]] = list
) -> list[str]:
    try:
        token = read_token(os.environ.get("MUSTER_TOKEN", ""))
        client = Client(os.environ.get("MUSTER_API_URL", DEFAULT_URL), token, _COMPLETION_SECONDS)
        names = [str(row[key]) for row in rows(client.get(path))]
    except (ApiError, AttributeError, LookupError, TypeError, ValueError):
        return []
    return [name for name in names if name.startswith(incomplete)][:_MOST_OFFERED]


def complete_queues(incomplete: str) -> list[str]:
    """Return the queues' paths that begin so, of the default partition."""
    return _names(in_partition(DEFAULT_PARTITION, "queues"), "queuename", incomplete, _tree)


def complete_users(incomplete: str) -> list[str]:
    """Return the users' names that begin so, of the default partition."""
    return _names(in_partition(DEFAULT_PARTITION, "usage", "users"), "userName", incomplete)


def _tree(root: Any) -> list[Any]:
    return [root, *(row for child in root.get("children") or () for row in _tree(child))]


def checked_names(names: list[str] | None) -> list[str] | None:
    """Return names that may be asked for, or end with a usage error."""
    try:
        return None if names is None else [checked_name(name) for name in names]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def name_argument(metavar: str, text: str, complete: Callable[[str], list[str]]) -> Any:
    """Return an argument that is the name of one thing, which ``complete`` offers."""
    return typer.Argument(
        metavar=metavar, help=text, callback=checking(checked_name), autocompletion=complete
    )


def complete_partitions(incomplete: str) -> list[str]:
    """Return the partitions' names that begin so; none without an answer at once."""
    return _names("/ws/v1/partitions", "name", incomplete)


def partition_option(text: str) -> Any:
    """Return --partition with what it means to a command."""
    return typer.Option(
        "--partition",
        metavar="PARTITION",
        help=text,
        callback=checking(lambda name: name and checked_name(name)),
        autocompletion=complete_partitions,
    )


OnePartition = Annotated[str, partition_option("Which partition's.")]
AnyPartition = Annotated[str, partition_option("Only this partition; default: all.")]
ApplicationName = Annotated[str, name_argument("APPLICATION", "Its ID.", complete_applications)]
NodeName = Annotated[str, name_argument("NODE", "Its name.", complete_nodes)]
