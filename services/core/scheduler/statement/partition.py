"""The partition: the scheduler's whole state, and the moves that keep its ledgers consistent.

Allocations change only by ``allocate``, ``count_in``, a run's ``assume``, and ``remove``: these
update node, application, queue and users together and record the journal. Nothing here decides
anything.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from services.core.scheduler.model import resource_history
from services.core.scheduler.model.blocked_shapes import BlockedShapes
from services.core.scheduler.model.devices import need_of
from services.core.scheduler.model.evictions import EvictionWatch
from services.core.scheduler.model.failed_searches import FailedSearches
from services.core.scheduler.model.freed_nodes import FreedNodes
from services.core.scheduler.model.head_gang import HeadGang
from services.core.scheduler.model.hooks import Hooks
from services.core.scheduler.model.idle_allowance import IdleAllowance
from services.core.scheduler.model.lazy_heap import LazyHeap
from services.core.scheduler.model.lost_work import (
    JobsEvicted,
    lost_with,
    service_level,
    weight_of,
)
from services.core.scheduler.model.placement_rules import PlacementRules
from services.core.scheduler.model.reservations import ReservedNodes, rank_of
from services.core.scheduler.model.rows import (
    BY_ASK,
    GROW_AGAIN_NS,
    WAIT_NS,
    Application,
    AskGroup,
    Bucket,
    Claim,
    Node,
    Purpose,
    Queue,
    WaitList,
)
from services.core.scheduler.model.run_times import RunTimes, stated_ns
from services.core.scheduler.model.search_pass import SearchPass
from services.core.scheduler.model.settings import STALE, Settings
from services.core.scheduler.model.shapes import Ask, Shape, ShapeTable
from services.core.scheduler.model.timings import UNTIMED, Timings
from services.core.scheduler.model.usage import UsageClock
from services.core.scheduler.model.user_table import UserTable
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.filters.claims import leaves_enough
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.nodes.victim_index import VictimIndex
from services.core.scheduler.ordering import queueing
from services.core.scheduler.ordering.waiting_gangs import WaitingGangs
from services.core.scheduler.statement import application_ledger
from services.core.scheduler.statement.claims import Claims
from services.core.scheduler.statement.journal import (
    Allocated,
    AllocationChanged,
    AllocationEnded,
    AllocationReleased,
    ApplicationChanged,
    AskChanged,
    AskEnded,
    Journal,
    NodeChanged,
    PartitionChanged,
    PodsHeldChanged,
    QueueChanged,
    Row,
    RowSet,
    StateChanged,
    Stuck,
    TimePassed,
    TimerArmed,
    TimerCancelled,
)
from shared.messages.constraints import AttachedVolume, Constraints
from shared.messages.conversions import allocation_of
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    Disruption,
    DisruptionState,
    PodsHeld,
    TerminationType,
)
from shared.messages.protocol import PARTITION_TIMER, TimerFired, TimerKind, TimerOrders, TimerSet
from shared.model.gpus import GPU_SHARE, Devices
from shared.model.names import DEFAULT_PARTITION, GRACE_SECONDS, ROOT
from shared.model.numbers import parse_int64, saturated
from shared.model.reasons import Refusal
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    fits_room,
    subtract_into,
)
from shared.model.scheduler_settings import NONE
from shared.model.states import ApplicationEvent, ApplicationState
from shared.model.units import milliseconds, seconds

COMPLETING_TIMEOUT_MS = 30_000
DEFAULT_GRACE_S = 30  # termination grace of a pod without its own; every victim has it
SHRINK_CHECK_NS = seconds(1)
MAX_HELD = 10_000  # applications shown with pods held back; further ones are not shown
CLEANER_INTERVAL_MS = 10_000
NO_ROOM_HELPS = {"": 1}  # a request of a type that no node has


@dataclass(eq=False, repr=False)
class Partition:
    """The state of one partition: nodes, queues, applications, claims, timers."""

    name: str = DEFAULT_PARTITION
    rm_id: str = ""
    finds_pods: bool = False  # the resource manager answers searches for a pod
    epoch: int = 0
    now_ns: int = 0
    settings: Settings = field(default_factory=Settings)
    hooks: Hooks | None = None  # of plugins
    nodes: NodeTable = field(default_factory=NodeTable)
    root: Queue = field(default_factory=lambda: Queue(ROOT, is_leaf=False))
    queues: dict[str, Queue] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    below_minimum: dict[str, Application] = field(default_factory=dict)  # stale gangs, by id
    above_minimum: dict[str, Application] = field(default_factory=dict)  # gangs that make way
    made_way: dict[str, Application] = field(default_factory=dict)  # gangs that do not grow yet
    moved: dict[str, Claim] = field(default_factory=dict)  # claims of moved pods, by pod key
    restarting: dict[Claim, None] = field(default_factory=dict)  # reservations of restarted pods
    releasing: dict[str, Application] = field(default_factory=dict)  # by allocation, until it ends
    leaving: dict[str, Application] = field(default_factory=dict)  # releasing but not preempted
    released_ns: dict[str, int] = field(default_factory=dict)  # victims: time of release, by key
    configured: object = None  # the parsed configuration in use
    foreign: dict[str, str] = field(default_factory=dict)  # foreign pods: key -> node
    shapes: ShapeTable = field(default_factory=ShapeTable)
    users: UserTable = field(default_factory=UserTable)
    rules: PlacementRules = field(default_factory=PlacementRules)
    nominated: dict[str, str] = field(default_factory=dict)  # nominated foreign pods: key -> node
    blocked_shapes: BlockedShapes = field(default_factory=BlockedShapes)
    freed: FreedNodes = field(default_factory=FreedNodes)  # nodes that may fit blocked shapes
    reserved_to_try: dict[Claim, None] = field(default_factory=dict)
    reserved_nodes: ReservedNodes = field(default_factory=ReservedNodes)
    shapes_to_reserve: dict[Shape, None] = field(default_factory=dict)
    unplaced: dict[Bucket, None] = field(default_factory=dict)  # more nodes may help; not reported
    growing: dict[Bucket, None] = field(default_factory=dict)  # of growth, until others were tried
    waiting_gangs: WaitingGangs = field(default_factory=WaitingGangs)  # gangs without places
    head_gang: HeadGang | None = None
    idle_allowance: IdleAllowance = field(default_factory=IdleAllowance)
    run_times: RunTimes = field(default_factory=RunTimes)
    starvation_times: list[tuple[int, int, Application]] = field(default_factory=list)  # a heap
    too_large: dict[Application, None] = field(default_factory=dict)  # for all nodes, when empty
    starved_admitted: dict[Application, None] = field(
        default_factory=dict
    )  # admitted, not started yet
    short_of_nodes: dict[Queue, None] = field(default_factory=dict)  # leaves, at most two
    is_growing: bool = False  # everything else was tried in this cycle
    is_capacity_new: bool = False  # the set of too large gangs must be recomputed
    preemption_due_ns: int = 0
    lost_work: list[int] = field(default_factory=lambda: [0, 0])  # GPU and vcore ms, by evictions
    jobs_evicted: JobsEvicted = field(default_factory=JobsEvicted)
    evictions: EvictionWatch = field(default_factory=EvictionWatch)
    failed_searches: FailedSearches = field(default_factory=FailedSearches)
    searches: SearchPass | None = None  # a search pass that continues with the next batch
    victims: VictimIndex = field(init=False)
    reservations_due_ns: int = 0  # when the next ask is old enough for a reservation; 0: unknown
    replaceable: dict[Application, None] = field(default_factory=dict)
    unreplaceable: dict[Application, None] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    config_checksum: str = ""
    config_text: str = ""
    config_partitions: tuple[str, ...] = ()  # of the configuration in use
    is_removed: bool = False  # no longer configured: it ends when it is empty
    config_error: str = ""
    config_time_ns: int = 0
    config_extra: tuple[tuple[str, str], ...] = ()  # the settings, apart from the queues
    started_ns: int = 0
    timings: Timings = UNTIMED
    has_readers: bool = True  # of state events; if not, no timer is armed for reports only
    failed_nodes: int = 0  # rejected nodes
    rejected_asks: int = 0
    pods_held: dict[str, PodsHeld] = field(default_factory=dict)  # by application, known or not
    config_warnings: tuple[str, ...] = ()
    goes_by_usage: str = ""  # the first queue whose configuration orders by usage over time
    preemption_enabled: bool = True
    quota_preemption_enabled: bool = False
    timers: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> generation, due
    _sequence: int = 0
    _generation: int = 0

    def __post_init__(self) -> None:
        self.queues = self.queues or {ROOT: self.root}  # exists without a configuration
        self.victims = VictimIndex(self.nodes)
        self.claims = Claims(self.nodes, self.journal)
        self._to_go: LazyHeap[str] = LazyHeap(lambda key: self.released_ns.get(key, -1))  # victims
        self.evicted_for: dict[str, tuple[str, str]] = {}  # by key: the application and its ask

    def pass_time(self, now_ns: int) -> None:
        """Advance the clock."""
        self.now_ns = now_ns
        if self.usage is not None:
            self.usage.pass_time(now_ns)
        self.journal.record(TimePassed(now_ns))

    @property
    def usage(self) -> UsageClock | None:
        """Return the clock of usage over time, None if no setting uses it."""
        return self.root.tree.usage

    def configure(self, **values: object) -> None:
        """Set fields of the partition itself."""
        for name, value in values.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.journal.record(PartitionChanged())

    def hold_pods(self, held: PodsHeld) -> None:
        """Record the pods of an application that the resource manager holds back.

        Of at most MAX_HELD applications.
        """
        known = self.pods_held
        if held.held and held.application_id not in known and len(known) >= MAX_HELD:
            return
        if held.held:
            known[held.application_id] = held
        elif known.pop(held.application_id, None) is None:
            return
        self.journal.record(PodsHeldChanged(held))

    def set(self, row: Row, **values: object) -> None:
        """Set fields of a row that are in no sum, and record it for reports."""
        for name, value in values.items():
            assert hasattr(row, name), name
            setattr(row, name, value)
        self.journal.record(RowSet(row, values))

    def use(self, hooks: Hooks | None) -> None:
        """Use the hooks of plugins from now on; called on an empty partition."""
        self.hooks = hooks
        self.nodes.use_hooks(hooks)

    def may_take(self, action: str, victim: Allocation, preemptor: Application) -> bool:
        """Whether plugins allow an action to evict an allocation for an application."""
        return self.hooks is None or self.hooks.may_take(action, victim, preemptor)

    def agree(self, action: str, victims: list[Allocation], preemptor: Application) -> bool:
        """Whether plugins allow an action to evict all of some allocations for an application."""
        return self.hooks is None or self.hooks.agree(action, victims, preemptor)

    def no_capacity(
        self, application: Application, amount: ResourceView
    ) -> tuple[Refusal, WaitList] | None:
        """Return why plugins refuse an application an amount, and its waiting list; None if not."""
        return None if self.hooks is None else self.hooks.no_capacity(application, amount)

    def next_sequence(self) -> int:
        """Return the next number of the order of arrival."""
        self._sequence += 1
        return self._sequence

    def in_order_asking(self) -> list[Application]:
        """Return the applications with waiting asks, in order of arrival."""
        return sorted(self.root.asking, key=lambda application: application.sequence)

    # --- asks and allocations -------------------------------------------------------------------

    def add_ask(self, application: Application, request: AllocationAsk, sequence: int = 0) -> None:
        """Add an ask to its application, at its old position if ``sequence`` is given."""
        self.learn(request.constraints)
        if GPU_SHARE in request.resource_per_alloc:
            self.share_devices()
        shape = self._shape_of(application, request)
        created_ns = request.create_time_ns or self.now_ns
        ask = Ask(request, shape, sequence or self.next_sequence(), created_ns)
        application_ledger.add_ask(application, ask)
        bucket = application.group_of[ask.key].bucket
        if bucket.refusal is not None:
            self.unplaced[bucket] = None
            if request.constraints.required_node and bucket.blocked_at is None:
                queueing.requeue_bucket(bucket)  # the ask joins the order of asks for its node
        if shape in self.blocked_shapes:
            self.check_old_asks_at(created_ns + self.settings.reservation_delay_ns)
        self.ask_joined(application, ask)

    def _shape_of(self, application: Application, request: AllocationAsk) -> Shape:
        """Return the present shape of an ask, and count its use."""
        labels = self.nodes.pods.labels_of(request.allocation_tags)
        times = self._run_times(application, request)
        gang_part = self.nodes.domains.gang_part_of(application.id, request.task_group_name)
        groups = application.task_groups
        counts = groups.get(request.task_group_name) if groups else None
        if counts is not None and counts.avoided:
            constraints = counts.avoiding(request.constraints, self.now_ns)
            request = replace(request, constraints=constraints)
        return self.shapes.shape_of(request, labels, *times, gang_part)

    def share_devices(self) -> None:
        """Add GPU shares to the nodes' capacity, from the first request for one on."""
        if self.nodes.devices.are_shared:
            return
        for node in self.nodes.share_devices():
            self.journal.record(RowSet(node, {"capacity": dict(node.capacity)}))
            self.journal.record(NodeChanged(node))
        self.capacity_changed()

    def _run_times(self, application: Application, request: AllocationAsk) -> tuple[int, int]:
        """Return the maximum and the expected run time of an ask in ns; 0: unknown or unused.

        Without a stated time the expected one is predicted; with ``shortestFirst`` also for others,
        but never above the stated time.
        """
        backfills = self.settings.backfill and self.settings.reserves_for_gang
        if not (backfills or self.nodes.spares.is_on):
            return 0, 0
        timeout_ms = request.exec_timeout_milli_seconds
        stated = stated_ns(application, request.allocation_tags, timeout_ms, self.now_ns)
        if not backfills or (stated and not self.settings.shortest_first):
            return stated, 0
        times, pod = self.run_times, request.resource_per_alloc
        if stated:
            return stated, min(stated, times.predicted_ns(application, pod) or stated)
        return 0, times.guessed_ns(application, pod)

    def ask_joined(self, application: Application, ask: Ask) -> None:
        """Record that an ask waits."""
        if self.nodes.order.score.looks_at_ask and not ask.request.placeholder:
            self.nodes.order.recent.asked(ask.shape.asked_for)
        self.journal.record(AskChanged(application, ask))
        if self.moved:
            self._replace_moved(application, ask)

    def learn(self, constraints: Constraints) -> None:
        """Register the label keys of constraints' pod selectors; shapes include these labels."""
        pods = self.nodes.pods
        if not pods.learn(constraints):
            return
        for application in self.applications.values():
            asks = [
                ask
                for ask in application.asks()
                if pods.labels_of(ask.request.allocation_tags) != ask.shape.labels
            ]
            if asks:
                self._shape_again(application, asks)

    def _shape_again(self, application: Application, asks: list[Ask]) -> None:
        """Recompute the shapes of waiting asks because more of their labels count."""
        for ask in asks:
            if ask.key in application.reservations:
                self.unreserve(application.reservations[ask.key])
            application_ledger.remove_ask(application, ask.key)
            self._release_shape(ask.shape)
            shape = self._shape_of(application, ask.request)
            application_ledger.add_ask(application, replace(ask, shape=shape))
        queueing.enter(application)
        for ask in asks:
            reshaped = application.group_of[ask.key].asks[ask.key]
            self.journal.record(AskChanged(application, reshaped))

    def record_asks(self, application: Application) -> None:
        """Report all asks of an application again: their bucket has changed."""
        for ask in application.asks():
            self.journal.record(AskChanged(application, ask))

    def remove_ask(self, application: Application, key: str, why: str = "") -> Ask | None:
        """Remove an ask and its reservation, and reorder the rest; None if it is unknown.

        ``why`` it ends is a TerminationType, "" if it is allocated.
        """
        order, group = application.order, application.group_of.get(key)
        ask = self._take_ask(application, key, why)
        if ask is not None and group is not None:
            queueing.ask_removed(application, group, ask, order)
        return ask

    def _take_ask(self, application: Application, key: str, why: str) -> Ask | None:
        ask = application_ledger.remove_ask(application, key)
        if ask is not None:
            if key in application.reservations:
                self.unreserve(application.reservations[key])
            if key in application.claims_for(Purpose.PLACEHOLDERS):
                self.end_placeholder_claim(application, key)
            self._release_shape(ask.shape)
            self.journal.record(AskEnded(application, ask, why))
        return ask

    def present_shape(self, ask: Ask) -> Shape:
        """Return the shape of an ask that does not wait, by the label keys registered now."""
        labels = self.nodes.pods.labels_of(ask.request.allocation_tags)
        if labels == ask.shape.labels:
            return ask.shape
        return replace(ask.shape, labels=labels, view=None, candidates=None, plan=None)

    def dequeue(self, application: Application, ask: Ask) -> None:
        """Remove an ask that is placed from its queue; the next asks move up."""
        order, group = application.order, application.group_of[ask.key]
        application.positions[ask.key] = ask.sequence
        self._take_ask(application, ask.key, "")
        queueing.requeue_group(application, group, order)

    def _release_shape(self, shape: Shape, times: int = 1) -> None:
        if self.shapes.release_shape(shape, times):
            self.blocked_shapes.discard(shape)
            self.root.may_fit.pop(shape, None)
            self.nodes.pods.waiting.remove(shape)
            self.shapes_to_reserve.pop(shape, None)

    def allocate(self, application: Application, ask: Ask, node: Node) -> Allocation:
        """Turn an ask into an allocation on a node, in every ledger, and record it."""
        allocation = allocation_of(ask.request, node.node_id)
        allocation = self.count_in(application, allocation, node, is_new=True)
        self.dequeue(application, ask)  # ends its reservation, after the capacity was allocated
        return allocation

    def assume(self, group: AskGroup, ask: Ask, node: Node) -> Allocation:
        """Turn the first ask of a group into an allocation.

        The caller, a run, updates the sums and the order.
        """
        application, key = group.application, ask.key
        held: Devices = ()
        if ask.shape.on_devices is not None and node.devices:
            held = self.nodes.devices.give(node, key, ask.shape.asked_for[0])
        allocation = allocation_of(ask.request, node.node_id, devices=held)
        group.take_head(ask)
        del application.group_of[key]
        application.positions[key] = ask.sequence
        application.hold_allocation(allocation, self.now_ns)
        self.victims.placed(application, allocation)
        node.allocations[key] = allocation
        return allocation

    def _on_devices(self, allocation: Allocation, node: Node) -> Allocation:
        """Return an allocation with its devices on its node."""
        held = self.nodes.devices.of(node, allocation.allocation_key)
        return allocation if allocation.devices == held else replace(allocation, devices=held)

    def count_in(
        self, application: Application, allocation: Allocation, node: Node, *, is_new: bool = False
    ) -> Allocation:
        """Add an allocation to every ledger, even beyond limits; return it with its devices.

        ``is_new``: the resource manager has yet to bind it.
        """
        allocation = self.add_allocation(application, allocation, node, is_new=is_new)
        self.change_usage(application, {}, allocation.resource_per_alloc)
        return allocation

    def add_allocation(
        self, application: Application, allocation: Allocation, node: Node, *, is_new: bool
    ) -> Allocation:
        """Add an allocation to its node and application, but not to queues and users."""
        if GPU_SHARE in allocation.resource_per_alloc:
            self.share_devices()
        if allocation.allocation_key not in node.allocations:
            self.nodes.place(node, allocation, None if is_new else allocation.devices)
            self.requeue_for_pods()
        if is_new and node.devices:
            allocation = node.allocations[allocation.allocation_key] = self._on_devices(
                allocation, node
            )
        application_ledger.add_allocation(application, allocation, self.now_ns)
        if application.enforces_minimum:
            self.note_minimum(application)
        if application.yields_surplus:
            self.note_surplus(application)
        self.victims.placed(application, allocation)
        self.journal.record(Allocated(application, allocation, is_new))
        self.journal.record(NodeChanged(node))
        return allocation

    def group_placed(self, group: AskGroup, times: int) -> None:
        """Count asks of a group that a run has placed as no longer waiting."""
        application_ledger.count_placed(group.application, group, times)
        self._release_shape(group.bucket.shape, times)

    def count_run(self, application: Application, total: Resource, *, is_placeholder: bool) -> None:
        """Add a run's amounts to the application's sums; not to users, nodes and queues."""
        application_ledger.count_run(application, total, is_placeholder=is_placeholder)
        if application.enforces_minimum:
            self.note_minimum(application)

    def count_used(self, application: Application, total: Resource) -> None:
        """Add a run's amounts to the sums of the application's users."""
        for tracker in application.trackers:
            tracker.count_in(application.queue, application.id, total)

    def remove(self, application: Application, key: str, ended: str = "") -> Allocation | None:
        """Remove an allocation from every ledger; None if there is none.

        ``ended`` is the type of the release that ends it, "" if there is none.
        """
        allocation = self.remove_allocation(application, key, ended)
        if allocation is not None:
            self.change_usage(application, allocation.resource_per_alloc, {})
        return allocation

    def remove_allocation(
        self, application: Application, key: str, ended: str = ""
    ) -> Allocation | None:
        """Remove an allocation from its node and application, but not from queues and users.

        None: there is none with the key. ``ended`` is as in ``remove``.
        """
        why = application.released.get(key)
        allocation = application_ledger.remove_allocation(application, key)
        if allocation is None:
            return None
        self._is_released_no_more(key)
        self.released_ns.pop(key, None)
        if application.enforces_minimum:
            self.note_minimum(application)
        if application.yields_surplus:
            self.note_surplus(application)
        self.evicted_for.pop(key, None)
        self.victims.gone(allocation)
        self.victims.forget(key)
        is_preempted = why == TerminationType.PREEMPTED_BY_SCHEDULER
        self._remember(application, allocation, is_preempted=is_preempted)
        self.free_node(allocation)
        self.retry_replacements()
        claim = application.moved(key)
        if claim is not None:
            self._moved_has_gone(claim)
        elif is_preempted:
            application.queue.change_preempting(allocation.resource_per_alloc, {})
        is_node_gone = allocation.node_id not in self.nodes.nodes
        ended = ended or why or ""
        self.journal.record(AllocationEnded(application, allocation, ended, is_node_gone))
        return allocation

    def change_usage(
        self, application: Application, before: ResourceView, after: ResourceView
    ) -> None:
        """Change the usage of an application's queues and users by one allocation.

        What they blocked is requeued if the usage falls. The application's allocations must be
        updated before: without any it no longer counts as running.
        """
        if before == after:
            return
        queue, is_last = application.queue, not application.allocations
        if after:
            queue.allocate(after)
        if before:
            queueing.release(queue, before)
        for tracker in application.trackers:
            if after:
                tracker.count_in(queue, application.id, after)
            if before:
                queueing.count_out(tracker, queue, application.id, before, is_last=is_last)

    def resize(
        self,
        application: Application,
        key: str,
        resource: ResourceView,
        volumes: tuple[AttachedVolume, ...],
    ) -> None:
        """Update every ledger to an allocation's new size and volumes."""
        allocation = application.allocations[key]
        before = allocation.resource_per_alloc
        queue = application.queue
        self.victims.gone(allocation)
        constraints = replace(allocation.constraints, volumes=volumes)
        is_on_them = need_of(before, constraints) == need_of(resource, constraints)
        stated = allocation.devices if is_on_them else ()
        allocation = replace(
            allocation, resource_per_alloc=resource, constraints=constraints, devices=stated
        )
        application_ledger.count_size(application, allocation, before)
        self.placeholder_changed(application, key, resource)
        node = self.nodes.nodes.get(allocation.node_id)
        if node is not None:
            self.nodes.free(node, key)
            self.nodes.place(node, allocation, stated)
            self.node_improved(node)
        self.victims.placed(application, allocation)
        self.change_usage(application, before, resource)
        is_preempted = application.released.get(key) == TerminationType.PREEMPTED_BY_SCHEDULER
        if is_preempted and application.moved(key) is None:
            queue.change_preempting(before, resource)
        self.requeue_for_pods()
        self.journal.record(AllocationChanged(application, allocation))

    def _remember(
        self, application: Application, allocation: Allocation, *, is_preempted: bool
    ) -> None:
        """Add an ended allocation to its application's history of usage and run times."""
        run_ns = self.now_ns - application.placed_ns.pop(allocation.allocation_key, self.now_ns)
        is_used = self.settings.reservations != NONE
        if is_used and not (is_preempted or allocation.placeholder):
            timeout_ms = allocation.exec_timeout_milli_seconds
            stated = stated_ns(
                application, allocation.allocation_tags, timeout_ms, self.now_ns - run_ns
            )
            self.run_times.ended(application, allocation.resource_per_alloc, run_ns, stated)
        if application.queue.settings.service_levels_ns:
            self._count_service(application, allocation, run_ns)
        node = self.nodes.nodes.get(allocation.node_id)
        attributes = node.attributes if node is not None else {}
        resource_history.count(
            application.history,
            allocation,
            attributes.get(resource_history.INSTANCE_TYPE, resource_history.UNKNOWN),
            run_ns,
            preempted=is_preempted,
        )

    def _count_service(self, application: Application, allocation: Allocation, run_ns: int) -> None:
        """Count the service of an ended pod, and update its application's service level."""
        weights = weight_of(allocation)
        one, two = (had + by * run_ns for had, by in zip(application.served, weights, strict=True))
        application.served = one, two
        if application.evicted_ns:
            self.jobs_evicted.evicted(application)
        level = service_level(application, self.now_ns)
        if level != application.service_level:
            application.service_level = level
            queueing.reorder(application)
            queueing.enter(application)

    def free_node(self, allocation: Allocation) -> None:
        """Remove an allocation from its node, if the node exists."""
        node = self.nodes.nodes.get(allocation.node_id)
        if node is not None and allocation.allocation_key in node.allocations:
            self.nodes.free(node, allocation.allocation_key)
            self.requeue_for_pods()
            self.node_improved(node)
            if self.above_minimum:
                self.check_preemption_at(self.now_ns + SHRINK_CHECK_NS)

    def release(
        self, application: Application, key: str, why: TerminationType, message: str
    ) -> None:
        """Start to release an allocation; it stays in the ledgers until that is confirmed."""
        allocation = self.mark_released(application, key, why)
        if why is TerminationType.PREEMPTED_BY_SCHEDULER:
            for at, lost in enumerate(lost_with(application, allocation, self.now_ns)):
                self.lost_work[at] += lost
            application.evicted_ns = self.now_ns
            application.queue.change_preempting({}, allocation.resource_per_alloc)
        self.journal.record(AllocationReleased(application, allocation, why, message))

    def mark_released(self, application: Application, key: str, why: TerminationType) -> Allocation:
        """Record that an allocation is being released, and why; return it."""
        allocation = application.allocations[key]
        ahead = application.moved(key)
        if ahead is not None and ahead.is_ahead:
            self.end_moved(ahead)
        self.failed_searches.changed()
        self.victims.gone(allocation)
        application.mark_released(key, why)
        if application.yields_surplus:
            self.note_surplus(application)
        application_ledger.releasing_changed(application)
        self.releasing[key] = application
        if why != TerminationType.PREEMPTED_BY_SCHEDULER:
            self.leaving[key] = application
        is_victim = why == TerminationType.PREEMPTED_BY_SCHEDULER or allocation.released
        if is_victim and self.settings.stuck_after_ns >= 0:
            self.released_ns[key] = self.now_ns
            gone_ns = self.now_ns + _grace_ns(allocation)
            self._to_go.push((gone_ns,), self.now_ns, key)
            self.check_preemption_at(self._stuck_at_ns(gone_ns))
        self.victims.released(application, allocation)
        return allocation

    def _is_released_no_more(self, key: str) -> None:
        """Forget that an allocation is being released: it has ended, stays, or is stuck."""
        if self.releasing.pop(key, None) is not None:
            self.leaving.pop(key, None)

    def _stuck_at_ns(self, gone_ns: int) -> int:
        """Return when a victim whose grace period ends at ``gone_ns`` counts as stuck."""
        return saturated(gone_ns + self.settings.stuck_after_ns)

    def find_stuck(self) -> None:
        """Stop waiting for victims that have not ended in time.

        Their capacity is no longer expected: preemptors that lack it search again. A stuck victim
        stays in the ledgers of its node and queue until it ends.
        """
        while (first := self._to_go.first()) is not None:
            (gone_ns,), key = first
            due_ns = self._stuck_at_ns(gone_ns)
            if due_ns > self.now_ns:
                self.check_preemption_at(due_ns)
                return
            self._become_stuck(self.releasing[key], key)

    def _become_stuck(self, application: Application, key: str) -> None:
        allocation = application.allocations[key]
        claim = application.moved(key)
        if claim is not None:
            self.end_moved(claim)
        self.failed_searches.changed()
        application.stuck[key] = self.released_ns.pop(key)
        self._is_released_no_more(key)
        self.victims.stuck(allocation)
        self.journal.record(AllocationChanged(application, allocation))
        self.journal.record(Stuck(application, allocation))
        node = self.nodes.nodes.get(allocation.node_id)
        if node is None:
            return
        self._retry_shares(node)
        room = dict(node.available)
        for other, going in node.allocations.items():
            owner = self.releasing.get(other)
            if owner is not None and other not in owner.replacing:
                add_into(room, going.resource_per_alloc)
        for reservation in list(node.reservations.values()):
            if reservation.has_preempted:
                if fits_room(room, reservation.ask.shape.resource):
                    subtract_into(room, reservation.ask.shape.resource)
                else:
                    self._preempt_again(reservation)

    def disrupt(self, application: Application, news: Disruption) -> None:
        """Record whether an allocation may be evicted now; blocked searches are repeated."""
        allocation = application.allocations[news.allocation_key]
        self.victims.disrupt(application, allocation, news)
        node = self.nodes.nodes.get(allocation.node_id)
        if news.state is DisruptionState.BARRED:
            return
        for reservation in node.reservations.values() if node is not None else ():
            reservation.retry()
        self.check_preemption_at(self.now_ns)

    def cancel_eviction(self, application: Application, key: str) -> None:
        """Cancel an eviction that was refused; its preemptor searches again."""
        allocation = application.allocations[key]
        claim = application.moved(key)
        if claim is not None:
            self.end_moved(claim)
        self.victims.gone(allocation)
        self.victims.budgets.spare(key)
        why = application.mark_kept(key)
        if application.yields_surplus:
            self.note_surplus(application)
        application_ledger.releasing_changed(application)
        application.stuck.pop(key, None)
        self._is_released_no_more(key)
        self.released_ns.pop(key, None)
        if why == TerminationType.PREEMPTED_BY_SCHEDULER:  # a recovered core knows another type
            application.queue.change_preempting(allocation.resource_per_alloc, {})
        self.victims.released(application, allocation)
        winner_id, ask_key = self.evicted_for.pop(key, ("", ""))
        winner = self.applications.get(winner_id)
        node = self.nodes.nodes.get(allocation.node_id)
        if node is not None:
            self._retry_shares(node)
        for reservation in list(winner.reservations.values()) if winner is not None else ():
            if reservation.has_preempted and ask_key in ("", reservation.ask.key):
                self._preempt_again(reservation)
        self.check_preemption_at(self.now_ns)
        self.journal.record(AllocationChanged(application, allocation))

    def _retry_shares(self, node: Node) -> None:
        """Retry asks that wait for part of a device: it may not be released any more."""
        for claim in node.reservations.values():
            if claim.purpose is Purpose.SHARE:
                claim.retry()

    def _preempt_again(self, reservation: Claim) -> None:
        """Let an ask search for victims again at once, because its last victims stayed.

        An ask with a required node keeps its reservation.
        """
        self.set(reservation.ask, preemption_checked_ns=0)
        if reservation.is_required:
            self.set(reservation, has_preempted=False)
            self.set(reservation.ask, has_preempted=False)
            reservation.retry()
        else:
            self.unreserve(reservation)

    def note_minimum(self, application: Application) -> None:
        """Record since when a gang, or a part of it, has been below its minimum.

        Only gangs that were whole count. A pod being released counts until it has ended. A check is
        scheduled for the end of the grace period.
        """
        is_watched = STALE in self.settings.actions
        parts = application.parts_below_minimum() if is_watched else ()
        known = application.stale_since_ns
        if parts or known:
            since_ns = {name: known.get(name, self.now_ns) for name in parts}
            if since_ns != known:
                self.set(application, stale_since_ns=since_ns)
        if "" not in parts and application.is_whole:
            self.evictions.became_whole(application.id)
        if not parts:
            self.below_minimum.pop(application.id, None)
            return
        self.below_minimum[application.id] = application
        grace_ns = self.grace_of(application)
        if grace_ns >= 0:
            self.check_preemption_at(min(application.stale_since_ns.values()) + grace_ns)

    def note_surplus(self, application: Application) -> None:
        """Record whether a gang has pods that make way for others; if so, who waits may search."""
        if not application.has_surplus:
            self.above_minimum.pop(application.id, None)
            return
        self.above_minimum[application.id] = application
        self.check_preemption_at(self.now_ns + SHRINK_CHECK_NS)

    def make_way(self, application: Application) -> None:
        """Record that a gang lost a pod above its minimum: it does not grow for GROW_AGAIN_NS."""
        self.set(application, grows_at_ns=self.now_ns + GROW_AGAIN_NS)
        self.made_way.pop(application.id, None)
        self.made_way[application.id] = application
        queueing.enter(application)

    def begin_with_others(self) -> None:
        """Begin a cycle: gangs that make way grow after everything else was tried."""
        self.is_growing = False

    def put_growth_aside(self, bucket: Bucket) -> None:
        """Leave a bucket whose next ask is growth out until ``take_growth_up``."""
        bucket.leaf.active_buckets.withdraw(bucket)
        self.growing[bucket] = None

    def take_growth_up(self) -> None:
        """Queue the growth that was put aside: nobody else can use what is free."""
        growing, self.growing = self.growing, {}
        self.is_growing = True
        for bucket in growing:
            bucket.leaf.active_buckets.push(bucket)
            bucket.leaf.activate()

    def let_grow(self) -> None:
        """Let gangs grow again that made way long enough ago; schedule it for the next."""
        for name, application in list(self.made_way.items()):
            if application.grows_at_ns > self.now_ns:
                self.check_preemption_at(application.grows_at_ns)
                return
            del self.made_way[name]
            self.set(application, grows_at_ns=0)
            queueing.enter(application)

    def check_stale_gangs(self) -> None:
        """Schedule a check at the first end of a grace period of a gang below its minimum."""
        due_ns = [
            since_ns + self.grace_of(application)
            for application in self.below_minimum.values()
            for since_ns in application.stale_since_ns.values()
            if self.grace_of(application) >= 0
        ]
        later = [each for each in due_ns if each > self.now_ns]
        if later:
            self.check_preemption_at(min(later))

    def grace_of(self, application: Application) -> int:
        """Return for how many ns a gang may stay below its minimum; negative: unlimited."""
        own_ns = application.request.gang.staleness_grace_ns
        return self.settings.staleness_grace_ns if own_ns is None else own_ns

    # --- nodes ----------------------------------------------------------------------------------

    def node_improved(self, node: Node) -> None:
        """Mark a node with more capacity, so that blocked asks are tried on it."""
        self.journal.record(NodeChanged(node))
        for reservation in node.reservations.values():
            reservation.retry()
        if self.blocked_shapes.rows:
            self.freed.improved[node] = None
        self.waiting_gangs.node_improved(node)
        self.retry_replacements()

    def shapes_for(self, node: Node) -> list[Shape]:
        """Return the blocked shapes whose amounts fit a node now."""
        if node.claimed & BY_ASK and not self.settings.backfill:
            return []
        found = self.blocked_shapes.fitting(node.available)
        return self._passing(node, found) if found and node.is_held else found

    def _passing(self, node: Node, shapes: list[Shape]) -> list[Shape]:
        """Return the shapes that may backfill a node claimed by the head gang.

        All at once, because most shapes behind the gang are refused: they run too long or need its
        capacity.
        """
        claim, window, blocked = node.head_claim, self.nodes.backfill_window, self.blocked_shapes
        if claim is None or not self.settings.backfill:
            return []
        passing = dict.fromkeys(blocked.in_time(window.backfill_ns, window.predicted_ns))
        passing.update(dict.fromkeys(blocked.fitting(claim.leaves)))
        passing.update((bucket.shape, None) for bucket in self._before_head_gang())
        return [*filter(passing.__contains__, shapes)]

    def _before_head_gang(self) -> Iterator[Bucket]:
        """Yield the buckets blocked by nodes that come before the head gang."""
        yield from self.root.newly_blocked
        if self.head_gang is not None:
            yield from self.head_gang.before

    def may_help(self, node: Node, shape: Shape) -> bool:
        """Whether a node may fit a blocked shape, apart from its capacity and devices."""
        return (
            node.schedulable
            and (not node.is_held or self._may_pass_head_gang(node, shape))
            and not self.nodes.pods.waiting.are_in_the_way(shape, node.row)
            and self.nodes.filters.admits.holds(node, shape)
        )

    def _may_pass_head_gang(self, node: Node, shape: Shape) -> bool:
        """Whether a shape may use a node that the head gang claims.

        It ends in time, fits what the gang leaves, or has asks that come before the gang.
        """
        if not self.settings.backfill:
            return False
        if self.nodes.backfill_window.may_backfill(shape) or leaves_enough(node, shape):
            return True
        lately, before = self.root.newly_blocked, self.head_gang.before if self.head_gang else {}
        buckets = self.root.blocked_buckets.get(shape, ())
        return any(bucket in before or bucket in lately for bucket in buckets)

    def take_unplaced(self) -> list[Bucket]:
        """Return the buckets that no node fitted since the last call."""
        buckets, self.unplaced = self.unplaced, {}
        return list(buckets)

    def check_replacements(self, application: Application) -> None:
        """Queue a check of an application for placeholders to replace."""
        self.replaceable[application] = None

    def next_to_replace(self) -> Application:
        """Remove and return the next application of that queue."""
        application = next(iter(self.replaceable))
        del self.replaceable[application]
        return application

    def wait_to_replace(self, application: Application) -> None:
        """Let an application's real asks wait for another placeholder, or another node."""
        self.unreplaceable[application] = None

    def retry_replacements(self) -> None:
        """Queue the applications again that found no node for a replacement."""
        self.replaceable.update(self.unreplaceable)
        self.unreplaceable.clear()

    def requeue_shape(self, shape: Shape) -> None:
        """Requeue the asks of a shape in every leaf, reserved ones first."""
        self.blocked_shapes.discard(shape)
        self.root.may_fit.pop(shape, None)
        self.nodes.pods.waiting.remove(shape)
        for reservation in self.reserved_nodes.of_shape(shape):
            reservation.retry()
        for bucket in list(self.root.blocked_buckets.get(shape, ())):
            self.journal.record(QueueChanged(bucket.leaf))
            queueing.requeue_bucket(bucket)

    def wake(self, shape: Shape) -> None:
        """Let the blocked buckets of a shape be tried in their turn, its reservations first."""
        for reservation in self.reserved_nodes.of_shape(shape):
            reservation.retry()
        self.root.wake(shape)

    def write_requeued(self) -> None:
        """Record the rows whose refusals were withdrawn, for reports."""
        for row in self.root.requeued:
            self.journal.record(RowSet(row, {}))
        self.root.requeued.clear()

    def requeue_for_pods(self) -> None:
        """Requeue the shapes that pods' affinities blocked, where those pods have changed."""
        for shape in self.nodes.pods.waiting.take_noted():
            self.requeue_shape(shape)
        if not self.nodes.pods_changed:
            return
        self.nodes.pods_changed = False
        self.waiting_gangs.pods_changed()

    def requeue_gangs(self, *, is_all: bool = False) -> None:
        """Requeue gangs that may have their places now: the first of each leaf, or all.

        With ``shortestFirst`` all, because the leaf's order does not tell which is first.
        """
        settings = self.settings
        is_all = is_all or settings.shortest_first
        self.waiting_gangs.requeue(self.nodes, backfill=settings.backfill, is_all=is_all)

    def requeue_for_domains(self) -> None:
        """Requeue the shapes that pods' affinities blocked, because nodes and domains changed."""
        self.nodes.pods.waiting.note_all()
        self.nodes.pods_changed = True
        self.requeue_for_pods()

    def refuse_by_nodes(self, bucket: Bucket, refusal: Refusal) -> None:
        """Block a bucket because no node fits its shape; its asks may get reservations."""
        shape = bucket.shape
        bucket.leaf.block(bucket, refusal, None, self.now_ns)
        nodes = self.nodes
        open_rows = nodes.filters.facts.pods.rows(shape, When.NOW, nodes.columns.all)
        is_closed = open_rows is not None and not open_rows.any()
        self.blocked_shapes.add(shape, NO_ROOM_HELPS if is_closed else shape.resource)
        nodes.pods.waiting.add(shape, None if is_closed else open_rows)
        self.shapes_to_reserve[shape] = None
        self.unplaced[bucket] = None
        self.journal.record(QueueChanged(bucket.leaf))

    def check_reservations(self, shapes: Iterable[Shape] | None = None) -> None:
        """Schedule a check of blocked asks, of some shapes or all, for more reservations."""
        blocked = self.blocked_shapes if shapes is None else shapes
        self.shapes_to_reserve.update(dict.fromkeys(blocked))

    def check_old_asks(self) -> None:
        """Check now which asks are old enough for a reservation."""
        self.reservations_due_ns = 0
        self.check_reservations()

    def check_old_asks_at(self, due_ns: int) -> None:
        """Schedule the check for asks that are old enough for a reservation."""
        if self.settings.reserves_for_asks and due_ns > self.now_ns:
            self._check_at(due_ns)

    def check_head_gang_at(self, due_ns: int) -> None:
        """Schedule a check of the nodes reserved for the head gang."""
        self._check_at(due_ns)

    def _check_at(self, due_ns: int) -> None:
        if self.reservations_due_ns and self.reservations_due_ns <= due_ns:
            return
        self.reservations_due_ns = due_ns
        self.arm_own_timer(TimerKind.RESERVATION, due_ns)

    def check_preemption_at(self, due_ns: int) -> None:
        """Schedule a search for victims; at once if the time has passed."""
        due_ns = max(due_ns, self.now_ns)
        is_known = self.preemption_due_ns and self.preemption_due_ns <= due_ns
        if self.preemption_enabled and not is_known:
            self.preemption_due_ns = due_ns
            self.arm_own_timer(TimerKind.PREEMPTION, due_ns)

    def begin_searches(self) -> None:
        """Begin a pass over the preemption actions."""
        self.searches = SearchPass()

    def end_searches(self) -> None:
        """End the pass."""
        self.searches = None

    def set_max(self, queue: Queue, limit: Resource | None) -> None:
        """Change a queue's own max and requeue what it blocked."""
        queueing.set_max(queue, limit)
        self.journal.record(RowSet(queue, {"max_resource": limit}))

    def capacity_changed(self) -> None:
        """Set the root's max to the sum of the nodes; without nodes there is none.

        Without nodes nothing is tried (docs/rules/scheduling.md#the-cycle), and everything that
        waits is reported so.
        """
        had_nodes = self.root.max_resource is not None
        if self.usage is not None:
            self.usage.set_cluster(dict(self.nodes.total))
        self.set_max(self.root, dict(self.nodes.total) or None)
        if had_nodes is (self.root.max_resource is None):
            self._record_waiting()
        self.is_capacity_new = True
        self.journal.record(PartitionChanged())

    def _record_waiting(self) -> None:
        for queue in self.queues.values():
            self.root.changed_buckets.update(dict.fromkeys(queue.buckets.values()))
        for application in self.applications.values():
            if application.refusal is not None:
                self.journal.record(ApplicationChanged(application))

    # --- claims ---------------------------------------------------------------------------------

    def reserve(
        self, application: Application, ask: Ask, node: Node, purpose: Purpose = Purpose.AGED
    ) -> Claim:
        """Close a node to all but an ask."""
        return self._reserve(application, ask, node, purpose, keeps_room=False)

    def _reserve(
        self, application: Application, ask: Ask, node: Node, purpose: Purpose, *, keeps_room: bool
    ) -> Claim:
        amount = ask.shape.resource
        claim = Claim(purpose, application, ask.key, node, amount, ask, since_ns=self.now_ns)
        claim.has_preempted = purpose in (Purpose.PREEMPTOR, Purpose.SHARE)
        claim.rank, claim.to_try = rank_of(application.queue, ask), self.reserved_to_try
        self.reserved_nodes.add(claim)
        self.claims.make(claim, in_queues=amount if keeps_room else {})
        self.journal.record(NodeChanged(node))
        return claim

    def claim_freed_room(self, application: Application, ask: Ask, node: Node) -> Claim:
        """Claim for an ask the capacity that its victims free, on the node and in its queues.

        The claim ends when the ask starts, ends or loses the node; then it may preempt again.
        """
        if ask.key in application.reservations:
            self.unreserve(application.reservations[ask.key])
        ask.has_preempted = True
        self.give_back(node, only_ordinary=True)
        return self._reserve(application, ask, node, Purpose.PREEMPTOR, keeps_room=True)

    def claim_releasing_share(self, application: Application, ask: Ask, node: Node) -> Claim:
        """Claim for a GPU share its part of a device that is being released.

        The node stays open to others; the amount is claimed in the queues.
        """
        if ask.key in application.reservations:
            self.unreserve(application.reservations[ask.key])
        ask.has_preempted = True
        return self._reserve(application, ask, node, Purpose.SHARE, keeps_room=True)

    def unreserve(self, claim: Claim) -> None:
        """End a reservation; its node opens again unless it has another."""
        node = claim.node
        self.reserved_nodes.remove(claim)
        self.reserved_to_try.pop(claim, None)
        self.restarting.pop(claim, None)
        if claim.waits_at is not None:
            claim.waits_at.reservations.pop(claim, None)
        if claim.has_preempted:
            claim.ask.has_preempted = False
            group = claim.application.group_of.get(claim.ask.key)
            if group is not None and group.preemptors is not None:
                group.preemptors.has_lost_room(claim.ask.key)
        self.claims.end(claim)
        if node.node_id in self.nodes.nodes:
            self.node_improved(node)
        if claim.has_preempted:
            self.requeue_for_domains()  # the ask's anti-affinity may have blocked others
        self.check_reservations()

    def give_back(self, node: Node, *, only_ordinary: bool = False) -> None:
        """End a node's reservations; ``only_ordinary``: only those made for age."""
        for reservation in list(node.reservations.values()):
            if reservation.is_ordinary or not only_ordinary:
                self.unreserve(reservation)

    def set_head_gang(self, head_gang: HeadGang | None) -> None:
        """Set the head gang, or none; the old and the new gang are reported again."""
        for one in (self.head_gang, head_gang):
            if one is not None:
                self.journal.record(RowSet(one.application, {}))
        self.head_gang = head_gang

    # --- claims for moved pods ------------------------------------------------------------------

    def move(self, application: Application, key: str, node: Node) -> None:
        """Claim a node's capacity for the pod that replaces a released one.

        Pods that conflict with the moved one's anti-affinity stay off that node. Its queues count
        it once: the old pod until it ends, then the claim.
        """
        before = application.claims_for(Purpose.MOVED).get(key)
        if before is not None:
            self.end_moved(before)
        pod = application.allocations[key]
        amount = pod.resource_per_alloc
        application.queue.change_preempting(amount, {})
        claim = self.moved[key] = Claim(Purpose.MOVED, application, key, node, amount, pod=pod)
        self.claims.make(claim, on_node=amount)
        self.journal.record(NodeChanged(node))

    def _moved_has_gone(self, claim: Claim) -> None:
        """Claim the capacity in the queues too, for WAIT_NS: the old pod has ended."""
        application, ask = claim.application, claim.claimant
        if ask is None:
            claim.until_ns = self.now_ns + WAIT_NS
            self.claims.change(claim, on_node=claim.on_node, in_queues=claim.wanted)
            self.check_moved()
            return
        self._forget_moved(claim)
        held = application.reservations.get(ask.key)
        if held is not None and held.has_preempted and not held.in_queues:
            self.claims.change(held, on_node=held.on_node, in_queues=held.wanted)

    def _replace_moved(self, application: Application, ask: Ask) -> None:
        """Give an ask the claim of the first equal pod that was moved."""
        claims = application.claims_for(Purpose.MOVED).values()
        claim = next((one for one in claims if one.is_like(ask)), None)
        if claim is None:
            return
        self.claims.take(claim, ask)
        self.journal.record(NodeChanged(claim.node))
        ask.has_preempted = True
        self.give_back(claim.node, only_ordinary=True)
        held = self.reserve(application, ask, claim.node, Purpose.PREEMPTOR)
        if claim.until_ns:
            del self.moved[claim.key]
            self.claims.hand_over(claim, held)
        if claim.is_for_restart:
            held.until_ns = claim.until_ns
            self.restarting[held] = None
        held.retry()

    def keep_for_restart(
        self, application: Application, pod: Allocation, node: Node, until_ns: int
    ) -> None:
        """Claim the capacity of an ended gang member for its restarted pod, until ``until_ns``."""
        key, amount = pod.allocation_key, pod.resource_per_alloc
        claim = Claim(Purpose.MOVED, application, key, node, amount, pod=pod, until_ns=until_ns)
        claim.is_for_restart = True
        self.moved[key] = claim
        self.claims.make(claim, on_node=amount, in_queues=amount)
        self.journal.record(NodeChanged(node))
        self.check_moved()

    def keep_ahead(self, application: Application, pod: Allocation, node: Node) -> None:
        """Claim capacity on another node for the replacement of a pod whose node drains."""
        key, amount = pod.allocation_key, pod.resource_per_alloc
        claim = Claim(Purpose.MOVED, application, key, node, amount, pod=pod, since_ns=self.now_ns)
        claim.is_ahead = True
        self.moved[key] = claim
        self.claims.make(claim, on_node=amount)
        self.journal.record(NodeChanged(node))
        self.check_moved()

    def end_moved(self, claim: Claim) -> None:
        """End the claim of a moved pod."""
        application, node = claim.application, claim.node
        self.failed_searches.changed()
        if not (claim.until_ns or claim.is_ahead):  # its queues count it as preempting again
            amount = application.allocations[claim.key].resource_per_alloc
            application.queue.change_preempting({}, amount)
        self._forget_moved(claim)
        if claim.claimant is None:
            self.requeue_for_domains()
            self.node_improved(node)

    def end_claims_for_moved(self, *, node: Node | None = None) -> None:
        """End the claims of moved pods that have expired, or all on a node."""
        for claim in list(self.moved.values()):
            has_expired = 0 < claim.expires_ns <= self.now_ns
            if has_expired if node is None else claim.node is node:
                self.end_moved(claim)
        for claim in [each for each in self.restarting if each.until_ns <= self.now_ns]:
            self.unreserve(claim)
        self.check_moved()

    def check_moved(self) -> None:
        """Schedule a check when the first claim of a moved pod expires."""
        claims = chain(self.moved.values(), self.restarting)
        due_ns = min(filter(None, (claim.expires_ns for claim in claims)), default=0)
        if due_ns and not (self.preemption_due_ns and self.preemption_due_ns <= due_ns):
            self.preemption_due_ns = due_ns
            self.arm_own_timer(TimerKind.PREEMPTION, due_ns)

    def _forget_moved(self, claim: Claim) -> None:
        del self.moved[claim.key]
        self.claims.end(claim)

    # --- claims for asks that replace several placeholders --------------------------------------

    def claim_of_placeholders(
        self,
        application: Application,
        ask: Ask,
        node: Node,
        placeholders: Sequence[Allocation],
    ) -> None:
        """Claim a node's capacity for an ask that replaces several placeholders being released.

        The ask keeps waiting, apart from equal asks.
        """
        application_ledger.set_in_replacement(application, ask, is_covered=True)
        claim = Claim(Purpose.PLACEHOLDERS, application, ask.key, node, ask.shape.resource)
        for placeholder in placeholders:
            key = placeholder.allocation_key
            application.covering[key] = claim
            application.counts_of(placeholder).unclaimed.pop(key, None)
            claim.await_pod(placeholder, placeholder.resource_per_alloc)
        self.claims.make(claim)
        self.claims.shorten(claim)

    def placeholder_changed(
        self, application: Application, key: str, now: ResourceView | None
    ) -> str | None:
        """Update a claim when one of its placeholders ends (None), or changes its size.

        Return the key of the ask if this was the last placeholder that it waited for, else None.
        """
        claim = application.covering.get(key)
        if claim is None:
            return None
        claim.await_pod(application.allocations[key], now)
        if now is None:
            del application.covering[key]
        self.claims.shorten(claim)
        return None if claim.awaited else claim.key

    def end_placeholder_claim(self, application: Application, ask_key: str) -> Claim:
        """End an ask's claim; its remaining placeholders are free for other asks."""
        claim = application.claims[Purpose.PLACEHOLDERS][ask_key]
        for key in claim.awaited:
            placeholder = application.allocations.get(key)
            if placeholder is not None:
                application.counts_of(placeholder).unclaimed[key] = None
                self.replaceable[application] = None
        self.claims.end(claim)
        if self.nodes.nodes.get(claim.node.node_id) is claim.node:
            self.node_improved(claim.node)
        self.retry_replacements()
        return claim

    # --- claims of admitted gangs ---------------------------------------------------------------

    def admit(self, application: Application) -> None:
        """Admit a gang: its placeholders may start, and what it lacks is claimed."""
        self._set_admitted(application, is_admitted=True)

    def withdraw_admission(self, application: Application) -> None:
        """Withdraw a gang's admission and end its claim."""
        self._set_admitted(application, is_admitted=False)

    def _set_admitted(self, application: Application, *, is_admitted: bool) -> None:
        application.gang_admitted = is_admitted
        queueing.reorder(application)
        self.claims.claim_for_gang(application)
        queueing.enter(application)

    def claim_for_gang(self, application: Application) -> None:
        """Set a gang's claim to what it lacks; end it if the gang no longer reserves."""
        self.claims.claim_for_gang(application)

    # --- states and timers ----------------------------------------------------------------------

    def fire(self, application: Application, event: ApplicationEvent, message: str = "") -> None:
        """Apply an event to an application's state, with all that depends on it, and record it."""
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
            for wait_list in application.wait_lists():
                queueing.requeue(wait_list)
            if application.waits_in is not None:
                queueing.activate(application)  # the refusal may not apply in its new state
        self.claim_for_gang(application)
        self._time(application, before)
        self.journal.record(StateChanged(application, after, message or event.value))
        queueing.enter(application)

    def _time(self, application: Application, before: ApplicationState) -> None:
        """Start and stop the timers that depend on an application's state.

        The execution timeout runs from its first Running, whatever its states since.
        """
        if before is ApplicationState.COMPLETING:
            self.cancel_timer(application, TimerKind.COMPLETING)
        if application.state is ApplicationState.COMPLETING:
            self.arm_timer(application, TimerKind.COMPLETING, COMPLETING_TIMEOUT_MS)
        elif application.state is ApplicationState.RUNNING and application.execution_timeout_ms:
            start_ns = application.execution_start_ns = self.since(application.execution_start_ns)
            due_ns = start_ns + milliseconds(application.execution_timeout_ms)
            self.arm_timer_at(application, TimerKind.EXECUTION, due_ns)

    def since(self, began_ns: int) -> int:
        """Return a start time limited to now; 0 means now."""
        return min(began_ns or self.now_ns, self.now_ns)

    def arm_timer(
        self, application: Application, kind: TimerKind, timeout_ms: int, detail: str | None = None
    ) -> None:
        """Arm a timer that fires after a timeout from now."""
        self.arm_timer_at(application, kind, self.now_ns + milliseconds(timeout_ms), detail)

    def arm_timer_at(
        self, application: Application, kind: TimerKind, due_ns: int, detail: str | None = None
    ) -> None:
        """Arm a timer for a time; its generation distinguishes it from earlier ones.

        Times beyond int64, in the year 2262, are reduced to it.
        """
        timer_id = timer_name(application, kind, detail)
        self._arm(application.timers, TimerSet(timer_id, kind, application.id, "", due_ns))

    def arm_placeholder_timer(self, application: Application, since_ns: int) -> None:
        """Arm an application's placeholder timeout, counted from ``since_ns``."""
        since_ns = self.since(since_ns)
        due_ns = since_ns + milliseconds(application.placeholder_timeout_ms(since_ns))
        self.arm_timer_at(application, TimerKind.PLACEHOLDER, due_ns)

    def arm_own_timer(self, kind: TimerKind, due_ns: int) -> None:
        """Arm a timer of the partition itself, or move the armed one of that kind."""
        self._arm(self.timers, TimerSet(kind.value, kind, PARTITION_TIMER, "", due_ns))

    def _arm(self, timers: dict[str, tuple[str, int]], timer: TimerSet) -> None:
        self._generation += 1
        generation, due_ns = f"{self.epoch}.{self._generation}", saturated(timer.due_ns)
        timers[timer.timer_id] = (generation, due_ns)
        self.journal.record(TimerArmed(replace(timer, generation=generation, due_ns=due_ns)))

    def fires_as_ordered(self, armed: tuple[str, int], fired: TimerFired) -> bool:
        """Whether a firing has the armed generation and is not early.

        If not, the timer is ordered again: an order of a dead core may have replaced it at the
        timer service.
        """
        generation, due_ns = armed
        if generation == fired.generation and due_ns <= self.now_ns:
            return True
        timer = TimerSet(fired.timer_id, fired.kind, fired.application_id, generation, due_ns)
        self.journal.record(TimerArmed(timer))
        return False

    def arm_execution(self, application: Application, allocation: Allocation) -> None:
        """Arm an allocation's execution timeout, if it has one, from its allocation time."""
        timeout_ms = allocation.exec_timeout_milli_seconds
        if timeout_ms > 0:
            due_ns = self.since(allocation.allocated_ns) + milliseconds(timeout_ms)
            key = allocation.allocation_key
            self.arm_timer_at(application, TimerKind.EXECUTION, due_ns, key)

    def cancel_timer(
        self, application: Application, kind: TimerKind, detail: str | None = None
    ) -> None:
        """Cancel a timer if it is armed."""
        timer_id = timer_name(application, kind, detail)
        armed = application.timers.pop(timer_id, None)
        if armed is not None:
            self.journal.record(TimerCancelled(timer_id, armed[0]))

    def timer_orders(self) -> TimerOrders:
        """Return all armed timers, for a timer service that restarted."""
        owners = [(PARTITION_TIMER, self.timers)]
        owners += [
            (application.id, application.timers) for application in self.applications.values()
        ]
        armed = tuple(
            TimerSet(timer_id, TimerKind(timer_id.split("/", 1)[0]), owner, generation, due_ns)
            for owner, timers in owners
            for timer_id, (generation, due_ns) in timers.items()
        )
        return TimerOrders(reset=True, armed=armed)


def timer_name(application: Application, kind: TimerKind, detail: str | None = None) -> str:
    """Return the unique id of an application's timer.

    A kind always has a detail or never. The length separates id and detail unambiguously. The
    partition's own timers are named by their kind alone.
    """
    name = application.id
    return f"{kind.value}/{name}" if detail is None else f"{kind.value}/{len(name)}/{name}/{detail}"


def _grace_ns(allocation: Allocation) -> int:
    """Return a victim's termination grace beyond the default, in ns."""
    stated = allocation.allocation_tags.get(GRACE_SECONDS)
    grace_s = parse_int64(stated) if stated else None
    return seconds(grace_s) if grace_s is not None and grace_s > DEFAULT_GRACE_S else 0
