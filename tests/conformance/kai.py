"""Runs action tables: ``python -m tests.conformance.kai FILE.jsonl [--output json]``.

One line a case: ``ok``, ``status wrong`` or ``node wrong`` with what was expected and found, then
totals by action. Exit status 0 only if all hold. The format is that of kai_cases.jsonl.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from services.core.scheduler.actions import live_actions
from services.core.scheduler.model.hooks import Hooks
from services.core.scheduler.model.policy import Policy
from services.core.scheduler.model.rows import Application, Node, Queue
from services.core.scheduler.model.settings import ACTIONS
from services.core.scheduler.policies import kai
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.task_trees import Group, Topology
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Job,
    Share,
    Status,
    Task,
    Terms,
    Trial,
    TrialSettings,
)
from shared.messages.constraints import Constraints, PodTerm, Requirement
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    TerminationType,
)
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.resources import PODS, without_zeros
from shared.model.states import ApplicationState
from tests.property.dump import dump

MB = 1_000_000
SHOWN = {
    Status.PENDING: "Pending",
    Status.ALLOCATED: "Binding",
    Status.PIPELINED: "Pipelined",
    Status.RUNNING: "Running",
    Status.RELEASING: "Releasing",
}
STUCK = "StuckInReleasing"  # a row may expect it as Releasing, which it is too
DEFAULT_TASK = {"cpu": 1000, "memory": 1_000_000_000}
NAMESPACE = "cases"
Shown = tuple[str, str]  # what a task is doing, and where


class World:
    """A row's cluster between rounds: what each task is doing, and where."""

    def __init__(self, row: dict) -> None:
        self.row = row
        self.state: dict[str, Shown] = {}
        for job in row["jobs"]:
            for at, task in enumerate(job["tasks"]):
                self.state[task_name(job, at)] = (task["state"], task.get("node") or "")

    def trial(self, policy: Policy | None = None) -> Trial:
        """Return a trial on a partition in the present state."""
        partition = self.partition(policy)
        return Trial(partition, TableTerms(self.row, partition))

    def partition(self, policy: Policy | None = None) -> Partition:
        """Return a partition in the present state, where a plugin may have its say."""
        partition = Partition()
        if policy is not None:
            partition.use(Hooks([("test", policy)], print, partition.applications))
        for name, node in self.row["nodes"].items():
            labels = {"kai.scheduler/type": name, **node.get("labels", {})} | self.matching(name)
            capacity = node_capacity(node)
            partition.nodes.add(Node(name, 0, capacity, {}, labels, (), schedulable=True))
        tasks = (task for job in self.row["jobs"] for task in (job, *job["tasks"]))
        if any(task.get("gpu_share") for task in tasks):
            partition.share_devices()
        for spec in [*self.row.get("departments", []), *self.row["queues"]]:
            above = queue_named(partition, spec.get("parent"))
            queue = Queue(spec["name"], above, is_leaf=True)
            above.is_leaf = False
            above.children[queue.name] = partition.queues[queue.path] = queue
        for spec in sorted(self.row["jobs"], key=lambda job: -job.get("priority", 0)):
            self.add_job(partition, spec)
        return partition

    def add_job(self, partition: Partition, spec: dict) -> None:
        """Add a job with its tasks as they are now."""
        queue = queue_named(partition, spec["queue"])
        request = AddApplicationRequest(spec["name"], queue.path)
        application = Application(request, queue, partition.next_sequence(), 0)
        application.state = ApplicationState.ACCEPTED
        partition.users.link(application)
        if partition.hooks is not None and partition.hooks.order:
            application.keys_before = partition.hooks.order_of
        partition.applications[spec["name"]] = queue.applications[spec["name"]] = application
        for at, task in enumerate(spec["tasks"]):
            ask = ask_of(spec, at, task)
            state, node = self.state[ask.allocation_key]
            if state == "Pending":
                partition.add_ask(application, ask)
            elif state == "Succeeded":
                application.succeeded += 1
            elif state != "Failed":
                add_running(partition, application, ask, node, state, task.get("device"))

    def matching(self, name: str) -> dict[str, str]:
        """Return a label for every list of values of which a node has one, or is named so."""
        labels = {name, *self.row["nodes"][name].get("labels", {}).values()}
        tasks = (task for job in self.row["jobs"] for task in job["tasks"])
        only = [task["node_affinity_in"] for task in tasks if task.get("node_affinity_in")]
        return {affinity_label(values): "yes" for values in only if labels & set(values)}

    def shown(self, trial: Trial) -> dict[str, Shown]:
        """Return what every task is doing by now."""
        found = {name: state for name, state in self.state.items() if is_over(state[0])}
        for application in trial.partition.applications.values():
            for task in trial.job_of(application).tasks:
                shown = STUCK if task.name in application.stuck else SHOWN[task.status]
                found[task.name] = (shown, task.node.node_id if task.node else "")
        return found

    def keep(self, shown: dict[str, Shown]) -> None:
        """Take over what came of a round, as the next one finds it."""
        deleted = {
            task_name(job, at)
            for job in self.row["jobs"]
            for at, task in enumerate(job["tasks"])
            if task.get("delete_in_test") or job.get("delete_in_test")
        }
        for name, (state, node) in shown.items():
            if state == "Binding":
                self.state[name] = ("Running", node)
            elif state == "Pipelined" or (state == "Releasing" and name not in deleted):
                self.state[name] = ("Pending", "")
            else:
                self.state[name] = (state, node)


def is_over(state: str) -> bool:
    return state in ("Succeeded", "Failed")


def affinity_label(values: list[str]) -> str:
    return "only/" + "-".join(values)


def queue_named(partition: Partition, name: str | None) -> Queue:
    found = [queue for queue in partition.queues.values() if queue.name == name]
    return found[0] if found else partition.root


def ask_of(spec: dict, at: int, task: dict) -> AllocationAsk:
    gpus = task.get("gpus", spec.get("gpus_per_task", 0))
    resource = without_zeros(
        {
            "vcore": spec.get("cpu_milli_per_task", DEFAULT_TASK["cpu"]),
            "memory": spec.get("mem_bytes_per_task", DEFAULT_TASK["memory"]),
            GPU: gpus,
            GPU_SHARE: task.get("gpu_share", spec.get("gpu_share", 0)),  # in thousandths
            PODS: 1,
        }
    )
    labels = task.get("labels", {})
    only = task.get("node_affinity_in")
    selector = tuple(Requirement(key, "In", (value,)) for key, value in labels.items())

    def terms(name: str) -> tuple[PodTerm, ...]:
        return (PodTerm(task[name], selector),) if task.get(name) else ()

    constraints = Constraints(
        node_selector=((affinity_label(only), "yes"),) if only else (),
        pod_affinity=terms("pod_affinity_topology_key"),
        pod_anti_affinity=terms("pod_anti_affinity_topology_key"),
        namespace=NAMESPACE,
    )
    tags = {f"kubernetes.io/label/{key}": value for key, value in labels.items()}
    return AllocationAsk(
        task_name(spec, at),
        spec["name"],
        resource,
        priority=int(task.get("task_priority", 0)),
        constraints=constraints,
        allocation_tags={"kubernetes.io/meta/namespace": NAMESPACE, **tags},
    )


def add_running(
    partition: Partition,
    application: Application,
    ask: AllocationAsk,
    node: str,
    state: str,
    device: int | None,
) -> None:
    """Add a task that runs, or is being released, one that is stuck for as long as that takes.

    Its share of a GPU is on a certain ``device``.
    """
    key, why = ask.allocation_key, TerminationType.PREEMPTED_BY_SCHEDULER
    partition.learn(ask.constraints)
    allocation = Allocation(
        key,
        application.id,
        node,
        ask.resource_per_alloc,
        priority=ask.priority,
        constraints=ask.constraints,
        allocation_tags=ask.allocation_tags,
        devices=() if device is None else ((device, ask.resource_per_alloc[GPU_SHARE]),),
    )
    partition.count_in(application, allocation, partition.nodes.nodes[node])
    if state in ("Releasing", STUCK):
        partition.release(application, key, why, "")
    if state == STUCK:
        partition.released_ns[key] = partition.now_ns - partition.settings.stuck_after_ns
        partition.find_stuck()


class TableTerms(Terms):
    """What a row says of its queues and jobs."""

    def __init__(self, row: dict, partition: Partition) -> None:
        self._row = row
        self.partition = partition
        self._jobs = {job["name"]: job for job in row["jobs"]}
        self._queues = {
            spec["name"]: spec for spec in [*row.get("departments", []), *row["queues"]]
        }
        self.settings = TrialSettings(
            spread="spread" in row.get("notes", ""),
            max_consolidation_victims=row.get("max_consolidation_preemptees", -1),
        )

    def share(self, queue, names, at, above):
        spec = self._queues.get(queue.name)
        if spec is None:
            free = [UNLIMITED] * len(names)
            return Share(queue, names, at, above, 100, free, free, [1] * len(names))
        quota = {
            "vcore": bound(spec.get("cpu_milli_quota")),
            "memory": bound(spec.get("mem_mb_quota"), unit=MB),
            GPU: bound(spec.get("gpu_quota")),
        }
        limit = {
            "vcore": bound(spec.get("cpu_milli_limit")),
            "memory": bound(spec.get("mem_mb_limit"), unit=MB),
            GPU: bound(spec.get("gpu_limit")),
        }
        weight = {"vcore": 1, "memory": 1, GPU: spec.get("gpu_over_quota_weight") or 0}
        kinds = ((kind, spec.get(f"{kind}_min_runtime_s")) for kind in ("reclaim", "preempt"))
        return Share(
            queue,
            names,
            at,
            above,
            spec.get("priority", 100),
            [quota.get(name, UNLIMITED) for name in names],
            [limit.get(name, UNLIMITED) for name in names],
            [weight.get(name, 1) for name in names],
            min_runtime_s={kind: value for kind, value in kinds if value is not None},
        )

    def minimum(self, application):
        spec = self._jobs[application.id]
        return spec.get("min_available", len(spec["tasks"]))

    def tree(self, job: Job) -> Group | None:
        spec = self._jobs[job.name]
        topology = topology_of(self._row, spec.get("topology_constraint"))
        if not spec.get("subgroups"):
            return Group(job.name, job.min_available, tasks=job.tasks, topology=topology)
        tree = group_of(spec["subgroups"], self._row, spec, job.tasks)
        tree.topology = topology or tree.topology
        return tree

    def is_flat(self, application):
        return not self._jobs[application.id].get("subgroups")

    def priority(self, application):
        return self._jobs[application.id]["priority"]

    def is_preemptible(self, application):
        return self._jobs[application.id]["preemptible"]

    def runtime_s(self, application):
        return 60

    def waits_s(self, application):
        spec = self._jobs[application.id]
        return spec.get("preemption_delay_s", 0) - 60 * spec.get("age_minutes", 0)

    def stale(self):
        found = self.partition.applications.values()
        return [(each, self._jobs[each.id].get("stale_for_s", 0)) for each in found]

    def staleness_grace_s(self, application):
        grace_s = self._jobs[application.id].get("staleness_grace_period_s")
        return self._row.get("default_staleness_grace_s", 0) if grace_s is None else grace_s


def topology_of(row: dict, constraint: dict | None) -> Topology | None:
    """Return a topology constraint with the levels of its topology; one not there has none."""
    if not constraint or not constraint.get("Topology"):
        return None
    levels = {topology["name"]: topology["levels"] for topology in row.get("topologies", [])}
    return Topology(
        tuple(levels.get(constraint["Topology"], ())),
        constraint.get("RequiredLevel", ""),
        constraint.get("PreferredLevel", ""),
    )


def group_of(tree: dict, row: dict, spec: dict, tasks: list[Task]) -> Group:
    """Return a job's tree of task groups."""
    members = [
        Group(
            podset["name"],
            podset["min_available"],
            tasks=[
                task
                for at, entry in enumerate(spec["tasks"])
                for task in tasks
                if entry.get("subgroup") == podset["name"] and task.name == task_name(spec, at)
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


def node_capacity(node: dict) -> dict[str, int]:
    return without_zeros(
        {
            "vcore": node.get("cpu_milli", 20_000_000),
            "memory": node.get("mem_bytes", 20_000_000_000),
            GPU: node.get("gpus", 0),
            PODS: node.get("max_pods", 110),
        }
    )


def bound(value, default=UNLIMITED, unit=1):
    if value is None or value == "unlimited":
        return default
    return UNLIMITED if value == -1 else int(value * unit)


def wrong(row: dict, partition: Partition, shown: dict[str, Shown]) -> list[tuple[str, str]]:
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
        found += wrong_node(partition.nodes.nodes[name], wanted)
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


def wrong_node(node: Node, wanted: dict) -> list[tuple[str, str]]:
    have = {"idle": node.available.get(GPU, 0), "releasing": node.expected.get(GPU, 0)}
    found = []
    for key, value in wanted.items():
        kind = key.removesuffix("_gpus").removeprefix("gpus_")
        if kind in have and have[kind] != value:
            sentence = f"{node.node_id} {key}: expected {value}, found {have[kind]}"
            found.append(("node wrong", sentence))
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


def run(world: World, actions, policy: Policy | None = None):
    """Run actions; return what is wrong then, what every task is doing, and what is decided.

    However it ends, the partition is what it was: what is decided has yet to be carried out.
    """
    trial = world.trial(policy)
    trial.statement.discard()
    before = dump(trial.partition)
    trial = Trial(trial.partition, trial.terms)
    live_actions.decide(trial, actions, kai)
    shown = world.shown(trial)
    bad = wrong(world.row, trial.partition, shown)
    decisions = trial.statement.commit()
    assert dump(trial.partition) == before, "what was only tried has left a trace"
    return bad, shown, decisions


def run_row(row: dict) -> list[tuple[str, str]]:
    """Run a row; return what is wrong with it."""
    world = World(row)
    if row["mode"] == "single-action":
        bad, _, decisions = run(world, row["actions"])
        return bad + too_many(row, decisions)
    actions = row.get("actions") or ACTIONS
    if actions in ("rounds", ["rounds"]):
        actions = ACTIONS
    until = row.get("rounds_until_match", 2)
    after = row.get("rounds_after_match", 5)
    for number in range(1, until + after + 1):
        world.keep(run(world, actions)[1])
        if number < until:
            continue
        trial = world.trial()
        bad = wrong(row, trial.partition, world.shown(trial))
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
