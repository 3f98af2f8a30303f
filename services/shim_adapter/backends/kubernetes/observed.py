"""What the cluster learns: from the reflectors, and from the operations that were carried out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.shim_adapter.backends.kubernetes.budgets import Budget
from services.shim_adapter.backends.kubernetes.claim_objects import Claim as DeviceClaim
from services.shim_adapter.backends.kubernetes.claim_objects import DeviceClass, Slice, TaintRule
from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.volumes import Claim, Name, StorageClass, Volume
from services.shim_adapter.records import NodeRecord, PodRecord
from services.shim_adapter.translation.workloads.replicas import Gang


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod was added or has changed."""

    view: PodView


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod is no more."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node was added or has changed; with ``is_gone`` it was removed."""

    record: NodeRecord
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """A namespace's tags for the queues of its applications."""

    name: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A claim has changed; None: it has gone."""

    name: Name
    claim: Claim | None


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A volume has changed; None: it has gone."""

    name: str
    volume: Volume | None


@dataclass(frozen=True, slots=True)
class StorageClassSeen:
    """A storage class has changed; None: it has gone."""

    name: str
    made_by: StorageClass | None


@dataclass(frozen=True, slots=True)
class CsiNodeSeen:
    """How many volumes a node takes, by driver, has changed."""

    name: str
    limits: dict[str, int]


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A disruption budget has changed; None: it has gone."""

    name: Name
    budget: Budget | None


@dataclass(frozen=True, slots=True)
class PodGroupSeen:
    """A PodGroup, or a Workload, has changed: its gangs by part, or why it has none that holds.

    None: it has gone. Its name is kind, namespace and name. ``status`` is its own, as it stands.
    """

    name: tuple[str, str, str]
    gangs: Mapping[str, Gang] | str | None
    uid: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceSeen:
    """A ResourceSlice has changed; None: it has gone. A text: what of it does not hold."""

    name: str
    found: Slice | str | None


@dataclass(frozen=True, slots=True)
class DeviceClassSeen:
    """A DeviceClass has changed; None: it has gone. A text: what of it does not hold."""

    name: str
    found: DeviceClass | str | None


@dataclass(frozen=True, slots=True)
class DeviceClaimSeen:
    """A ResourceClaim has changed; None: it has gone."""

    name: Name
    claim: DeviceClaim | None


@dataclass(frozen=True, slots=True)
class TaintRuleSeen:
    """A DeviceTaintRule has changed; None: it has gone, or has no effect."""

    name: str
    rule: TaintRule | None


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A Topology, or a HyperNode, has changed; None: it has gone."""

    kind: str
    name: str
    body: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A pod was not evicted; with ``is_over`` one that was barred may be asked again.

    ``is_barred``: the API server refused; else it had no answer, and the same may be chosen again.
    """

    uid: str
    reason: str
    is_over: bool = False
    is_barred: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod was bound to the node that was decided."""

    uid: str


@dataclass(frozen=True, slots=True)
class NotBound:
    """A pod could not be bound."""

    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """What is to be done about a pod is refused for want of a right, for longer than a restart.

    ``why`` says which right it is; "": it is done now.
    """

    pod: PodRecord
    why: str


@dataclass(frozen=True, slots=True)
class NotCreated:
    """A placeholder could not be created."""

    application_id: str
    reason: str


Observed = (
    PodSeen
    | PodDeleted
    | NodeSeen
    | NamespaceSeen
    | ClaimSeen
    | VolumeSeen
    | StorageClassSeen
    | CsiNodeSeen
    | BudgetSeen
    | PodGroupSeen
    | TopologySeen
    | SliceSeen
    | DeviceClassSeen
    | DeviceClaimSeen
    | TaintRuleSeen
    | EvictionRefused
    | Bound
    | NotBound
    | NotAllowed
    | NotCreated
)
