"""From queues.yaml to the partition's configuration.

Reading and judging are YuniKorn's own rules (``shared.queueconfig``); what it judges only when a
partition is built, the placement rules, is judged here. One partition is scheduled, ``default``,
as YuniKorn's Kubernetes shim knows no other; further ones are read, judged and told of.
"""

from services.core.scheduler.model.access import parse_access
from services.core.scheduler.model.placement_rules import PROVIDED, PlacementRules, Rule, RuleFilter
from services.core.scheduler.model.queue_settings import Limit, QueueConfig, Template
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.scheduler import ConfigurationError
from shared.model.checksum import checksum_of
from shared.model.patterns import Pattern, compile_pattern
from shared.model.resources import Resource, is_zero
from shared.queueconfig import QueueConfigError, load_configuration
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
    SchedulerConfig,
)
from shared.queueconfig.validator import check_loadable
from shared.queueconfig.warnings import warnings_of

MAX_REMEMBERED = 3  # one that comes, one that holds, one that held
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
    """Configurations by their text: the last MAX_REMEMBERED are not read again, good or bad.

    The core's host reads ahead in a thread; what the core's own loop asks for is there by then.
    """

    def __init__(self) -> None:
        self._read: dict[str, PartitionConfig | ConfigurationError] = {}

    def __call__(self, text: str) -> PartitionConfig:
        """Return the configuration in a queues.yaml. Raises ConfigurationError."""
        found = self._read.pop(text, None) or _tried(text)
        self._read[text] = found
        while len(self._read) > MAX_REMEMBERED:
            del self._read[next(iter(self._read))]
        if isinstance(found, ConfigurationError):
            raise found
        return found


def _tried(text: str) -> PartitionConfig | ConfigurationError:
    try:
        return parse_configuration(text)
    except ConfigurationError as error:
        return error


def parse_configuration(text: str) -> PartitionConfig:
    """Return the configuration in a queues.yaml. Raises ConfigurationError.

    An empty text is the built-in default: one queue, root.default.
    """
    text = text if text.strip() else DEFAULT_CONFIG
    try:
        config = load_configuration(text)
        partition = _default_partition(config)
        check_loadable(partition)
    except QueueConfigError as error:
        where = f"line {error.line}: " if error.line else ""
        raise ConfigurationError(f"{where}{error.message}") from error
    assert partition.queues is not None
    sort = partition.nodesortpolicy
    return PartitionConfig(
        root=_queue(partition.queues[0]),
        node_sort_policy=sort.type or "fair",
        resource_weights=dict(sort.resourceweights),
        preemption_enabled=partition.preemption.enabled is not False,
        quota_preemption_enabled=partition.preemption.quotapreemptionenabled is True,
        rules=PlacementRules(
            tuple(_rule(rule) for rule in partition.placementrules) or (Rule(PROVIDED),)
        ),
        warnings=tuple(f"line {line}: {sentence}" for line, sentence in warnings_of(config)),
        checksum=checksum_of(text),
        text=text,
    )


def _default_partition(config: SchedulerConfig) -> PartitionSpec:
    for partition in config.partitions:
        if partition.name == "default":
            return partition
    names = ", ".join(partition.name for partition in config.partitions) or "none"
    raise ConfigurationError(f"a partition named default is needed, found {names}")


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
    """Return a resource; all zero or absent is "not set" (contract section 1.4)."""
    amounts = spec.max if kind == "max" else spec.guaranteed
    resource = resource_of(amounts or {}, spec.line)
    return None if is_zero(resource) else resource


def _limit(spec: LimitSpec) -> Limit:
    resource = resource_of(spec.maxresources, spec.line)
    return Limit(resource if spec.maxresources else None, spec.maxapplications)


def _template(spec: ChildTemplateSpec) -> Template | None:
    """Return a template, None where it says nothing; empty names and values are dropped."""
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
