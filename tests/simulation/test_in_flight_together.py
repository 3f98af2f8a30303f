"""Messages that are in flight together keep their order, whichever of them the broker refuses.

On the scripted peer, in virtual time. A full inbox refuses a message and takes the next one where
it was read in between, or where the connection stood still between the two.
"""

import asyncio
import random
from unittest import mock

import pytest

from shared.bus.in_order import AFTER, KEPT_SECONDS, InOrder
from shared.bus.publisher import Publisher
from shared.bus.rabbitmq import RabbitBus
from shared.bus.widths import MAX_IN_FLIGHT
from shared.messages.envelope import API_ALL, CORE, Address, Envelope
from shared.messages.protocol import Heartbeat, TimerSyncRequest
from tests.amqp_peer.broker import Queue
from tests.amqp_peer.run import URL, on_a_peer

MANY = 3 * MAX_IN_FLIGHT


def number(at, to=CORE):
    name = f"number/{at}"
    return Envelope(name, "TimerSyncRequest", TimerSyncRequest(name), to, "test", published_ns=1)


def refusing(refused):
    """Have the peer refuse some messages once each."""
    left, take = set(refused), Queue._take

    def taken(queue, message):
        if message.properties.message_id in left:
            left.remove(message.properties.message_id)
            return False
        return take(queue, message)

    return mock.patch.object(Queue, "_take", taken)


def told(story):
    """Run a story on a peer, with a bus that writes and one that reads; return what it returns."""

    async def run(broker):
        writer, reader = (RabbitBus(URL, prefix="m", name=name) for name in ("writer", "reader"))
        try:
            return await story(writer, reader, broker)
        finally:
            await writer.close()
            await reader.close()

    return on_a_peer(run)


async def read(inbox, count):
    names = []
    while len(names) < count:
        got = await inbox.receive(40)
        names += [item.envelope.message_id for item in got]
        await inbox.ack(got)
    return names


async def all_of(writer, reader, _):
    """Publish many, as they are read; return what comes."""
    inbox = await reader.subscribe(CORE)
    sending = asyncio.create_task(writer.publish([number(at) for at in range(MANY)]))
    names = await read(inbox, MANY)
    await sending
    await inbox.close()
    return names


@pytest.mark.parametrize("seed", range(30))
def test_messages_of_which_some_are_refused_come_in_their_order_and_once(seed):
    draw = random.Random(seed)
    refused = {f"number/{draw.randrange(MANY)}" for _ in range(draw.randint(1, 40))}
    with refusing(refused):
        assert told(all_of) == [f"number/{at}" for at in range(MANY)]


def test_without_the_word_of_what_is_before_them_they_do_not():
    with refusing({"number/200"}), mock.patch.object(InOrder, "take", lambda *item: [item[3]]):
        assert told(all_of) != [f"number/{at}" for at in range(MANY)]


def test_many_are_in_flight_together_once_the_inbox_has_taken_some():
    async def story(writer, reader, broker):
        await all_of(writer, reader, broker)
        broker.confirm_seconds, broker.confirms_slowly_until = 1.0, broker.loop.time() + 100
        begun = broker.loop.time()
        await writer.publish([number(at) for at in range(MAX_IN_FLIGHT)])
        return broker.loop.time() - begun

    assert told(story) < 2


def test_an_inbox_that_has_refused_a_message_is_given_the_next_ones_one_by_one():
    refused = [f"number/{at}" for at in range(MANY, MANY + 20)]

    async def story(writer, reader, broker):
        await all_of(writer, reader, broker)
        with refusing(refused):
            await writer.publish([number(at) for at in range(MANY, MANY + 20)])
        seen, take = [], Queue._take

        def taken(queue, item):
            seen.append(item.properties.headers.get(AFTER))
            return take(queue, item)

        with mock.patch.object(Queue, "_take", taken):
            await writer.publish([number(at) for at in range(MANY + 20, MANY + 27)])
        return seen

    def behind(*names):
        return [name and f"number/{name}" for name in names]

    first = MANY + 20  # one alone, then two, then four
    assert told(story) == behind(None, None, first + 1, None, first + 3, first + 4, first + 5)


def test_nothing_waits_behind_what_may_expire():
    """A heartbeat that waited too long is gone, and nobody says it again."""

    async def story(writer, reader, broker):
        await all_of(writer, reader, broker)
        beat = Envelope("beat", "Heartbeat", Heartbeat("h"), CORE, "test", published_ns=1)
        await writer.publish([number(-1), beat, number(-2)])
        await asyncio.sleep(31)
        begun = broker.loop.time()
        return await read(await reader.subscribe(CORE), 2), broker.loop.time() - begun

    names, seconds = told(story)
    assert names == ["number/-1", "number/-2"]
    assert seconds < 1


def test_a_message_whose_publisher_is_gone_before_it_said_the_one_before_is_handled_all_the_same():
    async def story(writer, reader, broker):
        await all_of(writer, reader, broker)
        with refusing({"number/-2"}), mock.patch.object(Publisher, "_publish_lane") as retried:
            await writer.publish([number(at) for at in (-1, -2, -3)])
        assert retried.called
        inbox = await reader.subscribe(CORE)
        begun = broker.loop.time()
        return await read(inbox, 2), broker.loop.time() - begun

    names, seconds = told(story)
    assert names == ["number/-1", "number/-3"]
    assert KEPT_SECONDS <= seconds < KEPT_SECONDS + 1


def test_feeds_are_told_in_order_beside_inboxes():
    replica = Address("api", "one")

    async def story(writer, reader, _):
        feed = await reader.subscribe(replica)
        mixed = [number(at, (API_ALL, CORE)[at % 2]) for at in range(MANY)]
        await writer.publish(mixed)
        return await read(feed, MANY // 2)

    assert told(story) == [f"number/{at}" for at in range(0, MANY, 2)]
