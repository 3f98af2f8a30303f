"""Runs actions in their order on a session; each returns what it has decided.

allocate places what fits; consolidation moves others out of the way; reclaim takes from queues
that have more than their share; preempt takes from lower priorities in the same queue; stale gang
eviction ends gangs that have lost their minimum.
"""

from collections.abc import Callable, Sequence

from services.core.scheduler.kai import policies
from services.core.scheduler.kai.capacity import may_take, over_capacity
from services.core.scheduler.kai.fair_share import set_fair_shares
from services.core.scheduler.kai.ordering import JobOrder, is_ready, tasks_to_allocate
from services.core.scheduler.kai.placing import place_job
from services.core.scheduler.kai.plugins import Plugin, Plugins, registered
from services.core.scheduler.kai.session import Job, Session, Status, is_evictable
from services.core.scheduler.kai.solver import Search, solve
from services.core.scheduler.kai.statement import Decision, Statement
from services.core.scheduler.kai.topology import near_others
from services.core.scheduler.model.settings import (
    ACTIONS,
    ALLOCATE,
    CONSOLIDATION,
    PREEMPT,
    RECLAIM,
    STALE,
)


class UnknownActionError(ValueError):
    """There is no such action; the message names those that there are."""


def queue_capacity(plugins: Plugins) -> None:
    """Limits of queues for everybody, quotas for what may not be preempted."""
    plugins.capacity.append(over_capacity)


def pod_affinity(plugins: Plugins) -> None:
    """Tasks that are kept near others of their kind, or away from them."""
    plugins.feasible.append(near_others)


DEFAULT_PLUGINS: tuple[Plugin, ...] = (queue_capacity, pod_affinity)


def run(
    session: Session,
    actions: Sequence[str] = ACTIONS,
    plugins: Sequence[Plugin] = DEFAULT_PLUGINS,
) -> list[Decision]:
    """Run actions one after another; return every decision in order. Raises UnknownActionError."""
    known: dict[str, Callable[[Session], list[Decision]]] = {
        ALLOCATE: allocate,
        CONSOLIDATION: consolidate,
        RECLAIM: reclaim,
        PREEMPT: preempt,
        STALE: evict_stale_gangs,
    }
    for name in actions:
        if name not in known:
            raise UnknownActionError(f"no action {name!r}; there are {', '.join(known)}")
    session.plugins = registered(plugins)
    set_fair_shares(session)
    return [decision for name in actions for decision in known[name](session)]


def allocate(session: Session) -> list[Decision]:
    """Place jobs in order: the minimum of each, then one task more at a time."""
    decisions: list[Decision] = []
    order = JobOrder(session, [job for job in session.jobs if is_ready(job)])
    while (job := order.pop()) is not None:
        tasks = tasks_to_allocate(job)
        if not may_take(session, job, tasks):
            continue
        statement = Statement(session)
        if not place_job(statement, job, tasks):
            statement.discard()
            continue
        decisions += statement.commit(job.name)
        if is_ready(job):
            order.push(job)
    return decisions


def _solve_each(
    session: Session, jobs: list[Job], search_of: Callable[[Job], Search | None]
) -> list[Decision]:
    """Let jobs look for victims, in order; those that succeed may ask for more."""
    decisions: list[Decision] = []
    order = JobOrder(session, jobs)
    while (job := order.pop()) is not None:
        search = search_of(job)
        statement = solve(session, job, search) if search is not None else None
        if statement is None:
            continue
        decisions += statement.commit(job.name)
        if is_ready(job):
            order.push(job)
    return decisions


def consolidate(session: Session) -> list[Decision]:
    """Move preemptible tasks together so that a job that waits fits; nobody is lost."""
    most = session.settings.max_consolidation_victims
    if most == 0:
        return []
    jobs = [job for job in session.jobs if policies.may_consolidate(job)]
    return _solve_each(session, jobs, lambda job: policies.consolidation(job, most))


def reclaim(session: Session) -> list[Decision]:
    """Take back for queues under their fair share what others have above theirs."""

    def search_of(job: Job) -> Search | None:
        attempt = policies.Reclaim(session, job)
        return attempt.search() if attempt.may else None

    return _solve_each(session, [job for job in session.jobs if is_ready(job)], search_of)


def preempt(session: Session) -> list[Decision]:
    """Take from lower priorities of the same queue."""

    def search_of(job: Job) -> Search | None:
        return policies.preemption(job) if policies.may_preempt(session, job) else None

    return _solve_each(session, [job for job in session.jobs if is_ready(job)], search_of)


def evict_stale_gangs(session: Session) -> list[Decision]:
    """End gangs that have been below their minimum for longer than their grace."""
    decisions: list[Decision] = []
    for job in session.jobs:
        if not _is_stale(session, job):
            continue
        statement = Statement(session)
        reason = (
            f"evicted with its gang, application {job.name} in {job.queue.name}, which has been "
            f"below its minimum for {job.stale_for_s} s"
        )
        for task in job.tasks:
            if is_evictable(task):
                statement.evict(task, reason)
        decisions += statement.commit()
    return decisions


def _is_stale(session: Session, job: Job) -> bool:
    if job.counts[Status.SUCCEEDED] or not job.placed or job.is_satisfied:
        return False
    grace_s = job.staleness_grace_s
    grace_s = session.settings.staleness_grace_s if grace_s is None else grace_s
    return grace_s >= 0 and job.stale_for_s >= grace_s
