"""Two services whose inboxes are full, and who both publish to the other."""

import asyncio

import pytest
from tenacity import stop_after_delay

from shared.bus import memory, rabbitmq, topology
from shared.bus.errors import InboxFullError
from shared.bus.publisher import Publisher
from shared.messages.envelope import CORE, SHIM_ADAPTER, Envelope, Outgoing
from shared.messages.protocol import ContinueCycle, TimerSyncRequest
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions
from tests.integration.test_bus import kit, memory_kit, rabbit_kit  # noqa: F401 - fixtures
from tests.patience import until

MOST, BATCH, ANSWERS = 20, 5, 4


class Talks:
    """Answers each message that came from outside with ANSWERS to the other, and hears those."""

    def __init__(self, other, *, recovers=False):
        self.other, self.recovers = other, recovers
        self.asked, self.heard = [], []

    def handle(self, envelope, now_ns):
        match envelope.message:
            case ContinueCycle(number):
                self.asked.append(number)
                said = range(number * ANSWERS, (number + 1) * ANSWERS)
                return [Outgoing(self.other, TimerSyncRequest(str(at))) for at in said]
            case TimerSyncRequest(number):
                self.heard.append(int(number))
        return []


class Side:
    """A host on a bus of its own, the machines that it has had, and how often it was refused."""

    def __init__(self, inbox, other, bus, *, recovers):
        self.machines, self.refused = [], 0
        publish = bus.publish

        async def counted(envelopes):
            try:
                await publish(envelopes)
            except InboxFullError:
                self.refused += 1
                raise

        def make():
            self.machines.append(Talks(other, recovers=recovers))
            return self.machines[-1]

        bus.publish = counted
        options = HostOptions(heartbeat_ns=0, is_tapped=False, max_batch=BATCH)
        self.host = Host(inbox, make, bus, SystemClock(), instance="h", options=options)

    @property
    def heard(self):
        return [number for machine in self.machines for number in machine.heard]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Let inboxes be small, and publishers impatient."""
    for module in (memory, topology):
        monkeypatch.setattr(module, "MAX_INBOX_MESSAGES", MOST)
    monkeypatch.setattr(rabbitmq, "PREFETCH", BATCH)
    monkeypatch.setattr(memory, "REFUSED_SECONDS", 0.1)
    monkeypatch.setattr(Publisher._publish_one.retry, "stop", stop_after_delay(0.1))


async def sides(kit, *, recovers):  # noqa: F811
    """Return a core and a shim adapter that run, each with an inbox that is full."""
    core = Side(CORE, SHIM_ADAPTER, await kit.bus(), recovers=recovers)
    shim = Side(SHIM_ADAPTER, CORE, await kit.bus(), recovers=False)
    outside = await kit.bus()
    for inbox in (CORE, SHIM_ADAPTER):
        await outside.publish(
            [
                Envelope(f"{inbox.service}-{at}", "ContinueCycle", ContinueCycle(at), inbox, "test")
                for at in range(MOST)
            ]
        )
        assert (await outside.fill(inbox)).is_full
    tasks = [asyncio.create_task(side.host.run()) for side in (core, shim)]
    return core, shim, tasks


async def test_two_that_cannot_start_over_wait_for_each_other(kit):  # noqa: F811
    core, shim, tasks = await sides(kit, recovers=False)
    await until(lambda: min(core.refused, shim.refused) > 2, "both are refused again and again")
    assert core.heard == shim.heard == []
    for side in (core, shim):
        assert len(side.machines) == 1
        assert len(side.machines[0].asked) < MOST
    for task in tasks:
        task.cancel()


async def test_one_that_recovers_starts_over_and_the_other_loses_nothing(kit):  # noqa: F811
    core, shim, tasks = await sides(kit, recovers=True)
    await until(lambda: core.heard[-1:] == [MOST * ANSWERS - 1], "the last answer")
    (machine,) = shim.machines
    assert machine.asked == list(range(MOST))  # everything that it was asked, in order
    assert len(core.machines) > 1
    for heard in (core.heard, shim.heard):
        assert heard == sorted(set(heard))
    for task in tasks:
        task.cancel()
