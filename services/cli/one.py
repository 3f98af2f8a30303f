"""`muster node`, `muster queue`, `muster user`: one thing, what is in it, what waits, and why."""

from collections.abc import Callable, Iterable
from typing import Any

from services.cli.render import APPLICATIONS, NODES, PODS, hanging, in_words, resource
from services.cli.render import queue_rows as rows_of
from services.cli.render import waits as waits_text
from services.cli.table import Column
from shared.model.amounts import type_text

Row = dict[str, Any]
Table = Callable[..., Any]
_STATE = next(column for column in NODES if column.name == "STATE")
_LABELS = next(column for column in NODES if column.name == "LABELS")
_FIRST = ("vcore", "memory")  # of types
MOST_ENDED = 5  # ended applications of a queue or user; the latest are shown
RESERVED = (
    Column("RESERVED FOR", lambda pod: pod["name"]),
    Column("APPLICATION", lambda pod: pod["applicationID"]),
    Column("RESOURCES", lambda pod: resource(pod["resource"])),
    Column("WHY IT WAITS", lambda pod: _why(pod["waiting"]), wraps=30, is_below=True),
)
FOREIGN = (
    Column("POD OF ANOTHER SCHEDULER", lambda pod: pod["allocationKey"]),
    Column("RESOURCES", lambda pod: resource(pod.get("resource"))),
)
BELOW = (
    Column("QUEUE", lambda row: row["queuename"]),
    Column("USED", lambda row: resource(row.get("allocatedResource")), wraps=15),
    Column("PENDING", lambda row: resource(row.get("pendingResource")), wraps=15),
    Column("MAX", lambda row: resource(row.get("maxResource")), drop=1, wraps=15),
)
USAGE = (
    Column("IN QUEUE", lambda row: row["queuePath"]),
    Column("USED", lambda row: resource(row.get("resourceUsage")), wraps=15),
    Column("AT MOST", lambda row: resource(row.get("maxResources")), wraps=15),
    Column("APPLICATIONS", lambda row: len(row.get("runningApplications", ())), is_number=True),
)
OVER_TIME = (
    Column("IN QUEUE", lambda row: row["queueName"]),
    Column("SHARE NOW", lambda row: _shares(row["usedNow"]) or "-", wraps=20),
    Column("SHARE OVER TIME", lambda row: _shares(row["usedOverTime"]), wraps=20),
)


def _why(waiting: Row | None) -> str:
    return f"{waiting['reason']}: {waiting['message']}" if waiting else ""


def _lines(pairs: Iterable[tuple[str, str]]) -> list[Any]:
    return [hanging(f"{name:<13}{text}") for name, text in pairs if text]


def _without(columns: tuple[Column, ...], *names: str) -> tuple[Column, ...]:
    return tuple(column for column in columns if column.name not in names)


# --- a node ---------------------------------------------------------------------------------------


def node_parts(node: Row, pods: list[Row], waiting: list[Row], table: Table) -> list[Any]:
    """Return a node: what it has, the pods on it, and those that it is reserved for."""
    keys = node.get("reservations", ())
    reserved = [pod for pod in waiting if pod["allocationKey"] in keys]
    foreign = node.get("foreignAllocations", [])
    parts = _lines(
        (
            ("node", node["nodeID"]),
            ("state", str(_STATE.value(node))),
            ("capacity", in_words(node.get("capacity"))),
            ("allocated", in_words(node.get("allocated"))),
            ("occupied", in_words(node["occupied"]) if foreign else ""),
            ("available", in_words(node.get("available"))),
            ("labels", str(_LABELS.value(node))),
            ("pods", f"{len(pods)}" + (f", {len(foreign)} of other schedulers" * bool(foreign))),
        )
    )
    if pods:
        parts += ["", table(pods, _without(PODS, "NODE", "WHY"))]
    if foreign:
        parts += ["", table(foreign, FOREIGN)]
    if reserved:
        parts += ["", table(reserved, RESERVED)]
    return parts


# --- a queue --------------------------------------------------------------------------------------


def find_queue(root: Row, path: str) -> Row | None:
    """Return a queue of a tree by its whole path, or by its last name where only one has it."""
    rows = rows_of(root)
    exact = [row for row in rows if row["queuename"] == path]
    ending = [row for row in rows if row["queuename"].rpartition(".")[2] == path]
    found = exact or (ending if len(ending) == 1 else [])
    return found[0] if found else None


def queue_parts(queue: Row, applications: list[Row], table: Table) -> list[Any]:
    """Return a queue: its limits and use, what holds it back, who is in it and below it."""
    path = queue["queuename"]
    most = queue.get("maxRunningApps", 0)
    running = queue.get("runningApps", 0)
    parts = _lines(
        (
            ("queue", path + ("" if queue["isManaged"] else "  (dynamic)")),
            ("status", queue.get("status", "")),
            ("guaranteed", in_words(queue.get("guaranteedResource"))),
            ("max", in_words(queue.get("maxResource"))),
            ("used", in_words(queue.get("allocatedResource"))),
            ("pending", in_words(queue.get("pendingResource"))),
            *_over_time(queue.get("overTime")),
            *(
                ("user", f"{name}: {_shares(shares)} over time")
                for name, shares in queue.get("usersOverTime", {}).items()
            ),
            ("weight", _weights(queue.get("weightOverQuota", {}))),
            ("fair share", in_words(queue.get("fairShare"))),
            ("applications", f"{running} running" + (f" of at most {most}" if most else "")),
            *(("held back by", waits_text(item)) for item in queue["waiting"]),
        )
    )
    if queue.get("children"):
        parts += ["", table(queue["children"], BELOW)]
    return parts + _applications(_within(applications, path), table)


def _over_time(usage: Row | None) -> list[tuple[str, str]]:
    """Return which share of the cluster is used now, and over time; nothing if not counted."""
    if not usage or not usage["queues"]:
        return []
    (row,) = usage["queues"]
    return [
        ("share now", _shares(row["usedNow"]) or "none"),
        ("over time", f"{_shares(row['usedOverTime'])}{memory_text(usage)}"),
    ]


def memory_text(usage: Row) -> str:
    """Return how usage over time is forgotten: "  (half-life 168h)"."""
    said = [
        f"{label} {usage[key]}"
        for key, label in (("usageHalfLife", "half-life"), ("usageWindow", "window"))
        if usage[key]
    ]
    return f"  ({', '.join(said)})" if said else ""


def _shares(shares: dict[str, float]) -> str:
    """Return shares of the cluster by type: ``30 % of vcore``."""
    names = sorted(shares, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return ", ".join(f"{shares[name] * 100:.3g} % of {type_text(name)}" for name in names)


def _weights(weights: dict[str, float]) -> str:
    return ", ".join(f"{name} {weight:.3f}" for name, weight in weights.items())


def _within(applications: list[Row], path: str) -> list[Row]:
    return [row for row in applications if f"{row['queueName']}.".startswith(f"{path}.")]


def _applications(rows: list[Row], table: Table) -> list[Any]:
    """Return applications as a table: those that wait first, then what runs, the latest ended."""
    ended = [row for row in rows if row["hasEnded"]]
    live = sorted((row for row in rows if not row["hasEnded"]), key=lambda row: not row["waiting"])
    shown = [*live, *ended[-MOST_ENDED:]]
    if not shown:
        return ["", "no applications"]
    left = len(ended) - MOST_ENDED
    more = [f"and {left} more that have ended: `muster apps`"] if left > 0 else []
    return ["", table(shown, APPLICATIONS), *more]


# --- a user ---------------------------------------------------------------------------------------


def user_parts(user: Row, applications: list[Row], table: Table) -> list[Any]:
    """Return a user: what they use in each queue, of how much, and their applications."""
    groups = ", ".join(dict.fromkeys(user.get("groups", {}).values()))
    parts = _lines((("user", user["userName"]), ("groups", groups)))
    over_time = user.get("overTime", {"queues": []})
    if over_time["queues"]:
        parts += ["", table(over_time["queues"], OVER_TIME)]
        parts += _lines((("usage", f"counted over time{memory_text(over_time)}"),))
    usage = [row for row in _usage_rows(user.get("queues", {})) if _is_shown(row)]
    if usage:
        parts += ["", table(usage, USAGE)]
    own = [row for row in applications if row.get("user") == user["userName"]]
    return parts + _applications(own, table)


def _usage_rows(usage: Row) -> list[Row]:
    below = [row for child in usage.get("children", []) for row in _usage_rows(child)]
    return [usage, *below] if usage else []


def _is_shown(row: Row) -> bool:
    return bool(row.get("resourceUsage") or row.get("maxResources"))
