"""A row's cluster told to the machine by messages, and what the machine makes of it.

What runs came to be so before: its allocations exist already. A gang that is stale has been below
its minimum for as long as the row says, by the machine's own clock. The machine places what fits
whenever it hears something: there is no row without ``allocate``.
"""

from services.core.scheduler.actions.preemption_checks import CHECK_DELAY_NS
from services.core.scheduler.model.rows import Application
from shared.messages.constraints import Constraints, PodTerm, Requirement
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.messages.protocol import Heartbeat
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.resources import PODS, without_zeros
from shared.model.units import seconds
from tests.builders import Core
from tests.conformance.kai_files import (
    NotSayableError,
    actions_of,
    gang_of,
    queue_name,
    queues_yaml,
    settings_of,
)
from tools.invariants import violations

STUCK = "StuckInReleasing"  # a row may expect it as Releasing, which it is too
STUCK_FOR_NS = seconds(180)
NAMESPACE = "cases"
RAN_NS = seconds(60)  # for how long what runs has run
LONG_NS = seconds(36_000)  # before anything that a row tells of
OVER = ("Succeeded", "Failed")
Shown = tuple[str, str]  # what a task is doing, and where


def task_name(job: dict, at: int) -> str:
    return job["tasks"][at].get("name", f"{job['name']}-{at}")


def affinity_label(values: list[str]) -> str:
    return "only/" + "-".join(values)


class Machine:
    """A core that has heard of a row's cluster, and what its tasks are called by now."""

    def __init__(self, row: dict, plugins: dict | None = None) -> None:
        self.row = row
        self.specs = {
            task_name(job, at): (job, at) for job in row["jobs"] for at in range(len(job["tasks"]))
        }
        self.gangs = {job["name"]: gang_of(row, job) for job in row["jobs"]}
        self.key_of = {task: task for task in self.specs}
        self.core = Core(
            queues_yaml(row), settings=settings_of(row, actions_of(row)), plugins=plugins
        )
        said = [getattr(answer.message, "error", "") for answer in self.core.answers]
        refused = [*filter(None, said), *self.core.partition.settings.refused]
        if refused:
            raise NotSayableError("; ".join(refused))
        self.now_ns = self.core.now_ns + LONG_NS
        self.core.update(nodes=tuple(map(self.node, row["nodes"])))
        self.submit()
        self.core.now_ns = self.now_ns - CHECK_DELAY_NS
        waiting = [self.ask(task) for task in self.in_order() if self.state(task) == "Pending"]
        self.core.update(asks=tuple(waiting))

    # --- what it is told ------------------------------------------------------------------------

    def submit(self) -> None:
        """Announce the jobs in the order of their creation, and what they have, when it was so."""
        queues = sorted(self.core.partition.queues.values(), key=lambda queue: queue.is_leaf)
        paths = {queue.name: queue.path for queue in queues}  # a leaf before others of its name
        jobs = sorted(self.row["jobs"], key=lambda job: -job.get("priority", 0))
        for at, job in enumerate(jobs):
            age_ns = max(CHECK_DELAY_NS, seconds(60 * job.get("age_minutes", 0)))
            self.core.application(
                job["name"],
                paths.get(queue_name(job["queue"]), job["queue"]),
                gang=self.gangs[job["name"]].terms,
                submission_time_ns=self.now_ns - age_ns + at,
            )
        for job in sorted(jobs, key=self.since_ns, reverse=True):
            self.core.now_ns = self.now_ns - self.since_ns(job)
            tasks = [task_name(job, at) for at in range(len(job["tasks"]))]
            held = [task for task in tasks if self.state(task) not in ("Pending", *OVER)]
            if held:
                self.core.update(allocations=tuple(map(self.existing, held)))
            for task in tasks:
                if self.state(task) == "Succeeded":
                    self.succeed(task)

    @staticmethod
    def since_ns(job: dict) -> int:
        """Return for how long a job has been as it is."""
        is_stuck = any(task["state"] == STUCK for task in job["tasks"])
        stale_ns = seconds(job.get("stale_for_s", 0))
        return max(CHECK_DELAY_NS, stale_ns, STUCK_FOR_NS if is_stuck else 0)

    def in_order(self) -> list[str]:
        jobs = sorted(self.row["jobs"], key=lambda job: -job.get("priority", 0))
        return [task_name(job, at) for job in jobs for at in range(len(job["tasks"]))]

    def state(self, task: str) -> str:
        job, at = self.specs[task]
        return job["tasks"][at]["state"]

    def node(self, name: str) -> NodeInfo:
        spec = self.row["nodes"][name]
        capacity = without_zeros(
            {
                "vcore": spec.get("cpu_milli", 20_000_000),
                "memory": spec.get("mem_bytes", 20_000_000_000),
                GPU: spec.get("gpus", 0),
                PODS: spec.get("max_pods", 110),
            }
        )
        labels = {"kai.scheduler/type": name, **spec.get("labels", {})}
        values = {name, *spec.get("labels", {}).values()}
        tasks = (task for job in self.row["jobs"] for task in job["tasks"])
        wanted = [task["node_affinity_in"] for task in tasks if task.get("node_affinity_in")]
        labels |= {affinity_label(only): "yes" for only in wanted if values & set(only)}
        return NodeInfo(name, NodeAction.CREATE, capacity, labels=labels)

    def ask(self, name: str) -> AllocationAsk:
        """Return the ask of a task: of its job's priority, the lower the less its own is.

        Pods of one gang may differ in priority; the highest is the gang's.
        """
        job, at = self.specs[name]
        task, gang = job["tasks"][at], self.gangs[job["name"]]
        highest = max(int(each.get("task_priority", 0)) for each in job["tasks"])
        priority = job.get("priority", 0) - highest + int(task.get("task_priority", 0))
        labels = task.get("labels", {})
        tags = {f"kubernetes.io/label/{key}": value for key, value in labels.items()}
        part = task.get("subgroup", "") if job.get("subgroups") else ""
        return AllocationAsk(
            self.key_of[name],
            job["name"],
            resource_of(job, task),
            priority=priority,
            task_group_name=gang.part_of(part),
            constraints=constraints_of(task),
            allocation_tags={"kubernetes.io/meta/namespace": NAMESPACE, **tags},
            allow_preempt_self=gang.lets_be_preempted(priority),
        )

    def existing(self, name: str) -> Allocation:
        job, at = self.specs[name]
        task, ask = job["tasks"][at], self.ask(name)
        device = task.get("device")
        return Allocation(
            ask.allocation_key,
            ask.application_id,
            task["node"],
            ask.resource_per_alloc,
            priority=ask.priority,
            task_group_name=ask.task_group_name,
            constraints=ask.constraints,
            allocation_tags=ask.allocation_tags,
            allow_preempt_self=ask.allow_preempt_self,
            allocated_ns=self.now_ns - RAN_NS,
            released=task["state"] in ("Releasing", STUCK),
            devices=() if device is None else ((device, ask.resource_per_alloc[GPU_SHARE]),),
        )

    def succeed(self, name: str) -> None:
        """Have a task run to its end, and well; nobody else is there yet."""
        job, _ = self.specs[name]
        ask, node = self.ask(name), next(iter(self.row["nodes"]))
        key, part = ask.allocation_key, ask.task_group_name
        held = Allocation(key, job["name"], node, ask.resource_per_alloc, task_group_name=part)
        self.core.update(allocations=(held,))
        why = TerminationType.STOPPED_BY_RM
        end = AllocationRelease(job["name"], key, why, has_succeeded=True)
        self.core.update(releases=(end,))

    # --- what it does ---------------------------------------------------------------------------

    def act(self) -> None:
        """Let the actions run once, where the machine has set a moment for that."""
        timer = self.core.partition.timers.get("preemption")
        if timer is not None and timer[1] <= self.core.now_ns + CHECK_DELAY_NS:
            self.core.fire_own("preemption")

    def round(self) -> None:
        """Let a round pass: the actions run, what they end goes and is made again."""
        self.step()
        self.settle()

    def step(self) -> None:
        """Let the actions run, where the machine has set a moment for that soon, or time pass.

        Rounds are a second or two apart: what a window protects is to be so in all of them.
        """
        core = self.core
        timer = core.partition.timers.get("preemption")
        if timer is not None and timer[1] <= core.now_ns + 2 * CHECK_DELAY_NS:
            core.fire_own("preemption")
        else:
            core.now_ns += CHECK_DELAY_NS
            core.send(Heartbeat("t"), epoch=0)

    def settle(self) -> None:
        """Have what is to go be gone, and be asked for again."""
        core = self.core
        task_of = {key: task for task, key in self.key_of.items()}
        going = {
            key: app for key, app in core.partition.releasing.items() if self.ends(task_of[key])
        }
        for key, application in list(going.items()):
            why = TerminationType.PREEMPTED_BY_SCHEDULER
            core.update(releases=(AllocationRelease(application.id, key, why),))
        for key in going:
            task = task_of[key]
            self.key_of[task] = f"{key}+"
            core.update(asks=(self.ask(task),))

    def ends(self, task: str) -> bool:
        """Return whether a task that is to go goes, and is made again."""
        job, at = self.specs[task]
        return not (job.get("delete_in_test") or job["tasks"][at].get("delete_in_test"))

    # --- what came of it ------------------------------------------------------------------------

    def shown(self, *, settled: bool = False) -> dict[str, Shown]:
        """Return what every task is doing; ``settled``: as it is when a round is over."""
        known = self._known()
        found: dict[str, Shown] = {}
        for task, key in self.key_of.items():
            job, at = self.specs[task]
            over = (job["tasks"][at]["state"], job["tasks"][at].get("node", ""))
            status, node = over if over[0] in OVER else known.get(key, ("Pending", ""))
            if settled and status == "Binding":
                status = "Running"
            elif settled and status == "Pipelined":
                status, node = "Pending", ""
            found[task] = (status, node)
        return found

    def _known(self) -> dict[str, Shown]:
        found: dict[str, Shown] = {}
        ran = {task for task in self.specs if self.state(task) == "Running"}
        for application in self.core.partition.applications.values():
            for key, allocation in application.allocations.items():
                status = "Running" if key in ran else "Binding"
                found[key] = _going(application, key) or (status, allocation.node_id)
            kept = {k: each.node for k, each in application.reservations.items()}
            for ask in application.asks():
                is_kept = ask.key in kept and not application.reservations[ask.key].is_ordinary
                found[ask.key] = (
                    ("Pipelined", kept[ask.key].node_id) if is_kept else ("Pending", "")
                )
        return found

    def nodes(self) -> dict[str, dict[str, int]]:
        """Return what GPUs of every node are idle, and being released."""
        nodes = self.core.partition.nodes.nodes
        found = {
            name: {"idle": node.available.get(GPU, 0), "releasing": 0}
            for name, node in nodes.items()
        }
        for key, application in self.core.partition.releasing.items():
            held = application.allocations[key]
            found[held.node_id]["releasing"] += held.resource_per_alloc.get(GPU, 0)
        return found

    def broken(self) -> list[str]:
        """Return which of the machine's own invariants do not hold."""
        return violations(self.core.partition)


def _going(application: Application, key: str) -> Shown | None:
    """Return what is shown of an allocation that is to end, None of any other."""
    node = application.allocations[key].node_id
    if key in application.stuck:
        return STUCK, node
    if key not in application.released:
        return None
    claim = application.moved(key)
    if claim is not None:
        return "Pipelined", claim.node.node_id
    return "Releasing", node


def resource_of(job: dict, task: dict) -> dict[str, int]:
    return without_zeros(
        {
            "vcore": job.get("cpu_milli_per_task", 1000),
            "memory": job.get("mem_bytes_per_task", 1_000_000_000),
            GPU: task.get("gpus", job.get("gpus_per_task", 0)),
            GPU_SHARE: task.get("gpu_share", job.get("gpu_share", 0)),  # in thousandths
            PODS: 1,
        }
    )


def constraints_of(task: dict) -> Constraints:
    only, labels = task.get("node_affinity_in"), task.get("labels", {})
    selector = tuple(Requirement(key, "In", (value,)) for key, value in labels.items())

    def terms(name: str) -> tuple[PodTerm, ...]:
        return (PodTerm(task[name], selector),) if task.get(name) else ()

    return Constraints(
        node_selector=((affinity_label(only), "yes"),) if only else (),
        pod_affinity=terms("pod_affinity_topology_key"),
        pod_anti_affinity=terms("pod_anti_affinity_topology_key"),
        namespace=NAMESPACE,
    )
