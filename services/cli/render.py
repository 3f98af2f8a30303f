"""What users see: the columns of every table, amounts as users write them, states in colour."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.cli.said import printable
from services.cli.table import Column, Row, with_indent
from shared.model.amounts import amount_text, type_text
from shared.model.gpus import GPU
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND

_COLOURS = {
    "Running": "green",
    "Allocated": "green",
    "Stuck": "red",
    "Ready": "green",
    "Pending": "yellow",
    "Draining": "yellow",
    "Drained": "yellow",
    "Accepted": "yellow",
    "Completing": "cyan",
    "Completed": "blue",
    "Failed": "red",
    "Failing": "red",
    "Rejected": "red",
    "Resuming": "magenta",
}
_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
_BAR_WIDTH = 12
NO_PRIORITY = -(2**31)
_BYTES = ("memory", "ephemeral-storage")
PODS_TYPE = "pods"
_COMPUTE = ("vcore", "memory")
_FIRST = (*_COMPUTE, PODS_TYPE)
WIDE = 240  # columns, where there is no terminal that says


def quantity(name: str, value: int) -> str:
    """Return an amount as users write it: cores for vcore, binary units for memory."""
    if name == "vcore":
        return f"{value / 1000:g}"
    if name in _BYTES or name.startswith("hugepages-"):
        for unit, suffix in _UNITS:
            if value >= unit:
                return f"{value / unit:.4g}{suffix}"
    return str(value)


def resource(amounts: dict[str, int] | None) -> str:
    """Return a resource in one line, the usual types first; an empty one is a dash."""
    held = amounts or {}
    names = [name for name in _FIRST if name in held]
    names += sorted(name for name in held if name not in _FIRST)
    return ", ".join(f"{name} {quantity(name, held[name])}" for name in names) or "-"


def in_words(amounts: dict[str, int] | None) -> str:
    """Return a resource as a sentence says it: "1.5 vcore, 64 GiB memory, 2 pods"; "" for none."""
    held = amounts or {}
    names = [name for name in _COMPUTE if name in held]
    names += sorted(name for name in held if name not in _FIRST)
    names += [PODS_TYPE] * (PODS_TYPE in held)
    return ", ".join(_in_words(name, held[name]) for name in names)


def _in_words(name: str, value: int) -> str:
    is_one_pod = name == PODS_TYPE and value == 1
    return "1 pod" if is_one_pod else amount_text(name, value)


def console() -> Console:
    """Return a console as wide as the terminal, or WIDE where there is none."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)


def state_text(state: str) -> Text:
    """Return a state in its colour."""
    return Text(state, style=_COLOURS.get(state, ""))


def gang_bar(placeholders: dict[str, int]) -> Text:
    """Return a gang's progress as a bar: replaced, held, and still wanted."""
    wanted = placeholders["wanted"]
    if not wanted:
        return Text("")
    full = min(_BAR_WIDTH, _BAR_WIDTH * placeholders["replaced"] // wanted)
    half = min(_BAR_WIDTH - full, _BAR_WIDTH * placeholders["held"] // wanted)
    bar = Text("█" * full, style="green")
    bar.append("▒" * half, style="yellow")
    bar.append("·" * (_BAR_WIDTH - full - half), style="dim")
    return bar


def why(item: dict[str, Any]) -> str:
    """Return what an application waits for, or what was last said of it."""
    if item["waiting"]:
        return f"{item['waiting'][0]['reason']}: {item['waiting'][0]['message']}"
    return str(item["message"])


def waits(item: dict[str, Any]) -> str:
    """Return what pods wait for, and how many."""
    plural = "" if item["asks"] == 1 else "s"
    return f"{item['asks']} pod{plural}: {item['reason']}: {item['message']}"


def age(since_ns: int, now_ns: int | None = None) -> str:
    """Return how long ago a moment was, in its two largest units; "" for none."""
    if not since_ns:
        return ""
    left = max(0, (time.time_ns() if now_ns is None else now_ns) - since_ns) // NANOS_PER_SECOND
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= seconds or (unit == "s" and not parts):
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    return "".join(parts[:2])


def _amount(kind: str) -> Callable[[Row], str]:
    return lambda row: resource(row.get(kind))


# --- applications -------------------------------------------------------------------------------


def _count(name: str) -> Callable[[Row], int | None]:
    return lambda item: item["placeholders"][name] if item["placeholders"]["wanted"] else None


def _share(item: Row) -> int | None:
    """Return how full a gang is, in percent."""
    gang = item["placeholders"]
    return (gang["held"] + gang["replaced"]) * 100 // gang["wanted"] if gang["wanted"] else None


APPLICATIONS = (
    Column("APPLICATION", lambda item: item["applicationID"]),
    Column("QUEUE", lambda item: item["queueName"], drop=3),
    Column("STATE", lambda item: item["state"], lambda item: state_text(item["state"])),
    Column("GANG", _share, lambda item: gang_bar(item["placeholders"]), drop=2),
    Column("WANTED", _count("wanted"), drop=6, is_number=True),
    Column("HELD", _count("held"), drop=7, is_number=True),
    Column("REPLACED", _count("replaced"), drop=8, is_number=True),
    Column("RUNNING", lambda item: item["running"], drop=4, is_number=True),
    Column("PENDING", lambda item: item["pending"], drop=5, is_number=True),
    Column(
        "AGE", lambda item: item["submissionTime"], lambda item: age(item["submissionTime"]),
        drop=9, is_number=True, is_passing=True, is_wide=True,
    ),
    Column("WHY", why, wraps=40),
)  # fmt: skip
GROUPS = (
    Column("TASK GROUP", lambda group: group["name"]),
    Column("WANTED", lambda group: group["wanted"], is_number=True),
    Column("HELD", lambda group: group["held"], is_number=True),
    Column("REPLACED", lambda group: group["replaced"], is_number=True),
    Column("TIMED OUT", lambda group: group["timedout"], is_number=True),
)


def with_partition(rows: list[Row], columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of rows, with their partition where one is not of the default one."""
    if not any("partition" in row for row in rows):
        return (*columns,)
    own = Column("PARTITION", lambda row: row.get("partition", DEFAULT_PARTITION))
    return (columns[0], own, *columns[1:])


PODS = (
    Column("POD", lambda pod: pod["name"]),
    Column("APPLICATION", lambda pod: pod["applicationID"], drop=2),
    Column("QUEUE", lambda pod: pod["queueName"], is_wide=True),
    Column("NAMESPACE", lambda pod: pod["namespace"], is_wide=True),
    Column("STATE", lambda pod: pod["state"], lambda pod: state_text(pod["state"])),
    Column("NODE", lambda pod: pod["nodeID"]),
    Column("TASK GROUP", lambda pod: pod["taskGroupName"], drop=4),
    Column("RESOURCES", _amount("resource"), drop=5),
    Column("PRIORITY", lambda pod: pod["priority"], is_number=True, is_wide=True),
    Column(
        "AGE", lambda pod: pod["requestTime"], lambda pod: age(pod["requestTime"]),
        is_number=True, is_passing=True, is_wide=True,
    ),
    Column("KEY", lambda pod: pod["allocationKey"], is_wide=True),
    Column("WHY", lambda pod: _waited(pod["waiting"]), wraps=40, is_below=True),
)  # fmt: skip


def _waited(waiting: dict[str, Any] | None) -> str:
    return f"{waiting['reason']}: {waiting['message']}" if waiting else ""


def application_parts(detail: dict[str, Any], table: Callable[..., Any]) -> list[Any]:
    """Return one application: its progress, its groups, its pods and what it waits for."""
    info = detail["application"]
    states = " → ".join(item["applicationState"] for item in info.get("stateLog", []))
    gang = detail["placeholders"]
    lines = [
        f"application  {detail['applicationID']}",
        f"queue        {detail['queueName']}",
        f"state        {detail['state']}" + (f"  ({states})" if states else ""),
        *[f"why          {why(detail)}"] * bool(why(detail)),
        f"pods         {detail['running']} running, {detail['pending']} pending",
        f"used         {in_words(info.get('usedResource')) or 'nothing'}",
        f"pending      {in_words(info.get('pendingResource')) or 'nothing'}",
        *(f"waiting      {waits(item)}" for item in detail["waiting"][1:]),
        *(f"note         {note}" for note in detail["notes"] if note not in why(detail)),
    ]
    parts: list[Any] = [hanging(line) for line in lines]
    if gang["wanted"]:
        parts += ["", table(detail["groups"], GROUPS)]
    if detail["pods"]:
        shown = tuple(c for c in PODS if c.name not in ("APPLICATION", "QUEUE"))
        parts += ["", table(detail["pods"], shown)]
    return parts


def hanging(line: str, width: int = 13) -> Any:
    """Return a line with a name before it; what wraps stands below the text, not the name."""
    if not sys.stdout.isatty():
        return printable(line)
    grid = Table.grid(padding=0)
    grid.add_column(width=width, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(line[:width]), Text(printable(line[width:])))
    return grid


# --- nodes --------------------------------------------------------------------------------------


def _share_of(name: str) -> Callable[[Row], int | None]:
    return lambda node: node.get("utilized", {}).get(name, 0) if _has(node, name) else None


def _has(node: Row, name: str) -> bool:
    return bool(node.get("capacity", {}).get(name))


def _state_of(node: Row) -> str:
    if node["schedulable"]:
        return "Reserved" if node.get("isReserved") else "Ready"
    return "Draining" if node.get("allocations") else "Drained"


def _labels(node: Row) -> str:
    return ",".join(
        f"{name}={value}"
        for name, value in sorted(node.get("attributes", {}).items())
        if not name.startswith("si/")
    )


NODES = (
    Column("NODE", lambda node: node["nodeID"]),
    Column("STATE", _state_of, lambda node: state_text(_state_of(node))),
    Column("PODS", lambda node: len(node.get("allocations", ())), is_number=True),
    Column("ALLOCATED", _amount("allocated"), drop=1, wraps=18),
    Column("FOREIGN", lambda node: len(node.get("foreignAllocations", ())), drop=3, is_number=True),
    Column("OCCUPIED", _amount("occupied"), drop=4),
    Column("AVAILABLE", _amount("available"), wraps=18),
    Column("CAPACITY", _amount("capacity"), is_wide=True),
    Column("LABELS", _labels, is_wide=True),
)


def node_columns(nodes: list[Row]) -> tuple[Column, ...]:
    """Return the columns of nodes; those of other schedulers' pods where there are any."""
    if any(node.get("foreignAllocations") for node in nodes):
        return NODES
    return tuple(column for column in NODES if column.name not in ("FOREIGN", "OCCUPIED"))


# --- topology -----------------------------------------------------------------------------------


def domain_rows(value: dict[str, Any]) -> list[Row]:
    """Return the domains of an answer in one list, each before those in it; none without levels."""
    rows: list[Row] = []
    left = [("", 0, each) for each in reversed(value["domains"])]
    while left:
        above, depth, domain = left.pop()
        path = f"{above}/{domain['name']}" if above else domain["name"]
        rows.append({**domain, "path": path, "depth": depth})
        left += [(path, depth + 1, each) for each in reversed(domain["domains"])]
    return rows


def _gpus(of: str) -> Callable[[Row], int | None]:
    return lambda row: row[of].get(GPU, 0) if row["capacity"].get(GPU) else None


TOPOLOGY = (
    with_indent(Column("DOMAIN", lambda row: row["name"]), lambda row: row["depth"]),
    Column("LEVEL", lambda row: row["level"]),
    Column("NODES", lambda row: row["nodes"], is_number=True),
    Column("GPUS", _gpus("capacity"), is_number=True),
    Column("USED", _gpus("allocated"), is_number=True),
    Column("FREE", _gpus("free"), is_number=True),
    Column("ALLOCATED", _amount("allocated"), drop=1, wraps=18),
    Column("ROOM", _amount("free"), wraps=18),
)


# --- queues -------------------------------------------------------------------------------------


def _of_most(count: int, most: int) -> str:
    return f"{count}/{most}" if most else str(count)


def _priority(queue: dict[str, Any]) -> str:
    """Return a queue's priority with its offset, and a mark for a fence; - when nothing waits."""
    value = queue["currentPriority"]
    text = "-" if value == NO_PRIORITY else str(value)
    offset = queue.get("priorityOffset", 0)
    text += f" ({offset:+d})" if offset else ""
    return text + (" fence" if queue["isPriorityFence"] else "")


def _held_back(queue: Row) -> str:
    return "; ".join(waits(item) for item in queue["waiting"])


def _leaf(queue: Row) -> str:
    return str(queue["queuename"].rsplit(".", 1)[-1]) + ("" if queue["isManaged"] else " (dynamic)")


def _depth(queue: Row) -> int:
    return int(queue["queuename"].count("."))


def _over_time(queue: Row) -> str:
    """Return which share of the cluster a queue has used over time, by type."""
    shares = queue.get("usedOverTime", {})
    return ", ".join(f"{type_text(name)} {share * 100:.3g} %" for name, share in shares.items())


def _fair_share(queue: Row) -> str:
    return resource(queue["fairShare"]) if "fairShare" in queue else ""


QUEUES = (
    with_indent(Column("QUEUE", _leaf), _depth),
    Column("STATUS", lambda queue: queue.get("status", "")),
    Column(
        "APPS", lambda queue: queue.get("runningApps", 0),
        lambda queue: _of_most(queue.get("runningApps", 0), queue.get("maxRunningApps", 0)),
        drop=1, is_number=True,
    ),
    Column("GUARANTEED", _amount("guaranteedResource"), drop=7, wraps=15),
    Column("MAX", _amount("maxResource"), drop=3, wraps=15),
    Column("USED", _amount("allocatedResource"), drop=2, wraps=15),
    Column("PENDING", _amount("pendingResource"), drop=4, wraps=15),
    Column("OVER TIME", _over_time, drop=5, wraps=15),
    Column("FAIR SHARE", _fair_share, drop=6, wraps=15),
    Column("PRIORITY", lambda queue: queue["currentPriority"], _priority, drop=8, is_number=True),
    Column("HELD BACK BY", _held_back, wraps=40, is_below=True),
    Column("PATH", lambda queue: queue["queuename"], is_wide=True),
)  # fmt: skip


def queue_columns(queues: list[Row]) -> tuple[Column, ...]:
    """Return the columns of queues; those of usage over time where it is counted."""
    if any("usedOverTime" in queue for queue in queues):
        return QUEUES
    return tuple(column for column in QUEUES if column.name not in ("OVER TIME", "FAIR SHARE"))


def queue_rows(root: Row) -> list[Row]:
    """Return a tree's queues, each before those below it."""
    return [root, *(row for child in root.get("children", []) for row in queue_rows(child))]


def configuration_lines(config: dict[str, Any]) -> list[Text]:
    """Return which plugins are in use, what was wrong with the last configuration, what is now."""
    lines = [Text(f"plugins: {', '.join(config['plugins'])}")] * bool(config["plugins"])
    lines += [Text(f"warning: {warning}", style="yellow") for warning in config["warnings"]]
    if config["error"]:
        lines.append(Text(f"refused, nothing has changed: {config['error']}", style="red"))
    return lines


DEAD_LETTERS = (
    Column("INBOX", lambda letter: letter["inbox"]),
    Column("MESSAGE", lambda letter: letter["kind"]),
    Column("BYTES", lambda letter: letter["bytes"], drop=1, is_number=True),
    Column("ID", lambda letter: letter["messageID"], is_wide=True),
    Column("REASON", lambda letter: letter["reason"], wraps=40),
)
