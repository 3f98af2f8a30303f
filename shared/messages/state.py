"""State events: the core publishes its state, so that the API answers requests without it.

A StateDelta carries the new values of everything that changed. Applying all of them in order of
``seq`` (in the envelope) yields the core's current state. ``reset`` starts over: a snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.messages.interface import PodsHeld
from shared.messages.records import record
from shared.model.gpus import Devices
from shared.model.reasons import Fact, NodeEvidence, Shortage
from shared.model.sentences import ONE_OF_ITS, fact_text, plain_text, text_of


@dataclass(frozen=True, slots=True)
class RuleState:
    """One placement rule with its filter."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    filter_type: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    user_pattern: str = ""
    group_pattern: str = ""


@dataclass(frozen=True, slots=True)
class PlacementRuleState:
    """A placement rule and, after it, the rules that name the queues above."""

    links: tuple[RuleState, ...]


@record
class PartitionState:
    """The partition itself."""

    name: str
    rm_id: str
    state: str
    capacity: Mapping[str, int]
    allocated: Mapping[str, int]
    node_sort_policy: str
    resource_weights: Mapping[str, float]
    preemption_enabled: bool
    config_checksum: str
    config_error: str
    state_time_ns: int
    config_warnings: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    quota_preemption_enabled: bool = False
    eviction_cycles: int = 0  # pairs of applications that evicted each other by turns
    placement_rules: tuple["PlacementRuleState", ...] = ()
    started_ns: int = 0  # when its core began
    failed_nodes: int = 0  # rejected nodes since then
    rejected_asks: int = 0
    finds_pods: bool = False  # its resource manager answers FindPod


@dataclass(frozen=True, slots=True)
class ConfigurationState:
    """The text of the queue configuration that holds, and what was configured beside it."""

    text: str
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why asks are not allocated: those of one shape in a queue, or some of an application.

    ``asks`` is a shape's name in a queue. In an application it is ``placeholder``, ``real``, a task
    group's name, or a shape's if only that is held back. An application's own reason precedes its
    queue's. ``message`` is set if there are no values: the text about held-back pods, or of a core
    of the previous version.
    """

    asks: str
    reason: str
    message: str
    since_ns: int
    nodes: NodeEvidence | None = None
    limit: Shortage | None = None
    fact: Fact | None = None

    @property
    def text(self) -> str:
        """The sentence for an application, without its name."""
        return self.text_for(ONE_OF_ITS)

    def text_for(self, subject: str) -> str:
        """Return the sentence about ``subject``, which needs something."""
        return self.message or text_of(self, subject)


@dataclass(frozen=True, slots=True)
class Note:
    """A note for the application's users, and its subject."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TemplateState:
    """What a dynamic leaf below a queue starts with."""

    max_resource: Mapping[str, int] | None
    guaranteed_resource: Mapping[str, int] | None
    max_applications: int
    properties: Mapping[str, str]


@record
class QueueState:
    """A queue; ``max_resource`` is its own configured limit, None where it has none.

    ``waiting`` is set by cores of the previous version, completely with each change; with
    ``tells_refusals``, refusals are in their own section, one by one. ``used_ppm`` is the usage
    over time, in millionths of the cluster's. Under the policy kai, ``weight_ppm`` is the weight
    for sharing capacity over the guarantees of its level, and ``fair_share`` the result.
    """

    path: str
    parent: str
    is_leaf: bool
    is_managed: bool
    status: str
    max_resource: Mapping[str, int] | None
    guaranteed_resource: Mapping[str, int] | None
    allocated: Mapping[str, int]
    pending: Mapping[str, int]
    properties: Mapping[str, str]
    max_running_apps: int
    running_apps: int
    allocating_accepted_apps: tuple[str, ...]
    sort_policy: str
    priority_sorting: bool
    current_priority: int
    waiting: tuple[Waiting, ...] = ()
    removed: bool = False
    preempting: Mapping[str, int] = field(default_factory=dict)
    template: "TemplateState | None" = None
    priority_fence: bool = False
    priority_offset: int = 0
    preemption_policy: str = "default"
    preemption_delay_ns: int = 0
    quota_preemption_delay_ns: int = 0
    tells_refusals: bool = False
    used_ppm: Mapping[str, int] = field(default_factory=dict)
    weight_ppm: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] | None = None


@record
class RefusalState:
    """Why the asks of one shape in a queue are not allocated; ``why`` is None: they are no more.

    ``asks`` is the shape's name, with its user where a limit refused.
    """

    path: str
    asks: str
    why: Waiting | None = None


@record
class NodeState:
    """A node's sums; its allocations are published one by one."""

    node_id: str
    attributes: Mapping[str, str]
    capacity: Mapping[str, int]
    allocated: Mapping[str, int]
    occupied: Mapping[str, int]
    available: Mapping[str, int]
    schedulable: bool
    removed: bool = False
    reservations: tuple[str, ...] = ()  # the keys of the asks, the first served first
    devices: tuple[int, ...] = ()  # what each GPU device has free, in thousandths
    domain: tuple[str, ...] = ()  # its path in the cluster's topology; (): it is in none


@dataclass(frozen=True, slots=True)
class PlaceholderCount:
    """How far the placeholders of one task group are (docs/rules/gangs.md#the-course)."""

    task_group_name: str
    count: int
    replaced: int
    timedout: int
    allocated: int
    min_resource: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StateChange:
    """One entry of an application's state log; ``message`` is the reason, if there is one."""

    time_ns: int
    state: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class UsedResource:
    """Amounts times seconds of allocations that have ended, on nodes of one type.

    ``kind`` is the REST answer's own name for what became of them.
    """

    kind: str
    instance_type: str
    resource: Mapping[str, int]


@record
class ApplicationSummary:
    """An application's own values; its asks and allocations are published one by one.

    ``submission`` distinguishes two submissions of one application id. ``group`` is the user's
    group whose limits apply, "" for none.
    """

    application_id: str
    submission: str
    queue_name: str
    state: str
    user: str
    groups: tuple[str, ...]
    submission_time_ns: int
    start_time_ns: int
    finished_time_ns: int
    allocated: Mapping[str, int]
    allocated_placeholder: Mapping[str, int]
    max_allocated: Mapping[str, int]
    pending: Mapping[str, int]
    max_request_priority: int
    rejected_message: str
    message: str
    tags: Mapping[str, str] = field(default_factory=dict)
    state_log: tuple[StateChange, ...] = ()
    placeholders: tuple[PlaceholderCount, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    reservations: tuple[str, ...] = ()  # "node/ask key"
    backoff_until_ns: int = 0
    history: tuple[UsedResource, ...] = ()
    notes: tuple[str, ...] = ()  # of a core of the previous version: "reason: text"
    group: str = ""
    may_be_passed_until_ns: int = 0  # by later applications of its queue; 0: not waiting
    began_ns: int = 0  # since when it has continuously had allocations; 0: none
    noted: tuple[Note, ...] = ()  # notes about its pods
    fact: Fact | None = None  # the numbers of the message, if it has any

    @property
    def note_lines(self) -> list[str]:
        """The notes for the application's users, one line each."""
        return [f"{note.reason}: {note.message}" for note in self.noted]

    @property
    def text(self) -> str:
        """Why the application was rejected, how it ended, or its notes."""
        message = fact_text(self.fact) if self.fact is not None else ""
        said = self.rejected_message or self.message or "; ".join(self.note_lines)
        return message or plain_text(said)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One text of an ask's allocation log, its count, and its last time."""

    message: str
    last_occurrence_ns: int
    count: int


@record
class AskState:
    """An ask that is not allocated; ``removed`` when it ended or was allocated.

    ``why`` it ended is a TerminationType, "" if it was allocated. ``triggered_scale_up``: it was
    reported to the resource manager as an ask that more nodes would help.
    """

    allocation_key: str
    application_id: str
    resource: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    task_group_name: str = ""
    placeholder: bool = False
    originator: bool = False
    create_time_ns: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    shape: str = ""
    removed: bool = False
    required_node: str = ""
    log: tuple[LogEntry, ...] = ()  # refusals, the latest last
    why: str = ""
    triggered_preemption: bool = False
    triggered_scale_up: bool = False


@record
class AllocationState:
    """An allocation, placeholders included; ``removed`` when it ended.

    A foreign pod's has no application. ``placeholder_time_ns`` is when the placeholder it replaced
    (``placeholder_used``) was created. ``why`` it ended, or will end once confirmed (``released``),
    is a TerminationType; UNKNOWN_TERMINATION_TYPE means that its node was removed
    (docs/rules/events.md#what-is-recorded).
    """

    allocation_key: str
    application_id: str
    node_id: str
    resource: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    task_group_name: str = ""
    placeholder: bool = False
    placeholder_used: bool = False
    placeholder_time_ns: int = 0
    originator: bool = False
    request_time_ns: int = 0
    allocation_time_ns: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    released: bool = False
    removed: bool = False
    why: str = ""
    devices: Devices = ()
    stuck_since_ns: int = 0  # since when it is being released, if it should have gone by now

    @property
    def is_foreign(self) -> bool:
        """Whether another scheduler placed it."""
        return not self.application_id


@record
class UsageState:
    """What a user or group uses in one queue, and what it may; ``removed``: nothing any more."""

    path: str
    usage: Mapping[str, int]
    max_resource: Mapping[str, int] | None = None
    max_applications: int = 0
    removed: bool = False
    used_ppm: Mapping[str, int] = field(default_factory=dict)  # over time, as of a queue


@record
class UserState:
    """A user or a group, and what it uses by queue. An application's user is in its own state.

    ``is_partial``: ``queues`` are those that changed; otherwise all that it uses something of.
    """

    name: str
    is_group: bool
    queues: tuple[UsageState, ...] = ()
    removed: bool = False
    is_partial: bool = False


@record
class EventState:
    """Something that happened, with YuniKorn's numbers (docs/rules/events.md#numbers)."""

    type: int
    object_id: str
    message: str
    time_ns: int
    change_type: int = 0
    change_detail: int = 0
    reference_id: str = ""
    resource: Mapping[str, int] = field(default_factory=dict)


@record
class EvictionState:
    """A pod was evicted: its application, node, policy and preemptor ("": none).

    ``message`` is the message it was sent.
    """

    time_ns: int
    allocation_key: str
    application_id: str
    node_id: str
    law: str
    message: str
    pod_name: str = ""
    winner: str = ""
    winning_ask: str = ""
    queue_name: str = ""
    resource: Mapping[str, int] = field(default_factory=dict)


@record
class StateDelta:
    """What changed, applied section by section in this order, and item by item.

    Removals precede additions: a node or queue that was removed and added again under its name is
    in its section twice. Of two submissions of one application the older comes first.
    ``more``: further messages of the same ``seq`` follow, because it was split; ``part`` numbers
    them from 0.
    """

    reset: bool = False
    more: bool = False
    part: int = 0
    time_ns: int = 0
    partitions: tuple[PartitionState, ...] = ()
    configurations: tuple[ConfigurationState, ...] = ()
    queues: tuple[QueueState, ...] = ()
    refusals: tuple[RefusalState, ...] = ()
    nodes: tuple[NodeState, ...] = ()
    applications: tuple[ApplicationSummary, ...] = ()
    asks: Sequence[AskState] = ()
    allocations: Sequence[AllocationState] = ()
    users: tuple[UserState, ...] = ()
    events: tuple[EventState, ...] = ()
    evictions: tuple[EvictionState, ...] = ()
    pods_held: tuple[PodsHeld, ...] = ()  # those of an application; one that has none was known


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """An API replica has a gap, or nothing at all, and asks for a snapshot."""

    instance: str
