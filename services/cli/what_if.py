"""What `muster what-if` asks, and what it shows."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from services.cli.client import Client, RefusedError
from services.cli.files import text_of
from services.cli.render import hanging
from services.cli.table import Column
from shared.model.units import NANOS_PER_SECOND

PATH = "/v1/what-if"


def _where(row: dict[str, Any]) -> str:
    """Return the nodes with how many pods each would get, in the order of the first pod."""
    counts: dict[str, int] = {}
    for place in row["places"]:
        counts[place["nodeID"]] = counts.get(place["nodeID"], 0) + 1
    return ", ".join(f"{node} ({n})" if n > 1 else node for node, n in counts.items())


def _why(row: dict[str, Any]) -> str:
    why = f"{row['reason']}: {row['message']}" if row["reason"] else str(row["message"])
    return "; ".join(filter(None, (why, _start(row))))


def _start(row: dict[str, Any]) -> str:
    """Say when all of an application is expected to have started, or why that is not known."""
    if not row["expectedStart"]:
        return str(row["noStart"])
    at = datetime.fromtimestamp(row["expectedStart"] // NANOS_PER_SECOND).astimezone()
    said = f"all of it is expected to have started by {at:%Y-%m-%d %H:%M:%S}"
    if row["latestStart"] <= row["expectedStart"]:
        return said
    latest = datetime.fromtimestamp(row["latestStart"] // NANOS_PER_SECOND).astimezone()
    return f"{said}, in nine of ten cases by {latest:%Y-%m-%d %H:%M:%S}"


def _becomes(row: dict[str, Any]) -> str:
    return _BECOMES[row["change"]]


_BECOMES = {"comes": "come", "drains": "drain", "stays": "stay", "changed": "change"}
OUTCOMES = (
    Column("APPLICATION", lambda row: row["applicationID"]),
    Column("QUEUE", lambda row: row["queueName"], drop=2),
    Column("WANTED", lambda row: row["wanted"], is_number=True),
    Column("START NOW", lambda row: row["placed"], is_number=True),
    Column("AFTER EVICTIONS", lambda row: row["afterEvictions"], drop=3, is_number=True),
    Column("WHERE", _where, wraps=20),
    Column("WHY NOT MORE", _why, wraps=40, is_below=True),
)
EVICTED = (
    Column("WOULD BE EVICTED", lambda row: row["victimName"] or row["victim"]),
    Column("OF", lambda row: row["applicationID"]),
    Column("ON", lambda row: row["nodeID"]),
    Column("FOR", lambda row: row["winner"] or "its queue's max"),
    Column("POLICY", lambda row: row["law"]),
)
QUEUES = (
    Column("QUEUE", lambda row: row["queueName"] or "the partition"),
    Column("WOULD", _becomes),
    Column("APPLICATIONS", lambda row: row["applications"], is_number=True),
    Column("CHANGED", lambda row: ", ".join(row["changed"]), wraps=24),
)


def ask(
    client: Client,
    manifest: Path | None,
    queues: str,
    rest: dict[str, Any],
    where: dict[str, str],
) -> dict[str, Any]:
    """Return the answer to a question; one that has none is an error.

    ``queues`` is a queue configuration's text, "" for none.
    """
    question = {key: value for key, value in rest.items() if value}
    if manifest is not None:
        question["manifest"] = _text(manifest)
    if queues:
        question["queues"] = queues
    if not question:
        raise typer.BadParameter(
            "nothing to change: give at least one of -f, --add-nodes, --drain, --delete and "
            "--queues"
        )
    answer: dict[str, Any] = client.post(PATH, _json(question), where)
    if not answer["done"]:
        raise RefusedError(answer["sentence"])
    return answer


def _text(file: Path) -> str:
    try:
        return text_of(file)
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{file}: not UTF-8: {error}") from error


def _json(value: dict[str, Any]) -> bytes:
    import json

    return json.dumps(value).encode()


def what_if_parts(answer: dict[str, Any], table: Callable[..., Any]) -> list[Any]:
    """Return what is shown of an answer."""
    rows = {item["applicationID"]: item for kind in ("starts", "waits", "rejected")
            for item in answer[kind]}  # fmt: skip
    parts: list[Any] = [hanging(f"what if      {answer['sentence']}")]
    parts += [
        hanging(f"refused      document {item['document']}: {item['field']}: {item['message']}")
        for item in answer["refused"]
    ]
    if rows:
        parts += ["", table(list(rows.values()), OUTCOMES)]
    if answer["evicted"]:
        parts += ["", table(answer["evicted"], EVICTED)]
    if answer["queues"]:
        parts += ["", table(answer["queues"], QUEUES)]
    return parts
