"""RabbitBus call by call, on a scripted peer in virtual time: what each leaves at the broker."""

import asyncio
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from unittest import mock

import pytest
from pamqp import commands

from shared.bus import topology
from shared.bus.amqp_message import message_of
from shared.bus.base import ANSWER_SECONDS, REFUSED_SECONDS, Fill, Wanted
from shared.bus.errors import BusClosedError, BusUnavailableError, InboxFullError, PoisonError
from shared.bus.in_order import AFTER
from shared.bus.publisher import (
    EXPIRING_SECONDS,
    FILL_SECONDS,
    OPEN_SECONDS,
    REST_SECONDS,
    TRY_SECONDS,
    UNCONFIRMED_SECONDS,
)
from shared.bus.rabbitmq import RabbitBus
from shared.bus.refusals import LOOK_SECONDS
from shared.bus.together import Letter, publish_together
from shared.messages.envelope import API_ALL, API_TRACE, CORE, Address, Envelope, members_of
from shared.messages.protocol import AtWork, Heartbeat, Partitions, TimerSyncRequest
from shared.runtime.host import Host
from tests.amqp_peer.broker import Queue
from tests.amqp_peer.faults import Fault
from tests.amqp_peer.run import URL, LoopClock, on_a_peer
from tests.amqp_peer.session import Channel

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


def test_dead_letters_are_shown_oldest_first_as_many_as_are_asked_for_and_stay():
    async def story(bus, broker):
        await put_aside(bus, 3)
        found = [await bus.dead_letters(most) for most in (0, 2, 10)]
        return found, len(broker.queues["m.dead.core"].ready), _unacknowledged(broker)

    found, waiting, held = told(story)
    shown = [[letter.message_id for letter in one.letters] for one in found]
    assert shown == [[], ["number/0", "number/1"], ["number/0", "number/1", "number/2"]]
    assert [one.total for one in found] == [3, 3, 3]
    assert (waiting, held) == (3, 0)
    letter = found[2].letters[1]
    assert (letter.inbox, letter.kind) == ("core.default", "TimerSyncRequest")
    assert letter.reason == "reason of number/1"
    assert letter.length == len(letter.body) > 0


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), [0, 1, 2, 3]),
        (Wanted(ids=frozenset({"number/1", "number/3"})), [1, 3]),
        (Wanted(reason="of number/2"), [2]),
        (Wanted(inbox="core.default"), [0, 1, 2, 3]),
        (Wanted(inbox="core.other"), []),
    ],
)
def test_those_dead_letters_are_taken_that_are_wanted_and_what_is_dropped_is_gone(wanted, found):
    async def story(bus, broker):
        await put_aside(bus, 4)
        async with bus.take_letters("core", wanted, is_read=True) as held:
            names = [letter.letter.message_id for letter in held]
            read = [letter.read().message.instance for letter in held]
            for letter in held[:1]:
                await letter.drop()
        left = await bus.dead_letters(10)
        return names, read, [letter.message_id for letter in left.letters], broker

    names, read, left, _ = told(story)
    assert names == read == [f"number/{at}" for at in found]
    assert left == [f"number/{at}" for at in range(4) if at not in found[:1]]


def test_of_dead_letters_to_be_read_no_more_bytes_are_taken_than_are_asked_for_but_one_letter():
    async def story(bus, _):
        await put_aside(bus, 3)
        size = (await bus.dead_letters(1)).letters[0].size
        counts = []
        for most in (1, size, 2 * size - 1, 2 * size, 0):
            async with bus.take_letters("core", Wanted(most_bytes=most), is_read=True) as held:
                counts.append(len(held))
        return counts

    assert told(story) == [1, 1, 1, 2, 3]


def test_a_dead_letter_of_another_user_is_shown_and_not_read():
    async def story(bus, broker):
        await put_aside(bus, 1)
        broker.queues["m.dead.core"].ready[0].properties.user_id = "another"
        async with bus.take_letters("core", Wanted(), is_read=True) as held:
            with pytest.raises(PoisonError, match="put aside by another, and not by u"):
                held[0].read()
        return (await bus.dead_letters(10)).total

    assert told(story) == 1


# --- what cannot be handled -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda item: setattr(item.properties, "message_id", None), "a message needs a message_id"),
        (
            lambda item: setattr(item.properties, "message_type", "Nothing"),
            "says that it is Nothing",
        ),
        (lambda item: item.properties.headers.update(epoch="one"), "header epoch: a whole number"),
        (lambda item: item.properties.headers.update(schema_version=999), "999"),
        (lambda item: setattr(item, "body", b"\xc1"), "TimerSyncRequest"),
    ],
)
def test_what_cannot_be_decoded_is_dead_lettered_and_its_neighbours_are_read(change, reason):
    async def story(bus, broker):
        await bus.publish([number(0), number(1), number(2)])
        change(broker.queues[INBOX].ready[1])
        broker.queues[INBOX].ready[2].properties.headers.pop(AFTER, None)
        inbox = await bus.subscribe(CORE)
        got = await received(inbox, 2)
        await inbox.ack(got)
        (letter,) = (await bus.dead_letters(10)).letters
        return names_of(got), letter.reason, _unacknowledged(broker)

    names, said, held = told(story)
    assert names == ["number/0", "number/2"]
    assert reason in said
    assert held == 0


def test_a_record_of_the_trace_that_cannot_be_decoded_is_left_out_and_stays_where_it_is():
    async def story(bus, broker):
        records = [replace(number(at), to=API_TRACE) for at in range(3)]
        await bus.publish(records)
        broker.queues["m.api.trace"].log[1].properties.message_id = None
        inbox = await bus.subscribe(Address("api", "one"))
        got = await received(inbox, 2)
        return (
            names_of(got),
            (await bus.dead_letters(10)).total,
            len(broker.queues["m.api.trace"].log),
        )

    assert told(story) == (["number/0", "number/2"], 0, 3)


# --- what is declared -----------------------------------------------------------------------------


def test_all_inboxes_and_queues_of_dead_letters_are_declared_and_deleted_by_name():
    async def story(bus, broker):
        await bus.publish([number(1, Address("core", "gpu"))])
        before = sorted(broker.queues)
        await bus.delete_topology(["gpu"])
        return before, sorted(broker.queues)

    before, after = told(story)
    assert before == sorted(
        [
            "m.api.trace", "m.core.default", "m.core.gpu", "m.dead.api", "m.dead.core",
            "m.dead.shim_adapter", "m.dead.timers", "m.shim_adapter.default", "m.timers.default",
        ]
    )  # fmt: skip
    assert after == []


def test_partitions_that_are_announced_have_their_inboxes_before_anyone_reads_them():
    async def story(bus, broker):
        message = Partitions(("default", "gpu"))
        to = members_of("core", "all")
        await bus.publish([Envelope("p", "Partitions", message, to, "test", published_ns=1)])
        return [name for name in broker.queues if name.endswith(".gpu")]

    assert told(story) == ["m.core.gpu", "m.timers.gpu"]


def test_where_inboxes_are_given_nothing_is_declared_and_a_reader_binds_its_own():
    async def story(bus, broker):
        maker = RabbitBus(URL, prefix="m", name="maker")
        await maker.connect()
        await maker.close()
        broker.bindings.clear()
        await bus.connect()
        bound = [list(broker.bindings)]
        await (await bus.subscribe(CORE)).close()
        bound.append(sorted(queue for _, _, queue in broker.bindings))
        return bound

    assert told(story, is_given=True) == [[], ["m.core.default", "m.dead.core"]]


def test_a_queue_that_another_version_declared_is_used_as_it_is():
    async def story(bus, broker):
        broker.declare_exchange("m", "topic")
        other = commands.Queue.Declare(queue=INBOX, durable=True, arguments={"x-max-length": 7})
        queue = broker.declare(other, None)
        await bus.publish([number(1)])
        return broker.queues[INBOX] is queue, len(queue.ready)

    assert told(story) == (True, 1)


def test_how_full_an_inbox_is_counts_what_waits_and_four_fifths_are_full(monkeypatch):
    monkeypatch.setattr(topology, "MAX_INBOX_MESSAGES", 5)

    async def story(bus, broker):
        found = []
        for at in range(5):
            await bus.publish([number(at)])
            found.append(await bus.fill(CORE))
        channels = sum(len(session.channels) for session in broker.sessions)
        for _ in range(5):
            await bus.fill(CORE)
        return found, channels == sum(len(session.channels) for session in broker.sessions)

    found, is_tidy = told(story)
    assert [one.waiting for one in found] == [1, 2, 3, 4, 5]
    assert [one.is_full for one in found] == [False, False, False, True, True]
    assert is_tidy


# --- several brokers ------------------------------------------------------------------------------


def test_an_address_that_refuses_is_followed_by_the_next_and_all_of_them_are_tried_at_once():
    async def story(bus, broker):
        for name in ("one", "two"):
            broker.nodes[name].refuses_until = 1000.0
        begun = broker.loop.time()
        await bus.connect()
        return {session.node.name for session in broker.sessions}, broker.loop.time() - begun

    url = "amqp://u:p@one,two,three/"
    names, seconds = told(story, names=("one", "two", "three"), url=url)
    assert names == {"three"}
    assert seconds < 0.1


def test_addresses_that_all_refuse_are_tried_for_ten_seconds_in_rounds_with_pauses_that_grow():
    async def story(bus, broker):
        tried = []
        for node in broker.nodes.values():
            node.refuses_until = 1000.0
        connecting = broker.loop.connecting

        async def watched(host, port, link):
            tried.append(broker.loop.time())
            return await connecting(host, port, link)

        broker.loop.connecting = watched
        begun = broker.loop.time()
        with pytest.raises(BusUnavailableError, match="cannot connect to the broker"):
            await bus.connect()
        return [round(at - begun, 1) for at in tried]

    tried = told(story, names=("one", "two"), url="amqp://u:p@one,two/")
    assert tried[:12:2] == tried[1:12:2] == [0.0, 0.1, 0.3, 0.7, 1.5, 2.5]
    assert 9.0 <= tried[-1] <= 11.0


def test_a_dead_link_takes_two_seconds_of_connecting_and_twice_as_many_after_each_round():
    async def story(bus, broker):
        broker.nodes["one"].held_until = 1000.0
        begun = broker.loop.time()
        with pytest.raises(BusUnavailableError):
            await bus.connect()
        seconds, later = broker.loop.time() - begun, bus._links._attempt_seconds()
        broker.nodes["one"].held_until = 0.0
        await bus.connect()
        return seconds, later, bus._links._attempt_seconds()

    seconds, later, again = told(story)
    assert 2 + 4 + 8 <= seconds < 16
    assert (later, again) == (10.0, 2.0)


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


@asynccontextmanager
async def hosted(machine, bus, broker, inbox=CORE):
    """Have a host run at an inbox on the peer's clock."""
    host = Host(inbox, lambda: machine, bus, LoopClock(broker.loop), instance="h")
    running = asyncio.create_task(host.run())
    yield host
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("is_active", [True, False])
def test_a_reader_of_a_full_inbox_to_whom_nothing_comes_takes_another_place(monkeypatch, is_active):
    """Its heartbeats find no room in the inbox, and still say that nothing is read."""
    monkeypatch.setattr(topology, "MAX_INBOX_MESSAGES", 5)
    came = []

    async def story(bus, broker):
        await bus.connect()
        async with hosted(_Sink(came), bus, broker):
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
        sending.cancel()
        await asyncio.wait([sending])
        await other.close()
        return seconds

    assert told(story) <= 10


REPLICA = Address("api", "h")


class _Listener(_Sink):
    """A machine that notes when it heard whom, in seconds."""

    def handle(self, envelope, now_ns):
        self.came.append((now_ns / 1e9, envelope.source))
        return []


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_replica_whose_node_is_apart_from_the_others_uses_the_next_one(is_apart):
    """Its own heartbeats arrive, as they are published on that node; nothing else does."""
    names, came = ("one", "two"), []

    async def story(bus, broker):
        async with hosted(_Listener(came), bus, broker, REPLICA) as host:
            while not host.is_connected:
                await asyncio.sleep(0.01)
            begun, home = host.now_ns / 1e9, broker.sessions[0].node
            home.is_apart = is_apart
            (elsewhere,) = set(names) - {home.name}
            other = RabbitBus(f"amqp://u:p@{elsewhere}/", prefix="m", name="other")
            for second in range(60):
                works = AtWork("core-1", is_ready=True)
                await other.publish([Envelope(f"{second}", "AtWork", works, API_ALL, "core")])
                await asyncio.sleep(1)
        await other.close()
        return [at - begun for at, source in came if source == "core"]

    heard = told(story, names=names, url="amqp://u:p@one,two/")
    assert len(heard) >= (48 if is_apart else 59)
    assert (9 <= heard[0] <= 11) if is_apart else heard[0] < 1


def test_a_replica_that_hears_nobody_tries_nodes_ever_more_rarely_and_one_node_never():
    async def story(bus, broker):
        tried = []
        async with hosted(_Sink([]), bus, broker, REPLICA):
            for _ in range(180):
                await asyncio.sleep(1)
                tried += [one.node.name for one in broker.sessions if one.name == "bus consume"]
        return [len(list(alike)) for _, alike in groupby(tried)]

    *spent, _ = told(story, names=("one", "two"), url="amqp://u:p@one,two/")
    assert len(spent) == 4
    assert all(abs(each - meant) <= 2 for each, meant in zip(spent, (9, 18, 36, 72), strict=True))
    assert len(told(story)) == 1


# --- what is written together ---------------------------------------------------------------------


def test_what_could_not_be_written_leaves_its_numbers_to_what_is_written_next():
    """The broker counts what it gets: a number that is skipped is confirmed in another's name."""

    async def story(bus, broker):
        await bus.connect()
        channel = bus._publisher._current.channel
        wire = await channel.get_underlay_channel()
        letters = [
            Letter(message_of(number(at)), "m", "core.default.Tick", True) for at in range(3)
        ]
        never = mock.patch.object(wire.write_queue, "put", side_effect=asyncio.CancelledError)
        with never, pytest.raises(asyncio.CancelledError):
            await publish_together(channel, letters, nullcontext, nullcontext)
        bound = partial(asyncio.timeout, 5)
        errors = await publish_together(channel, letters, bound, bound)
        return errors, len(broker.queues[INBOX].ready)

    assert told(story) == ([None] * 3, 3)


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_replica_whose_node_stands_still_holds_nobody_up(is_given_up):
    """Its queue confirms nothing, nor does another when the cluster has given the node up."""
    replica = Address("api", "one")

    async def story(bus, broker):
        inbox = await bus.subscribe(replica)
        feed = broker.queues["m.api.one"]
        feed.down_until = broker.loop.time() + 100
        start = broker.loop.time()
        await bus.publish([number(0), number(1, API_ALL), number(2), number(3, replica)])
        seconds = broker.loop.time() - start
        if is_given_up:
            feed.postponed.clear()
        feed.down_until = 0.0
        for message, done in feed.postponed:
            feed.take(message, done)
        await bus.publish([number(4), number(5, replica)])
        after = broker.loop.time() - start - seconds
        found = await received(inbox, 1 if is_given_up else 3)
        kept = [message.properties.message_id for message in broker.queues[INBOX].ready]
        return seconds, after, kept, names_of(found)

    seconds, after, kept, found = told(story)
    assert REST_SECONDS <= seconds < REST_SECONDS + 0.2
    assert after < 0.2
    assert kept == ["number/0", "number/2", "number/4"]
    assert found == (["number/5"] if is_given_up else ["number/1", "number/3", "number/5"])


def test_what_is_kept_is_waited_for_beside_a_replica_that_confirms():
    async def story(bus, broker):
        await bus.subscribe(Address("api", "one"))
        broker.queues[INBOX].down_until = broker.loop.time() + 2
        start = broker.loop.time()
        broker.loop.call_at(start + 2, broker.queues[INBOX]._found)
        await bus.publish([number(0), number(1, API_ALL)])
        return broker.loop.time() - start, len(broker.queues[INBOX].ready)

    seconds, kept = told(story)
    assert (round(seconds), kept) == (2, 1)


def test_the_trace_is_written_once_more_when_it_has_another_writer():
    async def story(bus, broker):
        await bus.connect()
        trace = broker.queues["m.api.trace"]
        trace.down_until = broker.loop.time() + 100
        start = broker.loop.time()
        for at in range(5):
            await bus.publish([number(at), number(10 + at, API_TRACE)])
        seconds = broker.loop.time() - start
        bus._lost(bus._links.connections)
        trace.postponed.clear()
        trace.down_until = 0.0
        await asyncio.sleep(UNCONFIRMED_SECONDS + 1)
        await bus.publish([number(5)])
        return seconds, [message.properties.message_id for message in trace.log]

    seconds, found = told(story)
    assert REST_SECONDS <= seconds < REST_SECONDS + 0.2
    assert found == [f"number/{10 + at}" for at in range(5)]


# --- what is not there any more -------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["all", "inbox"])
def test_what_a_broker_has_lost_is_declared_again(gone):
    async def story(bus, broker):
        inbox = await bus.subscribe(CORE)
        await bus.publish([number(0)])
        await inbox.ack(await received(inbox, 1))
        await inbox.close()
        if gone == "all":
            for kept in (broker.queues, broker.exchanges, broker.bindings, broker.routes):
                kept.clear()
        else:
            broker.remove(broker.queues[INBOX])
        for _ in range(3):
            with suppress(BusUnavailableError):
                await bus.publish([number(1)])
                break
        return names_of(await received(await bus.subscribe(CORE), 1))

    assert told(story) == ["number/1"]


def test_a_reader_of_an_inbox_that_was_deleted_has_it_declared_again():
    async def story(bus, broker):
        await bus.publish([number(0)])
        broker.remove(broker.queues[INBOX])
        for _ in range(3):
            with suppress(BusUnavailableError):
                inbox = await bus.subscribe(CORE)
                await bus.publish([number(1)])
                return names_of(await received(inbox, 1))
        return []

    assert told(story) == ["number/1"]


def test_a_connection_that_follows_one_that_worked_declares_nothing():
    declared = []

    async def story(bus, broker):
        await bus.publish([number(0)])
        bus._lost(bus._links.connections)
        on_declare = Channel.on_queue_declare

        def seen(channel, frame):
            declared.append(frame.queue)
            return on_declare(channel, frame)

        with mock.patch.object(Channel, "on_queue_declare", seen):
            await bus.publish([number(1)])

    told(story)
    assert not declared


# --- channels that fail ---------------------------------------------------------------------------


def _confirmed_by_nobody(channel):
    """Take what is published and say nothing, as where a queue's leader goes at that moment."""


def _refused(channel):
    """Refuse what is published, as a channel does that found a queue's leader away at first."""
    channel._published += 1
    channel.confirm(channel._published, is_taken=False)


def _refused_and_then_confirmed_by_nobody(channel):
    """Refuse one message, as that node goes, and say nothing of it when it comes again."""
    if channel._published:
        return
    _refused(channel)


@pytest.mark.parametrize(
    "way",
    [_confirmed_by_nobody, _refused, _refused_and_then_confirmed_by_nobody],
    ids=["silent", "refusing", "both"],
)
def test_a_channel_that_fails_is_replaced_and_nobody_loses_a_place(way):
    publish, failing = Channel._publish, []

    def taken(channel, published, properties, body):
        if published.routing_key.startswith("core.default"):
            failing.append(channel)
            if channel is failing[0]:
                return way(channel)
        return publish(channel, published, properties, body)

    async def story(bus, broker):
        inbox = await bus.subscribe(CORE)
        connections = list(bus._links.connections)
        start = broker.loop.time()
        with mock.patch.object(Channel, "_publish", taken):
            await bus.publish([number(0), number(1)])
            seconds = broker.loop.time() - start
            await bus.publish([number(2)])
        found = await received(inbox, 3)
        await asyncio.sleep(5)
        session = failing[0].session
        is_left = failing[0].number in session.channels
        return seconds, names_of(found), bus._links.connections == connections, is_left

    seconds, found, is_connected, is_left = told(story)
    assert seconds < TRY_SECONDS[0] + 0.2
    assert found == ["number/0", "number/1", "number/2"]
    assert is_connected
    assert not is_left


def test_a_channel_that_refuses_is_replaced_though_the_broker_does_not_say_how_full_the_inbox_is():
    """Whose leader is on a node that stands still says nothing for as long as it does."""
    publish, failing = Channel._publish, []

    def taken(channel, published, properties, body):
        failing.append(channel)
        if channel is failing[0]:
            return _refused(channel)
        return publish(channel, published, properties, body)

    async def slow(bus, inbox):
        await asyncio.sleep(5)
        return Fill(0, 10)

    async def story(bus, broker):
        await bus.connect()
        start = broker.loop.time()
        with mock.patch.object(Channel, "_publish", taken):
            await bus.publish([number(0)])
        return broker.loop.time() - start

    with mock.patch.object(RabbitBus, "fill", slow):
        seconds = told(story)
    assert seconds < 2 * (FILL_SECONDS + LOOK_SECONDS) + 1


def first_channel_confirms_nothing():
    """Have the first channel that is published on take all that comes and say nothing."""
    publish, failing = Channel._publish, []

    def taken(channel, published, properties, body):
        failing.append(channel)
        return None if channel is failing[0] else publish(channel, published, properties, body)

    return mock.patch.object(Channel, "_publish", taken)


def test_a_message_on_a_channel_that_is_replaced_is_written_to_the_next_one_at_once():
    """Else what was written last to it would wait as long again as what was written first."""

    async def story(bus, broker):
        await bus.connect()
        start = broker.loop.time()

        async def published_at(seconds, envelope):
            await asyncio.sleep(seconds)
            await bus.publish([envelope])
            return broker.loop.time() - start

        with first_channel_confirms_nothing():
            late = [published_at(at, number(at)) for at in range(3)]
            return await asyncio.gather(*late)

    for seconds in told(story):
        assert TRY_SECONDS[0] <= seconds < TRY_SECONDS[0] + 0.2


def test_a_channel_that_is_opened_as_an_alarm_begins_is_waited_for_until_its_end():
    """A broker that blocks a connection reads nothing from it: it opens no channel either."""

    async def story(bus, broker):
        await bus.connect()
        connections = list(bus._links.connections)
        start = broker.loop.time()
        broker.loop.call_at(start + TRY_SECONDS[0] - 0.01, broker.sessions[0].block, start + 15)
        with first_channel_confirms_nothing():
            await bus.publish([number(0)])
        return broker.loop.time() - start, bus._links.connections == connections

    seconds, is_connected = told(story)
    assert 15 <= seconds < 15.5
    assert is_connected


def test_a_node_that_stands_still_is_left_and_its_reader_told_before_its_connections_are_closed():
    """Nobody answers on them: to close them takes CLOSE_SECONDS, and then they are just left."""

    async def story(bus, broker):
        inbox = await bus.subscribe(CORE)
        reading = asyncio.create_task(inbox.receive(1))
        node = broker.sessions[0].node
        start = broker.loop.time()
        node.held_until = start + 100
        publishing = asyncio.create_task(bus.publish([number(0)]))
        with pytest.raises(BusUnavailableError):
            await reading
        lost = broker.loop.time() - start
        with pytest.raises(BusUnavailableError):
            await publishing
        await bus.publish([number(0)])
        return lost, broker.loop.time() - start

    lost, published = told(story, names=("one", "two"), url="amqp://u:p@one,two/")
    assert TRY_SECONDS[0] + OPEN_SECONDS <= lost < TRY_SECONDS[0] + OPEN_SECONDS + 0.2
    assert published < TRY_SECONDS[0] + OPEN_SECONDS + 0.5


def test_a_connection_that_a_broker_ends_is_left_though_the_broker_reads_nothing_more():
    """The library closes it then, for as long as a silent connection is trusted."""

    async def never(_):
        await asyncio.sleep(1000)

    async def story(bus, broker):
        inbox = await bus.subscribe(CORE)
        reading = asyncio.create_task(inbox.receive(1))
        await asyncio.sleep(0.1)
        start = broker.loop.time()
        with mock.patch.object(asyncio.StreamWriter, "drain", never):
            for session in list(broker.sessions):
                session.close(320)
            with pytest.raises(BusUnavailableError):
                await reading
        await bus.publish([number(0)])
        inbox = await bus.subscribe(CORE)
        return broker.loop.time() - start, names_of(await received(inbox, 1))

    seconds, found = told(story)
    assert seconds < 0.5
    assert found == ["number/0"]


def test_an_inbox_that_is_full_is_given_no_other_channel_whatever_it_refuses():
    async def story(bus, broker):
        await bus.publish([number(0), number(1)])
        channel = bus._publisher._current
        broker.queues[INBOX].arguments["x-max-length"] = 2
        with mock.patch.object(topology, "MAX_INBOX_MESSAGES", 2), pytest.raises(InboxFullError):
            await bus.publish([number(2)])
        return bus._publisher._current is channel

    assert told(story)


# --- the end --------------------------------------------------------------------------------------


def test_a_bus_that_was_closed_connects_no_more():
    async def story(bus, broker):
        await bus.connect()
        await bus.close()
        assert bus.is_closed
        with pytest.raises(BusClosedError):
            await bus.publish([number(1)])
        return len(broker.sessions)

    assert told(story) == 0


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
