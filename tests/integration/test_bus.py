"""What every bus promises: one suite, on the bus in this process and on RabbitMQ."""

import asyncio
import tracemalloc
import uuid
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aio_pika.exceptions import ChannelPreconditionFailed
from tenacity import stop_after_delay

from shared.bus import amqp_message, codec, rabbitmq, topology
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.publisher import Publisher
from shared.bus.rabbitmq import RabbitBus
from shared.messages.envelope import (
    API_ALL,
    API_TRACE,
    CORE,
    SCHEMA_VERSION,
    SHIM_ADAPTER,
    Address,
    Envelope,
)
from shared.messages.interface import AllocationAsk, UpdateRequest
from shared.messages.protocol import ContinueCycle, Heartbeat
from shared.model.units import milliseconds
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions
from tests.patience import PATIENCE_SECONDS, patience, until


class Kit:
    """Makes connections to one bus, and looks at its dead letters."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"bus-{uuid.uuid4().hex[:8]}"
        self.broker = MemoryBroker()
        self.open: list = []

    async def bus(self):
        bus = (
            MemoryBus(self.broker)
            if self.url == "memory"
            else RabbitBus(self.url, prefix=self.prefix)
        )
        await bus.connect()
        self.open.append(bus)
        return bus

    async def put_raw(self, to, kind, body):
        if self.url == "memory":
            self.broker.put_raw(to, kind, body)
            return
        import aio_pika

        connection = await aio_pika.connect(self.url)
        channel = await connection.channel()
        exchange = await channel.get_exchange(self.prefix)
        message = aio_pika.Message(body, type=kind, message_id="raw")
        await exchange.publish(message, routing_key=to.routing_key)
        await connection.close()

    async def dead_letters(self, service):
        if self.url == "memory":
            return [letter.reason for letter in self.broker.dead_letters]
        import aio_pika

        connection = await aio_pika.connect(self.url)
        channel = await connection.channel()
        queue = await channel.get_queue(f"{self.prefix}.dead.{service}")
        found = []
        for _ in range(100):
            message = await queue.get(fail=False)
            if message is not None:
                found.append(message.headers["x-reason"])
            elif found:
                break
            else:
                await asyncio.sleep(0.05)
        await connection.close()
        return found

    async def close(self):
        for bus in self.open:
            await bus.close()
        if self.url != "memory":
            sweeper = RabbitBus(self.url, prefix=self.prefix)
            await sweeper.delete_topology()
            await sweeper.close()


@pytest.fixture
async def memory_kit():
    kit = Kit("memory")
    yield kit
    await kit.close()


@pytest.fixture
async def rabbit_kit(broker_url):
    kit = Kit(broker_url)
    yield kit
    await kit.close()


@pytest.fixture(
    params=["memory", pytest.param("rabbitmq", marks=pytest.mark.xdist_group("broker"))]
)
def kit(request):
    return request.getfixturevalue("memory_kit" if request.param == "memory" else "rabbit_kit")


def beat(number, to=CORE):
    return Envelope(
        f"id-{number}", "Heartbeat", Heartbeat(f"h{number}"), to, "test", published_ns=number
    )


def cycle(number):
    return Envelope(f"id-{number}", "ContinueCycle", ContinueCycle(number), CORE, "test")


async def receive(subscription, count):
    got = []
    async with patience():
        while len(got) < count:
            got += await subscription.receive(count - len(got))
    return got


async def test_messages_arrive_whole_and_in_order(kit):
    bus = await kit.bus()
    asks = tuple(
        AllocationAsk(f"k{n}", "app", {"vcore": n + 1}, allocation_tags={"a": "b"})
        for n in range(50)
    )
    sent = Envelope(
        "id", "UpdateRequest", UpdateRequest("rm", asks=asks), CORE, "test", correlation_id="app", cause_id="c",
        epoch=3, seq=4, traceparent="00-1-2-01", reply_to="api.x#1", published_ns=12345,
    )  # fmt: skip
    await bus.publish([sent, *(beat(n) for n in range(300))])
    subscription = await bus.subscribe(CORE)
    got = await receive(subscription, 301)
    assert got[0].envelope == sent
    assert [d.envelope.message.instance for d in got[1:]] == [f"h{n}" for n in range(300)]


async def test_a_message_waits_for_its_reader(kit):
    bus = await kit.bus()
    await bus.publish([beat(1)])
    await bus.close()
    other = await kit.bus()
    got = await receive(await other.subscribe(CORE), 1)
    assert got[0].envelope.message_id == "id-1"


async def test_what_was_not_acknowledged_comes_again_to_the_next_reader_in_order(kit):
    first, second = await kit.bus(), await kit.bus()
    await first.publish([beat(n) for n in range(4)])
    subscription = await first.subscribe(CORE)
    got = await receive(subscription, 4)
    await subscription.ack(got[:1])
    standby = await second.subscribe(CORE)
    await first.close()
    again = await receive(standby, 3)
    assert [d.envelope.message_id for d in again] == ["id-1", "id-2", "id-3"]
    assert all(d.redelivered for d in again)


async def test_only_one_reader_of_an_inbox_is_active(kit):
    first, second = await kit.bus(), await kit.bus()
    active = await first.subscribe(CORE)
    standby = await second.subscribe(CORE)
    waiting = asyncio.create_task(standby.receive(10))
    await first.publish([beat(n) for n in range(5)])
    got = await receive(active, 5)
    await active.ack(got)
    assert not waiting.done()
    await first.close()
    await second.publish([beat(9)])
    assert [d.envelope.message_id for d in await asyncio.wait_for(waiting, PATIENCE_SECONDS)] == [
        "id-9"
    ]


async def test_every_api_replica_hears_the_events_and_each_its_own_answers(kit):
    bus = await kit.bus()
    one, two = Address("api", "one"), Address("api", "two")
    readers = [await bus.subscribe(one), await bus.subscribe(two)]
    await bus.publish([beat(1, API_ALL), beat(2, two), beat(3, API_ALL)])
    heard = [
        [d.envelope.message_id for d in await receive(r, n)]
        for r, n in zip(readers, (2, 3), strict=True)
    ]
    assert heard == [["id-1", "id-3"], ["id-1", "id-2", "id-3"]]


async def test_an_event_without_a_reader_is_nobody_s_error(kit):
    bus = await kit.bus()
    await bus.publish([beat(1, API_ALL)])


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("NoSuchKind", b"\x80", "unknown kind 'NoSuchKind'"),
        ("Heartbeat", b"\xc1\xff\x00", "not msgpack"),
        ("Heartbeat", b"\x93\x01\x02\x03", "a map was expected"),
        ("Heartbeat", b"\x81\xa5other\x01", "missing"),
        ("Heartbeat", b"\x81\xa8instance\x05", "valid string"),
        ("Heartbeat", b"\x80", "missing"),
    ],
)
async def test_poison_is_put_aside_and_stops_nothing(kit, kind, body, reason):
    bus = await kit.bus()
    subscription = await bus.subscribe(SHIM_ADAPTER)
    await kit.put_raw(SHIM_ADAPTER, kind, body)
    await bus.publish([beat(7, SHIM_ADAPTER)])
    got = await receive(subscription, 1)
    assert got[0].envelope.message_id == "id-7"
    letters = await kit.dead_letters("shim_adapter")
    assert len(letters) == 1
    assert reason in letters[0]


@pytest.mark.limit(180, "a message of 100 MB goes through a broker")
async def test_a_message_of_100_mb_is_judged_by_its_length_and_costs_no_memory(kit):
    length = 100_000_000
    bus = await kit.bus()
    try:
        await kit.put_raw(CORE, "Heartbeat", bytes(length))
    except ChannelPreconditionFailed:  # RabbitMQ 4 takes no more than 16 MiB, as it comes
        length = 16_000_000
        await kit.put_raw(CORE, "Heartbeat", bytes(length))
    await bus.publish([beat(7)])
    tracemalloc.start()
    try:
        subscription = await bus.subscribe(CORE)
        got = await receive(subscription, 1)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert got[0].envelope.message_id == "id-7"
    assert await kit.dead_letters("core") == [
        f"Heartbeat: {length} bytes, at most {codec.MAX_MESSAGE_BYTES}"
    ]
    assert now < 5_000_000
    assert peak < 10_000_000


async def test_a_message_as_long_as_any_may_be_is_read_whole(kit):
    bus = await kit.bus()
    subscription = await bus.subscribe(CORE)
    reading = asyncio.create_task(subscription.receive(10))
    await kit.put_raw(CORE, "Heartbeat", b"\xc1" + bytes(codec.MAX_MESSAGE_BYTES - 1))
    await kit.put_raw(CORE, "Heartbeat", b"\xc1" + bytes(codec.MAX_MESSAGE_BYTES))

    async def both():
        found = await bus.dead_letters(10)
        return found.letters if found.total == 2 else None

    first, second = await until(both, "two dead letters")
    assert "not msgpack" in first.reason
    assert f"{codec.MAX_MESSAGE_BYTES + 1} bytes, at most" in second.reason
    reading.cancel()


async def test_a_message_of_a_newer_schema_is_put_aside_and_the_next_is_read(kit):
    bus = await kit.bus()
    subscription = await bus.subscribe(CORE)
    await bus.publish([replace(beat(1), schema_version=SCHEMA_VERSION + 1), beat(2)])
    got = await receive(subscription, 1)
    assert got[0].envelope.message_id == "id-2"
    (letter,) = await kit.dead_letters("core")
    assert f"schema version {SCHEMA_VERSION + 1} is newer than {SCHEMA_VERSION}" in letter


async def test_a_message_that_is_refused_by_hand_is_put_aside(kit):
    bus = await kit.bus()
    subscription = await bus.subscribe(CORE)
    await bus.publish([beat(1), beat(2)])
    got = await receive(subscription, 2)
    await subscription.dead_letter(got[0], "because")
    await subscription.ack(got)
    assert await kit.dead_letters("core") == ["because"]


async def test_heartbeats_that_nobody_reads_expire_and_are_no_dead_letters(monkeypatch, rabbit_kit):
    monkeypatch.setattr(amqp_message, "_BEAT_EXPIRES_SECONDS", 0.05)
    bus = await rabbit_kit.bus()
    channel = await bus._links.publishing.channel()

    async def waiting():
        inbox = await channel.declare_queue(f"{rabbit_kit.prefix}.core.default", passive=True)
        return inbox.declaration_result.message_count

    async def is_empty():
        return await waiting() == 0

    await bus.publish([beat(number) for number in range(5)])
    await until(is_empty, "all of them have expired")
    await rabbit_kit.put_raw(CORE, "NoSuchKind", b"\x80")
    reading = asyncio.create_task((await bus.subscribe(CORE)).receive(10))

    async def dead_letter():
        return (await bus.dead_letters(10)).letters

    assert [letter.kind for letter in await until(dead_letter, "poison")] == ["NoSuchKind"]
    reading.cancel()


async def test_dead_letters_are_looked_at_again_and_again_in_their_order(kit):
    bus = await kit.bus()
    subscription = await bus.subscribe(CORE)
    for number in range(4):
        await kit.put_raw(CORE, f"Unknown{number}", b"\x80")
    reading = asyncio.create_task(subscription.receive(10))
    wanted = [("Unknown0", "raw"), ("Unknown1", "raw"), ("Unknown2", "raw")]

    async def all_put_aside():  # a broker takes its time to take back what was looked at
        found = await bus.dead_letters(3)
        return found if found.total == 4 else None

    await until(all_put_aside, "four dead letters")
    for _ in range(25):  # more often than a broker's default delivery limit
        found = await until(all_put_aside, "four dead letters")
        assert [(letter.kind, letter.message_id) for letter in found.letters] == wanted
        assert all("Unknown" in letter.reason and letter.body for letter in found.letters)
    reading.cancel()


async def test_a_closed_bus_says_so(kit):
    bus = await kit.bus()
    await bus.close()
    with pytest.raises(BusClosedError):
        await bus.publish([beat(1)])


async def test_a_reader_whose_own_bus_is_closed_has_not_lost_its_place_to_a_fault(rabbit_kit):
    bus = await rabbit_kit.bus()
    reading = asyncio.create_task((await bus.subscribe(CORE)).receive(10))
    await asyncio.sleep(0)
    await bus.close()
    with pytest.raises(BusClosedError):
        await reading


async def test_a_full_inbox_does_not_change_the_order(monkeypatch, rabbit_kit):
    monkeypatch.setattr(topology, "MAX_INBOX_MESSAGES", 2)
    monkeypatch.setattr(rabbitmq, "PREFETCH", 5)
    sender, reader = await rabbit_kit.bus(), await rabbit_kit.bus()
    inbox = await reader.subscribe(CORE)
    sent, refused = [cycle(at) for at in range(200)], []
    count_refused = sender._widths.refused

    def watched(inbox):
        refused.append(inbox)
        count_refused(inbox)

    monkeypatch.setattr(sender._widths, "refused", watched)
    sending = asyncio.create_task(sender.publish(sent))
    numbers = []
    async with patience():
        while len(numbers) < len(sent):
            got = await inbox.receive(5)
            numbers += [item.envelope.message.cycle for item in got]
            while not refused:  # it fills up; then it is read as it is written
                await asyncio.sleep(0.01)
            await inbox.ack(got)
    await sending
    assert refused  # else this has shown nothing
    assert numbers == sorted(set(numbers))  # in order, and none twice


async def test_an_inbox_that_stays_full_is_a_bus_that_is_away_and_no_lost_connection(
    monkeypatch, rabbit_kit
):
    monkeypatch.setattr(topology, "MAX_INBOX_MESSAGES", 3)
    monkeypatch.setattr(Publisher._publish_one.retry, "stop", stop_after_delay(0.1))
    bus = await rabbit_kit.bus()
    with pytest.raises(BusUnavailableError, match="refused"):
        await bus.publish([beat(at) for at in range(9)])
    assert bus._links.are_up


async def test_queues_of_an_earlier_version_are_used_as_they_are(monkeypatch, rabbit_kit):
    before = dict(topology.dead_arguments())
    del before["x-delivery-limit"]
    with monkeypatch.context() as earlier:
        earlier.setattr(topology, "MAX_INBOX_MESSAGES", 77)
        earlier.setattr(topology, "dead_arguments", lambda: before)
        await (await rabbit_kit.bus()).publish([beat(1)])
    bus = await rabbit_kit.bus()
    await bus.publish([beat(2)])
    got = await receive(await bus.subscribe(CORE), 2)
    assert [item.envelope.message_id for item in got] == ["id-1", "id-2"]


async def test_the_trace_is_told_from_its_start_to_a_replica_that_comes_later(kit):
    bus = await kit.bus()
    await bus.publish([beat(1, API_TRACE), beat(2, API_ALL), beat(3, API_TRACE)])
    first = await bus.subscribe(Address("api", "one"))
    assert [d.envelope.message_id for d in await receive(first, 2)] == ["id-1", "id-3"]
    await bus.publish([beat(4, API_ALL), beat(5, API_TRACE)])
    got = await receive(first, 2)
    assert {d.envelope.message_id for d in got} == {"id-4", "id-5"}
    await first.ack(got)
    await first.close()
    for name in ("one", "two"):
        later = await bus.subscribe(Address("api", name))
        got = [d.envelope for d in await receive(later, 3)]
        assert [e.message_id for e in got] == ["id-1", "id-3", "id-5"]
        assert got[0].message.instance == "h1"
        await later.close()


async def test_a_record_of_the_trace_that_cannot_be_read_is_passed_over(rabbit_kit):
    bus = await rabbit_kit.bus()
    await rabbit_kit.put_raw(API_TRACE, "TraceRecords", b"\xc1")
    await bus.publish([beat(1, API_TRACE)])
    for _ in range(2):
        reader = await bus.subscribe(Address("api", "one"))
        assert [d.envelope.message_id for d in await receive(reader, 1)] == ["id-1"]
        await reader.close()
    assert (await bus.dead_letters(10)).total == 0


async def test_the_trace_of_one_process_has_limits_and_the_oldest_go(memory_kit, monkeypatch):
    bus = await memory_kit.bus()
    monkeypatch.setattr("shared.bus.memory.MAX_TRACE_MESSAGES", 3)
    await bus.publish([beat(number, API_TRACE) for number in range(5)])
    assert [e.message_id for e, _ in memory_kit.broker.trace] == ["id-2", "id-3", "id-4"]
    size = len(memory_kit.broker.trace[0][1])
    monkeypatch.setattr("shared.bus.memory.MAX_TRACE_BYTES", 2 * size)
    await bus.publish([beat(5, API_TRACE)])
    assert [e.message_id for e, _ in memory_kit.broker.trace] == ["id-4", "id-5"]


async def test_a_reader_whom_the_broker_has_forgotten_takes_its_place_anew(rabbit_kit):
    """So it is after a queue's leader has moved, or a cancel that nobody hears of."""
    bus, other = await rabbit_kit.bus(), await rabbit_kit.bus()
    first = await other.subscribe(CORE)
    places, subscribe = [], bus.subscribe

    async def watched(inbox):
        places.append(await subscribe(inbox))
        return places[-1]

    async def forget(place):
        channel = await place._channel.get_underlay_channel()
        for consumer in list(channel.consumers):
            await channel.basic_cancel(consumer)

    bus.subscribe = watched
    seen = []
    machine = SimpleNamespace(handle=lambda envelope, _: seen.append(envelope.message_id) or [])
    options = HostOptions(heartbeat_ns=milliseconds(20), silent_ns=milliseconds(400))
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=options)
    task = asyncio.create_task(host.run())
    try:
        await until(lambda: host.is_connected, "it stands by")
        await forget(places[0])
        await first.close()
        await other.publish([cycle(1)])
        await until(lambda: "id-1" in seen, "a standby takes what nobody takes")
        await forget(places[-1])
        await other.publish([cycle(2)])
        await until(lambda: "id-2" in seen, "the active one takes what does not come to it")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
