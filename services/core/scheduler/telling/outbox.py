"""What the scheduler has to say: gathered while it works, handed over at the end of a batch.

Rule 1: what is said to the resource manager of one application keeps its order. Sections of an
        UpdateResponse are applied one after another, so an item goes into the first response in
        which its section does not come too late for its application.
Rule 2: a state event says the present value of what changed, once, however often it changed.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from shared.messages.envelope import CORE, SHIM_ADAPTER, TIMERS, Outgoing
from shared.messages.interface import UpdateResponse
from shared.messages.protocol import ContinueCycle, TimerCancel, TimerOrders, TimerSet
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    EventState,
    NodeState,
    QueueState,
)

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application
    from services.core.scheduler.model.nodes import Node
    from services.core.scheduler.model.queues import Queue

MAX_EVENTS = 1_000
_SECTION_ORDER = {item.name: at for at, item in enumerate(fields(UpdateResponse))}


class Outbox:
    """Decisions for the resource manager, orders for the timers, changes for the API."""

    def __init__(self) -> None:
        self.applications: dict[Application, None] = {}
        self.queues: dict[Queue, None] = {}
        self.nodes: dict[str, Node] = {}
        self.asks: dict[str, AskState] = {}
        self.allocations: dict[str, AllocationState] = {}
        self.rejected: list[ApplicationSummary] = []
        self.nodes_gone: list[NodeState] = []
        self.queues_gone: list[QueueState] = []
        self.events: list[EventState] = []
        self.partition_changed = False
        self._responses: list[dict[str, list[Any]]] = []
        self._position: dict[str, tuple[int, int]] = {}
        self._armed: dict[str, TimerSet] = {}
        self._cancelled: dict[str, TimerCancel] = {}
        self._cycles = 0
        self._wants_cycle = False

    def say(self, section: str, item: object) -> None:
        """Add an item for the resource manager, in its application's order."""
        key = str(getattr(item, "application_id", "") or getattr(item, "node_id", ""))
        order = _SECTION_ORDER[section]
        at, last = self._position.get(key, (0, -1))
        if order < last:
            at += 1
        self._position[key] = (at, order)
        while len(self._responses) <= at:
            self._responses.append({})
        self._responses[at].setdefault(section, []).append(item)

    def say_event(self, event: EventState) -> None:
        """Add an event for people; beyond MAX_EVENTS a batch they are left out."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)

    def arm(self, timer: TimerSet) -> None:
        """Have a timer set; a later order for the same timer replaces it."""
        self._cancelled.pop(timer.timer_id, None)
        self._armed[timer.timer_id] = timer

    def cancel(self, timer_id: str, generation: str) -> None:
        """Have a timer cancelled; one that was never ordered is just forgotten."""
        self._armed.pop(timer_id, None)
        self._cancelled[timer_id] = TimerCancel(timer_id, generation)

    def want_cycle(self) -> None:
        """Ask for another cycle: this one stopped at its limit."""
        self._wants_cycle = True

    def touch(self, application: "Application") -> None:
        """Say that an application's own values, and its queue's, have changed."""
        self.applications[application] = None
        self.touch_queue(application.queue)

    def touch_queue(self, queue: "Queue") -> None:
        """Say that a queue's values changed, and with them those above it."""
        for above in queue.lineage():
            self.queues[above] = None

    def drain(self, epoch: int) -> list[Outgoing]:
        """Return everything for the resource manager and the timers, and forget it."""
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
            outgoing.append(Outgoing(TIMERS, orders, epoch=epoch))
        if self._wants_cycle:
            self._cycles += 1
            outgoing.append(Outgoing(CORE, ContinueCycle(self._cycles), epoch=epoch))
        self._responses, self._position = [], {}
        self._armed, self._cancelled = {}, {}
        self._wants_cycle = False
        return outgoing

    def forget_timers(self) -> None:
        """Forget the timer orders: all timers are about to be told at once."""
        self._armed, self._cancelled = {}, {}

    def forget_changes(self) -> None:
        """Forget which values have changed: they have been told."""
        self.applications = {}
        self.queues = {}
        self.nodes = {}
        self.asks = {}
        self.allocations = {}
        self.rejected = []
        self.nodes_gone = []
        self.queues_gone = []
        self.events = []
        self.partition_changed = False
