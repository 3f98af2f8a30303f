"""A bus that knows when it is quiet: nothing is on its way to anybody who reads."""

import asyncio

import pytest

from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.tracked import TrackedBus, Traffic
from shared.messages.envelope import API_ALL, Address, Envelope, core_of
from shared.messages.protocol import ContinueCycle, Heartbeat

GPU = core_of("gpu")


def heartbeat(name):
    return Envelope(name, "Heartbeat", Heartbeat(name), GPU, "t")


async def test_what_a_reader_has_not_acknowledged_is_on_its_way():
    traffic, broker = Traffic(), MemoryBroker()
    bus = TrackedBus(MemoryBus(broker), traffic)
    place = await bus.subscribe(GPU)
    await bus.publish([heartbeat("a"), heartbeat("b")])
    assert not traffic.is_quiet()
    deliveries = await place.receive(10)
    await place.ack(deliveries[:1])
    assert not traffic.is_quiet()
    await place.ack(deliveries[1:])
    assert traffic.is_quiet()


async def test_a_heartbeat_that_may_have_expired_is_not_waited_for_by_the_next_reader():
    """A scenario on a busy machine waited for that of a partition that had gone and came back."""
    traffic, broker = Traffic(), MemoryBroker()
    bus = TrackedBus(MemoryBus(broker), traffic)
    place = await bus.subscribe(GPU)
    await bus.publish([heartbeat("a")])
    assert not traffic.is_quiet()
    await place.close()
    await bus.subscribe(GPU)
    assert traffic.is_quiet()


async def test_what_a_reader_acknowledges_as_it_is_told_to_stop_is_not_waited_for(monkeypatch):
    """The core of a partition that goes: the broker has forgotten what it had read last."""
    traffic, broker = Traffic(), MemoryBroker()
    bus = TrackedBus(MemoryBus(broker), traffic)
    place = await bus.subscribe(GPU)
    await bus.publish([Envelope("a", "ContinueCycle", ContinueCycle(1), GPU, "t")])
    acknowledge = place._subscription.ack

    async def ack_and_stop(deliveries):
        await acknowledge(deliveries)
        raise asyncio.CancelledError

    monkeypatch.setattr(place._subscription, "ack", ack_and_stop)
    with pytest.raises(asyncio.CancelledError):
        await place.ack(await place.receive(1))
    await place.close()
    await bus.subscribe(GPU)
    assert traffic.is_quiet()


async def test_what_lies_where_nobody_reads_any_more_is_not_until_somebody_does():
    """The core of a partition that has gone has left behind what it did not come to read."""
    traffic, broker = Traffic(), MemoryBroker()
    bus, standby = (TrackedBus(MemoryBus(broker), traffic) for _ in range(2))
    places = [await bus.subscribe(GPU), await standby.subscribe(GPU)]
    await bus.publish([Envelope("a", "ContinueCycle", ContinueCycle(1), GPU, "t")])
    await places[0].close()
    assert not traffic.is_quiet()
    await places[1].close()
    assert traffic.is_quiet()
    again = await bus.subscribe(GPU)
    assert not traffic.is_quiet()
    await again.ack(await again.receive(10))
    assert traffic.is_quiet()


async def test_what_is_for_all_replicas_is_on_its_way_to_each_that_reads_and_to_no_other():
    traffic, broker = Traffic(), MemoryBroker()
    bus = TrackedBus(MemoryBus(broker), traffic)
    event = Envelope("a", "Heartbeat", Heartbeat("a"), API_ALL, "t")
    await bus.publish([event])
    assert traffic.is_quiet()
    places = [await bus.subscribe(Address("api", name)) for name in ("one", "two")]
    await bus.publish([event])
    assert traffic.reached_by(API_ALL) == ["api.one", "api.two"]
    assert traffic.reached_by(GPU) == [GPU.routing_key]
    for place in places:
        assert not traffic.is_quiet()
        await place.ack(await place.receive(10))
    assert traffic.is_quiet()
