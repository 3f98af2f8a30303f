"""What queues may take: limits for everybody, quotas for what may not be preempted.

Source: contract kai.md, 1.2 and 1.4.
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
    return bool(tasks) and not over_capacity(job, request) and trial.has_capacity(job, request)


def over_capacity(job: Job, request: Amount) -> str:
    """Return why no queue on the path may take a request, or "": it may.

    Only types that are asked for are looked at.
    """
    for queue in job.queue.lineage():
        allocated = queue.allocated
        for at, value in enumerate(request):
            if value <= 0:
                continue
            limit, quota = queue.limit[at], queue.quota[at]
            if limit != UNLIMITED and allocated[at] + value > limit:
                return (
                    f"OverLimit: queue {queue.name} has {allocated[at]} of {limit}, "
                    f"requested {value}"
                )
            if job.preemptible or quota == UNLIMITED:
                continue
            fixed = job.trial.fixed(queue)[at]
            if fixed + value > quota:
                return (
                    f"NonPreemptibleOverQuota: queue {queue.name} has {fixed} of its quota "
                    f"{quota} by jobs that may not be preempted, requested {value}"
                )
    return ""


def over_fair_share(job: Job, request: Amount) -> bool:
    """Return whether a leaf would be over its fair share with a request, in any type."""
    return not within(plus(job.queue.allocated, request), job.queue.fair_share)


def leveled(one: Share, other: Share) -> tuple[Share, Share]:
    """Return the first ancestors, from the root down, in which two leaves differ."""
    ones, others = list(one.lineage())[::-1], list(other.lineage())[::-1]
    for left, right in zip(ones, others, strict=False):
        if left is not right:
            return left, right
    return one, other
