"""The timer wheel: a pure machine with the armed timers, which fires those that are due.

Rule 1: orders are idempotent by timer id and generation; the core is the truth, so a new
        wheel requests all of them and needs no storage.
Rule 2: a firing may be late or repeated; the core checks the generation.
Rule 3: an order's due moment is the core's clock; the wheel uses the time from order to due
        moment, so that no timer fires early when clocks differ.
Limit: MAX_TIMERS; beyond it the timers due last are dropped and counted, and requested again
       when there is room.
"""

from dataclasses import replace
from heapq import heapify, heappop, heappush

from shared.messages.envelope import Envelope, Outgoing, core_of
from shared.messages.protocol import (
    TimerFired,
    TimerFirings,
    TimerOrders,
    TimerSet,
    TimerSyncRequest,
)
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import seconds

MAX_TIMERS = 1_000_000
ASK_AGAIN_NS = seconds(10)


class TimerWheel:
    """The timers of one partition, by due time. ``partition`` is its name."""

    recovers = True  # from what the core has armed

    def __init__(self, instance: str, partition: str = DEFAULT_PARTITION) -> None:
        self.instance = instance
        self._core = core_of(partition)
        self.left_out = 0
        self._timers: dict[str, TimerSet] = {}
        self._due: list[tuple[int, str, str]] = []
        self._is_synced = False
        self._asked_ns = 0
        self._epoch = 0
        self._fired = 0

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Apply orders, request the armed timers at first, and return the due ones."""
        outgoing: list[Outgoing] = []
        if not self._is_synced and (not self._asked_ns or now_ns - self._asked_ns >= ASK_AGAIN_NS):
            self._asked_ns = max(now_ns, 1)
            outgoing.append(self._ask())
        if isinstance(envelope.message, TimerOrders) and envelope.epoch >= self._epoch:
            self._epoch = envelope.epoch
            behind_ns = now_ns - envelope.published_ns if envelope.published_ns else 0
            self._apply(envelope.message, behind_ns)
        fired = self._take_due(now_ns)
        if fired:
            outgoing.append(Outgoing(self._core, TimerFirings(fired)))
        if self.left_out and len(self._timers) < MAX_TIMERS // 2:
            self.left_out = 0
            outgoing.append(self._ask())
        return outgoing

    def _ask(self) -> Outgoing:
        request = TimerSyncRequest(self.instance)
        return Outgoing(self._core, request, correlation_id="recovery", asked_by=self.instance)

    def next_due_ns(self) -> int | None:
        """Return when the next timer is due, or None."""
        while self._due:
            due_ns, timer_id, generation = self._due[0]
            timer = self._timers.get(timer_id)
            if timer is not None and timer.generation == generation:
                return due_ns
            heappop(self._due)
        return None

    def armed(self) -> int:
        """Return the number of armed timers."""
        return len(self._timers)

    def figures(self) -> dict[str, int | dict[str, int]]:
        """Return the wheel's figures for metrics."""
        return {
            "epoch": {self._core.name: self._epoch},
            "timers_armed": len(self._timers),
            "timers_left_out": self.left_out,
            "timers_fired_total": self._fired,
        }

    def _apply(self, orders: TimerOrders, behind_ns: int) -> None:
        if orders.reset:
            self._is_synced = True
            self._timers.clear()
            self._due.clear()
        for cancelled in orders.cancelled:
            known = self._timers.get(cancelled.timer_id)
            if known is not None and known.generation == cancelled.generation:
                del self._timers[cancelled.timer_id]
        for timer in orders.armed:
            if len(self._timers) >= MAX_TIMERS and timer.timer_id not in self._timers:
                self.left_out += 1
                continue
            due_ns = timer.due_ns + behind_ns
            self._timers[timer.timer_id] = replace(timer, due_ns=due_ns)
            heappush(self._due, (due_ns, timer.timer_id, timer.generation))
        self._compact()

    def _compact(self) -> None:
        """Rebuild the heap when most of its entries are cancelled timers."""
        if len(self._due) > 2 * len(self._timers) + 64:
            self._due = [(t.due_ns, t.timer_id, t.generation) for t in self._timers.values()]
            heapify(self._due)

    def _take_due(self, now_ns: int) -> tuple[TimerFired, ...]:
        fired: list[TimerFired] = []
        due_ns = self.next_due_ns()
        while due_ns is not None and due_ns <= now_ns:
            timer = self._timers.pop(self._due[0][1])
            fired.append(
                TimerFired(timer.timer_id, timer.kind, timer.application_id, timer.generation)
            )
            due_ns = self.next_due_ns()
        self._fired += len(fired)
        return tuple(fired)
