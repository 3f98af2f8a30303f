"""Responses to the resource manager, and timer orders, from journal entries.

Rule 1: items about one application keep their order. The sections of an UpdateResponse are applied
        one after another, so that an item goes into the first response in which its section is not
        applied before the application's earlier items.
Rule 2: events of pods come last, as scheduling states: users see them on pods.
Rule 3: of several orders for one timer the last counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any

from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.statement import journal
from shared.messages.envelope import SHIM_ADAPTER, Address, Outgoing
from shared.messages.interface import (
    CREATES,
    AcceptedApplication,
    AcceptedNode,
    AllocationRelease,
    ContainerSchedulingState,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    SchedulingState,
    UpdatedApplication,
    UpdateResponse,
)
from shared.messages.protocol import TimerCancel, TimerOrders, TimerSet
from shared.messages.state import EventState
from shared.model.event_codes import EventType
from shared.model.sentences import Refused, condition_text

_SECTION_ORDER = {item.name: at for at, item in enumerate(fields(UpdateResponse))}
_application_of, _allocation_of = itemgetter(0), itemgetter(2)  # of an item of RunPlaced


class Responses:
    """Responses to the resource manager and timer orders, in order, until ``take``."""

    _condition: tuple[Refused | None, str] = (None, "")  # the last refusal, and its text

    def __init__(self) -> None:
        self._now_ns = 0
        self._responses: list[dict[str, list[Any]]] = []
        self._position: dict[str, tuple[int, int]] = {}
        self._at_pods: list[EventState] = []
        self.forget_timers()
        self.readers: dict[type, Callable[[Any], None]] = {
            journal.TimePassed: self._time_passed,
            journal.AskReleased: self._ask_released,
            journal.AskRejected: self._ask_rejected,
            journal.AskUnschedulable: self._ask_unschedulable,
            journal.Allocated: self._allocated,
            journal.RunPlaced: self._run_placed,
            journal.AllocationReleased: self._allocation_released,
            journal.EndConfirmed: lambda entry: self._add(
                "released_allocations", entry.release.application_id, entry.release
            ),
            journal.ApplicationAccepted: self._accepted,
            journal.ApplicationRejected: self._rejected,
            journal.StateChanged: self._state,
            journal.NodeAccepted: lambda entry: self._add(
                "accepted_nodes", entry.node.node_id, AcceptedNode(entry.node.node_id)
            ),
            journal.NodeRejected: self._node_rejected,
            journal.UsageReported: self._usage_reported,
            journal.TimerArmed: self._timer_armed,
            journal.TimerCancelled: self._timer_cancelled,
        }

    def take(self, epoch: int, timers: Address) -> list[Outgoing]:
        """Return the messages to the resource manager and the timers, and clear them."""
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
        """Clear the timer orders, because all timers are about to be sent."""
        self._armed: dict[str, TimerSet] = {}
        self._cancelled: dict[str, TimerCancel] = {}

    def add_events(self, found: Sequence[EventState]) -> None:
        """Add those of some events that are about pods."""
        self._at_pods += [event for event in found if event.type == EventType.REQUEST]

    def _report_at_pods(self) -> None:
        for event in self._at_pods:
            owner, key = event.reference_id, event.object_id
            state = ContainerSchedulingState(owner, key, SchedulingState.SKIPPED, event.message)
            self._add("scheduling_states", owner, state)
        self._at_pods = []

    def _add(self, section: str, owner: str, item: object) -> None:
        """Append an item in the order of its application or node."""
        self._items(section, owner).append(item)

    def _items(self, section: str, owner: str) -> list[Any]:
        """Return the list for the next item of an application or node."""
        order = _SECTION_ORDER[section]
        at, last = self._position.get(owner, (0, -1))
        if order < last:
            at += 1
        self._position[owner] = (at, order)
        while len(self._responses) <= at:
            self._responses.append({})
        return self._responses[at].setdefault(section, [])

    # --- entries --------------------------------------------------------------------------------

    def _time_passed(self, entry: journal.TimePassed) -> None:
        self._now_ns = entry.now_ns

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

    def _condition_of(self, refusal: Refused) -> str:
        """Return a condition's text; equal asks have the same refusal in a row."""
        if self._condition[0] is not refusal:
            self._condition = (refusal, condition_text(refusal))
        return self._condition[1]

    def _allocated(self, entry: journal.Allocated) -> None:
        if entry.is_new:
            self._add("new_allocations", entry.application.id, entry.allocation)

    def _run_placed(self, entry: journal.RunPlaced) -> None:
        applications = dict.fromkeys(map(_application_of, entry.placed))
        lists = {each: self._items("new_allocations", each.id) for each in applications}
        first = next(iter(lists.values()), [])
        if all(each is first for each in lists.values()):
            first.extend(map(_allocation_of, entry.placed))
            return
        for application, _, allocation in entry.placed:
            lists[application].append(allocation)

    def _allocation_released(self, entry: journal.AllocationReleased) -> None:
        owner, key = entry.application.id, entry.allocation.allocation_key
        release = AllocationRelease(owner, key, entry.why, message=entry.message)
        self._add("released_allocations", owner, release)

    def _accepted(self, entry: journal.ApplicationAccepted) -> None:
        application = entry.application
        accepted = AcceptedApplication(
            application.id, application.queue.path, application.request.submission
        )
        self._add("accepted_applications", application.id, accepted)

    def _rejected(self, entry: journal.ApplicationRejected) -> None:
        request = entry.request
        rejected = RejectedApplication(request.application_id, entry.reason, request.submission)
        self._add("rejected_applications", request.application_id, rejected)

    def add_reserved(self, application: Application, ask: Ask, node: str) -> None:
        """Report the node on which victims are released for an ask, "" if none any more."""
        owner, state = application.id, SchedulingState.RESERVED
        report = ContainerSchedulingState(owner, ask.key, state, node_id=node)
        self._add("scheduling_states", owner, report)

    def _state(self, entry: journal.StateChanged) -> None:
        application = entry.application
        updated = UpdatedApplication(
            application.id,
            entry.state.value,
            self._now_ns,
            entry.message,
            application.request.submission,
        )
        self._add("updated_applications", application.id, updated)

    def _node_rejected(self, entry: journal.NodeRejected) -> None:
        """Reject a new node; for other updates the event alone reports the rejection.

        Source: docs/rules/interface.md#requests-and-responses.
        """
        name = entry.info.node_id
        if entry.info.action in CREATES:
            self._add("rejected_nodes", name, RejectedNode(name, entry.reason))

    def _usage_reported(self, entry: journal.UsageReported) -> None:
        self._items("usage", "").extend(entry.records)

    def _timer_armed(self, entry: journal.TimerArmed) -> None:
        self._cancelled.pop(entry.timer.timer_id, None)
        self._armed[entry.timer.timer_id] = entry.timer

    def _timer_cancelled(self, entry: journal.TimerCancelled) -> None:
        self._armed.pop(entry.timer_id, None)
        self._cancelled[entry.timer_id] = TimerCancel(entry.timer_id, entry.generation)
