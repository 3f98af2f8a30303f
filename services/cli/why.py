"""What `muster why` shows: the sentence, then the evidence, as far as there is any."""

from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any

from services.cli.render import age, hanging, waits
from services.cli.table import Column
from shared.model.amounts import amounts_text, number_text
from shared.model.reasons import PLACEHOLDER_CREATE_FAILED

Answer = dict[str, Any]


def _number(name: str) -> Column:
    def text(row: Answer) -> str:
        return number_text(row["resource"], row[name])

    return Column(name.upper(), lambda row: row[name], text, is_number=True)


MOST_DOMAINS = 4  # domains of a level that a gang uses; more are counted
LIMITS = (
    Column("LIMIT OF", lambda row: row["owner"]),
    Column("IN", lambda row: row["queueName"], is_wide=True),
    Column("TYPE", lambda row: row["resource"]),
    *map(_number, ("max", "used", "headroom", "need", "lacks")),
)
NODES = (
    Column("CLASS OF NODES", lambda row: row["class"], wraps=30),
    Column("NODES", lambda row: row["nodes"], is_number=True),
    Column("FAIL", lambda row: row["fails"], is_number=True),
    Column("ON", lambda row: row["what"]),
)
GROUPS = (
    Column("TASK GROUP", lambda row: row["name"]),
    Column("WANTED", lambda row: row["wanted"], is_number=True),
    Column("HELD", lambda row: row["held"], is_number=True),
    Column("REPLACED", lambda row: row["replaced"], is_number=True),
    Column("MISSING", lambda row: row["missing"], is_number=True),
    Column("WHY", lambda row: row["why"], wraps=40, is_below=True),
)
EVICTIONS = (
    Column("AGO", lambda row: row["time"], lambda row: age(row["time"]), is_passing=True),
    Column("VICTIM", lambda row: row["victimName"] or row["victim"]),
    Column("OF", lambda row: row["victimApplication"], drop=3),
    Column("ON", lambda row: row["nodeID"], drop=4),
    Column("FOR", lambda row: row["winner"]),
    Column("POLICY", lambda row: row["law"]),
)


def why_parts(answer: Answer, table: Callable[..., Any]) -> list[Any]:
    """Return what is shown of an answer; what is wrong with its gang comes first."""
    parts: list[Any] = [hanging(line) for line in _lines(answer)]
    nodes = answer["nodes"] or {"classes": []}
    failures = [
        {"class": item["class"], "nodes": item["nodes"], "what": failure["what"],
         "fails": failure["nodes"]}
        for item in nodes["classes"] for failure in item["fails"]
    ]  # fmt: skip
    short = [row for row in (*answer["queues"], *answer["limits"]) if row["resource"] != "pods"]
    gang = answer["gang"] or {"groups": []}
    for rows, columns in (
        (short, LIMITS),
        (failures, NODES),
        (gang["groups"], GROUPS),
        (answer["evictions"], EVICTIONS),
    ):
        if rows:
            parts += ["", table(rows, columns)]
    return parts


def _held_back(wait: Answer) -> str:
    """Say how many pods are not asked for yet, and which are the first."""
    count, named = wait["asks"], wait["pods"]
    more = f" and {count - len(named)} more" if count > len(named) else ""
    pods = "1 pod" if count == 1 else f"{count} pods"
    return f"held back    {pods}, not submitted yet: {', '.join(named)}{more}"


def _domains(item: Answer) -> str:
    """Say in which domains of a level a gang's pods are, and how many in each."""
    shown = list(islice(item["pods"].items(), MOST_DOMAINS))
    rest = len(item["pods"]) - len(shown)
    pods = ", ".join(f"{name} {count}" for name, count in shown)
    return f"is in        {item['level']}: {pods}{f' and {rest} more' if rest else ''}"


def _since(answer: Answer) -> str:
    """Return for how long it has been so, or how long ago it ended; "" where that is not known."""
    if not answer["since"]:
        return ""
    for_how_long = age(answer["since"])
    is_over = answer["verdict"] in ("ended", "rejected", "evicted")
    return f" ({for_how_long} ago)" if is_over else f" (for {for_how_long})"


def _lines(answer: Answer) -> Iterator[str]:
    for item in answer["mismatches"]:
        label = "gang" if item["reason"] == PLACEHOLDER_CREATE_FAILED else "mismatch"
        yield f"{label:<13}{item['message']}"
    yield f"why          {answer['sentence']}{_since(answer)}"
    yield from map(_held_back, filter(itemgetter("heldBack"), answer["waits"]))
    for item in answer["waits"][1:]:
        yield f"also         {waits(item)}"
    if answer["nodes"] and answer["verdict"] == "waiting":
        yield f"would help   {answer['nodes']['nearest']['cure']}"
    if answer["need"]:
        yield f"needs        {amounts_text(answer['need'])}"
    yield from map(_domains, (answer["gang"] or {}).get("domains", ()))
    for item in answer["waitsFor"]:
        yield f"waits for    {item['kind']} {item['name']}: {item['text']}"
    for item in answer["log"]:
        times = "once" if item["count"] == 1 else f"{item['count']} times"
        yield f"attempts     {item['message']} ({times})"
