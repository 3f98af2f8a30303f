"""The host: read an inbox, let a machine handle what comes, publish the answers, acknowledge.

It is the one loop that every service runs.

Rule 1: every answer is published and confirmed before the message that caused it is acknowledged.
Rule 2: a message that has been handled is not handled again; it is acknowledged.
Rule 3: an instance that lost its connection has lost its place: it starts over with a new machine,
        which recovers like any other (architecture section 4).
Rule 4: an exception from a machine is a bug, and stops the host, which starts over. A message that
        did so MAX_CRASHES times, in handling, in the cycle after it, or by an answer of one piece
        that cannot be sent, is dead-lettered with the reason: one message cannot keep a service
        down.
Rule 5: what is said in answer to the messages of one batch is said together where it can be.
Rule 6: an item that cannot be sent is left out, and what was to be sent beside it is sent. The
        machine is informed (``on_unsendable``) and reports to the item's sender. So it does of a
        command, or an answer that a request waits for.
Rule 7: a batch is handled in slices of MAX_SLICE_ITEMS items; between them the loop does what else
        there is: a connection whose heartbeats stop has lost its place. So it does between the
        slices that a machine cuts one message into. For the same reason a
        flush that is long by its machine's own word runs in a thread, and is waited for; and a
        batch ends after MAX_BATCH_ITEMS items, so that what follows from them is bounded.
Rule 8: what a machine cannot keep now (NotNowError from ``flush``) is tried again until it can be:
        until then nothing is answered or acknowledged, and no message is to blame.
Rule 9: two whose inboxes are full, and who both publish to the other, would wait for ever. One
        whose machine ``recovers`` puts down what it would say, and what waits for it, and starts
        over; so the other goes on.
Rule 10: a place may be given up, or not taken when its turn comes (``shared/runtime/members.py``):
        what is not acknowledged goes to the next in line, and who gave it up stands last in it.
Rule 11: a broker may take a reader for alive and deliver nothing to it. One that reads, and whose
        own heartbeats, confirmed, do not come for ``silent_ns`` while it waits, has lost its place;
        so has a standby while messages wait that none takes, for as long at most
        (``shared/runtime/unread.py``). It says so, lets go of its place and takes one again.
Rule 12: a dead letter is handled after all where that is asked for (``ReplayDeadLetters``), as if
        it had come now (``shared/runtime/replaying.py``): its machine sees no difference.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from shared.bus.base import ANY_LETTER, Bus, DeadLetters, Delivery, Subscription, Wanted
from shared.bus.errors import (
    BusClosedError,
    BusUnavailableError,
    InboxFullError,
    NotNowError,
    PoisonError,
)
from shared.bus.fitting import Unsendable, fitting, numbered
from shared.messages.dead_letters import ReplayDeadLetters
from shared.messages.envelope import (
    API_ALL,
    API_TRACE,
    Address,
    Envelope,
    Outgoing,
    envelope_of,
)
from shared.messages.protocol import AtWork, Heartbeat, Tick
from shared.messages.routes import SERVICES
from shared.messages.sections import coalesced, item_count, merged, story_of
from shared.messages.trace import TraceRecord, TraceRecords
from shared.model.ids import derived_id
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND, seconds
from shared.runtime.clock import Clock
from shared.runtime.dedupe import HandledMessages
from shared.runtime.figures import Figures, export_figures_of
from shared.runtime.metrics import HostMetrics
from shared.runtime.replaying import Replays, answer_to, envelope_of_letter
from shared.runtime.spacing import Spacing
from shared.runtime.stopping import stop_if_cancelled
from shared.runtime.telemetry import Tap
from shared.runtime.unread import Unread

MAX_BATCH = 200
MAX_CRASHES = 3
MAX_SLICE_ITEMS = 2_000
MAX_BATCH_ITEMS = 20_000  # items handled together; what comes beyond is a batch of its own
MAX_INJECTED = 1_000
MISSED_BEATS = 3  # heartbeats in a row; a host that has handled none of them does not work
WAY_NS = seconds(2)  # that a heartbeat may be on its way, and wait to be handled, besides
_MOST_SHOWN = 300
_BESIDE = -1  # of what is published beside a heartbeat: its answers are numbered from 0
_RETRY_FIRST_SECONDS = 0.1
_RETRY_LONGEST_SECONDS = 2.0
_PAUSE = wait_exponential(multiplier=_RETRY_FIRST_SECONDS, max=_RETRY_LONGEST_SECONDS)
_IS_AWAY = retry_if_exception_type(BusUnavailableError)
_OF_THE_FLUSH = 1_000_000  # answers are numbered from here on, by what they are
_OF_THE_TAP = 2_000_000
_OF_A_BATCH = 3_000_000
_FIRST = asyncio.FIRST_COMPLETED
_Said = tuple[Outgoing, Envelope, int]  # with its cause, and its number among the answers to it
log = structlog.get_logger("muster.host")


class _StuckError(Exception):
    """The receiver waits for room in this host's own inbox."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} messages wait here")
        self.waiting = waiting


class Machine(Protocol):
    """What a host drives. ``handle`` takes a message in, ``flush`` ends a batch.

    One that ``recovers`` gets everything it knows from others: its messages may be lost.

    One with ``prepare(envelope)`` returns what has to be worked out before it is handled, or None:
    it runs in a thread, while heartbeats go on, and messages keep their order.
    One with ``slices(envelope, now_ns, said)`` does the same as ``handle`` by and by: it adds the
    answers to ``said``, and yields where the loop may go on; until it ends none is said. It must
    be of the machine's own class: a wrapper that hands the rest through sees ``handle``.
    One with ``is_flush_long()`` says whether the next flush takes longer than heartbeats can wait;
    it then runs in a thread, and changes nothing that others than the host read.
    One with ``on_unsendable(envelope, item, reason, now_ns)`` hears of what could not be sent, and
    returns what is to be said of it; ``item`` is None for the whole message.
    """

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Take a message in and return the answers."""


@dataclass(slots=True)
class Injected:
    """A message from inside the service, on the same way as those from the bus."""

    envelope: Envelope


@dataclass(slots=True)
class HostOptions:
    """How a host runs. ``heartbeat_ns`` 0: one at the start and no more (scenarios).

    ``hold_tap_ns`` is how long its trace may wait to be sent; decisions never wait.
    ``max_pause_ns`` is how long messages may gather while more come than are handled.
    ``silent_ns`` is how long one's own heartbeats may stay away until the place is lost (rule 11):
    as long as a broker takes to miss a client.
    """

    heartbeat_ns: int = seconds(1)
    silent_ns: int = seconds(9)
    is_tapped: bool = True
    hold_tap_ns: int = 0
    max_pause_ns: int = 0
    max_batch: int = MAX_BATCH
    on_crash: Callable[[BaseException], None] | None = field(default=None)


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
        self.inbox = inbox
        self.instance = instance
        self.partition = partition  # that it speaks of where its machine names none
        self.machine = make_machine()
        self.is_active = False
        self.metrics = HostMetrics(inbox.service)
        self._make_machine = make_machine
        self._may_take = may_take  # asked when it is to become the active one
        self._gives_up = False
        self._bus = bus
        self._clock = clock
        self._options = options or HostOptions()
        self._handled = HandledMessages()
        self._injected: asyncio.Queue[Injected] = asyncio.Queue(MAX_INJECTED)
        self._unanswered: list[Envelope] = []  # injected; the place may be lost before they are
        self._entered = 0
        self._to_put_down = 0  # messages that waited when it started over
        self._tap = Tap(
            inbox.service, is_on=self._options.is_tapped, hold_ns=self._options.hold_tap_ns
        )
        self._spacing = Spacing(self._options.max_pause_ns)
        self._idle_ns = 0  # for what came last, waited
        self._started_ns = clock.now_ns()
        self.is_waiting = False
        self._is_connected = False
        self.away_since_ns = self._started_ns  # the bus; 0 while an inbox is read
        self.connected_ns = self._started_ns  # since when its inbox is read
        self._has_read = False
        self._unheard = 0  # heartbeats confirmed while it waited, since something came
        self._unread = Unread(self._options.heartbeat_ns, self._options.silent_ns)
        self._beaten_ns = self._started_ns  # when a heartbeat of its own was handled last
        self._is_beaten = False  # since the last message that said so
        export_figures_of(self)

    @property
    def heartbeat_ns(self) -> int:
        """Return the time between heartbeats; 0: there is one at the start and no more."""
        return self._options.heartbeat_ns

    @property
    def now_ns(self) -> int:
        """Return the time by this host's clock."""
        return self._clock.now_ns()

    @property
    def is_at_work(self) -> bool:
        """Return whether it is the active one, and has handled a heartbeat of its own lately.

        One whose connection is held may believe itself active for long: another one works then.
        """
        silent_ns = self._clock.now_ns() - self._beaten_ns
        return self.is_active and (
            not self.heartbeat_ns or silent_ns <= silence_ns(self.heartbeat_ns)
        )

    def figures(self) -> dict[tuple[str, str, str], int]:
        """Return the figures of the machine while it is at work."""
        figures = getattr(self.machine, "figures", None)
        values: Figures = figures() if figures is not None and self.is_at_work else {}
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
        """Return the seconds until the next attempt; those before an inbox was read are over."""
        if self._has_read:
            attempts.attempt_number = 1
        return _PAUSE(attempts)

    def _start_over(self, attempts: RetryCallState) -> None:
        if attempts.attempt_number == 1:
            log.warning(
                "the bus is away; starting over when it answers",
                service=self.inbox.service,
                error=_why(attempts),
            )
        self.is_active = self._has_read = False
        self.machine = self._make_machine()
        stop_if_cancelled()

    @property
    def is_connected(self) -> bool:
        """Return whether the host reads its inbox, be it as the active one or as a standby."""
        return self._is_connected

    @property
    def is_ready(self) -> bool:
        """Return whether it may be asked: it reads its inbox, and its machine has what it needs."""
        return self._is_connected and bool(getattr(self.machine, "is_ready", True))

    async def close(self) -> None:
        """Close the connections; the loop ends by itself."""
        await self._bus.close()

    async def inject(
        self,
        message: object,
        *,
        reply_to: str = "",
        traceparent: str = "",
        partition: str = "",
    ) -> str:
        """Put a message in from inside the service; return its identity."""
        self._entered += 1
        message_id = derived_id(f"{self.instance}/{self._started_ns}", self._entered)
        envelope = Envelope(
            message_id=message_id,
            kind=type(message).__name__,
            message=message,
            to=self.inbox,
            source=self.inbox.service,
            partition=partition or self.partition,
            traceparent=traceparent,
            reply_to=reply_to,
            published_ns=self._clock.now_ns(),
        )
        await self._injected.put(Injected(envelope))
        return message_id

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List dead letters on the bus. Raises BusUnavailableError."""
        return await self._bus.dead_letters(most, wanted)

    async def drop_letters(self, wanted: Wanted) -> list[str]:
        """Have dead letters of any service go for good; return which. Raises BusUnavailableError.

        What comes before one that cannot be dropped now has gone.
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
        self._entered += 1
        now_ns = self._clock.now_ns()
        message_id = derived_id(f"sent/{self.instance}/{self._started_ns}", self._entered)
        kind = type(message).__name__
        service = self.inbox.service
        envelope = Envelope(
            message_id, kind, message, self.inbox, service,
            partition=self.partition, published_ns=now_ns,
        )  # fmt: skip
        await self._bus.publish([envelope])

    # --- the loop -------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Give up being active after what is in hand; stand last in line."""
        self._gives_up = True

    async def _run_connected(self) -> None:
        while True:
            await self._read_inbox()
            self.is_active = self._gives_up = False
            self.machine = self._make_machine()

    async def _read_inbox(self) -> None:
        """Read until the place is given up: nothing of what came since is acknowledged."""
        subscription = await self._bus.subscribe(self.inbox)
        self._is_connected = self._has_read = True
        self.away_since_ns, self.connected_ns = 0, self._clock.now_ns()
        self._unheard = 0
        self._unread.forget()
        beats = asyncio.create_task(self._beat())
        try:
            await self._loop(subscription, beats)
        finally:
            self._is_connected = False
            self.away_since_ns = self._clock.now_ns()
            beats.cancel()
            try:
                await asyncio.gather(beats, return_exceptions=True)  # who cancels us is obeyed
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
                injected = injected or asyncio.create_task(self._next_injected())
                sleeping = self._sleeper()
                waiting = {receiving, injected} | ({sleeping} if sleeping else set())
                await self._wait(waiting, beats)
                deliveries: list[Delivery] = []
                inside: list[Envelope] = []
                if receiving.done():
                    self._unheard = 0
                    self._unread.forget()
                    deliveries, receiving = self._taken(receiving.result()), None
                if injected.done():
                    inside += self._injected_with(injected.result())
                    injected = None
                if sleeping is not None:
                    due_ns = self._machine_due_ns()
                    if sleeping.done() and due_ns is not None and due_ns <= self._clock.now_ns():
                        inside.append(self._tick())
                    sleeping.cancel()
                await self._handle_or_put_down(subscription, deliveries, inside)
        finally:
            self.is_waiting = False
            for task in (receiving, injected, sleeping):
                if task is not None:
                    task.cancel()

    async def _receive(self, subscription: Subscription) -> list[Delivery]:
        """Return what comes, after a pause where that makes one batch of several."""
        pause_ns = self._spacing.pause_ns
        if pause_ns:
            await self._clock.sleep_until(self._clock.now_ns() + pause_ns)
        began_ns = self._clock.now_ns()
        deliveries = await subscription.receive(self._options.max_batch)
        self._idle_ns = self._clock.now_ns() - began_ns
        return deliveries

    async def _next_injected(self) -> Envelope:
        """Return the first of what was injected and is not answered."""
        if not self._unanswered:
            envelope = (await self._injected.get()).envelope
            self._unanswered.append(envelope)
        return self._unanswered[0]

    def _injected_with(self, first: Envelope) -> list[Envelope]:
        """Return what was injected, as far as it is one batch."""
        left, items = self._injected.qsize(), item_count(first.message)
        while left and len(self._unanswered) < self._options.max_batch and items < MAX_BATCH_ITEMS:
            self._unanswered.append(self._injected.get_nowait().envelope)
            items += item_count(self._unanswered[-1].message)
            left -= 1
        return [first, *(item for item in self._unanswered if item is not first)]

    def _answered(self, inside: list[Envelope]) -> None:
        """Forget what was injected and is answered."""
        done = {envelope.message_id for envelope in inside}
        self._unanswered = [item for item in self._unanswered if item.message_id not in done]

    async def _wait(self, waiting: set["asyncio.Task[Any]"], beats: "asyncio.Task[None]") -> None:
        """Wait for one of them, or for the heartbeats to say that the place is lost."""
        is_beating = self._options.heartbeat_ns > 0
        self.is_waiting = True
        await asyncio.wait(waiting | ({beats} if is_beating else set()), return_when=_FIRST)
        self.is_waiting = False
        if is_beating and beats.done():
            beats.result()

    def _taken(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return what is to be handled of what came: nothing, if the place is not to be taken."""
        if not self.is_active and not self._may_take():
            self._gives_up = True
            return []
        self.is_active = True
        return deliveries

    def _sleeper(self) -> "asyncio.Task[None] | None":
        """Return a task that ends when the machine is due, or what is held of the tap, or None."""
        due = [at for at in (self._machine_due_ns(), self._tap.due_ns) if at is not None]
        return asyncio.create_task(self._clock.sleep_until(min(due))) if due else None

    def _machine_due_ns(self) -> int | None:
        next_due = getattr(self.machine, "next_due_ns", None)
        due_ns: int | None = next_due() if next_due is not None and self.is_active else None
        return due_ns

    def _tick(self) -> Envelope:
        self._entered += 1
        now_ns = self._clock.now_ns()
        message_id = derived_id(f"tick/{self.instance}/{self._started_ns}", self._entered)
        return Envelope(message_id, "Tick", Tick(), self.inbox, "clock", published_ns=now_ns)

    async def _handle_or_put_down(
        self, subscription: Subscription, deliveries: list[Delivery], inside: list[Envelope]
    ) -> None:
        """Handle what came, unless it waited for a machine that could say nothing (rule 9)."""
        came_ns, count = self._clock.now_ns(), len(deliveries)
        if self._to_put_down > 0:
            self._to_put_down -= len(deliveries)
            await self._leave_out(subscription, deliveries)
            deliveries = []
        try:
            await self._handle_deliveries(subscription, deliveries, inside)
        except _StuckError as stuck:
            log.warning(
                "its inbox is full, and one that it publishes to: starting over without what waits",
                service=self.inbox.service,
                waiting=stuck.waiting,
            )
            await self._leave_out(subscription, deliveries)
            self._answered(inside)
            self._to_put_down = stuck.waiting
            self.machine = self._make_machine()
        if count:
            self._spacing.took(
                count,
                idle_ns=self._idle_ns,
                spent_ns=self._clock.now_ns() - came_ns,
                is_full=count >= self._options.max_batch,
            )

    async def _leave_out(self, subscription: Subscription, deliveries: list[Delivery]) -> None:
        """Acknowledge unhandled messages: redelivery would reorder them."""
        for delivery in deliveries:
            self._handled.add(delivery.envelope.message_id)
        await subscription.ack(deliveries)

    async def _handle_deliveries(
        self, subscription: Subscription, deliveries: list[Delivery], inside: list[Envelope]
    ) -> None:
        """Handle what came as one batch, if it is not too much; what came before, one by one.

        So a message that crashes its reader is distinguished from those read beside it.
        """
        if any(delivery.delivery_count for delivery in deliveries):
            for delivery in deliveries:
                await self._handle_suspect(subscription, delivery)
            deliveries = []
        *first, last = _batches(deliveries)
        for batch in first:
            await self._handle_batch(subscription, batch, [])
        await self._handle_batch(subscription, last, inside)

    async def _handle_suspect(self, subscription: Subscription, delivery: Delivery) -> None:
        try:
            await self._handle_batch(subscription, [delivery], [])
        except (BusUnavailableError, BusClosedError, _StuckError):
            raise
        except Exception as error:
            if delivery.delivery_count >= MAX_CRASHES:
                reason = f"crashed its reader {delivery.delivery_count} times: {error!r}"
                await subscription.dead_letter(delivery, reason)
            raise

    async def _handle_batch(
        self, subscription: Subscription, deliveries: list[Delivery], inside: list[Envelope]
    ) -> None:
        """Handle, publish, and only then acknowledge; only then is a message handled for good."""
        replays = Replays(self._bus, self.inbox)
        try:
            await self._handle_with(replays, subscription, deliveries, inside)
        finally:
            await replays.close()

    async def _handle_with(
        self,
        replays: Replays,
        subscription: Subscription,
        deliveries: list[Delivery],
        inside: list[Envelope],
    ) -> None:
        now_ns = self._clock.now_ns()
        said: list[_Said] = []
        handled = await self._handle_each(replays, subscription, deliveries, said, now_ns)
        for envelope in inside:
            await self._prepare(envelope)
            started = self.metrics.started()
            outgoing = await self._handled_by_machine(envelope, now_ns)
            self._tap.handled(envelope, self.metrics.started() - started)
            said += _with_ids(outgoing, envelope)
        causes = [*handled.values(), *inside]
        answers: list[Envelope] = []
        if causes:
            answers += self._answers(said, causes[-1], now_ns)
            answers += await self._flush(causes[-1], now_ns)
        self._tap.close(now_ns)
        answers += self._tap_records(now_ns)
        await self._send(numbered(answers), now_ns)
        self._answered(inside)
        await replays.settle()
        for message_id, envelope in handled.items():
            if not isinstance(envelope.message, TraceRecords):  # a new machine gets them again
                self._handled.add(message_id)
            if (
                isinstance(envelope.message, Heartbeat)
                and envelope.message.instance == self.instance
            ):
                self._beaten_ns, self._is_beaten = self._clock.now_ns(), True
        if deliveries:
            await subscription.ack(deliveries)

    async def _handle_each(
        self,
        replays: Replays,
        subscription: Subscription,
        deliveries: list[Delivery],
        said: list[_Said],
        now_ns: int,
    ) -> dict[str, Envelope]:
        """Handle what has not been handled, adding to what is ``said``; return it by identity.

        Whatever else the loop has to do comes in between after MAX_SLICE_ITEMS.
        """
        handled: dict[str, Envelope] = {}
        items = 0
        for delivery in deliveries:
            envelope = delivery.envelope
            if envelope.message_id in self._handled or envelope.message_id in handled:
                self.metrics.repeated()
                continue
            if isinstance(envelope.message, ReplayDeadLetters):
                said += await self._replay(replays, envelope, handled, now_ns)
            else:
                said += await self._handle(subscription, delivery, now_ns)
            handled[envelope.message_id] = envelope
            items += item_count(envelope.message)
            if items >= MAX_SLICE_ITEMS:
                items = 0
                await asyncio.sleep(0)
        return handled

    async def _handle(
        self, subscription: Subscription, delivery: Delivery, now_ns: int
    ) -> list[_Said]:
        try:
            return await self._handle_envelope(delivery.envelope, now_ns)
        except PoisonError as error:
            await subscription.dead_letter(delivery, str(error))
            return []

    async def _replay(
        self, replays: Replays, request: Envelope, handled: dict[str, Envelope], now_ns: int
    ) -> list[_Said]:
        """Handle dead letters, adding them to what is ``handled``; return what is said of it."""
        assert isinstance(request.message, ReplayDeadLetters)
        said: list[_Said] = []
        replayed: list[str] = []
        refused: dict[str, str] = {}
        for letter in await replays.take(request.message):
            name = letter.letter.message_id
            try:
                envelope = envelope_of_letter(letter, request)
                if envelope.message_id not in self._handled and envelope.message_id not in handled:
                    said += await self._handle_envelope(envelope, now_ns)
            except PoisonError as error:
                refused[name] = str(error)
                continue
            handled.setdefault(envelope.message_id, envelope)
            replays.done(letter)
            replayed.append(name)
        log.warning(
            "dead letters replayed",
            service=self.inbox.service,
            replayed=replayed,
            refused=refused,
        )
        return said + _with_ids(answer_to(request, replayed, refused), request)

    async def _handle_envelope(self, envelope: Envelope, now_ns: int) -> list[_Said]:
        await self._prepare(envelope)
        started = self.metrics.started()
        outgoing = await self._handled_by_machine(envelope, now_ns)
        spent_ns = self.metrics.handled(envelope.kind, started)
        self.metrics.waited(envelope.kind, now_ns - envelope.published_ns)
        self._tap.handled(envelope, spent_ns)
        return _with_ids(outgoing, envelope)

    async def _handled_by_machine(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        machine: Any = self.machine
        if not hasattr(type(machine), "slices"):  # a wrapper's own handle is never passed by
            return coalesced(machine.handle(envelope, now_ns))
        said: list[Outgoing] = []
        for _ in machine.slices(envelope, now_ns, said):
            await asyncio.sleep(0)
        return coalesced(said)

    async def _prepare(self, envelope: Envelope) -> None:
        prepare = getattr(self.machine, "prepare", None)
        work: Callable[[], object] | None = prepare(envelope) if prepare is not None else None
        if work is not None:
            await asyncio.to_thread(work)

    async def _flush(self, cause: Envelope, now_ns: int) -> list[Envelope]:
        flush = getattr(self.machine, "flush", None)
        if flush is None:
            return []
        started = self.metrics.started()
        try:
            outgoing = await self._flushed(flush, now_ns)
        except NotNowError as error:
            self._cannot_remember(str(error))
            again = AsyncRetrying(
                retry=retry_if_exception_type(NotNowError),
                wait=_PAUSE,
                before_sleep=lambda attempts: self._cannot_remember(_why(attempts)),
            )
            outgoing = await again(self._flushed, flush, now_ns)
        spent_ns = self.metrics.handled("flush", started)
        step = self._tap.decided(outgoing, cause, spent_ns)
        cause = replace(cause, correlation_id="", traceparent="")
        return self._answers(_with_ids(outgoing, cause, offset=_OF_THE_FLUSH), cause, now_ns, step)

    async def _flushed(self, flush: Callable[[int], list[Outgoing]], now_ns: int) -> list[Outgoing]:
        """Return what a flush says, in a thread where it is long. Raises NotNowError."""
        is_long = getattr(self.machine, "is_flush_long", None)
        if is_long is not None and is_long():
            return coalesced(await asyncio.to_thread(flush, now_ns))
        return coalesced(flush(now_ns))

    def _answers(
        self, said: list[_Said], last: Envelope, now_ns: int, step: str = ""
    ) -> list[Envelope]:
        """Return what is to be sent. What answers several messages of a batch goes as one.

        Such a one was led to by the decision of the batch that ends with ``last``, and has an
        identity that no answer to one of them alone has: read again, a message is handled by
        itself. ``step`` is what led to all of it, where that is known.
        """
        answers: list[Envelope] = []
        for at, (item, places) in enumerate(merged([item for item, _, _ in said])):
            _, cause, index = said[places[0]]
            if len(places) > 1:
                cause, index = replace(cause, correlation_id="", traceparent=""), _OF_A_BATCH + at
            led = step or self._tap.note_sent(item, [said[place][:2] for place in places], last)
            answers.append(
                envelope_of(
                    item,
                    cause=cause,
                    index=index,
                    source=self.inbox.service,
                    now_ns=now_ns,
                    step=led,
                    story=story_of(item),
                    partition=self.partition,
                )
            )
        return answers

    def _tap_records(self, now_ns: int) -> list[Envelope]:
        records: tuple[TraceRecord, ...] = self._tap.take_due(now_ns)
        if not records:
            return []
        self._entered += 1
        cause = Envelope(records[-1].message_id, "tap", None, self.inbox, self.inbox.service)
        message = Outgoing(API_TRACE, TraceRecords(records))
        return [
            envelope_of(
                message, cause=cause, index=_OF_THE_TAP + self._entered,
                source=self.inbox.service, now_ns=now_ns, partition=self.partition,
            )
        ]  # fmt: skip

    async def _send(self, envelopes: list[Envelope], now_ns: int) -> None:
        """Publish answers; where one cannot be sent as it is, each as it can be."""
        try:
            await self._publish(envelopes)
        except PoisonError:
            aside = await self._send_what_fits(envelopes)
            told = await self._report_unsendable(aside, now_ns)
            try:
                await self._publish(told)
            except PoisonError:
                log.exception("what was set aside cannot be told", service=self.inbox.service)

    async def _send_what_fits(self, envelopes: list[Envelope]) -> list[Unsendable]:
        """Publish in parts, message by message; return what was left out.

        Raises PoisonError, having published nothing, for a message of one piece that no caller
        waits for.
        """
        fitted: list[list[Envelope]] = []
        aside: list[Unsendable] = []
        for envelope in envelopes:
            parts, refused = fitting(envelope)
            for item in refused:
                if item.item is None and not envelope.reply_to:
                    raise PoisonError(item.reason)
            fitted.append(parts)
            aside += refused
            await asyncio.sleep(0)  # this takes its time: heartbeats have to go on
        flat = iter(numbered([part for parts in fitted for part in parts]))
        for parts in fitted:
            await self._publish([next(flat) for _ in parts])
        return aside

    async def _report_unsendable(self, aside: list[Unsendable], now_ns: int) -> list[Envelope]:
        """Let the machine report what was not sent to its senders."""
        answers: list[Envelope] = []
        for at, item in enumerate(aside):
            self.metrics.on_unsendable()
            log.error(
                "an item could not be sent and was set aside",
                service=self.inbox.service,
                kind=item.envelope.kind,
                item=ascii(item.item)[:_MOST_SHOWN],
                reason=item.reason,
            )
            hear = getattr(self.machine, "on_unsendable", None)
            if hear is not None:
                said: list[Outgoing] = hear(item.envelope, item.item, item.reason, now_ns)
                told = _with_ids(coalesced(said), item.envelope, offset=1_000 * (at + 1))
                answers += self._answers(told, item.envelope, now_ns)
        if aside:
            answers += await self._flush(aside[-1].envelope, now_ns)
            self._tap.close(now_ns)
        return answers

    async def _publish(self, envelopes: list[Envelope]) -> None:
        """Publish, and try again until it is confirmed: the identities stay the same.

        Raises PoisonError, having published nothing, when one cannot be sent as it is.
        """
        if not envelopes:
            return
        try:
            await self._publish_once(envelopes)
        except BusUnavailableError as error:
            self._report_again(str(error))
            again = AsyncRetrying(
                retry=_IS_AWAY,
                wait=_PAUSE,
                before_sleep=lambda attempts: self._report_again(_why(attempts)),
            )
            await again(self._publish_once, envelopes)
        self.metrics.published(len(envelopes))

    async def _publish_once(self, envelopes: list[Envelope]) -> None:
        try:
            await self._bus.publish(envelopes)
        except InboxFullError:
            if getattr(self.machine, "recovers", False):
                fill = await self._bus.fill(self.inbox)
                if fill.is_full:
                    raise _StuckError(fill.waiting) from None
            raise

    def _cannot_remember(self, error: str) -> None:
        log.error(
            "what was done cannot be kept; trying until it can",
            service=self.inbox.service,
            error=error,
        )

    def _report_again(self, error: str) -> None:
        log.warning("publishing again", service=self.inbox.service, error=error)

    async def _beat(self) -> None:
        """Put a heartbeat into the own inbox: the active reader learns that it is active."""
        while True:
            stop_if_cancelled()
            self._entered += 1
            now_ns = self._clock.now_ns()
            message_id = derived_id(f"beat/{self.instance}/{self._started_ns}", self._entered)
            beat = Envelope(
                message_id, "Heartbeat", Heartbeat(self.instance), self.inbox,
                self.inbox.service, partition=self.partition, published_ns=now_ns,
            )  # fmt: skip
            try:
                await self._bus.publish([beat, *self._work(beat)])
            except InboxFullError:  # the bus is there, and nothing may have been read for long
                await self._check_place()
                await self._clock.sleep_until(now_ns + self._options.heartbeat_ns)
                continue
            except BusUnavailableError:
                await asyncio.sleep(_RETRY_FIRST_SECONDS)
                continue
            if not self._options.heartbeat_ns:
                return
            await self._check_place()
            await asyncio.sleep(self._options.heartbeat_ns / NANOS_PER_SECOND)

    def _work(self, beat: Envelope) -> list[Envelope]:
        """Return what the API is to know beside a heartbeat: that the one before was handled.

        One that was stopped since has handled none lately: another may work by now.
        """
        is_beaten, self._is_beaten = self._is_beaten, False
        if not (is_beaten and self.is_at_work and self.inbox.is_durable):
            return []
        is_ready = bool(getattr(self.machine, "is_synced", True))
        epoch: int = getattr(self.machine, "epoch", 0)
        return [
            envelope_of(
                Outgoing(API_ALL, AtWork(self.instance, is_ready), epoch=epoch),
                cause=beat, index=_BESIDE, source=self.inbox.service,
                now_ns=beat.published_ns, partition=self.partition,
            )
        ]  # fmt: skip

    async def _check_place(self) -> None:
        """Count a heartbeat that was confirmed, or refused by a full inbox.

        Raises BusUnavailableError where none comes back.

        What is handled meanwhile takes its time, and a process that was stopped finds what came: so
        heartbeats are counted, and only while it waits.
        """
        where = self.inbox.routing_key
        if not self.is_active:
            await self._look_at(where)
            return
        self._unheard += self.is_waiting
        if self._unheard * self._options.heartbeat_ns >= self._options.silent_ns:
            log.warning(
                "its own heartbeats do not come: its place is lost, taking another", inbox=where
            )
            raise BusUnavailableError(f"the broker delivers nothing to the reader of {where}")

    async def _look_at(self, where: str) -> None:
        """Count a standby's heartbeat. Raises BusUnavailableError where nobody reads the inbox."""
        if not (self._unread.put_in() and self.inbox.is_durable):
            return
        waiting = (await self._bus.fill(self.inbox)).waiting
        if not self.is_active and self._unread.saw(waiting):
            log.warning(
                "messages wait without a reader: taking a place again",
                inbox=where,
                waiting=waiting,
            )
            raise BusUnavailableError(f"nobody reads {where}")


def silence_ns(heartbeat_ns: int) -> int:
    """Return for how long nothing may be heard of an instance that works."""
    return MISSED_BEATS * heartbeat_ns + WAY_NS


def _batches(deliveries: list[Delivery]) -> list[list[Delivery]]:
    """Return deliveries as they are handled together, in order; one batch at least."""
    batches: list[list[Delivery]] = [[]]
    items = 0
    for delivery in deliveries:
        count = item_count(delivery.envelope.message)
        if batches[-1] and items + count > MAX_BATCH_ITEMS:
            batches.append([])
            items = 0
        batches[-1].append(delivery)
        items += count
    return batches


def _with_ids(outgoing: list[Outgoing], cause: Envelope, offset: int = 0) -> list[_Said]:
    return [(item, cause, offset + at) for at, item in enumerate(outgoing)]


def _why(attempts: RetryCallState) -> str:
    """Return what the last attempt failed with."""
    return str(attempts.outcome.exception()) if attempts.outcome is not None else ""
