"""The scheduler interface: messages between a resource manager and the scheduler.

Source: docs/rules/interface.md (si.proto). Requests and responses carry lists; the sections of a
message are applied in the order in which they are listed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shared.messages.constraints import NO_CONSTRAINTS, Constraints, Taint
from shared.messages.records import record
from shared.model.gpus import Devices

DEFAULT_PLACEHOLDER_TIMEOUT_MS = 15 * 60 * 1000  # docs/rules/gangs.md#the-course


class TerminationType(StrEnum):
    """Why an allocation or an ask ends; both directions use the same words."""

    @property
    def is_schedulers(self) -> bool:
        """Whether only the scheduler initiates it, so that from a resource manager it confirms."""
        return self in (
            TerminationType.TIMEOUT,
            TerminationType.PREEMPTED_BY_SCHEDULER,
            TerminationType.PLACEHOLDER_REPLACED,
        )

    UNKNOWN_TERMINATION_TYPE = "UNKNOWN_TERMINATION_TYPE"
    STOPPED_BY_RM = "STOPPED_BY_RM"
    TIMEOUT = "TIMEOUT"
    PREEMPTED_BY_SCHEDULER = "PREEMPTED_BY_SCHEDULER"
    PLACEHOLDER_REPLACED = "PLACEHOLDER_REPLACED"
    SCHEDULING_FAILED_ON_RM = "SCHEDULING_FAILED_ON_RM"  # could not be bound: it waits again


class NodeAction(StrEnum):
    """What happened to a node; DECOMISSION is the interface's own spelling."""

    CREATE = "CREATE"
    CREATE_DRAIN = "CREATE_DRAIN"
    UPDATE = "UPDATE"
    DRAIN_NODE = "DRAIN_NODE"
    DRAIN_TO_SCHEDULABLE = "DRAIN_TO_SCHEDULABLE"
    DECOMISSION = "DECOMISSION"


CREATES = (NodeAction.CREATE, NodeAction.CREATE_DRAIN)  # news that is answered


class GangSchedulingStyle(StrEnum):
    """The effect of a placeholder timeout: Soft continues without gang scheduling, Hard fails."""

    SOFT = "Soft"
    HARD = "Hard"


@dataclass(frozen=True, slots=True)
class UserGroupInformation:
    """Who submitted an application."""

    user: str = "nobody"
    groups: tuple[str, ...] = ()

    @property
    def resolved_groups(self) -> tuple[str, ...]:
        """The groups; if there are none, one with the user's own name.

        Source: docs/rules/quotas.md.
        """
        return self.groups or ((self.user,) if self.user else ())


@record
class NodeInfo:
    """News of one node. ``schedulable_resource`` is what pods may use in all.

    ``volume_limits`` is how many volumes of each driver may be attached; other drivers are
    unlimited.
    """

    node_id: str
    action: NodeAction
    schedulable_resource: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    volume_limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slice:
    """Equal parts of a gang, ``size`` pods each, every one of them in one domain of a level."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """How close to each other pods of a gang must be, or should be.

    ``levels`` are the node labels that define domains, from the widest to the narrowest; if empty,
    those of the scheduler's settings. All pods go into one domain of level ``required`` ("":
    anywhere), and into one of level ``preferred`` if it has room. Of ``slices`` each must be in one
    domain of its own level, the coarsest first; each size divides the previous one.
    ``is_unconstrained``: anywhere, small gaps first. ``is_balanced``: as evenly as possible over
    the domains below the preferred one. ``wrong`` is why it cannot be satisfied ("": it can): the
    gang waits, with this reason.
    """

    levels: tuple[str, ...] = ()
    required: str = ""
    preferred: str = ""
    slices: tuple[Slice, ...] = ()
    is_unconstrained: bool = False
    is_balanced: bool = False
    wrong: str = ""


NO_TOPOLOGY = TopologyConstraint()


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a gang: a task group with a minimum, or a group of other parts.

    ``parent`` names the containing group ("": the gang itself). ``minimum`` is how many of its pods
    must run together, or for a group, how many of its parts (negative: all of them).
    ``goes_whole``: preemption evicts all of it or nothing.
    """

    name: str
    parent: str = ""
    minimum: int = 1
    is_group: bool = False
    topology: TopologyConstraint = NO_TOPOLOGY
    goes_whole: bool = False


@dataclass(frozen=True, slots=True)
class GangSettings:
    """Settings of a gang that starts without placeholders, or has more than they express.

    ``subgroups`` is its tree, a parent before its parts; a pod's task group names its part. (): the
    gang consists of its placeholders only. Of the outermost parts ``minimum`` must run (negative:
    all); ``topology`` applies to the whole gang. ``preemption_delay_ns`` is how long after its
    submission or last eviction no pods are evicted for it. ``staleness_grace_ns`` is how long it
    may run below its minimum: negative for ever, None as in the scheduler's settings. ``layout`` is
    the tree of a gang with placeholders, for the topology of its parts; it applies to its pods even
    after the gang was given up.
    ``starts_whole``: its placeholders start only with places for all, whatever ``gangAdmission``
    is.
    ``keeps_minimum``: only pods above its minimum may be evicted.
    ``goes_whole``: a gang with ``subgroups`` is evicted only as a whole.
    """

    subgroups: tuple[SubGroup, ...] = ()
    minimum: int = -1
    topology: TopologyConstraint = NO_TOPOLOGY
    preemption_delay_ns: int = 0
    staleness_grace_ns: int | None = None
    layout: tuple[SubGroup, ...] = ()
    starts_whole: bool = False
    keeps_minimum: bool = False
    goes_whole: bool = False


NO_GANG_SETTINGS = GangSettings()


@dataclass(frozen=True, slots=True)
class AddApplicationRequest:
    """A new application; ``placeholder_ask`` is the sum over all members of all task groups.

    ``gang`` are the settings of a gang besides its placeholders, or without any.

    ``placeholder_timeout_milli_seconds`` is how long its placeholders may wait for each other,
    ``execution_timeout_milli_seconds`` how long the application may run (0: for ever). If a
    resource manager sets only the latter, it means the former, as YuniKorn's does
    (docs/rules/gangs.md#the-course).

    The following fields are for recovery. ``reservation_start_ns`` is when the first placeholder
    was allocated, or the nodes first refused one, so that the placeholder timeout keeps its start
    (0: not yet). ``execution_start_ns`` is when the application first ran. ``state`` is the state
    last sent to the resource manager ("": none), and ``state_since_ns`` its time.

    ``submission`` distinguishes two submissions of one id. Messages about the whole application
    repeat it, so that a message about an earlier submission is not applied to a later one (0: not
    stated).
    """

    application_id: str
    queue_name: str = ""
    partition_name: str = "default"
    ugi: UserGroupInformation = field(default_factory=UserGroupInformation)
    tags: Mapping[str, str] = field(default_factory=dict)
    execution_timeout_milli_seconds: int = 0
    placeholder_timeout_milli_seconds: int = 0
    placeholder_ask: Mapping[str, int] = field(default_factory=dict)
    gang_scheduling_style: str = GangSchedulingStyle.SOFT
    reservation_start_ns: int = 0
    submission_time_ns: int = 0
    state: str = ""
    state_since_ns: int = 0
    execution_start_ns: int = 0
    submission: int = 0
    gang: GangSettings = NO_GANG_SETTINGS


@dataclass(frozen=True, slots=True)
class RemoveApplicationRequest:
    """The resource manager has done with an application; what it still holds is released."""

    application_id: str
    partition_name: str = "default"


@record
class AllocationAsk:
    """A request for one allocation. ``create_time_ns`` orders the asks of one priority."""

    allocation_key: str
    application_id: str
    resource_per_alloc: Mapping[str, int]
    partition_name: str = "default"
    priority: int = 0
    task_group_name: str = ""
    placeholder: bool = False
    originator: bool = False
    exec_timeout_milli_seconds: int = 0
    create_time_ns: int = 0
    allocation_tags: Mapping[str, str] = field(default_factory=dict)
    constraints: Constraints = NO_CONSTRAINTS
    allow_preempt_self: bool = True
    allow_preempt_other: bool = True


@record
class Allocation:
    """An ask with a node. From the resource manager: one that exists already, or was resized.

    With the tag ``foreign`` (``default`` or ``static``) and no application it is a pod of another
    scheduler.

    ``released``: its release is decided and not confirmed; ``releases`` names the placeholders that
    it replaces. ``allocated_ns`` is when it was bound (0: just now), the start of its execution
    timeout. ``devices`` are its GPU devices on the node, by index, with thousandths of each; from a
    resource manager those that were assigned ((): unknown).
    """

    allocation_key: str
    application_id: str
    node_id: str
    resource_per_alloc: Mapping[str, int]
    partition_name: str = "default"
    priority: int = 0
    task_group_name: str = ""
    placeholder: bool = False
    originator: bool = False
    create_time_ns: int = 0
    allocation_tags: Mapping[str, str] = field(default_factory=dict)
    constraints: Constraints = NO_CONSTRAINTS
    allow_preempt_self: bool = True
    allow_preempt_other: bool = True
    released: bool = False
    releases: tuple[str, ...] = ()
    exec_timeout_milli_seconds: int = 0
    allocated_ns: int = 0
    devices: Devices = ()


class DisruptionState(StrEnum):
    """Whether an allocation may be evicted, as the disruption budgets of its pods have it."""

    FREE = "free"  # it is under no budget
    BUDGETED = "budgeted"  # it is, and may go now
    BARRED = "barred"  # it may not go now


@dataclass(frozen=True, slots=True)
class Disruption:
    """Whether an allocation may be evicted now; FREE for allocations not listed.

    ``is_refused``: its eviction was decided and refused. ``budget`` is its disruption budget ("":
    none, or several), of whose pods ``allowed`` may be evicted now; the latest value applies to all
    of them.
    """

    allocation_key: str
    application_id: str
    state: DisruptionState
    is_refused: bool = False
    budget: str = ""
    allowed: int = 0


@record
class AllocationRelease:
    """An allocation ends. The side that did not start it confirms with the same type.

    Without an application it is a foreign pod's, and is not confirmed.

    ``has_succeeded``: its pod succeeded, so a gang that shrinks is finishing.
    ``has_failed``: its pod failed, so its replacement avoids the node.
    ``is_final``: its application was deleted, and no pod replaces it.
    """

    application_id: str
    allocation_key: str
    termination_type: TerminationType
    partition_name: str = "default"
    message: str = ""
    has_succeeded: bool = False
    is_final: bool = False
    has_failed: bool = False


@record
class AllocationAskRelease:
    """An ask that was not allocated ends; an empty key is every ask of the application.

    The other side confirms it with the same type. The scheduler initiates TIMEOUT,
    PREEMPTED_BY_SCHEDULER and PLACEHOLDER_REPLACED. Any other type is initiated by the resource
    manager, and is confirmed even if the ask is unknown. A confirmation is not confirmed.
    """

    application_id: str
    allocation_key: str
    termination_type: TerminationType
    partition_name: str = "default"
    message: str = ""


@dataclass(frozen=True, slots=True)
class GangGivenUp:
    """The resource manager reserves a gang no more: its real asks are placed one by one.

    Its placeholder asks end, unconfirmed. Repeating it changes nothing.
    """

    application_id: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class GangChanged:
    """A gang that starts without placeholders has other minimums, or another grace, from now on.

    Its parts and levels must be unchanged; otherwise the message changes nothing.
    """

    application_id: str
    gang: GangSettings


@dataclass(frozen=True, slots=True)
class ApplicationNote:
    """What the users of an application should know, that the resource manager has found out.

    ``allocation_key`` is the pod concerned. Repeating it changes nothing.
    """

    application_id: str
    reason: str
    message: str
    allocation_key: str = ""


@record
class UsageRecord:
    """What a queue, or one user in it, has used over time up to a moment; the latest holds.

    ``amounts`` are decimal texts of amount x ns by type, decayed to ``at_ns`` with the half-life;
    they may exceed an int64. ``user`` "" is the queue itself; with ``queue`` "" as well, it is the
    cluster's capacity over time.
    """

    queue: str
    user: str
    at_ns: int
    amounts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Pods that wait for one thing, a Reason, before they are asked for.

    ``pods`` is their number; ``keys`` and ``names`` list the first of them, in the same order.
    ``since_ns`` is when the first began to wait.
    """

    reason: str
    message: str
    pods: int
    since_ns: int = 0
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodsHeld:
    """The pods of an application that the resource manager holds back, without an ask yet.

    The complete current list, which replaces the previous one; (): none is held back. The scheduler
    may not know the application yet, and only passes the list on to users.
    """

    application_id: str
    held: tuple[HeldFor, ...] = ()


@record
class UpdateRequest:
    """Resource manager to scheduler, applied section by section in this order."""

    rm_id: str
    nodes: tuple[NodeInfo, ...] = ()
    new_applications: tuple[AddApplicationRequest, ...] = ()
    allocations: Sequence[Allocation] = ()
    disruptions: tuple[Disruption, ...] = ()
    gangs_given_up: tuple[GangGivenUp, ...] = ()
    asks: Sequence[AllocationAsk] = ()
    ask_releases: Sequence[AllocationAskRelease] = ()
    releases: Sequence[AllocationRelease] = ()
    remove_applications: tuple[RemoveApplicationRequest, ...] = ()
    notes: tuple[ApplicationNote, ...] = ()
    pods_held: tuple[PodsHeld, ...] = ()
    usage: tuple[UsageRecord, ...] = ()  # as last reported; only in a recovery
    gangs_changed: tuple[GangChanged, ...] = ()


@record
class AcceptedNode:
    """A node is registered."""

    node_id: str


@dataclass(frozen=True, slots=True)
class RejectedNode:
    """A node is refused, and why."""

    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class AcceptedApplication:
    """An application is in its queue."""

    application_id: str
    queue_name: str = ""
    submission: int = 0


@dataclass(frozen=True, slots=True)
class RejectedApplication:
    """An application is refused, and why."""

    application_id: str
    reason: str
    submission: int = 0


@dataclass(frozen=True, slots=True)
class UpdatedApplication:
    """An application moved to a state; ``message`` is the event or the reason."""

    application_id: str
    state: str
    state_transition_timestamp_ns: int
    message: str = ""
    submission: int = 0


@dataclass(frozen=True, slots=True)
class RejectedAllocation:
    """An ask or an allocation is refused, and why."""

    allocation_key: str
    application_id: str
    reason: str


class SchedulingState(StrEnum):
    """How an ask that is not allocated stands with the scheduler."""

    SKIPPED = "SKIPPED"
    SCHEDULED = "SCHEDULED"
    RESERVED = "RESERVED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ContainerSchedulingState:
    """The scheduling state of an ask, and its reason.

    FAILED: it fits its quota but no node; more nodes would help. SKIPPED: the reason is for its
    users, one of the request events of docs/rules/events.md#what-is-recorded. RESERVED: victims
    are evicted for it on ``node_id``, which is reserved for it meanwhile ("": no longer).
    """

    application_id: str
    allocation_key: str
    state: SchedulingState
    reason: str = ""
    node_id: str = ""


@record
class UpdateResponse:
    """Scheduler to resource manager, applied section by section in this order."""

    accepted_nodes: tuple[AcceptedNode, ...] = ()
    rejected_nodes: tuple[RejectedNode, ...] = ()
    accepted_applications: tuple[AcceptedApplication, ...] = ()
    rejected_applications: tuple[RejectedApplication, ...] = ()
    rejected_allocations: Sequence[RejectedAllocation] = ()
    new_allocations: Sequence[Allocation] = ()
    released_asks: Sequence[AllocationAskRelease] = ()
    released_allocations: Sequence[AllocationRelease] = ()
    updated_applications: tuple[UpdatedApplication, ...] = ()
    scheduling_states: Sequence[ContainerSchedulingState] = ()
    usage: tuple[UsageRecord, ...] = ()  # to be kept for the next recovery


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """A queue configuration (queues.yaml as text) and Muster's own scheduler settings."""

    config: str
    scheduler: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """Whether a queue configuration is in use now; a refused one has changed nothing.

    ``checksum`` is that of the checked text; ``partitions`` are the partitions of an accepted one,
    in order ((): only the default one).
    """

    accepted: bool
    checksum: str
    error: str = ""
    partitions: tuple[str, ...] = ()
