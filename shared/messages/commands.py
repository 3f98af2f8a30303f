"""Commands of users to the resource manager, sent by the API, and their answers.

Manifests are sent as JSON text. The shim adapter translates them, and returns every error with its
document and field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.messages.constraints import NO_CONSTRAINTS, Constraints, Taint
from shared.messages.interface import (
    NO_GANG_SETTINGS,
    NO_TOPOLOGY,
    GangSettings,
    TopologyConstraint,
)
from shared.messages.records import record
from shared.model.names import DEFAULT_PARTITION


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One document of a submitted file, as JSON text."""

    source: str
    index: int
    body: str


@dataclass(frozen=True, slots=True)
class SubmitManifests:
    """Create what the documents describe.

    ``run_ns`` is the run time of simulated pods that state none; -1: as configured.
    A repeated ``idempotency_key`` ("": none) returns the first answer, and creates nothing.
    """

    documents: tuple[ManifestDocument, ...] = ()
    run_ns: int = -1
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class DeleteManifests:
    """Delete the pods that the documents describe, as SubmitManifests would have made them.

    An application all of whose pods are among them is deleted with its placeholders.
    ``idempotency_key`` is as in SubmitManifests.
    """

    documents: tuple[ManifestDocument, ...] = ()
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class SubmittedObject:
    """A document was taken: what it is, and which application its pods belong to.

    ``pods`` is how many were created or deleted; ``warnings`` list settings without effect.
    """

    source: str
    index: int
    kind: str
    name: str
    application_id: str
    pods: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedDocument:
    """A document was refused: where, and why, in a sentence."""

    source: str
    index: int
    field_path: str
    message: str


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The answer to SubmitManifests and DeleteManifests."""

    accepted: tuple[SubmittedObject, ...] = ()
    refused: tuple[RefusedDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskGroupSpec:
    """A task group: ``min_member`` pods of ``min_resource`` each, reserved together.

    ``topology`` is how close to each other they must be; task groups with the same name in
    ``together`` are placed in one domain of the nodes ("": by itself).
    """

    name: str
    min_member: int
    min_resource: Mapping[str, int]
    constraints: Constraints = NO_CONSTRAINTS
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    topology: TopologyConstraint = NO_TOPOLOGY
    together: str = ""


@dataclass(frozen=True, slots=True)
class SubmitApplication:
    """Create an application before any of its pods; its placeholders are made at once."""

    application_id: str
    queue_name: str = ""
    namespace: str = "default"
    user: str = "nobody"
    groups: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    style: str = "Soft"
    placeholder_timeout_seconds: int = 0
    execution_timeout_seconds: int = 0
    task_groups: tuple[TaskGroupSpec, ...] = ()
    partition: str = DEFAULT_PARTITION


@record
class PodSpec:
    """A pod as the resource manager stores it. ``run_ns`` 0: it runs until it is deleted.

    ``stated_run_ns`` is its stated maximum run time (0: none), ``grace_seconds`` its termination
    grace period (0: not stated).
    ``foreign`` is ``default`` or ``static`` for a pod of another scheduler; it has no application.
    """

    name: str
    application_id: str
    resource: Mapping[str, int]
    namespace: str = "default"
    queue_name: str = ""
    user: str = "nobody"
    groups: tuple[str, ...] = ()
    task_group_name: str = ""
    placeholder: bool = False
    priority: int = 0
    run_ns: int = 0
    stated_run_ns: int = 0
    grace_seconds: int = 0
    constraints: Constraints = NO_CONSTRAINTS
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    task_groups: tuple[TaskGroupSpec, ...] = ()
    task_groups_error: str = ""
    gang: GangSettings = NO_GANG_SETTINGS  # of its application, if it is the first of it
    annotations_ignored: str = ""  # invalid annotations, and what is used instead
    style: str = "Soft"
    placeholder_timeout_seconds: int = 0
    execution_timeout_seconds: int = 0
    allow_preempt_self: bool = True
    allow_preempt_other: bool = True
    priority_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()  # of volumes
    foreign: str = ""
    partition: str = DEFAULT_PARTITION  # of its application, if it is the first of it


@dataclass(frozen=True, slots=True)
class SubmitPods:
    """Create pods that are already translated."""

    pods: tuple[PodSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceForeignPods:
    """Have another scheduler place pods on a node, or resize those that are there."""

    node: str
    pods: tuple[PodSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod by its name."""

    name: str
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete pods by name."""

    pods: tuple[PodName, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteApplication:
    """Delete an application and every pod it has."""

    application_id: str


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of the simulated cluster and what to do: add, update, drain, undrain, remove."""

    name: str
    action: str
    capacity: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeNodes:
    """Change the simulated cluster's nodes."""

    nodes: tuple[NodeSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldConfirmations:
    """Stop confirming releases, or let the held ones go."""

    held: bool


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer to a command: whether it was carried out, and the reason if not."""

    done: bool
    message: str = ""
