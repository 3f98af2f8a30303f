"""What queues may take: limits for everybody, quotas for what may not be preempted.

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
    """Return whether nothing but room keeps a job from taking tasks: neither queues nor plugins."""
    request = request_of(tasks, trial.width)
    return bool(tasks) and _may_ever_ask(trial, job, request) and not over_limits(job, request)


def may_ever_take(trial: Trial, job: Job, tasks: list[Task]) -> bool:
    """Return whether a job may take tasks once others have made way for it.

    They bring the queues back within their limits, but free no quota: who uses that may not go.
    """
    return bool(tasks) and _may_ever_ask(trial, job, request_of(tasks, trial.width))


def _may_ever_ask(trial: Trial, job: Job, request: Amount) -> bool:
    return not over_quota(job, request) and trial.has_capacity(job, request)


def over_limits(job: Job, request: Amount) -> list[tuple[Share, list[int]]]:
    """Return the queues on the path that a request brings over their limit, and by how much.

    Only types that are asked for are looked at; the others are 0 over.
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
    """Return whether a job that may not be preempted, with others like it, would exceed a quota.

    Only types that are asked for are looked at, in every queue on the path. So it is for a gang of
    which only the minimum may not, while it lacks some of that.
    """
    is_bound = not job.preemptible or job.application.asks_within_quota
    return is_bound and any(
        value > 0 and quota != UNLIMITED and fixed + value > quota
        for queue in job.queue.lineage()
        for fixed, value, quota in zip(job.trial.fixed(queue), request, queue.quota, strict=True)
    )


def over_fair_share(job: Job, request: Amount) -> bool:
    """Return whether a leaf would be over its fair share with a request, in any type."""
    return not within(plus(job.queue.allocated, request), job.queue.fair_share)


def leveled(one: Share, other: Share) -> tuple[Share, Share]:
    """Return the first ancestors, from the root down, in which two leaves differ."""
    for left, right in zip(reversed(one.lineage()), reversed(other.lineage()), strict=False):
        if left is not right:
            return left, right
    return one, other
