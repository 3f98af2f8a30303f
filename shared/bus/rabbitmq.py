"""The bus on RabbitMQ.

If one of the two connections is lost, both are closed (``links.py``). The next call connects again,
and declares the topology unless the last connection proved that it exists. Known problems and
measurements: docs/rules/rabbitmq.md.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aio_pika
import structlog
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError

from shared.bus import topology
from shared.bus.amqp_letters import envelope_of, found_letters, letter_of, letter_to_leave
from shared.bus.amqp_message import message_of
from shared.bus.arrived import Message
from shared.bus.base import (
    ANSWER_SECONDS,
    ANY_LETTER,
    MAX_SEARCHED,
    DeadLetter,
    DeadLetters,
    Fill,
    HeldLetter,
    Wanted,
)
from shared.bus.bodies import read_at_most, readable
from shared.bus.connection import away, close
from shared.bus.dead_letters import count_dead_letter
from shared.bus.errors import BusClosedError, BusUnavailableError, InboxFullError
from shared.bus.links import CONNECT_SECONDS, HEARTBEAT_SECONDS, Links
from shared.bus.pace import Pace
from shared.bus.publisher import MAX_KEPT, Publisher, is_refused
from shared.bus.subscription import RabbitSubscription, Source
from shared.bus.widths import Addressed, Widths
from shared.messages.envelope import API_TRACE, PARTITIONED, Address, Envelope, inbox_of
from shared.messages.protocol import Partitions
from shared.messages.routes import SERVICES

PREFETCH = 400
DECLARE_SECONDS = 30.0  # for all exchanges, queues and bindings
log = structlog.get_logger("muster.bus")


def _refusal(error: DeliveryError) -> BusUnavailableError:
    """Convert a refused message's error to the error that the publisher gets."""
    kind = InboxFullError if is_refused(error) else BusUnavailableError
    return kind(f"the broker refused a message: {error!r}")


class RabbitBus:
    """A service's connections to a broker. ``prefix`` separates deployments on one broker.

    ``url`` may name several brokers of a cluster; if one does not answer or is lost, the next is
    used, in an order specific to ``name``.
    ``is_given``: the broker's definitions contain exchanges and inboxes, so none are declared.
    Raises UnknownBusError for a URL that names no broker.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "muster",
        name: str = "muster",
        is_given: bool = False,
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
    ) -> None:
        self._links = Links(url, name, heartbeat_seconds, self._ended)
        self._is_given = is_given
        self._prefix = prefix
        self._closed = False
        self._works = False  # something was confirmed on this connection
        self._unrouted = 0  # times in a row that an inbox was not there
        self._publisher: Publisher | None = None
        self._readers: dict[RabbitSubscription, None] = {}  # on this connection
        self._lock = asyncio.Lock()
        self._declared: dict[Address, None] = {}  # inboxes of partitions, on this connection
        self._widths = Widths()
        self._kept: deque[Addressed] = deque(maxlen=MAX_KEPT)  # for the trace

    async def connect(self) -> None:
        """Connect and declare. Tries for CONNECT_SECONDS, then raises BusUnavailableError."""
        async with self._lock:
            if self._closed:
                raise BusClosedError("the bus is closed")
            if not self._links.are_up:
                self._drop()
                await self._connect()
            if self._closed:  # meanwhile: close the new connections as well
                self._drop()
                await self._links.closing.finish()
                raise BusClosedError("the bus is closed")

    async def close(self) -> None:
        """Close both connections; unacknowledged messages are redelivered to the next reader."""
        self._closed = True
        self._drop()
        await self._links.closing.finish()

    @property
    def is_closed(self) -> bool:
        """Whether its owner closed it for good."""
        return self._closed

    async def subscribe(self, inbox: Address) -> RabbitSubscription:
        """Start reading an inbox, connecting first if needed."""
        async with self._connected(f"cannot read {inbox.routing_key}"):
            reading = self._links.reading
            async with self._links.within(CONNECT_SECONDS):
                if not self._is_given:
                    await self._declare_partition(inbox)
                channel = await reading.channel()
                await read_at_most(channel, readable)
                await channel.set_qos(prefetch_count=PREFETCH)
                queues = await self._queues_of(channel, inbox)
                subscription = RabbitSubscription(self, channel, queues, inbox)
                self._readers[subscription] = None
                await subscription.start()
        return subscription

    def left(self, subscription: RabbitSubscription) -> None:
        """Remove a reader that has stopped."""
        self._readers.pop(subscription, None)

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Publish in order, and return once all are confirmed.

        Up to MAX_IN_FLIGHT are in flight together. A full inbox refuses messages and accepts others
        as soon as it is read; therefore each message names its predecessor in flight, and the
        reader holds it back until that has arrived (``shared/bus/in_order.py``). The number in
        flight to an inbox doubles with each accepted batch, and is reset to one by a refusal.
        Raises PoisonError, having published nothing, if a message cannot be encoded.
        """
        messages: list[Addressed] = []
        pace = Pace()
        for envelope in envelopes:
            messages.append((message_of(envelope), envelope.to))
            await pace.count(messages[-1][0].body)
        await self.connect()
        publisher = self._publisher
        assert publisher is not None
        connections = self._links.connections
        try:
            with away("publishing failed"):
                async with self._links.within(DECLARE_SECONDS):
                    await self._declare_partitions(envelopes)
                for batch in self._widths.batches(messages):
                    await publisher.publish(batch)
                self._works |= bool(messages)
                self._unrouted = 0
        except DeliveryError as error:
            self._declared.clear()  # an expired queue is declared again
            if not is_refused(error):
                self._unrouted += 1
                if self._unrouted > 1 and not self._is_given:  # the shared topology is missing, too
                    self._works = False
                    self._lost(connections)
            raise _refusal(error) from error
        except BusUnavailableError as error:
            self._lost(connections, error)
            raise

    async def fill(self, inbox: Address) -> Fill:
        """Return how full an inbox is; once full it accepts nothing until a fifth is read."""
        name = topology.inbox_name(self._prefix, inbox)
        async with self._asking(f"cannot look at {inbox.routing_key}") as channel:
            queue = await channel.declare_queue(name, passive=True, timeout=ANSWER_SECONDS)
            waiting = queue.declaration_result.message_count or 0
        return Fill(waiting, topology.MAX_INBOX_MESSAGES * 4 // 5)

    def leave_node(self) -> bool:
        """Leave the broker node for the next address; return False if there is only one."""
        if not self._links.has_others:
            return False
        self._lost(self._links.connections)
        return True

    async def dead_letter(self, message: Message, inbox: Address, reason: str) -> None:
        """Publish a message to its service's dead-letter queue with the reason."""
        await self.connect()
        assert self._publisher is not None
        letter = letter_to_leave(message, inbox, reason, self._links.user)
        await self._publisher.leave(letter, inbox.owner)
        count_dead_letter(inbox.owner)
        log.warning("dead-lettered", service=inbox.owner, kind=message.type, reason=reason)

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """List each service's dead letters; closing the channel gives all of them back.

        Letters held by other clients are missing.
        """
        letters: list[DeadLetter] = []
        total = 0
        async with self._asking("cannot read the dead letters") as channel:
            for service in SERVICES:
                name = topology.dead_queue_name(self._prefix, service)
                left = most - len(letters)
                found, there = await found_letters(
                    channel, name, service, wanted, left, is_read=False
                )
                total += there
                letters += [letter_of(service, message) for message in found]
        return DeadLetters(tuple(letters), total)

    @asynccontextmanager
    async def take_letters(
        self, service: str, wanted: Wanted, *, is_read: bool = False
    ) -> AsyncIterator[list[HeldLetter]]:
        """Hold a service's dead letters; closing the channel gives back those not dropped."""
        name, user = topology.dead_queue_name(self._prefix, service), self._links.user
        async with self._connected("cannot take the dead letters"):
            channel = await self._open_to_read()
            found, _ = await found_letters(
                channel, name, service, wanted, MAX_SEARCHED, is_read=is_read
            )
        try:
            yield [_held(letter_of(service, message), message, user) for message in found]
        finally:
            await close(channel)

    # --- connecting -----------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect, and declare the topology if needed.

        If publishing worked on the previous connection, the topology exists and is not declared
        again: while a broker node hangs, or a stream has no writer, declaring fails. If something
        is missing after all, messages are not confirmed or returned, and the next connection
        declares it.
        """
        started = time.monotonic()
        is_there, self._works = self._works, False
        try:
            with away("cannot connect to the broker"):
                await self._links.open()
                async with self._links.within(DECLARE_SECONDS):
                    publisher = Publisher(
                        self._links, self._names, self._widths, kept=self._kept, fill=self.fill
                    )
                    channel = await publisher.open()
                    if not is_there:
                        await self._declare(channel)
                self._publisher = publisher
                log.info(
                    "connected to the broker",
                    connection=self._links.name,
                    address=self._links.address,
                    seconds=round(time.monotonic() - started, 1),
                )
        except BusUnavailableError as error:
            log.info(
                "no broker is reachable",
                connection=self._links.name,
                seconds=round(time.monotonic() - started, 1),
                error=str(error),
            )
            self._drop()
            raise

    @property
    def _names(self) -> tuple[str, str]:
        """The names of the exchange and the dead-letter exchange."""
        return topology.exchange_name(self._prefix), topology.dead_exchange_name(self._prefix)

    @asynccontextmanager
    async def _connected(self, what: str) -> AsyncIterator[None]:
        """Connect for a call named ``what``; drop the connections if the call finds them lost."""
        await self.connect()
        connections = self._links.connections
        try:
            with away(what):
                yield
        except BusUnavailableError as error:
            self._lost(connections, error)
            raise

    @asynccontextmanager
    async def _asking(self, what: str) -> AsyncIterator[AbstractChannel]:
        """Connect, and open a channel for a request; closing it gives back its messages."""
        async with self._connected(what):
            channel = await self._open_to_read()
            try:
                yield channel
            finally:
                await close(channel)

    async def _open_to_read(self) -> AbstractChannel:
        async with self._links.within(CONNECT_SECONDS):
            return await self._links.reading.channel()

    async def _declare(self, channel: AbstractChannel) -> None:
        """Declare everything that outlives a reader, so that every published message is routable.

        If the broker's definitions contain the topology, nothing is declared.
        """
        if self._is_given:
            return
        exchange, dead_exchange = self._names
        await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC, durable=True)
        await channel.declare_exchange(dead_exchange, aio_pika.ExchangeType.DIRECT, durable=True)
        for item in topology.durable_queues(self._prefix):
            queue = await _declare_queue(self._links.publishing, item.name, item.arguments)
            await queue.bind(item.exchange, routing_key=item.key)

    async def _declare_partitions(self, envelopes: Sequence[Envelope]) -> None:
        """Declare the inboxes of further partitions that get a message or are announced.

        With given inboxes, only announced partitions are declared; only their reader may do so.
        """
        for envelope in envelopes:
            if isinstance(envelope.message, Partitions):
                for name in envelope.message.names:
                    for service in PARTITIONED:
                        await self._declare_partition(inbox_of(service, name))
            elif not self._is_given:
                await self._declare_partition(envelope.to)

    async def _declare_partition(self, inbox: Address) -> None:
        """Declare the inbox of a further partition, once per connection."""
        item = None if inbox in self._declared else topology.partition_queue(self._prefix, inbox)
        if item is not None:
            queue = await _declare_queue(self._links.publishing, item.name, item.arguments)
            await queue.bind(item.exchange, routing_key=item.key)
            await queue.channel.close()  # a connection has some 2,000
            self._declared[inbox] = None

    async def _queues_of(self, channel: AbstractChannel, inbox: Address) -> list[Source]:
        """Return the queues that a reader of an inbox consumes; for an API replica, also the trace.

        With given inboxes, a service binds its own: a broker that starts with bindings in its
        definitions may fail on queues that are not up yet (docs/adr/0053).
        """
        if self._is_given:
            for item in topology.durable_queues(self._prefix):
                if item.service == inbox.service:
                    queue = await channel.get_queue(item.name, ensure=False)
                    await queue.bind(item.exchange, routing_key=item.key)
        if inbox.is_durable:
            name = topology.inbox_name(self._prefix, inbox)
            return [(await channel.get_queue(name, ensure=False), {})]
        if inbox.service != API_TRACE.service:
            return [(await self._feed_of(channel, inbox), {})]
        trace = topology.inbox_name(self._prefix, API_TRACE)
        return [
            (await self._feed_of(channel, inbox), {}),
            (await channel.get_queue(trace, ensure=False), topology.trace_consumer_arguments()),
        ]

    async def _feed_of(self, channel: AbstractChannel, inbox: Address) -> AbstractQueue:
        queue = await channel.declare_queue(
            topology.inbox_name(self._prefix, inbox),
            exclusive=True,
            auto_delete=True,
            arguments=topology.feed_arguments(),
        )
        exchange = topology.exchange_name(self._prefix)
        for to in (Address(inbox.service, "all"), inbox):
            await queue.bind(exchange, routing_key=topology.binding_key(to))
        return queue

    def _lost(
        self, connections: list[AbstractConnection], error: BusUnavailableError | None = None
    ) -> None:
        """Drop failed connections, unless they were replaced already.

        A connection that was reset does not report itself closed: the call that fails does.
        """
        if error is not None and isinstance(error.__cause__, ChannelNotFoundEntity):
            self._works = False
        if self._links.connections is connections:
            self._links.go_on()
            self._drop()

    def _ended(self) -> None:
        """Drop both connections when one of them has ended."""
        self._lost(self._links.connections)

    def _drop(self) -> None:
        """Close both connections in the background; readers start over at once."""
        self._declared.clear()
        self._publisher = None
        self._links.drop()
        readers, self._readers = self._readers, {}
        for reader in readers:
            reader.lose()

    async def delete_topology(self, partitions: Sequence[str] = ()) -> None:
        """Delete everything of this prefix from the broker (for tests and scenarios).

        Of further partitions, only those in ``partitions``.
        """
        await self.connect()
        channel = await self._links.publishing.channel()
        further = (inbox_of(service, name) for name in partitions for service in PARTITIONED)
        for inbox in (*topology.DURABLE_INBOXES, *further):
            await channel.queue_delete(topology.inbox_name(self._prefix, inbox))
        for service in SERVICES:
            await channel.queue_delete(topology.dead_queue_name(self._prefix, service))
        await channel.queue_delete(topology.inbox_name(self._prefix, API_TRACE))
        for exchange in self._names:
            await channel.exchange_delete(exchange)
        await channel.close()


def _held(letter: DeadLetter, message: AbstractIncomingMessage, user: str) -> HeldLetter:
    async def drop() -> None:
        with away("cannot drop a dead letter"):
            await message.ack()

    return HeldLetter(letter, partial(envelope_of, message, letter.inbox, user), drop)


async def _declare_queue(
    connection: AbstractConnection, name: str, arguments: dict[str, Any]
) -> AbstractQueue:
    """Declare a durable queue. Queues are never deleted here: they may hold messages.

    A queue that another version of Muster declared with other arguments is used as it is: its
    messages are worth more than its limits, and both versions run during an upgrade.
    No answer within ANSWER_SECONDS means that the broker is down; it may hang for a while. The same
    holds if the broker reports that the queue's home node is down: in a cluster the node returns,
    and otherwise an operator decides (docs/operations.md).
    """
    channel = await connection.channel()
    try:
        return await channel.declare_queue(
            name, durable=True, arguments=arguments, timeout=ANSWER_SECONDS
        )
    except aio_pika.exceptions.ChannelPreconditionFailed as error:
        if "inequivalent arg" not in str(error):
            raise
        log.warning(
            "a queue was declared with other arguments; using it as it is",
            queue=name,
            error=str(error),
        )
        return await (await connection.channel()).get_queue(name)
    except aio_pika.exceptions.ChannelClosed as error:
        if "home node" in str(error):
            log.error(  # noqa: TRY400 - the broker's sentence says all
                "the broker has no leader of a queue; nothing is deleted, trying again; if its "
                "node is gone for good, delete the queue by rabbitmqctl: Muster declares it again",
                queue=name,
                error=str(error),
            )
        raise
