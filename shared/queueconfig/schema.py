"""The format, as records. A field's metadata names its key and YuniKorn's own type.

``line`` is where a record starts in its file. Quantities stay text until they are judged, so that
the order of the checks is YuniKorn's.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ResourcesSpec:
    """Guaranteed and max of a queue; None is not set."""

    guaranteed: dict[str, str] | None = None
    max: dict[str, str] | None = None
    line: int = 0


@dataclass(slots=True)
class ChildTemplateSpec:
    """What a dynamic leaf below a queue starts with."""

    maxapplications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    line: int = 0


@dataclass(slots=True)
class LimitSpec:
    """What users or groups may have in a queue."""

    limit: str = ""
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    maxresources: dict[str, str] = field(default_factory=dict)
    maxapplications: int = 0
    line: int = 0


@dataclass(slots=True)
class FilterSpec:
    """The users and groups of a placement rule."""

    type: str = ""
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    line: int = 0


@dataclass(slots=True)
class PlacementRuleSpec:
    """A placement rule and, in ``parent``, the rule that names the queue above."""

    name: str = ""
    create: bool = False
    filter: FilterSpec = field(default_factory=FilterSpec)
    parent: "PlacementRuleSpec | None" = None
    value: str = ""
    line: int = 0


@dataclass(slots=True)
class QueueSpec:
    """A queue and those below it."""

    name: str = ""
    parent: bool = False
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    maxapplications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    adminacl: str = ""
    submitacl: str = ""
    childtemplate: ChildTemplateSpec = field(default_factory=ChildTemplateSpec)
    queues: list["QueueSpec"] | None = None
    limits: list[LimitSpec] = field(default_factory=list)
    line: int = 0


@dataclass(slots=True)
class PreemptionSpec:
    """The partition's switches; None is the default (on, and off)."""

    enabled: bool | None = None
    quotapreemptionenabled: bool | None = None
    line: int = 0


@dataclass(slots=True)
class NodeSortSpec:
    """How nodes are ordered."""

    type: str = ""
    resourceweights: dict[str, float] = field(default_factory=dict)
    line: int = 0


@dataclass(slots=True)
class ResolverSpec:
    """Where a user's groups come from."""

    type: str = ""
    line: int = 0


@dataclass(slots=True)
class PartitionSpec:
    """A partition; ``queues`` None is not set."""

    name: str = ""
    queues: list[QueueSpec] | None = None
    placementrules: list[PlacementRuleSpec] = field(default_factory=list)
    limits: list[LimitSpec] = field(default_factory=list)
    preemption: PreemptionSpec = field(default_factory=PreemptionSpec)
    nodesortpolicy: NodeSortSpec = field(default_factory=NodeSortSpec)
    usergroupresolver: ResolverSpec = field(default_factory=ResolverSpec)
    line: int = 0


@dataclass(slots=True)
class SchedulerConfig:
    """A whole file."""

    partitions: list[PartitionSpec] = field(default_factory=list)
    checksum: str = ""
    line: int = 0


GO_NAMES: dict[type, str] = {
    SchedulerConfig: "configs.SchedulerConfig",
    PartitionSpec: "configs.PartitionConfig",
    QueueSpec: "configs.QueueConfig",
    ResourcesSpec: "configs.Resources",
    ChildTemplateSpec: "configs.ChildTemplate",
    LimitSpec: "configs.Limit",
    FilterSpec: "configs.Filter",
    PlacementRuleSpec: "configs.PlacementRule",
    PreemptionSpec: "configs.PartitionPreemptionConfig",
    NodeSortSpec: "configs.NodeSortingPolicy",
    ResolverSpec: "configs.UserGroupResolver",
}
