"""The objects of groups: their gangs, their claims and their trees.

Pods of other schedulers that name a group are known as well: they prevent its start. No I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from services.shim_adapter.backends.kubernetes.claim_objects import GroupClaims
from services.shim_adapter.backends.kubernetes.group_trees import GroupTrees, Object
from services.shim_adapter.backends.kubernetes.observed import PodGroupSeen
from services.shim_adapter.backends.kubernetes.topologies import Topologies
from services.shim_adapter.translation.pods import PriorityClass
from services.shim_adapter.translation.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    QUEUE_LABEL,
    GroupRef,
    tied,
)
from services.shim_adapter.translation.workloads.replicas import Gang
from shared.messages.commands import PodSpec


class GroupObjects:
    """The objects. ``by_name`` has each one's gangs by name, or its error."""

    def __init__(self, topologies: Topologies, label_of: Callable[[str, GroupClaims], str]) -> None:
        """``label_of`` returns the node label that a group's claims restrict its pods by."""
        self._topologies, self._label_of = topologies, label_of
        self.by_name: dict[Object, Mapping[str, Gang] | str] = {}
        self.trees = GroupTrees(self._tie_of)
        self._claims: dict[Object, GroupClaims] = {}
        self._foreign_pods: dict[GroupRef, dict[str, None]] = {}  # by group
        self._group_of_foreign: dict[str, GroupRef] = {}

    def note_claims(self, seen: PodGroupSeen) -> None:
        """Update a group's claims: those it names, and those created for it."""
        gang = None if seen.gangs is None or isinstance(seen.gangs, str) else seen.gangs.get("")
        if gang is None or not gang.claims:
            self._claims.pop(seen.name, None)
            return
        made = {
            each.get("name"): str(each.get("resourceClaimName") or "")
            for each in seen.status.get("resourceClaimStatuses") or ()
        }
        claims = {
            entry: (named, named if is_claim else made.get(entry, ""))
            for entry, (named, is_claim) in gang.claims.items()
        }
        self._claims[seen.name] = GroupClaims(seen.name[2], seen.uid, claims)

    def claims_of(self, ref: GroupRef) -> GroupClaims | None:
        """Return the device claims of a PodGroup, or None."""
        return self._claims.get(object_of(ref))

    def homes(self, name: Object) -> dict[Object, GroupRef]:
        """Return the gangs of the PodGroups in a core group."""
        if name[0] not in (CORE, COMPOSITE):
            return {}
        below = self.trees.pods_groups_in(name)
        return {each: self.trees.home(GroupRef(*each)) for each in below}

    def gang(self, ref: GroupRef) -> Gang | str:
        """Return a group's gang, or an error text."""
        if ref.kind == COMPOSITE:
            return self.trees.gang(object_of(ref))
        found = self.by_name.get(object_of(ref), {})
        if isinstance(found, str):
            return f"{ref}: {found}"
        waits = self.trees.why_not(object_of(ref)) if ref.kind == CORE else ""
        if waits:
            return waits
        gang = found.get(ref.part)
        if gang is None:
            return f"{ref} is not there"
        tie = self._tie_of(object_of(ref))
        if tie:
            return tied(gang, tie)
        if not gang.names_a_tree:
            return gang
        resolved = self._topologies.resolved(gang)
        return f"{ref}: {resolved}" if isinstance(resolved, str) else resolved

    def _tie_of(self, name: Object) -> str:
        """Return the node label that a PodGroup's claims restrict its pods by, "" for none."""
        return self._label_of(name[1], self._claims[name]) if name in self._claims else ""

    def add_foreign_pod(self, uid: str, ref: GroupRef) -> bool:
        """Add a pod of another scheduler that names a group; return whether it is new."""
        if uid in self._group_of_foreign:
            return False
        self._group_of_foreign[uid] = ref
        self._foreign_pods.setdefault(ref, {})[uid] = None
        return True

    def drop_foreign_pod(self, uid: str) -> GroupRef | None:
        """Remove a pod of another scheduler; return its group if it was the last one there."""
        ref = self._group_of_foreign.pop(uid, None)
        if ref is None:
            return None
        self._foreign_pods[ref].pop(uid)
        if self._foreign_pods[ref]:
            return None
        del self._foreign_pods[ref]
        return ref

    def has_foreign_pods(self, ref: GroupRef) -> bool:
        """Whether pods of another scheduler name a gang, or a part of it."""
        if not self._foreign_pods:
            return False
        if ref.kind != COMPOSITE:
            return ref in self._foreign_pods
        below = self.trees.pods_groups_in(object_of(ref))
        return any(GroupRef(*each) in self._foreign_pods for each in below)


def with_group_defaults(spec: PodSpec, gang: Gang, classes: Mapping[str, PriorityClass]) -> PodSpec:
    """Return a pod with its group's queue and priority class where it states none."""
    queue = spec.queue_name or spec.labels.get(QUEUE_LABEL) or gang.queue
    known = classes.get(gang.priority_class)
    if known is not None and (gang.has_own_class or not spec.priority_class):
        spec = replace(
            spec,
            priority_class=gang.priority_class,
            priority=known.value,
            allow_preempt_self=spec.allow_preempt_self and known.lets_be_preempted({}),
            allow_preempt_other=known.lets_preempt({}),
        )
    if gang.priority is not None:
        spec = replace(spec, priority=gang.priority)
    if gang.lets_preempt is not None:
        spec = replace(spec, allow_preempt_other=gang.lets_preempt)
    may = spec.allow_preempt_self and gang.lets_be_preempted(spec.priority)
    return replace(spec, queue_name=queue, allow_preempt_self=may)


def object_of(ref: GroupRef) -> Object:
    """Return the name of a group's object."""
    return ref.kind, ref.namespace, ref.name
