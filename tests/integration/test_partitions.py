"""Two processes share two partitions, on the bus in this process and on RabbitMQ.

One each, also after one was killed and has come back; what is submitted meanwhile runs.
"""

import asyncio
import uuid
from contextlib import suppress

import pytest

from services.cli.launcher import LocalCluster
from services.core.service import make_machine as core_machine
from services.shim_adapter.records import NodeRecord
from services.shim_adapter.service import ShimOptions
from services.timers.service import make_machine as wheel
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus
from shared.messages.commands import PodSpec, SubmitApplication, SubmitPods
from shared.messages.envelope import API_ALL, Envelope, core_of
from shared.messages.protocol import Partitions
from shared.model.names import NODE_PARTITION
from shared.model.units import milliseconds
from shared.runtime.clock import SystemClock
from shared.runtime.host import HostOptions
from shared.runtime.members import Members
from tests.patience import until

PARTITIONS = ("default", "gpu", "a.b c")  # one is no word of an address
CONFIG = "partitions:\n" + "".join(
    f"- {{name: {name}, queues: [{{name: root, submitacl: '*', queues: [{{name: a}}]}}]}}\n"
    for name in PARTITIONS
)
OPTIONS = HostOptions(heartbeat_ns=milliseconds(200), is_tapped=False)
NODES = tuple(
    NodeRecord(f"n-{at}", {"vcore": 8000, "memory": 10**9, "pods": 50}, {NODE_PARTITION: name})
    for at, name in enumerate(PARTITIONS)
)


class Process:
    """One more process of a service that shares its partitions."""

    def __init__(self, service, make, bus, number):
        self.bus = bus
        self.members = Members(
            service,
            lambda partition: make(f"{service}-other-{number}", partition),
            bus,
            SystemClock(),
            instance=f"{service}-other-{number}",
            options=OPTIONS,
        )
        self.task = asyncio.create_task(self.members.run())

    async def kill(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self.bus.close()


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.broker)])
def make_bus(request):
    """Return what makes a connection to one bus."""
    if request.param == "memory":
        broker = MemoryBroker()
        return lambda: MemoryBus(broker)
    url = request.getfixturevalue("broker_url")
    prefix = f"partitions-{uuid.uuid4().hex[:8]}"
    return lambda: RabbitBus(url, prefix=prefix)


def shares(*processes):
    """Return how many partitions each is active for, if each partition has exactly one reader."""
    held = [process.active() for process in processes]
    is_whole = sorted(name for names in held for name in names) == sorted(PARTITIONS)
    return sorted(len(names) for names in held) if is_whole else []


async def test_the_partitions_are_shared_and_come_back_to_who_comes_back(make_bus):
    cluster = LocalCluster(
        make_bus, SystemClock(), ShimOptions(config=CONFIG, first_nodes=NODES, default_run_ns=0),
        OPTIONS,
    )  # fmt: skip
    await cluster.start()
    others = {}
    try:
        for service, make in (("core", core_machine), ("timers", wheel)):
            others[service] = Process(service, make, make_bus(), 1)
        cores = cluster.running["core"].runner, others["core"].members
        wheels = cluster.running["timers"].runner, others["timers"].members
        await until(lambda: shares(*cores) == [1, 2], "each core has its share")
        await until(lambda: shares(*wheels) == [1, 2], "each of the timers has its share")
        await submit(cluster, "first")
        await until(lambda: running(cluster, "first"), "each partition runs its own")
        await others["core"].kill()
        await submit(cluster, "second")
        await until(lambda: running(cluster, "second"), "the one that is left runs all")
        await until(lambda: shares(cores[0]) == [3], "the one that is left is active for all")
        others["core"] = Process("core", core_machine, make_bus(), 2)
        cores = cores[0], others["core"].members
        await until(lambda: shares(*cores) == [1, 2], "who has come back has its share again")
        await submit(cluster, "third")
        await until(lambda: running(cluster, "third"), "all is well")
    finally:
        for process in others.values():
            await process.kill()
        bus = make_bus()
        await cluster.stop()
        if isinstance(bus, RabbitBus):
            await bus.delete_topology(PARTITIONS)
            await bus.close()


@pytest.mark.broker
async def test_a_place_costs_one_channel_and_a_declared_inbox_none(broker_url):
    bus = RabbitBus(broker_url, prefix=f"partitions-{uuid.uuid4().hex[:8]}")
    await bus.connect()
    publishing, consuming = (item.transport.connection for item in bus._links.connections)
    before = len(publishing.channels)
    names = ("default", *(f"p{at}" for at in range(10)))
    told = Envelope("m", "Partitions", Partitions(names), API_ALL, "shim_adapter")
    await bus.publish([told])
    assert len(publishing.channels) == before
    places = [await bus.subscribe(core_of(name)) for name in names]
    assert len(consuming.channels) == len(names)
    for place in places:
        await place.close()
    await bus.delete_topology(names)
    await bus.close()


async def submit(cluster, name):
    """Submit an application of one pod into every partition."""
    for at, partition in enumerate(PARTITIONS):
        application = f"{name}-{at}"
        for message in (
            SubmitApplication(application, "root.a", partition=partition),
            SubmitPods((PodSpec(application, application, {"vcore": 100, "pods": 1}),)),
        ):
            answer = await cluster.ask(message)
            assert answer.done, answer.message


def running(cluster, name):
    """Return whether each partition's application has its pod on that partition's node."""
    machine = cluster.shim_machine
    pods = [machine.world.pod_named("default", f"{name}-{at}") for at in range(len(PARTITIONS))]
    return [pod.node for pod in pods if pod] == [node.name for node in NODES]
