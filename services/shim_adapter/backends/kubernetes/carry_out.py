"""Turns the mirror's calls into operations on the API server.

Rule 1: pods with device claims are bound once their devices are chosen, for all pods that go to a
        node together, before anything else is done.
Rule 2: a lost placeholder is created again at once, the next time after a growing pause.
No I/O: ``operate`` passes an operation on.
"""

from collections.abc import Callable

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes.configuration import Configuration
from services.shim_adapter.backends.kubernetes.failing import Failing
from services.shim_adapter.backends.kubernetes.notes import Notes
from services.shim_adapter.backends.kubernetes.operations import Operation, bind
from services.shim_adapter.backends.kubernetes.pod_groups import PodGroups
from services.shim_adapter.backends.kubernetes.pods_with_claims import PodsWithClaims
from services.shim_adapter.backends.kubernetes.pods_with_volumes import PodsWithVolumes
from services.shim_adapter.mirror.calls import (
    GANG_TIMED_OUT,
    BindPod,
    Call,
    CallAtPod,
    CancelCreates,
    CreatePod,
    DeletePod,
    FailPod,
    MarkUnschedulable,
    News,
    NominatePod,
    WriteEvent,
)
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodPhase, PodRecord
from shared.messages.interface import TerminationType

LOST_PAUSE_SECONDS = 1.0  # 0, 1, 3, 7 ...: a placeholder is made again at once, then ever later
MAX_LOST_PAUSE_SECONDS = 60.0


class Calls:
    """Carries out calls; their results are observed later."""

    def __init__(  # noqa: PLR0917 - all that a call is about
        self,
        world: World,
        operate: Callable[[Operation], None],
        cancel_creates: Callable[[str, str], None],
        notes: Notes,
        configuration: Configuration,
        volumes: PodsWithVolumes,
        claims: PodsWithClaims,
        groups: PodGroups,
    ) -> None:
        self.world = world
        self.configuration = configuration
        self.volumes, self.claims, self.groups = volumes, claims, groups
        self._operate, self._cancel_creates = operate, cancel_creates
        self._notes = notes
        self._failing = Failing()
        self._to_bind: list[tuple[PodRecord, Operation]] = []  # once their devices are chosen

    @property
    def are_left(self) -> bool:
        """Whether pods wait to be bound until their devices are chosen."""
        return bool(self._to_bind)

    def carry_out(self, call: Call, now_ns: int) -> list[News]:
        """Carry out a call of the mirror; its results are observed later."""
        match call:
            case CreatePod():
                self._create(call, now_ns)
            case CancelCreates():
                self._cancel_creates(call.application_id, "")
            case _:
                pod = self.world.pods.get(call.uid)
                if pod is not None:
                    return self._carry_out_at(pod, call, now_ns)
        return []

    def _carry_out_at(self, pod: PodRecord, call: CallAtPod, now_ns: int) -> list[News]:
        if self._to_bind and not isinstance(call, BindPod):
            self.choose_devices()
        match call:
            case BindPod():
                self._bind(pod, call, now_ns)
            case DeletePod():
                self.delete(pod, call, now_ns)
            case FailPod():
                return self._fail(pod, call, now_ns)
            case WriteEvent():
                self._notes.write(
                    pod, call.reason, call.message, is_warning=call.is_warning, action=call.action
                )
            case NominatePod():
                self._notes.nominate(pod, call.node)
            case MarkUnschedulable():
                self.world.note_refusal(pod.uid, now_ns)
                self._notes.mark(pod, call.message)
        return []

    def _bind(self, pod: PodRecord, call: BindPod, now_ns: int) -> None:
        if pod.node or pod.has_ended:
            return
        self.world.assign(pod, call.node, call.devices)
        pod.bound_ns = now_ns
        self.world.binding[pod.uid] = None
        to_make = self.volumes.to_make(pod)
        operation = bind(pod, call.node, to_make or ())
        if to_make is None:
            operation.why_not = f"a volume of its claims is not available on node {call.node}"
        if self.claims.has_claims(pod):
            self._to_bind.append((pod, operation))
        else:
            self._operate(operation)

    def choose_devices(self) -> None:
        """Choose devices for the waiting pods, together for each node, and bind them."""
        to_bind, self._to_bind = self._to_bind, []
        chosen = self.claims.choose([pod for pod, _ in to_bind]) if to_bind else {}
        for pod, operation in to_bind:
            devices = chosen[pod.uid]
            if isinstance(devices, str):
                operation.why_not = operation.why_not or devices
            else:
                operation.devices = devices
            self._operate(operation)

    def _fail(self, pod: PodRecord, call: FailPod, now_ns: int) -> list[News]:
        if pod.has_ended:
            return []
        if call.reason == GANG_TIMED_OUT:
            news = self.groups.put_back(pod, now_ns)
            if news is not None:
                return news
        pod.phase, pod.reason, pod.message = PodPhase.FAILED, call.reason, call.message
        body = bodies.failed_status(pod.uid, call.reason, call.message)
        pause = self._failing.pause_before(pod, call.reason, self.world.pods_made)
        self._operate(Operation("fail", pod, body, pause=pause))
        return []

    def _create(self, call: CreatePod, now_ns: int) -> None:
        application = self.world.applications.get(call.spec.application_id)
        owner = self.world.originator(call.spec.application_id)
        secrets = application.tags.get("imagePullSecrets", "") if application is not None else ""
        body = bodies.placeholder(
            call.spec,
            bodies.Originator(owner.spec.name, owner.uid) if owner is not None else None,
            tuple(filter(None, secrets.split(","))),
            self.configuration.placeholders,
        )
        pod = PodRecord(call.uid, call.spec, now_ns, 0)
        pause = min(LOST_PAUSE_SECONDS * (2 ** min(call.losses, 10) - 1), MAX_LOST_PAUSE_SECONDS)
        self._operate(Operation("create", pod, body, pause=pause))

    def delete(self, pod: PodRecord, call: DeletePod, now_ns: int) -> None:
        """Delete a pod, or evict a victim; repeating it changes nothing."""
        pod.release = pod.release or call.release
        pod.reason = pod.reason or call.reason
        if pod.deletion_ns:
            return
        pod.deletion_ns = now_ns or 1
        if call.release == TerminationType.PREEMPTED_BY_SCHEDULER and not pod.spec.placeholder:
            self._notes.preempted(pod, call.reason)
            self.groups.disrupted(pod.uid, call.reason)
            self._operate(Operation("evict", pod, bodies.eviction(pod)))
        else:
            grace = 0 if pod.spec.placeholder else None
            body = bodies.deletion(pod.uid, grace_seconds=grace)
            self._operate(Operation("delete", pod, body))
