"""`muster top`: who uses how much of what there is, the fullest first."""

from collections.abc import Callable
from typing import Any

from services.cli.answers import Listing
from services.cli.render import quantity, queue_rows, resource
from services.cli.table import Column, Row

_USUAL = ("vcore", "memory")


def _amounts(row: Row, kind: str) -> dict[str, int]:
    return dict(row.get(kind) or {})


def _types(rows: list[Row], kind: str) -> list[str]:
    """Return the types that a column is shown for: the usual ones, then those that are there."""
    there = sorted({name for row in rows for name in _amounts(row, kind)} - {*_USUAL, "pods"})
    return [*_USUAL, *there]


def _used(name: str, used: str, most: str) -> Callable[[Row], str]:
    """Return what writes how much is used, of how much where that is limited."""

    def text(row: Row) -> str:
        own, limit = _amounts(row, used).get(name, 0), _amounts(row, most).get(name)
        if limit is None:
            return quantity(name, own)
        return f"{quantity(name, own)}/{quantity(name, limit)}"

    return text


def _percent(name: str, used: str, most: str) -> Callable[[Row], int | None]:
    def value(row: Row) -> int | None:
        limit = _amounts(row, most).get(name, 0)
        return _amounts(row, used).get(name, 0) * 100 // limit if limit else None

    return value


def _columns(rows: list[Row], used: str, most: str) -> list[Column]:
    columns: list[Column] = []
    for at, name in enumerate(_types(rows, most or used)):
        text = _used(name, used, most)
        short = name.rsplit("/", 1)[-1].upper()
        columns.append(Column(short, _value(name, used), text, drop=2 * at + 2, is_number=True))
        if most:
            share = _percent(name, used, most)
            columns.append(
                Column(f"{short}%", share, _with_percent(share), drop=2 * at + 1, is_number=True)
            )
    return columns


def _value(name: str, used: str) -> Callable[[Row], Any]:
    return lambda row: _amounts(row, used).get(name, 0)


def _with_percent(share: Callable[[Row], int | None]) -> Callable[[Row], str]:
    return lambda row: "" if share(row) is None else f"{share(row)}%"


def _fullest(rows: list[Row], used: str, most: str) -> list[Row]:
    """Return the rows by their fullest type, else by the vcores that they use."""
    types = _types(rows, most or used)

    def fullness(row: Row) -> tuple[int, int]:
        shares = [_percent(name, used, most)(row) or 0 for name in types] if most else [0]
        return (-max(shares), -_amounts(row, used).get("vcore", 0))

    return sorted(rows, key=fullness)


def top_nodes(nodes: list[Row]) -> Listing:
    """Return the nodes by use."""
    columns = (
        Column("NODE", lambda node: node["nodeID"]),
        Column("PODS", lambda node: len(node.get("allocations", ())), is_number=True),
        *_columns(nodes, "allocated", "capacity"),
    )
    return Listing(_fullest(nodes, "allocated", "capacity"), columns, "nodeID", empty="no nodes")


def top_queues(root: Row) -> Listing:
    """Return the leaf queues by use."""
    leaves = [queue for queue in queue_rows(root) if queue["isLeaf"]]
    columns = (
        Column("QUEUE", lambda queue: queue["queuename"]),
        Column("APPS", lambda queue: queue.get("runningApps", 0), is_number=True),
        *_columns(leaves, "allocatedResource", "maxResource"),
        Column("PENDING", lambda q: resource(q.get("pendingResource")), drop=1, wraps=18),
    )
    rows = _fullest(leaves, "allocatedResource", "maxResource")
    return Listing(rows, columns, "queuename", empty="no queues")


def top_applications(applications: list[Row]) -> Listing:
    """Return the applications by what they use."""
    columns = (
        Column("APPLICATION", lambda item: item["applicationID"]),
        Column("QUEUE", lambda item: item["queueName"], drop=1),
        Column("PODS", lambda item: len(item.get("allocations", ())), is_number=True),
        *_columns(applications, "usedResource", ""),
    )
    rows = _fullest(applications, "usedResource", "")
    return Listing(rows, columns, "applicationID", empty="no applications")


def top_users(users: list[Row]) -> Listing:
    """Return the users by what they use."""
    rows = [{**user, "usedResource": user["queues"].get("resourceUsage", {})} for user in users]
    columns = (
        Column("USER", lambda user: user["userName"]),
        *_columns(rows, "usedResource", ""),
    )
    return Listing(_fullest(rows, "usedResource", ""), columns, "userName", empty="no users")
