"""Builds the partition's configuration from queues.yaml.

Parsing and validation, of all partitions together, are in ``shared.queueconfig``.
"""

from collections.abc import Mapping
from dataclasses import replace
from operator import is_
from threading import Lock

from services.core.scheduler.model.access import parse_access
from services.core.scheduler.model.placement_rules import PROVIDED, PlacementRules, Rule, RuleFilter
from services.core.scheduler.model.queue_settings import Limit, QueueConfig, Template
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.scheduler import ConfigurationError
from shared.model.checksum import checksum_of
from shared.model.names import DEFAULT_PARTITION, ROOT
from shared.model.patterns import Pattern, compile_pattern
from shared.model.resources import Resource, is_zero
from shared.queueconfig import QueueConfigError, load_schedulable
from shared.queueconfig.amounts import resource_of
from shared.queueconfig.placement import is_pattern
from shared.queueconfig.schema import (
    ChildTemplateSpec,
    FilterSpec,
    LimitSpec,
    PartitionSpec,
    PlacementRuleSpec,
    QueueSpec,
    ResourcesSpec,
)
from shared.queueconfig.warnings import partition_warnings

MAX_REMEMBERED = 3  # one that comes, one that holds, one that held
_EMPTY_ROOT = QueueConfig(name=ROOT, parent=True)
DEFAULT_CONFIG = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: default
"""


class ReadOnce:
    """Cache of the last MAX_REMEMBERED parsed configurations, valid or not, by their text.

    Hosts parse ahead in threads: one thread parses a text, the others wait for it, and the core's
    own loop finds the result. Queues that are equal in two texts are the same objects, so that an
    unchanged subtree is recognised by identity.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._read: dict[str, dict[str, PartitionConfig] | ConfigurationError] = {}

    def __call__(self, text: str, partition: str = DEFAULT_PARTITION) -> PartitionConfig:
        """Return a partition's configuration in a queues.yaml. Raises ConfigurationError."""
        found = self._read.get(text)
        if found is None:
            with self._lock:
                found = self._read.get(text) or _tried(text)
                for known in reversed(self._read.values()):
                    if isinstance(known, dict) and isinstance(found, dict) and found is not known:
                        found = _with_shared(found, known)
                        break
                self._read[text] = found
                while len(self._read) > MAX_REMEMBERED:
                    del self._read[next(iter(self._read))]
        if isinstance(found, ConfigurationError):
            raise found
        return _part(found, partition)


def _tried(text: str) -> dict[str, PartitionConfig] | ConfigurationError:
    try:
        return parse_partitions(text)
    except ConfigurationError as error:
        return error


def _with_shared(
    read: dict[str, PartitionConfig], known: Mapping[str, PartitionConfig]
) -> dict[str, PartitionConfig]:
    """Return the partitions, with queues that ``known`` has too replaced by its objects."""
    return {
        name: replace(config, root=_shared(config.root, known[name].root))
        if name in known
        else config
        for name, config in read.items()
    }


def _shared(queue: QueueConfig, known: QueueConfig) -> QueueConfig:
    by_name = {child.name: child for child in known.children}
    children = tuple(
        _shared(child, by_name[child.name]) if child.name in by_name else child
        for child in queue.children
    )
    is_same = len(children) == len(known.children) and all(map(is_, children, known.children))
    queue = replace(queue, children=known.children if is_same else children)
    return known if is_same and queue == known else queue


def parse_configuration(text: str, partition: str = DEFAULT_PARTITION) -> PartitionConfig:
    """Return a partition's configuration in a queues.yaml. Raises ConfigurationError."""
    return _part(parse_partitions(text), partition)


def parse_partitions(text: str) -> dict[str, PartitionConfig]:
    """Return the configuration of every partition in a queues.yaml, in the order of the file.

    Raises ConfigurationError. An empty text is the built-in default: one queue, root.default.
    """
    text = text if text.strip() else DEFAULT_CONFIG
    try:
        config = load_schedulable(text)
    except QueueConfigError as error:
        raise ConfigurationError(str(error)) from error
    of_all = PartitionConfig(
        root=_EMPTY_ROOT,
        checksum=checksum_of(text),
        text=text,
        partitions=tuple(partition.name for partition in config.partitions),
    )
    return {partition.name: _configured(partition, of_all) for partition in config.partitions}


def _part(parts: Mapping[str, PartitionConfig], name: str) -> PartitionConfig:
    """Return a partition's configuration; an empty root if the file does not have the partition."""
    if name in parts:
        return parts[name]
    default = parts[DEFAULT_PARTITION]
    return PartitionConfig(
        root=_EMPTY_ROOT,
        checksum=default.checksum,
        text=default.text,
        partitions=default.partitions,
        is_removed=True,
    )


def _configured(partition: PartitionSpec, of_all: PartitionConfig) -> PartitionConfig:
    assert partition.queues is not None
    sort = partition.nodesortpolicy
    return replace(
        of_all,
        root=_queue(partition.queues[0]),
        node_sort_policy=sort.type,
        resource_weights=dict(sort.resourceweights),
        preemption_enabled=partition.preemption.enabled is not False,
        quota_preemption_enabled=partition.preemption.quotapreemptionenabled is True,
        rules=PlacementRules(
            tuple(_rule(rule) for rule in partition.placementrules) or (Rule(PROVIDED),)
        ),
        warnings=tuple(
            f"line {line}: {sentence}" for line, sentence in partition_warnings(partition)
        ),
    )


def _queue(spec: QueueSpec) -> QueueConfig:
    return QueueConfig(
        name=spec.name.lower(),
        parent=spec.parent or bool(spec.queues),
        max_resource=_resource(spec.resources, "max"),
        guaranteed_resource=_resource(spec.resources, "guaranteed"),
        max_applications=spec.maxapplications,
        properties=dict(spec.properties),
        children=tuple(_queue(child) for child in spec.queues or []),
        submit_access=parse_access(spec.submitacl),
        admin_access=parse_access(spec.adminacl),
        template=_template(spec.childtemplate),
        user_limits={name: _limit(item) for item in spec.limits for name in item.users if name},
        group_limits={name: _limit(item) for item in spec.limits for name in item.groups if name},
    )


def _resource(spec: ResourcesSpec, kind: str) -> Resource | None:
    """Return a resource; all zero or absent is "not set" (docs/rules/queues.md#amounts)."""
    amounts = spec.max if kind == "max" else spec.guaranteed
    resource = resource_of(amounts or {}, spec.line)
    return None if is_zero(resource) else resource


def _limit(spec: LimitSpec) -> Limit:
    resource = resource_of(spec.maxresources, spec.line)
    return Limit(resource if spec.maxresources else None, spec.maxapplications)


def _template(spec: ChildTemplateSpec) -> Template | None:
    """Return a template, None if it is empty; empty names and values are dropped."""
    template = Template(
        max_resource=_resource(spec.resources, "max"),
        guaranteed_resource=_resource(spec.resources, "guaranteed"),
        max_applications=spec.maxapplications,
        properties={name: value for name, value in spec.properties.items() if name and value},
    )
    return None if template == Template() else template


def _rule(spec: PlacementRuleSpec) -> Rule:
    return Rule(
        name=spec.name.lower(),
        create=spec.create,
        value=spec.value.lower(),
        filter=_filter(spec.filter),
        parent=_rule(spec.parent) if spec.parent is not None else None,
    )


def _filter(spec: FilterSpec) -> RuleFilter:
    users, user_pattern = _names(spec.users)
    groups, group_pattern = _names(spec.groups)
    return RuleFilter(spec.type != "deny", users, groups, user_pattern, group_pattern)


def _names(names: list[str]) -> tuple[tuple[str, ...], Pattern | None]:
    if is_pattern(names):
        return (), compile_pattern(names[0])
    return tuple(names), None
