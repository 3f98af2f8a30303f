"""Changes for the API: the present values of what journal entries changed.

Rule 1: a state event has the present value of each changed row once. Removals come before values: a
        name may have been used again.
Rule 2: what a run placed is reported in columns (ADR 36), equal to single reports.
Rule 3: the state of the partition and of a queue is published only if it differs from the last
        published one. (A node's or application's nearly always differs.)
Rule 4: of long lists only the changes are published: a queue's refusals one by one, a user's usage
        in the queues where it changed.
Limit: MAX_EVENTS events for users in a batch, and as many evictions; more are omitted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from services.core.scheduler.model.rows import Application, Bucket, Node, Queue, Tracker
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.report import placed
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
from shared.messages.interface import PodsHeld, TerminationType
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
from shared.model.names import POD_NAME_TAG

MAX_EVENTS = 1_000
Extra = tuple[tuple[str, str], ...]
# Every configuration has a text, even the built-in default.
NOT_CONFIGURED: tuple[str, Extra] = ("", ())
_NODE_GONE = TerminationType.UNKNOWN_TERMINATION_TYPE  # docs/rules/events.md#what-is-recorded
_application_of = itemgetter(0)  # of an item of RunPlaced
_AskEntry = journal.AskChanged | journal.AskEnded
_AllocationEntry = (
    journal.Allocated
    | journal.AllocationChanged
    | journal.AllocationReleased
    | journal.AllocationEnded
    | journal.ForeignChanged
)
_ApplicationEntry = (
    journal.ApplicationChanged
    | journal.ApplicationEnded
    | journal.PlaceholderTooSmall
    | journal.StateChanged
)


class Changes:
    """The changes since the last ``take``."""

    def __init__(self) -> None:
        self._now_ns = 0
        self.published = Published()
        self._forget()
        self.readers: dict[type, Callable[[Any], None]] = {
            journal.TimePassed: self._time_passed,
            journal.RowSet: self._row,
            journal.AskChanged: self._ask,
            journal.AskEnded: self._ask,
            journal.AskUnschedulable: self._shown_again,
            journal.PlaceholderTooSmall: self._application,
            journal.Allocated: self._use_changed,
            journal.AllocationsFound: self._found,
            journal.RunPlaced: self._run_placed,
            journal.AllocationChanged: self._use_changed,
            journal.AllocationReleased: self._allocation,
            journal.AllocationEnded: self._use_changed,
            journal.ForeignChanged: self._allocation,
            journal.ApplicationAccepted: self._accepted,
            journal.ApplicationRejected: self._rejected,
            journal.ApplicationChanged: self._application,
            journal.ApplicationEnded: self._application,
            journal.StateChanged: self._application,
            journal.NodeChanged: self._node,
            journal.NodeEnded: self._node_ended,
            journal.QueueChanged: self._queue,
            journal.QueueEnded: self._queue_ended,
            journal.UsageChanged: self._usage,
            journal.PartitionChanged: self._partition_entry,
            journal.Preempted: self._preempted,
            journal.PodsHeldChanged: self._pods_held_changed,
        }

    def _forget(self) -> None:
        self._asks: dict[str, _AskEntry | placed.Placed] = {}
        self._allocations: dict[str, placed.Held | _AllocationEntry] = {}
        self._applications: dict[Application, None] = {}
        self.rejected: list[ApplicationSummary] = []
        self._nodes: dict[str, Node] = {}
        self._nodes_gone: list[NodeState] = []
        self._queues: dict[Queue, None] = {}
        self._queues_gone: dict[Queue, QueueState] = {}
        self._users: dict[Tracker, dict[Queue, None] | None] = {}  # with the leaves; None: all
        self._events: list[EventState] = []
        self._evictions: list[EvictionState] = []
        self._pods_held: dict[str, PodsHeld] = {}
        self._has_partition_changed = False

    def take(self, partition: Partition) -> StateDelta | None:
        """Return the present values of the changes and clear them; None if there are none."""
        queues, published = self._all_queues(), self.published
        has_changed = bool(self._has_partition_changed or queues)
        states = list(map(queue_state, queues))
        found = {
            "partitions": published.partition(partition_state(partition)) if has_changed else (),
            "configurations": published.configuration(partition) if has_changed else (),
            "queues": (*self._queues_gone.values(), *published.queues(states)),
            "refusals": published.refusals(partition),
            "nodes": (*self._nodes_gone, *map(node_state, self._nodes.values())),
            "applications": self._summaries(),
            "users": tuple(user_state(who, _paths(at)) for who, at in self._users.items()),
            "events": tuple(self._events),
            "evictions": tuple(self._evictions),
            "pods_held": tuple(self._pods_held.values()),
            "asks": placed.published(self._asks.values(), _is_of_a_run, placed.asks, _ask_value),
            "allocations": placed.published(
                self._allocations.values(), _is_of_a_run, placed.allocations, _allocation_value
            ),
        }
        self._forget()
        changed: dict[str, Any] = {name: items for name, items in found.items() if items}
        return StateDelta(time_ns=partition.now_ns, **changed) if changed else None

    def take_without_values(self, partition: Partition) -> StateDelta:
        """Return events and evictions, which no snapshot has; clear all changes."""
        self.published.refusals(partition)
        delta = StateDelta(events=tuple(self._events), evictions=tuple(self._evictions))
        self._forget()
        return delta

    def _summaries(self) -> tuple[ApplicationSummary, ...]:
        """Return changed applications; of two submissions with one id the older first."""
        changed = map(application_summary, self._applications)
        if not self.rejected:
            return tuple(changed)
        return tuple(sorted((*changed, *self.rejected), key=lambda known: int(known.submission)))

    def _all_queues(self) -> dict[Queue, None]:
        """Return the queues that changed, or whose applications did, and those above."""
        found: dict[Queue, None] = {}
        leaves = dict.fromkeys(application.queue for application in self._applications)
        for queue in (*self._queues, *leaves):
            if queue not in self._queues_gone:
                found.update(dict.fromkeys(queue.lineage()))
        return found

    def add_events(self, found: Sequence[EventState]) -> Sequence[EventState]:
        """Add events for users; return those within the limit."""
        found = found[: MAX_EVENTS - len(self._events)]
        self._events += found
        return found

    # --- asks and allocations -------------------------------------------------------------------

    def _ask(self, entry: _AskEntry) -> None:
        self._asks[entry.ask.key] = entry
        self._applications[entry.application] = None

    def _shown_again(self, entry: journal.AskUnschedulable) -> None:
        self.show_ask(entry.application, entry.ask)

    def show_application(self, application: Application) -> None:
        """Report an application's present values."""
        self._applications[application] = None

    def show_ask(self, application: Application, ask: Ask) -> None:
        """Report a waiting ask's present values, unless it has another entry."""
        if ask.key not in self._asks:
            self._asks[ask.key] = journal.AskChanged(application, ask)

    def _allocation(self, entry: _AllocationEntry) -> None:
        self._allocations[entry.allocation.allocation_key] = entry
        if not isinstance(entry, journal.ForeignChanged):
            self._applications[entry.application] = None

    def _use_changed(
        self, entry: journal.Allocated | journal.AllocationChanged | journal.AllocationEnded
    ) -> None:
        self._allocation(entry)
        self._usage_of(entry.application)

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
        for item in entry.placed:
            application, ask, allocation = item
            asks[ask.key] = item
            allocations[ask.key] = (application, allocation)
        for application in dict.fromkeys(map(_application_of, entry.placed)):
            self._applications[application] = None
            self._usage_of(application)
        for node in entry.nodes:
            self._nodes[node.node_id] = node

    # --- rows -----------------------------------------------------------------------------------

    def _time_passed(self, entry: journal.TimePassed) -> None:
        self._now_ns = entry.now_ns

    def _row(self, entry: journal.RowSet) -> None:
        match entry.row:
            case Application() as application:
                self._applications[application] = None
            case Queue() as queue:
                self._queues[queue] = None
            case Node() as node:
                self._nodes[node.node_id] = node
            case _:
                pass  # asks and reservations have entries of their own

    def _application(self, entry: _ApplicationEntry) -> None:
        self._applications[entry.application] = None

    def _accepted(self, entry: journal.ApplicationAccepted) -> None:
        application = entry.application
        self._applications[application] = None
        for tracker in application.trackers:
            self._users.setdefault(tracker, {})

    def _rejected(self, entry: journal.ApplicationRejected) -> None:
        request, queue = entry.request, entry.queue
        if entry.shown is not None:
            summary = replace(
                application_summary(entry.shown),
                queue_name=queue.path if queue is not None else request.queue_name,
                rejected_message=entry.reason,
                fact=entry.fact,
            )
            self.rejected.append(summary)

    def _node(self, entry: journal.NodeChanged) -> None:
        self._nodes[entry.node.node_id] = entry.node

    def _node_ended(self, entry: journal.NodeEnded) -> None:
        self._nodes.pop(entry.node.node_id, None)
        self._nodes_gone.append(node_state(entry.node, removed=True))

    def _queue(self, entry: journal.QueueChanged) -> None:
        self._queues[entry.queue] = None

    def _queue_ended(self, entry: journal.QueueEnded) -> None:
        self._queues.pop(entry.queue, None)
        self.published.forget_queue(entry.queue.path)
        self._queues_gone[entry.queue] = queue_state(entry.queue, removed=True)
        if entry.queue.parent is not None:
            self._queues[entry.queue.parent] = None

    def _usage(self, entry: journal.UsageChanged) -> None:
        if entry.leaf is None:
            self._users[entry.tracker] = None
        else:
            self._usage_in(entry.tracker, entry.leaf)

    def _usage_of(self, application: Application) -> None:
        for tracker in application.trackers:
            self._usage_in(tracker, application.queue)

    def _usage_in(self, tracker: Tracker, leaf: Queue) -> None:
        leaves = self._users.setdefault(tracker, {})
        if leaves is not None:
            leaves[leaf] = None

    def _partition_entry(self, _: journal.PartitionChanged) -> None:
        self._has_partition_changed = True

    def _preempted(self, entry: journal.Preempted) -> None:
        """Report an eviction and its preemptor; above MAX_EVENTS it is omitted."""
        if len(self._evictions) >= MAX_EVENTS:
            return
        allocation, winner = entry.allocation, entry.winner
        self._evictions.append(
            EvictionState(
                time_ns=self._now_ns,
                allocation_key=allocation.allocation_key,
                application_id=entry.application.id,
                node_id=allocation.node_id,
                law=entry.cause,
                message=entry.text,
                pod_name=allocation.allocation_tags.get(POD_NAME_TAG, ""),
                winner=winner.id if winner is not None else "",
                winning_ask=entry.ask,
                queue_name=entry.application.queue.path,
                resource=allocation.resource_per_alloc,
            )
        )

    def _pods_held_changed(self, entry: journal.PodsHeldChanged) -> None:
        self._pods_held[entry.held.application_id] = entry.held


class Published:
    """The values published last, so that only differences are published."""

    def __init__(self) -> None:
        self._refusals: dict[Bucket, Waiting] = {}  # the published refusals
        self.forget()

    def forget(self) -> None:
        """Clear them after a snapshot, which may have had other values."""
        self._states: dict[str, PartitionState | QueueState] = {}
        self._configuration = NOT_CONFIGURED

    def forget_queue(self, path: str) -> None:
        """Clear the state of a removed queue."""
        self._states.pop(path, None)

    def partition(self, state: PartitionState) -> tuple[PartitionState, ...]:
        """Return the partition's state if it differs from the last published."""
        if self._states.get("") == state:
            return ()
        self._states[""] = state
        return (state,)

    def queues(self, states: Iterable[QueueState]) -> list[QueueState]:
        """Return the states of queues that differ from the last published."""
        published, changed = self._states, []
        for state in states:
            if published.get(state.path) != state:
                published[state.path] = state
                changed.append(state)
        return changed

    def configuration(self, partition: Partition) -> tuple[ConfigurationState, ...]:
        """Return the configuration if it differs from the last published: it may be large."""
        configured = (partition.config_text, partition.config_extra)
        if configured == self._configuration:
            return ()
        self._configuration = configured
        return (configuration_state(partition),)

    def refusals(self, partition: Partition) -> tuple[RefusalState, ...]:
        """Return the refusals that differ from the last published, ended ones first."""
        gone: list[RefusalState] = []
        news: list[RefusalState] = []
        changed, told = partition.root.changed_buckets, self._refusals
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


def _paths(leaves: dict[Queue, None] | None) -> dict[str, None] | None:
    """Return the paths of queues and of those above them; None stays None."""
    if leaves is None:
        return None
    return {level.path: None for leaf in leaves for level in leaf.lineage()}


def _is_of_a_run(entry: object) -> bool:
    """Whether an entry is one that a run placed."""
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
