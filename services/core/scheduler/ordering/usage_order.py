"""Order by usage over time: worked out again as time passes, at most every RANK_NS.

Rule 1: a queue that goes by usage serves the child first that has used the least of the cluster, by
        its weight. A leaf that does serves the user first who has used the least in it; of one user
        applications go by age, and each counts what those before it ask for as if it had started.
Rule 2: ranks of one time are compared with one another alone. Queues are ranked again whenever that
        is due and something happens; the applications of a leaf at most every second for a hundred
        of them that wait, so that what it costs does not grow with them.
Source: Kueue's admission fair sharing, where what is admitted between two samples counts at once.
"""

from collections.abc import Iterable

from services.core.scheduler.model.queue_settings import USAGE
from services.core.scheduler.model.rows import Application, Queue
from services.core.scheduler.model.usage import RANK_NS, UsageClock
from services.core.scheduler.ordering import queueing
from shared.model.resources import Resource, add_into
from shared.model.units import milliseconds

EACH_NS = milliseconds(10)  # of the time between two rankings, for each application


def update(root: Queue, queues: Iterable[Queue]) -> None:
    """Rank the queues below a root, and the applications of its leaves, again if that is due."""
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
    """Rank the applications of a leaf, those of each user in their order."""
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
