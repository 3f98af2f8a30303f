"""What the resource manager knows: nodes, pods, applications. The truth that recovery starts from.

Mutable on purpose: one owner (the simulated cluster, or a watch on a real one), and the mirror,
which reads them and writes the fields under "ours" alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared.messages.commands import CommandResult, PodSpec, SubmitResult, TaskGroupSpec
from shared.messages.constraints import Taint
from shared.messages.interface import (
    DEFAULT_PLACEHOLDER_TIMEOUT_MS,
    NO_GANG_SETTINGS,
    DisruptionState,
    GangSettings,
    UsageRecord,
)
from shared.model.gpus import Devices
from shared.model.names import DEFAULT_PARTITION, NODE_PARTITION
from shared.model.units import MAX_DURATION_NS, NANOS_PER_MILLI, timeout_ms


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """What a partition's core reported last of a queue's, or a user's, usage over time."""

    partition: str
    record: UsageRecord


class PodPhase(StrEnum):
    """A pod's phase, as Kubernetes names them."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDED_PHASES = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class ApplicationPhase(StrEnum):
    """What the mirror does for an application.

    Source: the shim's own states, docs/rules/gangs.md#the-course.
    """

    NEW = "New"
    RESERVING = "Reserving"
    RUNNING = "Running"
    RESUMING = "Resuming"
    FAILING = "Failing"
    ENDING = "Ending"  # its pods were deleted before they were asked for; what it made is going
    REJECTED = "Rejected"
    ENDED = "Ended"


LIVE_PHASES = (
    ApplicationPhase.NEW,
    ApplicationPhase.RESERVING,
    ApplicationPhase.RUNNING,
    ApplicationPhase.RESUMING,
    ApplicationPhase.FAILING,
    ApplicationPhase.ENDING,
)
BEFORE_ITS_PODS = (
    ApplicationPhase.NEW,
    ApplicationPhase.RESERVING,
    ApplicationPhase.RESUMING,
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A queue configuration on its way to the core. ``asker`` "": it was found in a file."""

    message_id: str
    config: str
    settings: Mapping[str, str] = field(default_factory=dict)
    asker: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command was answered, and to which sender; ``asker`` "": none waited for it.

    ``checksum`` is that of the manifests that an idempotency key stands for.
    """

    asker: str
    result: CommandResult | None = None
    submitted: SubmitResult | None = None
    checksum: str = ""

    @property
    def message(self) -> CommandResult | SubmitResult | None:
        """Return the answer as it was sent."""
        return self.result or self.submitted

    @property
    def size(self) -> int:
        """Return how many things the answer names, and one for itself."""
        submitted = self.submitted
        return 1 + (len(submitted.accepted) + len(submitted.refused) if submitted else 0)


@dataclass(slots=True)
class NodeRecord:
    """A node of the cluster; ``is_cordoned``: new pods stay away.

    Its partition is the one its label named when it was added, and never changes.
    """

    name: str
    capacity: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_cordoned: bool = False
    partition: str = ""
    volume_limits: Mapping[str, int] = field(default_factory=dict)  # by driver
    annotations: Mapping[str, str] = field(default_factory=dict)  # those for Muster

    def __post_init__(self) -> None:
        self.partition = self.partition or self.labels.get(NODE_PARTITION) or DEFAULT_PARTITION


@dataclass(slots=True)
class PodRecord:
    """A pod. ``node`` "" is not bound; ``deletion_ns`` 0 is not being deleted.

    ``release`` is the termination type with which the core asked for its deletion, to be
    confirmed when it is gone ("": the deletion was not the core's wish). A pod with ``gates`` is
    not to be scheduled yet. ``devices`` are the GPU devices that it was given on its node.
    """

    uid: str
    spec: PodSpec
    created_ns: int
    sequence: int
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    is_ready: bool = False  # by its own word: it serves
    bound_ns: int = 0
    started_ns: int = 0
    deletion_ns: int = 0
    reason: str = ""
    message: str = ""
    gates: tuple[str, ...] = ()
    release: str = ""  # ours
    disruption: DisruptionState = DisruptionState.FREE
    budget: str = ""  # the only one that it is under, of whose pods so many are allowed to go
    allowed: int = 0
    devices: Devices = ()
    generation: int = 0  # of what it says, where that is counted

    @property
    def has_ended(self) -> bool:
        """Return whether the pod has run to its end."""
        return self.phase in ENDED_PHASES


@dataclass(slots=True)
class ApplicationRecord:
    """An application as the resource manager stores it, with the state of the mirror.

    ``execution_timeout_seconds`` is how long the application itself may run (0: for ever); a pod's
    own, and how long placeholders may wait, are other facts.

    One that ``is_announced`` was made by itself and waits for pods; any other ends with its pods.
    """

    application_id: str
    submission: int
    queue_name: str = ""
    namespace: str = "default"
    user: str = "nobody"
    groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    style: str = "Soft"
    placeholder_timeout_seconds: int = 0
    execution_timeout_seconds: int = 0
    task_groups: tuple[TaskGroupSpec, ...] = ()
    gang: GangSettings = NO_GANG_SETTINGS
    created_ns: int = 0
    priority: int = 0
    priority_class: str = ""
    is_announced: bool = False
    is_deleted: bool = False  # as a whole: no pod comes in place of one that ends
    partition: str = DEFAULT_PARTITION
    gang_annotations: Mapping[str, str] = field(default_factory=dict)
    phase: ApplicationPhase = ApplicationPhase.NEW  # ours, as are all below
    core_state: str = ""
    core_state_ns: int = 0
    reservation_start_ns: int = 0
    refused_ns: int = 0  # when the nodes first had no room for a placeholder of it
    execution_start_ns: int = 0
    is_gang_over: bool = False
    message: str = ""
    placeholders_made: int = 0
    placeholders_lost: int = 0  # while its gang reserved
    placeholders_refused: str = ""  # why one was, for which the gang was given up

    @property
    def is_live(self) -> bool:
        """Return whether the core is to know of the application."""
        return self.phase in LIVE_PHASES

    @property
    def may_reserve(self) -> bool:
        """Return whether its gang reserves, or will; a later placeholder is not needed.

        One may: it was on its way to the resource manager when another one was made in its place.
        """
        is_before = self.phase in (ApplicationPhase.NEW, ApplicationPhase.RESERVING)
        return is_before and not self.is_gang_over

    @property
    def placeholder_timeout_ms(self) -> int:
        """Return how long the placeholders may wait for each other, whatever was written down."""
        stated_ms = timeout_ms(self.placeholder_timeout_seconds * 1000)
        return min(stated_ms, MAX_DURATION_NS // NANOS_PER_MILLI) or DEFAULT_PLACEHOLDER_TIMEOUT_MS
