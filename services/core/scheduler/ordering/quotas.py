"""KAI's quotas by type, and the limit that they set for what may not be preempted.

Rule 1: a queue's quota is its property ``deserved.TYPE``, else its guarantee, else the sum of its
        children's. ``unlimited`` is no limit. A type that no queue names is unlimited for all.
Rule 2: non-preemptible usage never exceeds the quota of its queue and of the queues above; capacity
        freed for it counts as used. Only requested types count. For a semi-preemptible gang this
        holds for its minimum only.
Source: KAI's quotas (deserved), and its rule for non-preemptible jobs.
"""

from services.core.scheduler.model.rows import Application, PluginWaitList, Queue, depth_first
from shared.model.queue_properties import UNLIMITED
from shared.model.reasons import Fact, Kind, Reason, Refusal, Shortage
from shared.model.resources import Resource, ResourceView

NOTHING: Resource = {}


def quota_of(queue: Queue) -> Resource:
    """Return a queue's quota; UNLIMITED, and types not in it, have no limit."""
    if queue.quota_version != queue.tree.promised:
        _work_out(queue.root)
    return queue.quota


def _work_out(root: Queue) -> None:
    """Compute the quotas of all queues, from the leaves up. The root has none."""
    queues = list(depth_first(root))
    said: dict[str, None] = {}
    owed: dict[Queue, Resource] = {}
    for queue in reversed(queues):
        own: Resource = {}
        for child in queue.children.values():
            _add(own, owed[child])
        stated = {**(queue.guaranteed_resource or {}), **queue.settings.deserved}
        said.update(dict.fromkeys(stated))
        owed[queue] = {**own, **stated}
    for queue in queues:
        own = owed[queue]
        queue.quota = {name: own.get(name, 0) for name in said} if queue.parent else {}
        queue.quota_version = queue.tree.promised


def _add(total: Resource, more: ResourceView) -> None:
    """Add a child's quota to a sum; UNLIMITED makes the sum unlimited."""
    for name, value in more.items():
        had = total.get(name, 0)
        is_unlimited = value == UNLIMITED or had == UNLIMITED  # noqa: PLR1714 - faster than a tuple
        total[name] = UNLIMITED if is_unlimited else had + value


def over_quota(
    application: Application, amount: ResourceView, own: ResourceView = NOTHING
) -> tuple[Refusal, PluginWaitList] | None:
    """Return the refusal of the quota that a request exceeds, and its waiting list, or None.

    None if the request is preemptible or within the quotas. ``own`` is what is claimed for it.
    """
    if not application.asks_within_quota:
        return None
    for queue in application.queue.lineage():
        quota = quota_of(queue)
        for name, value in amount.items():
            most = quota.get(name, UNLIMITED)
            if value <= 0 or most == UNLIMITED:
                continue
            left = most - queue.non_preemptible.get(name, 0) + own.get(name, 0)
            if value > left:
                where = f"queue {queue.path}"
                limit = Shortage(where, queue.path, name, left, most, amount)
                refusal = Refusal(Reason.QUEUE_QUOTA, Fact(Kind.FIXED), limit=limit)
                return refusal, queue.quota_wait_list
    return None
