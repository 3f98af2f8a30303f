"""RabbitBus call by call, on a scripted peer in virtual time: what each leaves at the broker."""

import asyncio
from unittest import mock

import pytest

from shared.bus import topology
from shared.bus.base import ANSWER_SECONDS, REFUSED_SECONDS, Wanted
from shared.bus.errors import BusClosedError, BusUnavailableError, InboxFullError
from shared.bus.rabbitmq import EXPIRING_SECONDS, RabbitBus
from shared.messages.envelope import CORE, Envelope
from shared.messages.protocol import Heartbeat, TimerSyncRequest
from shared.runtime.host import Host
from tests.amqp_peer.broker import Queue
from tests.amqp_peer.faults import Fault
from tests.amqp_peer.run import URL, LoopClock, on_a_peer

INBOX = "m.core.default"


def number(at, to=CORE):
    name = f"number/{at}"
    return Envelope(name, "TimerSyncRequest", TimerSyncRequest(name), to, "test", published_ns=1)


def names_of(deliveries):
    return [delivery.envelope.message_id for delivery in deliveries]


async def received(inbox, count):
    """Return so many messages."""
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await inbox.receive(count - len(found))
    return found


def told(story, names=("one",), **options):
    """Run a story with a bus on a peer; return what it returns."""

    async def run(broker):
        bus = RabbitBus(options.pop("url", URL), prefix="m", name="bus", **options)
        try:
            async with asyncio.timeout(200):
                return await story(bus, broker)
        finally:
            await bus.close()

    return on_a_peer(run, names=names)


def strike(broker, kind, on, seconds=0.0):
    """Have a fault strike at the next frame of its kind."""
    broker.sessions[0].faults.waiting.append(Fault(0, kind, 0.0, on=on, seconds=seconds))


async def put_aside(bus, count):
    """Have a reader dead-letter so many messages."""
    await bus.publish([number(at) for at in range(count)])
    inbox = await bus.subscribe(CORE)
    for delivery in await received(inbox, count):
        await inbox.dead_letter(delivery, f"reason of {delivery.envelope.message_id}")
    await inbox.close()


# --- readers --------------------------------------------------------------------------------------


def test_a_part_of_what_came_is_acknowledged_and_no_more_though_it_came_in_another_order():
    """A message that an inbox refused comes behind its successor, and is handled before it."""
    take, left = Queue._take, ["number/1"]

    def taken(queue, message):
        if message.properties.message_id in left:
            left.clear()
            return False
        return take(queue, message)

    async def story(bus, _):
        await bus.publish([number(-3), number(-2), number(-1)])
        inbox = await bus.subscribe(CORE)
        await inbox.ack(await received(inbox, 3))
        with mock.patch.object(Queue, "_take", taken):
            await bus.publish([number(at) for at in range(3)])
        first = await received(inbox, 3)
        await inbox.ack(first[:2])
        await inbox.close()
        again = await received(await bus.subscribe(CORE), 1)
        return names_of(first), names_of(again)

    names, again = told(story)
    assert names == ["number/0", "number/1", "number/2"]
    assert again == ["number/2"]


@pytest.mark.parametrize("at", range(16))
def test_a_reader_that_is_stopped_while_it_takes_its_place_leaves_none(at):
    async def story(bus, broker):
        await bus.connect()
        taking = asyncio.create_task(bus.subscribe(CORE))
        for _ in range(at):
            await asyncio.sleep(0.0005)
        taking.cancel()
        await asyncio.wait([taking])
        await asyncio.sleep(1)
        if not taking.cancelled():
            await taking.result().close()
            await asyncio.sleep(1)
        return len(broker.queues[INBOX].consumers)

    assert told(story) == 0


def _unacknowledged(broker):
    return sum(len(channel.unacked) for one in broker.sessions for channel in one.channels.values())


# --- dead letters ---------------------------------------------------------------------------------


async def _take(bus):
    async with bus.take_letters("core", Wanted()):
        await asyncio.sleep(100)


@pytest.mark.parametrize("what", ["shown", "taken"])
def test_a_queue_of_dead_letters_that_does_not_answer_is_a_bus_that_is_away(what):
    async def story(bus, broker):
        await put_aside(bus, 2)
        strike(broker, "slow-declare", "declare", 60.0)
        begun = broker.loop.time()
        with pytest.raises(BusUnavailableError):
            await (bus.dead_letters(10) if what == "shown" else _take(bus))
        return broker.loop.time() - begun

    assert told(story) <= ANSWER_SECONDS + 3


def test_who_is_stopped_while_taking_dead_letters_gives_them_back():
    async def story(bus, broker):
        await put_aside(bus, 3)
        taking = asyncio.create_task(_take(bus))
        while not (held := _unacknowledged(broker)):
            await asyncio.sleep(0.0001)
        taking.cancel()
        await asyncio.wait([taking])
        found = await bus.dead_letters(10)
        return held, [letter.message_id for letter in found.letters]

    held, names = told(story)
    assert 0 < held < 3
    assert names == ["number/0", "number/1", "number/2"]


# --- a full inbox ---------------------------------------------------------------------------------


def test_a_heartbeat_that_a_full_inbox_refuses_is_given_up_sooner_than_others(monkeypatch):
    """The next one comes soon, and its sender is to learn whether any is read."""
    monkeypatch.setattr(topology, "MAX_INBOX_MESSAGES", 3)
    beat = Envelope("beat", "Heartbeat", Heartbeat("h"), CORE, "test", published_ns=1)

    async def story(bus, broker):
        await bus.publish([number(at) for at in range(3)])
        connected = list(broker.sessions)
        begun = broker.loop.time()
        with pytest.raises(InboxFullError):
            await bus.publish([beat])
        seconds = broker.loop.time() - begun
        with pytest.raises(InboxFullError):
            await bus.publish([number(3)])
        return seconds, broker.loop.time() - begun, broker.sessions == connected

    soon, late, is_connected = told(story)
    assert EXPIRING_SECONDS <= soon < 2 * EXPIRING_SECONDS
    assert late >= REFUSED_SECONDS
    assert is_connected


class _Sink:
    """A machine that notes what came."""

    def __init__(self, came):
        self.came = came

    def handle(self, envelope, now_ns):
        if isinstance(envelope.message, TimerSyncRequest):
            self.came.append(envelope.message_id)
        return []


@pytest.mark.parametrize("is_active", [True, False])
def test_a_reader_of_a_full_inbox_to_whom_nothing_comes_takes_another_place(monkeypatch, is_active):
    """Its heartbeats find no room in the inbox, and still say that nothing is read."""
    monkeypatch.setattr(topology, "MAX_INBOX_MESSAGES", 5)
    came = []

    async def story(bus, broker):
        await bus.connect()
        host = Host(CORE, lambda: _Sink(came), bus, LoopClock(broker.loop), instance="h")
        running = asyncio.create_task(host.run())
        if is_active:
            await asyncio.sleep(3.5)
        while not broker.queues[INBOX].consumers:
            await asyncio.sleep(0.0001)
        broker.queues[INBOX].consumers[0].is_silent = True
        other = RabbitBus(URL, prefix="m", name="other")
        sending = asyncio.create_task(other.publish([number(at) for at in range(20)]))
        begun = broker.loop.time()
        while not came and broker.loop.time() < begun + 60:
            await asyncio.sleep(0.1)
        seconds = broker.loop.time() - begun
        running.cancel()
        await asyncio.wait([running])
        sending.cancel()
        await asyncio.wait([sending])
        await other.close()
        return seconds

    assert told(story) <= 10


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(0, 60, 6))
def test_a_bus_that_is_closed_while_it_connects_leaves_no_connection(at):
    async def story(bus, broker):
        connecting = asyncio.create_task(bus.connect())
        await asyncio.sleep(at * 0.0005)
        await bus.close()
        await asyncio.wait([connecting])
        await asyncio.sleep(1)
        return len(broker.sessions), connecting.exception()

    left, error = told(story)
    assert left == 0
    assert error is None or isinstance(error, BusClosedError | BusUnavailableError)
