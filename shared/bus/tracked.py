"""A bus that knows whether it is quiet: every message that it carries has been acknowledged.

For one process that holds every service, such as the scenario runner: messages published by other
processes are not tracked.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from shared.bus.amqp_message import EXPIRING
from shared.bus.base import (
    ANY_LETTER,
    Bus,
    DeadLetters,
    Delivery,
    Fill,
    HeldLetter,
    Subscription,
    Wanted,
)
from shared.bus.errors import PoisonError
from shared.messages.envelope import Address, Envelope


class Traffic:
    """The messages in transit, by inbox and identity, over all tracked connections.

    Identities instead of counts: a message published again after a lost confirm is still one
    message, and one acknowledged before its reader was registered was never counted. Messages in an
    inbox without a reader, such as that of a removed partition, are not in transit. A heartbeat in
    such an inbox may expire, and is forgotten when the last reader leaves.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, dict[str, str]] = {}  # the kind of each by its identity
        self.published: Counter[str] = Counter()
        self.readers: dict[str, Address] = {}
        self.places: Counter[str] = Counter()  # taken and not left, by inbox

    def reached_by(self, to: Address) -> list[str]:
        """Return the inboxes that receive messages to an address."""
        if to.is_durable:
            return [to.routing_key]
        return [key for key, reader in self.readers.items() if to.reaches(reader)]

    def is_quiet(self) -> bool:
        """Whether no message is in transit."""
        return not self.on_their_way()

    def on_their_way(self) -> dict[str, list[str]]:
        """Return the kinds of unacknowledged messages, by inbox that has a reader."""
        return {
            key: list(kinds.values())
            for key, kinds in self.waiting.items()
            if kinds and self.places[key]
        }

    def sent(self, envelope: Envelope) -> None:
        """Record a message before it is published, so that the bus never seems quiet in between."""
        self.published[envelope.kind] += 1
        for key in self.reached_by(envelope.to):
            self.waiting.setdefault(key, {})[envelope.message_id] = envelope.kind

    def not_sent(self, envelopes: Sequence[Envelope]) -> None:
        """Forget the messages of a batch that cannot be encoded: none of them was sent."""
        for envelope in envelopes:
            self.published[envelope.kind] -= 1
            for waiting in self.waiting.values():
                waiting.pop(envelope.message_id, None)

    def done(self, inbox: Address, deliveries: Sequence[Delivery]) -> None:
        """Record messages as handled."""
        waiting = self.waiting.get(inbox.routing_key, {})
        for delivery in deliveries:
            waiting.pop(delivery.envelope.message_id, None)

    def left(self, inbox: Address) -> None:
        """Record that a reader has left an inbox."""
        key = inbox.routing_key
        self.places[key] -= 1
        if not inbox.is_durable:
            self.readers.pop(key, None)
            self.waiting.pop(key, None)
        elif not self.places[key]:
            waiting = self.waiting.get(key, {})
            self.waiting[key] = {id_: kind for id_, kind in waiting.items() if kind != EXPIRING}


class TrackedBus:
    """A connection whose messages are tracked until they are acknowledged."""

    def __init__(self, bus: Bus, traffic: Traffic) -> None:
        self._bus = bus
        self._traffic = traffic

    async def connect(self) -> None:
        """Connect."""
        await self._bus.connect()

    async def close(self) -> None:
        """Close."""
        await self._bus.close()

    async def subscribe(self, inbox: Address) -> "TrackedSubscription":
        """Start reading an inbox, and register the reader."""
        subscription = await self._bus.subscribe(inbox)
        self._traffic.readers[inbox.routing_key] = inbox
        self._traffic.places[inbox.routing_key] += 1
        return TrackedSubscription(subscription, inbox, self._traffic)

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List dead letters."""
        return await self._bus.dead_letters(most, wanted)

    def take_letters(
        self, service: str, wanted: Wanted, *, is_read: bool = False
    ) -> AbstractAsyncContextManager[list[HeldLetter]]:
        """Hold a service's dead letters."""
        return self._bus.take_letters(service, wanted, is_read=is_read)

    async def fill(self, inbox: Address) -> Fill:
        """Return how full an inbox is."""
        return await self._bus.fill(inbox)

    def leave_node(self) -> bool:
        """Leave the broker node."""
        return self._bus.leave_node()

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Publish."""
        for envelope in envelopes:
            self._traffic.sent(envelope)
        try:
            await self._bus.publish(envelopes)
        except PoisonError:
            self._traffic.not_sent(envelopes)
            raise


class TrackedSubscription:
    """A reader whose acknowledgements are tracked."""

    def __init__(self, subscription: Subscription, inbox: Address, traffic: Traffic) -> None:
        self._subscription = subscription
        self._inbox = inbox
        self._traffic = traffic

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for messages."""
        return await self._subscription.receive(max_items)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages; if cancelled meanwhile, the acknowledgement was still sent."""
        try:
            await self._subscription.ack(deliveries)
        except asyncio.CancelledError:
            self._traffic.done(self._inbox, deliveries)
            raise
        self._traffic.done(self._inbox, deliveries)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message; it is still in the batch that will be acknowledged."""
        await self._subscription.dead_letter(delivery, reason)

    async def close(self) -> None:
        """Stop reading; an inbox that does not outlive its reader is forgotten."""
        await self._subscription.close()
        self._traffic.left(self._inbox)
