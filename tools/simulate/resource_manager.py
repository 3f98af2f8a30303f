"""The resource manager: the simulated cluster, with kubelets and servers that fail on purpose.

What happens to pods is checked where it is kept: a pod runs at most once, on one node, and a node
holds no more than it has when a pod is bound to it.
"""

from collections.abc import Callable
from pathlib import Path

from services.shim_adapter.backends.simulated import SimulatedCluster
from services.shim_adapter.backends.simulated.store import ClusterStore
from services.shim_adapter.mirror.calls import (
    BindPod,
    BindRefused,
    Call,
    CancelCreates,
    CreatePod,
    MarkUnschedulable,
    News,
    NodeNews,
    NominatePod,
    PlaceholderFailed,
    PodBound,
    PodChanged,
    WriteEvent,
)
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationPhase, NodeRecord, PodPhase, PodRecord
from shared.bus.errors import NotNowError
from shared.messages.commands import NodeSpec, PodName, PodSpec
from shared.model.gpus import GPU_SHARE, WHOLE
from shared.model.resources import fits_room, total_of
from tools.simulate.faults import BOUND, CREATED, DELETED, SAVED, Armed, Fault
from tools.simulate.instance import START_NS, PowerLostError
from tools.simulate.loop import VirtualLoop

_PROGRESS = {PodPhase.PENDING: 0, PodPhase.RUNNING: 1, PodPhase.SUCCEEDED: 2, PodPhase.FAILED: 2}
_OWN = ("bound", "create", "node", "refused")  # what is due here, and not of the cluster's own
_BEFORE = (ApplicationPhase.NEW, ApplicationPhase.RESERVING)
Report = Callable[[str], None]


class Disk(ClusterStore):
    """The shim adapter's file, in memory: it outlives the processes, and fails on purpose."""

    def __init__(
        self, armed: Armed, loop: VirtualLoop, report: Report, stall: Callable[[int], None]
    ) -> None:
        super().__init__(Path(":memory:"))
        self._stall = stall
        self.late: dict[str, tuple[int, CreatePod]] = {}  # what the API server has yet to make
        self.away: dict[str, tuple[int, NodeRecord]] = {}  # nodes that are to come again
        self.tried: dict[str, None] = {}  # pods that somebody tries to bind, by uid
        self._armed = armed
        self.loop = loop
        self._report = report
        self._full_until_ns = 0
        self._kept: dict[str, tuple[str, int]] = {}  # of each pod, gone ones too: node, progress
        self.made: dict[tuple[str, str], int] = {}  # real pods by name
        self._phases: dict[tuple[str, int], ApplicationPhase] = {}  # of each submission

    def save(self, world: World) -> None:
        """Keep what has changed, or fail as a disk does. Raises NotNowError, PowerLostError."""
        changed = list(world.changed_pods)
        fault = self._armed.take(SAVED, "shim_adapter", self.loop.now_ns)
        if fault is not None and fault.kind == "disk-full":
            self._full_until_ns = self.loop.now_ns + fault.amount_ns
        if self.is_full:
            raise NotNowError("the state cannot be saved: database or disk is full")
        if fault is not None and fault.kind == "crash-torn":
            self._tear(world)
        if fault is not None and fault.kind.startswith("crash"):
            raise PowerLostError(fault.amount_ns)
        super().save(world)
        for name in [name for name in self.away if name in world.nodes]:
            del self.away[name]
        for uid in changed:
            self._check(uid, world.pods.get(uid))
        if fault is not None and fault.kind == "disk-slow":
            self._stall(fault.amount_ns)

    @property
    def is_full(self) -> bool:
        """Return whether nothing can be kept."""
        return self._armed.is_on and self._full_until_ns > self.loop.now_ns

    def _tear(self, world: World) -> None:
        """Write what a process has written when it dies before its transaction ends."""
        self._db.execute("BEGIN IMMEDIATE")
        self._write_all(world)
        self._db.execute("ROLLBACK")

    def _check(self, uid: str, pod: PodRecord | None) -> None:
        before = self._kept.get(uid)
        if pod is None:
            self._kept[uid] = (before[0] if before else "", 3)
            return
        node = pod.node if uid not in self.tried else ""
        after = (node, _PROGRESS[pod.phase])
        self._kept[uid] = after
        if before is None:
            if not (pod.spec.placeholder or pod.spec.foreign):
                name = (pod.spec.namespace, pod.spec.name)
                self.made[name] = self.made.get(name, 0) + 1
            return
        if before[0] and before[0] != after[0]:
            self._report(f"pod {pod.spec.name} was bound to {before[0]} and to {after[0]!r}")
        if before[1] > after[1]:
            self._report(f"pod {pod.spec.name} ran again: {before} became {after}")

    def check_gangs(self, world: World) -> None:
        """See that gangs let their real pods go only when they are whole, message by message."""
        for name in world.changed_applications:
            self._check_gang(world, name)

    def _check_gang(self, world: World, name: str) -> None:
        application = world.applications.get(name)
        if application is None:
            return
        key = (name, application.submission)
        before = self._phases.get(key, ApplicationPhase.NEW)
        self._phases[key] = application.phase
        is_let_go = before in _BEFORE and application.phase is ApplicationPhase.RUNNING
        if not is_let_go or application.is_gang_over or application.placeholders_lost:
            return
        pods = [pod for pod in world.pods_of(name) if pod.node]
        if any(not pod.spec.placeholder for pod in pods):
            return
        for group in application.task_groups:
            bound = sum(pod.spec.task_group_name == group.name for pod in pods)
            if bound < group.min_member:
                self._report(f"gang {name} goes with {bound} of {group.min_member} {group.name}")


class FaultyCluster(SimulatedCluster):
    """The cluster. ``armed`` says what goes wrong; what it reports is judged where it is kept."""

    def __init__(
        self, world: World, armed: Armed, disk: Disk, report: Report, confirm_delay_ns: int
    ) -> None:
        self._loop = disk.loop
        self._tried = disk.tried
        for pod in map(world.pods.get, disk.tried):
            if pod is not None:
                world.assign(pod, "")  # who tried is no more, and it was never bound
        disk.tried.clear()
        super().__init__(world, confirm_delay_ns=confirm_delay_ns)
        self._armed = armed
        self._report = report
        self._confirm_ns = confirm_delay_ns
        self._late = disk.late
        for uid, (due_ns, _) in disk.late.items():
            self._schedule(due_ns, "create", uid)
        self._away = disk.away
        for name, (due_ns, _) in disk.away.items():
            self._schedule(due_ns, "node", name)
        self._again: dict[str, CreatePod] = {}  # tried again after a 409, while this one lives
        self.done = 0  # calls that were carried out
        self._ahead_ns = 0  # by how much the clock of the shim adapter is ahead of the cluster's

    def _own_time(self, now_ns: int) -> int:
        """Return what the cluster's own clocks show: they are right."""
        true_ns = START_NS + self._loop.now_ns
        self._ahead_ns = now_ns - true_ns
        return true_ns

    def next_due_ns(self) -> int | None:
        """Return when the next thing happens, by the clock of who asks."""
        due_ns = super().next_due_ns()
        return due_ns + self._ahead_ns if due_ns is not None else None

    def create_pods(self, pods: tuple[PodSpec, ...], cause: str, now_ns: int) -> list[News]:
        """Create pods."""
        return super().create_pods(pods, cause, self._own_time(now_ns))

    def delete_pods(self, names: tuple[PodName, ...], now_ns: int) -> list[News]:
        """Delete pods."""
        return super().delete_pods(names, self._own_time(now_ns))

    def carry_out(self, call: Call, now_ns: int) -> list[News]:
        """Do what the mirror asks, or fail as a cluster does."""
        created = self._take(CREATED) if isinstance(call, CreatePod) else None
        if isinstance(call, CreatePod) and created is not None:
            return self._not_created(call, created, self._own_time(now_ns))
        if isinstance(call, CancelCreates):
            of = call.application_id
            self._again = {k: c for k, c in self._again.items() if c.spec.application_id != of}
        slow = self._take(DELETED)
        if slow is not None:
            self.confirm_delay_ns = self._confirm_ns + slow.amount_ns
        self.done += not isinstance(call, WriteEvent | MarkUnschedulable | NominatePod)
        return super().carry_out(call, self._own_time(now_ns))

    def _not_created(self, call: CreatePod, fault: Fault, now_ns: int) -> list[News]:
        """Refuse a placeholder for good, or have it made later, whoever lives then."""
        if fault.kind == "create-refused":
            refused = "403 Forbidden: exceeded quota"
            return [PlaceholderFailed(call.spec.application_id, refused)]
        if fault.kind == "create-conflict":
            self._again[call.uid] = call
            self._schedule(now_ns + fault.amount_ns, "create", call.uid)
            return []
        self._late[call.uid] = (now_ns + fault.amount_ns, call)
        self._schedule(now_ns + fault.amount_ns, "create", call.uid)
        return []

    def _take(self, kinds: dict[str, int]) -> Fault | None:
        return self._armed.take(kinds, "shim_adapter", self._loop.now_ns)

    def _bind(self, call: BindPod, now_ns: int) -> list[News]:
        pod = self.world.pods.get(call.uid)
        if pod is None or pod.node or pod.has_ended:
            return []
        fault = self._take(BOUND)
        if fault is not None and fault.kind != "bind-unanswered":
            return self._not_bound(call, pod, fault, now_ns)
        if pod.deletion_ns:
            self._report(f"pod {pod.spec.name} was bound while it was being deleted")
        news = super()._bind(call, now_ns)
        if not (news and isinstance(news[0], PodBound)):
            return news
        self._check_room_on(call.node)
        self._check_partition(pod)
        if fault is None:
            return news
        self._schedule(now_ns + fault.amount_ns, "bound", pod.uid)
        return []

    def _not_bound(self, call: BindPod, pod: PodRecord, fault: Fault, now_ns: int) -> list[News]:
        """Bind a pod not, or not there, as the fault says."""
        match fault.kind:
            case "bind-refused":
                return [BindRefused(pod, "OutOfvcore: Node didn't have enough resource: vcore")]
            case "node-gone":
                gone = self._take_away(call.node, fault, now_ns)
                return [*gone, BindRefused(pod, f'nodes "{call.node}" not found')]
            case "bind-conflict":
                self.world.assign(pod, call.node)  # as it is while it is tried
                self._tried[pod.uid] = None
                self._schedule(now_ns + fault.amount_ns, "refused", pod.uid)
                return []
            case _:
                return self._bound_elsewhere(call, pod, now_ns)

    def _bound_elsewhere(self, call: BindPod, pod: PodRecord, now_ns: int) -> list[News]:
        """Have another scheduler bind a pod first, to another node with room, if there is one.

        It is told as the Kubernetes backend tells it.
        """
        others = [
            name
            for name, node in self.world.nodes.items()
            if name != call.node
            and node.partition == self.world.partition_of(pod.spec.application_id)
            and not self.world.on_nodes.shortage(name, pod.spec.resource)
        ]
        if not others:
            return super()._bind(call, now_ns)
        refused = BindRefused(pod, f"it was bound to node {others[0]} by another")
        bound = super()._bind(BindPod(call.uid, others[0]), now_ns)
        self._check_room_on(others[0])
        return [refused, PodChanged(pod), *bound]

    def _take_away(self, name: str, fault: Fault, now_ns: int) -> list[News]:
        """Remove a node, with all that is on it, for a while."""
        node = self.world.nodes.get(name)
        if node is None:
            return []
        self._away[name] = (now_ns + fault.amount_ns, node)
        self._schedule(now_ns + fault.amount_ns, "node", name)
        return self._change_node(NodeSpec(name, "remove"), now_ns)

    def _create_late(self, uid: str, now_ns: int) -> list[News]:
        """Make what is made late, or after a 409; a pod that is there is not made twice."""
        _, made = self._late.pop(uid, (0, None))
        call = self._again.pop(uid, made)
        return super().carry_out(call, now_ns) if call is not None else []

    def _give_up(self, uid: str) -> list[News]:
        """Try a bind no more: the pod is on no node, as it always was."""
        pod = self.world.pods.get(uid)
        if self._tried.pop(uid, True) is not None or pod is None or pod.has_ended:
            return []
        self.world.assign(pod, "")
        return [BindRefused(pod, "409 Conflict: the pod could not be bound")]

    def _lose_pods_on(self, name: str, now_ns: int) -> list[News]:
        """Have the pods of a node that has gone end; one that is not bound yet is not."""
        tried = [pod.uid for pod in self.world.on_nodes.of(name) if pod.uid in self._tried]
        given_up = [news for uid in tried for news in self._give_up(uid)]
        return given_up + super()._lose_pods_on(name, now_ns)

    def _bring_back(self, name: str) -> list[News]:
        """Add a node that was taken away, unless it is there; ``Disk`` keeps that it is to come."""
        if name not in self._away or name in self.world.nodes:
            return []
        _, node = self._away[name]
        self.world.nodes[name] = node
        self.world.touch_node(name)
        return [NodeNews(node, "add")]

    def _check_partition(self, pod: PodRecord) -> None:
        """See that a pod that was bound just now is on a node of its own partition."""
        node = self.world.nodes.get(pod.node)
        wanted = self.world.partition_of(pod.spec.application_id)
        if node is not None and node.partition != wanted:
            self._report(f"pod {pod.spec.name} of {wanted} is on {node.name} of {node.partition}")

    def _check_room_on(self, name: str) -> None:
        """See that a node to which a pod was bound just now holds no more than it has."""
        node = self.world.nodes.get(name)
        used = total_of(pod.spec.resource for pod in self.world.on_nodes.of(name))
        used.pop(GPU_SHARE, None)  # which no kubelet counts
        over = {at: of for at, of in self.world.on_nodes.devices_used(name).items() if of > WHOLE}
        if over:
            self._report(f"node {name} has more than all of its GPU devices in use: {over}")
        if used and (node is None or not fits_room(node.capacity, used)):
            self._report(f"node {name} of {node and dict(node.capacity)} holds {dict(used)}")

    def advance(self, now_ns: int) -> list[News]:
        """Do what is due; a bind that was done and not answered is heard of now."""
        now_ns = self._own_time(now_ns)
        late = [item for item in self._due if item[2] in _OWN and item[0] <= now_ns]
        if late:
            self._due = sorted(item for item in self._due if item not in late)  # a heap as well
        pods = [self.world.pods.get(uid) for _, _, what, uid in late if what == "bound"]
        news: list[News] = [PodBound(p) for p in pods if p is not None and not p.has_ended]
        for _, _, what, uid in late:
            if what == "create":
                news += self._create_late(uid, now_ns)
            elif what == "refused":
                news += self._give_up(uid)
        for name in [name for _, _, what, name in late if what == "node"]:
            news += self._bring_back(name)
        return news + super().advance(now_ns)
