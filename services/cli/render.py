"""What people see: tables on a terminal, JSON for programs."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_COLOURS = {
    "Running": "green",
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
_FIRST = ("vcore", "memory", "pods")
WIDE = 240  # columns, where there is no terminal that says


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))


def quantity(name: str, value: int) -> str:
    """Return an amount as people write it: cores for vcore, binary units for memory."""
    if name == "vcore":
        return f"{value / 1000:g}"
    if name == "memory":
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


def _table(*columns: str, numbers: tuple[str, ...] = (), last: str = "") -> Table:
    """Return a table whose columns keep their width; the last one takes what is left."""
    table = Table(box=None, header_style="bold", pad_edge=False, expand=bool(last))
    for column in columns:
        right = column in numbers
        table.add_column(column, no_wrap=True, justify="right" if right else "left")
    if last:
        table.add_column(last, no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def why(item: dict[str, Any]) -> str:
    """Return what an application waits for, or what was last said of it."""
    if item["waiting"]:
        return f"{item['waiting'][0]['reason']}: {item['waiting'][0]['message']}"
    return str(item["message"])


def applications_table(applications: list[dict[str, Any]]) -> Table:
    """Return the applications with their gangs' progress and what they wait for."""
    numbers = ("WANTED", "HELD", "REPLACED", "RUNNING")
    table = _table("APPLICATION", "QUEUE", "STATE", "GANG", *numbers, numbers=numbers, last="WHY")
    for item in applications:
        gang = item["placeholders"]
        counts = [gang["wanted"], gang["held"], gang["replaced"]] if gang["wanted"] else [""] * 3
        table.add_row(
            Text(item["applicationID"]),
            Text(item["queueName"]),
            state_text(item["state"]),
            gang_bar(gang),
            *(str(count) for count in (*counts, item["running"])),
            Text(why(item)),
        )
    return table


def nodes_table(nodes: list[dict[str, Any]]) -> Table:
    """Return the nodes with what is allocated and what is left."""
    has_foreign = any(node.get("foreignAllocations") for node in nodes)
    foreign = ("FOREIGN", "OCCUPIED") if has_foreign else ()
    columns = ("NODE", "SCHEDULABLE", "PODS", "ALLOCATED", *foreign, "AVAILABLE")
    table = _table(*columns, numbers=("PODS", "FOREIGN"))
    for node in nodes:
        table.add_row(
            Text(node["nodeID"]),
            "yes" if node["schedulable"] else "no",
            str(len(node.get("allocations", []))),
            resource(node.get("allocated")),
            *_foreign(node) * has_foreign,
            resource(node.get("available")),
        )
    return table


def _foreign(node: dict[str, Any]) -> tuple[str, ...]:
    """Return how many pods of other schedulers a node has, and what they take."""
    return str(len(node.get("foreignAllocations", ()))), resource(node.get("occupied"))


def _of_most(count: int, most: int) -> str:
    return f"{count}/{most}" if most else str(count)


def _priority(queue: dict[str, Any]) -> str:
    """Return a queue's priority with its offset, and a mark for a fence; - when nothing waits."""
    value = queue["currentPriority"]
    text = "-" if value == NO_PRIORITY else str(value)
    offset = queue.get("priorityOffset", 0)
    text += f" ({offset:+d})" if offset else ""
    return text + (" fence" if queue["isPriorityFence"] else "")


def _held_back(queue: dict[str, Any]) -> str:
    return "; ".join(
        f"{item['asks']} asks {item['reason']}: {item['message']}" for item in queue["waiting"]
    )


def configuration_lines(out: Console, config: dict[str, Any]) -> None:
    """Print which plugins are in use, what was wrong with the last configuration, what is now."""
    if config["plugins"]:
        out.print(f"plugins: {', '.join(config['plugins'])}")
    for warning in config["warnings"]:
        out.print(Text(f"warning: {warning}", style="yellow"))
    if config["error"]:
        out.print(Text(f"refused, nothing has changed: {config['error']}", style="red"))


def queues_table(root: dict[str, Any]) -> Table:
    """Return the queue tree with its limits and what is used and waits."""
    numbers = ("APPS", "PRIORITY")
    table = _table(
        "QUEUE", "STATUS", "APPS", "GUARANTEED", "MAX", "USED", "PENDING", "PRIORITY",
        numbers=numbers, last="HELD BACK BY",
    )  # fmt: skip

    def add(queue: dict[str, Any], depth: int) -> None:
        name = queue["queuename"].rsplit(".", 1)[-1]
        table.add_row(
            Text("  " * depth + name + ("" if queue["isManaged"] else " (dynamic)")),
            queue.get("status", ""),
            _of_most(queue.get("runningApps", 0), queue.get("maxRunningApps", 0)),
            *(
                resource(queue.get(f"{kind}Resource"))
                for kind in ("guaranteed", "max", "allocated", "pending")
            ),
            _priority(queue),
            Text(_held_back(queue)),
        )
        for child in queue.get("children", []):
            add(child, depth + 1)

    add(root, 0)
    return table


def trace_table(entries: list[dict[str, Any]]) -> Table:
    """Return an application's story, a message a line."""
    numbers = ("AT", "QUEUED ms", "HANDLED ms")
    table = _table(
        "AT", "MESSAGE", "FROM", "TO", "QUEUED ms", "HANDLED ms", "CONTENTS",
        numbers=numbers, last="DECISION",
    )  # fmt: skip
    start = entries[0]["time"]
    for entry in entries:
        table.add_row(
            f"+{(entry['time'] - start) / 1e9:.3f}s",
            entry["message"],
            entry["from"],
            entry["to"],
            f"{entry['queuedMs']:.1f}",
            f"{entry['handledMs']:.1f}",
            Text(entry["contents"]),
            Text(entry["decision"]),
        )
    return table


def application_lines(out: Console, detail: dict[str, Any]) -> None:
    """Print one application: its progress, its groups and what it waits for."""
    info = detail["application"]
    out.print(applications_table([detail]))
    if detail["groups"]:
        numbers = ("WANTED", "HELD", "REPLACED", "TIMED OUT")
        table = _table("TASK GROUP", *numbers, numbers=numbers)
        for group in detail["groups"]:
            counts = (group[key] for key in ("wanted", "held", "replaced", "timedout"))
            table.add_row(Text(group["name"]), *map(str, counts))
        out.print()
        out.print(table)
    states = " → ".join(item["applicationState"] for item in info.get("stateLog", []))
    lines = [
        "",
        f"used     {resource(info.get('usedResource'))}",
        f"pending  {resource(info.get('pendingResource'))}",
        f"states   {states or '-'}",
        *(
            f"waiting  {item['asks']} asks: {item['reason']}: {item['message']}"
            for item in detail["waiting"]
        ),
        *(f"note     {note}" for note in detail["notes"]),
    ]
    out.print(Text("\n".join(lines)))
