"""The Kubernetes cluster as the mirror's resource manager: observations become reports.

Rule 1: the world is what the API server shows, plus requests that it has not refused: a pod being
        bound is on its node from the decision on, and removed when the bind fails.
Rule 2: nothing is reported until everything was listed and the turn was taken (``is_ready``).
Rule 3: a pod that cannot be read, or asks for something unsupported, gets a condition and an event,
        and is not scheduled.
No I/O: ``see`` gets observations, and ``operate`` passes operations on.
Limit: at most MAX_SEEN observations wait; reflectors wait for room.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from services.shim_adapter.backends.base import CommandRefusedError
from services.shim_adapter.backends.kubernetes import recover
from services.shim_adapter.backends.kubernetes.carry_out import Calls
from services.shim_adapter.backends.kubernetes.claim_objects import GroupClaims
from services.shim_adapter.backends.kubernetes.configuration import Configuration
from services.shim_adapter.backends.kubernetes.evictability import Evictability
from services.shim_adapter.backends.kubernetes.group_status import GroupStatuses
from services.shim_adapter.backends.kubernetes.held import HeldPods
from services.shim_adapter.backends.kubernetes.node_trees import NodeTrees
from services.shim_adapter.backends.kubernetes.notes import Notes
from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.observed import (
    Bound,
    BudgetSeen,
    ClaimSeen,
    CsiNodeSeen,
    DeviceClaimSeen,
    DeviceClassSeen,
    EvictionRefused,
    NamespaceSeen,
    NodeSeen,
    NotAllowed,
    NotBound,
    NotCreated,
    Observed,
    PodDeleted,
    PodGroupSeen,
    PodSeen,
    SliceSeen,
    StorageClassSeen,
    TaintRuleSeen,
    TopologySeen,
    VolumeSeen,
)
from services.shim_adapter.backends.kubernetes.operations import Operation
from services.shim_adapter.backends.kubernetes.pod_groups import PodGroups
from services.shim_adapter.backends.kubernetes.pods_with_claims import PodsWithClaims
from services.shim_adapter.backends.kubernetes.pods_with_volumes import PodsWithVolumes
from services.shim_adapter.backends.kubernetes.topologies import Topologies
from services.shim_adapter.mirror.calls import (
    BindRefused,
    Call,
    DeletePod,
    News,
    NodeNews,
    PlaceholderFailed,
    PodAdded,
    PodBound,
    PodChanged,
    PodEnded,
    PodGone,
    PodNominated,
)
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ENDED_PHASES, NodeRecord, PodPhase, PodRecord
from services.shim_adapter.translation.pods import PriorityClass
from services.shim_adapter.translation.workloads.pod_groups import GroupRef
from shared.messages.commands import PodName, PodSpec
from shared.messages.constraints import Toleration
from shared.messages.find_pod import PodFound
from shared.model.reasons import Reason

MAX_SEEN = 5_000
MAX_TAKEN_IN = 2_000  # at a time, so that other messages are handled in between
EPOCHS_A_TURN = 1_000_000
_BOUND, _COMPLETED = "PodBindSuccessful", "TaskCompleted"  # of events, as YuniKorn has them
MISSING_RIGHTS = "MissingRights"  # the reason of an event


class KubernetesCluster:
    """One session's cluster. ``operate`` passes operations on, ``now_text`` returns the time.

    ``path_of`` returns the API path of a kind of PodGroups, "" if it is not served.
    """

    def __init__(
        self,
        world: World,
        *,
        operate: Callable[[Operation], None],
        now_text: Callable[[], str],
        cancel_creates: Callable[[str, str], None] = lambda _application, _name: None,
        instance: str = "muster",
        classes: Mapping[str, PriorityClass] | None = None,
        path_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.world = world
        self.configuration = Configuration()
        self.activated = asyncio.Event()
        self.has_news = asyncio.Event()
        self.is_ready = False
        self._seen: deque[Observed] = deque()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._cancel_creates = cancel_creates
        self._notes = Notes(operate, now_text, instance)
        self.held = HeldPods()
        self.topologies = Topologies()
        self.volumes = PodsWithVolumes(world, self._on_new_pod)
        self.claims = PodsWithClaims(
            world, self._on_new_pod, self._claims_of_group, self._is_to_be_formed
        )
        self.groups = PodGroups(
            world,
            {} if classes is None else classes,
            self._hold_back,
            self._take_in,
            GroupStatuses(self._notes.status, now_text, path_of),
            topologies=self.topologies,
            tie_of=self.claims.tied.tie_of,
            shared_ties=self.claims.tied.shared_ties,
        )
        self._trees = NodeTrees(world, self.configuration, self.topologies, self.claims.tied)
        self._evictability = Evictability(world, self.groups, self._notes)
        self._calls = Calls(
            world,
            operate,
            cancel_creates,
            self._notes,
            self.configuration,
            self.volumes,
            self.claims,
            self.groups,
        )
        self._handlers = self._handlers_by_type()

    def _handlers_by_type(self) -> dict[type, Callable[[Any, int], list[News]]]:
        return {
            PodSeen: self._on_pod,
            PodDeleted: self._on_pod_deleted,
            NodeSeen: self._on_node,
            NamespaceSeen: self._on_namespace,
            ClaimSeen: self.volumes.on_claim,
            VolumeSeen: self.volumes.on_volume,
            StorageClassSeen: self.volumes.on_class,
            CsiNodeSeen: self.volumes.on_node,
            BudgetSeen: self._evictability.on_budget,
            PodGroupSeen: self._on_pod_group,
            SliceSeen: self.claims.on_slice,
            DeviceClassSeen: self.claims.on_class,
            DeviceClaimSeen: self.claims.on_claim,
            TaintRuleSeen: self.claims.on_taint,
            TopologySeen: self._trees.on_topology,
            EvictionRefused: self._evictability.on_eviction_refused,
            Bound: self._on_bound,
            NotBound: self._on_not_bound,
            NotCreated: self._on_not_created,
            NotAllowed: self._on_not_allowed,
        }

    # --- what is seen ---------------------------------------------------------------------------

    def activate(self) -> None:
        """Record that the machine has become the active one."""
        self.activated.set()

    async def see(self, observed: Observed) -> None:
        """Queue an observation, once there is room for it."""
        await self._has_room.wait()
        self.report(observed)

    def report(self, observed: Observed) -> None:
        """Queue the result of an operation at once."""
        self._seen.append(observed)
        self.has_news.set()
        if len(self._seen) >= MAX_SEEN:
            self._has_room.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether all observations were applied."""
        return not self._seen

    def begin(self, turn: int, now_ns: int, last_good: str = "") -> None:
        """Begin a turn: everything was listed, and reports may be made.

        ``last_good`` is the last valid queue configuration, in case the current one is invalid.
        """
        self.groups.begin(now_ns)
        recover.applications(self.world, self.configuration, now_ns)
        self.world.epoch = turn * EPOCHS_A_TURN
        self.world.set_config(self.configuration.queues, last_good)
        self.world.scheduler_settings = self.configuration.scheduler_settings
        for pod in self.world.all_pods():
            self._notes.nominate(pod, "")  # the core will nominate again
        self.is_ready = True

    def knows(self, uid: str) -> bool:
        """Whether a pod is known, so that only its mutable fields need to be read.

        Any field of a gated pod may change, and the tolerations of a waiting one.
        """
        pod = self.world.pods.get(uid)
        if pod is None or pod.gates:
            return False
        return bool(pod.node or pod.has_ended or pod.spec.placeholder)

    # --- Backend --------------------------------------------------------------------------------

    def next_due_ns(self) -> int | None:
        """Return when a PodGroup or a status is due; other work is triggered by observations.

        0: devices must be chosen for pods that wait to be bound.
        """
        if self._calls.are_left:
            return 0
        due = (self.groups.next_due_ns(), self.held.next_due_ns())
        return min((at_ns for at_ns in due if at_ns is not None), default=None)

    def advance(self, now_ns: int) -> list[News]:
        """Apply observations in order, at most MAX_TAKEN_IN at a time, and return the reports."""
        self._calls.choose_devices()
        news = self.groups.advance(now_ns)
        for _ in range(min(len(self._seen), MAX_TAKEN_IN)):
            observed = self._seen.popleft()
            news += self._handlers[type(observed)](observed, now_ns)
        if len(self._seen) < MAX_SEEN:
            self._has_room.set()
        news += self.claims.advance(now_ns)
        news += [NodeNews(node, "update") for node in self.claims.renewed()]
        if self._trees.has_others:
            news += self._take_trees(now_ns)
        if self._seen:
            self.has_news.set()
        return news + self.held.advance(now_ns) if self.is_ready else news

    def carry_out(self, call: Call, now_ns: int) -> list[News]:
        """Carry out a call of the mirror; its results are observed later."""
        return self._calls.carry_out(call, now_ns)

    # --- pods -----------------------------------------------------------------------------------

    def _on_pod(self, seen: PodSeen, now_ns: int) -> list[News]:
        view = seen.view
        pod = self.world.pods.get(view.uid)
        if pod is None:
            return self._on_new_pod(view, now_ns)
        pod.generation = view.generation
        if view.is_deleting and not pod.deletion_ns:
            pod.deletion_ns = now_ns or 1
            self.groups.gone(pod.uid)
        if view.phase in ENDED_PHASES:
            self.groups.ended(view)
            return self._end(pod, view.phase)
        if view.phase is PodPhase.RUNNING and view.group is not None:
            self.groups.runs(pod.uid)
        evictability = self._evictability
        news = evictability.health_of(pod, view) + evictability.labels_of(pod, view)
        news += self._node_of(pod, view)
        return news + self._changes_of(pod, view, now_ns)

    def _on_new_pod(self, view: PodView, now_ns: int) -> list[News]:
        if view.error and view.is_ours:
            self._hold_back(view, Reason.POD_REFUSED, view.error, now_ns)
        if view.phase in ENDED_PHASES:
            self.groups.ended(view)
            self.volumes.forget(view.uid)
            self.claims.forget(view.uid)
            self.held.free(view.uid)
            return self._end_nomination(view.uid)
        strange = self._on_strange_member(view, now_ns)
        if not (view.is_ours or view.node):
            return strange + self._nomination_of(view, now_ns)
        if view.spec is None:
            return []
        if not view.is_ours and view.node in self.world.nodes:
            self.world.on_nodes.end_nomination(view.uid)  # it counts on its node instead
        news = strange + self.volumes.name(view)
        spec, reason, waits = self._spec_of(view)
        if waits:
            self._hold_back(view, reason, waits, now_ns)
            return news
        if spec is not view.spec:
            view = replace(view, spec=spec)
        take_in = self._take_in if view.group is None else self._on_member
        return [*news, *take_in(view, now_ns)]

    def _nomination_of(self, view: PodView, now_ns: int) -> list[News]:
        """Update the nomination of an unbound pod of another scheduler."""
        spec, node = view.spec, "" if view.is_deleting or view.gates else view.nominated
        known = self.world.on_nodes.nomination_of(view.uid)
        if known is not None and (known.node, known.spec) == (node, spec):
            return []
        news = self._end_nomination(view.uid)
        if spec is None or not node:
            return news
        pod = PodRecord(view.uid, spec, view.created_ns or now_ns, 0, node=node)
        self.world.on_nodes.nominate(pod)
        return [*news, PodNominated(pod)]

    def _end_nomination(self, uid: str) -> list[News]:
        pod = self.world.on_nodes.end_nomination(uid)
        return [] if pod is None else [PodNominated(pod, is_over=True)]

    def _spec_of(self, view: PodView) -> tuple[PodSpec, Reason, str]:
        """Return a pod's spec restricted by volumes and devices, and why it must wait."""
        spec, waits = self.volumes.spec_of(view)
        if waits:
            return spec, Reason.VOLUMES, waits
        spec, (reason, waits) = self.claims.spec_of(view, spec)
        return spec, reason, waits

    def _on_strange_member(self, view: PodView, now_ns: int) -> list[News]:
        """Hold back the pods of a group that a pod of another scheduler names as well."""
        ref = view.strange_group
        return [] if ref is None else self.groups.foreign_pod(view.uid, ref, now_ns)

    def _on_member(self, view: PodView, now_ns: int) -> list[News]:
        """Let a pod of a PodGroup wait for the others; other reasons to hold it back are over."""
        if view.gates:
            self._hold_gated(view, now_ns)
        else:
            self.held.free(view.uid, but=Reason.POD_GROUP)
        return self.groups.on_pod(view, now_ns)

    def _hold_back(self, view: PodView, reason: Reason, why: str, now_ns: int) -> None:
        """Report why a pod is not asked for yet, at the pod and in its application."""
        self._notes.refuse(view, why, now_ns)
        self._hold(view, reason, why, now_ns)

    def _hold(self, view: PodView, reason: Reason, why: str, now_ns: int) -> None:
        spec, application = view.spec, view.application
        if spec is not None:
            application = spec.partition, spec.application_id
        if application is None or view.node or view.is_deleting:
            return
        since_ns = view.created_ns or now_ns
        self.held.hold(view.uid, application, view.name, (reason, why), since_ns)

    def _hold_gated(self, view: PodView, now_ns: int) -> None:
        self._hold(view, Reason.SCHEDULING_GATED, ", ".join(view.gates), now_ns)

    def _take_in(self, view: PodView, now_ns: int) -> list[News]:
        """Add a pod that is not held back."""
        spec = view.spec
        assert spec is not None
        if spec.placeholder:
            self._cancel_creates(spec.application_id, spec.name)
        self.world.pods_made += 1
        pod = PodRecord(
            view.uid,
            spec,
            view.created_ns or now_ns,
            self.world.pods_made,
            phase=view.phase,
            node=view.node,
            is_ready=view.is_ready,
            bound_ns=view.bound_ns,
            deletion_ns=now_ns if view.is_deleting else 0,
            gates=view.gates,
            devices=view.devices if view.node else (),
            generation=view.generation,
        )
        self.world.add_pod(pod)
        self._notes.taken_in(view)
        self.held.free(view.uid)
        if view.gates:
            self._hold_gated(view, now_ns)
            gates = ",".join(view.gates)
            self._notes.write(pod, "Scheduling", f"waiting for scheduling gates: {gates}")
        for warning in view.warnings if not pod.node else ():
            self._notes.write(pod, "Scheduling", warning, is_warning=True)
        if pod.spec.foreign or not pod.node:
            return [PodAdded(pod), *self.volumes.restated(pod.uid)]
        return [PodAdded(pod), PodChanged(pod), PodBound(pod), *self._evictability.on_a_node(pod)]

    def _end(self, pod: PodRecord, phase: PodPhase) -> list[News]:
        """Mark a pod as ended, and remove it."""
        news: list[News] = [] if pod.has_ended else [PodEnded(pod)]
        if news:
            self._note_as_yunikorn(pod, _COMPLETED, "Task %s is completed")
        pod.phase = phase
        self._forget(pod)
        return news

    def _note_as_yunikorn(self, pod: PodRecord, reason: str, what: str) -> None:
        """Write an additional event of YuniKorn at a real pod, with preset yunikorn only.

        Source: docs/rules/pods.md#events-and-conditions.
        """
        if self.world.is_preset_yunikorn and not (pod.spec.placeholder or pod.spec.foreign):
            self._notes.write(pod, reason, what % f"{pod.spec.namespace}/{pod.spec.name}")

    def _forget(self, pod: PodRecord) -> None:
        self.world.binding.pop(pod.uid, None)
        if pod.spec.placeholder:
            self.claims.replaced(pod)
        self.world.drop_pod(pod)
        self.volumes.forget(pod.uid)
        self.claims.forget(pod.uid)
        self.held.free(pod.uid)
        self._evictability.budgets.gone(pod)

    def _node_of(self, pod: PodRecord, view: PodView) -> list[News]:
        """Compare a pod's actual node with the decided one."""
        if not view.node:
            return []  # not bound yet
        if pod.node == view.node:
            return self._confirm(pod)
        news: list[News] = []
        if pod.node:
            self.world.binding.pop(pod.uid, None)
            news.append(BindRefused(pod, f"it was bound to node {view.node} by another"))
        self.world.assign(pod, view.node, view.devices)
        pod.bound_ns = view.bound_ns
        return [*news, PodChanged(pod), PodBound(pod), *self._evictability.on_a_node(pod)]

    def _changes_of(self, pod: PodRecord, view: PodView, now_ns: int) -> list[News]:
        changed = pod.gates != view.gates
        if pod.gates and view.spec is not None:
            self.world.drop_pod(pod)
            pod.spec = self.volumes.spec_of(view)[0]
            self.world.add_pod(pod)
        elif view.spec is not None and not pod.node:
            changed = self._tolerates_more(pod, view.spec.constraints.tolerations) or changed
        pod.gates = view.gates
        if changed and pod.gates:
            self._hold_gated(view, now_ns)
        elif changed:
            self.held.free(pod.uid)
        resource = self.claims.asked(pod.uid, view.resource)
        if not view.error and dict(pod.spec.resource) != resource:
            self.world.resize(pod, resource)
            changed = True
        return [PodChanged(pod)] if changed else []

    def _tolerates_more(self, pod: PodRecord, tolerations: tuple[Toleration, ...]) -> bool:
        """Update the tolerations of a waiting pod; return whether they changed."""
        if tolerations == pod.spec.constraints.tolerations:
            return False
        constraints = replace(pod.spec.constraints, tolerations=tolerations)
        pod.spec = replace(pod.spec, constraints=constraints)
        self.volumes.tolerate(pod.uid, tolerations)
        self.world.touch_pod(pod)
        return True

    def _on_pod_deleted(self, seen: PodDeleted, _: int) -> list[News]:
        self._notes.forget(seen.uid)
        self.volumes.forget(seen.uid)
        self.claims.forget(seen.uid)
        self.groups.gone(seen.uid)
        self.held.free(seen.uid)
        pod = self.world.pods.get(seen.uid)
        if pod is None:
            return self._end_nomination(seen.uid)
        self._forget(pod)
        return [PodGone(pod)]

    def _on_bound(self, seen: Bound, _: int) -> list[News]:
        pod = self.world.pods.get(seen.uid)
        return [] if pod is None else self._confirm(pod)

    def _confirm(self, pod: PodRecord) -> list[News]:
        """Record, once, that a pod is bound as decided: from the answer, or from the watch."""
        if self.world.binding.pop(pod.uid, True) is not None:
            return []
        self._notes.forget(pod.uid)
        self.held.free(pod.uid)
        self.volumes.bound(pod)
        self.claims.bound(pod)
        name = f"{pod.spec.namespace}/{pod.spec.name}"
        self._notes.write(pod, "Scheduled", f"Successfully assigned {name} to node {pod.node}")
        self._note_as_yunikorn(pod, _BOUND, f"Pod %s is successfully bound to node {pod.node}")
        return [PodBound(pod), *self._evictability.on_a_node(pod)]

    def _on_not_bound(self, seen: NotBound, _: int) -> list[News]:
        pod = self.world.pods.get(seen.uid)
        if pod is None or self.world.binding.pop(seen.uid, True) is not None:
            return []
        self.world.assign(pod, "")
        self.volumes.not_bound(pod)
        self.claims.not_bound(pod)
        self._notes.write(
            pod, "FailedScheduling", f"could not be bound: {seen.reason}", is_warning=True
        )
        return [BindRefused(pod, seen.reason)]

    def _on_not_created(self, seen: NotCreated, now_ns: int) -> list[News]:
        """Give up a gang: a PodGroup's waits again as a whole, any other continues without gang."""
        news = self.groups.give_up(seen.application_id, seen.reason, now_ns)
        return [PlaceholderFailed(seen.application_id, seen.reason)] if news is None else news

    def _on_not_allowed(self, seen: NotAllowed, now_ns: int) -> list[News]:
        """Report a missing right at the pod and to users, or that it is no longer missing.

        For a placeholder that could not be created, the event is at its application's first pod.
        """
        pod, known = seen.pod, self.held.reason_of(seen.pod.uid)
        if known not in (None, Reason.MISSING_RIGHTS):
            return []
        if not seen.why:
            self.held.free(pod.uid)
            return []
        application = pod.spec.application_id
        is_there = pod.uid in self.world.pods or known is not None
        about = pod if is_there else self.world.originator(application)
        if about is not None:
            self._notes.write(about, MISSING_RIGHTS, seen.why, is_warning=True)
        if application:
            named = self.world.partition_of(application), application
            why = Reason.MISSING_RIGHTS, seen.why
            self.held.hold(pod.uid, named, pod.spec.name, why, now_ns)
        return []

    # --- nodes, namespaces, users -------------------------------------------------------

    def _on_node(self, seen: NodeSeen, _: int) -> list[News]:
        record, known = seen.record, self.world.nodes.get(seen.record.name)
        if seen.is_gone:
            self.claims.node_gone(record.name)
            if known is None:
                return []
            del self.world.nodes[known.name]
            return [NodeNews(known, "remove")]
        self.claims.on_node(record)
        self._trees.retain_labels(record, known)
        if known is None:
            record.volume_limits = self.volumes.limits.get(record.name, {})
            self.world.nodes[record.name] = record
            return [NodeNews(record, "add")]
        news: list[News] = []
        if _facts(known) != _facts(record):
            known.capacity, known.labels = record.capacity, record.labels
            known.taints, known.annotations = record.taints, record.annotations
            news.append(NodeNews(known, "update"))
        if known.is_cordoned != record.is_cordoned:
            known.is_cordoned = record.is_cordoned
            news.append(NodeNews(known, "drain" if record.is_cordoned else "undrain"))
        return news

    def _claims_of_group(self, ref: GroupRef) -> GroupClaims | None:
        return self.groups.objects.claims_of(ref)

    def _is_to_be_formed(self, ref: GroupRef) -> bool:
        return self.groups.is_to_be_formed(ref)

    def _on_pod_group(self, seen: PodGroupSeen, now_ns: int) -> list[News]:
        ref = GroupRef(*seen.name)
        before = self.groups.objects.claims_of(ref), self._is_to_be_formed(ref)
        news = self.groups.see(seen, now_ns)
        if (self.groups.objects.claims_of(ref), self._is_to_be_formed(ref)) != before:
            news += self.claims.group_changed(now_ns)
        return news

    def _take_trees(self, now_ns: int) -> list[News]:
        """Update the topology labels of nodes, the levels, and the gangs that depend on them."""
        news, has_other_levels = self._trees.renew()
        if has_other_levels:
            self.has_news.set()
        return news + self.groups.trees_changed(now_ns)

    def _on_namespace(self, seen: NamespaceSeen, _: int) -> list[News]:
        self.world.set_namespace(seen.name, seen.tags)
        return []

    def find_held(self, name: str) -> PodFound | None:
        """Return the held-back pod with this uid, else one with this name, else None."""
        return self.held.find(name)

    def delete_pods(self, names: tuple[PodName, ...], now_ns: int) -> list[News]:
        """Delete pods by name. Raises CommandRefusedError if one of them is unknown."""
        pods = [self.world.pod_named(name.namespace, name.name) for name in names]
        for name, pod in zip(names, pods, strict=True):
            if pod is None or pod.spec.foreign:
                raise CommandRefusedError(f'pods "{name.name}" not found in {name.namespace}')
        for pod in pods:
            assert pod is not None
            self._calls.delete(pod, DeletePod(pod.uid, ""), now_ns)
        return []


def _facts(node: NodeRecord) -> tuple[object, ...]:
    return dict(node.capacity), dict(node.labels), node.taints, dict(node.annotations)
