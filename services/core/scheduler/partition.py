"""The partition: everything the scheduler knows, and the moves that keep its ledgers true.

Every change of an allocation goes through ``allocate``, ``add_existing`` or ``remove``: they keep
node, application and queue in step and tell the outbox. Nothing here decides anything.
"""

from dataclasses import dataclass, field, replace

from services.core.scheduler.application import Application
from services.core.scheduler.nodes import Node, NodeTable
from services.core.scheduler.outbox import Outbox
from services.core.scheduler.queues import ROOT, Queue
from services.core.scheduler.shapes import Ask, Shape, ShapeTable
from services.core.scheduler.views import allocation_state, ask_state
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
    UpdatedApplication,
)
from shared.messages.protocol import TimerKind, TimerSet
from shared.messages.state import AskState
from shared.model.states import ApplicationEvent, ApplicationState
from shared.model.units import milliseconds

COMPLETING_TIMEOUT_MS = 30_000
WHOLE_GANG = "whole"
PARTIAL_GANG = "partial"


@dataclass(frozen=True, slots=True)
class Settings:
    """Muster's own scheduler settings, beside queues.yaml.

    ``gang_admission``: a gang starts its placeholders when the whole of it fits the headroom
    (``whole``), or as far as they fit (``partial``, as YuniKorn does; contract case G-23).
    """

    gang_admission: str = WHOLE_GANG


@dataclass(eq=False)
class Partition:
    """One partition's nodes, queues and applications."""

    name: str = "default"
    rm_id: str = ""
    epoch: int = 0
    now_ns: int = 0
    settings: Settings = field(default_factory=Settings)
    nodes: NodeTable = field(default_factory=NodeTable)
    root: Queue = field(default_factory=lambda: Queue(ROOT, is_leaf=False))
    queues: dict[str, Queue] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    shapes: ShapeTable = field(default_factory=ShapeTable)
    blocked_shapes: dict[Shape, None] = field(default_factory=dict)
    replaceable: dict[Application, None] = field(default_factory=dict)
    unreplaceable: dict[Application, None] = field(default_factory=dict)
    outbox: Outbox = field(default_factory=Outbox)
    config_checksum: str = ""
    config_error: str = ""
    config_time_ns: int = 0
    preemption_enabled: bool = True
    _sequence: int = 0
    _generation: int = 0

    def next_sequence(self) -> int:
        """Return a number larger than any before it: the order of arrival."""
        self._sequence += 1
        return self._sequence

    # --- asks and allocations -------------------------------------------------------------------

    def add_ask(self, application: Application, request: AllocationAsk) -> None:
        """Let an ask wait in its application."""
        ask = Ask(request, self.shapes.shape_of(request), self.next_sequence())
        application.add_ask(ask)
        self.outbox.asks[ask.key] = ask_state(ask)
        self.outbox.touch(application)

    def take_ask(self, application: Application, key: str) -> Ask | None:
        """Take an ask out of its application, or return None."""
        ask = application.take_ask(key)
        if ask is not None:
            self.outbox.asks[key] = AskState(key, application.id, removed=True)
            self.outbox.touch(application)
        return ask

    def allocate(self, application: Application, ask: Ask, node: Node) -> Allocation:
        """Turn an ask into an allocation on a node, in every ledger, and tell it."""
        order = application.order
        group = application.group_of[ask.key]
        self.take_ask(application, ask.key)
        allocation = allocation_of(ask.request, node.node_id)
        self.nodes.place(node, allocation)
        application.queue.allocate(allocation.resource_per_alloc)
        application.add_allocation(allocation)
        application.requeue(group, order)
        self._tell(application, allocation)
        self.outbox.say("new_allocations", allocation)
        return allocation

    def add_existing(self, application: Application, allocation: Allocation, node: Node) -> None:
        """Count an allocation that exists already, whatever the limits say (recovery)."""
        self.nodes.place(node, allocation)
        application.queue.allocate(allocation.resource_per_alloc)
        if allocation.placeholder:
            application.count_placeholder(allocation.task_group_name, allocation.resource_per_alloc)
        application.add_allocation(allocation)
        if allocation.released:
            application.mark_released(allocation.allocation_key, TerminationType.TIMEOUT)
        self._tell(application, allocation)

    def remove(self, application: Application, key: str) -> Allocation | None:
        """Take an allocation out of every ledger, or return None when there is none."""
        allocation = application.remove_allocation(key)
        if allocation is None:
            return None
        self.free_node(allocation)
        application.queue.release(allocation.resource_per_alloc)
        self.outbox.allocations[key] = replace(
            allocation_state(allocation, released=True), removed=True
        )
        self.outbox.touch(application)
        return allocation

    def free_node(self, allocation: Allocation) -> None:
        """Take an allocation off its node's ledger, where the node is still there."""
        node = self.nodes.nodes.get(allocation.node_id)
        if node is not None and allocation.allocation_key in node.allocations:
            self.nodes.free(node, allocation.allocation_key)
            self.node_improved(node)

    def _tell(self, application: Application, allocation: Allocation) -> None:
        key = allocation.allocation_key
        self.outbox.allocations[key] = allocation_state(
            allocation,
            placeholder_used=key in application.placeholder_used,
            released=key in application.released,
            allocation_time_ns=self.now_ns,
        )
        node = self.nodes.nodes.get(allocation.node_id)
        if node is not None:
            self.outbox.nodes[node.node_id] = node
        self.outbox.touch(application)

    def release(
        self, application: Application, key: str, why: TerminationType, message: str
    ) -> None:
        """Decide that an allocation ends; it stays in the ledgers until that is confirmed."""
        application.mark_released(key, why)
        self._tell(application, application.allocations[key])
        self.outbox.say(
            "released_allocations", AllocationRelease(application.id, key, why, message=message)
        )

    # --- nodes ----------------------------------------------------------------------------------

    def node_improved(self, node: Node) -> None:
        """Look again at the shapes that no node had room for, with this node."""
        self.outbox.nodes[node.node_id] = node
        for shape in list(self.blocked_shapes):
            if self.nodes.fits(node, shape):
                self.open_shape(shape)
        self.replaceable.update(self.unreplaceable)
        self.unreplaceable.clear()

    def open_shape(self, shape: Shape) -> None:
        """Let the asks of a shape be considered again, in every leaf."""
        self.blocked_shapes.pop(shape, None)
        for bucket in list(shape.blocked_buckets):
            self.outbox.touch_queue(bucket.leaf)
            bucket.leaf.open(bucket)

    def capacity_changed(self) -> None:
        """Bring the root's max to the sum of the nodes; no node is no limit at all."""
        self.root.set_max(dict(self.nodes.total) or None)
        self.outbox.touch_queue(self.root)
        self.outbox.partition_changed = True

    # --- states and timers ----------------------------------------------------------------------

    def fire(self, application: Application, event: ApplicationEvent, message: str = "") -> None:
        """Move an application to its next state, keep the counts that hang on it, and tell it."""
        before = application.state
        if not application.fire(event, self.now_ns, message):
            return
        after = application.state
        for queue in application.queue.lineage():
            queue.running_apps += (after is ApplicationState.RUNNING) - (
                before is ApplicationState.RUNNING
            )
            if after is not ApplicationState.ACCEPTED:
                queue.allocating_accepted.pop(application.id, None)
            if before in (ApplicationState.RUNNING, ApplicationState.ACCEPTED):
                queue.wake()
        application.keep_promise()
        if before is ApplicationState.COMPLETING:
            self.cancel_timer(application, TimerKind.COMPLETING)
        if after is ApplicationState.COMPLETING:
            self.arm_timer(application, TimerKind.COMPLETING, COMPLETING_TIMEOUT_MS)
        self.outbox.touch(application)
        self.outbox.say(
            "updated_applications",
            UpdatedApplication(application.id, after.value, self.now_ns, message or event.value),
        )
        application.enter()

    def arm_timer(
        self, application: Application, kind: TimerKind, timeout_ms: int, detail: str = ""
    ) -> None:
        """Arm a timer from now on."""
        self.arm_timer_at(application, kind, self.now_ns + milliseconds(timeout_ms), detail)

    def arm_timer_at(
        self, application: Application, kind: TimerKind, due_ns: int, detail: str = ""
    ) -> None:
        """Arm a timer for a moment; its generation tells it from every earlier one."""
        self._generation += 1
        timer_id = timer_name(application, kind, detail)
        generation = f"{self.epoch}.{self._generation}"
        application.timers[timer_id] = (generation, due_ns)
        self.outbox.arm(TimerSet(timer_id, kind, application.id, generation, due_ns))

    def arm_execution(self, application: Application, allocation: Allocation) -> None:
        """Arm an allocation's execution timeout, if it has one, from when it was allocated."""
        timeout_ms = allocation.exec_timeout_milli_seconds
        if timeout_ms > 0:
            due_ns = (allocation.allocated_ns or self.now_ns) + milliseconds(timeout_ms)
            key = allocation.allocation_key
            self.arm_timer_at(application, TimerKind.EXECUTION, due_ns, key)

    def cancel_timer(self, application: Application, kind: TimerKind, detail: str = "") -> None:
        """Disarm a timer if it is armed."""
        timer_id = timer_name(application, kind, detail)
        armed = application.timers.pop(timer_id, None)
        if armed is not None:
            self.outbox.cancel(timer_id, armed[0])

    def armed_timers(self) -> tuple[TimerSet, ...]:
        """Return every timer that is armed, for a timer service that starts."""
        return tuple(
            TimerSet(
                timer_id, TimerKind(timer_id.split("/", 1)[0]), application.id, generation, due_ns
            )
            for application in self.applications.values()
            for timer_id, (generation, due_ns) in application.timers.items()
        )


def timer_name(application: Application, kind: TimerKind, detail: str = "") -> str:
    """Return the id of an application's timer."""
    return f"{kind.value}/{application.id}" + (f"/{detail}" if detail else "")


def allocation_of(request: AllocationAsk, node_id: str) -> Allocation:
    """Return the allocation of an ask on a node."""
    return Allocation(
        allocation_key=request.allocation_key,
        application_id=request.application_id,
        node_id=node_id,
        resource_per_alloc=request.resource_per_alloc,
        partition_name=request.partition_name,
        priority=request.priority,
        task_group_name=request.task_group_name,
        placeholder=request.placeholder,
        originator=request.originator,
        create_time_ns=request.create_time_ns,
        allocation_tags=request.allocation_tags,
        constraints=request.constraints,
        allow_preempt_self=request.allow_preempt_self,
        allow_preempt_other=request.allow_preempt_other,
        exec_timeout_milli_seconds=request.exec_timeout_milli_seconds,
    )
