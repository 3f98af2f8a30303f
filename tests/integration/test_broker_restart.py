"""The broker goes away and comes back: connections, topology, consumers and the work with them."""

import asyncio
import uuid
from contextlib import suppress

import pytest

from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.rabbitmq import RabbitBus
from shared.messages.commands import PodSpec, SubmitPods, TaskGroupSpec
from shared.model.units import milliseconds
from shared.runtime.clock import SystemClock
from tests.patience import until

MEMBERS = 12
RESOURCE = {"vcore": 1000, "pods": 1}


@pytest.mark.limit(300, "a broker starts three times")
async def test_a_gang_finishes_though_the_broker_restarts_in_the_middle(broker_to_break):
    """It is killed, and stopped in the middle of another gang."""
    broker = broker_to_break
    prefix = f"restart-{uuid.uuid4().hex[:6]}"
    cluster = LocalCluster(
        lambda: RabbitBus(broker.url, prefix=prefix),
        SystemClock(),
        ShimOptions(
            nodes=8,
            node_capacity={"vcore": 4000, "pods": 50},
            default_run_ns=0,
            confirm_delay_ns=milliseconds(1500),
        ),
    )
    await cluster.start()
    try:
        await until(lambda: cluster.api.partitions.default.is_ready, "the first snapshot")
        for gang, ends in (("killed", broker.kill), ("stopped", broker.stop)):
            await restarts_in_the_middle(cluster, broker, gang, ends)
    finally:
        await cluster.stop()


async def restarts_in_the_middle(cluster, broker, gang, ends):
    group = TaskGroupSpec("tg", MEMBERS, {"vcore": 1000})
    pods = tuple(
        PodSpec(
            f"{gang}-{n}",
            gang,
            RESOURCE,
            queue_name="root.default",
            task_group_name="tg",
            task_groups=(group,),
        )
        for n in range(MEMBERS)
    )
    await cluster.ask(SubmitPods(pods))
    await until(lambda: held(cluster, gang) == MEMBERS, f"{gang}: all placeholders held")
    await asyncio.sleep(1.2)  # a quorum queue younger than that does not survive kill -9
    await asyncio.to_thread(ends)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(broker.start)
    all_run = lambda: running(cluster, gang) == MEMBERS and held(cluster, gang) == 0  # noqa: E731
    await until(lambda: known(all_run), f"{gang}: the whole gang runs")
    world = cluster.shim_machine.world
    real = [pod for pod in of(cluster, gang) if not pod.spec.placeholder]
    assert len(real) == MEMBERS
    assert all(pod.phase == "Running" for pod in real)
    per_node = [sum(pod.node == name for pod in world.all_pods()) for name in world.nodes]
    assert max(per_node) <= 4


def of(cluster, gang):
    pods = cluster.shim_machine.world.all_pods()
    return [pod for pod in pods if pod.spec.application_id == gang]


def held(cluster, gang):
    return sum(pod.spec.placeholder and bool(pod.node) for pod in of(cluster, gang))


def running(cluster, gang):
    return sum(not pod.spec.placeholder and bool(pod.node) for pod in of(cluster, gang))


def known(holds):
    """Return whether something holds; what is not there while all is read anew does not."""
    with suppress(KeyError, AssertionError):
        return holds()
    return False
