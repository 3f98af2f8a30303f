"""Volumes of claims: where they allow a pod, and which are created after it is placed.

Rule 1: a bound claim restricts its pods to nodes that reach its volume.
Rule 2: a claim whose class waits for the first consumer restricts them to the nodes of the class.
        Its volume is created once a node is decided: the node is written at the claim, and the pod
        is bound when the volume exists. Without a provisioner (``no-provisioner``), its pods may be
        where a suitable free volume is; once a node is decided, the smallest of them there is
        reserved.
Rule 3: pods of any other claim that is unbound, missing or being deleted wait.
Rule 4: volumes attached to a node are sent to the core, which respects the node's limits by driver
        (CSINode), and admits one pod at a time for a ReadWriteOncePod claim. A claim's name is sent
        only if two pods share it, so that pods with claims of their own stay equal.
Pure. Source: the Kubernetes documentation of volume binding modes, of node-specific volume limits,
and of access modes. Other access modes are left to the kubelet.
Limits: MAX_TERMS alternatives of nodes per pod, with MAX_REQUIREMENTS conditions each; beyond that
the pod waits, with this reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from services.shim_adapter.mirror.asks import HOST_NAME_LABEL
from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.constraints import label_selector, parse_constraints
from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import AttachedVolume, Constraints, NodeTerm, Requirement
from shared.messages.selectors import all_hold, term_matches
from shared.model.numbers import INT32
from shared.model.quantity import QuantityError, parse_pod_quantity

SELECTED_NODE = "volume.kubernetes.io/selected-node"
_WAITS = "WaitForFirstConsumer"
_BOUND = "Bound"
_STATIC = "kubernetes.io/no-provisioner"
_ONE_POD = "ReadWriteOncePod"
MAX_REQUIREMENTS = 200  # conditions from all volumes of a pod; beyond it the pod waits
MAX_TERMS = 1_000  # alternative sets of nodes for a pod's volumes; beyond it the pod waits
_TOPOLOGY = "topology.kubernetes.io/"
_OLD_TOPOLOGY = "failure-domain.beta.kubernetes.io/"
_ZONES = (f"{_TOPOLOGY}zone", f"{_TOPOLOGY}region")
# The drivers that do what plugins did that Kubernetes once had built in.
_MIGRATED = {
    "awsElasticBlockStore": "ebs.csi.aws.com",
    "azureDisk": "disk.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "vsphereVolume": "csi.vsphere.vmware.com",
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}

Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim; ``volume`` "": it is not bound. The others are its requirements."""

    volume: str
    storage_class: str
    size: int = 0
    modes: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] = ()
    is_deleting: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume: the nodes that reach it (no terms: all), its claim, and its properties."""

    terms: tuple[NodeTerm, ...] = ()
    storage_class: str = ""
    size: int = 0
    modes: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    claim: Name | None = None  # whose it is, or is to be
    driver: str = ""  # that attaches it; "": none that counts

    def suits(self, name: Name, claim: Claim) -> bool:
        """Whether a claim can be bound to it."""
        return (
            self.claim in (None, name)
            and self.storage_class == claim.storage_class
            and self.size >= claim.size
            and all(mode in self.modes for mode in claim.modes)
            and all_hold(claim.selector, dict(self.labels))
        )


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class: whether it waits for a node, and on which nodes it can create volumes.

    A ``static`` one creates none: users do.
    """

    waits: bool
    terms: tuple[NodeTerm, ...] = ()
    static: bool = False
    provisioner: str = ""


@dataclass(frozen=True, slots=True)
class ToMake:
    """A claim at which to write the node, or a volume to reserve for it."""

    claim: str
    volume: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a pod's claims: ``waits`` is why it cannot be scheduled yet, or ""."""

    waits: str = ""
    terms: tuple[NodeTerm, ...] = ()
    to_make: tuple[str, ...] = ()  # claims that are to be told the node


class Volumes:
    """Every claim, volume and storage class, and the pods of each claim."""

    def __init__(self) -> None:
        self.claims: dict[Name, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self._of_class: dict[str, dict[str, None]] = {}  # volumes that are nobody's
        self._kept: dict[str, Name] = {}  # by us, for a claim, until that is seen
        self.classes: dict[str, StorageClass] = {}
        self.claimants: dict[Name, dict[str, None]] = {}
        self._shared: dict[Name, None] = {}  # that two pods have named at one time
        self._claims_of: dict[str, dict[Name, None]] = {}  # by volume, of bound claims
        self._unbound: dict[str, dict[Name, None]] = {}  # claims, by class

    def see_claim(self, name: Name, claim: Claim | None) -> list[str]:
        """Add, update or remove (None) a claim; return the affected pods."""
        before = self.claims.pop(name, None)
        if before is not None:
            self._index(before, name, is_in=False)
        if claim is not None:
            self.claims[name] = claim
            self._index(claim, name, is_in=True)
        return [] if claim == before else list(self.claimants.get(name, ()))

    def _index(self, claim: Claim, name: Name, *, is_in: bool) -> None:
        by = self._claims_of if claim.volume else self._unbound
        key = claim.volume or claim.storage_class
        claims = by.setdefault(key, {})
        if is_in:
            claims[name] = None
        else:
            del claims[name]
        if not claims:
            del by[key]

    def see_class(self, name: str, made_by: StorageClass | None) -> list[str]:
        """Add, update or remove (None) a storage class; return the affected pods."""
        before = self.classes.pop(name, None)
        if made_by is not None:
            self.classes[name] = made_by
        return [] if made_by == before else self._waiting_for(name)

    def see_volume(self, name: str, volume: Volume | None) -> list[str]:
        """Add, update or remove (None) a volume; return the affected pods."""
        before = self.volumes.pop(name, None)
        if before is not None and before.claim is None:
            of_class = self._of_class[before.storage_class]
            del of_class[name]
            if not of_class:
                del self._of_class[before.storage_class]
        if volume is None:
            self._kept.pop(name, None)
            return self._waiting_for_static(before.storage_class if before is not None else "")
        self.volumes[name] = volume
        if volume.claim is None:
            self._of_class.setdefault(volume.storage_class, {})[name] = None
        else:
            self._kept.pop(name, None)
        if before == volume:
            return []
        concerned = sorted(self._claims_of.get(name, ()))
        found = [uid for claim in concerned for uid in self.claimants.get(claim, ())]
        return found + self._waiting_for_static(volume.storage_class)

    def _waiting_for_static(self, storage_class: str) -> list[str]:
        """Return the pods whose claims wait for a volume created by users."""
        made_by = self.classes.get(storage_class)
        return self._waiting_for(storage_class) if made_by is not None and made_by.static else []

    def _waiting_for(self, storage_class: str) -> list[str]:
        claims = self._unbound.get(storage_class, ())
        return [uid for name in claims for uid in self.claimants.get(name, ())]

    def _free(self, name: Name, claim: Claim) -> list[tuple[int, str]]:
        """Return the free volumes that suit a claim, the smallest first."""
        return sorted(
            (self.volumes[volume].size, volume)
            for volume in self._of_class.get(claim.storage_class, ())
            if self.volumes[volume].suits(name, claim) and self._kept.get(volume, name) == name
        )

    def reserve(self, namespace: str, claim_name: str, node: NodeRecord) -> ToMake | None:
        """Return what a claim needs on the decided node; None if no volume is available there."""
        name = (namespace, claim_name)
        claim = self.claims.get(name)
        made_by = self.classes.get(claim.storage_class) if claim is not None else None
        if claim is None or made_by is None or not made_by.static:
            return ToMake(claim_name)
        for _, volume in self._free(name, claim):
            if _reaches(self.volumes[volume], node):
                self._kept[volume] = name
                return ToMake(claim_name, volume)
        return None

    def release(self, name: Name) -> None:
        """Free the volumes reserved for a claim."""
        for volume in [volume for volume, kept in self._kept.items() if kept == name]:
            del self._kept[volume]

    def name(self, uid: str, namespace: str, claims: tuple[str, ...]) -> list[str]:
        """Record a pod's claims; return the other pods of claims that are shared from now on."""
        found: list[str] = []
        for claim in claims:
            name = (namespace, claim)
            named = self.claimants.setdefault(name, {})
            named[uid] = None
            if len(named) > 1 and name not in self._shared:
                self._shared[name] = None
                found += (other for other in named if other != uid)
        return found

    def forget(self, uid: str, namespace: str, claims: tuple[str, ...]) -> None:
        """Remove a pod that has ended or is gone."""
        for claim in claims:
            named = self.claimants.get((namespace, claim), {})
            named.pop(uid, None)
            if not named:
                self.claimants.pop((namespace, claim), None)
                self._shared.pop((namespace, claim), None)

    def attached(self, namespace: str, claims: tuple[str, ...]) -> tuple[AttachedVolume, ...]:
        """Return the volumes that a pod's claims attach to its node, equal for equal pods."""
        found: list[AttachedVolume] = []
        for name in claims:
            claim = self.claims.get((namespace, name))
            if claim is None:
                continue
            driver = self._driver_of(claim)
            if (namespace, name) not in self._shared:
                found += [AttachedVolume(driver)] if driver else []
            elif driver or _ONE_POD in claim.modes:
                is_exclusive = _ONE_POD in claim.modes
                found.append(AttachedVolume(driver, f"{namespace}/{name}", is_exclusive))
        return tuple(sorted(found, key=lambda item: (item.driver, item.claim)))

    def _driver_of(self, claim: Claim) -> str:
        """Return the driver of a claim's existing or future volume, or ""."""
        if claim.volume:
            volume = self.volumes.get(claim.volume)
            return volume.driver if volume is not None else ""
        made_by = self.classes.get(claim.storage_class)
        if made_by is None or made_by.static:
            return ""
        return _MIGRATED.get(made_by.provisioner, made_by.provisioner)

    def judge(self, namespace: str, claims: tuple[str, ...]) -> Verdict:
        """Return where a pod's claims allow it, or why it must wait."""
        terms: tuple[NodeTerm, ...] = ()
        to_make: list[str] = []
        for name in claims:
            found = self._judge(namespace, name)
            if found.waits:
                return found
            terms = both(terms, found.terms)
            to_make += found.to_make
            if len(terms) > MAX_TERMS:
                return Verdict(
                    f"its {len(claims)} volumes can be reached together in more than {MAX_TERMS} "
                    "ways, too many to look at: give them fewer zones, or it fewer volumes"
                )
            if any(len(term.expressions) + len(term.fields) > MAX_REQUIREMENTS for term in terms):
                return Verdict(
                    f"its {len(claims)} volumes set more than {MAX_REQUIREMENTS} conditions on a "
                    "node, too many to look at: give it fewer volumes"
                )
        return Verdict("", terms, tuple(to_make))

    def _judge(self, namespace: str, name: str) -> Verdict:
        """Return the result for one claim."""
        claim = self.claims.get((namespace, name))
        if claim is None:
            return Verdict(f'persistentvolumeclaim "{name}" not found')
        if claim.is_deleting:
            return Verdict(f'persistentvolumeclaim "{name}" is being deleted')
        if claim.volume:
            volume = self.volumes.get(claim.volume)
            if volume is None:
                return Verdict(f'persistentvolume "{claim.volume}" not found')
            return Verdict("", volume.terms)
        made_by = self.classes.get(claim.storage_class)
        if made_by is None or not made_by.waits:
            return Verdict(f'persistentvolumeclaim "{name}" is not bound yet')
        if not made_by.static:
            return Verdict("", made_by.terms, (name,))
        there = [self.volumes[volume].terms for _, volume in self._free((namespace, name), claim)]
        if not there:
            return Verdict(f'no persistent volume is free for claim "{name}"')
        terms = () if () in there else merged(chain.from_iterable(there))
        return Verdict("", terms, (name,))


def _reaches(volume: Volume, node: NodeRecord) -> bool:
    labels = {HOST_NAME_LABEL: node.name, **node.labels}
    terms = volume.terms
    return not terms or any(term_matches(term, node.name, labels) for term in terms)


def both(left: tuple[NodeTerm, ...], right: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """AND of two OR-lists of selector terms; an empty one means no constraint."""
    if not (left and right):
        return left or right
    found: dict[NodeTerm, None] = {}
    for one in left:
        for other in right:
            found[NodeTerm(_all(one.expressions, other.expressions), one.fields + other.fields)] = (
                None
            )
            if len(found) > MAX_TERMS:
                return tuple(found)
    return tuple(found)


def _all(left: tuple[Requirement, ...], right: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    return tuple(dict.fromkeys(left + right))


def merged(terms: Iterable[NodeTerm]) -> tuple[NodeTerm, ...]:
    """Merge terms that require one of several values of the same label."""
    values: dict[str, dict[str, None]] = {}
    others: dict[NodeTerm, None] = {}
    for term in terms:
        only = term.expressions[0] if len(term.expressions) == 1 and not term.fields else None
        if only is not None and only.operator == "In":
            values.setdefault(only.key, {}).update(dict.fromkeys(only.values))
        else:
            others[term] = None
    one_of = (NodeTerm((Requirement(key, "In", tuple(of)),)) for key, of in values.items())
    return (*one_of, *others)


def within(constraints: Constraints, terms: tuple[NodeTerm, ...]) -> Constraints:
    """Return a pod's constraints restricted by its volumes."""
    if not terms:
        return constraints
    return replace(constraints, node_terms=both(constraints.node_terms, terms))


# --- reading ------------------------------------------------------------------------------------


def claim_names(spec: Mapping[str, Any], pod: str) -> tuple[str, ...]:
    """Return a pod's claims; an ephemeral volume's is named after pod and volume."""
    found: list[str] = []
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(str(volume["persistentVolumeClaim"]["claimName"]))
        elif volume.get("ephemeral"):
            found.append(f"{pod}-{volume['name']}")
    return tuple(dict.fromkeys(found))


def claim_of(raw: Mapping[str, Any]) -> Claim:
    """Convert a PersistentVolumeClaim."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    is_bound = status.get("phase") == _BOUND
    try:
        selector = label_selector(spec["selector"], "") if spec.get("selector") else ()
    except ManifestError:
        selector = (Requirement("", "Exists"),)  # which no volume has
    return Claim(
        str(spec.get("volumeName") or "") if is_bound else "",
        str(spec.get("storageClassName") or ""),
        _bytes((spec.get("resources") or {}).get("requests")),
        _modes(spec),
        selector,
        bool((raw.get("metadata") or {}).get("deletionTimestamp")),
    )


def _bytes(amounts: Mapping[str, Any] | None) -> int:
    try:
        return parse_pod_quantity("storage", (amounts or {}).get("storage") or 0)
    except QuantityError:
        return 0


def _modes(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return access modes, followed by the volume mode."""
    modes = tuple(map(str, spec.get("accessModes") or ()))
    return (*modes, str(spec.get("volumeMode") or "Filesystem"))


def volume_of(raw: Mapping[str, Any]) -> Volume:
    """Convert a PersistentVolume; a released one is not free."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    owner, phase = spec.get("claimRef") or {}, (raw.get("status") or {}).get("phase")
    is_free = not owner and phase in (None, "Available", "Pending")
    return Volume(
        volume_node_selector(raw),
        str(spec.get("storageClassName") or ""),
        _bytes(spec.get("capacity")),
        _modes(spec),
        tuple(sorted((metadata.get("labels") or {}).items())),
        None if is_free else (str(owner.get("namespace")), str(owner.get("name"))),
        _driver(spec),
    )


def _driver(spec: Mapping[str, Any]) -> str:
    if spec.get("csi"):
        return str(spec["csi"].get("driver") or "")
    return next((_MIGRATED[name] for name in _MIGRATED if spec.get(name)), "")


def volume_limits(raw: Mapping[str, Any]) -> dict[str, int]:
    """Return a CSINode's limits by driver; drivers without one are unlimited."""
    found: dict[str, int] = {}
    for driver in (raw.get("spec") or {}).get("drivers") or ():
        count = (driver.get("allocatable") or {}).get("count")
        if type(count) is int:
            found[str(driver.get("name"))] = max(0, min(count, INT32.stop - 1))
    return found


def volume_node_selector(raw: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    """Return the nodes that reach a PersistentVolume; () for all.

    Zone labels restrict them like an affinity does.
    """
    labels = (raw.get("metadata") or {}).get("labels") or {}
    return both(_zone_requirements(labels), _affinity_requirements(raw))


def _zone_requirements(labels: Mapping[str, str]) -> tuple[NodeTerm, ...]:
    within = []
    for key in _ZONES:
        value = labels.get(key) or labels.get(key.replace(_TOPOLOGY, _OLD_TOPOLOGY))
        if value:
            within.append(Requirement(key, "In", tuple(value.split("__"))))
    nowhere = [Requirement(key, "DoesNotExist") for key in _ZONES]
    return (NodeTerm(tuple(within)), NodeTerm(tuple(nowhere))) if within else ()


def _affinity_requirements(raw: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    required = ((raw.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if not required:
        return ()
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    try:
        parsed = parse_constraints({"affinity": {"nodeAffinity": affinity}}, "spec", labels={})
    except ManifestError:
        return (NodeTerm(),)  # which matches nothing: better than a node that cannot reach it
    return parsed.node_terms


def storage_class(raw: Mapping[str, Any]) -> StorageClass:
    """Convert a StorageClass."""
    terms = tuple(
        NodeTerm(
            tuple(
                Requirement(str(item["key"]), "In", tuple(map(str, item.get("values") or ())))
                for item in term.get("matchLabelExpressions") or ()
            )
        )
        for term in raw.get("allowedTopologies") or ()
    )
    provisioner = str(raw.get("provisioner") or "")
    waits = raw.get("volumeBindingMode") == _WAITS
    return StorageClass(waits, terms, provisioner == _STATIC, provisioner)
