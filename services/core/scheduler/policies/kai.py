"""Who may take from whom: reclaim between queues, preempt inside one, consolidation by moving.

Source: docs/rules/kai.md.
"""

from collections.abc import Sequence
from fractions import Fraction

from services.core.scheduler.actions.jobs_in_order import Unit, is_ready, tasks_to_allocate
from services.core.scheduler.actions.solver import Search
from services.core.scheduler.constraints.capacity import leveled, may_take, over_fair_share
from services.core.scheduler.model.sums import sums
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Amount,
    Job,
    Share,
    Task,
    Trial,
    is_active,
    minus,
    plus,
    request_of,
    within,
)


def has_victims(job: Job) -> bool:
    """Return whether a job has tasks that could be evicted."""
    return job.active > job.kept


def _waits(job: Job) -> bool:
    """Return whether a job may not take from others yet."""
    return job.trial.adapter.waits_s(job.application) > 0


def _called(job: Job) -> str:
    """Return a job as victims are told of it."""
    size = f", a gang of {job.min_available}," if job.min_available > 1 else ""
    return f"application {job.name}{size} in {job.queue.name}"


# --- consolidation --------------------------------------------------------------------------------


def consolidation(trial: Trial, job: Job) -> Search | None:
    """Return a search in which others only move: whoever is evicted has a new place.

    A move is a restart, so what has just begun keeps its minimum where it is.

    Moving frees neither a limit nor room: what there is must be enough already.
    """
    most = trial.partition.settings.consolidation_victims
    if not most or not job.preemptible or not is_ready(job) or _waits(job):
        return None
    tasks = tasks_to_allocate(job)
    demand = sums(request_of(tasks, trial.width))
    if not may_take(trial, job, tasks) or (trial.free() < demand).any():
        return None
    return Search(
        is_victim=lambda other: has_victims(other) and other.preemptible,
        agrees=lambda left: not left,
        action="consolidation",
        spares_minimum=lambda other: (
            _keeps_minimum(other) or _has_just_begun(other, _least_runtime(job, other))
        ),
        reason=f"moved so that {_called(job)} fits",
        max_victims=most,
    )


# --- preempt --------------------------------------------------------------------------------------


def preemption(trial: Trial, job: Job) -> Search | None:  # noqa: ARG001
    """Return the search of a job inside its own queue: victims of strictly lower priority."""
    if not is_ready(job) or _waits(job):
        return None
    min_runtime_s = _min_runtime(job.queue, "preempt")

    levels = job.queue.queue.settings.service_levels_ns

    def is_victim(other: Job) -> bool:
        return (
            has_victims(other)
            and (other.priority < job.priority or (bool(levels) and _has_had_more(other, job)))
            and other.preemptible
        )

    has = f"the higher priority {job.priority}"
    if levels:
        has = "the higher priority, or has had less service"
    return Search(
        is_victim=is_victim,
        spares_minimum=lambda other: _keeps_minimum(other) or _has_just_begun(other, min_runtime_s),
        agrees=lambda left: not levels or _gains(job, left),
        action="preempt",
        reason=f"preempted for {_called(job)}, which has {has}",
        in_leaf=lambda leaf: leaf is job.queue,
    )


def _has_had_more(other: Job, job: Job) -> bool:
    """Return whether a job of the same priority is on a higher level of service."""
    return other.priority == job.priority and other.service_level > job.service_level


def _gains(job: Job, left: list[Unit]) -> bool:
    """Return whether more is gained than lost by the victims that have had more service.

    Gained is by how much they have had more than the job, lost the work that goes with their pods.
    """
    adapter = job.trial.adapter
    over = [(other, tasks) for other, tasks in left if other.priority == job.priority]
    if not over:
        return True
    jobs = list(dict.fromkeys(other for other, _ in over))
    had = [adapter.served(other.application) for other in jobs]
    own = adapter.served(job.application)
    lost = [adapter.lost_with(task) for _, tasks in over for task in tasks]
    at = 0 if any(each[0] for each in had) else 1
    return sum(each[at] for each in had) - own[at] > sum(each[at] for each in lost)


def _keeps_minimum(job: Job) -> bool:
    """Return whether a job's minimum may not be taken, though what it has above it may."""
    return job.application.request.gang.keeps_minimum


def _has_just_begun(job: Job, min_runtime_s: int) -> bool:
    """Return whether a job has not run for as long as its minimum is left to."""
    return bool(min_runtime_s) and job.trial.adapter.runtime_s(job.application) < min_runtime_s


def _least_runtime(job: Job, other: Job) -> int:
    """Return how many s a victim must have run: between queues set nearest to where they part.

    Or nearest to the victim, where its queue has it so.
    """
    if other.queue is job.queue:
        return _min_runtime(job.queue, "preempt")
    _, theirs = leveled(job.queue, other.queue)
    is_by_queue = other.queue.queue.settings.reclaim_by_queue
    return _min_runtime(other.queue if is_by_queue else theirs, "reclaim")


def _min_runtime(queue: Share, kind: str) -> int:
    for level in queue.lineage():
        value = level.min_runtime_s.get(kind)
        if value is not None:
            return value
    return 0


# --- reclaim --------------------------------------------------------------------------------------


def reclaim(trial: Trial, job: Job) -> Search | None:
    """Return the search of a job among other queues, None where it may not reclaim."""
    attempt = _Reclaim(trial, job)
    return attempt.search() if attempt.may else None


class _Reclaim:
    """One job's reclaim, judged against the trial as it was before anything was simulated."""

    def __init__(self, trial: Trial, job: Job) -> None:
        self.trial = trial
        self.job = job
        self.tasks = tasks_to_allocate(job)
        self.request = request_of(self.tasks, trial.width)
        self._allocated: dict[Share, Amount] = {
            queue: queue.allocated for queue in trial.shares.values()
        }

    @property
    def may(self) -> bool:
        """Return whether the job may reclaim at all: its queue stays within its fair share."""
        if not self.tasks or not is_ready(self.job) or _waits(self.job):
            return False
        return not over_fair_share(self.job, self.request)

    def search(self) -> Search:
        """Return the search."""
        reason = f"reclaimed for {_called(self.job)}, which is below its fair share"
        return Search(
            is_victim=lambda other: has_victims(other) and other.preemptible,
            agrees=self._agrees,
            action="reclaim",
            reason=reason,
            in_leaf=self._has_too_much,
            spares_minimum=lambda other: (
                _keeps_minimum(other) or _has_just_begun(other, _least_runtime(self.job, other))
            ),
        )

    def _has_too_much(self, leaf: Share) -> bool:
        """Return whether a leaf's jobs may be victims."""
        if leaf is self.job.queue:
            return False
        mine, theirs = leveled(self.job.queue, leaf)
        allocated = self._allocated[theirs]
        if within(plus(self._allocated[mine], self.request), mine.quota):
            return not all(
                theirs.quota[at] == UNLIMITED or allocated[at] < theirs.quota[at]
                for at in range(self.trial.width)
                if self.request[at] > 0
            )
        return not within(allocated, theirs.all_allocatable)

    def _agrees(self, left: list[Unit]) -> bool:
        """Return whether every victim that is left may be taken, and siblings stay fairer off."""
        units = [piece for job, tasks in left for piece in _lumps(job, tasks)]
        remaining = dict(self._allocated)
        for victim, tasks in units:
            mine, theirs = leveled(self.job.queue, victim.queue)
            if not self._may_take_from(mine, theirs, remaining[theirs]):
                return False
            request = request_of(tasks, self.trial.width)
            for queue in victim.queue.lineage():
                remaining[queue] = minus(remaining[queue], request)
        return self._is_fair(remaining, {victim.queue for victim, _ in units}, units)

    def _may_take_from(self, mine: Share, theirs: Share, remaining: Amount) -> bool:
        if not within(remaining, theirs.all_allocatable):
            return True
        stays = within(plus(self._allocated[mine], self.request), mine.quota)
        return stays and not within(remaining, theirs.quota)

    def _is_fair(
        self, remaining: dict[Share, Amount], victims: set[Share], units: list[Unit]
    ) -> bool:
        involved = self._involved(units)
        affected = {queue for victim in victims for queue in victim.lineage()}
        for level in self.job.queue.lineage():
            siblings = level.parent.children if level.parent else self.trial.top
            taken = plus(remaining[level], self.request)
            for sibling in siblings:
                if sibling is level or sibling not in affected:
                    continue
                if any(
                    self._is_less_fair(level, taken, sibling, remaining[sibling], at)
                    for at in involved
                ):
                    return False
        return True

    def _involved(self, units: Sequence[Unit]) -> list[int]:
        tasks = [*self.tasks, *(task for _, group in units for task in group)]
        return [at for at in range(self.trial.width) if any(task.request[at] > 0 for task in tasks)]

    def _is_less_fair(
        self, mine: Share, taken: Amount, sibling: Share, left: Amount, at: int
    ) -> bool:
        """Return whether the one that takes would be over its share and as full as the other."""
        own = _saturation(taken[at], mine.fair_share[at])
        if own is not None and own <= 1:
            return False
        if sibling.fair_share[at] in (0, UNLIMITED):
            return False
        theirs = _saturation(left[at], sibling.fair_share[at])
        if own is None:
            return True
        return theirs is not None and own >= theirs


def _saturation(allocated: int, fair_share: int) -> Fraction | None:
    """Return how full a share is; None is without measure."""
    if fair_share == UNLIMITED:
        return Fraction(0)
    if fair_share == 0:
        return None if allocated > 0 else Fraction(0)
    return Fraction(allocated, fair_share)


def _lumps(job: Job, tasks: list[Task]) -> list[Unit]:
    """Return a victim's tasks as they are judged: surplus ones one by one, the core as a lump."""
    if job.is_satisfied:
        ordered = sorted(tasks, key=lambda task: task.order)
        return [(job, [task]) for task in reversed(ordered)]
    gone = dict.fromkeys(sorted(tasks, key=lambda task: task.order))
    core = job.group.lacking(is_active, gone.__contains__)
    if not core:  # it was below its minimum before: all of it is one lump
        return [(job, list(gone))]
    surplus = [task for task in gone if task not in core]
    return [*((job, [task]) for task in reversed(surplus)), (job, core)]
