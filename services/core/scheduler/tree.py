"""The queue tree from its configuration: built, and changed in place on a reload.

A queue that a reload leaves out drains: it takes no new application and goes when it is empty
(contract section 6.12). The root's own limit is the cluster and is never configured.
"""

from dataclasses import dataclass, field

from services.core.scheduler.partition import Partition
from services.core.scheduler.queues import FAIR, FIFO, ROOT, Queue, QueueConfig, depth_first
from services.core.scheduler.views import queue_state

ACTIVE = "Active"
DRAINING = "Draining"


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """A parsed queues.yaml, of one partition."""

    root: QueueConfig
    node_sort_policy: str = "fair"
    resource_weights: dict[str, float] = field(default_factory=dict)
    preemption_enabled: bool = True
    checksum: str = ""


def configure(partition: Partition, config: PartitionConfig) -> None:
    """Bring the partition to a configuration; it has been validated before."""
    partition.nodes.set_policy(config.node_sort_policy, config.resource_weights)
    partition.preemption_enabled = config.preemption_enabled
    partition.config_checksum = config.checksum
    partition.config_error = ""
    partition.config_time_ns = partition.now_ns
    _apply(partition.root, config.root, {})
    partition.queues = {queue.path: queue for queue in depth_first(partition.root)}
    drop_drained(partition)
    partition.outbox.partition_changed = True
    for queue in partition.queues.values():
        partition.outbox.touch_queue(queue)
        queue.wake()


def _apply(queue: Queue, config: QueueConfig, inherited: dict[str, str]) -> None:
    queue.is_leaf = not (config.parent or config.children or queue.name == ROOT)
    queue.status = ACTIVE
    queue.max_applications = config.max_applications
    queue.properties = {**inheritable(inherited), **config.properties}
    queue.guaranteed_resource = config.guaranteed_resource
    if queue.parent is not None:
        queue.set_max(config.max_resource)
    policy = queue.properties.get("application.sort.policy", FIFO).lower()
    queue.sort_policy = FAIR if policy == FAIR else FIFO
    priority = queue.properties.get("application.sort.priority", "enabled").lower()
    queue.priority_sorting = priority != "disabled"
    for bucket in queue.buckets.values():
        bucket.clear()
    for application in queue.applications.values():
        application.reorder()
        application.enter()
    wanted = {child.name for child in config.children}
    for child in queue.children.values():
        if child.name not in wanted:
            _drain(child)
    for child_config in config.children:
        if child_config.name not in queue.children:
            queue.children[child_config.name] = Queue(child_config.name, queue)
        _apply(queue.children[child_config.name], child_config, queue.properties)


def inheritable(properties: dict[str, str]) -> dict[str, str]:
    """Return a parent's properties as a child starts with them (contract section 1.5)."""
    child = dict(properties)
    for name, reset in (("priority.policy", "default"), ("priority.offset", "0")):
        if name in child:
            child[name] = reset
    if child.get("preemption.policy", "disabled") != "disabled":
        child["preemption.policy"] = "default"
    return child


def _drain(queue: Queue) -> None:
    for below in depth_first(queue):
        below.status = DRAINING


def drop_drained(partition: Partition) -> None:
    """Take out the draining queues that are empty, leaves before their parents."""
    for queue in reversed(list(depth_first(partition.root))):
        if queue.status == DRAINING and not queue.applications and not queue.children:
            assert queue.parent is not None
            del queue.parent.children[queue.name]
            partition.queues.pop(queue.path, None)
            queue.deactivate()
            partition.outbox.queues.pop(queue, None)
            partition.outbox.queues_gone.append(queue_state(queue, removed=True))
