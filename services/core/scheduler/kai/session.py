"""A session: nodes, queues, jobs and tasks as the actions see them, with ledgers that follow.

Rule 1: a task's status, node and ghost say what it takes, and ``move`` is the only way to change
        them: the ledgers of its node and of its queues up to the root change with it, and moving it
        back brings every ledger back to the number it was.
Rule 2: on a node, ``idle`` is what nobody has, ``releasing`` what is being given back and is not
        promised. A pipelined task takes of what is being released. A task that was moved leaves a
        ghost on its old node: it is there until it has gone.
Rule 3: a queue's ``allocated`` counts tasks that run, are placed or are pipelined, never those that
        are being released.

Amounts are tuples of integers in the order of ``Session.names``. Source: contract kai.md, 1.1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.kai.groups import Group
from services.core.scheduler.kai.plugins import Plugins
from services.core.scheduler.kai.sums import summed

UNLIMITED = -1
Amount = tuple[int, ...]


class Status(IntEnum):
    """What a task is doing."""

    PENDING = 0
    ALLOCATED = 1  # placed on idle room by an action
    PIPELINED = 2  # placed on room that is still being released
    RUNNING = 3
    RELEASING = 4
    STUCK = 5  # being released for too long: nobody may wait for its room
    SUCCEEDED = 6
    FAILED = 7


ACTIVE = (Status.ALLOCATED, Status.PIPELINED, Status.RUNNING)
PLACED = (Status.ALLOCATED, Status.RUNNING)
NO_NODE = -1


@dataclass(slots=True, eq=False)
class Task:
    """A task of a job. ``ghost`` is the node that a moved task is still on."""

    name: str
    job: "Job"
    request: Amount
    number: int
    priority: int = 0
    status: Status = Status.PENDING
    node: int = NO_NODE
    ghost: int = NO_NODE
    is_kept: bool = False  # its room was freed for it before this session: it is nobody else's
    only_nodes: frozenset[str] | None = None
    kind: str = ""  # what other tasks' affinity sees of it
    near: str = ""  # the label of nodes by which it is kept near tasks of its kind
    apart: str = ""  # and away from them

    @property
    def order(self) -> tuple[int, int]:
        """Return what orders tasks of a job: the first in is the last out."""
        return (-self.priority, self.number)


def is_active(task: Task) -> bool:
    """Return whether a task runs, is placed or pipelined."""
    return task.status in ACTIVE


def is_placed(task: Task) -> bool:
    """Return whether a task has real room."""
    return task.status in PLACED


def is_evictable(task: Task) -> bool:
    """Return whether a task has room, or was promised some, that may be taken from it."""
    return task.status in ACTIVE and not task.is_kept


@dataclass(slots=True, eq=False)
class Job:
    """A gang: it starts with ``min_available`` tasks at once and may grow beyond."""

    name: str
    queue: "Queue"
    priority: int
    number: int  # the order of creation
    min_available: int = 1
    preemptible: bool = True
    tasks: list[Task] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0] * len(Status))
    kept: int = 0  # how many tasks have room that is nobody else's
    stale_for_s: int = 0
    staleness_grace_s: int | None = None  # None: the default; negative: never
    waits_s: int = 0  # how much of its preemption delay is left
    runtime_s: int = 60  # how long it has run
    tree: Group | None = None  # of its task groups; None: one set of min_available

    @property
    def active(self) -> int:
        """Return how many tasks run, are placed or pipelined."""
        counts = self.counts
        return counts[Status.ALLOCATED] + counts[Status.PIPELINED] + counts[Status.RUNNING]

    @property
    def placed(self) -> int:
        """Return how many tasks have real room."""
        return self.counts[Status.ALLOCATED] + self.counts[Status.RUNNING]

    @property
    def group(self) -> Group:
        """Return the tree; a job without one is a single set."""
        if self.tree is None:
            self.tree = Group(self.name, self.min_available)
        if not self.tree.members and not self.tree.tasks:
            self.tree.tasks = self.tasks
        return self.tree

    @property
    def is_satisfied(self) -> bool:
        """Return whether its minimum runs, is placed or pipelined."""
        return self.group.is_satisfied(is_active)

    @property
    def elasticity(self) -> int:
        """Return -1 below the minimum, 0 at it, 1 above it."""
        if not self.is_satisfied:
            return -1
        return 1 if self.group.surplus(is_active) else 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Return what orders jobs of a queue: priority, elasticity, age."""
        return (-self.priority, self.elasticity, self.number)


@dataclass(slots=True, eq=False)
class Queue:
    """A queue; amounts by resource, UNLIMITED where there is none."""

    name: str
    number: int
    parent: "Queue | None" = None
    priority: int = 100
    quota: list[int] = field(default_factory=list)
    limit: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    reclaim_min_runtime_s: int | None = None
    preempt_min_runtime_s: int | None = None
    children: list["Queue"] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    allocated_fixed: list[int] = field(default_factory=list)  # by what may not be preempted
    requested: list[int] = field(default_factory=list)
    fair_share: list[int] = field(default_factory=list)

    def lineage(self) -> "Iterator[Queue]":
        """Yield this queue and every one above it."""
        queue: Queue | None = self
        while queue is not None:
            yield queue
            queue = queue.parent

    def allocatable(self, at: int) -> int:
        """Return the larger of quota and fair share of a resource, within the limit."""
        share = max(self.quota[at], self.fair_share[at])
        if UNLIMITED in (self.quota[at], self.fair_share[at]):
            share = UNLIMITED
        limit = self.limit[at]
        if limit == UNLIMITED:
            return share
        return limit if share == UNLIMITED else min(share, limit)

    @property
    def all_allocatable(self) -> Amount:
        """Return what is allocatable of every resource."""
        return tuple(self.allocatable(at) for at in range(len(self.limit)))


@dataclass(slots=True, eq=False)
class SessionSettings:
    """How actions behave; the defaults are those of a cluster in production.

    ``spread`` puts tasks on the emptiest node instead of the fullest. A negative
    ``max_consolidation_victims`` is no limit.
    """

    spread: bool = False
    max_consolidation_victims: int = 16
    consolidating_reclaim: bool = True
    staleness_grace_s: int = 60
    saturation_multiplier: float = 1.0


class Session:
    """Everything that actions work on."""

    def __init__(
        self,
        names: Sequence[str],
        node_names: Sequence[str],
        capacity: NDArray[np.int64],
        settings: SessionSettings | None = None,
    ) -> None:
        self.names = tuple(names)
        self.node_names = tuple(node_names)
        self.capacity = capacity
        self.idle = capacity.copy()
        self.releasing = np.zeros_like(capacity)
        self.settings = settings or SessionSettings()
        self.labels: list[dict[str, str]] = [{} for _ in self.node_names]
        self.plugins = Plugins()  # those that an engine runs with
        self.held_pairs: frozenset[frozenset[str]] = frozenset()  # jobs that may not take turns
        self.queues: list[Queue] = []
        self.jobs: list[Job] = []
        self.total: Amount = tuple(summed(capacity))
        self.width = len(self.names)
        self._rows_of: dict[frozenset[str], NDArray[np.bool_]] = {}

    # --- building -------------------------------------------------------------------------------

    def add_queue(self, queue: Queue) -> Queue:
        """Take a queue in; its parent must have been taken in before."""
        for amounts, default in (
            ("quota", 0), ("limit", UNLIMITED), ("weight", 0), ("allocated", 0),
            ("allocated_fixed", 0), ("requested", 0), ("fair_share", 0),
        ):  # fmt: skip
            if not getattr(queue, amounts):
                setattr(queue, amounts, [default] * self.width)
        self.queues.append(queue)
        if queue.parent is not None:
            queue.parent.children.append(queue)
        return queue

    def add_job(self, job: Job) -> None:
        """Take a job in with its tasks, which take what their status and node say."""
        self.jobs.append(job)
        job.queue.jobs.append(job)
        for task in job.tasks:
            job.counts[task.status] += 1
            job.kept += task.is_kept
            self._count(task, 1)

    # --- moving ---------------------------------------------------------------------------------

    def move(self, task: Task, status: Status, node: int, ghost: int = NO_NODE) -> None:
        """Change what a task is doing, and every ledger with it."""
        self._count(task, -1)
        counts = task.job.counts
        counts[task.status] -= 1
        task.status, task.node, task.ghost = status, node, ghost
        counts[status] += 1
        self._count(task, 1)

    def _count(self, task: Task, sign: int) -> None:
        status, node = task.status, task.node
        amount = np.array(task.request, dtype=np.int64) * sign
        if status in PLACED:
            self.idle[node] -= amount
        elif status is Status.PIPELINED:
            self.releasing[node] -= amount
        elif status is Status.RELEASING:
            self.idle[node] -= amount
            self.releasing[node] += amount
        elif status is Status.STUCK:
            self.idle[node] -= amount
        if task.ghost != NO_NODE:
            self.idle[task.ghost] -= amount
            self.releasing[task.ghost] += amount
        if status in ACTIVE:
            self._count_queues(task, sign)
            for moved in self.plugins.moved:
                moved(task, sign)

    def _count_queues(self, task: Task, sign: int) -> None:
        is_fixed = not task.job.preemptible
        for queue in task.job.queue.lineage():
            for at, value in enumerate(task.request):
                if value:
                    queue.allocated[at] += sign * value
                    if is_fixed:
                        queue.allocated_fixed[at] += sign * value

    # --- looking --------------------------------------------------------------------------------

    def of_kind(self, task: Task) -> Iterator[Task]:
        """Yield the other tasks of a task's kind that are on a node."""
        for job in self.jobs:
            for other in job.tasks:
                is_there = other.status in (*ACTIVE, Status.RELEASING)
                if other is not task and other.kind == task.kind and is_there:
                    yield other

    def rows_of(self, nodes: frozenset[str]) -> NDArray[np.bool_]:
        """Return which rows have one of some names; found once for every set of names."""
        if nodes not in self._rows_of:
            self._rows_of[nodes] = np.array([name in nodes for name in self.node_names])
        return self._rows_of[nodes]

    def roots(self) -> list[Queue]:
        """Return the queues that have none above them."""
        return [queue for queue in self.queues if queue.parent is None]

    def dump(self) -> tuple[object, ...]:
        """Return everything that a statement may change, to compare with later."""
        return (
            self.idle.tobytes(),
            self.releasing.tobytes(),
            tuple((t.name, t.status, t.node, t.ghost) for job in self.jobs for t in job.tasks),
            tuple((q.name, tuple(q.allocated), tuple(q.allocated_fixed)) for q in self.queues),
            tuple(tuple(job.counts) for job in self.jobs),
        )


def plus(left: Sequence[int], right: Sequence[int]) -> Amount:
    """Return the sum of two amounts."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


def minus(left: Sequence[int], right: Sequence[int]) -> Amount:
    """Return left less right."""
    return tuple(a - b for a, b in zip(left, right, strict=True))


def within(amount: Sequence[int], bound: Sequence[int]) -> bool:
    """Return whether an amount is within a bound, type by type; UNLIMITED bounds nothing."""
    return all(b == UNLIMITED or a <= b for a, b in zip(amount, bound, strict=True))


def request_of(tasks: Sequence[Task], width: int) -> Amount:
    """Return what tasks ask for together."""
    total = [0] * width
    for task in tasks:
        for at, value in enumerate(task.request):
            total[at] += value
    return tuple(total)
