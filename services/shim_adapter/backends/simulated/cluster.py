"""The simulated cluster: what an API server and its kubelets would do, and when.

A bound pod starts after ``start_delay_ns`` and ends ``run_ns`` later (0: never by itself). A
deleted pod is gone after ``confirm_delay_ns``; deletions decided by the core wait longer while
confirmations are held. Callers pass the time; no clock is read here. Limits: MAX_ENDED_PODS ended
pods (a setting) and MAX_REMEMBERED deleted ones are remembered; the oldest are dropped.
"""

from collections import deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from services.shim_adapter.backends.base import CommandRefusedError
from services.shim_adapter.mirror.calls import (
    BindPod,
    BindRefused,
    Call,
    CancelCreates,
    CreatePod,
    DeletePod,
    FailPod,
    MarkUnschedulable,
    News,
    NodeNews,
    NominatePod,
    PodAdded,
    PodBound,
    PodChanged,
    PodEnded,
    PodGone,
    WriteEvent,
)
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import NodeRecord, PodPhase, PodRecord
from services.shim_adapter.translation.pods import with_uid
from shared.messages.commands import NodeSpec, PodName, PodSpec
from shared.messages.find_pod import PodFound
from shared.messages.interface import TerminationType
from shared.model.ids import derived_id
from shared.model.names import DNS_SUBDOMAIN_ERROR, is_dns_subdomain

MAX_ENDED_PODS = 20_000  # where nothing else is set
MAX_REMEMBERED = 10_000
MAX_PODS = 200_000
_NODE_ACTIONS = ("add", "update", "drain", "undrain", "remove")


@dataclass(frozen=True, slots=True)
class GonePod:
    """A record of a deleted pod."""

    name: str
    namespace: str
    state: str  # Deleted or Preempted
    placeholder: bool
    application_id: str
    task_group_name: str
    reason: str


class SimulatedCluster:
    """A resource manager in memory. ``world`` is its state, shared with the mirror."""

    def __init__(
        self,
        world: World,
        *,
        start_delay_ns: int = 0,
        confirm_delay_ns: int = 0,
        max_ended: int = 0,
    ) -> None:
        """Continue with the world's pods. ``max_ended``: retained ended pods, 0 for the default."""
        self.world = world
        self.max_ended = max_ended or MAX_ENDED_PODS
        self.start_delay_ns = start_delay_ns
        self.confirm_delay_ns = confirm_delay_ns
        self.gone: dict[tuple[str, str], GonePod] = {}
        self._held: dict[str, None] = {}
        self._due: list[tuple[int, int, str, str]] = []
        self._entered = 0
        self._ended: deque[str] = deque()
        for pod in world.all_pods():
            self._resume(pod)

    # --- what users do -------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Always True."""
        return True

    def activate(self) -> None:
        """Do nothing: it is always ready."""

    def create_pods(self, pods: tuple[PodSpec, ...], cause: str, now_ns: int) -> list[News]:
        """Create pods; names must be new, or those of pods that have ended."""
        names = {(spec.namespace, spec.name) for spec in pods}
        if len(names) != len(pods):
            raise CommandRefusedError("two pods of one submission have the same name")
        for spec in pods:
            _check_name(spec)
            existing = self.world.pod_named(spec.namespace, spec.name)
            if existing is not None and not existing.has_ended:
                raise CommandRefusedError(
                    f'pods "{spec.name}" already exists in namespace {spec.namespace}'
                )
        self._check_room(len(pods))
        news: list[News] = []
        for at, spec in enumerate(pods):
            existing = self.world.pod_named(spec.namespace, spec.name)
            if existing is not None:
                self.world.drop_pod(existing)
            uid = derived_id(f"pod/{cause}", at)
            name = with_uid(spec.application_id, uid)
            if name != spec.application_id:
                spec = replace(spec, application_id=name)  # noqa: PLW2901
            news.append(self._add(uid, spec, now_ns))
        return news

    def place_foreign(
        self, node: str, pods: tuple[PodSpec, ...], cause: str, now_ns: int
    ) -> list[News]:
        """Place pods of another scheduler on a node, which may not exist (yet), or resize them."""
        known = [self.world.pod_named(spec.namespace, spec.name) for spec in pods]
        for pod in known:
            if pod is not None and (pod.node != node or not pod.spec.foreign):
                raise CommandRefusedError(f'pods "{pod.spec.name}" already exists elsewhere')
        self._check_room(len(pods))
        news: list[News] = []
        for at, (spec, pod) in enumerate(zip(pods, known, strict=True)):
            if pod is not None:
                self.world.resize(pod, spec.resource)
                news.append(PodChanged(pod))
                continue
            made = PodRecord(derived_id(f"foreign/{cause}", at), spec, now_ns, 0)
            made.node, made.bound_ns, made.phase = node, now_ns, PodPhase.RUNNING
            self.world.pods_made += 1
            made.sequence = self.world.pods_made
            self.world.add_pod(made)
            news.append(PodAdded(made))
        return news

    def find_held(self, name: str) -> PodFound | None:  # noqa: ARG002 - the interface's
        """Return None: no pod is held back here."""
        return None

    def delete_pods(self, names: tuple[PodName, ...], now_ns: int) -> list[News]:
        """Delete pods by name. Raises CommandRefusedError if one of them does not exist."""
        pods: list[PodRecord] = []
        for name in names:
            pod = self.world.pod_named(name.namespace, name.name)
            if pod is None:
                raise CommandRefusedError(f'pods "{name.name}" not found in {name.namespace}')
            pods.append(pod)
        return [news for pod in pods for news in self._delete(pod, "", "", now_ns)]

    def change_nodes(self, specs: tuple[NodeSpec, ...], now_ns: int) -> list[News]:
        """Add, update, drain, undrain or remove nodes, in order.

        Raises CommandRefusedError, having changed nothing, if one of the changes is impossible.
        """
        there: dict[str, bool] = {}  # what the changes before make of the nodes that they name
        for spec in specs:
            is_there = there.get(spec.name, spec.name in self.world.nodes)
            if spec.action not in _NODE_ACTIONS:
                raise CommandRefusedError(f"no such action on a node: {spec.action!r}")
            if is_there == (spec.action == "add"):
                raise CommandRefusedError(
                    f'nodes "{spec.name}" {"already exists" if is_there else "not found"}'
                )
            there[spec.name] = spec.action != "remove"
        return [news for spec in specs for news in self._change_node(spec, now_ns)]

    def _change_node(self, spec: NodeSpec, now_ns: int) -> list[News]:
        self.world.touch_node(spec.name)
        if spec.action == "add":
            node = NodeRecord(spec.name, spec.capacity, spec.labels, spec.taints)
            self.world.nodes[spec.name] = node
            return [NodeNews(node, "add")]
        node = self.world.nodes[spec.name]
        if spec.action in ("drain", "undrain"):
            node.is_cordoned = spec.action == "drain"
        elif spec.action == "update":
            node.capacity = spec.capacity or node.capacity
            node.labels = spec.labels or node.labels
            node.taints = spec.taints or node.taints
        else:
            del self.world.nodes[spec.name]
            return [NodeNews(node, "remove"), *self._lose_pods_on(spec.name, now_ns)]
        return [NodeNews(node, spec.action)]

    def hold_confirmations(self, *, held: bool, now_ns: int) -> list[News]:
        """Stop confirming releases, or confirm the held ones."""
        self.world.hold_confirmations(held=held)
        if not held:
            for uid in self._held:
                self._schedule(now_ns, "gone", uid)
            self._held.clear()
        return self.advance(now_ns)

    # --- what the mirror asks -------------------------------------------------------------------

    def carry_out(self, call: Call, now_ns: int) -> list[News]:
        """Carry out a call of the mirror; unknown pods and repetitions change nothing."""
        match call:
            case CreatePod():
                is_there = call.uid in self.world.pods
                return [] if is_there else [self._add(call.uid, call.spec, now_ns)]
            case BindPod():
                return self._bind(call, now_ns)
            case DeletePod():
                pod = self.world.pods.get(call.uid)
                return [] if pod is None else self._delete(pod, call.release, call.reason, now_ns)
            case FailPod():
                pod = self.world.pods.get(call.uid)
                if pod is not None and not pod.has_ended:
                    pod.reason, pod.message = call.reason, call.message
                    self._end(pod, PodPhase.FAILED)
                return []
            case MarkUnschedulable():
                self.world.note_refusal(call.uid, now_ns)
            case CancelCreates() | WriteEvent() | NominatePod():
                pass  # pods are made at once; nobody reads here: the API has its own events
        return []

    def _bind(self, call: BindPod, now_ns: int) -> list[News]:
        pod = self.world.pods.get(call.uid)
        if pod is None or pod.node or pod.has_ended:
            return []
        shortage = self.world.on_nodes.shortage(call.node, pod.spec.resource, call.devices)
        if shortage:
            return [BindRefused(pod, shortage)]
        self.world.assign(pod, call.node, call.devices)
        pod.bound_ns = now_ns
        if self.start_delay_ns:
            self._schedule(now_ns + self.start_delay_ns, "start", pod.uid)
        else:
            self._start(pod, now_ns)
        return [PodBound(pod)]

    # --- what happens by itself -----------------------------------------------------------------

    def next_due_ns(self) -> int | None:
        """Return when the next pod starts, ends or disappears, or None."""
        return self._due[0][0] if self._due else None

    def advance(self, now_ns: int) -> list[News]:
        """Start, end and remove the pods that are due."""
        news: list[News] = []
        while self._due and self._due[0][0] <= now_ns:
            due_ns, _, what, uid = heappop(self._due)
            pod = self.world.pods.get(uid)
            if pod is None:
                continue
            if what == "start":
                self._start(pod, due_ns)
            elif what == "gone":
                news += self._gone(pod)
            elif not (pod.deletion_ns or pod.has_ended):
                is_late = what == "deadline"
                pod.reason = pod.reason or ("DeadlineExceeded" if is_late else "")
                self._end(pod, PodPhase.FAILED if is_late else PodPhase.SUCCEEDED)
                news.append(PodEnded(pod))
        return news

    # --- pods -----------------------------------------------------------------------------------

    def _check_room(self, count: int) -> None:
        if len(self.world.pods) + count > MAX_PODS:
            raise CommandRefusedError(f"the cluster has room for {MAX_PODS} pods")

    def _add(self, uid: str, spec: PodSpec, now_ns: int) -> PodAdded:
        self.world.pods_made += 1
        pod = PodRecord(uid, spec, now_ns, self.world.pods_made)
        self.world.add_pod(pod)
        self.gone.pop((spec.namespace, spec.name), None)
        return PodAdded(pod)

    def _start(self, pod: PodRecord, now_ns: int) -> None:
        if pod.phase is not PodPhase.PENDING or pod.deletion_ns:
            return
        pod.phase = PodPhase.RUNNING
        pod.started_ns = now_ns
        self.world.touch_pod(pod)
        self._schedule_end(pod)

    def _schedule_end(self, pod: PodRecord) -> None:
        """Schedule the end of a running pod, or its deadline if that is earlier."""
        run_ns, stated_ns = pod.spec.run_ns, pod.spec.stated_run_ns
        if stated_ns and not 0 < run_ns <= stated_ns:
            self._schedule(pod.started_ns + stated_ns, "deadline", pod.uid)
        elif run_ns:
            self._schedule(pod.started_ns + run_ns, "end", pod.uid)

    def _end(self, pod: PodRecord, phase: PodPhase) -> None:
        pod.phase = phase
        self.world.on_nodes.remove(pod)
        self.world.touch_pod(pod)
        self._ended.append(pod.uid)
        while len(self._ended) > self.max_ended:
            oldest = self.world.pods.get(self._ended.popleft())
            if oldest is not None:
                self._forget(oldest)

    def _delete(self, pod: PodRecord, release: str, reason: str, now_ns: int) -> list[News]:
        pod.release = pod.release or release
        pod.reason = pod.reason or reason
        self.world.touch_pod(pod)
        if pod.deletion_ns:
            return []
        pod.deletion_ns = now_ns or 1
        if release and self.world.are_confirmations_held:
            self._held[pod.uid] = None
            return []
        if release and self.confirm_delay_ns:
            self._schedule(now_ns + self.confirm_delay_ns, "gone", pod.uid)
            return []
        return self._gone(pod)

    def _gone(self, pod: PodRecord) -> list[News]:
        self._forget(pod)
        return [PodGone(pod)]

    def _forget(self, pod: PodRecord) -> None:
        spec = pod.spec
        is_preempted = pod.release == TerminationType.PREEMPTED_BY_SCHEDULER
        self.gone[spec.namespace, spec.name] = GonePod(
            name=spec.name,
            namespace=spec.namespace,
            state="Preempted" if is_preempted else "Deleted",
            placeholder=spec.placeholder,
            application_id=spec.application_id,
            task_group_name=spec.task_group_name,
            reason=pod.reason,
        )
        if len(self.gone) > MAX_REMEMBERED:
            del self.gone[next(iter(self.gone))]
        self.world.drop_pod(pod)

    def _lose_pods_on(self, node: str, now_ns: int) -> list[News]:
        lost = self.world.on_nodes.of(node)
        for pod in lost:
            pod.deletion_ns = pod.deletion_ns or now_ns or 1
            pod.reason = pod.reason or "NodeRemoved"
        return [news for pod in lost for news in self._gone(pod)]

    def _resume(self, pod: PodRecord) -> None:
        """Continue a pod that was read from a file."""
        if pod.has_ended:
            self._ended.append(pod.uid)
        elif pod.deletion_ns and pod.release and self.world.are_confirmations_held:
            self._held[pod.uid] = None
        elif pod.deletion_ns:
            self._schedule(pod.deletion_ns + self.confirm_delay_ns, "gone", pod.uid)
        elif pod.phase is PodPhase.RUNNING:
            self._schedule_end(pod)
        elif pod.node and pod.phase is PodPhase.PENDING:
            self._schedule(pod.bound_ns + self.start_delay_ns, "start", pod.uid)

    def _schedule(self, due_ns: int, what: str, uid: str) -> None:
        self._entered += 1
        heappush(self._due, (due_ns, self._entered, what, uid))


def _check_name(spec: PodSpec) -> None:
    """Raise CommandRefusedError for a name that an API server would refuse."""
    if not is_dns_subdomain(spec.name):
        raise CommandRefusedError(f"a pod's name {DNS_SUBDOMAIN_ERROR}, found {spec.name!r}")
