"""Records of the resource manager: nodes, pods, applications. Recovery starts from them.

They are mutable and have one owner, the simulated cluster or the watches of a real one. The mirror
reads them, and writes only the fields marked "ours".
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
    """The last report of a partition's core about usage over time of a queue or user."""

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
    """The mirror's state of an application.

    Source: the shim's own states, docs/rules/gangs.md#the-course.
    """

    NEW = "New"
    RESERVING = "Reserving"
    RUNNING = "Running"
    RESUMING = "Resuming"
    FAILING = "Failing"
    ENDING = "Ending"  # its pods were deleted early; its placeholders are deleted
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
    """A queue configuration proposed to the core. ``asker`` "": it was found in a file."""

    message_id: str
    config: str
    settings: Mapping[str, str] = field(default_factory=dict)
    asker: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a command, and its sender; ``asker`` "": no client waits for it.

    ``checksum`` is that of the manifests with an idempotency key.
    """

    asker: str
    result: CommandResult | None = None
    submitted: SubmitResult | None = None
    checksum: str = ""

    @property
    def message(self) -> CommandResult | SubmitResult | None:
        """The answer as sent."""
        return self.result or self.submitted

    @property
    def size(self) -> int:
        """The number of objects in the answer, plus one."""
        submitted = self.submitted
        return 1 + (len(submitted.accepted) + len(submitted.refused) if submitted else 0)


@dataclass(slots=True)
class NodeRecord:
    """A node of the cluster; ``is_cordoned``: no new pods are placed on it.

    Its partition is the one that its label named when it was added, and never changes.
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
    """A pod. ``node`` "": not bound; ``deletion_ns`` 0: not being deleted.

    ``release`` is the termination type with which the core requested its deletion, to be confirmed
    when it is gone ("": the core did not). A pod with ``gates`` is not scheduled yet. ``devices``
    are its assigned GPU devices.
    """

    uid: str
    spec: PodSpec
    created_ns: int
    sequence: int
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    is_ready: bool = False  # condition Ready
    bound_ns: int = 0
    started_ns: int = 0
    deletion_ns: int = 0
    reason: str = ""
    message: str = ""
    gates: tuple[str, ...] = ()
    release: str = ""  # ours
    disruption: DisruptionState = DisruptionState.FREE
    budget: str = ""  # its only one, which allows ``allowed`` evictions
    allowed: int = 0
    devices: Devices = ()
    generation: int = 0  # metadata.generation, if the server has it

    @property
    def has_ended(self) -> bool:
        """Whether the pod succeeded or failed."""
        return self.phase in ENDED_PHASES


@dataclass(slots=True)
class ApplicationRecord:
    """An application as the resource manager stores it, with the state of the mirror.

    ``execution_timeout_seconds`` limits the application itself (0: unlimited); pods and
    placeholders have their own timeouts.

    One that ``is_announced`` was created before its pods; any other ends with its pods.
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
    is_deleted: bool = False  # as a whole: its pods are not replaced
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
    placeholders_refused: str = ""  # why one was, so that the gang was given up

    @property
    def is_live(self) -> bool:
        """Whether the core should have the application."""
        return self.phase in LIVE_PHASES

    @property
    def may_reserve(self) -> bool:
        """Whether its gang reserves, or will; otherwise its new placeholders are deleted.

        There may be some: a create may be in progress when another placeholder is made in its
        place.
        """
        is_before = self.phase in (ApplicationPhase.NEW, ApplicationPhase.RESERVING)
        return is_before and not self.is_gang_over

    @property
    def placeholder_timeout_ms(self) -> int:
        """How long placeholders may wait for each other, limited to the valid range."""
        stated_ms = timeout_ms(self.placeholder_timeout_seconds * 1000)
        return min(stated_ms, MAX_DURATION_NS // NANOS_PER_MILLI) or DEFAULT_PLACEHOLDER_TIMEOUT_MS
