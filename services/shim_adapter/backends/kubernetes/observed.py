"""Observations of the cluster: from reflectors, and from finished operations."""

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
    """A pod was deleted."""

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
    """A claim has changed; None: it was deleted."""

    name: Name
    claim: Claim | None


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A volume has changed; None: it was deleted."""

    name: str
    volume: Volume | None


@dataclass(frozen=True, slots=True)
class StorageClassSeen:
    """A storage class has changed; None: it was deleted."""

    name: str
    made_by: StorageClass | None


@dataclass(frozen=True, slots=True)
class CsiNodeSeen:
    """A node's limits of volumes, by driver, have changed."""

    name: str
    limits: dict[str, int]


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A disruption budget has changed; None: it was deleted."""

    name: Name
    budget: Budget | None


@dataclass(frozen=True, slots=True)
class PodGroupSeen:
    """A PodGroup or Workload has changed: its gangs by part, or an error; None: it was deleted.

    Its name is kind, namespace and name. ``status`` is its current status.
    """

    name: tuple[str, str, str]
    gangs: Mapping[str, Gang] | str | None
    uid: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceSeen:
    """A ResourceSlice has changed; None: it was deleted. A text is an error."""

    name: str
    found: Slice | str | None


@dataclass(frozen=True, slots=True)
class DeviceClassSeen:
    """A DeviceClass has changed; None: it was deleted. A text is an error."""

    name: str
    found: DeviceClass | str | None


@dataclass(frozen=True, slots=True)
class DeviceClaimSeen:
    """A ResourceClaim has changed; None: it was deleted."""

    name: Name
    claim: DeviceClaim | None


@dataclass(frozen=True, slots=True)
class TaintRuleSeen:
    """A DeviceTaintRule has changed; None: it was deleted, or has no effect."""

    name: str
    rule: TaintRule | None


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A Topology or HyperNode has changed; None: it was deleted."""

    kind: str
    name: str
    body: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A pod was not evicted; ``is_over``: it may be tried again.

    ``is_barred``: the API server refused. Otherwise there was no answer, and the pod may be chosen
    again at once.
    """

    uid: str
    reason: str
    is_over: bool = False
    is_barred: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod was bound to the decided node."""

    uid: str


@dataclass(frozen=True, slots=True)
class NotBound:
    """A pod could not be bound."""

    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """An operation on a pod lacks a right, for longer than a restart of the server takes.

    ``why`` names the right; "": the operation succeeded now.
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
