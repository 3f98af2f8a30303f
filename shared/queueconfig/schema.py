"""The format of queues.yaml as records, whose fields are named like its keys.

``line`` is where a record starts in its file. Quantities stay texts until they are checked, so that
the order of the checks is YuniKorn's.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ResourcesSpec:
    """Guaranteed and max resources of a queue; None if not set."""

    guaranteed: dict[str, str] | None = None
    max: dict[str, str] | None = None
    line: int = 0


@dataclass(slots=True)
class ChildTemplateSpec:
    """The initial settings of dynamic leaf queues below a queue."""

    maxapplications: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    line: int = 0


@dataclass(slots=True)
class LimitSpec:
    """A limit of users or groups in a queue."""

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
    """A queue and its children."""

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
    """The partition's preemption switches; None is the default (on, and off for quotas)."""

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
    """How a user's groups are resolved."""

    type: str = ""
    line: int = 0


@dataclass(slots=True)
class PartitionSpec:
    """A partition; ``queues`` None if not set."""

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
