"""The host: confirm before acknowledging, handle once, crash on bugs, put a killer aside."""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from shared.bus.base import Wanted
from shared.bus.errors import BusUnavailableError, PoisonError
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.envelope import API_ALL, CORE, TIMERS, Address, Envelope, Outgoing, members_of
from shared.messages.protocol import (
    ContinueCycle,
    Heartbeat,
    Partitions,
    PartitionsHeld,
    PartitionsRequest,
    TimerKind,
    TimerOrders,
    TimerSet,
    TimerSyncRequest,
)
from shared.messages.state import StateDelta
from shared.runtime import batches, beats, dedupe, own_messages
from shared.runtime.batches import MAX_SLICE_ITEMS
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions
from shared.runtime.members import Members
from tests.patience import PATIENCE_SECONDS, patience, until


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


QUIET = HostOptions(heartbeat_ns=0, is_tapped=False)


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
    options = HostOptions(heartbeat_ns=0)
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
    async with patience():
        while len(got) < count:
            got += await subscription.receive(10)
    return got


async def stop(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_host_is_ready_while_it_reads_and_its_machine_has_what_it_needs():
    machine = Echo()
    host, task = await hosted(machine, MemoryBroker())
    assert not host.is_ready  # it does not read yet
    await until(lambda: host.is_ready, "it reads")
    machine.is_ready = False
    assert not host.is_ready
    machine.is_ready = True
    assert host.is_ready
    await stop(task)
    assert not host.is_ready


async def test_a_message_that_comes_twice_is_handled_once():
    broker, machine = MemoryBroker(), Echo()
    await MemoryBus(broker).publish([message(1), message(1), message(2)])
    _, task = await hosted(machine, broker)
    await answers(broker, 2)
    await stop(task)
    assert machine.seen == [1, 2]


async def test_a_message_that_comes_again_in_a_later_batch_is_not_handled_again():
    broker, machine = MemoryBroker(), Echo()
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(machine, broker)
    subscription = await MemoryBus(broker).subscribe(TIMERS)
    async with patience():
        first = await subscription.receive(10)
        await MemoryBus(broker).publish([message(1), message(2)])
        second = await subscription.receive(10)
    await stop(task)
    assert [d.envelope.message.instance for d in first + second] == ["echo-1", "echo-2"]
    assert machine.seen == [1, 2]


def test_of_the_messages_that_were_handled_the_latest_are_remembered(monkeypatch):
    monkeypatch.setattr(dedupe, "MAX_REMEMBERED", 3)
    handled = dedupe.HandledMessages()
    for number in range(5):
        handled.add(f"m{number}")
    assert [number for number in range(5) if f"m{number}" in handled] == [2, 3, 4]


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
            await asyncio.wait_for(task, PATIENCE_SECONDS)
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


async def test_what_a_host_did_is_told_though_nothing_more_comes():
    broker = MemoryBroker()
    options = HostOptions(heartbeat_ns=0, hold_tap_ns=20_000_000)
    host = Host(CORE, Echo, MemoryBus(broker), SystemClock(), instance="h", options=options)
    feed = await MemoryBus(broker).subscribe(Address("api", "one"))
    task = asyncio.create_task(host.run())
    await MemoryBus(broker).publish([message(1), message(2)])
    async with patience():
        (told,) = await feed.receive(10)
    await stop(task)
    assert [record.message_id for record in told.envelope.message.records] == ["id-1", "id-2"]


class Arms(Echo):
    """Answers every ContinueCycle by arming a timer of its number."""

    def handle(self, envelope, now_ns):
        numbers = [item.message.instance for item in super().handle(envelope, now_ns)]
        armed = tuple(TimerSet(name, "placeholder", "app", "1", 1) for name in numbers)
        return [Outgoing(TIMERS, TimerOrders(armed=armed))] if armed else []


async def test_answers_to_one_batch_go_as_one_message_and_what_is_read_again_is_none_of_it():
    broker = MemoryBroker()
    batch = [message(1), message(2), message(3)]
    await MemoryBus(broker).publish(batch)
    reader = await MemoryBus(broker).subscribe(CORE)  # reads them and ends: they come again
    await reader.receive(10)
    _, task = await hosted(Arms(), broker)
    await asyncio.sleep(0)
    await reader.close()
    apart = await answers(broker, 3)
    await stop(task)
    another = MemoryBroker()
    await MemoryBus(another).publish(batch)
    feed = await MemoryBus(another).subscribe(Address("api", "one"))
    _, task = await hosted(Arms(), another)
    (together,) = await answers(another, 1)
    (told,) = await feed.receive(10)
    await stop(task)
    names = [item.timer_id for d in apart for item in d.envelope.message.armed]
    assert names == [item.timer_id for item in together.envelope.message.armed]
    assert names == ["echo-1", "echo-2", "echo-3"]
    assert [d.envelope.cause_id for d in apart] == ["id-1", "id-2", "id-3"]
    (decision,) = [record for record in told.envelope.message.records if record.kind == "decision"]
    assert together.envelope.cause_id == decision.message_id
    assert decision.causes == (("id-3", "id-2", "id-1"),)
    assert together.envelope.message_id not in {d.envelope.message_id for d in apart}


@pytest.mark.parametrize("how", ["cycle", "answer"])
async def test_a_message_whose_consequences_kill_the_host_is_put_aside_and_its_neighbours_are_not(
    how,
):
    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1), message(13), message(2)])
    for _ in range(4):
        _, task = await hosted(FailsLater(how), broker)
        with pytest.raises((RuntimeError, PoisonError)):
            await asyncio.wait_for(task, PATIENCE_SECONDS)
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


async def test_what_is_put_in_from_inside_is_handled_and_answered_like_what_comes_by_the_bus():
    broker, machine = MemoryBroker(), Echo()
    host, task = await hosted(machine, broker)
    identities = [await host.inject(ContinueCycle(number)) for number in (3, 4)]
    got = await answers(broker, 2)
    await stop(task)
    assert machine.seen == [3, 4]
    assert [d.envelope.message.instance for d in got] == ["echo-3", "echo-4"]
    assert [d.envelope.cause_id for d in got] == identities


class CountingBus(MemoryBus):
    """Counts how often answers are published."""

    times = 0

    async def publish(self, envelopes):
        self.times += not isinstance(envelopes[0].message, Heartbeat)
        await super().publish(envelopes)


async def test_what_was_put_in_while_a_batch_was_in_hand_is_one_batch():
    broker, machine = MemoryBroker(), Echo()
    bus = CountingBus(broker)
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=QUIET)
    for number in range(150):
        await host.inject(ContinueCycle(number))
    task = asyncio.create_task(host.run())
    got = await answers(broker, 150)
    await stop(task)
    assert [d.envelope.message.instance for d in got] == [f"echo-{at}" for at in range(150)]
    assert bus.times == 1


async def test_what_was_put_in_is_no_more_than_a_batch_at_once(monkeypatch):
    broker, machine = MemoryBroker(), Echo()
    bus = CountingBus(broker)
    monkeypatch.setattr(own_messages, "item_count", lambda _: own_messages.MAX_BATCH_ITEMS // 2)
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=QUIET)
    for number in range(10):
        await host.inject(ContinueCycle(number))
    task = asyncio.create_task(host.run())
    await answers(broker, 10)
    await stop(task)
    assert bus.times == 5


async def test_an_answer_s_identity_follows_from_its_cause():
    first, second = MemoryBroker(), MemoryBroker()
    identities = []
    for broker in (first, second):
        await MemoryBus(broker).publish([message(7)])
        _, task = await hosted(Echo(), broker)
        identities.append((await answers(broker, 1))[0].envelope.message_id)
        await stop(task)
    assert identities[0] == identities[1]


class Teller(Echo):
    """Answers with timers of which one cannot be sent, and hears of it."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def handle(self, envelope, now_ns):
        if not isinstance(envelope.message, ContinueCycle):
            return []
        due = [envelope.message.cycle, 2**63, 2**70, 7]
        armed = tuple(TimerSet(f"t{n}", "placeholder", "app", "1", d) for n, d in enumerate(due))
        return [Outgoing(TIMERS, TimerOrders(armed=armed)), *super().handle(envelope, now_ns)]

    def on_unsendable(self, envelope, item, reason, now_ns):
        self.heard.append((envelope.kind, getattr(item, "timer_id", None), reason))
        return [Outgoing(TIMERS, TimerSyncRequest(f"told of {getattr(item, 'timer_id', None)}"))]


class LateTeller(Teller):
    """Says at the end of a batch what it heard of."""

    def on_unsendable(self, envelope, item, reason, now_ns):
        super().on_unsendable(envelope, item, reason, now_ns)
        return []

    def flush(self, now_ns):
        told, self.heard = self.heard, []
        return [Outgoing(TIMERS, TimerSyncRequest(f"late {name}")) for _, name, _ in told]


async def test_what_a_machine_says_at_the_end_of_a_batch_of_an_item_set_aside_goes_at_once():
    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(LateTeller(), broker)
    got = [delivery.envelope.message for delivery in await answers(broker, 4)]
    await stop(task)
    said = [item.instance for item in got if isinstance(item, TimerSyncRequest)]
    assert said == ["echo-1", "late t1", "late t2"]


async def test_an_item_that_cannot_be_sent_is_set_aside_and_its_neighbours_go():
    broker, machine = MemoryBroker(), Teller()
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(machine, broker)
    got = [delivery.envelope.message for delivery in await answers(broker, 5)]
    await stop(task)
    orders = [item for item in got if isinstance(item, TimerOrders)]
    assert [timer.timer_id for item in orders for timer in item.armed] == ["t0", "t3"]
    said = [item.instance for item in got if isinstance(item, TimerSyncRequest)]
    assert said == ["echo-1", "told of t1", "told of t2"]
    assert [(kind, timer_id) for kind, timer_id, _ in machine.heard] == [
        ("TimerOrders", "t1"),
        ("TimerOrders", "t2"),
    ]
    assert "9223372036854775808 does not fit" in machine.heard[0][2]
    assert broker.dead_letters == deque(maxlen=1000)


class Refuser(Teller):
    """Answers whoever waits with what cannot be sent."""

    def handle(self, envelope, now_ns):
        if not isinstance(envelope.message, ContinueCycle):
            return []
        return [Outgoing(TIMERS, TimerSyncRequest("\ud800"), reply_to="api.x#1")]


async def test_an_answer_that_cannot_be_sent_is_told_to_the_machine_and_stops_nothing():
    broker, machine = MemoryBroker(), Refuser()
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(machine, broker)
    (got,) = await answers(broker, 1)
    await stop(task)
    assert got.envelope.message.instance == "told of None"


async def test_a_machine_that_hears_nothing_is_no_trouble():
    class Deaf(Teller):
        on_unsendable = None

    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(Deaf(), broker)
    got = await answers(broker, 3)
    await stop(task)
    assert len(got) == 3


def dead_letters_counted():
    return (
        REGISTRY.get_sample_value("muster_messages_dead_lettered_total", {"service": "core"}) or 0
    )


@pytest.mark.parametrize("how", ["unreadable", "refused"])
async def test_every_dead_letter_is_counted_also_one_that_no_machine_has_seen(how):
    class Poisoned(Echo):
        def handle(self, envelope, now_ns):
            if getattr(envelope.message, "cycle", 0) == 5:
                raise PoisonError("not this one")
            return super().handle(envelope, now_ns)

    broker, before = MemoryBroker(), dead_letters_counted()
    if how == "unreadable":
        broker.put_raw(CORE, "ContinueCycle", b"\xc1")
    await MemoryBus(broker).publish([message(5 if how == "refused" else 1), message(2)])
    _, task = await hosted(Poisoned(), broker)
    await answers(broker, 1 if how == "refused" else 2)
    await stop(task)
    assert dead_letters_counted() == before + 1


async def test_what_comes_in_many_is_handled_in_slices_between_which_the_loop_goes_on():
    turns = 0

    class Counting:
        def __init__(self):
            self.at = []

        def handle(self, envelope, now_ns):
            if isinstance(envelope.message, TimerOrders):
                self.at.append(turns)
            return []

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    broker, machine = MemoryBroker(), Counting()
    due = tuple(TimerSet(f"t{at}", TimerKind.BACKOFF, "a", "1", 1) for at in range(MAX_SLICE_ITEMS))
    large = [
        Envelope(f"m{at}", "TimerOrders", TimerOrders(armed=due), CORE, "t") for at in range(3)
    ]
    small = [Envelope(f"s{at}", "TimerOrders", TimerOrders(), CORE, "t") for at in range(3)]
    await MemoryBus(broker).publish([*large, *small])
    beside = asyncio.create_task(others())
    _, task = await hosted(machine, broker)
    async with patience():
        while len(machine.at) < len(large) + len(small):
            await asyncio.sleep(0)
    await stop(task)
    await stop(beside)
    assert machine.at[0] < machine.at[1] < machine.at[2] < machine.at[3]
    assert machine.at[3] == machine.at[4] == machine.at[5]


async def test_a_question_whose_asker_cannot_be_addressed_stops_nothing():
    class Answers(Echo):
        def handle(self, envelope, now_ns):
            answered = super().handle(envelope, now_ns)
            return [*answered, *(Outgoing(item.to, item.message, reply_to="x" * 300)
                                 for item in answered if envelope.message.cycle == 1)]  # fmt: skip

    broker, machine = MemoryBroker(), Answers()
    await MemoryBus(broker).publish([message(1), message(2)])
    _, task = await hosted(machine, broker)
    got = await answers(broker, 2)
    await stop(task)
    assert [d.envelope.message.instance for d in got] == ["echo-1", "echo-2"]


async def test_a_batch_of_very_many_items_is_flushed_in_between_and_in_order(monkeypatch):
    monkeypatch.setattr(batches, "MAX_BATCH_ITEMS", 5)
    happened = []

    class Keeps:
        def handle(self, envelope, now_ns):
            if isinstance(envelope.message, TimerOrders):
                happened.append(envelope.message_id)
            return []

        def flush(self, now_ns):
            if happened:
                happened.append("flush")
            return []

    broker = MemoryBroker()
    sent = []
    for name, count in (("a", 2), ("b", 3), ("c", 1), ("huge", 9), ("d", 1)):
        due = tuple(TimerSet(f"t{at}", TimerKind.BACKOFF, "a", "1", 1) for at in range(count))
        sent.append(Envelope(name, "TimerOrders", TimerOrders(armed=due), CORE, "t"))
    await MemoryBus(broker).publish(sent)
    _, task = await hosted(Keeps(), broker)
    await until(lambda: happened[-2:] == ["d", "flush"], "all of it is handled")
    await stop(task)
    assert happened == ["a", "b", "flush", "c", "flush", "huge", "flush", "d", "flush"]


async def test_while_a_long_flush_lasts_the_loop_goes_on_and_nothing_is_acknowledged():
    """It lasts until the loop has done something else: on the loop it would last for ever."""
    goes_on, flushed = threading.Event(), []

    class Keeps(Echo):
        def is_flush_long(self):
            return bool(self.seen)

        def flush(self, now_ns):
            if self.seen and not flushed:
                has_gone_on = goes_on.wait(PATIENCE_SECONDS)
                flushed.append((has_gone_on, len(broker.inbox(TIMERS.routing_key).waiting)))
            return []

    async def others():
        while True:
            await asyncio.sleep(0.01)
            if machine.seen:
                goes_on.set()

    broker, machine = MemoryBroker(), Keeps()
    await MemoryBus(broker).publish([message(1)])
    beside = asyncio.create_task(others())
    _, task = await hosted(machine, broker)
    assert len(await answers(broker, 1)) == 1
    await stop(task)
    await stop(beside)
    assert flushed == [(True, 0)]


async def test_between_the_slices_of_one_message_the_loop_goes_on_and_nothing_is_said():
    turns, at, said_by_then = 0, [], []

    class InSlices(Echo):
        def slices(self, envelope, now_ns, said):
            for _ in range(3 if isinstance(envelope.message, ContinueCycle) else 0):
                said.append(Outgoing(TIMERS, TimerSyncRequest("slice")))
                at.append(turns)
                inbox = broker.inboxes.get(TIMERS.routing_key)
                said_by_then.append(len(inbox.waiting) if inbox else 0)
                yield

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1)])
    beside = asyncio.create_task(others())
    _, task = await hosted(InSlices(), broker)
    assert len(await answers(broker, 3)) == 3
    await stop(task)
    await stop(beside)
    assert at[0] < at[1] < at[2]
    assert said_by_then == [0, 0, 0]


async def test_a_wrapper_that_hands_the_rest_through_is_not_passed_by():
    """Watchers of the scenarios and the simulator wrap a machine that cuts messages into slices."""
    seen = []

    class InSlices(Echo):
        def slices(self, envelope, now_ns, said):
            raise AssertionError("the wrapper was passed by")
            yield

    class Wrapper:
        inner = InSlices()

        def handle(self, envelope, now_ns):
            seen.append(envelope.kind)
            return self.inner.handle(envelope, now_ns)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    broker = MemoryBroker()
    await MemoryBus(broker).publish([message(1)])
    _, task = await hosted(Wrapper(), broker)
    assert len(await answers(broker, 1)) == 1
    await stop(task)
    assert "ContinueCycle" in seen


class LosesItsPlace(MemoryBus):
    """Loses each place at once; its last heartbeat takes until ``may_end`` to be given up."""

    def __init__(self, broker):
        super().__init__(broker)
        self.is_ending, self.may_end = asyncio.Event(), asyncio.Event()

    async def subscribe(self, inbox):
        place = await super().subscribe(inbox)

        async def lost(_):
            await asyncio.sleep(0)
            raise BusUnavailableError("the place is lost")

        place.receive = lost
        return place

    async def publish(self, envelopes):
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def test_who_ends_a_host_that_is_leaving_a_lost_place_is_obeyed():
    """A stop that came just then was taken for the heartbeat's own: the host read on for ever."""
    bus = LosesItsPlace(MemoryBroker())
    _, running = await hosted(Echo(), None, bus)
    async with patience():
        await bus.is_ending.wait()
        running.cancel()
        bus.may_end.set()
        await asyncio.wait([running], timeout=PATIENCE_SECONDS / 10)
    ended = running.done()
    running.cancel()
    assert ended


class Deaf(MemoryBus):
    """Takes readers for alive, and delivers nothing to the first of an inbox."""

    places = 0
    is_deaf = False

    async def subscribe(self, inbox):
        place = await super().subscribe(inbox)
        self.places += 1
        if self.places == 1:
            receive = place.receive

            async def nothing(max_items):
                deliveries = await receive(max_items)
                if self.is_deaf:
                    await asyncio.get_running_loop().create_future()
                return deliveries

            place.receive = nothing
        return place


async def test_one_who_hears_no_heartbeat_of_its_own_takes_its_place_anew_and_says_so(monkeypatch):
    logs = []
    said = SimpleNamespace(warning=lambda event, **_: logs.append(event))
    monkeypatch.setattr(beats, "log", said)
    broker, machine = MemoryBroker(), Echo()
    bus = Deaf(broker)
    options = HostOptions(heartbeat_ns=5_000_000, silent_ns=50_000_000)
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=options)
    task = asyncio.create_task(host.run())
    await until(lambda: host.is_active, "it is active")
    bus.is_deaf = True
    await MemoryBus(broker).publish([message(1)])
    await until(lambda: 1 in machine.seen, "it has a place again")
    assert bus.places == 2
    assert any("it has lost its place" in line for line in logs)
    await stop(task)


async def test_what_is_published_beside_a_heartbeat_has_another_identity_than_its_answers():
    """Whoever read both took the second for the first, handled already."""
    broker, machine = MemoryBroker(), Echo()
    machine.handle = lambda envelope, now_ns: [Outgoing(API_ALL, PartitionsRequest("core"))]
    everything = await MemoryBus(broker).subscribe(Address("api", "x"))
    options = HostOptions(heartbeat_ns=5_000_000)
    bus, clock = MemoryBus(broker), SystemClock()
    host = Host(CORE, lambda: machine, bus, clock, instance="h", options=options)
    task = asyncio.create_task(host.run())
    kind_of = {}
    while len(kind_of) < 20:
        for delivery in await everything.receive(10):
            envelope = delivery.envelope
            assert kind_of.setdefault(envelope.message_id, envelope.kind) == envelope.kind
    assert {*kind_of.values()} >= {"AtWork", "PartitionsRequest"}
    await stop(task)


async def test_beside_a_heartbeat_goes_the_number_of_the_last_change_that_is_published():
    broker, machine = MemoryBroker(), Echo()
    machine.epoch = 3
    machine.handle = lambda envelope, now_ns: (
        [Outgoing(API_ALL, StateDelta(), epoch=3, seq=envelope.message.cycle)]
        if isinstance(envelope.message, ContinueCycle)
        else []
    )
    everything = await MemoryBus(broker).subscribe(Address("api", "x"))
    options = HostOptions(heartbeat_ns=5_000_000, is_tapped=False)
    host = Host(
        CORE, lambda: machine, MemoryBus(broker), SystemClock(), instance="h", options=options
    )
    task = asyncio.create_task(host.run())
    await MemoryBus(broker).publish([message(7)])
    seen = []
    while not seen or seen[-1] != ("AtWork", 3, 7):
        for delivery in await everything.receive(10):
            seen.append((delivery.envelope.kind, delivery.envelope.epoch, delivery.envelope.seq))
    at = seen.index(("StateDelta", 3, 7))
    assert {*seen[:at]} <= {("AtWork", 3, 0)}
    assert {*seen[at + 1 :]} == {("AtWork", 3, 7)}
    await stop(task)


class Jumping(SystemClock):
    """Is ahead by what a process was stopped for."""

    ahead_ns = 0

    def now_ns(self):
        return super().now_ns() + self.ahead_ns


class StoppedAfterEach(MemoryBus):
    """Its process is stopped for ten seconds whenever it has acknowledged something."""

    def __init__(self, broker):
        super().__init__(broker)
        self.clock, self.published = Jumping(), []

    async def publish(self, envelopes):
        self.published += [envelope.kind for envelope in envelopes]
        await super().publish(envelopes)

    async def subscribe(self, inbox):
        place = await super().subscribe(inbox)
        ack = place.ack

        async def and_stop(deliveries):
            await ack(deliveries)
            self.clock.ahead_ns += 10_000_000_000

        place.ack = and_stop
        return place


async def test_one_who_was_stopped_since_it_handled_a_heartbeat_does_not_say_that_it_works():
    bus = StoppedAfterEach(MemoryBroker())
    options = HostOptions(heartbeat_ns=5_000_000)
    host = Host(CORE, Echo, bus, bus.clock, instance="h", options=options)
    task = asyncio.create_task(host.run())
    await until(lambda: bus.published.count("Heartbeat") > 9, "ten heartbeats")
    assert "AtWork" not in bus.published
    await stop(task)


async def test_one_who_is_busy_longer_than_a_place_lasts_keeps_it():
    broker, machine = MemoryBroker(), Echo()
    bus = Deaf(broker)
    goes_on = threading.Event()
    machine.prepare = lambda envelope: (
        goes_on.wait if isinstance(envelope.message, ContinueCycle) else None
    )
    options = HostOptions(heartbeat_ns=1_000_000, silent_ns=20_000_000)
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=options)
    task = asyncio.create_task(host.run())
    await MemoryBus(broker).publish([message(1)])
    before = broker.published
    await until(lambda: broker.published > before + 100, "a hundred heartbeats are said meanwhile")
    goes_on.set()
    await until(lambda: machine.seen == [1], "it goes on")
    assert bus.places == 1
    await stop(task)


class Swallows(MemoryBus):
    """Ends what waits with what it waited for, though that is asked to stop: as wait_for does."""

    def __init__(self, broker, where):
        super().__init__(broker)
        self.where = where
        self.is_reached, self.may_end = asyncio.Event(), asyncio.Event()

    async def reach(self, where):
        if where == self.where:
            self.is_reached.set()
            with suppress(asyncio.CancelledError):
                await self.may_end.wait()

    async def subscribe(self, inbox):
        await self.reach("subscribe")
        return await super().subscribe(inbox)

    async def publish(self, envelopes):
        kind = type(envelopes[0].message)
        await self.reach({Heartbeat: "beat", PartitionsHeld: "held"}.get(kind, "answer"))
        await super().publish(envelopes)


@pytest.mark.parametrize("where", ["subscribe", "beat", "answer"])
async def test_a_stop_that_the_bus_has_swallowed_is_obeyed(where):
    broker = MemoryBroker()
    bus = Swallows(broker, where)
    options = HostOptions(heartbeat_ns=1_000_000, is_tapped=False)
    host = Host(CORE, Echo, bus, SystemClock(), instance="h", options=options)
    task = asyncio.create_task(host.run())
    await MemoryBus(broker).publish([message(1)])
    async with patience():
        await bus.is_reached.wait()
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_SECONDS / 10)
    ended = task.cancelled()
    bus.where = ""
    task.cancel()
    assert ended


async def test_a_stop_that_is_swallowed_as_one_says_what_it_has_is_obeyed():
    broker = MemoryBroker()
    bus = Swallows(broker, "held")
    options = HostOptions(heartbeat_ns=1_000_000, is_tapped=False)
    members = Members("core", lambda _: Echo(), bus, SystemClock(), instance="m", options=options)
    task = asyncio.create_task(members.run())
    await until(lambda: members.is_connected, "it hears of partitions")
    told = Partitions(("default", "gpu"))
    everybody = members_of("core", "all")
    await MemoryBus(broker).publish([Envelope("id", "Partitions", told, everybody, "test")])
    async with patience():
        await bus.is_reached.wait()
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_SECONDS / 10)
    ended = task.cancelled()
    bus.where = ""
    task.cancel()
    assert ended


async def test_a_process_ends_with_the_host_of_a_partition_that_was_added_while_it_ran():
    broker = MemoryBroker()
    options = HostOptions(heartbeat_ns=0, is_tapped=False)
    machines = {"default": Echo(), "gpu": Echo(fails_at=(1, 1))}
    members = Members(
        "core", machines.get, MemoryBus(broker), SystemClock(), instance="m", options=options
    )
    task = asyncio.create_task(members.run())
    await until(lambda: members.is_connected, "it hears of partitions")
    added = Partitions(("default", "gpu"))
    await MemoryBus(broker).publish(
        [Envelope("id", "Partitions", added, members_of("core", "all"), "test")]
    )
    await until(lambda: len(members.hosts) == 2 and members.is_connected, "it has both")
    flawed = ContinueCycle(1)
    await MemoryBus(broker).publish(
        [Envelope("id-1", "ContinueCycle", flawed, Address("core", "gpu"), "test")]
    )
    async with patience():
        await asyncio.wait([task])
    assert isinstance(task.exception(), RuntimeError)


def place(broker, name, machine, may_take=lambda: True):
    """Return a host that stands in line at the core's inbox, and its task."""
    host = Host(
        CORE, lambda: machine, MemoryBus(broker), SystemClock(),
        instance=name, options=HostOptions(heartbeat_ns=0), may_take=may_take,
    )  # fmt: skip
    return host, asyncio.create_task(host.run())


async def test_a_standby_is_not_at_work_however_lately_it_began():
    options = HostOptions(heartbeat_ns=10**9)
    host = Host(CORE, Echo, MemoryBus(), SystemClock(), instance="h", options=options)
    assert not host.is_active
    assert not host.is_at_work


async def test_dead_letters_of_every_service_are_dropped_and_named():
    broker = MemoryBroker()
    host, task = await hosted(Echo(), broker)
    broker.put_raw(CORE, "Nothing", b"x", "first")
    await until(lambda: len(broker.dead_letters) == 1, "it is put aside")
    assert await host.drop_letters(Wanted(frozenset(["first"]))) == ["first"]
    assert not broker.dead_letters
    await stop(task)


async def test_whose_turn_it_is_not_to_take_a_place_leaves_what_waits_to_the_next_in_line():
    broker, first, second = MemoryBroker(), Echo(), Echo()
    shy, shy_task = place(broker, "shy", first, may_take=lambda: False)
    await until(lambda: shy.is_connected, "it stands first")
    _, task = place(broker, "next", second)
    await MemoryBus(broker).publish([message(1)])
    await until(lambda: second.seen == [1], "the next has handled it")
    assert (first.seen, shy.is_active) == ([], False)
    await stop(shy_task)
    await stop(task)


async def test_who_gave_a_place_up_takes_it_again_when_its_turn_comes():
    broker, first, second = MemoryBroker(), Echo(), Echo()
    host, task = place(broker, "first", first)
    await until(lambda: host.is_active, "it has the place")
    _, other_task = place(broker, "second", second)
    await asyncio.sleep(0)
    host.give_up()
    await MemoryBus(broker).publish([message(1)])
    await until(lambda: first.seen + second.seen == [1], "one of them has handled it")
    await MemoryBus(broker).publish([message(2)])
    await until(lambda: second.seen, "the place is the other's")
    await until(lambda: not host.is_active, "it stands by")
    await stop(other_task)
    await MemoryBus(broker).publish([message(3)])
    await until(lambda: 3 in first.seen, "its turn has come again")
    await stop(task)


async def test_each_record_of_the_trace_that_is_sent_is_a_message_of_its_own():
    broker, machine = MemoryBroker(), Echo()
    _, task = await hosted(machine, broker)
    for number in (1, 2):
        await MemoryBus(broker).publish([message(number)])
        await until(lambda number=number: machine.seen[-1:] == [number], "it was handled")
    await until(lambda: len(broker.trace) >= 2, "both were told")
    await stop(task)
    names = [envelope.message_id for envelope, _ in broker.trace]
    assert len(set(names)) == len(names)


async def test_who_has_lost_the_bus_is_not_active_until_something_comes_again():
    """Two processes would be active at once in the figures."""

    class Lost(MemoryBus):
        is_away = False

        async def subscribe(self, inbox):
            if self.is_away:
                raise BusUnavailableError("gone")
            place = await super().subscribe(inbox)
            receive = place.receive

            async def until_lost(max_items):
                if self.is_away:
                    raise BusUnavailableError("gone")
                return await receive(max_items)

            place.receive = until_lost
            return place

    broker, machine = MemoryBroker(), Echo()
    bus = Lost(broker)
    host, task = await hosted(machine, broker, bus)
    await until(lambda: host.is_active, "it is active")
    bus.is_away = True
    await MemoryBus(broker).publish([message(1)])
    await until(lambda: host.away_since_ns, "it is away")
    await until(lambda: not host.is_active, "it is not active")
    await MemoryBus(broker).subscribe(CORE)  # takes the place meanwhile
    bus.is_away = False
    await until(lambda: host.is_connected, "it stands by")
    assert not host.is_active
    await stop(task)


async def test_a_host_without_heartbeats_sleeps_while_nothing_comes():
    asked = 0

    class Asked(Echo):
        def next_due_ns(self):
            nonlocal asked
            asked += 1

    broker, machine = MemoryBroker(), Asked()
    host, task = await hosted(machine, broker)
    await MemoryBus(broker).publish([message(1)])
    await until(lambda: machine.seen and host.is_waiting, "it waits")
    before = asked
    for _ in range(50):
        await asyncio.sleep(0)
    assert asked == before
    await stop(task)


async def test_messages_gather_for_as_long_as_the_spacing_says_and_it_hears_of_each_batch():
    taken, slept = [], []

    class Clock(SystemClock):
        async def sleep_until(self, due_ns):
            slept.append(due_ns)
            await asyncio.sleep(0)

    broker, machine = MemoryBroker(), Echo()
    options = HostOptions(heartbeat_ns=0, is_tapped=False, max_batch=2)
    host = Host(CORE, lambda: machine, MemoryBus(broker), Clock(), instance="h", options=options)
    host._spacing = SimpleNamespace(
        pause_ns=0, took=lambda count, **said: taken.append((count, said["is_full"]))
    )
    await MemoryBus(broker).publish([message(1), message(2), message(3)])
    task = asyncio.create_task(host.run())
    await until(lambda: len(machine.seen) == 3, "all are handled")
    assert taken[:2] == [(2, True), (1, False)] or taken[:2] == [(2, True), (2, True)]
    assert slept == []
    host._spacing.pause_ns = 5
    await MemoryBus(broker).publish([message(4), message(5)])
    await until(lambda: len(machine.seen) == 5 and slept, "it waits before it receives")
    await stop(task)


async def test_what_is_put_in_counts_by_its_items_and_the_last_one_as_any_other(monkeypatch):
    broker, machine = MemoryBroker(), Echo()
    bus = CountingBus(broker)
    sizes = {0: 1, 1: own_messages.MAX_BATCH_ITEMS, 2: 1}
    monkeypatch.setattr(
        own_messages, "item_count", lambda message: sizes.get(getattr(message, "cycle", 0))
    )
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=QUIET)
    for number in range(3):
        await host.inject(ContinueCycle(number))
    task = asyncio.create_task(host.run())
    await answers(broker, 3)
    await stop(task)
    assert bus.times == 2


async def test_of_what_waited_for_one_who_starts_over_the_last_is_left_out_as_well():
    broker, machine = MemoryBroker(), Echo()
    options = HostOptions(heartbeat_ns=0, is_tapped=False, max_batch=1)
    bus = MemoryBus(broker)
    host = Host(CORE, lambda: machine, bus, SystemClock(), instance="h", options=options)
    host._to_put_down = 3  # the heartbeat of its start is the third
    await bus.publish([message(1), message(2)])
    task = asyncio.create_task(host.run())
    await until(lambda: host._to_put_down == 0, "these are left out")
    await bus.publish([message(3)])
    await until(lambda: machine.seen == [3], "the next one is handled")
    await stop(task)


async def test_figures_name_the_partition_that_they_are_of_and_not_the_default_one():
    broker, machine = MemoryBroker(), Echo()
    machine.figures = lambda: {"applications": 3, "nodes": {"default": 1, "gpu": 2}}
    host, task = await hosted(machine, broker)
    await until(lambda: host.is_at_work, "it is at work")
    assert host.figures() == {
        ("applications", "core", ""): 3,
        ("nodes", "core", ""): 1,
        ("nodes", "core", "gpu"): 2,
    }
    await stop(task)
    host._place.is_active = False
    assert host.figures() == {}
