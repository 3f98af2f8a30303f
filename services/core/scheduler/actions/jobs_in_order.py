"""Orders for actions: queues by fairness, jobs by priority and age, victims in reverse.

Source: docs/rules/kai.md#order.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from services.core.scheduler.model.rows import Application
from services.core.scheduler.nodes.columns import Mask
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
DIVIDED = (VCORE, MEMORY, GPU)  # a queue over its fair share exceeds it in each of these
NOTHING_PROMISED = 1_000  # factor for usage of a type without an allocatable share


def tasks_to_allocate(job: Job, waits: Holds[Task] = is_waiting) -> list[Task]:
    """Return the tasks that a job gets next: what its minimum lacks, else one more.

    ``waits`` selects the eligible tasks.
    """
    lacking = job.group.lacking(is_active, waits)
    if lacking is None:
        return []
    return lacking or job.group.one_more(is_active, waits)


def is_ready(job: Job) -> bool:
    """Whether a job has a waiting task, and enough tasks to reach its minimum."""
    pending = job.counts[Status.PENDING]
    if not pending or job.is_flat:
        return pending > 0 and job.active + pending >= job.min_available
    return job.group.is_satisfied(_is_alive)


def _is_alive(task: Task) -> bool:
    return is_active(task) or task.status is Status.PENDING


class Measures(Protocol):
    """The resource types of amounts, and the total of each."""

    names: tuple[str, ...]
    total: Amount


def dominant_share(trial: Measures, queue: Share, allocated: Sequence[int]) -> Fraction:
    """Return an amount's largest ratio to what a queue may allocate, over all types."""
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
    """Return the sort key of queues: the smallest is served first.

    ``request`` is its next job's, ``popped`` what was already taken from its victims.
    """
    allocated: Sequence[int] = queue.allocated
    if popped is not None:
        allocated = minus(allocated, popped)
    is_over_fair_share = all(
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
        is_over_fair_share,
        not within(with_job, queue.quota),
        -queue.priority,
        uses_unpromised,
        dominant_share(trial, queue, with_job),
        dominant_share(trial, queue, allocated),
        [(share == UNLIMITED, share) for share in reversed(allocatable)],
        queue.number,
    )


class _QueueOrder:
    """Jobs by leaf queue, the next of each first; subclasses choose between queues."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._tops: list[Share] = trial.top
        self._waiting: dict[Share, list[tuple[JobKey, Job]]] = {}

    def _next_of(self, queues: list[Share]) -> Job | None:
        """Return the next job among some queues, or None."""
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


def job_key(job: Job) -> JobKey:
    """Return the sort key of a leaf's jobs, plugins' keys first."""
    keys = job.application.keys_before
    return job.order if keys is None else (*keys(job.application), *job.order)


class JobOrder(_QueueOrder):
    """Waiting jobs, popped one by one in the order of queues."""

    def __init__(
        self,
        trial: Trial,
        jobs: Iterable[Job],
        tasks_of: Callable[[Job], list[Task]] = tasks_to_allocate,
    ) -> None:
        super().__init__(trial)
        self._tasks_of = tasks_of
        for job in jobs:
            self._waiting.setdefault(job.queue, []).append((job_key(job), job))
        for waiting in self._waiting.values():
            heapify(waiting)

    def enter_all(self, others: "WaitingJobs", without: Container[str]) -> None:
        """Add all waiting jobs except those named in ``without``."""
        for leaf, entries in others.entries():
            self._waiting[leaf] = [each for each in entries if each[1].name not in without]

    def push(self, job: Job) -> None:
        """Add a job again."""
        heappush(self._waiting.setdefault(job.queue, []), (job_key(job), job))

    def pop(self) -> Job | None:
        """Remove and return the next job, or None."""
        best = self._next_of(self._tops)
        if best is None:
            return None
        heappop(self._waiting[best.queue])
        return best

    def _choose(self, jobs: list[tuple[Share, Job]]) -> Job:
        """Return the job whose queue comes first with it."""

        def key(item: tuple[Share, Job]) -> QueueKey:
            return queue_key(self._trial, item[0], self._request(item[1]))

        return min(jobs, key=key)[1]

    def _request(self, job: Job) -> Amount:
        """Return what a job requests next."""
        return request_of(self._tasks_of(job), self._trial.width)


class WaitingJobs:
    """All ready waiting jobs, by leaf and in order, with their next requests.

    They are sorted once; later only the jobs that the trial changed are updated.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._entries: dict[Share, list[tuple[JobKey, Job]]] = {}
        self._known: dict[Job, tuple[JobKey, Amount] | None] = {}  # None: it is not ready
        self._requests: dict[Share, Counter[Amount]] = {}
        self._is_ordered_by_plugins = False  # then the order may change at any time

    def follow(self) -> None:
        """Update the order."""
        trial, known = self._trial, self._known
        if not known or self._is_ordered_by_plugins:
            self._entries, self._requests = {}, {}
            known.clear()
            for job in trial.asking:
                self._enter(job)
            for entries in self._entries.values():
                entries.sort()
        else:
            for job in trial.unread:
                if job in known:
                    self._leave(job)
                    self._enter(job, is_sorted=True)
        trial.unread.clear()

    def _enter(self, job: Job, *, is_sorted: bool = False) -> None:
        self._known[job] = None
        if is_ready(job):
            key = job_key(job)
            self._is_ordered_by_plugins |= job.application.keys_before is not None
            request = _next_request(job)
            self._known[job] = key, request
            self._requests.setdefault(job.queue, Counter())[request] += 1
            entries = self._entries.setdefault(job.queue, [])
            (partial(insort, entries) if is_sorted else entries.append)((key, job))

    def _leave(self, job: Job) -> None:
        found = self._known[job]
        if found is not None:
            key, request = found
            entries, requests = self._entries[job.queue], self._requests[job.queue]
            del entries[bisect_left(entries, (key,))]
            requests[request] -= 1
            if not requests[request]:
                del requests[request]

    def entries(self) -> Iterable[tuple[Share, list[tuple[JobKey, Job]]]]:
        """Update the order and return the leaves with their jobs in order."""
        self.follow()
        return self._entries.items()

    def of(self, leaf: Share) -> list[tuple[JobKey, Job]]:
        """Return a leaf's jobs in order, each with its key."""
        return self._entries.get(leaf, [])

    def request(self, job: Job) -> Amount:
        """Return a job's next request."""
        found = self._known[job]
        assert found is not None
        return found[1]

    def are_alike(self, leaf: Share) -> bool:
        """Whether all jobs of a leaf request the same amount."""
        return len(self._requests[leaf]) == 1


def _next_request(job: Job) -> Amount:
    """Return a job's next request, without reading tasks if its asks are equal."""
    trial, groups = job.trial, job.application.groups
    if not job.is_flat or len(groups) != 1:
        return request_of(tasks_to_allocate(job), trial.width)
    (group,) = groups.values()
    count = max(1, job.min_available - job.active)
    return tuple([count * value for value in trial.amounts(group.bucket.shape.resource)])


class TryOrder(JobOrder):
    """Some jobs, popped in the order that they have among all waiting jobs.

    If a job that is not tried comes first in a queue, the queue is ordered by that job's request,
    and the job is skipped. Queues without jobs to try are ignored.
    """

    def __init__(
        self,
        trial: Trial,
        jobs: Iterable[Job],
        others: WaitingJobs,
        tasks_of: Callable[[Job], list[Task]],
    ) -> None:
        self._tried = dict.fromkeys(jobs)
        super().__init__(trial, self._tried, tasks_of)
        others.follow()
        self._others = others
        self._passed: dict[Share, int] = {}
        ours = dict.fromkeys(queue for job in self._tried for queue in job.queue.lineage())
        tops = [queue for queue in trial.top if queue in ours]
        while len(tops) == 1 and tops[0].children:
            tops = [queue for queue in tops[0].children if queue in ours]
        self._tops = tops

    def pop(self) -> Job | None:
        """Remove and return the next job to try, or None."""
        while (best := self._next_of(self._tops)) is not None and best not in self._tried:
            self._pass(best)
        if best is not None:
            heappop(self._waiting[best.queue])
        return best

    def _pass(self, job: Job) -> None:
        """Skip a job, and those after it in its leaf with the same request."""
        leaf, others = job.queue, self._others
        entries, own = others.of(leaf), self._waiting.get(leaf)
        end = bisect_left(entries, (own[0][0],)) if own else len(entries)
        at = self._passed[leaf] + 1
        if others.are_alike(leaf):
            at = end
        else:
            request = others.request(job)
            while at < end and others.request(entries[at][1]) == request:
                at += 1
        self._passed[leaf] = at

    def _next_in(self, queue: Share) -> Job | None:
        own = super()._next_in(queue)
        if queue.children:
            return own
        entries, at = self._others.of(queue), self._passed.get(queue, 0)
        while at < len(entries) and entries[at][1] in self._tried:
            at += 1
        self._passed[queue] = at
        if at == len(entries) or (own is not None and self._waiting[queue][0][0] < entries[at][0]):
            return own
        return entries[at][1]

    def _request(self, job: Job) -> Amount:
        return super()._request(job) if job in self._tried else self._others.request(job)


Unit = tuple[Job, list[Task]]


class VictimOrder(_QueueOrder):
    """Victims unit by unit: a surplus task of an elastic job, else a whole job.

    The order is the reverse of the one in which jobs are served, with popped units counted as
    evicted. A job is read at its turn only: ``leaves`` may have victims, ``may_go`` tells whether a
    job is one, ``spares_minimum`` whether only its surplus is, ``takes`` which of its tasks are. Of
    a set's tasks those on ``rows`` come first, if given.
    """

    def __init__(
        self,
        trial: Trial,
        leaves: Iterable[Share],
        may_go: Callable[[Job], bool],
        spares_minimum: Callable[[Job], bool],
        rows: Mask | None = None,
        *,
        takes: Holds[Task] = is_evictable,
    ) -> None:
        super().__init__(trial)
        self._may_go = may_go
        self._rows = rows
        self._takes = takes
        self._spares_minimum = spares_minimum
        self._nothing = (0,) * trial.width
        self._touched = trial.touched
        self._left: dict[Job, dict[Task, None]] = {}
        self._remainders: dict[Job, Remainder[Task]] = {}
        self._popped: dict[Share, Amount] = {}
        self._untouched: dict[Share, Iterator[tuple[JobKey, Application]]] = {}
        self._heads: dict[Share, tuple[JobKey, Job]] = {}  # the next of the untouched
        for leaf in leaves:
            self._untouched[leaf] = _untouched(trial, leaf)
            self._advance(leaf)
            for job in trial.evictable.get(leaf, ()):
                if self._enter(job):
                    heappush(self._waiting.setdefault(leaf, []), (self._key(job), job))

    def _enter(self, job: Job) -> bool:
        """Record a job's evictable tasks; return whether there are any."""
        if not self._may_go(job):
            return False
        self._left[job] = dict.fromkeys(filter(self._takes, job.tasks))
        return self._has_more(job)

    def _has_more(self, job: Job) -> bool:
        """Whether more may be taken from a job."""
        return bool(self._left[job]) and (
            not self._spares_minimum(job) or self._remainder(job).has_surplus
        )

    def _remainder(self, job: Job) -> Remainder[Task]:
        """Return the rest of a job, in the order of eviction."""
        found = self._remainders.get(job)
        if found is None:
            left, rows = self._left[job], self._rows
            first = None
            if rows is not None:
                first = lambda task: task.node is not None and bool(rows[task.node.row])  # noqa: E731
            found = self._remainders[job] = Remainder(job.group, left.__contains__, first)
        return found

    def has_left(self, job: Job) -> bool:
        """Whether a job has evictable tasks left."""
        return bool(self._left[job])

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
        """Remove and return the next unit, or None."""
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
        lost = self._trial.adapter.lost_work(job.application, is_one=elasticity > 0)
        return (job.priority, -job.service_level, -elasticity, *lost, -job.number)

    def _choose(self, jobs: list[tuple[Share, Job]]) -> Job:
        """Return the job whose queue comes last, popped units counted as evicted."""

        def key(item: tuple[Share, Job]) -> QueueKey:
            popped = self._popped.get(item[0])
            return queue_key(self._trial, item[0], self._nothing, popped)

        return max(jobs, key=key)[1]


def _untouched(trial: Trial, leaf: Share) -> Iterator[tuple[JobKey, Application]]:
    """Yield a leaf's applications in victim order, without leading ones that the trial touched."""
    found = _in_order(trial, leaf)
    at = trial.passed.get(leaf, 0)
    while at < len(found) and found[at][1].id in trial.touched:
        at += 1
    trial.passed[leaf] = at
    return (found[each] for each in range(at, len(found)))


def _in_order(trial: Trial, leaf: Share) -> list[tuple[JobKey, Application]]:
    """Return a leaf's applications with allocations, in victim order.

    It is sorted once, as before the trial: jobs that the trial touched are handled separately.
    """
    found = trial.orders.get(leaf)
    if found is None:
        found = trial.orders[leaf] = []
        is_plain = not (trial.adapter.spares_work or leaf.queue.settings.service_levels_ns)
        for application in leaf.queue.applications.values():
            held = len(application.allocations) - len(application.released)
            if held:
                found.append((_key_of(trial, application, held, is_plain=is_plain), application))
        found.sort()
    return found


def _key_of(trial: Trial, application: Application, held: int, *, is_plain: bool) -> JobKey:
    """Return an application's sort key as a victim; ``is_plain``: without work and service."""
    adapter = trial.adapter
    minimum = adapter.simple_minimum(application)
    if minimum is None:
        elasticity = _elasticity(trial.job_of(application).group, is_evictable)
    else:
        elasticity = int(held > minimum) if held >= minimum else -1
    if is_plain:
        return (adapter.priority(application), 0, -elasticity, -application.sequence)
    lost = adapter.lost_work(application, is_one=elasticity > 0)
    level = adapter.service_level(application)
    return (adapter.priority(application), -level, -elasticity, *lost, -application.sequence)


def _elasticity(group: Group[Task], holds: Holds[Task]) -> int:
    return int(group.has_surplus(holds)) if group.is_satisfied(holds) else -1
