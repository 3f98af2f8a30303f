"""RabbitBus, hosts and members against a scripted peer: whatever it does, nothing is lost.

Virtual time: a stall of 14 s takes no time of the machine's.
"""

import asyncio
import logging
import os
from dataclasses import replace
from unittest import mock

import pytest
import structlog

from shared.bus.errors import BusUnavailableError
from shared.bus.rabbitmq import RabbitBus
from shared.bus.subscription import RabbitSubscription
from shared.messages.envelope import CORE, Envelope
from shared.messages.protocol import TimerSyncRequest
from shared.runtime.own_messages import Injected
from shared.runtime.unread import Unread
from tests.amqp_peer.faults import CODES, SECONDS, Fault, drawn
from tests.amqp_peer.run import URL, on_a_peer, run

RUNS = int(os.environ.get("PEER_SEEDS", "10"))  # make soak runs a thousand
A_TEST = 5
FRAMES = int(os.environ.get("PEER_FRAMES", "4"))  # of those that open a session; make soak: all
FRAMES_OF_A_START = 240  # until all of a deployment read
FOUND = {
    2: "what was injected in the moment in which a place was lost was lost with it",
    15: "a member ended that took a place while another had found the connection lost",
    18: "a standby whose consumer the broker had cancelled stood in line no more, and never knew",
    87: "whoever wrote on a connection that its client gave up waited until their own limit",
    257: "a link that died while a bus of one address connected took all of its time to connect",
    941: "a reader that never got a message was found in two periods, not in one",
}


@pytest.fixture(autouse=True)
def _quiet():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, RUNS, A_TEST))
def test_whatever_the_peer_does_nothing_is_lost_and_all_is_back_in_time(first):
    for seed in range(first, first + A_TEST):
        outcome = run(seed)
        assert outcome.holds, str(outcome)


@pytest.mark.long
@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_has_found_stays_mended(seed):
    outcome = run(seed)
    assert outcome.holds, str(outcome)


async def _taken_for_good(injected):
    return await injected._queue.get()


async def _deaf_to_cancels(subscription):
    subscription._channel.close_callbacks.add(subscription.lose)
    for queue, arguments in subscription._queues:
        await queue.consume(subscription._on_message, arguments=arguments)


# Of 87 the shorter wait for a confirm is enough today, of 18 that a standby sees what nobody takes:
# who stands by while another reads has only what it hears of the cancel.
A_STANDBY_IS_CANCELLED = Fault(0, "cancelled", 14.0, on="ack", reader=1)
WITHOUT = {  # the run that finds it missing
    "seed 2": (2, lambda: mock.patch.object(Injected, "first", _taken_for_good)),
    "seed 941": (941, lambda: mock.patch.object(Unread, "saw", return_value=False)),
    "a standby is cancelled": (
        A_STANDBY_IS_CANCELLED,
        lambda: mock.patch.object(RabbitSubscription, "start", _deaf_to_cancels),
    ),
}


def _of(what):
    return run(faults=[replace(what)]) if isinstance(what, Fault) else run(what)


@pytest.mark.long
@pytest.mark.parametrize("name", WITHOUT)
def test_a_mend_that_is_taken_out_is_found_missing(name):
    what, without = WITHOUT[name]
    outcome = _of(what)
    assert outcome.struck
    assert outcome.holds, str(outcome)
    with without():
        assert not _of(what).holds


@pytest.mark.parametrize("kind", ["stall-link", "stall-broker"])
@pytest.mark.parametrize("part", range(4))
def test_a_stall_at_every_frame_of_a_session_loses_nothing(kind, part):
    step = max(1, FRAMES_OF_A_START // FRAMES)
    for at in range(part * step, FRAMES_OF_A_START, 4 * step):
        seconds = 9.0 + at * 5.0 / FRAMES_OF_A_START
        outcome = run(faults=[Fault(0, kind, 0.0, skip=at, seconds=seconds)])
        assert outcome.struck
        assert outcome.holds, str(outcome)


@pytest.mark.parametrize("kind", ["channel-closed", "connection-closed"])
@pytest.mark.parametrize("codes", [CODES[:8], CODES[8:]])
def test_channels_and_connections_that_the_peer_closes_with_any_code_come_back(kind, codes):
    faults = [
        Fault(at, kind, 2.0 + 3 * at, skip=at, code=code, is_after=at % 2 > 0)
        for at, code in enumerate(codes)
    ]
    outcome = run(faults=faults)
    assert [fault.code for _, _, fault in outcome.struck] == list(codes)
    assert outcome.holds, str(outcome)


def test_the_same_seed_is_the_same_run():
    one, two = run(3), run(3)
    assert (one.seconds, one.frames, one.worst, str(one)) == (
        two.seconds, two.frames, two.worst, str(two),
    )  # fmt: skip


def test_every_kind_of_fault_is_drawn():
    kinds = {fault.kind for seed in range(100) for fault in drawn(seed)}
    codes = {fault.code for seed in range(500) for fault in drawn(seed)}
    assert len(kinds) == 13
    assert kinds > SECONDS.keys()
    assert codes == {0, *CODES}


# --- an inbox is never deleted --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["slow-declare", "stall-link", "stall-broker"])
def test_a_declare_of_eleven_seconds_loses_nothing_of_what_waits(kind):
    numbers = [f"number/{number}" for number in range(5)]

    async def story(broker):
        first = RabbitBus(URL, prefix="m", name="first")
        for number in numbers:
            message = TimerSyncRequest(number)
            await first.publish(
                [Envelope(number, "TimerSyncRequest", message, CORE, "test", published_ns=1)]
            )
        inbox = broker.queues["m.core.default"]
        begun = broker.loop.time()
        script = broker.sessions[0].faults
        script.waiting.append(Fault(0, kind, 0.0, on="declare", seconds=11.0))
        second = RabbitBus(URL, prefix="m", name="second")
        with pytest.raises(BusUnavailableError):
            await second.connect()
        assert len(inbox.ready) == len(numbers)
        await asyncio.sleep(12)
        subscription = await second.subscribe(CORE)
        came = []
        while len(came) < len(numbers):
            came += [item.envelope.message_id for item in await subscription.receive(100)]
        assert broker.queues["m.core.default"] is inbox
        assert broker.loop.time() - begun > 11
        await first.close()
        await second.close()
        return came, broker.deleted

    assert on_a_peer(story) == (numbers, [])
