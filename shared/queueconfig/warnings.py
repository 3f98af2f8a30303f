"""What holds in a queues.yaml and will surprise all the same, with the line and a sentence."""

from collections.abc import Iterator

from shared.model.numbers import parse_int32
from shared.queueconfig.schema import PartitionSpec, QueueSpec, SchedulerConfig

HIGHEST_USER_PRIORITY = 1_000_000_000  # Kubernetes: the highest of a PriorityClass of a user
SYSTEM_PRIORITY = 2_000_000_000  # system-cluster-critical; system-node-critical is 1,000 more
_INT32_MAX = 2**31 - 1


def warnings_of(config: SchedulerConfig) -> list[tuple[int, str]]:
    """Return the warnings of a configuration that has been judged."""
    return [warning for partition in config.partitions for warning in _of(partition)]


def _of(partition: PartitionSpec) -> Iterator[tuple[int, str]]:
    if partition.name != "default":
        yield (
            partition.line,
            (f"partition {partition.name} is read and not scheduled: there is one, default"),
        )
    if partition.usergroupresolver.type:
        sentence = (
            f"usergroupresolver {partition.usergroupresolver.type} is not asked: the groups are "
            "those of the pod's user.info annotation, or the user's own name"
        )
        yield partition.usergroupresolver.line, sentence
    for root in partition.queues or []:
        if not root.submitacl and not root.adminacl and not _lets_anybody_in(root):
            yield root.line, "nobody may submit: no queue has a submitacl or an adminacl"
        found: list[tuple[int, str]] = []
        _highest(root, root.name, found)
        yield from found


def _lets_anybody_in(queue: QueueSpec) -> bool:
    return any(
        child.submitacl or child.adminacl or _lets_anybody_in(child) for child in queue.queues or []
    )


def _highest(queue: QueueSpec, path: str, found: list[tuple[int, str]]) -> int:
    """Return the highest priority that a queue can show, and note the offsets that lift it too far.

    Source: contract section 6.4; the priority design warns of offsets near the system classes.
    """
    below = [_highest(child, f"{path}.{child.name}", found) for child in queue.queues or []]
    highest = max(below, default=HIGHEST_USER_PRIORITY)
    offset = parse_int32(queue.properties.get("priority.offset", "")) or 0
    is_fence = queue.properties.get("priority.policy", "").lower() == "fence"
    shown = min(_INT32_MAX, offset if is_fence else highest + offset)
    if offset > 0 and shown >= SYSTEM_PRIORITY:
        sentence = (
            f"priority.offset {offset} of queue {path} can lift what waits in it to {shown}: "
            f"the system's own priority classes begin at {SYSTEM_PRIORITY}"
        )
        found.append((queue.line, sentence))
    return shown
