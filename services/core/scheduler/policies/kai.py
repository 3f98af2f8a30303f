"""KAI's rules: reclaim between queues, preempt inside one, consolidation by moves.

Each function returns the search of one job. Source: docs/rules/kai.md. Beside these rules stands
the search among pods of gangs above their minimum (docs/topology.md#elastic-gangs).
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from services.core.scheduler.actions.jobs_in_order import (
    Unit,
    VictimOrder,
    is_ready,
    tasks_to_allocate,
)
from services.core.scheduler.actions.solver import Search
from services.core.scheduler.constraints.capacity import leveled, may_take, over_fair_share
from services.core.scheduler.model.rows import BY_HEAD_GANG, Queue
from services.core.scheduler.model.settings import KAI, SHRINK
from services.core.scheduler.model.sums import Sums, sums
from services.core.scheduler.nodes.columns import Mask
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Amount,
    Job,
    Share,
    Task,
    Trial,
    is_active,
    is_evictable,
    minus,
    plus,
    request_of,
    within,
)


def has_victims(job: Job) -> bool:
    """Whether a job has evictable tasks."""
    return job.active > job.reserved


def _waits(job: Job) -> bool:
    """Whether a job may not preempt: not yet, or never by its ``preemptionPolicy``.

    Source: docs/rules/pods.md#labels-and-annotations.
    """
    heads = [group.head() for group in job.application.groups.values()]
    may = all(head is None or head.request.allow_preempt_other for head in heads)
    return not may or job.trial.adapter.waits_s(job.application) > 0


def _called(job: Job) -> str:
    """Return a job's description in the reason shown for its victims."""
    size = f", a gang of {job.min_available}," if job.min_available > 1 else ""
    return f"application {job.name}{size} in {job.queue.name}"


# --- shrinking ------------------------------------------------------------------------------------


def shrinking(trial: Trial, job: Job) -> Search | None:
    """Return a search among gangs above their minimum; None for a gang that only wants to grow.

    Their priority is at most the job's. In other queues, which are asked under YuniKorn's policy
    only, their priority is as seen from above both, and their queues keep their guarantees.
    """
    if _only_grows(job) or not is_ready(job) or _waits(job):
        return None
    rows = _not_reserved(trial, job)
    if not _would_have_room(trial, job, rows):
        return None
    is_kai = trial.partition.settings.policy == KAI
    leaves = _leaves_with_surplus(trial)

    def in_leaf(leaf: Share) -> bool:
        is_own = leaf is job.queue
        return leaf.queue in leaves and (is_own or not (is_kai or _owes(leaf, job)))

    def is_victim(other: Job) -> bool:
        return _may_shrink(other) and _seen(other, job) <= _seen(job, other)

    return Search(
        is_victim=is_victim,
        spares_minimum=lambda _: True,
        takes=_is_member,
        agrees=lambda left: bool(left) and not any(_owes(other.queue, job, 0) for other, _ in left),
        action=SHRINK,
        reason=f"above the minimum of its gang, evicted for {_called(job)}, which waits",
        in_leaf=in_leaf,
        rows=rows,
    )


def _leaves_with_surplus(trial: Trial) -> dict[Queue, None]:
    """Return the leaves of the gangs above their minimum."""
    return dict.fromkeys(gang.queue for gang in trial.partition.above_minimum.values())


def _may_shrink(job: Job) -> bool:
    """Whether a job is a gang above its minimum with tasks that may be evicted."""
    is_above = job.name in job.trial.partition.above_minimum
    return is_above and has_victims(job) and job.preemptible


def _is_head_gang(job: Job) -> bool:
    """Whether nodes are reserved for a job as the head gang."""
    head = job.trial.partition.head_gang
    return head is not None and head.application is job.application


def _only_grows(job: Job) -> bool:
    """Whether a job is a gang that has its minimum, with what this trial has found for it."""
    application = job.application
    is_bound = application.yields_surplus and not application.succeeded
    return is_bound and not application.is_gang_over and job.is_satisfied


def _would_have_room(trial: Trial, job: Job, rows: Mask) -> bool:
    """Whether a job could start if all gangs made way, whosever they are; in a domain: unknown.

    It keeps searches without a chance from being simulated, and is worked out once for all jobs as
    long as the trial finds nothing.
    """
    if job.application.has_topology:
        return True
    tasks = tasks_to_allocate(job)
    is_own, now = _is_head_gang(job), trial.statement.checkpoint()
    known = trial.with_surplus.get(is_own)
    if known is None or known[0] != now:
        known = trial.with_surplus[is_own] = now, _room_with_surplus(trial, rows)
    least = np.array([*map(min, zip(*(task.request for task in tasks), strict=True))])
    wanted = least > 0
    if not wanted.any():
        return True
    places = (known[1][:, wanted] // least[wanted]).min(axis=1)
    return int(places.sum()) >= len(tasks)


def _room_with_surplus(trial: Trial, rows: Mask) -> Sums:
    """Return what each of some nodes would have if all gangs were at their minimum."""
    room = np.maximum(trial.room(), 0)
    room[~rows] = 0
    leaves = _leaves_with_surplus(trial)
    victims = VictimOrder(
        trial,
        [leaf for leaf in trial.leaves if leaf.queue in leaves],
        _may_shrink,
        lambda _: True,
        rows,
        takes=_is_member,
    )
    while (unit := victims.pop()) is not None:
        for task in unit[1]:
            if task.node is not None and rows[task.node.row]:
                room[task.node.row] += task.request
    return room


def _is_member(task: Task) -> bool:
    """Whether a task is an evictable member of its gang."""
    return is_evictable(task) and task.job.application.is_member(task.task_group)


def _seen(job: Job, other: Job) -> int:
    """Return a job's priority as seen from the nearest queue that contains the other job too."""
    priority, around = job.priority, other.queue.lineage()
    for level in job.queue.lineage():
        if level in around:
            break
        priority = level.queue.settings.seen_from_above(priority)
    return priority


def _owes(leaf: Share, job: Job, least: int = 1) -> bool:
    """Whether a queue that the job is not in has less than ``least`` beyond its guarantee."""
    around = job.queue.lineage()
    names = job.trial.names
    return any(
        held - guaranteed < least
        for level in leaf.lineage()
        if level not in around
        for name, held in zip(names, level.allocated, strict=True)
        if (guaranteed := (level.queue.guaranteed_resource or {}).get(name, 0)) > 0
    )


def _not_reserved(trial: Trial, job: Job) -> Mask:
    """Return the nodes that are not reserved for another head gang."""
    columns, is_own = trial.nodes.columns, _is_head_gang(job)
    found: Mask = (columns.claimed[columns.all] & (0 if is_own else BY_HEAD_GANG)) == 0
    return found


# --- consolidation --------------------------------------------------------------------------------


def consolidation(trial: Trial, job: Job) -> Search | None:
    """Return a search in which pods only move: every victim has a new place.

    A move is a restart, so that a job within its minimum runtime keeps its minimum. Moving frees no
    capacity: it must be sufficient already.
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
    """Return a job's search in its own queue: victims of strictly lower priority."""
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
    """Whether a job of the same priority has a higher service level."""
    return other.priority == job.priority and other.service_level > job.service_level


def _gains(job: Job, left: list[Unit]) -> bool:
    """Whether evicting victims with more service gains more than it loses.

    The gain is how much more service they have had than the job, the loss the work of their pods.
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
    """Whether only a job's surplus above its minimum may be evicted."""
    return job.application.request.gang.keeps_minimum


def _has_just_begun(job: Job, min_runtime_s: int) -> bool:
    """Whether a job is within its minimum runtime."""
    return bool(min_runtime_s) and job.trial.adapter.runtime_s(job.application) < min_runtime_s


def _least_runtime(job: Job, other: Job) -> int:
    """Return a victim's minimum runtime in s, set nearest to the queues' common ancestor.

    Or nearest to the victim, if its queue is set so.
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
    """Return a job's search among other queues, None if it may not reclaim."""
    attempt = _Reclaim(trial, job)
    return attempt.search() if attempt.may else None


class _Reclaim:
    """One job's reclaim, checked against the state before the simulation."""

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
        """Whether the job may reclaim: its queue stays within its fair share."""
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
        """Whether a leaf's jobs may be victims."""
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
        """Whether every remaining victim may be evicted, and siblings stay less saturated."""
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
        """Whether the reclaiming queue is over its share and at least as saturated as the other."""
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
    """Return the ratio of usage to fair share; None: usage without a share."""
    if fair_share == UNLIMITED:
        return Fraction(0)
    if fair_share == 0:
        return None if allocated > 0 else Fraction(0)
    return Fraction(allocated, fair_share)


def _lumps(job: Job, tasks: list[Task]) -> list[Unit]:
    """Return a victim's tasks as units: surplus tasks one by one, the minimum as one."""
    if job.is_satisfied:
        ordered = sorted(tasks, key=lambda task: task.order)
        return [(job, [task]) for task in reversed(ordered)]
    gone = dict.fromkeys(sorted(tasks, key=lambda task: task.order))
    core = job.group.lacking(is_active, gone.__contains__)
    if not core:  # it was below its minimum before: all of it is one unit
        return [(job, list(gone))]
    surplus = [task for task in gone if task not in core]
    return [*((job, [task]) for task in reversed(surplus)), (job, core)]
