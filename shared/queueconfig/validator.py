"""YuniKorn's checks in its order and with its texts (docs/rules/queues.md#checks).

The configuration is normalised on the way: names in lower case where YuniKorn does so, a single
root above all queues, the partition's limits on the root.
"""

from shared.model.names import (
    DEFAULT_PARTITION,
    NODE_SCORES,
    OWN_NODE_SCORES,
    QUEUE,
    QUEUE_ERROR,
    ROOT,
)
from shared.queueconfig import amounts, limits, placement
from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.schema import NodeSortSpec, PartitionSpec, QueueSpec, SchedulerConfig

MAX_PARTITIONS = 1_000  # partitions of a queues.yaml; one with more is refused
_ACL_FIELDS = 2
_NAMED = 5  # partitions listed in the error


def validate(config: SchedulerConfig) -> None:
    """Check a whole file, partition by partition. Raises QueueConfigError at the first error.

    Besides YuniKorn's node sort policies a file may name Muster's, which YuniKorn refuses.
    """
    seen: set[str] = set()
    for partition in config.partitions:
        if partition.name.lower() in ("", DEFAULT_PARTITION):
            partition.name = DEFAULT_PARTITION
        name = partition.name.lower()
        if name in seen:
            raise QueueConfigError(
                f"duplicate partition name found with name {partition.name}", partition.line
            )
        seen.add(name)
        root = _root_of(partition)
        _check_limits_structure(partition, root)
        _check_queue(root, 1)
        amounts.check_resources(root, {})
        placement.check_placement(partition.placementrules, root)
        _check_node_sort(partition.nodesortpolicy)
        amounts.check_applications(root)
        limits.check_hierarchy(root)


def check_schedulable(config: SchedulerConfig) -> None:
    """Check that a valid file can be used as a whole. Raises QueueConfigError.

    It must have a partition named default, for everything that names none, and at most
    MAX_PARTITIONS. The rest is what YuniKorn checks when it loads a file: its ``validate-conf``
    accepts files that fail here (docs/rules/queues.md#checks, the last step).
    """
    names = [partition.name for partition in config.partitions]
    if len(names) > MAX_PARTITIONS:
        raise QueueConfigError(
            f"{len(names)} partitions, at most {MAX_PARTITIONS} are scheduled",
            config.partitions[MAX_PARTITIONS].line,
        )
    if DEFAULT_PARTITION not in names:
        said = ", ".join(names[:_NAMED]) or "none"
        raise QueueConfigError(f"a partition named {DEFAULT_PARTITION} is needed, found {said}")
    for partition in config.partitions:
        placement.check_rules_loadable(partition.placementrules)
        for queue in partition.queues or []:
            amounts.check_templates_loadable(queue)


def _root_of(partition: PartitionSpec) -> QueueSpec:
    """Return the root queue; insert one if the file has none of its own."""
    queues = partition.queues
    if queues is None:
        raise QueueConfigError("queue config is not set", partition.line)
    if len(queues) == 1 and queues[0].name.lower() == ROOT:
        root = queues[0]
        if root.resources.guaranteed is not None or root.resources.max is not None:
            raise QueueConfigError(
                "root queue must not have resource limits set", root.resources.line
            )
        root.name = ROOT
        root.parent = True
    else:
        root = QueueSpec(name=ROOT, parent=True, queues=queues, line=partition.line)
        partition.queues = [root]
    return root


def _check_limits_structure(partition: PartitionSpec, root: QueueSpec) -> None:
    if not partition.limits:
        return
    if not root.limits:
        root.limits = partition.limits
    elif not limits.same_limits(partition.limits, root.limits):
        raise QueueConfigError(
            "partition limits and root queue limits are not equivalent", partition.limits[0].line
        )


def _check_queue(queue: QueueSpec, level: int) -> None:
    for acl in (queue.adminacl, queue.submitacl):
        if len(acl.split()) > _ACL_FIELDS:
            raise QueueConfigError(f"multiple spaces found in ACL: '{acl}'", queue.line)
    limits.check_limits(queue, is_root=queue.name == ROOT and level == 1)
    seen: set[str] = set()
    for child in queue.queues or []:
        if not QUEUE.match(child.name):
            raise QueueConfigError(QUEUE_ERROR, child.line)
        if child.name.lower() in seen:
            raise QueueConfigError(
                f"duplicate child name found with name '{child.name}', level {level}", child.line
            )
        seen.add(child.name.lower())
    for child in queue.queues or []:
        _check_queue(child, level + 1)


def _check_node_sort(spec: NodeSortSpec) -> None:
    if spec.type not in ("", *NODE_SCORES, *OWN_NODE_SCORES):
        raise QueueConfigError(f"undefined policy: {spec.type}", spec.line)
    for name, weight in spec.resourceweights.items():
        if weight < 0:
            raise QueueConfigError(f"negative resource weight for {name} is not allowed", spec.line)
