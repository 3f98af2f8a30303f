"""The mirror's calls to a resource manager, and the resource manager's reports to it."""

from dataclasses import dataclass

from services.shim_adapter.records import NodeRecord, PodRecord
from shared.messages.commands import PodSpec
from shared.messages.interface import GangSettings, PodsHeld
from shared.model.gpus import Devices

GANG_TIMED_OUT = "ResourceReservationTimeout"  # reason of a failed pod: its gang got no places


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a placeholder pod; its uid is derived, so that a repetition creates nothing.

    ``losses`` is about how often each placeholder of its gang was lost; the more, the later it is
    created.
    """

    uid: str
    spec: PodSpec
    losses: int = 0


@dataclass(frozen=True, slots=True)
class CancelCreates:
    """Stop creating placeholders for an application; those in transit are deleted when seen."""

    application_id: str


@dataclass(frozen=True, slots=True)
class BindPod:
    """Bind a pod to a node; ``devices`` are its assigned GPU devices there."""

    uid: str
    node: str
    devices: Devices = ()


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod; ``release`` is the termination type to confirm once it is gone."""

    uid: str
    release: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FailPod:
    """Set a pod that was never bound to Failed, with the reason that users see."""

    uid: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WriteEvent:
    """Write an event about a pod for its users; it may be dropped if there are too many.

    ``action`` "" is the reason.
    """

    uid: str
    reason: str
    message: str
    is_warning: bool = False
    action: str = ""


@dataclass(frozen=True, slots=True)
class MarkUnschedulable:
    """Set a pod's condition PodScheduled to False, Unschedulable: more nodes would help it."""

    uid: str
    message: str


@dataclass(frozen=True, slots=True)
class NominatePod:
    """Set the node on which victims are evicted for a pod; "" clears it."""

    uid: str
    node: str


CallAtPod = BindPod | DeletePod | FailPod | WriteEvent | MarkUnschedulable | NominatePod
Call = CreatePod | CancelCreates | CallAtPod


@dataclass(frozen=True, slots=True)
class NodeNews:
    """A node was added, updated, drained, undrained or removed (the ``action``)."""

    node: NodeRecord
    action: str


@dataclass(frozen=True, slots=True)
class PodAdded:
    """A pod exists."""

    pod: PodRecord


@dataclass(frozen=True, slots=True)
class PodNominated:
    """A pod of another scheduler waits for victims on a node; ``is_over``: it no longer does."""

    pod: PodRecord
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pod has been bound to its node."""

    pod: PodRecord


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod's size or its scheduling gates have changed."""

    pod: PodRecord


@dataclass(frozen=True, slots=True)
class PodEnded:
    """A pod succeeded or failed."""

    pod: PodRecord


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod was deleted."""

    pod: PodRecord


@dataclass(frozen=True, slots=True)
class BindRefused:
    """A pod could not be bound; it is pending, without a node."""

    pod: PodRecord
    reason: str


@dataclass(frozen=True, slots=True)
class PlaceholderFailed:
    """A placeholder could not be created: its application continues without gang scheduling."""

    application_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Disruptable:
    """Whether a pod may be evicted now; ``is_refused``: its eviction was refused."""

    pod: PodRecord
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class PodsHeldBack:
    """The held-back pods of an application changed; they are not in the world yet.

    ``partition`` is the one they name.
    """

    partition: str
    told: PodsHeld


@dataclass(frozen=True, slots=True)
class GangNews:
    """A gang without placeholders has new minimums."""

    application_id: str
    gang: GangSettings


News = (
    PlaceholderFailed
    | NodeNews
    | PodAdded
    | PodNominated
    | PodBound
    | PodChanged
    | PodEnded
    | PodGone
    | BindRefused
    | Disruptable
    | PodsHeldBack
    | GangNews
)
