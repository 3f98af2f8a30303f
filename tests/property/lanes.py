"""A model of philly with more lanes than one: what a second one would change, if it were built.

It is no part of the scheduler. It has of it what decides on philly: a fair share of queues, first
in first out in each and what fits goes, gangs of several nodes at once, the first node by number,
and for each gang that has a lane the nodes that will be free soonest by the last two of its like.
Rule 1: ``wide`` lanes are for the oldest gangs of several nodes, ``whole`` for the oldest jobs of
        one node, of as many a queue. With one for wide gangs it is ``preset: muster`` in short.
Rule 2: nodes of a lane are used by nobody else; who has one starts once its nodes are free.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from services.core.scheduler.model.run_times import LEAST_NS
from shared.model.gpus import GPU
from tools.replay.jobs import Trace

A_NODE = 8


@dataclass(slots=True, eq=False)
class Task:
    """A job of the trace: who is older has the lesser number."""

    number: int
    queue: str
    size: int
    submitted_ns: int
    run_ns: int
    started_ns: int = 0
    nodes: list[int] = field(default_factory=list)

    @property
    def pods(self) -> list[int]:
        """Return the sizes of its pods, whole nodes first."""
        rest = self.size % A_NODE
        return [A_NODE] * (self.size // A_NODE) + [rest] * bool(rest)


class Model:
    """A cluster of nodes of eight GPUs, and a trace that runs on it."""

    def __init__(self, trace: Trace, nodes: int, wide: int, whole: int) -> None:
        self.tasks = [
            Task(at, job.queue, job.amount(GPU), job.submitted_ns, job.run_ns)
            for at, job in enumerate(trace.jobs)
        ]
        self.lanes = (wide, whole)
        self.now_ns = 0
        self.free = [A_NODE] * nodes
        self.on: list[dict[Task, int]] = [{} for _ in range(nodes)]
        self.used = dict.fromkeys(sorted({task.queue for task in self.tasks}), 0)
        self.waiting: dict[str, dict[int, deque[Task]]] = {
            queue: defaultdict(deque) for queue in self.used
        }
        self.gangs: dict[str, list[Task]] = {queue: [] for queue in self.used}
        self.last: dict[tuple[str, int], deque[int]] = defaultdict(lambda: deque(maxlen=2))
        self.held: dict[Task, list[int]] = {}  # by who has a lane
        self.ends: list[tuple[int, int, Task]] = []

    def run(self) -> "Model":
        coming = deque(self.tasks)
        while coming or self.ends:
            moments = [coming[0].submitted_ns] if coming else []
            self.now_ns = min([*moments, *(end[0] for end in self.ends[:1])])
            while self.ends and self.ends[0][0] <= self.now_ns:
                self._end(heappop(self.ends)[2])
            while coming and coming[0].submitted_ns <= self.now_ns:
                task = coming.popleft()
                if task.size > A_NODE:
                    self.gangs[task.queue].append(task)
                else:
                    self.waiting[task.queue][task.size].append(task)
            self._start_those_of_lanes()
            while self._place_next():
                if self.lanes[1]:
                    self._plan()
        return self

    def wait(self, *, sizes: range) -> float:
        """Return the mean wait of the jobs of some sizes, in seconds."""
        waits = [t.started_ns - t.submitted_ns for t in self.tasks if t.size in sizes]
        return sum(waits) / len(waits) / 1e9

    # --- starts and ends ------------------------------------------------------------------------

    def _start(self, task: Task, nodes: list[int]) -> None:
        if task.size > A_NODE:
            self.gangs[task.queue].remove(task)
        else:
            self.waiting[task.queue][task.size].remove(task)
        self.held.pop(task, None)
        task.started_ns, task.nodes = self.now_ns, nodes
        for node, size in zip(nodes, task.pods, strict=True):
            self.free[node] -= size
            self.on[node][task] = size
        self.used[task.queue] += task.size
        heappush(self.ends, (self.now_ns + task.run_ns, task.number, task))

    def _end(self, task: Task) -> None:
        for node in task.nodes:
            self.free[node] += self.on[node].pop(task)
        self.used[task.queue] -= task.size
        self.last[task.queue, task.size].append(task.run_ns)

    def _end_ns(self, task: Task) -> float:
        """Return when a task is expected to end, as ``model/run_times.py`` has it, unrounded."""
        last = self.last[task.queue, task.size]
        if not last:
            return inf
        end_ns = task.started_ns + sum(last) / len(last)
        age_ns = self.now_ns - task.started_ns
        return end_ns if end_ns > self.now_ns else self.now_ns + max(LEAST_NS, age_ns)

    # --- in the order of the queues -------------------------------------------------------------

    def _place_next(self) -> bool:
        """Start the oldest that fits of the queue that uses least; return whether there is one."""
        taken = {node for nodes in self.held.values() for node in nodes}
        open_nodes = [node for node in range(len(self.free)) if node not in taken]
        most = max((self.free[node] for node in open_nodes), default=0)
        whole = sum(self.free[node] == A_NODE for node in open_nodes)
        for queue in sorted(self.used, key=self.used.__getitem__):
            for task in sorted(self._first_of(queue, most, whole), key=lambda task: task.number):
                nodes = self._fit(task, open_nodes)
                if nodes:
                    self._start(task, nodes)
                    return True
        return False

    def _first_of(self, queue: str, most: int, whole: int) -> Iterator[Task]:
        for size, tasks in self.waiting[queue].items():
            if tasks and size <= most:
                yield tasks[0]
        for task in self.gangs[queue]:
            if task.size // A_NODE <= whole:
                yield task

    def _fit(self, task: Task, nodes: list[int]) -> list[int]:
        """Return nodes for all pods of a task, the first ones that will do; none: not all fit."""
        found: list[int] = []
        for size in task.pods:
            fitting = (n for n in nodes if n not in found and self.free[n] >= size)
            node = next(fitting, None)
            if node is None:
                return []
            found.append(node)
        return found

    # --- lanes ----------------------------------------------------------------------------------

    def _start_those_of_lanes(self) -> None:
        self._plan()
        while True:
            for task, nodes in self.held.items():
                others = {n for other, held in self.held.items() if other is not task for n in held}
                own = [node for node in range(len(self.free)) if node not in others]
                found = self._fit(task, own) if nodes else []
                if found:
                    self._start(task, found)
                    break
            else:
                return
            self._plan()

    def _plan(self) -> None:
        """Choose who has lanes, and for each the nodes that will be free soonest."""
        wide, whole = self.lanes
        gangs = sorted((t for tasks in self.gangs.values() for t in tasks), key=lambda t: t.number)
        first = [list(sizes[A_NODE])[:whole] for sizes in self.waiting.values()] if whole else []
        jobs = sorted((t for tasks in first for t in tasks), key=lambda t: t.number)
        chosen: dict[Task, list[int]] = {}
        ends: list[float] | None = None
        for task in [*gangs[:wide], *jobs[:whole]]:
            ends = ends or [self._free_ns(node) for node in range(len(self.free))]
            taken = {node for nodes in chosen.values() for node in nodes}
            rest = [node for node in range(len(self.free)) if node not in taken]
            had = self.held.get(task, [])
            rest.sort(key=lambda n: (ends[n], n not in had, n))
            best = rest[: len(task.pods)]
            is_kept = had and not taken.intersection(had)
            if is_kept and max(ends[n] for n in had) < max(ends[n] for n in best):
                best = had
            if len(best) == len(task.pods):
                chosen[task] = best
        self.held = chosen

    def _free_ns(self, node: int) -> float:
        """Return when a node is expected to be free of all its pods."""
        return max(map(self._end_ns, self.on[node]), default=self.now_ns)
