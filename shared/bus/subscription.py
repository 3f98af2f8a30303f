"""A reader of RabbitMQ queues: receives messages in order and acknowledges them."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import structlog
from aio_pika.abc import AbstractChannel, AbstractQueue

from shared.bus.amqp_message import envelope_in
from shared.bus.arrived import Message, hand_over
from shared.bus.base import Delivery
from shared.bus.connection import away, close
from shared.bus.errors import BusClosedError, BusUnavailableError, PoisonError
from shared.bus.in_order import AFTER, InOrder
from shared.bus.pace import Pace
from shared.messages.envelope import Address

_OFFSET = "x-stream-offset"
Source = tuple[AbstractQueue, dict[str, Any]]  # and its consumer arguments
log = structlog.get_logger("muster.bus")


class _Bus(Protocol):
    """What a subscription needs of its bus."""

    @property
    def is_closed(self) -> bool:
        """Whether its owner closed it for good."""

    async def dead_letter(self, message: Message, inbox: Address, reason: str) -> None:
        """Publish a message to its service's dead-letter queue with the reason."""

    def left(self, subscription: "RabbitSubscription") -> None:
        """Remove a reader that has stopped."""


class RabbitSubscription:
    """A reader of one or several queues."""

    def __init__(
        self, bus: _Bus, channel: AbstractChannel, queues: list[Source], inbox: Address
    ) -> None:
        self._bus = bus
        self._channel = channel
        self._queues = queues
        self._inbox = inbox
        self._arrived: asyncio.Queue[Message | None] = asyncio.Queue()
        self._held: dict[int, Message] = {}
        self._order: InOrder[Message] = InOrder()
        self._is_lost = False

    async def start(self) -> None:
        """Start consuming; PREFETCH limits the received messages of each queue.

        A reader that the broker cancels (a queue's leader moved, a feed was deleted) is lost, as if
        its channel were closed: it would receive nothing any more.
        """
        self._channel.close_callbacks.add(self.lose)
        underlay = await self._channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(self.lose)
        await hand_over(self._channel, self._arrived.put_nowait)
        for queue, arguments in self._queues:
            await queue.consume(self._on_message, arguments=arguments)

    async def _on_message(self, message: Message) -> None:
        self._arrived.put_nowait(message)

    def lose(self, *_: object) -> None:
        """Make ``receive`` fail, also a pending one, so that the reader starts over."""
        self._is_lost = True
        self._arrived.put_nowait(None)

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for messages; undecodable ones are dead-lettered on the way."""
        deliveries: list[Delivery] = []
        pace = Pace()
        while not deliveries:
            for message in await self._next(max_items):
                delivery = await self._decoded(message)
                if delivery is not None:
                    deliveries.append(delivery)
                await pace.count(message.body)
        return deliveries

    async def _next(self, max_items: int) -> list[Message]:
        """Wait for messages; return those that may be handled now, in order."""
        now = asyncio.get_running_loop().time
        waiting = await self._first()
        while waiting and len(waiting) < max_items and not self._arrived.empty():
            waiting.append(self._arrived.get_nowait())
        found = self._order.expired(now())
        for message in waiting:
            if message is None or self._is_lost:
                self._arrived.put_nowait(None)
                error = BusClosedError if self._bus.is_closed else BusUnavailableError
                raise error(f"the place at {self._inbox.routing_key} is lost")
            after = "" if message.redelivered else str(message.headers.get(AFTER) or "")
            found += self._order.take(message.message_id or "", after, message, now())
        return found

    async def _first(self) -> list[Message | None]:
        """Wait for a message, at most until a held-back one is released."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._order.due()):
                return [await self._arrived.get()]
        return []

    async def _decoded(self, message: Message) -> Delivery | None:
        tag = message.delivery_tag
        assert tag is not None
        try:
            envelope = envelope_in(message, self._inbox)
        except PoisonError as error:
            # A stream keeps the message: it would be dead-lettered at every start.
            if _OFFSET in message.headers:
                log.warning("a record of the trace cannot be read", reason=str(error))
                await message.ack()
            else:
                await self._dead_letter(message, str(error))
            return None
        self._held[tag] = message
        count = message.headers.get("x-delivery-count", 0)
        return Delivery(
            envelope,
            tag,
            redelivered=bool(message.redelivered),
            delivery_count=count if isinstance(count, int) else int(bool(message.redelivered)),
        )

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge a batch, with one frame if everything before its last message is handled.

        Otherwise, if an earlier message is held back or the batch is only part of what was
        received, each message is acknowledged by itself.
        """
        tags = {delivery.tag for delivery in deliveries if delivery.tag in self._held}
        if not tags:
            return
        last = max(tags)
        kept = (message.delivery_tag or 0 for message in self._order.waiting())
        is_whole = all(tag > last for tag in (*kept, *(self._held.keys() - tags)))
        done = [self._held[tag] for tag in ([last] if is_whole else sorted(tags))]
        for tag in tags:
            del self._held[tag]
        with away("cannot acknowledge"):
            for message in done:
                await message.ack(multiple=is_whole)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message with the reason."""
        message = self._held.pop(delivery.tag, None)
        if message is not None:
            await self._dead_letter(message, reason)

    async def _dead_letter(self, message: Message, reason: str) -> None:
        with away("cannot dead-letter"):
            await self._bus.dead_letter(message, self._inbox, reason)
            await message.ack()

    async def close(self) -> None:
        """Stop reading; unacknowledged messages go to the next reader."""
        self._bus.left(self)
        self._channel.close_callbacks.discard(self.lose)
        await close(self._channel)
        self.lose()
