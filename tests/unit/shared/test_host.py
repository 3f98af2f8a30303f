"""The host: confirm before acknowledging, handle once, crash on bugs, put a killer aside."""

import asyncio
from contextlib import suppress

import pytest

from shared.bus.errors import BusUnavailableError, PoisonError
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.envelope import CORE, TIMERS, Envelope, Outgoing
from shared.messages.protocol import ContinueCycle, Heartbeat, TimerSyncRequest
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions


class Echo:
    """Answers every ContinueCycle with a message to the timers; fails when told to."""

    def __init__(self, fails_at=()):
        self.seen = []
        self.fails_at = fails_at

    def handle(self, envelope, now_ns):
        if not isinstance(envelope.message, ContinueCycle):
            return []
        self.seen.append(envelope.message.cycle)
        if envelope.message.cycle in self.fails_at:
            raise RuntimeError("a bug")
        return [Outgoing(TIMERS, TimerSyncRequest(f"echo-{envelope.message.cycle}"))]


class FlakyBus(MemoryBus):
    """Loses the first publishes, as a broker does that has gone away."""

    failures = 0

    async def publish(self, envelopes):
        if self.failures and not isinstance(envelopes[0].message, Heartbeat):
            self.failures -= 1
            raise BusUnavailableError("gone")
        await super().publish(envelopes)


def message(number, message_id=None):
    return Envelope(
        message_id or f"id-{number}", "ContinueCycle", ContinueCycle(number), CORE, "test"
    )


async def hosted(machine, broker, bus=None):
    options = HostOptions(heartbeat_ns=0, is_tapped=False)
    host = Host(
        CORE,
        lambda: machine,
        bus or MemoryBus(broker),
        SystemClock(),
        instance="h",
        options=options,
    )
    return host, asyncio.create_task(host.run())


async def answers(broker, count):
    subscription = await MemoryBus(broker).subscribe(TIMERS)
    got = []
    async with asyncio.timeout(5):
        while len(got) < count:
            got += await subscription.receive(10)
    return got


async def stop(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_message_that_comes_twice_is_handled_once():
    broker, machine = MemoryBroker(), Echo()
    await MemoryBus(broker).publish([message(1), message(1), message(2)])
    _, task = await hosted(machine, broker)
    await answers(broker, 2)
    await stop(task)
    assert machine.seen == [1, 2]


async def test_answers_are_published_again_until_confirmed_with_the_same_identities():
    broker, machine = MemoryBroker(), Echo()
    bus = FlakyBus(broker)
    bus.failures = 2
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(machine, broker, bus)
    (got,) = await answers(broker, 1)
    await stop(task)
    assert machine.seen == [1]
    assert got.envelope.cause_id == "id-1"
    assert got.envelope.message.instance == "echo-1"


async def test_a_bug_stops_the_host_and_a_message_that_kills_it_again_and_again_is_put_aside():
    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1), message(13), message(2)])
    for _ in range(4):
        _, task = await hosted(Echo(fails_at=(13,)), broker)
        with pytest.raises(RuntimeError, match="a bug"):
            await asyncio.wait_for(task, 5)
    healthy = Echo(fails_at=(13,))
    _, task = await hosted(healthy, broker)
    got = await answers(broker, 2)
    await stop(task)
    assert [d.envelope.message.instance for d in got] == ["echo-1", "echo-2"]
    (letter,) = broker.dead_letters
    assert "crashed its reader 3 times" in letter.reason
    assert letter.message_id == "id-13"


class FailsLater(Echo):
    """Takes everything in and fails in the cycle after it, or by an answer too large to send."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def flush(self, now_ns):
        if 13 not in self.seen:
            return []
        if self.how == "cycle":
            raise RuntimeError("a bug in the cycle")
        return [Outgoing(TIMERS, TimerSyncRequest("x" * (13 * 1024 * 1024)))]


@pytest.mark.parametrize("how", ["cycle", "answer"])
async def test_a_message_whose_consequences_kill_the_host_is_put_aside_and_its_neighbours_are_not(
    how,
):
    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1), message(13), message(2)])
    for _ in range(4):
        _, task = await hosted(FailsLater(how), broker)
        with pytest.raises((RuntimeError, PoisonError)):
            await asyncio.wait_for(task, 5)
    healthy = FailsLater(how)
    _, task = await hosted(healthy, broker)
    got = await answers(broker, 2)
    await stop(task)
    assert [d.envelope.message.instance for d in got] == ["echo-1", "echo-2"]
    (letter,) = broker.dead_letters
    assert letter.message_id == "id-13"


async def test_a_message_is_handled_again_when_its_answers_were_never_sent():
    broker, machines = MemoryBroker(), []

    class Lost(FlakyBus):
        async def subscribe(self, inbox):
            subscription = await super().subscribe(inbox)
            if not machines[1:]:

                async def lost(_, __):
                    raise BusUnavailableError("gone")

                subscription.dead_letter = lost
            return subscription

    class Poisoned(Echo):
        def handle(self, envelope, now_ns):
            if getattr(envelope.message, "cycle", 0) == 5 and not machines[1:]:
                raise PoisonError("not now")
            return super().handle(envelope, now_ns)

    def make():
        machines.append(Poisoned())
        return machines[-1]

    await MemoryBus(broker).publish([message(1), message(5)])
    host = Host(
        CORE,
        make,
        Lost(broker),
        SystemClock(),
        instance="h",
        options=HostOptions(heartbeat_ns=0, is_tapped=False),
    )
    task = asyncio.create_task(host.run())
    got = await answers(broker, 2)
    await stop(task)
    assert [d.envelope.message.instance for d in got] == ["echo-1", "echo-5"]
    assert len(machines) == 2


async def test_an_answer_s_identity_follows_from_its_cause():
    first, second = MemoryBroker(), MemoryBroker()
    identities = []
    for broker in (first, second):
        await MemoryBus(broker).publish([message(7)])
        _, task = await hosted(Echo(), broker)
        identities.append((await answers(broker, 1))[0].envelope.message_id)
        await stop(task)
    assert identities[0] == identities[1]
