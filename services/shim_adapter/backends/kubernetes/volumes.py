"""Volumes of claims: where they let a pod be, and which must be made where the pod goes.

Rule 1: a claim that is bound lets its pods be where its volume may be reached from.
Rule 2: a claim whose class waits for the first consumer lets them be where the class allows. It is
        made once a node is decided: the claim is told the node, and the pod bound when it is there.
Rule 3: any other claim that is not bound, or not there, has its pods wait for it.
Pure. Source: the Kubernetes documentation of volume binding modes. How many volumes a node takes,
and access modes, are left to the kubelet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.shim_adapter.translation.constraints import parse_constraints
from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import Constraints, NodeTerm, Requirement

SELECTED_NODE = "volume.kubernetes.io/selected-node"
_WAITS = "WaitForFirstConsumer"
_BOUND = "Bound"

Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class Claim:
    """What is known of a claim; ``volume`` "": it is not bound."""

    volume: str
    storage_class: str


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A storage class: whether it waits for a node, and on which nodes it can make volumes."""

    waits: bool
    terms: tuple[NodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a pod's claims come to: ``waits`` is why it cannot be scheduled yet ("": it can)."""

    waits: str = ""
    terms: tuple[NodeTerm, ...] = ()
    to_make: tuple[str, ...] = ()  # claims that are to be told the node


class Volumes:
    """Every claim, volume and storage class, and which pods that are not bound name a claim."""

    def __init__(self) -> None:
        self.claims: dict[Name, Claim] = {}
        self.volumes: dict[str, tuple[NodeTerm, ...]] = {}
        self.classes: dict[str, StorageClass] = {}
        self.claimants: dict[Name, dict[str, None]] = {}
        self._claims_of: dict[str, dict[Name, None]] = {}  # by volume, of bound claims

    def see_claim(self, name: Name, claim: Claim | None) -> list[str]:
        """Take a claim in, or that it has gone; return the pods that it concerns."""
        before = self.claims.pop(name, None)
        if before is not None:
            self._unlink(name, before.volume)
        if claim is not None:
            self.claims[name] = claim
            if claim.volume:
                self._claims_of.setdefault(claim.volume, {})[name] = None
        return [] if claim == before else list(self.claimants.get(name, ()))

    def _unlink(self, name: Name, volume: str) -> None:
        claims = self._claims_of.get(volume, {})
        if claims.pop(name, volume) is None and not claims:
            del self._claims_of[volume]

    def see_volume(self, name: str, terms: tuple[NodeTerm, ...] | None) -> list[str]:
        """Take a volume in, or that it has gone; return the pods that it concerns."""
        if terms is None:
            self.volumes.pop(name, None)
            return []
        if self.volumes.get(name) == terms:
            return []
        self.volumes[name] = terms
        concerned = sorted(self._claims_of.get(name, ()))
        return [uid for claim in concerned for uid in self.claimants.get(claim, ())]

    def name(self, uid: str, namespace: str, claims: tuple[str, ...]) -> None:
        """Note that a pod names claims, so that it hears of them."""
        for claim in claims:
            self.claimants.setdefault((namespace, claim), {})[uid] = None

    def forget(self, uid: str, namespace: str, claims: tuple[str, ...]) -> None:
        """Note that a pod is bound, or gone."""
        for claim in claims:
            named = self.claimants.get((namespace, claim), {})
            named.pop(uid, None)
            if not named:
                self.claimants.pop((namespace, claim), None)

    def judge(self, namespace: str, claims: tuple[str, ...]) -> Verdict:
        """Return what a pod's claims come to."""
        terms: tuple[NodeTerm, ...] = ()
        to_make: list[str] = []
        for name in claims:
            claim = self.claims.get((namespace, name))
            if claim is None:
                return Verdict(f'persistentvolumeclaim "{name}" not found')
            if claim.volume:
                if claim.volume not in self.volumes:
                    return Verdict(f'persistentvolume "{claim.volume}" not found')
                terms = both(terms, self.volumes[claim.volume])
                continue
            made_by = self.classes.get(claim.storage_class)
            if made_by is None or not made_by.waits:
                return Verdict(f'persistentvolumeclaim "{name}" is not bound yet')
            terms = both(terms, made_by.terms)
            to_make.append(name)
        return Verdict("", terms, tuple(to_make))


def both(left: tuple[NodeTerm, ...], right: tuple[NodeTerm, ...]) -> tuple[NodeTerm, ...]:
    """Return the terms of which one holds where one of each holds; none at all is no condition."""
    if not (left and right):
        return left or right
    return tuple(
        NodeTerm(one.expressions + other.expressions, one.fields + other.fields)
        for one in left
        for other in right
    )


def within(constraints: Constraints, terms: tuple[NodeTerm, ...]) -> Constraints:
    """Return a pod's constraints with those of its volumes."""
    if not terms:
        return constraints
    return replace(constraints, node_terms=both(constraints.node_terms, terms))


# --- reading ------------------------------------------------------------------------------------


def claim_names(spec: Mapping[str, Any], pod: str) -> tuple[str, ...]:
    """Return the claims that a pod names; an ephemeral volume's is named after pod and volume."""
    found: list[str] = []
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(str(volume["persistentVolumeClaim"]["claimName"]))
        elif volume.get("ephemeral"):
            found.append(f"{pod}-{volume['name']}")
    return tuple(dict.fromkeys(found))


def claim_of(raw: Mapping[str, Any]) -> Claim:
    """Return a PersistentVolumeClaim."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    is_bound = status.get("phase") == _BOUND
    return Claim(
        str(spec.get("volumeName") or "") if is_bound else "",
        str(spec.get("storageClassName") or ""),
    )


def volume_terms(raw: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    """Return from which nodes a PersistentVolume can be reached; none: from all."""
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
    """Return a StorageClass."""
    terms = tuple(
        NodeTerm(
            tuple(
                Requirement(str(item["key"]), "In", tuple(map(str, item.get("values") or ())))
                for item in term.get("matchLabelExpressions") or ()
            )
        )
        for term in raw.get("allowedTopologies") or ()
    )
    return StorageClass(raw.get("volumeBindingMode") == _WAITS, terms)
