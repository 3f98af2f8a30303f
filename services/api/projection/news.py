"""Events derived from changes of the state: rows added, changed and removed.

The core publishes current values once per batch; the previous ones are in the read model. The
events between the two are made here, so that nothing is published twice.

Order: within one change of the state the news of an application are put in the order of its life:
it is added, asks, is accepted, gets its allocations, runs. Old allocations are removed before new
ones are added, and before it completes, fails or leaves. A gang is reported as given up before its
asks are removed, and as accepted again once its placeholders are gone. Nodes and queues are added
before, and removed after, the applications on and in them.

Source: docs/rules/events.md#what-is-recorded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern

from shared.messages.interface import TerminationType
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    EventState,
    NodeState,
    QueueState,
    StateChange,
)
from shared.model.event_codes import DETAIL_OF_STATE, ChangeDetail, ChangeType, EventType
from shared.model.names import FOREIGN_TAG
from shared.model.resources import add_into
from shared.model.states import ApplicationState

_D = ChangeDetail
_NONE, _SET, _ADD, _REMOVE = ChangeType.NONE, ChangeType.SET, ChangeType.ADD, ChangeType.REMOVE
_NOTHING: Mapping[str, int] = {}
_ALLOCATION_GONE: dict[str, ChangeDetail] = {
    TerminationType.UNKNOWN_TERMINATION_TYPE: _D.ALLOC_NODEREMOVED,
    TerminationType.STOPPED_BY_RM: _D.ALLOC_CANCEL,
    TerminationType.TIMEOUT: _D.ALLOC_TIMEOUT,
    TerminationType.PREEMPTED_BY_SCHEDULER: _D.ALLOC_PREEMPT,
    TerminationType.PLACEHOLDER_REPLACED: _D.ALLOC_REPLACED,
}
RUNNABLE_DETAILS = (
    _D.APP_CANNOTRUN_QUEUE,
    _D.APP_RUNNABLE_QUEUE,
    _D.APP_CANNOTRUN_QUOTA,
    _D.APP_RUNNABLE_QUOTA,
)
_ASKS, _GONE, _ADDED, _DROPPED, _GONE_AGAIN = range(5)  # the parts of a life, in their order
_ALL = (_ASKS, _GONE, _ADDED, _DROPPED, _GONE_AGAIN)
_PARTS_BEFORE: dict[str, tuple[int, ...]] = {  # a state; before others all of them
    ApplicationState.NEW: (),
    ApplicationState.REJECTED: (),
    ApplicationState.ACCEPTED: (_ASKS,),
    ApplicationState.RUNNING: (_ASKS, _GONE, _ADDED),
    ApplicationState.RESUMING: (_ASKS, _ADDED),
    ApplicationState.FAILING: (_ASKS, _ADDED),
}


def queue_events(
    before: QueueState | None, after: QueueState, time_ns: int
) -> Iterator[EventState]:
    """Yield the events of a queue's change."""

    def event(
        change: ChangeType, detail: ChangeDetail, message: str = "", amount: object = None
    ) -> EventState:
        resource = amount if isinstance(amount, Mapping) else _NOTHING
        return EventState(
            EventType.QUEUE, after.path, message, time_ns, change, detail, resource=resource
        )

    kind = _D.DETAILS_NONE if after.is_managed else _D.QUEUE_DYNAMIC
    if before is None:
        yield event(_ADD, kind)
    if after.removed:
        yield event(_REMOVE, kind)
    elif before is not None:
        yield from _queue_changes(before, after, event)


def _queue_changes(
    before: QueueState, after: QueueState, event: Callable[..., EventState]
) -> Iterator[EventState]:
    if before.max_resource != after.max_resource:
        yield event(_SET, _D.QUEUE_MAX, amount=after.max_resource)
    if before.guaranteed_resource != after.guaranteed_resource:
        yield event(_SET, _D.QUEUE_GUARANTEED, amount=after.guaranteed_resource)
    if before.is_leaf is not after.is_leaf:
        yield event(_SET, _D.QUEUE_TYPE, f"leaf queue: {_go_bool(value=after.is_leaf)}")


def node_events(before: NodeState | None, after: NodeState, time_ns: int) -> Iterator[EventState]:
    """Yield the events of a node's change, except those of its allocations."""
    if before is not None and not after.removed and _differs_on_nodes_only(before, after):
        return

    def event(
        change: ChangeType,
        detail: ChangeDetail,
        message: str = "",
        resource: Mapping[str, int] = _NOTHING,
    ) -> EventState:
        node = after.node_id
        return EventState(EventType.NODE, node, message, time_ns, change, detail, resource=resource)

    if before is None:
        text = "Node added to the scheduler"
        yield event(_ADD, _D.DETAILS_NONE, text, after.capacity)
    elif not after.removed:
        if before.schedulable is not after.schedulable:
            text = f"schedulable: {_go_bool(value=after.schedulable)}"
            yield event(_SET, _D.NODE_SCHEDULABLE, text)
        if before.capacity != after.capacity:
            yield event(_SET, _D.NODE_CAPACITY, resource=after.capacity)
    yield from _reservation_events(before, after, time_ns)
    if after.removed:
        yield event(_REMOVE, _D.NODE_DECOMISSION, "Node removed from the scheduler")


def _differs_on_nodes_only(before: NodeState, after: NodeState) -> bool:
    """Whether only a node's allocations changed, as in nearly all updates."""
    return (
        before.schedulable is after.schedulable
        and before.reservations == after.reservations
        and before.capacity == after.capacity
    )


def _reservation_events(
    before: NodeState | None, after: NodeState, time_ns: int
) -> Iterator[EventState]:
    held = before.reservations if before is not None else ()
    holds = () if after.removed else after.reservations
    if held == holds:
        return
    for change, these, others in ((_REMOVE, held, holds), (_ADD, holds, held)):
        for key in these:
            if key not in others:
                yield EventState(
                    EventType.NODE, after.node_id, "", time_ns, change, _D.NODE_RESERVATION, key
                )


def _go_bool(*, value: bool) -> str:
    return "true" if value else "false"


def foreign_event(foreign: AllocationState, time_ns: int, *, is_added: bool) -> EventState:
    """Return the event that a foreign pod was added to a node or removed."""
    text = intern(f"foreign: {foreign.tags.get(FOREIGN_TAG, '')}")  # an event a pod is kept
    return _on_node(_item(foreign), time_ns, text, change=_ADD if is_added else _REMOVE)


Item = tuple[str, str, Mapping[str, int], str]  # key, node, resource, why it has gone


def _item(of: AllocationState) -> Item:
    return (of.allocation_key, of.node_id, of.resource, of.why)


def _on_node(item: Item, time_ns: int, message: str = "", *, change: ChangeType) -> EventState:
    key, node, resource, _ = item
    return EventState(EventType.NODE, node, message, time_ns, change, _D.NODE_ALLOC, key, resource)


@dataclass(slots=True)
class ApplicationNews:
    """The changes of one application within one change of the state.

    ``said`` are the core's own events about it. It is complete when it is put into the ring.
    """

    summary: ApplicationSummary
    time_ns: int
    is_new: bool = False
    has_left: bool = False
    group_before: str = ""
    states: list[StateChange] = field(default_factory=list)
    returned: list[Item] = field(default_factory=list)  # not bound: they wait again
    asked: list[Item] = field(default_factory=list)
    dropped: list[Item] = field(default_factory=list)
    added: list[Item] = field(default_factory=list)
    removed: list[Item] = field(default_factory=list)
    said: list[EventState] = field(default_factory=list)

    def ask_added(self, key: str, resource: Mapping[str, int]) -> None:
        """Record a new ask."""
        self.asked.append((key, "", resource, ""))

    def ask_ended(self, key: str, resource: Mapping[str, int], why: str) -> None:
        """Record an ask that ended without an allocation."""
        self.dropped.append((key, "", resource, why))

    def allocation_returned(self, allocation: AllocationState) -> None:
        """Record an allocation that became an ask again, because it could not be bound."""
        self.returned.append(_item(allocation))

    def allocation_added(self, allocation: AllocationState) -> None:
        """Record a new allocation."""
        self.added.append(_item(allocation))

    def allocation_ended(self, allocation: AllocationState) -> None:
        """Record an allocation that has ended."""
        self.removed.append(_item(allocation))

    def resized(self, before: AllocationState, after: AllocationState) -> None:
        """Record an allocation with a new size; only events of usage result."""
        for change, resource in ((_ADD, after.resource), (_REMOVE, before.resource)):
            self.said += _usage(self.summary, self.time_ns, resource, change=change)

    def regrouped(self, before: ApplicationSummary) -> None:
        """Record that its existing usage counts for another group from now on, if so."""
        held = dict(before.allocated)
        add_into(held, before.allocated_placeholder)
        if self.summary.group == before.group or not held:
            return
        for group, change in ((before.group, _REMOVE), (self.summary.group, _ADD)):
            rows = ((group, _D.UG_GROUP_RESOURCE),)
            self.said += _usage_of(rows, self.summary, self.time_ns, held, change=change)

    @property
    def count(self) -> int:
        """The number of its events."""
        allocations = len(self.returned) + len(self.added) + len(self.removed)
        each = 2 + bool(self.summary.user) + bool(self.summary.group)
        ends = self.is_new + self.is_in_queue * (self.is_new + 2 * self.has_left)
        links = bool(self._linked_to) + bool(self._unlinked_from)
        asks = len(self.asked) + len(self.dropped)
        return ends + links + len(self.states) + asks + each * allocations + len(self.said)

    @property
    def _linked_to(self) -> str:
        """The group whose limits apply from now on, "" for none."""
        group = "" if self.has_left else self.summary.group
        return group if group != self.group_before else ""

    @property
    def _unlinked_from(self) -> str:
        """The group whose limits no longer apply, "" for none."""
        is_kept = self.group_before == self.summary.group and not self.has_left
        return "" if is_kept else self.group_before

    @property
    def is_in_queue(self) -> bool:
        """Whether it was added to a queue, not rejected."""
        return not self.summary.rejected_message

    def events(self) -> Iterator[EventState]:
        """Yield its events in the order of its life."""
        yield from self._beginning()
        yield from self._life()
        yield from self._end()

    def _beginning(self) -> Iterator[EventState]:
        if self.is_new:
            yield self._event(_ADD, _D.APP_NEW)
            if self.is_in_queue:
                yield self._in_queue(_ADD)
        if self._linked_to:
            yield self._link(self._linked_to, _SET)

    def _life(self) -> Iterator[EventState]:
        """Yield its states, each after the events that led to it."""
        parts = dict(zip(_ALL, self._parts(), strict=True))
        for state in self.states:
            for part in self._parts_before(state):
                yield from parts.pop(part, ())
            yield state_event(self.summary, state)
        for left in parts.values():
            yield from left

    def _parts(self) -> tuple[Iterator[EventState], ...]:
        """Return the other events, by kind, in the order of ``_ALL``."""
        added = {item[0] for item in self.added}
        gone = [item for item in self.removed if item[0] not in added]
        gone_again = [item for item in self.removed if item[0] in added]
        return (
            self._asks(),
            self._gone(gone),
            self._allocations(),
            self._dropped(),
            self._gone(gone_again),
        )

    def _parts_before(self, state: StateChange) -> tuple[int, ...]:
        """Return the kinds of events that precede a state."""
        if state.state == ApplicationState.ACCEPTED and self._resumed_before(state):
            return (_ASKS, _GONE)
        return _PARTS_BEFORE.get(state.state, _ALL)

    def _resumed_before(self, state: StateChange) -> bool:
        """Whether an application was Resuming before a state."""
        log = self.summary.state_log
        at = next((at for at, known in enumerate(log) if known is state), 0)
        return at > 0 and log[at - 1].state == ApplicationState.RESUMING

    def _end(self) -> Iterator[EventState]:
        if self._unlinked_from:
            yield self._link(self._unlinked_from, _REMOVE)
        if self.has_left and self.is_in_queue:
            yield self._in_queue(_REMOVE)
            yield self._event(_REMOVE, _D.DETAILS_NONE)

    def _asks(self) -> Iterator[EventState]:
        for item in self.returned:
            yield from self._one_gone(item)
        for key, _, resource, _ in self.asked:
            yield self._event(_ADD, _D.APP_REQUEST, reference=key, resource=resource)

    def _allocations(self) -> Iterator[EventState]:
        """Yield the core's own events, which precede its running, and its new allocations."""
        yield from self.said
        for item in self.added:
            yield _on_node(item, self.time_ns, change=_ADD)
            yield from self._usage(item, _ADD)
            yield self._event(_ADD, _D.APP_ALLOC, reference=item[0], resource=item[2])

    def _dropped(self) -> Iterator[EventState]:
        for key, _, resource, why in self.dropped:
            is_late = why == TerminationType.TIMEOUT
            detail = _D.REQUEST_TIMEOUT if is_late else _D.REQUEST_CANCEL
            yield self._event(_REMOVE, detail, reference=key, resource=resource)

    def _gone(self, items: Iterable[Item]) -> Iterator[EventState]:
        for item in items:
            yield from self._one_gone(item)

    def _one_gone(self, item: Item) -> Iterator[EventState]:
        detail = _ALLOCATION_GONE.get(item[3], _D.ALLOC_CANCEL)
        yield self._event(_REMOVE, detail, reference=item[0], resource=item[2])
        yield _on_node(item, self.time_ns, change=_REMOVE)
        yield from self._usage(item, _REMOVE)

    def _usage(self, item: Item, change: ChangeType) -> Iterator[EventState]:
        return _usage(self.summary, self.time_ns, item[2], change=change)

    def _link(self, group: str, change: ChangeType) -> EventState:
        name = self.summary.application_id
        return EventState(
            EventType.USERGROUP, group, "", self.time_ns, change, _D.UG_APP_LINK, name
        )

    def _in_queue(self, change: ChangeType) -> EventState:
        summary = self.summary
        path, name = summary.queue_name, summary.application_id
        return EventState(EventType.QUEUE, path, "", self.time_ns, change, _D.QUEUE_APP, name)

    def _event(
        self,
        change: ChangeType,
        detail: ChangeDetail,
        *,
        reference: str = "",
        resource: Mapping[str, int] = _NOTHING,
    ) -> EventState:
        name = self.summary.application_id
        return EventState(
            EventType.APP, name, "", self.time_ns, change, detail, reference, resource
        )


def state_event(summary: ApplicationSummary, change: StateChange) -> EventState:
    """Return the event of an application's new state, with its reason if there is one."""
    detail = DETAIL_OF_STATE[ApplicationState(change.state)]
    name, message = summary.application_id, change.message
    return EventState(EventType.APP, name, message, change.time_ns, _SET, detail)


def _usage(
    summary: ApplicationSummary, time_ns: int, resource: Mapping[str, int], *, change: ChangeType
) -> Iterator[EventState]:
    rows = ((summary.user, _D.UG_USER_RESOURCE), (summary.group, _D.UG_GROUP_RESOURCE))
    return _usage_of(rows, summary, time_ns, resource, change=change)


def _usage_of(
    rows: tuple[tuple[str, ChangeDetail], ...],
    summary: ApplicationSummary,
    time_ns: int,
    resource: Mapping[str, int],
    *,
    change: ChangeType,
) -> Iterator[EventState]:
    for name, detail in rows:
        if name:
            yield EventState(
                EventType.USERGROUP, name, "", time_ns, change, detail, summary.queue_name, resource
            )
