"""Dead letters are handled after all, each once, on the bus in this process and on RabbitMQ."""

import asyncio
from dataclasses import replace

import aio_pika
import pytest

from shared.bus import codec, memory
from shared.bus.base import DeadLetter, Wanted
from shared.bus.dead_letters import MAX_SHOWN_BYTES
from shared.bus.errors import PoisonError
from shared.messages.dead_letters import DeadLettersReplayed, ReplayDeadLetters
from shared.messages.envelope import CORE, SHIM_ADAPTER, Address, Envelope, Outgoing, core_of
from shared.messages.protocol import Heartbeat
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions
from tests.integration.test_bus import beat, kit, memory_kit, rabbit_kit  # noqa: F401 - fixtures
from tests.patience import patience, until

ASKER = Address("api", "asker")


class Machine:
    """Answers every heartbeat of others; ``fails`` is what it does at one instead, one by one."""

    def __init__(self, fails):
        self.fails = fails
        self.handled = []

    def handle(self, envelope, now_ns):
        if envelope.source != "test":
            return []
        if self.fails:
            raise self.fails.pop(0)
        self.handled.append(envelope.message.instance)
        return [Outgoing(SHIM_ADAPTER, Heartbeat(f"heard {envelope.message.instance}"))]


class System:
    """A core that fails, whoever asks it, and whoever hears what it says."""

    def __init__(self, kit, inbox=CORE):  # noqa: F811
        self.kit = kit
        self.inbox = inbox
        self.fails = []
        self.handled = []
        self.tasks = []

    async def start(self):
        self.bus = await self.kit.bus()
        self.asker = await self.bus.subscribe(ASKER)
        self.hearing = await self.bus.subscribe(SHIM_ADAPTER)
        await self.begin()
        return self

    async def begin(self):
        options = HostOptions(heartbeat_ns=0, is_tapped=False)
        machine = Machine(self.fails)
        machine.handled = self.handled
        own = await self.kit.bus()
        host = Host(self.inbox, lambda: machine, own, SystemClock(), instance="c", options=options)

        async def running():
            while True:
                try:
                    await host.run()
                except RuntimeError:
                    continue  # as a service does: it starts over

        self.tasks.append(asyncio.create_task(running()))

    async def dead_letter(self, *numbers):
        """Have the core refuse messages, and return their letters."""
        self.fails += [PoisonError(f"refused: {number}") for number in numbers]
        await self.bus.publish([beat(number, self.inbox) for number in numbers])
        return await self.letters(len(numbers))

    async def letters(self, count, **wanted):
        async def there():
            """Count them first: those that are looked at are missing for whoever takes them."""
            if (await self.bus.dead_letters(0)).total != count:
                return None
            found = await self.bus.dead_letters(100, Wanted(**wanted))
            return found if len(found.letters) == found.total == count else None

        return (await until(there, f"{count} dead letters")).letters

    async def none_left(self):
        async def gone():
            return not (await self.bus.dead_letters(100)).total

        await until(gone, "no dead letters")

    def request(self, *ids, name="request"):
        message = ReplayDeadLetters(self.inbox.routing_key, tuple(ids))
        reply_to = f"{ASKER.routing_key}#{name}"
        kind = type(message).__name__
        return Envelope(name, kind, message, self.inbox, "api", reply_to=reply_to)

    async def replay(self, *ids, name="request"):
        await self.bus.publish([self.request(*ids, name=name)])
        return await self.answer()

    async def answer(self):
        while True:  # a replica hears who is at work, too
            async with patience():
                (delivery,) = await self.asker.receive(1)
            await self.asker.ack([delivery])
            if isinstance(delivery.envelope.message, DeadLettersReplayed):
                return delivery.envelope.message

    async def heard(self):
        async with patience():
            deliveries = await self.hearing.receive(10)
        await self.hearing.ack(deliveries)
        return [item.envelope.message.instance for item in deliveries]

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def copied(held, **changed):
    """Return what a broker holds of a letter, as it would be published again."""
    message = held.read.args[0]
    kept = {"headers": dict(message.headers), "user_id": message.user_id, **changed}
    return aio_pika.Message(message.body, message_id=message.message_id, type=message.type, **kept)


@pytest.fixture
async def system(kit):  # noqa: F811
    made = await System(kit).start()
    yield made
    await made.close()


async def test_a_letter_is_handled_after_all_and_gone(system):
    (letter,) = await system.dead_letter(1)
    assert (letter.inbox, letter.kind, letter.reason) == ("core.default", "Heartbeat", "refused: 1")
    answer = await system.replay("id-1")
    assert answer == DeadLettersReplayed(("id-1",))
    assert await system.heard() == ["heard h1"]
    assert system.handled == ["h1"]
    await system.none_left()
    again = await system.replay("id-1", name="again")
    assert not again.replayed
    assert [item.message_id for item in again.refused] == ["id-1"]
    assert system.handled == ["h1"]


async def test_others_stay_where_they_are_in_their_order(system):
    await system.dead_letter(1, 2, 3)
    assert (await system.replay("id-2")).replayed == ("id-2",)
    left = await system.letters(2)
    assert [letter.message_id for letter in left] == ["id-1", "id-3"]


async def test_one_that_still_cannot_be_handled_stays_with_its_reason(system):
    await system.dead_letter(1)
    for name in ("first", "second"):  # and may be asked for again
        system.fails.append(PoisonError("still"))
        answer = await system.replay("id-1", name=name)
        assert [(item.message_id, item.reason) for item in answer.refused] == [("id-1", "still")]
        await system.letters(1)
    assert (await system.replay("id-1", name="third")).replayed == ("id-1",)


async def test_a_request_that_comes_twice_is_carried_out_once(system):
    await system.dead_letter(1)
    await system.bus.publish([system.request("id-1"), system.request("id-1")])
    assert (await system.answer()).replayed == ("id-1",)
    await system.bus.publish([beat(2)])
    heard = []
    while "heard h2" not in heard:
        heard += await system.heard()
    assert heard == ["heard h1", "heard h2"]
    assert system.handled == ["h1", "h2"]


async def test_a_core_that_crashes_at_a_letter_is_asked_again_and_handles_it_once(system):
    await system.dead_letter(1)
    system.fails += [RuntimeError("a bug")]
    assert (await system.replay("id-1")).replayed == ("id-1",)
    assert system.handled == ["h1"]
    await system.none_left()


async def test_a_letter_that_crashes_its_reader_always_stays_and_keeps_nobody_down(system):
    await system.dead_letter(1)
    system.fails += [RuntimeError("a bug") for _ in range(10)]
    await system.bus.publish([system.request("id-1")])
    letters = await system.letters(2)
    assert [letter.kind for letter in letters] == ["Heartbeat", "ReplayDeadLetters"]
    system.fails.clear()
    await system.bus.publish([beat(2)])
    assert "heard h2" in await system.heard()


async def test_two_letters_of_one_message_are_handled_once(system):
    await system.dead_letter(1)
    if system.kit.url == "memory":
        system.kit.broker.dead_letters.append(system.kit.broker.dead_letters[0])
    else:
        async with system.bus.take_letters("core", Wanted()) as held:
            await system.bus._publisher.leave(copied(held[0]), "core")
    await system.letters(2)
    assert (await system.replay("id-1")).replayed == ("id-1", "id-1")
    assert system.handled == ["h1"]
    await system.none_left()


async def test_a_letter_of_another_partition_is_not_handled_here(kit):  # noqa: F811
    gpu, default = System(kit, core_of("gpu")), System(kit)
    await gpu.start()
    try:
        (letter,) = await gpu.dead_letter(1)
        assert letter.inbox == "core.gpu"
        await default.begin()
        wrong = replace(gpu.request("id-1"), to=CORE)
        await gpu.bus.publish([wrong])
        assert not (await gpu.answer()).replayed
        assert (await gpu.replay("id-1", name="right")).replayed == ("id-1",)
        assert (default.handled, gpu.handled) == ([], ["h1"])
    finally:
        await gpu.close()
        await default.close()


async def test_what_cannot_be_read_is_refused_and_dropped_by_hand(system):
    await system.kit.put_raw(CORE, "Heartbeat", bytes(codec.MAX_MESSAGE_BYTES + 1))
    (letter,) = await system.letters(1)
    assert letter.size == codec.MAX_MESSAGE_BYTES + 1
    assert len(letter.body) == MAX_SHOWN_BYTES
    (refused,) = (await system.replay("raw")).refused
    assert "bytes, at most" in refused.reason
    system.fails.append(PoisonError("refused: 1"))
    await system.bus.publish([beat(1)])
    await system.letters(2)
    async with system.bus.take_letters("core", Wanted(reason="at most")) as held:
        assert [item.letter.message_id for item in held] == ["raw"]
        await held[0].drop()
    (left,) = await system.letters(1)
    assert left.message_id == "id-1"


async def test_letters_are_found_by_their_reason(system):
    await system.dead_letter(1, 2)
    found = await system.bus.dead_letters(100, Wanted(reason="refused: 2"))
    assert [letter.message_id for letter in found.letters] == ["id-2"]


async def test_the_bodies_of_letters_are_bounded_in_memory(memory_kit, monkeypatch):  # noqa: F811
    monkeypatch.setattr(memory, "MAX_DEAD_BYTES", 25)
    for number in range(5):
        memory_kit.broker.dead_letter(DeadLetter("core.default", "k", str(number), "r", bytes(10)))
    assert [letter.message_id for letter in memory_kit.broker.dead_letters] == ["3", "4"]


@pytest.mark.xdist_group("broker")
async def test_the_body_of_a_long_letter_is_left_on_the_wire_by_whoever_lists_it(rabbit_kit):  # noqa: F811
    system = await System(rabbit_kit).start()
    try:
        await rabbit_kit.put_raw(CORE, "Heartbeat", b"\xc1" + bytes(1_000_000))
        (letter,) = await system.letters(1)
        assert (letter.size, len(letter.body)) == (1_000_001, MAX_SHOWN_BYTES)
    finally:
        await system.close()


@pytest.mark.xdist_group("broker")
async def test_nobody_leaves_a_letter_in_the_name_of_another(rabbit_kit):  # noqa: F811
    system = await System(rabbit_kit).start()
    try:
        await system.dead_letter(1)
        async with system.bus.take_letters("core", Wanted()) as held:
            letter = held[0]
            await letter.drop()
        await system.bus._publisher.leave(copied(letter, user_id=None), "core")
        await system.letters(1)
        (refused,) = (await system.replay("id-1")).refused
        assert refused.reason == "it was put aside by nobody, and not by guest"
        with pytest.raises(Exception, match="user_id"):  # the broker closes the channel
            await system.bus._publisher.leave(copied(letter, user_id="other"), "core")
        assert system.handled == []
    finally:
        await system.close()
