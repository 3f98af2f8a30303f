"""What a command shows, and the options that every such command has alike.

A command is a function of a client, and of what else it takes, that returns a Listing or a
Report; ``shown`` gives it ``--url``, ``--token``, ``--output``, ``--watch`` and, where it lists,
``--wide``, ``--sort`` and ``--filter``:

    @app.command()
    @shown
    def nodes(client: Client) -> Listing: ...
"""

import inspect
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from services.cli.client import DEFAULT_URL, ApiError, Client
from services.cli.exits import Exit
from services.cli.options import (
    Filter,
    Interval,
    Output,
    OutputOption,
    Sort,
    Token,
    Url,
    Watch,
    Wide,
)
from services.cli.said import complain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from services.cli.table import Column, Row


@dataclass(slots=True)
class Listing:
    """Rows of a table. ``key`` is their name's; ``whole`` is the answer where it is no list.

    ``beside`` is said after the table, on a terminal and in a pipe. ``most`` is how wide the table
    may be on a wider terminal, so that a long text is folded; 0: as wide as that.
    """

    rows: "list[Row]"
    columns: "Sequence[Column]"
    key: str
    whole: Any = None
    empty: str = ""
    beside: "Sequence[RenderableType]" = ()
    most: int = 0


@dataclass(slots=True)
class Report:
    """One answer that is no table: its data, what is shown, and the names that stand in it."""

    value: Any
    parts: "Sequence[RenderableType]"
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shape:
    """How an answer was asked to be shown."""

    output: Output = Output.TABLE
    is_wide: bool = False
    is_watched: bool = False
    interval: float = 2.0
    sort: str = ""
    conditions: tuple[str, ...] = ()


def shown(command: Callable[..., Listing | Report]) -> Callable[..., None]:
    """Return a command that prints what another one returns, with the options for that."""
    own = inspect.signature(command, eval_str=True)
    is_listing = own.return_annotation is Listing

    def run(**taken: Any) -> None:
        client = Client(taken.pop("url"), taken.pop("token"))
        shape = Shape(
            taken.pop("output"),
            taken.pop("wide", False),
            taken.pop("watch"),
            taken.pop("interval"),
            taken.pop("sort", ""),
            tuple(taken.pop("filter", None) or ()),
        )
        show(lambda: command(client, **taken), shape, client)
        if client.away:
            raise typer.Exit(Exit.NO_ANSWER)

    parameters = [*list(own.parameters.values())[1:], *_options(is_listing=is_listing)]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = own.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run


def _options(*, is_listing: bool) -> list[inspect.Parameter]:
    options: list[tuple[str, Any, Any]] = [
        ("output", OutputOption, Output.TABLE),
        *((("wide", Wide, False), ("sort", Sort, ""), ("filter", Filter, None)) * is_listing),
        ("watch", Watch, False),
        ("interval", Interval, 2.0),
        ("url", Url, DEFAULT_URL),
        ("token", Token, ""),
    ]
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, annotation, default in options
    ]


def show(make: Callable[[], Listing | Report], shape: Shape, client: Client | None = None) -> None:
    """Print an answer once, or again and again; what does not work stands on stderr beside it."""
    if not shape.is_watched:
        for line in lines_of(make(), shape):
            _print(line)
        if told := _age_of(client):
            sys.stdout.flush()
            complain(told)
    elif shape.output is Output.TABLE and _can_be_drawn_over():
        _watch_on_terminal(make, shape, client)
    else:
        _watch_in_pipe(make, shape, client)


def _age_of(client: Client | None) -> str:
    """Return what there is to say of an answer while a service is away; "" while none is."""
    if client is None or not client.away:
        return ""
    return f"muster: {client.away}. This is the last known state, {client.age_seconds} s old"


def _can_be_drawn_over() -> bool:
    """Return whether there is a terminal that can go back to where it began."""
    from services.cli.render import console

    return sys.stdout.isatty() and not console().is_dumb_terminal


def _watch_on_terminal(
    make: Callable[[], Listing | Report], shape: Shape, client: Client | None
) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from services.cli.render import console

    out = console()
    with Live(console=out, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                parts = lines_of(make(), shape)
            except ApiError as error:
                parts = [Text(str(error), style="red")]
            else:
                if told := _age_of(client):
                    parts = [Text(told, style="yellow"), *parts]
            head = f"{time.strftime('%H:%M:%S')}, every {shape.interval:g} s; Ctrl-C ends"
            live.update(Group(Text(head, style="dim"), *parts), refresh=True)
            time.sleep(shape.interval)


def _watch_in_pipe(
    make: Callable[[], Listing | Report], shape: Shape, client: Client | None
) -> None:
    """Print all of it first, then the rows, or the whole answer, that are not as before."""
    before: list[Any] | None = None
    told = ""
    while True:
        try:
            answer = make()
        except ApiError as error:
            if before is None:
                raise
            if str(error) != told:
                complain(f"muster: {error}")
            told = str(error)
        else:
            away = client.away if client is not None else ""
            if away and not told:
                complain(_age_of(client))
            told = away
            for line in _news(answer, shape, before):
                _print(line)
            sys.stdout.flush()
            before = _compared(answer, shape)
        time.sleep(shape.interval)


def _news(
    answer: Listing | Report, shape: Shape, before: list[Any] | None
) -> "Sequence[RenderableType]":
    """Return what is to be printed after what was compared before."""
    if before is None:
        return lines_of(answer, shape)
    if isinstance(answer, Listing) and shape.output is Output.TABLE:
        return _changed(answer, shape, before)
    return lines_of(answer, shape) if _compared(answer, shape) != before else []


def _compared(answer: Listing | Report, shape: Shape) -> list[Any]:
    """Return what is compared with the next answer: rows without what changes by itself."""
    if isinstance(answer, Report):
        return [answer.value]
    rows, columns = arranged(answer, shape)
    if shape.output is not Output.TABLE:
        return list(rows)
    return [[c.cell(row).plain for c in columns if not c.is_passing] for row in rows]


def _changed(answer: Listing, shape: Shape, before: list[Any]) -> "list[RenderableType]":
    from services.cli.table import plain_lines

    rows, columns = arranged(answer, shape)
    known = {tuple(cells) for cells in before}
    new = [
        row
        for row in rows
        if tuple(c.cell(row).plain for c in columns if not c.is_passing) not in known
    ]
    return list(plain_lines(new, columns, has_head=False)) if new else []


def arranged(listing: Listing, shape: Shape) -> "tuple[list[Row], list[Column]]":
    """Return the rows that were asked for in their order, and the columns."""
    from services.cli.table import ColumnError, filter_rows, sort_rows

    rows, columns = listing.rows, listing.columns
    try:
        for condition in shape.conditions:
            rows = filter_rows(rows, columns, condition)
        if shape.sort:
            rows = sort_rows(rows, columns, shape.sort)
    except ColumnError as error:
        raise typer.BadParameter(str(error)) from error
    return rows, [column for column in columns if shape.is_wide or not column.is_wide]


def lines_of(answer: Listing | Report, shape: Shape) -> "Sequence[RenderableType]":
    """Return what is printed, one below the other."""
    if shape.output is Output.TABLE:
        return answer.parts if isinstance(answer, Report) else _table_of(answer, shape)
    if isinstance(answer, Listing):
        rows, _ = arranged(answer, shape)
        names = [str(row[answer.key]) for row in rows]
        is_whole = answer.whole is not None and not (shape.sort or shape.conditions)
        value = answer.whole if is_whole else rows
    else:
        names, value = answer.names, answer.value
    if shape.output is Output.NAME:
        return list(names)
    return [as_text(value, shape.output)]


def _table_of(listing: Listing, shape: Shape) -> "list[RenderableType]":
    from services.cli.render import console
    from services.cli.table import plain_lines, terminal_table

    rows, columns = arranged(listing, shape)
    if not rows and listing.empty:
        chosen = " that --filter leaves" if listing.rows else ""
        return [f"{listing.empty}{chosen}", *listing.beside]
    if shape.is_wide or not sys.stdout.isatty():
        return [*plain_lines(rows, columns), *listing.beside]
    width = console().width
    return [terminal_table(rows, columns, min(width, listing.most or width)), *listing.beside]


def table(rows: "list[Row]", columns: "Sequence[Column]") -> "RenderableType":
    """Return a table inside a report, as it is on a terminal or in a pipe."""
    from services.cli.render import console
    from services.cli.table import plain_lines, terminal_table

    columns = [column for column in columns if not column.is_wide]
    if sys.stdout.isatty():
        return terminal_table(rows, columns, console().width)
    return "\n".join(plain_lines(rows, columns))


def as_text(value: Any, output: Output) -> str:
    """Return data as JSON, or as YAML."""
    if output is Output.YAML:
        import yaml

        text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        return text.rstrip("\n")
    import json

    return json.dumps(value, indent=2)


def _print(part: "RenderableType") -> None:
    """Print a line as it is, or what has colours and columns through the console."""
    from services.cli.render import console

    if isinstance(part, str):
        print(part)
    else:
        out: Console = console()
        out.print(part, soft_wrap=not sys.stdout.isatty())
