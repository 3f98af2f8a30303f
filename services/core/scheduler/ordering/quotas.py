"""What queues are owed under kai, type by type, and what may not be preempted within it.

Rule 1: a queue is owed what its property ``deserved.TYPE`` says, else its guarantee, else what its
        children are. ``unlimited`` is all there is. A type of which no queue says anything is
        unlimited for all.
Rule 2: what may not be preempted never takes more of a type than its queue, and every one above
        it, is owed; room that was freed for it counts as taken. Only types that are asked for
        count. Of a gang that is semi-preemptible so is its minimum, and nothing above it.
Source: KAI's quotas (deserved), and its rule for jobs that are not preemptible.
"""

from services.core.scheduler.model.rows import Application, PluginWaitList, Queue, depth_first
from shared.model.queue_properties import UNLIMITED
from shared.model.reasons import Fact, Kind, Reason, Refusal, Shortage
from shared.model.resources import Resource, ResourceView

NOTHING: Resource = {}


def quota_of(queue: Queue) -> Resource:
    """Return what a queue is owed; a type that is not in it is unlimited, as UNLIMITED is."""
    if queue.quota_version != queue.tree.promised:
        _work_out(queue.root)
    return queue.quota


def _work_out(root: Queue) -> None:
    """Work out what every queue is owed, from the leaves up. The root is owed everything."""
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
    """Add what a child is owed; with one that is unlimited the sum is."""
    for name, value in more.items():
        is_unlimited = UNLIMITED in (value, total.get(name))
        total[name] = UNLIMITED if is_unlimited else total.get(name, 0) + value


def over_quota(
    application: Application, amount: ResourceView, own: ResourceView = NOTHING
) -> tuple[Refusal, PluginWaitList] | None:
    """Return which queue an application would take more of than it is owed, and where it waits.

    None where what it asks for may be preempted, or is within the quotas. ``own`` is what is kept
    for that.
    """
    if not application.asks_within_quota:
        return None
    for queue in application.queue.lineage():
        quota = quota_of(queue)
        for name, value in amount.items():
            most = quota.get(name, UNLIMITED)
            if value <= 0 or most == UNLIMITED:
                continue
            left = most - queue.fixed.get(name, 0) + own.get(name, 0)
            if value > left:
                where = f"queue {queue.path}"
                limit = Shortage(where, queue.path, name, left, most, amount)
                refusal = Refusal(Reason.QUEUE_QUOTA, Fact(Kind.FIXED), limit=limit)
                return refusal, queue.quota_wait_list
    return None
