"""Handles a batch of messages: handle it, publish the answers, and only then acknowledge.

The rules are those of ``shared/runtime/host.py``; 1, 2, 4 to 8 and 12 are implemented here.
"""

import asyncio
from dataclasses import replace

import structlog

from shared.bus.base import Delivery, Subscription
from shared.bus.errors import BusClosedError, BusUnavailableError, PoisonError
from shared.bus.fitting import Unsendable, numbered
from shared.messages.dead_letters import ReplayDeadLetters
from shared.messages.envelope import API_TRACE, Envelope, Outgoing, envelope_of
from shared.messages.sections import item_count, merged, story_of
from shared.messages.trace import TraceRecord, TraceRecords
from shared.runtime.beats import Beats
from shared.runtime.dedupe import HandledMessages
from shared.runtime.machine import Driven
from shared.runtime.metrics import HostMetrics
from shared.runtime.outbox import Outbox, StuckError
from shared.runtime.own_messages import MAX_BATCH_ITEMS, Injected, OwnMessages
from shared.runtime.place import Place
from shared.runtime.replaying import Replays, answer_to, envelope_of_letter
from shared.runtime.telemetry import Tap

MAX_CRASHES = 3
MAX_SLICE_ITEMS = 2_000
_MOST_SHOWN = 300
_OF_THE_FLUSH = 1_000_000  # first numbers of answers, by their kind
_OF_THE_TAP = 2_000_000
_OF_A_BATCH = 3_000_000
_Said = tuple[Outgoing, Envelope, int]  # with its cause, and its number among that cause's answers
log = structlog.get_logger("muster.host")


class Batches:
    """Handles one host's messages, batch by batch."""

    def __init__(
        self,
        place: Place,
        driven: Driven,
        own: OwnMessages,
        *,
        injected: Injected,
        beats: Beats,
        tap: Tap,
        metrics: HostMetrics,
    ) -> None:
        self._place = place
        self._inbox = place.inbox
        self._driven = driven
        self._own = own
        self._injected = injected
        self._beats = beats
        self._tap = tap
        self._metrics = metrics
        self._outbox = Outbox(place, driven, metrics)
        self._handled = HandledMessages()

    async def leave_out(self, subscription: Subscription, deliveries: list[Delivery]) -> None:
        """Acknowledge unhandled messages: redelivery would reorder them."""
        for delivery in deliveries:
            self._handled.add(delivery.envelope.message_id)
        await subscription.ack(deliveries)

    async def handle(
        self, subscription: Subscription, deliveries: list[Delivery], inside: list[Envelope]
    ) -> None:
        """Handle new messages in batches, but redelivered ones one by one.

        This identifies a message that crashes its reader among those delivered with it.
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
        except (BusUnavailableError, BusClosedError, StuckError):
            raise
        except Exception as error:
            if delivery.delivery_count >= MAX_CRASHES:
                reason = f"crashed its reader {delivery.delivery_count} times: {error!r}"
                await subscription.dead_letter(delivery, reason)
            raise

    async def _handle_batch(
        self, subscription: Subscription, deliveries: list[Delivery], inside: list[Envelope]
    ) -> None:
        """Handle, publish, and only then acknowledge; only then does a message count as handled."""
        replays = Replays(self._place.bus, self._inbox)
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
        now_ns = self._place.now_ns
        said: list[_Said] = []
        handled = await self._handle_each(replays, subscription, deliveries, said, now_ns)
        for envelope in inside:
            await self._driven.prepare(envelope)
            started = self._metrics.started()
            outgoing = await self._driven.handle(envelope, now_ns)
            self._tap.handled(envelope, self._metrics.started() - started)
            said += _with_ids(outgoing, envelope)
        causes = [*handled.values(), *inside]
        answers: list[Envelope] = []
        if causes:
            answers += self._answers(said, causes[-1], now_ns)
            answers += await self._flush(causes[-1], now_ns)
        self._tap.close(now_ns)
        answers += self._tap_records(now_ns)
        await self._send(numbered(answers), now_ns)
        self._beats.published(answers)
        self._injected.answered(inside)
        await replays.settle()
        for message_id, envelope in handled.items():
            if not isinstance(envelope.message, TraceRecords):  # a new machine needs them again
                self._handled.add(message_id)
            self._beats.handled(envelope.message)
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
        """Handle messages not handled before, add answers to ``said``; return them by identity.

        After MAX_SLICE_ITEMS items other tasks of the loop run.
        """
        handled: dict[str, Envelope] = {}
        items = 0
        for delivery in deliveries:
            envelope = delivery.envelope
            if envelope.message_id in self._handled or envelope.message_id in handled:
                self._metrics.repeated()
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
        """Handle the dead letters of a request, add them to ``handled``; return the answers."""
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
            service=self._inbox.service,
            replayed=replayed,
            refused=refused,
        )
        return said + _with_ids(answer_to(request, replayed, refused), request)

    async def _handle_envelope(self, envelope: Envelope, now_ns: int) -> list[_Said]:
        await self._driven.prepare(envelope)
        started = self._metrics.started()
        outgoing = await self._driven.handle(envelope, now_ns)
        spent_ns = self._metrics.handled(envelope.kind, started)
        self._metrics.waited(envelope.kind, now_ns - envelope.published_ns)
        self._tap.handled(envelope, spent_ns)
        return _with_ids(outgoing, envelope)

    async def _flush(self, cause: Envelope, now_ns: int) -> list[Envelope]:
        """End a batch and return the resulting messages; ``cause`` is the batch's last message."""
        if not self._driven.has_flush:
            return []
        started = self._metrics.started()
        outgoing = await self._driven.flush(now_ns)
        spent_ns = self._metrics.handled("flush", started)
        step = self._tap.decided(outgoing, cause, spent_ns)
        cause = replace(cause, correlation_id="", traceparent="")
        return self._answers(_with_ids(outgoing, cause, offset=_OF_THE_FLUSH), cause, now_ns, step)

    def _answers(
        self, said: list[_Said], last: Envelope, now_ns: int, step: str = ""
    ) -> list[Envelope]:
        """Return the messages to send. Answers to several messages of a batch are merged into one.

        The cause of a merged answer is the decision of the batch that ends with ``last``. Its
        identity differs from that of any answer to a single message, because a redelivered message
        is handled by itself. ``step`` is the trace step that caused all answers, if known.
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
                    source=self._inbox.service,
                    now_ns=now_ns,
                    step=led,
                    story=story_of(item),
                    partition=self._place.partition,
                )
            )
        return answers

    def _tap_records(self, now_ns: int) -> list[Envelope]:
        records: tuple[TraceRecord, ...] = self._tap.take_due(now_ns)
        if not records:
            return []
        cause = Envelope(records[-1].message_id, "tap", None, self._inbox, self._inbox.service)
        message = Outgoing(API_TRACE, TraceRecords(records))
        return [
            envelope_of(
                message, cause=cause, index=_OF_THE_TAP + self._own.next_number(),
                source=self._inbox.service, now_ns=now_ns, partition=self._place.partition,
            )
        ]  # fmt: skip

    async def _send(self, envelopes: list[Envelope], now_ns: int) -> None:
        """Publish answers; report items that cannot be sent to their senders (rule 6)."""
        aside = await self._outbox.send(envelopes)
        told = await self._report_unsendable(aside, now_ns)
        try:
            await self._outbox.publish(told)
        except PoisonError:
            log.exception("unsendable items could not be reported", service=self._inbox.service)

    async def _report_unsendable(self, aside: list[Unsendable], now_ns: int) -> list[Envelope]:
        """Return the machine's messages to the senders of items that could not be sent."""
        answers: list[Envelope] = []
        for at, item in enumerate(aside):
            self._metrics.on_unsendable()
            log.error(
                "an item could not be sent and was set aside",
                service=self._inbox.service,
                kind=item.envelope.kind,
                item=ascii(item.item)[:_MOST_SHOWN],
                reason=item.reason,
            )
            said = self._driven.on_unsendable(item.envelope, item.item, item.reason, now_ns)
            told = _with_ids(said, item.envelope, offset=1_000 * (at + 1))
            answers += self._answers(told, item.envelope, now_ns)
        if aside:
            answers += await self._flush(aside[-1].envelope, now_ns)
            self._tap.close(now_ns)
        return answers


def _batches(deliveries: list[Delivery]) -> list[list[Delivery]]:
    """Split deliveries into batches of at most MAX_BATCH_ITEMS items, in order; at least one."""
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
