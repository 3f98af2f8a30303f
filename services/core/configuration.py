"""From queues.yaml to the partition's configuration.

Reading and judging are YuniKorn's own rules (``shared.queueconfig``); keys that hold but whose
feature comes with a later release are refused by name rather than ignored.
"""

from collections.abc import Iterator
from hashlib import sha256

from services.core.scheduler.queues import QueueConfig
from services.core.scheduler.scheduler import ConfigurationError
from services.core.scheduler.tree import PartitionConfig
from shared.model.resources import Resource, is_zero
from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig.amounts import resource_of
from shared.queueconfig.schema import ChildTemplateSpec, PartitionSpec, QueueSpec, ResourcesSpec

DEFAULT_CONFIG = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: default
"""


def parse_configuration(text: str) -> PartitionConfig:
    """Return the configuration in a queues.yaml. Raises ConfigurationError.

    An empty text is the built-in default: one queue, root.default.
    """
    text = text if text.strip() else DEFAULT_CONFIG
    try:
        config = load_configuration(text)
    except QueueConfigError as error:
        where = f"line {error.line}: " if error.line else ""
        raise ConfigurationError(f"{where}{error.message}") from error
    if len(config.partitions) != 1:
        raise ConfigurationError(f"one partition is supported, found {len(config.partitions)}")
    partition = config.partitions[0]
    for line, key in _later(partition):
        raise ConfigurationError(f"line {line}: not supported yet: {key}")
    assert partition.queues is not None
    return PartitionConfig(
        root=_queue(partition.queues[0]),
        node_sort_policy=partition.nodesortpolicy.type or "fair",
        resource_weights=dict(partition.nodesortpolicy.resourceweights),
        preemption_enabled=partition.preemption.enabled is not False,
        checksum=sha256(text.encode()).hexdigest().upper(),
    )


def _later(partition: PartitionSpec) -> Iterator[tuple[int, str]]:
    """Yield the keys whose feature comes with a later release, with their lines."""
    if partition.name != "default":
        yield partition.line, f"a partition named {partition.name!r}"
    if partition.placementrules:
        yield partition.placementrules[0].line, "placementrules"
    if partition.usergroupresolver.type:
        yield partition.usergroupresolver.line, "usergroupresolver"
    for queue in partition.queues or []:
        yield from _later_in(queue)


def _later_in(queue: QueueSpec) -> Iterator[tuple[int, str]]:
    if queue.limits:
        yield queue.limits[0].line, "limits"
    if queue.childtemplate != ChildTemplateSpec(line=queue.childtemplate.line):
        yield queue.childtemplate.line, "childtemplate"
    for child in queue.queues or []:
        yield from _later_in(child)


def _queue(spec: QueueSpec) -> QueueConfig:
    return QueueConfig(
        name=spec.name.lower(),
        parent=spec.parent or bool(spec.queues),
        max_resource=_resource(spec.resources, "max"),
        guaranteed_resource=_resource(spec.resources, "guaranteed"),
        max_applications=spec.maxapplications,
        properties=dict(spec.properties),
        children=tuple(_queue(child) for child in spec.queues or []),
    )


def _resource(spec: ResourcesSpec, kind: str) -> Resource | None:
    """Return a resource; all zero or absent is "not set" (contract section 1.4)."""
    amounts = spec.max if kind == "max" else spec.guaranteed
    resource = resource_of(amounts or {}, spec.line)
    return None if is_zero(resource) else resource
