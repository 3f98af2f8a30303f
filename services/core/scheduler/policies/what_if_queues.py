"""The effect of a supposed configuration on the queues: which are new, drain, stay or change."""

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
    """The settings of a partition, by name, and of its queues, by path."""

    own: _Settings
    queues: dict[str, _Settings]


def configured(partition: Partition) -> Configured:
    """Return the present settings."""
    return Configured(
        _own(partition), {queue.path: _settings_of(queue) for queue in partition.queues.values()}
    )


def changes(partition: Partition, before: Configured) -> list[ForecastQueue]:
    """Return the changes of the partition itself, then of its queues."""
    changed = tuple(name for name, value in _own(partition).items() if value != before.own[name])
    told = [ForecastQueue("", QueueChange.CHANGED, len(partition.applications), changed)] * bool(
        changed
    )
    for queue in partition.queues.values():
        told += _change(queue, before.queues.get(queue.path))
    return told


def _own(partition: Partition) -> _Settings:
    """Return the settings other than queues, by their name in the file."""
    return {
        "nodesortpolicy": (partition.nodes.order.policy, partition.nodes.order.weights),
        "placementrules": partition.rules,
        "preemption.enabled": partition.preemption_enabled,
        "preemption.quotapreemptionenabled": partition.quota_preemption_enabled,
    }


def _settings_of(queue: Queue) -> _Settings:
    """Return a queue's settings, with its status and whether it is managed."""
    return {name: getattr(queue, name) for name in ("status", "is_managed", *_OF_QUEUE)}


def _change(queue: Queue, before: _Settings | None) -> list[ForecastQueue]:
    """Return the change of a queue, in a list of one or none."""
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
