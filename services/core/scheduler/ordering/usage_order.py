"""The order by usage over time, recomputed at most every RANK_NS.

Rule 1: a queue with this policy serves the child that has used the least of the cluster, by weight.
        A leaf serves the user who has used the least in it; applications of one user go by age, and
        each counts the requests of those before it as used.
Rule 2: only ranks of one time are comparable. Queues are ranked again when due; the applications of
        a leaf at most once a second for a hundred waiting ones, which bounds the cost.
Source: Kueue's admission fair sharing, where admissions between two samples count at once.
"""

from collections.abc import Iterable

from services.core.scheduler.model.queue_settings import USAGE
from services.core.scheduler.model.rows import Application, Queue
from services.core.scheduler.model.usage import RANK_NS, UsageClock
from services.core.scheduler.ordering import queueing
from shared.model.resources import Resource, add_into
from shared.model.units import milliseconds

EACH_NS = milliseconds(10)  # minimum time between two rankings, for each application


def update(root: Queue, queues: Iterable[Queue]) -> None:
    """Rank the queues below a root, and the applications of its leaves, if due."""
    clock = root.tree.usage
    if clock is None or clock.now_ns < clock.ranked_until_ns:
        return
    clock.rank_from_now()
    root.tree.version += 1
    waiting: dict[Queue, list[Application]] = {
        queue: []
        for queue in queues
        if queue.is_leaf and queue.settings.sort_policy == USAGE and _is_due(clock, queue)
    }
    if not waiting:
        return
    for application in root.asking:
        if application.queue in waiting:
            waiting[application.queue].append(application)
    for leaf, applications in waiting.items():
        leaf.ranked_until_ns = clock.now_ns + max(RANK_NS, EACH_NS * len(applications))
        _rank(clock, leaf, applications)


def _is_due(clock: UsageClock, leaf: Queue) -> bool:
    return leaf.ranked_until_ns <= clock.now_ns


def _age(application: Application) -> tuple[int, int]:
    return application.submission_time_ns, application.sequence


def _rank(clock: UsageClock, leaf: Queue, applications: list[Application]) -> None:
    """Rank the applications of a leaf, those of each user by age."""
    ahead: dict[str, Resource] = {}
    for application in sorted(applications, key=_age):
        user = application.trackers[0]
        before = ahead.get(user.name)
        if before is None:
            user.advance_usage(leaf)
            before = ahead[user.name] = dict(user.usage.get(leaf.path, {}))
        rank = clock.rank(clock.row_of(leaf.path, user.name), before)
        add_into(before, application.pending)
        if rank != application.usage_rank:
            application.usage_rank = rank
            queueing.reorder(application)
            queueing.enter(application)
