"""The host: read an inbox, let a machine handle the messages, publish the answers, acknowledge.

Every service runs this loop. Messages are handled in ``batches.py`` by a machine (``machine.py``);
``outbox.py`` publishes the answers; ``beats.py`` detects a lost place; ``own_messages.py`` makes
messages of the instance to itself.

Rule 1: every answer is published and confirmed before the message that caused it is acknowledged.
Rule 2: a message that has been handled is not handled again; it is acknowledged.
Rule 3: an instance that lost its connection has lost its place: it starts over with a new machine,
        which recovers like any other (ARCHITECTURE.md, Recovery).
Rule 4: an exception from a machine is a bug: it stops the host, which starts over. A message that
        caused MAX_CRASHES of them is dead-lettered with the reason, whether in handling, in the
        cycle after it, or by an unsendable answer that cannot be split. One message thus cannot
        keep a service down.
Rule 5: answers to the messages of one batch are merged where possible.
Rule 6: an item that cannot be sent is skipped; the rest of its message is sent. The machine is
        informed (``on_unsendable``) and notifies the item's sender; so it is for a command, or an
        answer that a request waits for.
Rule 7: a batch is handled in slices of MAX_SLICE_ITEMS items. Between them, and between slices of
        one message, the loop runs other tasks, because a connection without heartbeats is lost. For
        the same reason a flush that its machine declares long runs in a thread, and is awaited; and
        a batch ends after MAX_BATCH_ITEMS items, so that their effects are bounded.
Rule 8: a state that a machine cannot save now (NotNowError from ``flush``) is retried until it
        succeeds: until then nothing is answered or acknowledged, and no message is blamed.
Rule 9: two hosts with full inboxes that publish to each other would deadlock. A host whose machine
        ``recovers`` then acknowledges its waiting messages unhandled, drops its answers, and starts
        over, so that the other can continue.
Rule 10: a place may be given up, or declined when it becomes active
        (``shared/runtime/members.py``): unacknowledged messages go to the next standby, and the
        host joins the line again as the last.
Rule 11: a broker may consider a reader alive and deliver nothing to it. A reader whose confirmed
        heartbeats are not delivered for ``silent_ns`` while it waits has lost its place. So has a
        standby if messages wait that long and no reader takes them (``shared/runtime/unread.py``).
        The host logs this, leaves its place and takes a new one.
Rule 12: a dead letter is replayed on request (``ReplayDeadLetters``) as if it had just arrived
        (``shared/runtime/replaying.py``): its machine sees no difference.
Rule 13: an API replica that hears nothing from other services uses the next node of the broker, as
        its own may be cut off from the rest (``shared/runtime/alone.py``).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from shared.bus.base import ANY_LETTER, Bus, DeadLetters, Delivery, Subscription, Wanted
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.messages.envelope import Address, Envelope
from shared.messages.protocol import Tick
from shared.messages.routes import SERVICES
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import seconds
from shared.runtime.batches import Batches
from shared.runtime.beats import Beats
from shared.runtime.clock import Clock
from shared.runtime.figures import export_figures_of
from shared.runtime.machine import Driven, Machine
from shared.runtime.metrics import HostMetrics
from shared.runtime.outbox import StuckError
from shared.runtime.own_messages import Injected, OwnMessages
from shared.runtime.pauses import PAUSE, why_failed
from shared.runtime.place import Place
from shared.runtime.spacing import Spacing
from shared.runtime.stopping import stop_if_cancelled
from shared.runtime.telemetry import Tap

MAX_BATCH = 200
_IS_AWAY = retry_if_exception_type(BusUnavailableError)
_FIRST = asyncio.FIRST_COMPLETED
log = structlog.get_logger("muster.host")


@dataclass(slots=True)
class HostOptions:
    """How a host runs. ``heartbeat_ns`` 0: a single heartbeat at the start (scenarios).

    ``hold_tap_ns`` is how long trace records may wait to be sent; decisions never wait.
    ``max_pause_ns`` is how long messages may gather while more arrive than are handled.
    ``silent_ns`` is how long the host's own heartbeats may be missing until its place is lost (rule
    11): as long as a broker takes to detect a lost client.
    """

    heartbeat_ns: int = seconds(1)
    silent_ns: int = seconds(9)
    is_tapped: bool = True
    hold_tap_ns: int = 0
    max_pause_ns: int = 0
    max_batch: int = MAX_BATCH
    on_crash: Callable[[BaseException], None] | None = field(default=None)
    make_metrics: Callable[[str], HostMetrics] = HostMetrics


class Host:
    """One instance of a service: a machine, its inbox, and the loop between them."""

    def __init__(
        self,
        inbox: Address,
        make_machine: Callable[[], Machine],
        bus: Bus,
        clock: Clock,
        *,
        instance: str,
        options: HostOptions | None = None,
        partition: str = DEFAULT_PARTITION,
        may_take: Callable[[], bool] = lambda: True,
    ) -> None:
        self._options = options or HostOptions()
        self.inbox = inbox
        self.instance = instance
        self.partition = partition  # of messages whose machine names none
        self.metrics = self._options.make_metrics(inbox.service)
        self.away_since_ns = clock.now_ns()  # when the bus was lost; 0 while an inbox is read
        self.connected_ns = self.away_since_ns  # when reading began
        self._may_take = may_take  # called before it becomes active
        self._gives_up = False
        self._bus = bus
        self._clock = clock
        self._driven = Driven(make_machine, inbox.service)
        self._place = Place(inbox, instance, partition, bus, clock)
        self._own = OwnMessages(self._place)
        self._injected = Injected(self._options.max_batch)
        self._tap = Tap(
            inbox.service, is_on=self._options.is_tapped, hold_ns=self._options.hold_tap_ns
        )
        parts = (self._place, self._driven, self._own)
        self._beats = Beats(
            *parts, heartbeat_ns=self._options.heartbeat_ns, silent_ns=self._options.silent_ns
        )
        self._batches = Batches(
            *parts,
            injected=self._injected, beats=self._beats, tap=self._tap, metrics=self.metrics,
        )  # fmt: skip
        self._spacing = Spacing(self._options.max_pause_ns)
        self._idle_ns = 0  # that it waited for the last messages
        self._is_connected = self._has_read = False
        self._shown_epoch = 0  # last logged
        self._to_put_down = 0  # waiting messages to acknowledge unhandled
        export_figures_of(self)

    @property
    def machine(self) -> Machine:
        """The current machine."""
        machine: Machine = self._driven.machine
        return machine

    @property
    def is_active(self) -> bool:
        """Whether it is the active reader of its inbox, as far as it knows."""
        return self._place.is_active

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a message."""
        return self._place.is_waiting

    @property
    def heartbeat_ns(self) -> int:
        """Time between heartbeats; 0 for a single one at the start."""
        return self._options.heartbeat_ns

    @property
    def now_ns(self) -> int:
        """Current time of this host's clock."""
        return self._clock.now_ns()

    @property
    def is_at_work(self) -> bool:
        """Whether it is active and has recently handled one of its own heartbeats."""
        return self._beats.is_at_work

    def figures(self) -> dict[tuple[str, str, str], int]:
        """Return the machine's figures, none unless it is at work."""
        values = self._driven.figures() if self.is_at_work else {}
        return {
            (name, self.inbox.service, "" if partition == DEFAULT_PARTITION else partition): number
            for name, value in values.items()
            for partition, number in (value if isinstance(value, Mapping) else {"": value}).items()
        }

    async def run(self) -> None:
        """Run until cancelled, starting over whenever the connection is lost."""
        with suppress(BusClosedError):
            again = AsyncRetrying(retry=_IS_AWAY, wait=self._pause, before_sleep=self._start_over)
            await again(self._run_connected)

    def _pause(self, attempts: RetryCallState) -> float:
        """Return the seconds until the next attempt; start over after a successful connection."""
        if self._has_read:
            attempts.attempt_number = 1
        return PAUSE(attempts)

    def _start_over(self, attempts: RetryCallState) -> None:
        if attempts.attempt_number == 1:
            log.warning(
                "the bus is away; starting over when it answers",
                service=self.inbox.service,
                error=why_failed(attempts),
            )
        self._place.is_active = self._has_read = False
        self._driven.renew()
        stop_if_cancelled()

    @property
    def is_connected(self) -> bool:
        """Whether the host reads its inbox, as the active reader or as a standby."""
        return self._is_connected

    @property
    def is_ready(self) -> bool:
        """Whether it reads its inbox and its machine can answer requests."""
        return self._is_connected and self._driven.is_ready

    async def close(self) -> None:
        """Close the connections; this ends ``run``."""
        await self._bus.close()

    async def inject(
        self,
        message: object,
        *,
        reply_to: str = "",
        traceparent: str = "",
        partition: str = "",
    ) -> str:
        """Queue a message from inside the service; return its identity."""
        envelope = self._own.make(
            message,
            partition=partition,
            traceparent=traceparent,
            reply_to=reply_to,
        )
        await self._injected.put(envelope)
        return envelope.message_id

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List dead letters on the bus. Raises BusUnavailableError."""
        return await self._bus.dead_letters(most, wanted)

    async def drop_letters(self, wanted: Wanted) -> list[str]:
        """Delete dead letters of any service; return their identities. Raises BusUnavailableError.

        Letters before the first one that cannot be dropped are deleted.
        """
        dropped: list[str] = []
        for service in SERVICES:
            async with self._bus.take_letters(service, wanted) as held:
                for letter in held:
                    await letter.drop()
                    dropped.append(letter.letter.message_id)
        return dropped

    async def send_to_inbox(self, message: object) -> None:
        """Publish a message to the active reader of this inbox.

        Raises BusUnavailableError or BusClosedError when it could not be confirmed.
        """
        await self._bus.publish([self._own.make(message, what="sent/")])

    # --- the loop -------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Give up being the active reader after the current batch, and become the last standby."""
        self._gives_up = True

    async def _run_connected(self) -> None:
        while True:
            await self._read_inbox()
            self._place.is_active = self._gives_up = False
            self._driven.renew()

    async def _read_inbox(self) -> None:
        """Read until the place is given up; later messages stay unacknowledged."""
        subscription = await self._bus.subscribe(self.inbox)
        self._is_connected = self._has_read = True
        self.away_since_ns, self.connected_ns = 0, self._clock.now_ns()
        self._beats.arrived()
        beats = asyncio.create_task(self._beats.run())
        try:
            await self._loop(subscription, beats)
        finally:
            self._is_connected = False
            self.away_since_ns = self._clock.now_ns()
            beats.cancel()
            try:
                await asyncio.gather(beats, return_exceptions=True)  # raises if cancelled
            finally:
                with suppress(BusUnavailableError, BusClosedError):
                    await subscription.close()

    async def _loop(self, subscription: Subscription, beats: "asyncio.Task[None]") -> None:
        receiving: asyncio.Task[list[Delivery]] | None = None
        injected: asyncio.Task[Envelope] | None = None
        sleeping: asyncio.Task[None] | None = None
        try:
            while not self._gives_up:
                stop_if_cancelled()
                receiving = receiving or asyncio.create_task(self._receive(subscription))
                injected = injected or asyncio.create_task(self._injected.first())
                sleeping = self._sleeper()
                waiting = {receiving, injected} | ({sleeping} if sleeping else set())
                await self._wait(waiting, beats)
                deliveries: list[Delivery] = []
                inside: list[Envelope] = []
                if receiving.done():
                    deliveries, receiving = receiving.result(), None
                    self._beats.arrived(deliveries)
                    deliveries = self._taken(deliveries)
                if injected.done():
                    inside += self._injected.batch_of(injected.result())
                    injected = None
                if sleeping is not None:
                    due_ns = self._machine_due_ns()
                    if sleeping.done() and due_ns is not None and due_ns <= self._clock.now_ns():
                        inside.append(self._tick())
                    sleeping.cancel()
                await self._handle_or_put_down(subscription, deliveries, inside)
        finally:
            self._place.is_waiting = False
            for task in (receiving, injected, sleeping):
                if task is not None:
                    task.cancel()

    async def _receive(self, subscription: Subscription) -> list[Delivery]:
        """Return new messages, after a pause if that merges several batches."""
        pause_ns = self._spacing.pause_ns
        if pause_ns:
            await self._clock.sleep_until(self._clock.now_ns() + pause_ns)
        began_ns = self._clock.now_ns()
        deliveries = await subscription.receive(self._options.max_batch)
        self._idle_ns = self._clock.now_ns() - began_ns
        return deliveries

    async def _wait(self, waiting: set["asyncio.Task[Any]"], beats: "asyncio.Task[None]") -> None:
        """Wait for one of the tasks, or raise if heartbeats show that the place is lost."""
        is_beating = self._options.heartbeat_ns > 0
        self._place.is_waiting = True
        await asyncio.wait(waiting | ({beats} if is_beating else set()), return_when=_FIRST)
        self._place.is_waiting = False
        if is_beating and beats.done():
            beats.result()

    def _taken(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return the messages to handle; none if the host declines to become active."""
        if not self.is_active and not self._may_take():
            self._gives_up = True
            return []
        if not self.is_active and self.inbox.is_durable:
            log.info("the active reader of its inbox", inbox=self.inbox.routing_key)
        self._place.is_active = True
        return deliveries

    def _note_epoch(self) -> None:
        """Log once that the machine has recovered, and its epoch."""
        epoch = self._driven.epoch
        if epoch != self._shown_epoch and self._driven.is_synced and self.inbox.is_durable:
            self._shown_epoch = epoch
            log.info("recovered", inbox=self.inbox.routing_key, epoch=epoch)

    def _sleeper(self) -> "asyncio.Task[None] | None":
        """Return a task that ends when the machine or held trace records are due, or None."""
        due = [at for at in (self._machine_due_ns(), self._tap.due_ns) if at is not None]
        return asyncio.create_task(self._clock.sleep_until(min(due))) if due else None

    def _machine_due_ns(self) -> int | None:
        return self._driven.next_due_ns() if self.is_active else None

    def _tick(self) -> Envelope:
        return self._own.make(Tick(), what="tick/", source="clock")

    async def _handle_or_put_down(
        self, subscription: Subscription, deliveries: list[Delivery], inside: list[Envelope]
    ) -> None:
        """Handle messages; on a deadlock of full inboxes acknowledge them unhandled (rule 9)."""
        came_ns, count = self._clock.now_ns(), len(deliveries)
        if self._to_put_down > 0:
            self._to_put_down -= len(deliveries)
            await self._batches.leave_out(subscription, deliveries)
            deliveries = []
        try:
            await self._batches.handle(subscription, deliveries, inside)
        except StuckError as stuck:
            log.warning(
                "its inbox and one that it publishes to are full: starting over without the "
                "waiting messages",
                service=self.inbox.service,
                waiting=stuck.waiting,
            )
            await self._batches.leave_out(subscription, deliveries)
            self._injected.answered(inside)
            self._to_put_down = stuck.waiting
            self._driven.renew()
        self._note_epoch()
        if count:
            self._spacing.took(
                count,
                idle_ns=self._idle_ns,
                spent_ns=self._clock.now_ns() - came_ns,
                is_full=count >= self._options.max_batch,
            )
