"""The bus on RabbitMQ.

A connection that is lost ends both (``links.py``); the next call connects again, and declares the
whole topology where it was not seen to be there. Traps and figures: docs/rules/rabbitmq.md.
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
DECLARE_SECONDS = 30.0  # for all that there is: exchanges, queues, what binds them
log = structlog.get_logger("muster.bus")


def _refusal(error: DeliveryError) -> BusUnavailableError:
    """Return what a message that the broker does not take is to its publisher."""
    kind = InboxFullError if is_refused(error) else BusUnavailableError
    return kind(f"the broker refused a message: {error!r}")


class RabbitBus:
    """A service's connections to a broker. ``prefix`` keeps deployments on one broker apart.

    ``url`` may name several brokers of a cluster: one that does not answer, or is lost, is followed
    by the next, in an order that is this name's own.
    ``is_given``: exchanges and inboxes are there, by the broker's definitions.
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
            if self._closed:  # meanwhile: what was opened since is closed as well
                self._drop()
                await self._links.closing.finish()
                raise BusClosedError("the bus is closed")

    async def close(self) -> None:
        """Close both connections; what was not acknowledged comes again to the next reader."""
        self._closed = True
        self._drop()
        await self._links.closing.finish()

    @property
    def is_closed(self) -> bool:
        """Return whether it was closed for good, by its owner."""
        return self._closed

    async def subscribe(self, inbox: Address) -> RabbitSubscription:
        """Take a place at an inbox, connecting first where needed."""
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
        """Take note that a reader has left its place."""
        self._readers.pop(subscription, None)

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Publish in order, and return once all are confirmed.

        Up to MAX_IN_FLIGHT are in flight together. A full inbox refuses messages, and takes others
        as soon as it is read: each that is in flight behind another names it, and its reader keeps
        it until that has come (``shared/bus/in_order.py``). How many an inbox is given at once
        doubles with what it takes, and is one again when it refuses.
        Raises PoisonError, having published nothing, when one cannot be encoded.
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
            self._declared.clear()  # one that has expired is declared again
            if not is_refused(error):
                self._unrouted += 1
                if self._unrouted > 1 and not self._is_given:  # nor what all share is there
                    self._works = False
                    self._lost(connections)
            raise _refusal(error) from error
        except BusUnavailableError as error:
            self._lost(connections, error)
            raise

    async def fill(self, inbox: Address) -> Fill:
        """Return how full an inbox is; one that was full takes nothing until a fifth is read."""
        name = topology.inbox_name(self._prefix, inbox)
        async with self._asking(f"cannot look at {inbox.routing_key}") as channel:
            queue = await channel.declare_queue(name, passive=True, timeout=ANSWER_SECONDS)
            waiting = queue.declaration_result.message_count or 0
        return Fill(waiting, topology.MAX_INBOX_MESSAGES * 4 // 5)

    async def dead_letter(self, message: Message, inbox: Address, reason: str) -> None:
        """Publish a message to its service's dead-letter queue with the reason."""
        await self.connect()
        assert self._publisher is not None
        letter = letter_to_leave(message, inbox, reason, self._links.user)
        await self._publisher.leave(letter, inbox.owner)
        count_dead_letter(inbox.owner)
        log.warning("dead-lettered", service=inbox.owner, kind=message.type, reason=reason)

    async def dead_letters(self, most: int, wanted: Wanted = ANY_LETTER) -> DeadLetters:
        """Read each service's dead letters, on a channel whose end gives all of them back.

        What other clients read meanwhile is missing.
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
        """Hold a service's dead letters, on a channel whose end gives back what is not dropped."""
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
        """Connect, and declare what is to be there.

        What was there on the connection before is not declared again: while a broker's node stands
        still, or a stream has no writer, nothing can be. Where something is not there any more
        nothing is confirmed, or the broker says so, and the next connection declares it.
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
        """Return the names of the exchange and of that of dead letters."""
        return topology.exchange_name(self._prefix), topology.dead_exchange_name(self._prefix)

    @asynccontextmanager
    async def _connected(self, what: str) -> AsyncIterator[None]:
        """Connect, for ``what`` is done meanwhile. Connections that are found lost are dropped."""
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
        """Connect, and open a channel for a question; its end gives back what it holds."""
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
        """Declare everything that outlives a reader, so that nothing published is unroutable.

        Where the broker's definitions have it, nothing is declared, and nothing may be.
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
        """Declare the inboxes of further partitions that are said something, or said to be there.

        Where inboxes are given, only those, and only their own reader may.
        """
        for envelope in envelopes:
            if isinstance(envelope.message, Partitions):
                for name in envelope.message.names:
                    for service in PARTITIONED:
                        await self._declare_partition(inbox_of(service, name))
            elif not self._is_given:
                await self._declare_partition(envelope.to)

    async def _declare_partition(self, inbox: Address) -> None:
        """Declare the inbox of a further partition, once a connection."""
        item = None if inbox in self._declared else topology.partition_queue(self._prefix, inbox)
        if item is not None:
            queue = await _declare_queue(self._links.publishing, item.name, item.arguments)
            await queue.bind(item.exchange, routing_key=item.key)
            await queue.channel.close()  # a connection has some 2,000
            self._declared[inbox] = None

    async def _queues_of(self, channel: AbstractChannel, inbox: Address) -> list[Source]:
        """Return what a reader of an inbox consumes: a replica, the trace as well.

        Where inboxes are given, a service binds its own: a broker that starts with bindings in its
        definitions may fail at queues that are not up yet (docs/adr/0053).
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
        """Drop connections that failed, unless others have taken their place since.

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
        """Have both connections closed. Readers start over at once: closing may take its time."""
        self._declared.clear()
        self._publisher = None
        self._links.drop()
        readers, self._readers = self._readers, {}
        for reader in readers:
            reader.lose()

    async def delete_topology(self, partitions: Sequence[str] = ()) -> None:
        """Delete everything of this prefix from the broker (tests and scenarios clean up).

        Of further partitions, those that are named.
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
    """Declare a durable queue. None is ever deleted here: it may hold messages.

    One that another version of Muster made with other arguments is used as it is: what it holds is
    worth more than its limits, and old and new run side by side while an upgrade goes on.
    Without an answer in ANSWER_SECONDS the broker is away; it may stand still for a while. So it
    is where the broker says that the queue's home is away: in a cluster it comes back, and where it
    does not, an operator decides (docs/operations.md).
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
