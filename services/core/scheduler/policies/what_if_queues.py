"""What a configuration makes of the queues: which come, drain, stay or change, and in what."""

from dataclasses import dataclass

from services.core.scheduler.model.queue_ledger import DRAINING
from services.core.scheduler.model.rows import Queue
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
_Settings = dict[str, object]


@dataclass(frozen=True, slots=True)
class Configured:
    """What is configured of a partition, by name, and of its queues, by path."""

    own: _Settings
    queues: dict[str, _Settings]


def configured(partition: Partition) -> Configured:
    """Return what is configured now."""
    return Configured(
        _own(partition), {queue.path: _settings_of(queue) for queue in partition.queues.values()}
    )


def changes(partition: Partition, before: Configured) -> list[ForecastQueue]:
    """Return what has become of the queues, and of the partition itself first."""
    changed = tuple(name for name, value in _own(partition).items() if value != before.own[name])
    told = [ForecastQueue("", QueueChange.CHANGED, len(partition.applications), changed)] * bool(
        changed
    )
    for queue in partition.queues.values():
        told += _change(queue, before.queues.get(queue.path))
    return told


def _own(partition: Partition) -> _Settings:
    """Return what is configured beside the queues, by its name in the file."""
    return {
        "nodesortpolicy": (partition.nodes.order.policy, partition.nodes.order.weights),
        "placementrules": partition.rules,
        "preemption.enabled": partition.preemption_enabled,
        "preemption.quotapreemptionenabled": partition.quota_preemption_enabled,
    }


def _settings_of(queue: Queue) -> _Settings:
    """Return what is configured of a queue, and whether it drains or was made by placement."""
    return {name: getattr(queue, name) for name in ("status", "is_managed", *_OF_QUEUE)}


def _change(queue: Queue, before: _Settings | None) -> list[ForecastQueue]:
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
