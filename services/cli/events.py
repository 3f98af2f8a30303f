"""`muster events`: what has happened, and what comes, by the numbers that events have."""

import json
import sys
import time
from datetime import datetime
from typing import Any

import typer

from services.cli.answers import as_text
from services.cli.client import ApiError, Client
from services.cli.options import Output
from services.cli.render import console, in_words
from services.cli.said import complain
from services.cli.table import Column, ColumnError, Row, filter_rows, plain_lines, terminal_table
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from shared.model.sentences import plain_text
from shared.model.units import NANOS_PER_SECOND

_BATCH = 10_000
_LOOK_SECONDS = 1.0


def _of(codes: Any, code: int) -> str:
    """Return the name of a code, or its number where it has none here."""
    return str(codes(code).name) if code in set(codes) else str(code)


def _what(event: Row) -> str:
    change = _of(ChangeType, event.get("eventChangeType", 0))
    detail = _of(ChangeDetail, event.get("eventChangeDetail", 0))
    return change if detail == "DETAILS_NONE" else f"{change} {detail}"


def _sentence(event: Row) -> str:
    amounts = event.get("resource", {}).get("resources", {})
    held = {name: item.get("value", 0) for name, item in amounts.items()}
    parts = (plain_text(event.get("message", "")), event.get("referenceID", ""), in_words(held))
    return "  ".join(part for part in parts if part)


def _time(event: Row) -> str:
    at = datetime.fromtimestamp(event.get("timestampNano", 0) // NANOS_PER_SECOND).astimezone()
    return at.strftime("%H:%M:%S")


EVENTS = (
    Column("TIME", lambda event: event.get("timestampNano", 0), _time),
    Column("TYPE", lambda event: _of(EventType, event.get("type", 0))),
    Column("ABOUT", lambda event: event.get("objectID", "")),
    Column("WHAT", _what),
    Column("MESSAGE", _sentence, wraps=30),
)


def show_events(
    client: Client,
    about: str,
    conditions: tuple[str, ...],
    output: Output,
    *,
    last: int,
    follows: bool,
) -> None:
    """Print the last events, and with ``follows`` those that come, until Ctrl-C."""
    ring = client.get("/ws/v1/events/batch", {"count": "1"})
    first = max(ring["LowestID"], ring["HighestID"] + 1 - _BATCH) if ring["EventRecords"] else 0
    rows, following = _read(client, first, ring["InstanceUUID"])
    chosen = _chosen(rows, about, conditions)
    _print(chosen[len(chosen) - min(last, len(chosen)) :], output, is_first=True)
    while follows:
        sys.stdout.flush()
        time.sleep(_LOOK_SECONDS)
        try:
            rows, following = _read(client, *following)
        except ApiError as error:
            complain(f"muster: {error}")
            continue
        _print(_chosen(rows, about, conditions), output, is_first=False)


def _read(client: Client, first: int, instance: str) -> tuple[list[Row], tuple[int, str]]:
    """Return the events from a number on, and where to read next: again from another instance."""
    found: list[Row] = []
    while True:
        params = {"count": str(_BATCH), "start": str(first)}
        answer = client.get("/ws/v1/events/batch", params)
        if answer["InstanceUUID"] != instance:
            first, instance = answer["LowestID"], answer["InstanceUUID"]
            continue
        if first < answer["LowestID"]:
            gone = answer["LowestID"] - first
            complain(f"muster: {gone} events were missed")
            first = answer["LowestID"]
            continue
        records = answer["EventRecords"] or []
        found += records
        first += len(records)
        if len(records) < _BATCH:
            return found, (first, instance)


def _chosen(rows: list[Row], about: str, conditions: tuple[str, ...]) -> list[Row]:
    if about:
        names = ("objectID", "referenceID")
        rows = [row for row in rows if about in (row.get(name, "") for name in names)]
    try:
        for condition in conditions:
            rows = filter_rows(rows, EVENTS, condition)
    except ColumnError as error:
        raise typer.BadParameter(str(error)) from error
    return rows


def _print(rows: list[Row], output: Output, *, is_first: bool) -> None:
    match output:
        case Output.JSON:
            for row in rows:
                print(json.dumps(row))
        case Output.YAML:
            for row in rows:
                print(f"---\n{as_text(row, Output.YAML)}")
        case Output.NAME:
            for row in rows:
                print(row.get("objectID", ""))
        case Output.TABLE:
            _print_table(rows, is_first=is_first)


def _print_table(rows: list[Row], *, is_first: bool) -> None:
    if not rows:
        if is_first:
            print("no events")
    elif sys.stdout.isatty():
        out = console()
        out.print(terminal_table(rows, EVENTS, out.width, has_head=is_first))
    else:
        print("\n".join(plain_lines(rows, EVENTS, has_head=is_first)))
