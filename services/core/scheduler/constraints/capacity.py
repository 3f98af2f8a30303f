"""Limits of queues: max for all jobs, quotas for non-preemptible ones.

Source: docs/rules/kai.md.
"""

from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Amount,
    Job,
    Share,
    Task,
    Trial,
    plus,
    request_of,
    within,
)


def may_take(trial: Trial, job: Job, tasks: list[Task]) -> bool:
    """Whether neither queues nor plugins refuse a job some tasks."""
    request = request_of(tasks, trial.width)
    return bool(tasks) and _may_ever_ask(trial, job, request) and not over_limits(job, request)


def may_ever_take(trial: Trial, job: Job, tasks: list[Task]) -> bool:
    """Whether a job may allocate tasks after evictions.

    Evictions bring queues back within their limits, but free no quota: its users are not
    preemptible.
    """
    return bool(tasks) and _may_ever_ask(trial, job, request_of(tasks, trial.width))


def _may_ever_ask(trial: Trial, job: Job, request: Amount) -> bool:
    return not over_quota(job, request) and trial.has_capacity(job, request)


def over_limits(job: Job, request: Amount) -> list[tuple[Share, list[int]]]:
    """Return the queues on the path whose limit a request exceeds, and by how much.

    Types that are not requested count as 0.
    """
    found = []
    for queue in job.queue.lineage():
        over = [
            max(0, used + value - limit) if value > 0 and limit != UNLIMITED else 0
            for used, value, limit in zip(queue.allocated, request, queue.limit, strict=True)
        ]
        if any(over):
            found.append((queue, over))
    return found


def over_quota(job: Job, request: Amount) -> bool:
    """Whether a job would exceed a quota with non-preemptible tasks.

    Only requested types count, in every queue on the path. For a gang whose minimum only is
    non-preemptible, it applies while it lacks some of it.
    """
    is_bound = not job.preemptible or job.application.asks_within_quota
    return is_bound and any(
        value > 0 and quota != UNLIMITED and used + value > quota
        for queue in job.queue.lineage()
        for used, value, quota in zip(
            job.trial.non_preemptible(queue), request, queue.quota, strict=True
        )
    )


def over_fair_share(job: Job, request: Amount) -> bool:
    """Whether a leaf would exceed its fair share with a request, in any type."""
    return not within(plus(job.queue.allocated, request), job.queue.fair_share)


def leveled(one: Share, other: Share) -> tuple[Share, Share]:
    """Return the first ancestors, from the root down, in which two leaves differ."""
    for left, right in zip(reversed(one.lineage()), reversed(other.lineage()), strict=False):
        if left is not right:
            return left, right
    return one, other
