"""The report builder: from entries of the journal to messages, timer orders and changed values.

Rule 1: messages to the resource manager about one application keep their order. Sections of an
        UpdateResponse are applied one after another, so an item goes into the first response in
        which its section does not come too late for its application.
Rule 2: a state event has the present value of what changed, once, however often it changed.
        Removals come before values: the same name may have been used again.
Rule 3: of the orders for one timer the last counts.
Rule 4: what a run has placed is reported by the column (ADR 36), and equal to a report of each
        by itself.
Rule 5: the state of the partition, and of a queue, is published where it differs from the last
        published, if that was no snapshot. (A node's and an application's nearly always differ.)
Rule 6: of what may be long only what changed is published: a queue's refusals one by one, a user's
        use in the queues in which it changed.
Limit: MAX_EVENTS events for users a batch, and as many evictions; more are left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import chain
from typing import Any, TypeVar

from services.core.scheduler.model.rows import Application, Bucket, Node, Queue, Tracker
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.report import events, placed
from services.core.scheduler.report.views import (
    allocation_state,
    application_summary,
    ask_state,
    configuration_state,
    node_state,
    partition_state,
    queue_state,
    refusal_of,
    user_state,
)
from services.core.scheduler.statement import journal
from services.core.scheduler.statement.partition import Partition
from shared.messages.envelope import SHIM_ADAPTER, Address, Outgoing
from shared.messages.interface import (
    CREATES,
    AcceptedApplication,
    AcceptedNode,
    AllocationRelease,
    ContainerSchedulingState,
    PodsHeld,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    SchedulingState,
    TerminationType,
    UpdatedApplication,
    UpdateResponse,
)
from shared.messages.protocol import TimerCancel, TimerOrders, TimerSet
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    ConfigurationState,
    EventState,
    EvictionState,
    NodeState,
    PartitionState,
    QueueState,
    RefusalState,
    StateDelta,
    Waiting,
)
from shared.model.event_codes import EventType
from shared.model.names import POD_NAME_TAG
from shared.model.sentences import Refused, condition_text

MAX_EVENTS = 1_000
Extra = tuple[tuple[str, str], ...]
NOT_CONFIGURED: tuple[str, Extra] = (
    "",
    (),
)  # what is configured has a text, the built-in default too
_NODE_GONE = TerminationType.UNKNOWN_TERMINATION_TYPE  # docs/rules/events.md#what-is-recorded
_SECTION_ORDER = {item.name: at for at, item in enumerate(fields(UpdateResponse))}
_AskEntry = journal.AskChanged | journal.AskEnded
_AllocationEntry = (
    journal.Allocated
    | journal.AllocationChanged
    | journal.AllocationReleased
    | journal.AllocationEnded
    | journal.ForeignChanged
)
S = TypeVar("S", PartitionState, QueueState)


class ReportBuilder:
    """Reads journal entries and hands over the messages they come to."""

    _condition: tuple[Refused | None, str] = (None, "")  # the refusal written last, and its text

    def __init__(self) -> None:
        self._now_ns = 0
        self._responses: list[dict[str, list[Any]]] = []
        self._at_pods: list[EventState] = []
        self._position: dict[str, tuple[int, int]] = {}
        self.forget_timers()
        self._told: dict[Bucket, Waiting] = {}  # why what is refused is, as last published
        self._forget_changes()
        self.forget_published()
        self._readers: dict[type, Callable[[Any], None]] = {
            journal.TimePassed: self._time_passed,
            journal.RowSet: self._row,
            journal.AskChanged: self._ask,
            journal.AskEnded: self._ask,
            journal.AskReleased: self._ask_released,
            journal.AskRejected: self._ask_rejected,
            journal.AskUnschedulable: self._ask_unschedulable,
            journal.PlaceholderTooSmall: self._too_small,
            journal.Allocated: self._allocated,
            journal.AllocationsFound: self._found,
            journal.RunPlaced: self._run_placed,
            journal.AllocationChanged: self._use_changed,
            journal.AllocationReleased: self._allocation_released,
            journal.AllocationEnded: self._use_changed,
            journal.EndConfirmed: lambda entry: self._add(
                "released_allocations", entry.release.application_id, entry.release
            ),
            journal.ForeignChanged: self._allocation,
            journal.ApplicationAccepted: self._accepted,
            journal.ApplicationRejected: self._rejected,
            journal.ApplicationChanged: self._application,
            journal.ApplicationEnded: self._application,
            **dict.fromkeys((journal.ClaimMade, journal.ClaimEnded), self._claim),
            journal.StateChanged: self._state,
            journal.NodeAccepted: lambda entry: self._add(
                "accepted_nodes", entry.node.node_id, AcceptedNode(entry.node.node_id)
            ),
            journal.NodeRejected: self._node_rejected,
            journal.NodeChanged: self._node,
            journal.NodeEnded: self._node_ended,
            journal.QueueChanged: self._queue,
            journal.QueueEnded: self._queue_ended,
            journal.UsageChanged: self._usage,
            journal.PartitionChanged: self._partition_entry,
            journal.Preempted: self._preempted,
            journal.PodsHeldChanged: self._pods_held_changed,
            journal.UsageReported: self._usage_reported,
            journal.TimerArmed: self._timer_armed,
            journal.TimerCancelled: self._timer_cancelled,
        }

    def read(self, entries: Iterable[object]) -> None:
        """Read entries in order."""
        readers = self._readers
        for entry in entries:
            kind = type(entry)
            if kind in readers:
                readers[kind](entry)
            if kind in events.WRITERS:
                self._add_events(events.WRITERS[kind](entry, self._now_ns))

    def _time_passed(self, entry: journal.TimePassed) -> None:
        self._now_ns = entry.now_ns

    def _add_events(self, found: list[EventState]) -> None:
        found = found[: MAX_EVENTS - len(self._events)]
        self._events += found
        self._at_pods += [event for event in found if event.type == EventType.REQUEST]

    def _report_at_pods(self) -> None:
        """Report events of pods to the resource manager, behind all else: users look at pods."""
        for event in self._at_pods:
            owner, key = event.reference_id, event.object_id
            state = ContainerSchedulingState(owner, key, SchedulingState.SKIPPED, event.message)
            self._add("scheduling_states", owner, state)
        self._at_pods = []

    # --- the resource manager and the timers ----------------------------------------------------

    def _add(self, section: str, owner: str, item: object) -> None:
        """Add an item for the resource manager, in the order of its application, or node."""
        self._items(section, owner).append(item)

    def _items(self, section: str, owner: str) -> list[Any]:
        """Return the list that the next item of an application, or node, is appended to."""
        order = _SECTION_ORDER[section]
        at, last = self._position.get(owner, (0, -1))
        if order < last:
            at += 1
        self._position[owner] = (at, order)
        while len(self._responses) <= at:
            self._responses.append({})
        return self._responses[at].setdefault(section, [])

    def orders(self, epoch: int, timers: Address) -> list[Outgoing]:
        """Return the messages to the resource manager and the timers, and forget them."""
        self._report_at_pods()
        outgoing = [
            Outgoing(
                SHIM_ADAPTER,
                UpdateResponse(**{name: tuple(items) for name, items in response.items()}),
                epoch=epoch,
            )
            for response in self._responses
        ]
        if self._armed or self._cancelled:
            orders = TimerOrders(
                cancelled=tuple(self._cancelled.values()), armed=tuple(self._armed.values())
            )
            outgoing.append(Outgoing(timers, orders, epoch=epoch))
        self._responses, self._position = [], {}
        self.forget_timers()
        return outgoing

    def forget_timers(self) -> None:
        """Forget the timer orders: all timers are about to be sent at once."""
        self._armed: dict[str, TimerSet] = {}
        self._cancelled: dict[str, TimerCancel] = {}

    def _timer_armed(self, entry: journal.TimerArmed) -> None:
        self._cancelled.pop(entry.timer.timer_id, None)
        self._armed[entry.timer.timer_id] = entry.timer

    def _timer_cancelled(self, entry: journal.TimerCancelled) -> None:
        self._armed.pop(entry.timer_id, None)
        self._cancelled[entry.timer_id] = TimerCancel(entry.timer_id, entry.generation)

    # --- asks and allocations -------------------------------------------------------------------

    def _ask(self, entry: _AskEntry) -> None:
        self._asks[entry.ask.key] = entry
        self._applications[entry.application] = None

    def _ask_released(self, entry: journal.AskReleased) -> None:
        self._add("released_asks", entry.release.application_id, entry.release)

    def _ask_rejected(self, entry: journal.AskRejected) -> None:
        item = entry.item
        rejected = RejectedAllocation(item.allocation_key, item.application_id, entry.reason)
        self._add("rejected_allocations", item.application_id, rejected)

    def _ask_unschedulable(self, entry: journal.AskUnschedulable) -> None:
        owner, key = entry.application.id, entry.ask.key
        why = self._condition_of(entry.refusal)
        state = ContainerSchedulingState(owner, key, SchedulingState.FAILED, why)
        self._add("scheduling_states", owner, state)
        if entry.ask.key not in self._asks:
            self._asks[entry.ask.key] = journal.AskChanged(entry.application, entry.ask)

    def _condition_of(self, refusal: Refused) -> str:
        """Return the text of a condition: asks that are alike have the same refusal in a row."""
        if self._condition[0] is not refusal:
            self._condition = (refusal, condition_text(refusal))
        return self._condition[1]

    def _too_small(self, entry: journal.PlaceholderTooSmall) -> None:
        self._applications[entry.application] = None

    def _allocation(self, entry: _AllocationEntry) -> None:
        self._allocations[entry.allocation.allocation_key] = entry
        if not isinstance(entry, journal.ForeignChanged):
            self._applications[entry.application] = None

    def _allocated(self, entry: journal.Allocated) -> None:
        self._use_changed(entry)
        if entry.is_new:
            self._add("new_allocations", entry.application.id, entry.allocation)

    def _found(self, entry: journal.AllocationsFound) -> None:
        for found in entry.found:
            self._allocations[found[1].allocation_key] = found
        for application in dict.fromkeys(application for application, _ in entry.found):
            self._applications[application] = None
            self._usage_of(application)
        for node in entry.nodes:
            self._nodes[node.node_id] = node

    def _run_placed(self, entry: journal.RunPlaced) -> None:
        asks, allocations = self._asks, self._allocations
        placed_of: dict[Application, list[Any]] = {}
        for item in entry.placed:
            application, ask, allocation = item
            asks[ask.key] = item
            allocations[ask.key] = (application, allocation)
            if application not in placed_of:
                placed_of[application] = self._items("new_allocations", application.id)
                self._applications[application] = None
                self._usage_of(application)
            placed_of[application].append(allocation)
        for node in entry.nodes:
            self._nodes[node.node_id] = node

    def _use_changed(
        self, entry: journal.Allocated | journal.AllocationChanged | journal.AllocationEnded
    ) -> None:
        self._allocation(entry)
        self._usage_of(entry.application)

    def _allocation_released(self, entry: journal.AllocationReleased) -> None:
        self._allocation(entry)
        owner, key = entry.application.id, entry.allocation.allocation_key
        release = AllocationRelease(owner, key, entry.why, message=entry.message)
        self._add("released_allocations", owner, release)

    def _usage_of(self, application: Application) -> None:
        for tracker in application.trackers:
            self._usage_in(tracker, application.queue)

    def _usage_in(self, tracker: Tracker, leaf: Queue) -> None:
        leaves = self._users.setdefault(tracker, {})
        if leaves is not None:
            leaves[leaf] = None

    # --- rows -----------------------------------------------------------------------------------

    def _row(self, entry: journal.RowSet) -> None:
        match entry.row:
            case Application() as application:
                self._applications[application] = None
            case Queue() as queue:
                self._queues[queue] = None
            case Node() as node:
                self._nodes[node.node_id] = node
            case _:
                pass  # what is shown of asks and reservations has entries of its own

    def _accepted(self, entry: journal.ApplicationAccepted) -> None:
        application = entry.application
        accepted = AcceptedApplication(
            application.id, application.queue.path, application.request.submission
        )
        self._applications[application] = None
        for tracker in application.trackers:
            self._users.setdefault(tracker, {})
        self._add("accepted_applications", application.id, accepted)

    def _rejected(self, entry: journal.ApplicationRejected) -> None:
        request, queue = entry.request, entry.queue
        rejected = RejectedApplication(request.application_id, entry.reason, request.submission)
        self._add("rejected_applications", request.application_id, rejected)
        if entry.shown is not None:
            summary = replace(
                application_summary(entry.shown),
                queue_name=queue.path if queue is not None else request.queue_name,
                rejected_message=entry.reason,
                fact=entry.fact,
            )
            self.rejected.append(summary)

    def _application(self, entry: journal.ApplicationChanged | journal.ApplicationEnded) -> None:
        self._applications[entry.application] = None

    def _claim(self, entry: journal.ClaimMade | journal.ClaimEnded) -> None:
        claim = entry.claim
        if not claim.is_reservation:
            return
        application, ask = claim.application, claim.ask
        self._applications[application] = None
        if not (claim.has_preempted and _waits(application, ask)):
            return
        if ask.key not in self._asks:
            self._asks[ask.key] = journal.AskChanged(application, ask)
        node = claim.node.node_id if isinstance(entry, journal.ClaimMade) else ""
        owner, state = application.id, SchedulingState.RESERVED
        report = ContainerSchedulingState(owner, ask.key, state, node_id=node)
        self._add("scheduling_states", owner, report)

    def _state(self, entry: journal.StateChanged) -> None:
        application = entry.application
        self._applications[application] = None
        updated = UpdatedApplication(
            application.id,
            entry.state.value,
            self._now_ns,
            entry.message,
            application.request.submission,
        )
        self._add("updated_applications", application.id, updated)

    def _node_rejected(self, entry: journal.NodeRejected) -> None:
        """Answer news that register a node; of others the event alone reports the refusal.

        Source: docs/rules/interface.md#requests-and-responses.
        """
        name = entry.info.node_id
        if entry.info.action in CREATES:
            self._add("rejected_nodes", name, RejectedNode(name, entry.reason))

    def _node(self, entry: journal.NodeChanged) -> None:
        self._nodes[entry.node.node_id] = entry.node

    def _node_ended(self, entry: journal.NodeEnded) -> None:
        self._nodes.pop(entry.node.node_id, None)
        self._nodes_gone.append(node_state(entry.node, removed=True))

    def _queue(self, entry: journal.QueueChanged) -> None:
        self._queues[entry.queue] = None

    def _queue_ended(self, entry: journal.QueueEnded) -> None:
        self._queues.pop(entry.queue, None)
        self._published.pop(entry.queue.path, None)
        self._queues_gone[entry.queue] = queue_state(entry.queue, removed=True)
        if entry.queue.parent is not None:
            self._queues[entry.queue.parent] = None

    def _usage(self, entry: journal.UsageChanged) -> None:
        if entry.leaf is None:
            self._users[entry.tracker] = None
        else:
            self._usage_in(entry.tracker, entry.leaf)

    def _partition_entry(self, _: journal.PartitionChanged) -> None:
        self._has_partition_changed = True

    def _preempted(self, entry: journal.Preempted) -> None:
        """Report an eviction and its preemptor; above MAX_EVENTS they are left out."""
        if len(self._evictions) >= MAX_EVENTS:
            return
        allocation, winner = entry.allocation, entry.winner
        self._evictions.append(
            EvictionState(
                time_ns=self._now_ns,
                allocation_key=allocation.allocation_key,
                application_id=entry.application.id,
                node_id=allocation.node_id,
                law=entry.law,
                message=entry.text,
                pod_name=allocation.allocation_tags.get(POD_NAME_TAG, ""),
                winner=winner.id if winner is not None else "",
                winning_ask=entry.ask,
                queue_name=entry.application.queue.path,
                resource=allocation.resource_per_alloc,
            )
        )

    def _usage_reported(self, entry: journal.UsageReported) -> None:
        self._items("usage", "").extend(entry.records)

    def _pods_held_changed(self, entry: journal.PodsHeldChanged) -> None:
        self._pods_held[entry.held.application_id] = entry.held

    # --- state events ---------------------------------------------------------------------------

    def _forget_changes(self) -> None:
        self._asks: dict[str, _AskEntry | placed.Placed] = {}
        self._allocations: dict[str, placed.Held | _AllocationEntry] = {}
        self._applications: dict[Application, None] = {}
        self.rejected: list[ApplicationSummary] = []
        self._nodes: dict[str, Node] = {}
        self._nodes_gone: list[NodeState] = []
        self._queues: dict[Queue, None] = {}
        self._queues_gone: dict[Queue, QueueState] = {}
        self._users: dict[Tracker, dict[Queue, None] | None] = {}  # and the leaves; None: all
        self._events: list[EventState] = []
        self._evictions: list[EvictionState] = []
        self._pods_held: dict[str, PodsHeld] = {}
        self._has_partition_changed = False

    def changes(self, partition: Partition) -> StateDelta | None:
        """Return the present values of what has changed, None of nothing, and forget it."""
        queues = self._all_queues()
        has_changed = bool(self._has_partition_changed or queues)
        states = chain.from_iterable(self._news(q.path, queue_state(q)) for q in queues)
        found = {
            "partitions": self._news("", partition_state(partition)) if has_changed else (),
            "configurations": self._configuration(partition) if has_changed else (),
            "queues": (*self._queues_gone.values(), *states),
            "refusals": self._refusals(partition),
            "nodes": (*self._nodes_gone, *map(node_state, self._nodes.values())),
            "applications": self._summaries(),
            "users": tuple(user_state(who, _paths(at)) for who, at in self._users.items()),
            "events": tuple(self._events),
            "evictions": tuple(self._evictions),
            "pods_held": tuple(self._pods_held.values()),
            "asks": placed.published(self._asks.values(), _is_placed, placed.asks, _ask_value),
            "allocations": placed.published(
                self._allocations.values(), _is_held, placed.allocations, _allocation_value
            ),
        }
        self._forget_changes()
        has_news: dict[str, Any] = {name: items for name, items in found.items() if items}
        return StateDelta(time_ns=partition.now_ns, **has_news) if has_news else None

    def _summaries(self) -> tuple[ApplicationSummary, ...]:
        """Return what is known of applications; of two submissions of one id the older first."""
        changed = map(application_summary, self._applications)
        if not self.rejected:
            return tuple(changed)
        return tuple(sorted((*changed, *self.rejected), key=lambda known: int(known.submission)))

    def _refusals(self, partition: Partition) -> tuple[RefusalState, ...]:
        """Return the refusals that differ from those last published; what is over comes first."""
        gone: list[RefusalState] = []
        news: list[RefusalState] = []
        changed, told = partition.root.changed_buckets, self._told
        for bucket in changed:
            why, before = refusal_of(bucket), told.get(bucket)
            if why is not None and why != before:
                told[bucket] = why
                news.append(RefusalState(bucket.leaf.path, why.asks, why))
            elif why is None and before is not None:
                del told[bucket]
                gone.append(RefusalState(bucket.leaf.path, before.asks))
        changed.clear()
        return (*gone, *news)

    def without_values(self, partition: Partition) -> StateDelta:
        """Return what no snapshot has: events and evictions. Changed values are forgotten."""
        self._refusals(partition)
        delta = StateDelta(events=tuple(self._events), evictions=tuple(self._evictions))
        self._forget_changes()
        return delta

    def _news(self, path: str, state: S) -> tuple[S, ...]:
        """Return a queue's state, or the partition's, where it differs from the last published."""
        if self._published.get(path) == state:
            return ()
        self._published[path] = state
        return (state,)

    def forget_published(self) -> None:
        """Publish every state again when it changes: a snapshot may have had other values."""
        self._published: dict[str, PartitionState | QueueState] = {}
        self._published_configuration = NOT_CONFIGURED

    def _configuration(self, partition: Partition) -> tuple[ConfigurationState, ...]:
        """Return the configuration where it differs from the last published: it may be large."""
        configured = (partition.config_text, partition.config_extra)
        if configured == self._published_configuration:
            return ()
        self._published_configuration = configured
        return (configuration_state(partition),)

    def _all_queues(self) -> dict[Queue, None]:
        """Return the queues that changed by themselves or with an application, and those above."""
        found: dict[Queue, None] = {}
        leaves = dict.fromkeys(application.queue for application in self._applications)
        for queue in (*self._queues, *leaves):
            if queue not in self._queues_gone:
                found.update(dict.fromkeys(queue.lineage()))
        return found


def _paths(leaves: dict[Queue, None] | None) -> dict[str, None] | None:
    """Return the paths of queues and of those above them; None as None."""
    if leaves is None:
        return None
    return {level.path: None for leaf in leaves for level in leaf.lineage()}


def _waits(application: Application, ask: Ask) -> bool:
    return any(group.asks.get(ask.key) is ask for group in application.groups.values())


def _is_placed(entry: _AskEntry | placed.Placed) -> bool:
    return type(entry) is tuple


def _is_held(entry: placed.Held | _AllocationEntry) -> bool:
    return type(entry) is tuple


def _ask_value(entry: _AskEntry | placed.Placed) -> AskState:
    if isinstance(entry, tuple):
        return _ended_ask(*entry[:2], "")
    if isinstance(entry, journal.AskEnded):
        return _ended_ask(entry.application, entry.ask, entry.why)
    return ask_state(entry.ask, entry.application.owner)


def _ended_ask(application: Application, ask: Ask, why: str) -> AskState:
    amount = ask.request.resource_per_alloc
    return AskState(ask.key, application.id, amount, removed=True, why=why)


def _allocation_value(entry: placed.Held | _AllocationEntry) -> AllocationState:
    if isinstance(entry, tuple):
        return placed.allocation(entry)
    allocation = entry.allocation
    if isinstance(entry, journal.ForeignChanged):
        made_ns = allocation.create_time_ns
        return allocation_state(allocation, allocation_time_ns=made_ns, removed=entry.is_gone)
    if isinstance(entry, journal.AllocationEnded):
        why = _NODE_GONE if entry.is_node_gone else entry.why or TerminationType.STOPPED_BY_RM
        return allocation_state(allocation, released=why, removed=True)
    return placed.allocation((entry.application, allocation))
