"""Runs action tables: ``python -m tests.conformance.kai FILE.jsonl [--output json]``.

One line a case: ``ok``, ``status wrong`` or ``node wrong`` with what was expected and found, then
totals by action. Exit status 0 only if all hold. The format is that of kai_cases.jsonl.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from services.core.scheduler.kai import engine
from services.core.scheduler.kai.groups import Group
from services.core.scheduler.kai.session import (
    NO_NODE,
    UNLIMITED,
    Job,
    Queue,
    Session,
    SessionSettings,
    Status,
    Task,
)
from services.core.scheduler.kai.topology import Topology
from services.core.scheduler.model.settings import ACTIONS

NAMES = ("vcore", "memory", "nvidia.com/gpu")
GPU = 2
MB = 1_000_000
STATES = {
    "Pending": Status.PENDING,
    "Running": Status.RUNNING,
    "Releasing": Status.RELEASING,
    "StuckInReleasing": Status.STUCK,
    "Failed": Status.FAILED,
    "Succeeded": Status.SUCCEEDED,
}
SHOWN = {value: name for name, value in STATES.items()} | {
    Status.ALLOCATED: "Binding",
    Status.PIPELINED: "Pipelined",
}
DEFAULT_TASK = {"cpu": 1000, "memory": 1_000_000_000}


class World:
    """A row's cluster between rounds: what each task is doing, and where."""

    def __init__(self, row: dict) -> None:
        self.row = row
        self.state: dict[str, tuple[Status, str]] = {}
        for job in row["jobs"]:
            for at, task in enumerate(job["tasks"]):
                name = task_name(job, at)
                self.state[name] = (STATES[task["state"]], task.get("node") or "")

    def session(self) -> Session:
        """Return a session of the present state."""
        row = self.row
        names = list(row["nodes"])
        capacity = np.array([node_capacity(node) for node in row["nodes"].values()], np.int64)
        settings = SessionSettings(
            spread="spread" in row.get("notes", ""),
            max_consolidation_victims=-1,
            staleness_grace_s=row.get("default_staleness_grace_s", 0),
        )
        session = Session(NAMES, names, capacity.reshape(len(names), len(NAMES)), settings)
        session.labels = [
            {"kai.scheduler/type": name, **node.get("labels", {})}
            for name, node in row["nodes"].items()
        ]
        queues: dict[str, Queue] = {}
        for number, spec in enumerate([*row.get("departments", []), *row["queues"]]):
            parent = queues.get(spec.get("parent") or "")
            queues[spec["name"]] = session.add_queue(queue_of(spec, number, parent))
        by_priority = sorted(
            range(len(row["jobs"])), key=lambda at: -row["jobs"][at].get("priority", 0)
        )
        for number, at in enumerate(by_priority):
            spec = row["jobs"][at]
            session.add_job(self.job_of(spec, number, queues[spec["queue"]], names))
        return session

    def job_of(self, spec: dict, number: int, queue: Queue, nodes: list[str]) -> Job:
        """Return a job with its tasks as they are now."""
        job = Job(
            name=spec["name"],
            queue=queue,
            priority=spec["priority"],
            number=number,
            min_available=spec.get("min_available", len(spec["tasks"])),
            preemptible=spec["preemptible"],
            stale_for_s=spec.get("stale_for_s", 0),
            staleness_grace_s=spec.get("staleness_grace_period_s"),
            waits_s=spec.get("preemption_delay_s", 0) - 60 * spec.get("age_minutes", 0),
        )
        for at, task in enumerate(spec["tasks"]):
            name = task_name(spec, at)
            status, node = self.state[name]
            gpus = task.get("gpus", spec.get("gpus_per_task", 0))
            request = (
                spec.get("cpu_milli_per_task", DEFAULT_TASK["cpu"]),
                spec.get("mem_bytes_per_task", DEFAULT_TASK["memory"]),
                gpus,
            )
            only = task.get("node_affinity_in")
            job.tasks.append(
                Task(
                    name=name,
                    job=job,
                    request=request,
                    number=at,
                    priority=int(task.get("task_priority", 0)),
                    status=status,
                    node=nodes.index(node) if node else NO_NODE,
                    only_nodes=self.matching(only) if only else None,
                    kind=json.dumps(task.get("labels", {}), sort_keys=True),
                    near=task.get("pod_affinity_topology_key", ""),
                    apart=task.get("pod_anti_affinity_topology_key", ""),
                )
            )
        if spec.get("subgroups"):
            job.tree = group_of(spec["subgroups"], self.row, spec, job.tasks)
        constraint = topology_of(self.row, spec.get("topology_constraint"))
        if constraint is not None:
            job.group.topology = constraint
        return job

    def matching(self, values: list[str]) -> frozenset[str]:
        """Return the nodes that have one of some values as a label, or as their name."""
        return frozenset(
            name
            for name, node in self.row["nodes"].items()
            if name in values or any(v in values for v in node.get("labels", {}).values())
        )

    def keep(self, session: Session) -> None:
        """Take over what came of a round, as the next one finds it."""
        deleted = {
            task_name(job, at)
            for job in self.row["jobs"]
            for at, task in enumerate(job["tasks"])
            if task.get("delete_in_test") or job.get("delete_in_test")
        }
        for job in session.jobs:
            for task in job.tasks:
                node = session.node_names[task.node] if task.node != NO_NODE else ""
                state = (task.status, node)
                if task.status is Status.ALLOCATED:
                    state = (Status.RUNNING, node)
                elif task.status is Status.PIPELINED or (
                    task.status is Status.RELEASING and task.name not in deleted
                ):
                    state = (Status.PENDING, "")
                self.state[task.name] = state


def topology_of(row: dict, constraint: dict | None) -> Topology | None:
    """Return a topology constraint with the levels of its topology."""
    for topology in row.get("topologies", []) if constraint else []:
        if topology["name"] == constraint.get("Topology"):
            return Topology(
                tuple(topology["levels"]),
                constraint.get("RequiredLevel", ""),
                constraint.get("PreferredLevel", ""),
            )
    return None


def group_of(tree: dict, row: dict, spec: dict, tasks: list[Task]) -> Group:
    """Return a job's tree of task groups."""
    members = [
        Group(
            podset["name"],
            podset["min_available"],
            tasks=[
                task
                for task, entry in zip(tasks, spec["tasks"], strict=True)
                if entry.get("subgroup") == podset["name"]
            ],
            topology=topology_of(row, podset.get("topology")),
        )
        for podset in tree.get("podsets", [])
    ]
    members += [group_of(below, row, spec, tasks) for below in tree.get("groups", [])]
    return Group(
        tree["name"],
        min_groups=tree.get("min_sub_group"),
        members=members,
        topology=topology_of(row, tree.get("topology")),
    )


def task_name(job: dict, at: int) -> str:
    return job["tasks"][at].get("name", f"{job['name']}-{at}")


def node_capacity(node: dict) -> tuple[int, int, int]:
    return (
        node.get("cpu_milli", 20_000_000),
        node.get("mem_bytes", 20_000_000_000),
        node.get("gpus", 0),
    )


def bound(value, default=UNLIMITED, unit=1):
    if value is None or value == "unlimited":
        return default
    return UNLIMITED if value == -1 else int(value * unit)


def queue_of(spec: dict, number: int, parent: Queue | None) -> Queue:
    return Queue(
        name=spec["name"],
        number=number,
        parent=parent,
        priority=spec.get("priority", 100),
        quota=[
            bound(spec.get("cpu_milli_quota")),
            bound(spec.get("mem_mb_quota"), unit=MB),
            bound(spec.get("gpu_quota"), default=UNLIMITED),
        ],
        limit=[
            bound(spec.get("cpu_milli_limit")),
            bound(spec.get("mem_mb_limit"), unit=MB),
            bound(spec.get("gpu_limit")),
        ],
        weight=[1, 1, spec.get("gpu_over_quota_weight") or 0],
        reclaim_min_runtime_s=spec.get("reclaim_min_runtime_s"),
        preempt_min_runtime_s=spec.get("preempt_min_runtime_s"),
    )


def wrong(row: dict, session: Session) -> list[tuple[str, str]]:
    """Return what is not as expected: the kind of mistake and a sentence."""
    tasks = {task.name: task for job in session.jobs for task in job.tasks}
    expected: dict[str, dict] = {}
    for job in session.jobs:
        wanted = row["expected"].get("jobs", {}).get(job.name)
        if wanted is not None:
            expected |= {task.name: wanted for task in job.tasks}
    expected |= row["expected"].get("tasks", {})
    found: list[tuple[str, str]] = []
    for name, wanted in expected.items():
        found += wrong_task(session, tasks[name], wanted)
    for name, wanted in row["expected"].get("nodes", {}).items():
        found += wrong_node(session, name, wanted)
    return found


def wrong_task(session: Session, task: Task, wanted: dict) -> list[tuple[str, str]]:
    status = SHOWN[task.status]
    node = session.node_names[task.node] if task.node != NO_NODE else ""
    if wanted.get("status") is not None and wanted["status"] != status:
        expected = f"{wanted['status']} {wanted.get('node', '')}".strip()
        sentence = f"{task.name}: expected {expected}, found {status} {node}".strip()
        return [("status wrong", sentence)]
    if wanted.get("node") and wanted["node"] != node:
        return [("node wrong", f"{task.name}: expected {wanted['node']}, found {node}")]
    return []


def wrong_node(session: Session, name: str, wanted: dict) -> list[tuple[str, str]]:
    at = session.node_names.index(name)
    have = {"idle": session.idle[at, GPU], "releasing": session.releasing[at, GPU]}
    found = []
    for key, value in wanted.items():
        kind = key.removesuffix("_gpus").removeprefix("gpus_")
        if kind in have and have[kind] != value:
            found.append(("node wrong", f"{name} {key}: expected {value}, found {have[kind]}"))
    return found


def calls(decisions) -> Counter:
    """Return how many binds, evictions and pipelines a round comes to."""
    counts: Counter = Counter()
    for decision in decisions:
        counts["evictions"] += decision.evicts
        counts["binds"] += decision.is_now
        counts["pipelines"] += bool(decision.node) and not decision.is_now
    return counts


def too_many(row: dict, decisions) -> list[tuple[str, str]]:
    most = row.get("max_calls_per_round") or {}
    have = calls(decisions)
    return [
        ("status wrong", f"{have[name]} {name}, at most {limit}")
        for name, limit in most.items()
        if have[name] > limit
    ]


def run_row(row: dict) -> list[tuple[str, str]]:
    """Run a row; return what is wrong with it."""
    world = World(row)
    if row["mode"] == "single-action":
        session = world.session()
        decisions = engine.run(session, row["actions"])
        return wrong(row, session) + too_many(row, decisions)
    actions = row.get("actions") or ACTIONS
    if actions in ("rounds", ["rounds"]):
        actions = ACTIONS
    until = row.get("rounds_until_match", 2)
    after = row.get("rounds_after_match", 5)
    for number in range(1, until + after + 1):
        session = world.session()
        decisions = engine.run(session, actions)
        world.keep(session)
        if number < until:
            continue
        bad = wrong(row, world.session())
        if bad:
            return [(kind, f"round {number}: {text}") for kind, text in bad]
    return []


def read_rows(file: Path) -> list[dict]:
    """Return the rows of a file; one that cannot be read ends the run with status 2."""
    try:
        lines = file.read_text().splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        print(f"{file}: {error}", file=sys.stderr)
        sys.exit(2)


def main() -> int:
    """Run a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--tier", choices=["core", "ext"])
    options = parser.parse_args()
    results = []
    for row in read_rows(options.file):
        if options.tier and row["tier"] != options.tier:
            continue
        try:
            bad = run_row(row)
        except Exception as error:
            bad = [("status wrong", f"{type(error).__name__}: {error}")]
        action = row["actions"][0] if row["mode"] == "single-action" else "rounds"
        results.append({"id": row["id"], "tier": row["tier"], "action": action, "wrong": bad})
    show(results, as_json=options.output == "json")
    return 0 if all(not result["wrong"] for result in results) else 1


def show(results: list[dict], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(results, indent=2))
        return
    totals: Counter = Counter()
    held: Counter = Counter()
    for result in results:
        totals[result["action"]] += 1
        held[result["action"]] += not result["wrong"]
        kind = result["wrong"][0][0] if result["wrong"] else "ok"
        said = "; ".join(sentence for _, sentence in result["wrong"])
        print(f"{kind:<13} {result['id']}" + (f": {said}" if said else ""))
    for action, total in totals.items():
        print(f"{action}: {held[action]} of {total}")


if __name__ == "__main__":
    sys.exit(main())
