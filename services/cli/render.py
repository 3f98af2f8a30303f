"""What people see: tables on a terminal, JSON for programs."""

import json
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
_BAR_WIDTH = 20


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
    """Return a resource in one line; an empty one is a dash."""
    items = [f"{name} {quantity(name, value)}" for name, value in sorted((amounts or {}).items())]
    return ", ".join(items) or "-"


def state_text(state: str) -> Text:
    """Return a state in its colour."""
    return Text(state, style=_COLOURS.get(state, ""))


def gang_bar(placeholders: dict[str, int], running: int) -> Text:
    """Return a gang's progress: replaced, held and still wanted, as a bar."""
    wanted = placeholders["wanted"]
    if not wanted:
        return Text(f"{running} running" if running else "")
    replaced, held = placeholders["replaced"], placeholders["held"]
    full = min(_BAR_WIDTH, _BAR_WIDTH * replaced // wanted)
    half = min(_BAR_WIDTH - full, _BAR_WIDTH * held // wanted)
    bar = Text("█" * full, style="green")
    bar.append("▒" * half, style="yellow")
    bar.append("·" * (_BAR_WIDTH - full - half), style="dim")
    bar.append(f" {wanted} wanted, {held} held, {replaced} replaced, {running} running")
    return bar


def applications_table(applications: list[dict[str, Any]]) -> Table:
    """Return the applications with their gangs' progress and what they wait for."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("APPLICATION", "QUEUE", "STATE", "GANG"):
        table.add_column(column, no_wrap=column != "GANG")
    table.add_column("WHY", overflow="ellipsis", no_wrap=True)
    for item in applications:
        waiting = item["waiting"]
        why = f"{waiting[0]['reason']}: {waiting[0]['message']}" if waiting else item["message"]
        table.add_row(
            item["applicationID"],
            item["queueName"],
            state_text(item["state"]),
            gang_bar(item["placeholders"], item["running"]),
            why,
        )
    return table


def nodes_table(nodes: list[dict[str, Any]]) -> Table:
    """Return the nodes with what is allocated and what is left."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("NODE", "SCHEDULABLE", "PODS", "ALLOCATED", "AVAILABLE"):
        table.add_column(column)
    for node in nodes:
        table.add_row(
            node["nodeID"],
            "yes" if node["schedulable"] else "no",
            str(len(node.get("allocations", []))),
            resource(node.get("allocated")),
            resource(node.get("available")),
        )
    return table


def queues_table(root: dict[str, Any]) -> Table:
    """Return the queue tree with its limits and what is used and waits."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("QUEUE", "STATUS", "GUARANTEED", "MAX", "ALLOCATED", "PENDING", "RUNNING APPS"):
        table.add_column(column)

    def add(queue: dict[str, Any], depth: int) -> None:
        name = queue["queuename"].rsplit(".", 1)[-1]
        table.add_row(
            "  " * depth + name,
            queue.get("status", ""),
            resource(queue.get("guaranteedResource")),
            resource(queue.get("maxResource")),
            resource(queue.get("allocatedResource")),
            resource(queue.get("pendingResource")),
            str(queue.get("runningApps", 0)),
        )
        for child in queue.get("children", []):
            add(child, depth + 1)

    add(root, 0)
    return table


def trace_table(entries: list[dict[str, Any]]) -> Table:
    """Return an application's story, a message a line."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("AT", "MESSAGE", "FROM", "TO"):
        table.add_column(column, no_wrap=True)
    table.add_column("QUEUED ms", justify="right", no_wrap=True)
    table.add_column("HANDLED ms", justify="right", no_wrap=True)
    table.add_column("CONTENTS")
    table.add_column("DECISION")
    start = entries[0]["time"]
    for entry in entries:
        table.add_row(
            f"+{(entry['time'] - start) / 1e9:.3f}s",
            entry["message"],
            entry["from"],
            entry["to"],
            f"{entry['queuedMs']:.1f}",
            f"{entry['handledMs']:.1f}",
            entry["contents"],
            entry["decision"],
        )
    return table


def application_lines(console: Console, detail: dict[str, Any]) -> None:
    """Print one application: its progress, its groups and what it waits for."""
    info = detail["application"]
    console.print(applications_table([detail]))
    if detail["groups"]:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("TASK GROUP", "WANTED", "HELD", "REPLACED", "TIMED OUT"):
            table.add_column(column)
        for group in detail["groups"]:
            counts = (group[key] for key in ("wanted", "held", "replaced", "timedout"))
            table.add_row(group["name"], *map(str, counts))
        console.print()
        console.print(table)
    console.print()
    console.print(f"used     {resource(info.get('usedResource'))}")
    console.print(f"pending  {resource(info.get('pendingResource'))}")
    states = " → ".join(item["applicationState"] for item in info.get("stateLog", []))
    console.print(f"states   {states or '-'}")
    for waiting in detail["waiting"]:
        console.print(f"waiting  {waiting['asks']} asks: {waiting['reason']}: {waiting['message']}")
