"""What a configuration would make of the queues, which then have it until the hypothesis ends.

Rule 1: it is supposed as a reload would apply it; what a reload refuses has no forecast.
Rule 2: a gang that others wait behind is still the one, unless its leaf's new order or maxima let
        nobody wait for it.
"""

from services.core.scheduler.actions import gang, patience
from services.core.scheduler.model.queue_ledger import DRAINING
from services.core.scheduler.model.rows import Queue
from services.core.scheduler.queues import tree
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.statement.hypothesis import Hypothesis
from services.core.scheduler.statement.partition import Partition
from shared.messages.what_if import ForecastQueue, QueueChange

_OF_QUEUE = {
    "max_resource": "resources.max",
    "guaranteed_resource": "resources.guaranteed",
    "max_applications": "maxapplications",
    "properties": "properties",
    "user_limits": "limits of users",
    "group_limits": "limits of groups",
    "submit_access": "submitacl",
    "admin_access": "adminacl",
    "template": "childtemplate",
    "is_leaf": "parent",
}
_Said = dict[str, object]


class UnansweredError(ValueError):
    """A question that has no forecast; the message says why."""


def suppose(hypothesis: Hypothesis, config: PartitionConfig) -> list[ForecastQueue]:
    """Suppose a configuration; return what becomes of queues. Raises UnansweredError."""
    partition = hypothesis.partition
    error = tree.conflict(partition, config)
    if error:
        raise UnansweredError(error)
    queues = {queue.path: _said(queue) for queue in partition.queues.values()}
    own = _own(partition)
    tree.suppose(hypothesis, config)
    for queue in partition.queues.values():
        overdue = queue.overdue_gang
        if overdue is not None and not patience.may_be_waited_for(overdue):
            hypothesis.set(queue, overdue_gang=None)
    for application in gang.over_maxima(partition):
        hypothesis.withdraw_admission(application)
    changed = tuple(name for name, value in _own(partition).items() if value != own[name])
    told = [ForecastQueue("", QueueChange.CHANGED, len(partition.applications), changed)] * bool(
        changed
    )
    for queue in partition.queues.values():
        told += _change(queue, queues.get(queue.path))
    return told


def _own(partition: Partition) -> _Said:
    """Return what is configured beside the queues, by its name in the file."""
    return {
        "nodesortpolicy": (partition.nodes.policy, partition.nodes.weights),
        "placementrules": partition.rules,
        "preemption.enabled": partition.preemption_enabled,
        "preemption.quotapreemptionenabled": partition.quota_preemption_enabled,
    }


def _said(queue: Queue) -> _Said:
    """Return what is configured of a queue, and whether it drains or was made by placement."""
    return {name: getattr(queue, name) for name in ("status", "is_managed", *_OF_QUEUE)}


def _change(queue: Queue, before: _Said | None) -> list[ForecastQueue]:
    """Return what becomes of a queue, in one or none."""
    path, running = queue.path, len(queue.applications)
    if before is None:
        return [ForecastQueue(path, QueueChange.COMES, running)]
    drained = before["status"] == DRAINING
    if queue.status == DRAINING:
        return [] if drained else [ForecastQueue(path, QueueChange.DRAINS, running)]
    changed = [text for name, text in _OF_QUEUE.items() if before[name] != getattr(queue, name)]
    stays = drained or (queue.is_managed and not before["is_managed"])
    kind = QueueChange.STAYS if stays else QueueChange.CHANGED
    return [ForecastQueue(path, kind, running, tuple(changed))] if stays or changed else []
