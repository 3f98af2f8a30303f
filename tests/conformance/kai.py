"""Runs action tables: ``python -m tests.conformance.kai FILE.jsonl [--output json]``.

Every row is told to the machine by messages, as a queues.yaml and PodGroups would have it told
(``kai_files``, ``kai_machine``), with ``policy: kai``. One line a case: ``ok``, ``status wrong`` or
``node wrong`` with what was expected and found, or ``not sayable`` with what no user could write;
then totals by action, and a table of how many rows are told by messages. Exit status 0 only if all
hold. The format is that of kai_cases.jsonl.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from services.core.scheduler.actions.live_actions import STEPS, UnknownActionError
from tests.conformance.kai_files import (
    NotSayableError,
    actions_of,
    has_topology,
    levels_of,
    queues_yaml,
    settings_of,
)
from tests.conformance.kai_machine import OVER, STUCK, Machine, Shown, task_name

BY_FILES, BY_MESSAGES, NOT = (
    "by messages, from files",
    "by messages; levels that no setting states so",
    "not sayable",
)
NOT_SAYABLE = "not sayable"


def wrong(row: dict, machine: Machine, shown: dict[str, Shown]) -> list[tuple[str, str]]:
    """Return what is not as expected: the kind of mistake and a sentence."""
    expected: dict[str, dict] = {}
    for job in row["jobs"]:
        wanted = row["expected"].get("jobs", {}).get(job["name"])
        if wanted is not None:
            expected |= {task_name(job, at): wanted for at in range(len(job["tasks"]))}
    expected |= row["expected"].get("tasks", {})
    found: list[tuple[str, str]] = []
    for name, wanted in expected.items():
        found += wrong_task(name, shown[name], wanted)
    for name, wanted in row["expected"].get("nodes", {}).items():
        found += wrong_node(name, machine.nodes()[name], wanted)
    return found


def wrong_task(name: str, shown: Shown, wanted: dict) -> list[tuple[str, str]]:
    status, node = shown
    if status == STUCK and wanted.get("status") == "Releasing":
        status = "Releasing"
    if wanted.get("status") is not None and wanted["status"] != status:
        expected = f"{wanted['status']} {wanted.get('node', '')}".strip()
        sentence = f"{name}: expected {expected}, found {status} {node}".strip()
        return [("status wrong", sentence)]
    if wanted.get("node") and wanted["node"] != node:
        return [("node wrong", f"{name}: expected {wanted['node']}, found {node}")]
    return []


def wrong_node(name: str, have: dict[str, int], wanted: dict) -> list[tuple[str, str]]:
    found = []
    for key, value in wanted.items():
        kind = key.removesuffix("_gpus").removeprefix("gpus_")
        if kind in have and have[kind] != value:
            sentence = f"{name} {key}: expected {value}, found {have[kind]}"
            found.append(("node wrong", sentence))
    return found


def too_many(row: dict, before: dict[str, Shown], after: dict[str, Shown]) -> list[tuple[str, str]]:
    """Return which calls a round made more often than it may."""
    most = row.get("max_calls_per_round") or {}
    have: Counter = Counter()
    for task, (status, _) in after.items():
        was = before[task][0]
        if status == was or was in (*OVER, STUCK):
            continue
        have["binds"] += status == "Binding"
        have["evictions"] += was == "Running" and status in ("Releasing", "Pipelined")
        have["pipelines"] += status == "Pipelined"
    return [
        ("status wrong", f"{have[name]} {name}, at most {limit}")
        for name, limit in most.items()
        if have[name] > limit
    ]


def run_row(row: dict) -> list[tuple[str, str]]:
    """Run a row; return what is wrong with it."""
    unknown = [name for name in actions_of(row) if name not in STEPS]
    if unknown:
        raise UnknownActionError(f"no action {unknown[0]!r}; there are {', '.join(STEPS)}")
    try:
        machine = Machine(row)
    except NotSayableError as error:
        return [(NOT_SAYABLE, str(error))]
    if row["mode"] != "single-action":
        return run_rounds(row, machine)
    machine.act()
    shown = machine.shown()
    before = {task: (machine.state(task), "") for task in shown}
    broken = [("status wrong", sentence) for sentence in machine.broken()]
    return [*wrong(row, machine, shown), *too_many(row, before, shown), *broken]


def run_rounds(row: dict, machine: Machine) -> list[tuple[str, str]]:
    until = row.get("rounds_until_match", 2)
    after = row.get("rounds_after_match", 5)
    for number in range(1, until + after + 1):
        machine.round()
        bad = wrong(row, machine, machine.shown(settled=True)) if number >= until else []
        bad += [("status wrong", sentence) for sentence in machine.broken()]
        if bad:
            return [(kind, f"round {number}: {text}") for kind, text in bad]
    return []


def result_of(row: dict) -> dict:
    """Run a row; return what came of it, and how it was told to the machine."""
    try:
        bad = run_row(row)
    except Exception as error:
        bad = [("status wrong", f"{type(error).__name__}: {error}")]
    action = row["actions"][0] if row["mode"] == "single-action" else "rounds"
    way = way_of(row)
    return {"id": row["id"], "tier": row["tier"], "action": action, "way": way, "wrong": bad}


def way_of(row: dict) -> str:
    """Return how a row is told to the machine."""
    try:
        queues_yaml(row)
        settings_of(row, actions_of(row))
        return BY_MESSAGES if has_topology(row) and not levels_of(row) else BY_FILES
    except NotSayableError:
        return NOT


def read_rows(file: Path) -> list[dict]:
    """Return the rows of a file; one that cannot be read ends the run with status 2."""
    try:
        lines = file.read_text().splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        print(f"{file}: {error}", file=sys.stderr)
        sys.exit(2)


def main() -> int:
    """Run files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--tier", choices=["core", "ext"])
    options = parser.parse_args()
    results = []
    for row in [row for file in options.file for row in read_rows(file)]:
        if options.tier and row["tier"] != options.tier:
            continue
        results.append(result_of(row))
    show(results, as_json=options.output == "json")
    return 0 if all(not result["wrong"] for result in results) else 1


def show(results: list[dict], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        kind = result["wrong"][0][0] if result["wrong"] else "ok"
        said = "; ".join(sentence for _, sentence in result["wrong"])
        print(f"{kind:<13} {result['id']}" + (f": {said}" if said else ""))
    for action, (total, held) in counted(results, "action").items():
        print(f"{action}: {held} of {total}")
    print()
    ways = Counter(result["way"] for result in results)
    held = Counter(result["way"] for result in results if not result["wrong"])
    print("\n".join(table(ways, held)))


def counted(results: list[dict], by: str) -> dict[str, tuple[int, int]]:
    """Return how many results there are of each kind, and how many hold."""
    totals = Counter(result[by] for result in results)
    held = Counter(result[by] for result in results if not result["wrong"])
    return {kind: (total, held[kind]) for kind, total in totals.items()}


def table(ways: Counter, held: Counter | None = None) -> list[str]:
    """Return a table of how many rows are told by messages, and how many of these hold."""
    lines = [f"| {'rows':<46} | there |" + (" hold |" if held is not None else "")]
    lines.append("|" + "-" * 48 + "|-------|" + ("------|" if held is not None else ""))
    for way in (BY_FILES, BY_MESSAGES, NOT):
        holds = f" {held[way]:>4} |" if held is not None else ""
        lines.append(f"| {way:<46} | {ways[way]:>5} |{holds}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
