"""Tables: which columns there are, which go where there is no room, and rows sorted and chosen.

Rule 1: on a terminal a table is as wide as that. Of the columns that may go, each stays that has
        room, those with the lowest ``drop`` first; then the column that wraps takes what is left,
        on as many lines as it needs, or stands below its row. Nothing is cut.
Rule 2: in a pipe, and with ``--wide``, every column is there and every row is one line.
Rule 3: a column in which nothing stands goes from a terminal, if it may go at all.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Group
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from services.cli.said import printable
from shared.model.quantity import QuantityError, parse_pod_quantity

GAP = 2
INDENT = 4
_LEAST = 8
_DIGITS = re.compile(r"(\d+)")
_CONDITION = re.compile(r"^([^=!<>~]+?)(!=|>=|<=|=|~|<|>)(.*)$", re.DOTALL)

Row = dict[str, Any]


class ColumnError(ValueError):
    """A column or a condition that is none; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what it is sorted by, and how that is written.

    ``drop`` 0 stays always; ``wraps`` is the least width of a text that may wrap, 0 for none;
    ``is_below`` stands below its row where the whole has no room beside it, once for rows in which
    it is the same; ``is_wide`` shows with ``--wide`` only; ``is_passing`` changes by itself, as an
    age does.
    """

    name: str
    value: Callable[[Row], Any]
    text: Callable[[Row], Text | str] | None = None
    drop: int = 0
    is_number: bool = False
    wraps: int = 0
    is_below: bool = False
    is_wide: bool = False
    is_passing: bool = False

    def cell(self, row: Row) -> Text:
        """Return what stands in a row; control characters are seen, not obeyed."""
        text = self.text(row) if self.text is not None else self.value(row)
        if isinstance(text, Text):
            return text
        return Text(printable("" if text is None else str(text)))


# --- which rows, in which order -----------------------------------------------------------------


def find_column(columns: Sequence[Column], name: str) -> Column:
    """Return the column of that name in any case. Raises ColumnError."""
    wanted = name.strip().upper().replace("-", " ").replace("_", " ")
    for column in columns:
        if column.name == wanted:
            return column
    there_are = ", ".join(column.name.replace(" ", "-") for column in columns)
    raise ColumnError(f"there is no column {name.strip()!r}; there are {there_are}")


def sort_rows(rows: list[Row], columns: Sequence[Column], name: str) -> list[Row]:
    """Return the rows by a column, the largest first with a ``-``; what has nothing comes last."""
    descending = name.startswith("-")
    column = find_column(columns, name.removeprefix("-"))
    full = [row for row in rows if column.value(row) not in (None, "")]
    empty = [row for row in rows if column.value(row) in (None, "")]
    return sorted(full, key=lambda row: _order(column.value(row)), reverse=descending) + empty


def _order(value: object) -> tuple[Any, ...]:
    """Return what sorts a value: numbers as such, and numbers in names, too: n2 before n10."""
    if isinstance(value, int | float):
        return (0, value)
    parts = _DIGITS.split(str(value).lower())
    return (1, *((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts))


def filter_rows(rows: list[Row], columns: Sequence[Column], condition: str) -> list[Row]:
    """Return the rows for which a condition holds; without a column it is a text somewhere.

    Raises ColumnError.
    """
    match = _CONDITION.match(condition)
    if match is None:
        wanted = condition.lower()
        return [row for row in rows if any(wanted in _plain(c, row).lower() for c in columns)]
    column = find_column(columns, match[1])
    holds = _condition(column, match[2], match[3].strip())
    return [row for row in rows if holds(row)]


def _condition(column: Column, operator: str, wanted: str) -> Callable[[Row], bool]:
    if operator in (">", "<", ">=", "<="):
        most = _number(column, wanted)
        return lambda row: _compares(column.value(row), operator, most)
    text = wanted.lower()
    if operator == "~":
        return lambda row: text in _plain(column, row).lower()

    def is_equal(row: Row) -> bool:
        return text in (_plain(column, row).lower(), str(column.value(row)).lower())

    return is_equal if operator == "=" else lambda row: not is_equal(row)


def _number(column: Column, text: str) -> int:
    try:
        return parse_pod_quantity("vcore", text)  # in milli, so that halves count
    except QuantityError as error:
        raise ColumnError(
            f"{column.name}: {error}: expected a number such as 8, 0.5, 10Gi"
        ) from error


def _compares(value: object, operator: str, milli: int) -> bool:
    if not isinstance(value, int | float):
        return False
    own = value * 1000
    return {">": own > milli, "<": own < milli, ">=": own >= milli, "<=": own <= milli}[operator]


def _plain(column: Column, row: Row) -> str:
    return column.cell(row).plain


# --- how it looks -------------------------------------------------------------------------------


def plain_lines(rows: list[Row], columns: Sequence[Column], *, has_head: bool = True) -> list[str]:
    """Return a table as lines for a pipe: nothing cut, nothing wrapped (rule 2)."""
    cells = [[_plain(column, row) for column in columns] for row in rows]
    head = [[column.name for column in columns]] if has_head else []
    widths = [max(map(cell_len, texts)) for texts in zip(*head, *cells, strict=True)]
    return [_line(texts, columns, widths) for texts in (*head, *cells)]


def _line(texts: list[str], columns: Sequence[Column], widths: list[int]) -> str:
    parts: list[str] = []
    for text, column, width in zip(texts, columns, widths, strict=True):
        space = " " * (width - cell_len(text))
        parts.append(space + text if column.is_number else text + space)
    return (" " * GAP).join(parts).rstrip()


def terminal_table(
    rows: list[Row], columns: Sequence[Column], width: int, *, has_head: bool = True
) -> Group:
    """Return a table that is at most as wide as the terminal (rules 1 to 3)."""
    cells = {column.name: [column.cell(row) for row in rows] for column in columns}
    chosen = [c for c in columns if not (c.drop and rows and not any(cells[c.name]))]
    natural = {
        c.name: max([cell_len(c.name), *(cell_len(text.plain) for text in cells[c.name])])
        for c in chosen
    }
    is_tight = sum(natural.values()) + GAP * (len(chosen) - 1) > width
    below = [c for c in chosen if c.is_below and is_tight]
    chosen = _with_room([c for c in chosen if c not in below], natural, width)
    widths = _widths(chosen, natural, width)
    notes = [
        "\n".join(filter(None, (cells[c.name][at].plain for c in below))) for at in range(len(rows))
    ]
    parts: list[Table | Constrain] = []
    for run in _runs(notes, is_joined=not below):
        table = _empty_table(chosen, widths, has_head=has_head and not parts)
        for at in run:
            table.add_row(*(cells[column.name][at] for column in chosen))
        note = notes[run[0]]
        said = f"all {len(run)}: {note}" if len(run) > 1 else note
        below_row = Constrain(Padding(Text(said), (0, 0, 0, INDENT)), width)
        parts += [table, *[below_row] * bool(note)]
    return Group(*parts or [_empty_table(chosen, widths, has_head=has_head)])


def _runs(notes: list[str], *, is_joined: bool) -> list[list[int]]:
    """Return the rows that have one note in common, one after the other; each is a table."""
    runs: list[list[int]] = []
    for at, note in enumerate(notes):
        if runs and (is_joined or note == notes[at - 1]):
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _empty_table(columns: list[Column], widths: dict[str, int], *, has_head: bool) -> Table:
    table = Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, GAP, 0, 0),
        show_header=has_head,
    )
    for column in columns:
        table.add_column(
            column.name,
            justify="right" if column.is_number else "left",
            width=widths[column.name],
            overflow="fold",
        )
    return table


def _with_room(columns: list[Column], natural: dict[str, int], width: int) -> list[Column]:
    """Return the columns that stay, and of the others those that have room, in order of drop."""
    kept = {column.name for column in columns if not column.drop}
    for column in sorted((c for c in columns if c.drop), key=lambda c: c.drop):
        with_it = [c for c in columns if c.name in kept or c is column]
        if _least(with_it, natural) <= width:
            kept.add(column.name)
    return [column for column in columns if column.name in kept]


def _least(columns: list[Column], natural: dict[str, int]) -> int:
    """Return how wide a table must be for nothing but its texts to wrap."""
    return sum(_least_of(c, natural) for c in columns) + GAP * (len(columns) - 1)


def _least_of(column: Column, natural: dict[str, int]) -> int:
    own = natural[column.name]
    return min(own, max(column.wraps, cell_len(column.name))) if column.wraps else own


def _widths(columns: list[Column], natural: dict[str, int], width: int) -> dict[str, int]:
    """Return each column's width: first what wraps gives way, then the widest of the others."""
    widths = {column.name: natural[column.name] for column in columns}
    least = {column.name: _least_of(column, natural) for column in columns}
    over = sum(widths.values()) + GAP * (len(columns) - 1) - width
    while over > 0 and (spare := [name for name in widths if widths[name] > least[name]]):
        widths[max(spare, key=lambda name: widths[name])] -= 1
        over -= 1
    while over > 0 and max(widths.values(), default=0) > _LEAST:
        widths[max(widths, key=lambda name: widths[name])] -= 1
        over -= 1
    return widths


def with_indent(column: Column, depth: Callable[[Row], int]) -> Column:
    """Return a column whose rows stand further in, the deeper they are in a tree."""
    return replace(column, text=lambda row: "  " * depth(row) + str(column.value(row)))
