"""The simulator's broker refuses what the real one does."""

import asyncio

import pytest

from shared.bus.errors import BusUnavailableError
from shared.messages.envelope import CORE, Envelope
from shared.messages.protocol import Heartbeat
from tools.simulate.bus import SimulatedBroker, SimulatedBus
from tools.simulate.faults import Armed
from tools.simulate.loop import VirtualLoop


class Alive:
    """An instance that nothing happens to."""

    service = "core"

    async def stand_still(self):
        pass

    async def die(self, down_ns):
        raise AssertionError(down_ns)


def beat(name):
    return Envelope(name, "Heartbeat", Heartbeat(name), CORE, "t")


def test_every_message_that_waits_for_its_confirm_when_the_connection_is_lost_must_be_sent_again():
    """Seed 5131: who published beside it noticed the loss, and so nobody else did."""
    loop = VirtualLoop()
    broker = SimulatedBroker(0, loop, Armed([]))
    bus = SimulatedBus(broker, Alive())
    broker.refusing[CORE.routing_key] = loop.now_ns + 10**9

    async def both():
        tries = [asyncio.create_task(bus.publish([beat(name)])) for name in ("a", "b")]
        await asyncio.sleep(0.5)
        broker.stop()
        broker.is_up = True
        again = asyncio.create_task(bus.publish([beat("c")]))
        return await asyncio.gather(*tries, again, return_exceptions=True)

    assert [type(outcome) for outcome in loop.run_until_complete(both())] == (
        [BusUnavailableError] * 3
    )
    loop.run_until_complete(bus.publish([beat("d")]))
    loop.close()


@pytest.mark.parametrize("is_up", [True, False])
def test_a_message_is_confirmed_when_it_has_arrived_and_never_without_a_broker(is_up):
    loop = VirtualLoop()
    broker = SimulatedBroker(0, loop, Armed([]))
    broker.is_up = is_up
    publishing = SimulatedBus(broker, Alive()).publish([beat("a")])
    if is_up:
        loop.run_until_complete(publishing)
    else:
        with pytest.raises(BusUnavailableError):
            loop.run_until_complete(publishing)
    assert len(broker.inbox(CORE.routing_key).waiting) == is_up
    loop.close()
