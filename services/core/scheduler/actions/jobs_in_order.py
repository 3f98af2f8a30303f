"""Who goes first: queues by fairness, jobs by priority and age, victims the other way round.

Source: docs/rules/kai.md#order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from services.core.scheduler.model.rows import Application
from services.core.scheduler.statement.task_trees import Group, Holds, Remainder
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Amount,
    Job,
    Share,
    Status,
    Task,
    Trial,
    is_active,
    is_evictable,
    is_waiting,
    minus,
    plus,
    request_of,
    within,
)
from shared.model.gpus import GPU
from shared.model.resources import MEMORY, VCORE

QueueKey = tuple[Any, ...]
JobKey = tuple[Any, ...]
DIVIDED = (VCORE, MEMORY, GPU)  # of which a queue that has too much has too much of each
NOTHING_PROMISED = 1_000  # what is used of a type with no share counts as so many times over


def tasks_to_allocate(job: Job, waits: Holds[Task] = is_waiting) -> list[Task]:
    """Return the tasks that a job is to get next: what its minimum lacks, else one more.

    ``waits`` says of a task whether it may be one of them.
    """
    lacking = job.group.lacking(is_active, waits)
    if lacking is None:
        return []
    return lacking or job.group.one_more(is_active, waits)


def is_ready(job: Job) -> bool:
    """Return whether a job has enough tasks to start, and one that waits."""
    pending = job.counts[Status.PENDING]
    if not pending or job.is_flat:
        return pending > 0 and job.active + pending >= job.min_available
    return job.group.is_satisfied(_is_alive)


def _is_alive(task: Task) -> bool:
    return is_active(task) or task.status is Status.PENDING


class Measures(Protocol):
    """What amounts are of, and how much of each there is."""

    names: tuple[str, ...]
    total: Amount


def dominant_share(trial: Measures, queue: Share, allocated: Sequence[int]) -> Fraction:
    """Return the largest share of what a queue may have that an amount would be."""
    most, of = 0, 1
    for value, allocatable, total in zip(
        allocated, queue.all_allocatable, trial.total, strict=True
    ):
        if allocatable == UNLIMITED:
            allocatable = total  # noqa: PLW2901
        if allocatable == 0:
            value, allocatable = value * NOTHING_PROMISED, 1  # noqa: PLW2901
        if value * of > most * allocatable:
            most, of = value, allocatable
    return Fraction(most, of)


def queue_key(
    trial: Measures, queue: Share, request: Amount, popped: "Amount | None" = None
) -> QueueKey:
    """Return what orders queues: the smaller is served first.

    ``request`` is that of its next job, ``popped`` what victims of it have been taken already.
    """
    allocated: Sequence[int] = queue.allocated
    if popped is not None:
        allocated = minus(allocated, popped)
    is_over = all(
        share != UNLIMITED and value > share
        for name, value, share in zip(trial.names, allocated, queue.fair_share, strict=True)
        if name in DIVIDED
    )
    with_job = plus(allocated, request)
    allocatable = queue.all_allocatable
    uses_unpromised = any(
        value > 0 and share == 0 for value, share in zip(allocated, allocatable, strict=True)
    )
    return (
        is_over,
        not within(with_job, queue.quota),
        -queue.priority,
        uses_unpromised,
        dominant_share(trial, queue, with_job),
        dominant_share(trial, queue, allocated),
        [(share == UNLIMITED, share) for share in reversed(allocatable)],
        queue.number,
    )


class _QueueOrder:
    """Jobs by leaf queue, the next of each on top; whose turn it is is the order's own affair."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._tops: list[Share] = trial.top
        self._waiting: dict[Share, list[tuple[JobKey, Job]]] = {}

    def _next_of(self, queues: list[Share]) -> Job | None:
        """Return the next job of the queue whose turn it is, or None when there is none."""
        jobs = [(queue, job) for queue in queues if (job := self._next_in(queue)) is not None]
        if len(jobs) <= 1:
            return jobs[0][1] if jobs else None
        return self._choose(jobs)

    def _next_in(self, queue: Share) -> Job | None:
        if queue.children:
            return self._next_of(queue.children)
        waiting = self._waiting.get(queue)
        return waiting[0][1] if waiting else None

    def _choose(self, jobs: list[tuple[Share, Job]]) -> Job:
        raise NotImplementedError


class JobOrder(_QueueOrder):
    """Jobs that wait, taken one by one from the queue whose turn it is."""

    def __init__(
        self,
        trial: Trial,
        jobs: Iterable[Job],
        tasks_of: Callable[[Job], list[Task]] = tasks_to_allocate,
    ) -> None:
        super().__init__(trial)
        self._tasks_of = tasks_of
        for job in jobs:
            self._waiting.setdefault(job.queue, []).append((self._key(job), job))
        for waiting in self._waiting.values():
            heapify(waiting)

    def push(self, job: Job) -> None:
        """Put a job back."""
        heappush(self._waiting.setdefault(job.queue, []), (self._key(job), job))

    def _key(self, job: Job) -> JobKey:
        keys = job.application.keys_before
        return job.order if keys is None else (*keys(job.application), *job.order)

    def pop(self) -> Job | None:
        """Take the next job, or None when there is none."""
        best = self._next_of(self._tops)
        if best is None:
            return None
        heappop(self._waiting[best.queue])
        return best

    def _choose(self, jobs: list[tuple[Share, Job]]) -> Job:
        """Return the job of the queue that comes first with it."""

        def key(item: tuple[Share, Job]) -> QueueKey:
            request = request_of(self._tasks_of(item[1]), self._trial.width)
            return queue_key(self._trial, item[0], request)

        return min(jobs, key=key)[1]


Unit = tuple[Job, list[Task]]


class VictimOrder(_QueueOrder):
    """Victims, a unit at a time: the surplus task of an elastic job, else a whole job.

    The order is the reverse of the one in which jobs are served; what was taken already counts as
    gone. A job is looked at when its turn comes, not before: ``leaves`` are those that may have
    victims, ``may_go`` says of a job whether it is one, ``keeps_minimum`` of one that is whether it
    gives no more than its surplus.
    """

    def __init__(
        self,
        trial: Trial,
        leaves: Iterable[Share],
        may_go: Callable[[Job], bool],
        keeps_minimum: Callable[[Job], bool],
    ) -> None:
        super().__init__(trial)
        self._may_go = may_go
        self._keeps_minimum = keeps_minimum
        self._nothing = (0,) * trial.width
        self._left: dict[Job, dict[Task, None]] = {}
        self._remainders: dict[Job, Remainder[Task]] = {}
        self._popped: dict[Share, Amount] = {}
        self._touched = dict(trial.touched)
        self._untouched: dict[Share, Iterator[tuple[JobKey, Application]]] = {}
        self._heads: dict[Share, tuple[JobKey, Job]] = {}  # the next of those
        for leaf in leaves:
            self._untouched[leaf] = iter(_in_order(trial, leaf))
            self._advance(leaf)
        for job in self._touched.values():
            if job.queue in self._untouched and self._enter(job):
                heappush(self._waiting.setdefault(job.queue, []), (self._key(job), job))

    def _enter(self, job: Job) -> bool:
        """Record what may be taken from a job; return whether anything."""
        if not self._may_go(job):
            return False
        self._left[job] = dict.fromkeys(filter(is_evictable, job.tasks))
        return self._has_more(job)

    def _has_more(self, job: Job) -> bool:
        """Return whether there is more to take from a job."""
        return bool(self._left[job]) and (
            not self._keeps_minimum(job) or self._remainder(job).has_surplus
        )

    def _remainder(self, job: Job) -> Remainder[Task]:
        """Return what is left of a job, in the order in which it goes."""
        found = self._remainders.get(job)
        if found is None:
            found = self._remainders[job] = Remainder(job.group, self._left[job].__contains__)
        return found

    def _advance(self, leaf: Share) -> None:
        """Find the next job of a leaf that the trial has not touched."""
        self._heads.pop(leaf, None)
        for key, application in self._untouched[leaf]:
            if application.id not in self._touched:
                job = self._trial.job_of(application)
                if self._enter(job):
                    self._heads[leaf] = (key, job)
                    return

    def pop(self) -> Unit | None:
        """Take the next unit, or None when there is none."""
        job = self._next_of(self._tops)
        if job is None:
            return None
        left = self._left[job]
        tasks = self._remainder(job).take_surplus() or list(left)
        for task in tasks:
            del left[task]
        waiting = self._waiting.setdefault(job.queue, [])
        if job is self._head_of(job.queue):
            self._advance(job.queue)
        else:
            heappop(waiting)
        if self._has_more(job):
            heappush(waiting, (self._key(job), job))
        request = request_of(tasks, self._trial.width)
        for queue in job.queue.lineage():
            self._popped[queue] = plus(self._popped.get(queue, self._nothing), request)
        return job, tasks

    def _next_in(self, queue: Share) -> Job | None:
        if queue.children:
            return self._next_of(queue.children)
        head, waiting = self._heads.get(queue), self._waiting.get(queue)
        if head is None or (waiting and waiting[0][0] < head[0]):
            return waiting[0][1] if waiting else None
        return head[1]

    def _head_of(self, leaf: Share) -> Job | None:
        head = self._heads.get(leaf)
        return head[1] if head is not None else None

    def _key(self, job: Job) -> JobKey:
        left = self._remainder(job)
        elasticity = int(left.has_surplus) if left.is_satisfied else -1
        return (job.priority, -elasticity, -job.number)

    def _choose(self, jobs: list[tuple[Share, Job]]) -> Job:
        """Return the job of the queue that comes last with what was taken gone."""

        def key(item: tuple[Share, Job]) -> QueueKey:
            popped = self._popped.get(item[0])
            return queue_key(self._trial, item[0], self._nothing, popped)

        return max(jobs, key=key)[1]


def _in_order(trial: Trial, leaf: Share) -> list[tuple[JobKey, Application]]:
    """Return the applications of a leaf that have something, in the order in which they go.

    It is that of before the trial, and sorted once: what the trial has touched is no more in it.
    """
    found = trial.orders.get(leaf)
    if found is None:
        found = trial.orders[leaf] = []
        for application in leaf.queue.applications.values():
            held = len(application.allocations) - len(application.released)
            if held:
                found.append((_key_of(trial, application, held), application))
        found.sort()
    return found


def _key_of(trial: Trial, application: Application, held: int) -> JobKey:
    terms = trial.terms
    minimum = terms.simple_minimum(application)
    if minimum is None:
        elasticity = _elasticity(trial.job_of(application).group, is_evictable)
    else:
        elasticity = int(held > minimum) if held >= minimum else -1
    return (terms.priority(application), -elasticity, -application.sequence)


def _elasticity(group: Group[Task], holds: Holds[Task]) -> int:
    return int(group.has_surplus(holds)) if group.is_satisfied(holds) else -1
