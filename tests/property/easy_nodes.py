"""EASY of the textbook on nodes of eight GPUs, where nobody states a run time: a comparison.

Rule 1: first come, first served, whatever the queue; the first that does not fit has a reservation
        of the nodes that are free soonest, and others pass it if they end before, or use others.
        Of those that are free in time the last are reserved (Lifka 1995).
Rule 2: run times are those of the last two of the same user and size, else of the same user, else
        of the queue, else of all; what has outlived its own is expected to run for as long again
        (``model/run_times.py``).
A job of eight GPUs or fewer is on one node, a larger one on whole nodes; the first nodes that fit.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from services.core.scheduler.model.run_times import LEAST_NS, NEVER_NS
from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tools.replay.jobs import Job, Trace

A_NODE = 8
LEAST_S = LEAST_NS // NANOS_PER_SECOND
Kind = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Task:
    """A job of the trace, in whole seconds."""

    number: int
    job: Job
    size: int
    submitted: int
    run: int
    started: int = -1
    nodes: list[int] = field(default_factory=list)

    @property
    def a_node(self) -> int:
        return min(self.size, A_NODE)

    @property
    def kinds(self) -> Iterator[Kind]:
        queue, user = self.job.queue, self.job.user
        return iter(((queue, user, self.size), (queue, user), (queue,), ()))


class EasyOnNodes:
    """A cluster of such nodes, and a trace that runs on it."""

    def __init__(self, trace: Trace) -> None:
        self.tasks = [_task(at, job) for at, job in enumerate(trace.jobs)]
        self.now = 0
        self.free = [A_NODE] * trace.nodes
        self.on: list[list[Task]] = [[] for _ in range(trace.nodes)]
        self.waiting: list[Task] = []
        self.ends: list[tuple[int, int, Task]] = []
        self.last: dict[Kind, deque[int]] = defaultdict(lambda: deque(maxlen=2))

    def run(self) -> "EasyOnNodes":
        coming = deque(self.tasks)
        while coming or self.ends:
            moments = [coming[0].submitted] if coming else []
            self.now = min([*moments, *(end[0] for end in self.ends[:1])])
            while self.ends and self.ends[0][0] <= self.now:
                self._end(heappop(self.ends)[2])
            while coming and coming[0].submitted <= self.now:
                self.waiting.append(coming.popleft())
            while self.waiting and (nodes := self._fit(self.waiting[0], set())):
                self._start(0, nodes)
            while self.waiting and self._backfill():
                pass
        return self

    @property
    def longest_s(self) -> int:
        """Return the longest wait."""
        return max(task.started - task.submitted for task in self.tasks)

    def _start(self, at: int, nodes: list[int]) -> None:
        task = self.waiting.pop(at)
        task.started, task.nodes = self.now, nodes
        for node in nodes:
            self.free[node] -= task.a_node
            self.on[node].append(task)
        heappush(self.ends, (self.now + task.run, task.number, task))

    def _end(self, task: Task) -> None:
        for node in task.nodes:
            self.free[node] += task.a_node
            self.on[node].remove(task)
        for kind in task.kinds:
            self.last[kind].append(task.run)

    def _predicted(self, task: Task) -> int:
        """Return for how long a task runs, rounded up to a quarter of a power of two."""
        last = next((self.last[kind] for kind in task.kinds if self.last.get(kind)), None)
        if last is None:
            return 0
        run = max(1, sum(last) // len(last))
        step = max(1, (1 << (run.bit_length() - 1)) // 4)
        return -(-run // step) * step

    def _ends(self, task: Task) -> int:
        run = self._predicted(task)
        if not run:
            return NEVER_NS
        if task.started + run <= self.now:
            return self.now + max(LEAST_S, self.now - task.started)
        return task.started + run

    def _backfill(self) -> bool:
        """Start the first that may pass the head; return whether there is one."""
        head = self.waiting[0]
        moments = sorted((self._free_at(node, head), node) for node in range(len(self.free)))
        count = max(1, head.size // A_NODE)
        shadow = moments[count - 1][0]
        in_time = [node for moment, node in moments if moment <= shadow]
        reserved = set(in_time[-count:])
        for at in range(1, len(self.waiting)):
            task = self.waiting[at]
            run = self._predicted(task)
            is_over = bool(run) and self.now + run <= shadow
            nodes = self._fit(task, set() if is_over else reserved)
            if nodes:
                self._start(at, nodes)
                return True
        return False

    def _free_at(self, node: int, head: Task) -> int:
        """Return when a node has the room for the head, or a member of it; 0: now."""
        room, moment = self.free[node], 0
        for end, size in sorted((self._ends(task), task.a_node) for task in self.on[node]):
            if room >= head.a_node:
                break
            room, moment = room + size, end
        return moment

    def _fit(self, task: Task, closed: set[int]) -> list[int]:
        """Return the first nodes that take a task; none: they do not."""
        count = max(1, task.size // A_NODE)
        found = []
        for node, free in enumerate(self.free):
            if free >= task.a_node and node not in closed:
                found.append(node)
                if len(found) == count:
                    return found
        return []


def _task(number: int, job: Job) -> Task:
    run_s = max(1, job.run_ns // NANOS_PER_SECOND)
    return Task(number, job, job.amount(GPU), job.submitted_ns // NANOS_PER_SECOND, run_s)
