"""Lines of a trace: what a line and a column must be before anybody asks what they mean.

A file that begins as an archive of gzip does is unpacked as it is read, whatever its name; a byte
order mark is passed over. Errors have file, line and column, and what was expected.
Limits: MAX_LINE characters a line, MAX_LINES lines, MAX_SECONDS of a time, MAX_COUNT of a number.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from shared.model.quantity import QuantityError, check_whole, parse_pod_quantity
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import TraceError

MAX_LINE = 10_000  # characters of a line of a trace; a longer one is an error
MAX_LINES = 10_000_000  # lines of a trace, including empty ones and comments; more are an error
MAX_SECONDS = 3_000_000_000  # seconds of a time in a trace, some 95 years; a later one is an error
MAX_COUNT = 1000 * MAX_SECONDS  # a whole number in a trace; a larger one is an error
_GZIP = b"\x1f\x8b"
NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
_ZONE = re.compile(r"[+-][0-9]{2}:[0-9]{2}$")
_SHOWN = 60  # characters of what was found


@contextmanager
def opened(file: Path) -> Iterator[TextIO]:
    """Yield a trace's text. Raises TraceError for whatever is wrong with reading it."""
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(file.open("rb"))
            is_archive = raw.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
            data = stack.enter_context(gzip.open(raw)) if is_archive else raw
            yield stack.enter_context(TextIOWrapper(data, encoding="utf-8-sig", newline=""))
    except UnicodeDecodeError as error:
        raise TraceError(f"{file}: this is no text in UTF-8 ({error.reason})") from error
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{file}: {getattr(error, 'strerror', None) or error}") from error


class Line:
    """One line: its columns by name, each read as what it should be, or an error that says so."""

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self.where = where
        self._cells = cells

    def has(self, name: str) -> bool:
        """Return whether there is such a column."""
        return name in self._cells

    def is_set(self, name: str) -> bool:
        """Return whether something stands in a column."""
        return bool(self._cells.get(name, "").strip())

    def text(self, name: str, otherwise: str | None = None) -> str:
        """Return what stands there, or what is meant where nothing does."""
        found = self._cells.get(name, "").strip()
        if found:
            return found
        if otherwise is None:
            raise self.wrong(name, "a value")
        return otherwise

    def number(self, name: str, otherwise: str | None = None) -> float:
        """Return a number that is 0 or more, and no more than a time may be."""
        text = self.text(name, otherwise)
        value = float(text) if NUMBER.fullmatch(text) else -1.0
        if not 0 <= value <= MAX_SECONDS:
            raise self.wrong(name, f"a number from 0 to {MAX_SECONDS}")
        return value

    def known(self, name: str) -> float | None:
        """Return a number, or None where one below 0 says that it is not known (SWF: -1)."""
        text = self.text(name)
        is_unknown = text.startswith("-") and NUMBER.fullmatch(text[1:])
        return None if is_unknown else self.number(name)

    def count(self, name: str, otherwise: str | None = None) -> int:
        """Return a whole number."""
        text = self.text(name, otherwise)
        is_whole = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_COUNT))
        if not is_whole or int(text) > MAX_COUNT:
            raise self.wrong(name, f"a whole number from 0 to {MAX_COUNT}")
        return int(text)

    def seconds_ns(self, name: str, otherwise: str | None = None) -> int:
        """Return a time in seconds as nanoseconds."""
        return round(self.number(name, otherwise) * NANOS_PER_SECOND)

    def moment_ns(self, name: str) -> int:
        """Return a date with its time as nanoseconds of the epoch; in UTC if it does not say."""
        text = self.text(name)
        zone = _ZONE.search(text)
        try:
            at = datetime.strptime(text if zone else f"{text}+00:00", "%Y-%m-%d %H:%M:%S%z")
        except ValueError:
            raise self.wrong(name, "a moment like 2017-10-09 07:01:55") from None
        return int(at.timestamp()) * NANOS_PER_SECOND

    def time_ns(self, name: str) -> int:
        """Return a time in seconds from any moment, or a date with its time, as nanoseconds."""
        text = self.text(name)
        return self.moment_ns(name) if "-" in text and ":" in text else self.seconds_ns(name)

    def quantity(self, name: str, kind: str) -> int:
        """Return an amount as Kubernetes writes it; nothing there is none of it."""
        text = self.text(name, "0")
        try:
            amount = parse_pod_quantity(kind, text)
            check_whole(kind, text)
        except QuantityError as error:
            raise TraceError(f"{self.where}: {name}: {error}") from error
        if amount < 0:
            raise self.wrong(name, "an amount of 0 or more")
        return amount

    def wrong(self, name: str, expected: str) -> TraceError:
        """Return the error that says what was expected in a column."""
        found = self._cells.get(name, "")[:_SHOWN]
        return TraceError(f"{self.where}: {name}: {expected} was expected, found {found!r}")


def numbered(file: Path, lines: TextIO) -> Iterator[tuple[str, str]]:
    """Yield the lines that are not empty, with where they stand. Raises TraceError."""
    number = 0
    while line := lines.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise TraceError(f"{file}: line {number}: at most {MAX_LINE} characters a line")
        if number > MAX_LINES:
            raise TraceError(f"{file}: line {number}: at most {MAX_LINES} lines a trace")
        if line.strip():
            yield f"{file}: line {number}", line


def columns(where: str, heading: str) -> tuple[str, ...]:
    """Return the names of the columns. Raises TraceError."""
    names = tuple(name.strip() for name in heading.strip().split(","))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TraceError(f"{where}: two columns are named {twice[:_SHOWN]!r}")
    return names


def by_column(names: tuple[str, ...], lines: Iterator[tuple[str, str]]) -> Iterator[Line]:
    """Yield lines of comma-separated values. Raises TraceError."""
    for where, line in lines:
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise TraceError(f"{where}: {error}") from error
        if len(cells) != len(names):
            raise TraceError(f"{where}: {len(names)} columns were expected, found {len(cells)}")
        yield Line(where, dict(zip(names, cells, strict=True)))
