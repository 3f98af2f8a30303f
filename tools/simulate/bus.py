"""A broker that delays, repeats, loses and refuses messages according to a run's faults.

It has RabbitMQ's guarantees: messages of one publisher to one inbox arrive in order, one by one if
the inbox may refuse; confirmed messages are safe; a lost reader's messages go, in their old order,
to the next. Inboxes of different services, and different senders, are not ordered. A publisher that
lost its connection reconnects at its next attempt; a reader has lost its place.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Protocol

from shared.bus import codec
from shared.bus.base import Delivery
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.bus.memory import MemoryBroker, MemoryBus, MemorySubscription, _Inbox
from shared.bus.properties import check_properties
from shared.messages.commands import CommandResult, SubmitPods
from shared.messages.envelope import API_TRACE, SHIM_ADAPTER, Address, Envelope
from shared.messages.interface import UpdateResponse
from shared.messages.protocol import AtWork
from shared.messages.sections import contents_by_application
from shared.model.units import NANOS_PER_SECOND
from tools.simulate.faults import ACKNOWLEDGED, PUBLISHED, Armed, Fault
from tools.simulate.loop import VirtualLoop
from tools.simulate.order import OF_EVERY_BEAT, Order

LEAST_LATENCY_NS, MOST_LATENCY_NS = 100_000, 4_000_000
REFUSED_SECONDS = 5.0
_AGAIN_SECONDS = 0.05
_APART_SECONDS = 1e-7
_Written = tuple[Envelope, bytes]


class Station(Protocol):
    """The instance at the other end of a connection."""

    service: str

    def is_at_work(self, partition: str) -> bool:
        """Whether it handles its heartbeats for a partition."""
        ...

    async def stand_still(self) -> None:
        """Wait while it is paused."""

    async def die(self, down_ns: int) -> None:
        """Kill it now, for ``down_ns``; never returns."""


class SimulatedBroker(MemoryBroker):
    """The inboxes, when they refuse, and the digest of all arrived messages."""

    def __init__(self, seed: int, loop: VirtualLoop, armed: Armed) -> None:
        super().__init__()
        self.loop = loop
        self.armed = armed
        self.is_up = True
        self.refusing: dict[str, int] = {}  # inbox: until when
        self.buses: list[SimulatedBus] = []
        self.connections = 0  # that were made, closed ones too
        self.commands: dict[str, SubmitPods] = {}  # pods that were handed in, by message
        self.contradicted: list[str] = []  # who was answered twice, and not the same
        self.decided: dict[tuple[str, str], str] = {}  # what a core said, and it was confirmed
        self.order = Order()
        self.worked_ns: dict[tuple[str, str], int] = {}  # when a service last said so, truly
        self.arrived_ns: list[int] = []  # of each message in an inbox, by its tag, from 1 on
        self.cut: dict[tuple[int, str], None] = {}  # who said not all of which step
        self._answers: dict[str, bytes] = {}
        self._state = seed * 2 + 1
        self._digest = blake2b(digest_size=16)

    def latency_ns(self) -> int:
        """Return the next message's latency, a pseudo-random number (Knuth's MMIX)."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return LEAST_LATENCY_NS + (self._state >> 33) % MOST_LATENCY_NS

    def refuses(self, to: Address) -> bool:
        """Whether an inbox is full now."""
        return self.refusing.get(to.routing_key, 0) > self.loop.now_ns

    def arrive(self, written: _Written) -> None:
        """Deliver a message; while the broker is down it is lost."""
        if not self.is_up:
            return
        envelope, body = written
        said = f"{self.loop.now_ns} {envelope.to.routing_key} {envelope.message_id} {envelope.kind}"
        self._digest.update(said.encode())
        self._digest.update(body)
        if envelope.kind == SubmitPods.__name__ and envelope.to == SHIM_ADAPTER:
            message = codec.decode(envelope.kind, body)
            assert isinstance(message, SubmitPods)
            self.commands[envelope.message_id] = message
        self.order.arrive(envelope, body)
        is_answer = envelope.kind == CommandResult.__name__
        if is_answer and self._answers.setdefault(envelope.reply_to, body) != body:
            self.contradicted.append(envelope.reply_to)
        self.put(envelope, body)

    def _put_into(self, inbox: _Inbox, envelope: Envelope, body: bytes) -> None:
        self.arrived_ns.append(self.loop.now_ns)
        super()._put_into(inbox, envelope, body)

    def begun(self, who: int, envelopes: Sequence[Envelope]) -> None:
        """Record the steps being published: their sender may die before that is complete."""
        self.cut.update({(who, envelope.cause_id): None for envelope in envelopes})

    def confirmed(self, who: int, envelopes: Sequence[Envelope]) -> None:
        """Record the confirmed decisions, by application and step."""
        for envelope in envelopes:
            self.cut.pop((who, envelope.cause_id), None)
            if isinstance(envelope.message, UpdateResponse):
                for name, said in contents_by_application(envelope.message).items():
                    self.decided[name, envelope.cause_id] = said

    def digest(self) -> str:
        """Return the digest of every arrived message, in order and with its time."""
        return self._digest.hexdigest()

    def stop(self) -> None:
        """Lose every connection; durable inboxes and the trace stay."""
        self.is_up = False
        for bus in self.buses:
            bus.lose()


class SimulatedSubscription(MemorySubscription):
    """A reader that can lose its place."""

    def __init__(self, bus: "SimulatedBus", address: Address) -> None:
        super().__init__(bus.broker, bus.broker.inbox(address.routing_key))
        self._bus = bus
        self._is_lost = False

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for messages; a paused instance holds them without handling."""
        deliveries = await super().receive(max_items)
        await self._bus.station.stand_still()
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages, unless a fault affects the acknowledgement."""
        station = self._bus.station
        await station.stand_still()
        broker = self._bus.broker
        fault = broker.armed.take(ACKNOWLEDGED, station.service, broker.loop.now_ns)
        if fault is not None and fault.kind == "lost-ack":
            self._bus.lose()
        await super().ack(deliveries)
        if fault is not None and fault.kind == "crash-acked":
            await station.die(fault.amount_ns)

    def lose(self) -> None:
        """Give back unacknowledged messages: the broker has detected the loss."""
        if not self._closed:
            self._is_lost = True
            self._leave()

    async def close(self) -> None:
        """Leave the inbox."""
        if not self._closed:
            self._leave()

    def _leave(self) -> None:
        self._closed = True
        self._inbox.readers.remove(self)
        if self._inbox.is_durable:
            self._inbox.waiting.extendleft(
                self._held[tag] for tag in sorted(self._held, reverse=True)
            )
        else:
            self._inbox.waiting.clear()
        self._held.clear()
        self._inbox.changed.set()

    def _check_open(self) -> None:
        if self._is_lost:
            raise BusUnavailableError("the place is lost")
        super()._check_open()


class SimulatedBus(MemoryBus):
    """The connections of one instance."""

    broker: SimulatedBroker

    def __init__(self, broker: SimulatedBroker, station: Station) -> None:
        super().__init__(broker)
        self.station = station
        self._places: list[SimulatedSubscription] = []
        self._is_lost = False  # and nobody who publishes has noticed
        self._losses = 0
        self._arrivals: dict[str, float] = {}  # the last one into each inbox
        self._faulty: dict[str, Callable[[Fault, list[_Written]], Awaitable[None]]] = {
            "drop": self._lose_all,
            "lost-confirm": self._lose_confirm,
            "disconnect": self._lose_confirm,
            "crash-before": self._crash_before,
            "crash-midway": self._crash_midway,
            "crash-flying": self._crash_flying,
            "crash-after": self._crash_after,
            "delay": self._delay,
            "duplicate": self._duplicate,
        }
        broker.connections += 1
        self._number = broker.connections
        broker.buses.append(self)

    async def connect(self) -> None:
        """Connect. Raises BusUnavailableError while the broker is down."""
        await self.station.stand_still()
        if self._closed:
            raise BusClosedError("the bus is closed")
        if not self.broker.is_up:
            raise BusUnavailableError("no broker answers")
        self._is_lost = False

    async def close(self) -> None:
        """Close, as the end of a process does."""
        self._closed = True
        for place in self._places:
            await place.close()
        if self in self.broker.buses:
            self.broker.buses.remove(self)

    def lose(self) -> None:
        """Lose the connections and all places."""
        self._is_lost = True
        self._losses += 1
        for place in self._places:
            place.lose()
        self._places.clear()

    async def subscribe(self, inbox: Address) -> SimulatedSubscription:
        """Start reading an inbox, after its earlier readers."""
        await self.connect()
        if inbox.service == API_TRACE.service:
            self.broker.replay_trace(self.broker.inbox(inbox.routing_key))
        place = SimulatedSubscription(self, inbox)
        self._places.append(place)
        return place

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Publish in order and wait for the confirms, unless a fault affects them."""
        await self.station.stand_still()
        for envelope in envelopes:
            check_properties(envelope)
        written = [
            (replace(envelope, message=None), codec.encode(envelope.message))
            for envelope in envelopes
        ]
        self.broker.order.publish(self._number, envelopes)
        self._note_work(envelopes)
        if self._is_lost:
            self._is_lost = False
            raise BusUnavailableError("publishing failed: the connection was closed meanwhile")
        await self.connect()
        self.broker.begun(self._number, envelopes)
        fault = None
        if any(envelope.kind not in OF_EVERY_BEAT for envelope in envelopes):
            service, now_ns = self.station.service, self.broker.loop.now_ns
            fault = self.broker.armed.take(PUBLISHED, service, now_ns)
        if fault is None:
            await self._send(written)
            self.broker.confirmed(self._number, envelopes)
        else:
            await self._faulty[fault.kind](fault, written)

    def _note_work(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            if envelope.kind == AtWork.__name__ and self.station.is_at_work(envelope.partition):
                key = self.station.service, envelope.partition
                self.broker.worked_ns[key] = self.broker.loop.now_ns

    # --- what happens to it ---------------------------------------------------------------------

    async def _lose_all(self, _: Fault, __: list[_Written]) -> None:
        raise BusUnavailableError("no confirm came in time")

    async def _lose_confirm(self, fault: Fault, written: list[_Written]) -> None:
        await self._send(written[: fault.choice % (len(written) + 1)])
        if fault.kind == "disconnect":
            self.lose()
            self._is_lost = False
        raise BusUnavailableError("the confirm is lost")

    async def _crash_before(self, fault: Fault, _: list[_Written]) -> None:
        await self.station.die(fault.amount_ns)

    async def _crash_midway(self, fault: Fault, written: list[_Written]) -> None:
        await self._send(written[: fault.choice % (len(written) + 1)])
        await self.station.die(fault.amount_ns)

    async def _crash_flying(self, fault: Fault, written: list[_Written]) -> None:
        delay_ns = NANOS_PER_SECOND * (1 + fault.choice % 4)
        for item in written:
            self._fly(item, delay_ns)
        await self.station.die(fault.amount_ns)

    async def _crash_after(self, fault: Fault, written: list[_Written]) -> None:
        await self._send(written)
        await self.station.die(fault.amount_ns)

    async def _delay(self, fault: Fault, written: list[_Written]) -> None:
        await self._send(written, fault.amount_ns)

    async def _duplicate(self, fault: Fault, written: list[_Written]) -> None:
        await self._send(written)
        await self._send(written, fault.amount_ns)

    # --- the wire -------------------------------------------------------------------------------

    async def _send(self, written: list[_Written], delay_ns: int = 0) -> None:
        """Send to each inbox in parallel, and return when all messages are confirmed.

        Raises BusUnavailableError if the connection was lost meanwhile.
        """
        losses = self._losses
        lanes: dict[str, list[_Written]] = {}
        for item in written:
            lanes.setdefault(item[0].to.routing_key, []).append(item)
        due = 0.0
        for lane in lanes.values():
            is_drawn = lane[0][0].kind != "AtWork"  # what seeds stand for does not hang on it
            latency_ns = delay_ns + (self.broker.latency_ns() if is_drawn else LEAST_LATENCY_NS)
            if self.broker.refuses(lane[0][0].to):
                await self._insist(lane)
            else:
                due = max(due, *(self._fly(item, latency_ns) for item in lane))
        await asyncio.sleep(max(0.0, due - self.broker.loop.time()) + 0.0001)
        await self.station.stand_still()
        if self._losses > losses:
            self._is_lost = False
            raise BusUnavailableError("publishing failed: the connection was closed meanwhile")

    def _fly(self, item: _Written, latency_ns: int) -> float:
        """Schedule a message's arrival, after the sender's earlier ones to the same inbox."""
        key, loop = item[0].to.routing_key, self.broker.loop
        earliest = self._arrivals.get(key, 0.0) + _APART_SECONDS
        due = max(loop.time() + latency_ns / NANOS_PER_SECOND, earliest)
        self._arrivals[key] = due
        loop.call_at(due, self.broker.arrive, item)
        return due

    async def _insist(self, lane: list[_Written]) -> None:
        """Send to a full inbox, one by one, until it accepts them. Raises BusUnavailableError."""
        until = self.broker.loop.time() + REFUSED_SECONDS
        for item in lane:
            while self.broker.refuses(item[0].to):
                if self.broker.loop.time() > until:
                    raise BusUnavailableError("the broker refused a message: the inbox is full")
                await asyncio.sleep(_AGAIN_SECONDS)
            self.broker.arrive(item)
