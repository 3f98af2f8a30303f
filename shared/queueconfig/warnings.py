"""Warnings about valid but surprising settings of a queues.yaml, each with its line."""

from collections.abc import Iterator

from shared.model import queue_properties
from shared.model.names import OWN_NODE_SCORES
from shared.model.numbers import parse_int32
from shared.queueconfig.schema import PartitionSpec, QueueSpec, SchedulerConfig

HIGHEST_USER_PRIORITY = 1_000_000_000  # Kubernetes: the highest of a PriorityClass of a user
SYSTEM_PRIORITY = 2_000_000_000  # system-cluster-critical; system-node-critical is 1,000 more
_INT32_MAX = 2**31 - 1
_FENCE = "fence"


def warnings_of(config: SchedulerConfig) -> list[tuple[int, str]]:
    """Return the warnings of a valid file, including settings that YuniKorn would refuse."""
    found: list[tuple[int, str]] = []
    for partition in config.partitions:
        score = partition.nodesortpolicy
        if score.type in OWN_NODE_SCORES:
            refuses = f"it refuses this file (undefined policy: {score.type})"
            found.append((score.line, f"nodesortpolicy {score.type} is not YuniKorn's: {refuses}"))
        found += partition_warnings(partition)
    return found


def partition_warnings(partition: PartitionSpec) -> Iterator[tuple[int, str]]:
    """Yield the warnings of one partition, each with its line."""
    if partition.usergroupresolver.type:
        sentence = (
            f"usergroupresolver {partition.usergroupresolver.type} is not asked: the groups are "
            "those of the pod's user.info annotation, or the user's own name"
        )
        yield partition.usergroupresolver.line, sentence
    for root in partition.queues or []:
        if not root.submitacl and not root.adminacl and not _lets_anybody_in(root):
            yield root.line, "no user may submit: no queue has a submitacl or an adminacl"
        yield from _without_effect(root)
        yield from _that_do_not_hold(root, root.name)
        for queue in root.queues or []:
            found: list[tuple[int, str]] = []
            _highest(queue, f"{root.name}.{queue.name}", found)
            yield from found


def _without_effect(root: QueueSpec) -> Iterator[tuple[int, str]]:
    """Yield warnings for settings of the root that only matter between siblings.

    Source: docs/rules/scheduling.md#priority and docs/rules/preemption.md: preemption never goes
    beyond the root.
    """
    where = "has no effect: the root has no siblings; set it on the queues below"
    offset = _offset(root)
    if offset:
        yield root.line, f"priority.offset {offset} of {root.name} {where}"
    for name in ("priority.policy", "preemption.policy"):
        if _is_fence(root, name):
            yield root.line, f"{name} {_FENCE} of {root.name} {where}"


def _that_do_not_hold(queue: QueueSpec, path: str) -> Iterator[tuple[int, str]]:
    """Yield warnings for invalid properties of the policy kai, in a queue and its children."""
    for name, text, why in queue_properties.refused(queue.properties):
        yield queue.line, f"{name} {text!r} of queue {path} is {why}"
    for child in queue.queues or []:
        yield from _that_do_not_hold(child, f"{path}.{child.name}")


def _offset(queue: QueueSpec) -> int:
    return parse_int32(queue.properties.get("priority.offset", "")) or 0


def _is_fence(queue: QueueSpec, name: str) -> bool:
    return queue.properties.get(name, "").lower() == _FENCE


def _lets_anybody_in(queue: QueueSpec) -> bool:
    return any(
        child.submitacl or child.adminacl or _lets_anybody_in(child) for child in queue.queues or []
    )


def _highest(queue: QueueSpec, path: str, found: list[tuple[int, str]]) -> int:
    """Return the highest priority that a queue can have, and warn of offsets that raise it too far.

    Source: docs/rules/scheduling.md#priority; the priority design warns of offsets near the system
    classes.
    """
    below = [_highest(child, f"{path}.{child.name}", found) for child in queue.queues or []]
    highest = max(below, default=HIGHEST_USER_PRIORITY)
    offset = _offset(queue)
    shown = min(_INT32_MAX, offset if _is_fence(queue, "priority.policy") else highest + offset)
    if offset > 0 and shown >= SYSTEM_PRIORITY:
        sentence = (
            f"priority.offset {offset} of queue {path} can lift what waits in it to {shown}: "
            f"the system's own priority classes begin at {SYSTEM_PRIORITY}"
        )
        found.append((queue.line, sentence))
    return shown
