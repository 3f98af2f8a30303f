"""A trial: the partition with an open statement, its applications seen as jobs of tasks.

Nothing is copied: free capacity, usage of queues and fitting nodes are read from the partition.
Jobs and tasks are created on first use and follow the statement forward and back. ``Adapter``
provides what KAI's rules need and the partition does not store.

Amounts are tuples of integers in the order of ``Trial.names``. Source:
docs/rules/kai.md#states-and-rooms.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import (
    Application,
    AskGroup,
    Node,
    Purpose,
    Queue,
    depth_first,
)
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.sums import Sums, summed
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.nodes.victim_budgets import Releases
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import At, Place, Pod, Statement
from services.core.scheduler.statement.task_trees import Group
from shared.messages.gang_tree import turn_of
from shared.messages.interface import Allocation
from shared.model.resources import PODS, ResourceView

UNLIMITED = -1
NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
Amount = tuple[int, ...]


class Status(IntEnum):
    """The state of a task."""

    PENDING = 0
    ALLOCATED = 1  # placed on idle capacity by an action
    PIPELINED = 2  # placed on capacity still being released
    RUNNING = 3
    RELEASING = 4


ACTIVE = (Status.ALLOCATED, Status.PIPELINED, Status.RUNNING)
PLACED = (Status.ALLOCATED, Status.RUNNING)
_OF_ASK = {
    Place.WAITING: Status.PENDING,
    Place.NOMINATED: Status.PIPELINED,
    Place.PLACED: Status.ALLOCATED,
    Place.RELEASING: Status.RELEASING,
}
_OF_POD = {
    Place.PLACED: Status.RUNNING,
    Place.RELEASING: Status.RELEASING,
    Place.MOVING: Status.PIPELINED,
}


@dataclass(slots=True, eq=False)
class Task:
    """A pod of a job. ``node`` is its present or planned node."""

    pod: Pod
    job: "Job"
    request: Amount
    number: int
    priority: int
    status: Status
    node: Node | None
    is_kept: bool = False  # its capacity was reserved before this trial and cannot be taken

    @property
    def name(self) -> str:
        """Return the pod's key."""
        return self.pod.key if isinstance(self.pod, Ask) else self.pod.allocation_key

    @property
    def task_group(self) -> str:
        """Return the name of the pod's task group."""
        pod = self.pod
        return pod.request.task_group_name if isinstance(pod, Ask) else pod.task_group_name

    @property
    def order(self) -> tuple[int, int]:
        """Return the sort key of tasks in a job: the first to start is the last to be evicted."""
        return (-self.priority, self.number)


def is_active(task: Task) -> bool:
    """Whether a task runs, is placed or pipelined."""
    return task.status in ACTIVE


def is_waiting(task: Task) -> bool:
    """Whether a task has neither capacity nor a reservation."""
    return task.status is Status.PENDING


def holds_room(task: Task) -> bool:
    """Whether a task has capacity, reserved or being released included."""
    return task.status is not Status.PENDING


def is_placed(task: Task) -> bool:
    """Whether a task runs, or is placed on idle capacity."""
    return task.status in PLACED


def is_out(task: Task) -> bool:
    """Whether an evicted task has no new place yet."""
    return task.status in (Status.RELEASING, Status.PENDING)


def is_evictable(task: Task) -> bool:
    """Whether a task has capacity that may be taken from it."""
    return task.status in ACTIVE and not task.is_kept


class Job:
    """An application: it starts with its minimum of tasks at once and may grow beyond."""

    __slots__ = ("__dict__", "application", "counts", "queue", "reserved", "trial", "waits")

    def __init__(self, trial: "Trial", application: Application, queue: "Share") -> None:
        self.trial = trial
        self.application = application
        self.queue = queue
        asks = application.groups.values()
        self.reserved = 0
        self.waits: list[tuple[AskGroup, int]] = []  # its groups of asks, with the number waiting
        self.counts = [0] * len(Status)
        self.counts[Status.RELEASING] = len(application.released)
        self.counts[Status.RUNNING] = len(application.allocations) - len(application.released)
        if asks:
            self._count_asks()

    def _count_asks(self) -> None:
        application = self.application
        if application.reservations or application.claims:
            self.reserved = len(_reserved_nodes(application))
            self.counts[Status.PIPELINED] = self.reserved
        self.waits = self.trial.waiting(self)
        self.counts[Status.PENDING] = sum([count for _, count in self.waits])

    @property
    def name(self) -> str:
        """Return the application's id."""
        return self.application.id

    @property
    def number(self) -> int:
        """Return the order of creation."""
        return self.application.sequence

    @cached_property
    def min_available(self) -> int:
        """Return how many tasks must start together."""
        return self.trial.adapter.minimum(self.application)

    @cached_property
    def preemptible(self) -> bool:
        """Whether its tasks may be evicted."""
        return self.trial.adapter.is_preemptible(self.application)

    @cached_property
    def priority(self) -> int:
        """Return the highest priority of its tasks."""
        return self.trial.adapter.priority(self.application)

    @cached_property
    def tasks(self) -> list[Task]:
        """Return its tasks: running, waiting, and nominated."""
        return list(self.trial.tasks_of(self))

    @cached_property
    def group(self) -> Group[Task]:
        """Return its tree; a job without one is a single set."""
        tree = self.trial.adapter.tree(self)
        return tree or Group(self.name, self.min_available, tasks=self.tasks)

    @cached_property
    def is_flat(self) -> bool:
        """Whether it is a single set of interchangeable tasks."""
        return self.trial.adapter.is_flat(self.application)

    @property
    def active(self) -> int:
        """Return how many tasks run, are placed or pipelined."""
        counts = self.counts
        return counts[Status.ALLOCATED] + counts[Status.PIPELINED] + counts[Status.RUNNING]

    @property
    def placed(self) -> int:
        """Return how many tasks run, or are placed on idle capacity."""
        return self.counts[Status.ALLOCATED] + self.counts[Status.RUNNING]

    @property
    def is_satisfied(self) -> bool:
        """Whether its minimum runs, is placed or pipelined."""
        if self.is_flat:
            return self.active >= self.min_available
        return self.group.is_satisfied(is_active)

    @property
    def elasticity(self) -> int:
        """Return -1 below the minimum, 0 at it, 1 above it."""
        if not self.is_satisfied:
            return -1
        if self.is_flat:
            return int(self.active > self.min_available)
        return int(self.group.has_surplus(is_active))

    @property
    def turn(self) -> int:
        """Return the sort key of growing gangs: active tasks in relation to the minimum.

        If gangs do not take turns, jobs that have their minimum are ordered by age.
        """
        elasticity, application = self.elasticity, self.application
        if elasticity <= 0 or not (application.tree is not None or application.is_gang):
            return elasticity
        if not application.takes_turns:
            return 0 if application.is_kai else elasticity
        least = self.min_available if self.is_flat else self.group.least
        return turn_of(elasticity, self.active, least)

    @cached_property
    def service_level(self) -> int:
        """Return its service level, 0 if its leaf has none."""
        return self.trial.adapter.service_level(self.application)

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Return the sort key of jobs in a queue: priority, service level, turn, age."""
        return (-self.priority, self.service_level, self.turn, self.number)


@dataclass(slots=True, eq=False)
class Share:
    """A queue as KAI's rules see it: quota, limit, weight, fair share, usage."""

    queue: Queue
    names: tuple[str, ...]
    number: int
    parent: "Share | None"
    priority: int
    quota: list[int]
    limit: list[int]
    weight: Sequence[float | Fraction]
    min_runtime_s: dict[str, int] = field(default_factory=dict)  # of a victim, by the action
    children: list["Share"] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    fair_share: list[int] = field(default_factory=list)
    used: Sequence[Fraction] = ()  # usage over time, as part of the cluster; () if not counted
    parts: list[Fraction] = field(default_factory=list)  # weights adjusted by it; siblings sum to 1
    all_allocatable: Amount = ()  # the larger of quota and fair share, within the limit
    _lineage: "tuple[Share, ...]" = ()

    def __post_init__(self) -> None:
        self._lineage = (self,) if self.parent is None else (self, *self.parent.lineage())

    @property
    def name(self) -> str:
        """Return the queue's path."""
        return self.queue.path

    @property
    def allocated(self) -> Amount:
        """Return its usage: without what is being preempted, with what is reserved for its asks."""
        queue = self.queue
        held, preempting, reserved = queue.allocated, queue.preempting, queue.reserved
        if preempting or reserved:
            return tuple(
                [
                    held.get(name, 0) - preempting.get(name, 0) + reserved.get(name, 0)
                    for name in self.names
                ]
            )
        return tuple([held.get(name, 0) for name in self.names])

    def lineage(self) -> "tuple[Share, ...]":
        """Return this queue's share and those of all queues above it."""
        return self._lineage

    def set_fair_share(self, amounts: list[int]) -> None:
        """Set the fair share, and what the queue may allocate by it."""
        self.fair_share = amounts
        self.all_allocatable = tuple(
            _allocatable(*each) for each in zip(self.quota, amounts, self.limit, strict=True)
        )


def _allocatable(quota: int, fair_share: int, limit: int) -> int:
    share = UNLIMITED if UNLIMITED in (quota, fair_share) else max(quota, fair_share)
    if limit == UNLIMITED:
        return share
    return limit if share == UNLIMITED else min(share, limit)


class Adapter:
    """What a policy defines about queues and applications for the actions, with defaults."""

    spares_work = False  # whether victims are ordered by lost work

    def share(self, queue: Queue, names: tuple[str, ...], at: int, above: Share | None) -> Share:
        """Return a queue's share."""
        raise NotImplementedError

    def minimum(self, application: Application) -> int:
        """Return how many tasks must start together."""
        raise NotImplementedError

    def tree(self, job: Job) -> Group[Task] | None:  # noqa: ARG002
        """Return the tree of an application's task groups, or None."""
        return None

    def is_flat(self, application: Application) -> bool:  # noqa: ARG002
        """Whether an application has no tree."""
        return True

    def simple_minimum(self, application: Application) -> int | None:
        """Return the minimum of an application without a tree, None with one."""
        return self.minimum(application) if self.is_flat(application) else None

    def priority(self, application: Application) -> int:
        """Return the highest priority of an application's asks and allocations."""
        waiting = application.ask_priorities.counts
        items = application.allocations.values()
        if len(items) == 1 and not waiting:
            (only,) = items
            return only.priority
        if not items:
            return application.ask_priorities.highest if waiting else 0
        priorities = [item.priority for item in items]
        return max([*priorities, *waiting])

    def is_preemptible(self, application: Application) -> bool:
        """Whether an application's tasks may be evicted."""
        return all(
            allocation.allow_preempt_self and not allocation.constraints.required_node
            for allocation in application.allocations.values()
        )

    def lost_work(self, application: Application, *, is_one: bool) -> tuple[int, ...]:  # noqa: ARG002
        """Return the sort key of victims by lost work, () if it does not matter.

        ``is_one``: one pod is evicted, otherwise all.
        """
        return ()

    def lost_with(self, task: Task) -> tuple[int, int]:  # noqa: ARG002
        """Return the device- and vcore-seconds of work lost with a task, in thousandths."""
        return (0, 0)

    def served(self, application: Application) -> tuple[int, int]:  # noqa: ARG002
        """Return the device- and vcore-seconds of an application's service, in thousandths."""
        return (0, 0)

    def service_level(self, application: Application) -> int:  # noqa: ARG002
        """Return an application's service level in its leaf."""
        return 0

    def runtime_s(self, application: Application) -> int:
        """Return for how many seconds an application has run."""
        raise NotImplementedError

    def waits_s(self, application: Application) -> int:  # noqa: ARG002
        """Return for how many seconds an application may not preempt yet."""
        return 0

    def stale(self) -> Iterable[tuple[Application, str, int]]:
        """Yield each stale gang, the part below its minimum, and for how many seconds.

        The part is "" for the gang itself. Only gangs that were whole are stale.
        """
        raise NotImplementedError

    def staleness_grace_s(self, application: Application) -> int:
        """Return for how many seconds a gang may be stale; negative: unlimited."""
        raise NotImplementedError

    def may_start(self, application: Application, group: AskGroup) -> bool:  # noqa: ARG002
        """Whether a group's asks wait for capacity."""
        return True

    def may_take_from(self, victim: Application, application: Application) -> bool:  # noqa: ARG002
        """Whether an application may preempt another, apart from plugins."""
        return True

    def asking(self, asks: Iterable[Ask]) -> list[Ask]:
        """Return those of some asks that need capacity: they have none reserved yet."""
        return [ask for ask in asks if not ask.has_preempted]


class Trial:
    """The state that actions work on."""

    def __init__(self, partition: Partition, adapter: Adapter) -> None:
        self.partition = partition
        self.nodes = partition.nodes
        self.adapter = adapter
        self.names = tuple(sorted(name for name in self.nodes.total if name != PODS))
        self.width = len(self.names)
        self.total = total_of(self.nodes, self.names)
        self.statement = Statement(partition, self._follow)
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, Task] = {}
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._free: dict[Shape, Shape] = {}  # shapes of gangs, without their domains
        self.most = 0  # limit of moves and tried jobs, after which actions stop; 0: none
        self.spent = 0
        self.looked_at: dict[str, None] = {}  # jobs that the present action has tried
        self.is_cut = False  # an action stopped at the limit
        self.touched: dict[str, Job] = {}  # jobs with a pod that was ever moved
        self.evictable: dict[Share, dict[Job, None]] = {}  # touched jobs with evictable tasks
        self.unread: dict[Job, None] = {}  # jobs touched since this was last read
        self.orders: dict[Share, list[Any]] = {}  # victims in their order before the trial
        self.passed: dict[Share, int] = {}  # how many of its first entries are touched
        self.with_surplus: dict[bool, tuple[int, Sums]] = {}  # of a search for gangs that make way
        self.shares = shares_of(partition.root, self.names, adapter.share)
        self._non_preemptible = {
            share: list(self.amounts(queue.non_preemptible)) for queue, share in self.shares.items()
        }
        self.asking = [
            job
            for application in partition.in_order_asking()
            if (job := self.job_of(application)).counts[Status.PENDING]
        ]

    @property
    def top(self) -> list[Share]:
        """Return the share of the root, in a list."""
        return [self.shares[self.partition.root]]

    # --- jobs and tasks -------------------------------------------------------------------------

    @property
    def leaves(self) -> list[Share]:
        """Return the shares of the leaves."""
        return [share for queue, share in self.shares.items() if queue.is_leaf]

    def job_of(self, application: Application) -> Job:
        """Return an application's job."""
        job = self._jobs.get(application.id)
        if job is None:
            share = self.shares[application.queue]
            job = self._jobs[application.id] = Job(self, application, share)
        return job

    def next_of(self, pop: Callable[[], Job | None]) -> Job | None:
        """Return the next job to try; None if there is none, or the limit is reached."""
        job = pop()
        if job is not None and self.most and self.spent >= self.most:
            self.is_cut = True
            return None
        if job is not None:
            self.spent += 1
            self.looked_at[job.name] = None
        return job

    def waiting(self, job: Job) -> list[tuple[AskGroup, int]]:
        """Return a job's groups of asks that wait for capacity, with their numbers."""
        adapter, application = self.adapter, job.application
        return [
            (group, len(adapter.asking(group.asks.values())))
            for group in application.groups.values()
            if adapter.may_start(application, group)
        ]

    def tasks_of(self, job: Job) -> Iterator[Task]:
        """Yield a job's tasks."""
        application = job.application
        for at, allocation in enumerate(application.allocations.values()):
            key = allocation.allocation_key
            status = Status.RELEASING if key in application.released else Status.RUNNING
            node = self.nodes.nodes.get(allocation.node_id)
            resource, priority = allocation.resource_per_alloc, allocation.priority
            yield self._task(allocation, job, resource, at, priority, status, node)
        reserved = _reserved_nodes(application)
        waiting = []
        for group in application.groups.values():
            asks = group.asks.values()
            may_start = self.adapter.may_start(application, group)
            asking = {ask.key for ask in self.adapter.asking(asks)} if may_start else set()
            waiting += [ask for ask in asks if ask.key in asking or ask.key in reserved]
        waiting.sort(key=lambda ask: ask.sequence)
        for at, ask in enumerate(waiting, start=len(application.allocations)):
            node = reserved.get(ask.key)
            status = Status.PENDING if node is None else Status.PIPELINED
            resource, priority = ask.shape.resource, ask.request.priority
            task = self._task(ask, job, resource, at, priority, status, node)
            task.is_kept = node is not None
            yield task

    def _task(self, pod: Pod, job: Job, resource: ResourceView, *rest: Any) -> Task:
        task = Task(pod, job, self.amounts(resource), *rest)
        self._tasks[task.name] = task
        return task

    def _follow(self, pod: Pod, now: At) -> None:
        """Update a task to its pod's place in the statement."""
        task = self._tasks[pod.key if isinstance(pod, Ask) else pod.allocation_key]
        was, job = task.status, task.job
        counts = job.counts
        self.spent += 1
        of_leaf = self._touch(job)
        counts[was] -= 1
        if isinstance(pod, Ask):
            task.status, task.node = _OF_ASK[now.place], now.node
        else:
            task.status = _OF_POD[now.place]
            task.node = now.node or self.nodes.nodes[pod.node_id]
        counts[task.status] += 1
        if job.active > job.reserved:
            of_leaf[job] = None
        else:
            of_leaf.pop(job, None)
        if job.application.is_non_preemptible:
            change = (task.status in ACTIVE) - (was in ACTIVE)
            if change:
                self._add_non_preemptible(job.queue, task.request, change)

    def _touch(self, job: Job) -> dict[Job, None]:
        """Mark a job as changed; return the evictable jobs of its leaf."""
        self.touched[job.name] = job
        self.unread[job] = None
        return self.evictable.setdefault(job.queue, {})

    def releases(self) -> Releases:
        """Return the pods to be evicted so far, counted by disruption budget."""
        evicted = self.statement.evicted()
        return self.partition.victims.budgets.releases(evicted, of_gangs=False)

    def are_too_many(self, tasks: Iterable[Task]) -> bool:
        """Whether the evictions so far exceed a disruption budget of these tasks."""
        has_budgets = bool(self.partition.victims.budgets)
        return has_budgets and self.releases().are_too_many(task.name for task in tasks)

    # --- plugins --------------------------------------------------------------------------------

    def may_take_from(self, action: str, victim: Job, job: Job) -> bool:
        """Whether an action may evict all allocations of a job for another job."""
        partition, application = self.partition, job.application
        return self.adapter.may_take_from(victim.application, application) and (
            partition.hooks is None
            or all(
                partition.may_take(action, held, application)
                for held in victim.application.allocations.values()
            )
        )

    def agree(self, action: str, victims: Iterable[Task], job: Job) -> bool:
        """Whether plugins allow an action to evict all these victims for a job."""
        going = [task.pod for task in victims if isinstance(task.pod, Allocation)]
        return self.partition.agree(action, going, job.application)

    def has_capacity(self, job: Job, request: Amount) -> bool:
        """Whether plugins allow a job an amount."""
        wanted = {name: value for name, value in zip(self.names, request, strict=True) if value}
        return self.partition.no_capacity(job.application, wanted) is None

    def non_preemptible(self, share: Share) -> list[int]:
        """Return a queue's usage by jobs that may not be preempted."""
        return self._non_preemptible[share]

    def _add_non_preemptible(self, leaf: Share, request: Amount, change: int) -> None:
        for share in leaf.lineage():
            for at, value in enumerate(request):
                self._non_preemptible[share][at] += change * value

    # --- reading --------------------------------------------------------------------------------

    def amounts(self, resource: ResourceView) -> Amount:
        """Return a resource's amounts in the order of the names."""
        return in_order(resource, self.names)

    def shape_of(self, task: Task) -> Shape:
        """Return a task's shape; of a running pod, the shape that it would have as an ask."""
        pod = task.pod
        if isinstance(pod, Ask):
            return pod.shape if pod.shape.gang_part is None else self._without_domains(pod.shape)
        labels = self.nodes.pods.labels_of(pod.allocation_tags)
        key = (task.request, pod.resource_per_alloc.get(PODS, 0), pod.constraints, labels)
        shape = self._shapes.get(key)
        if shape is None:
            resource = dict(pod.resource_per_alloc)
            shape = self._shapes[key] = Shape("of a victim", resource, pod.constraints, labels)
        return shape

    def _without_domains(self, shape: Shape) -> Shape:
        """Return a shape without its gang's domains: in a trial the tree enforces them."""
        found = self._free.get(shape)
        if found is None:
            found = replace(shape, gang_part=None, view=None, candidates=None, plan=None)
            self._free[shape] = found
        return found

    def room(self) -> NDArray[np.int64]:
        """Return each node's expected free capacity; closed nodes have none."""
        return self.nodes.room.expected(self.names)

    def free(self) -> Sums:
        """Return its sum over nodes; negative values count as 0."""
        return summed(np.maximum(self.room(), 0))


ShareOf = Callable[[Queue, tuple[str, ...], int, "Share | None"], Share]


def shares_of(root: Queue, names: tuple[str, ...], share_of: ShareOf) -> dict[Queue, Share]:
    """Return the share of every queue, parents before their children."""
    found: dict[Queue, Share] = {}
    for number, queue in enumerate(depth_first(root)):
        above = found[queue.parent] if queue.parent is not None else None
        share = found[queue] = share_of(queue, names, number, above)
        if above is not None:
            above.children.append(share)
    return found


def total_of(nodes: NodeTable, names: tuple[str, ...]) -> Amount:
    """Return the cluster's capacity without foreign pods and nodes that are not ready."""
    total = {name: nodes.total.get(name, 0) for name in names}
    for node in [node for node in nodes.rows if node.taints or node.occupied]:
        lost = node.capacity if _is_not_ready(node) else node.occupied
        for name in names if lost else ():
            total[name] -= min(node.capacity.get(name, 0), lost.get(name, 0))
    return tuple(total.values())


def _is_not_ready(node: Node) -> bool:
    """Whether the node controller marked a node as not ready or unreachable."""
    return any(taint.key in NOT_READY for taint in node.taints)


def _reserved_nodes(application: Application) -> dict[str, Node]:
    """Return the nodes reserved for an application's asks where pods are being released."""
    kept = {k: held.node for k, held in application.reservations.items() if not held.is_ordinary}
    claims = application.claims_for(Purpose.PLACEHOLDERS).items()
    kept.update((key, claim.node) for key, claim in claims)
    return kept


def in_order(resource: ResourceView, names: Sequence[str]) -> Amount:
    """Return a resource's amounts of some types, in their order."""
    return tuple([resource.get(name, 0) for name in names])


def plus(left: Sequence[int], right: Sequence[int]) -> Amount:
    """Return the sum of two amounts."""
    return tuple([a + b for a, b in zip(left, right, strict=True)])


def minus(left: Sequence[int], right: Sequence[int]) -> Amount:
    """Return left less right."""
    return tuple([a - b for a, b in zip(left, right, strict=True)])


def within(amount: Sequence[int], bound: Sequence[int]) -> bool:
    """Whether an amount is within a bound, type by type; UNLIMITED is no bound."""
    return all(b == UNLIMITED or a <= b for a, b in zip(amount, bound, strict=True))


def request_of(tasks: Iterable[Task], width: int) -> Amount:
    """Return the sum of the tasks' requests."""
    total: Amount = (0,) * width
    for task in tasks:
        total = tuple(map(add, total, task.request))
    return total
