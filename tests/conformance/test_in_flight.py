"""Messages that cross each other, in memory and on RabbitMQ: two configurations, a delete and an
accept. All four services; what is sent at once is sent without waiting for an answer."""

import asyncio
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.factory import bus_factory
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.commands import (
    DeleteApplication,
    DeletePods,
    PodName,
    PodSpec,
    SubmitPods,
    TaskGroupSpec,
)
from shared.messages.interface import UpdateConfiguration
from shared.runtime.clock import SystemClock
from tests.builders import config_of
from tests.patience import until

GOOD, BETTER = config_of("{name: a}"), config_of("{name: a}", "{name: b}")
ONE = {"vcore": 1_000, "pods": 1}
BAD = config_of("{name: 'no name'}")


@pytest.fixture(params=["memory", "rabbitmq"])
def make_bus(request):
    if request.param == "memory":
        broker = MemoryBroker()
        return lambda: MemoryBus(broker)
    url = request.getfixturevalue("broker_url")
    return bus_factory(url, prefix=f"flight-{uuid.uuid4().hex[:8]}", name="flight")


class CrashOnce:
    """A machine that crashes once it has saved, before anything that it answers is published."""

    def __init__(self, inner, armed):
        self.inner = inner
        self._armed = armed

    def flush(self, now_ns):
        out = self.inner.flush(now_ns)
        if self._armed and self.inner.world.answers.by_message:
            self._armed.clear()
            raise RuntimeError("crashed between save and publish")
        return out

    def __getattr__(self, name):
        return getattr(self.inner, name)


@asynccontextmanager
async def running(make_bus, wrap=lambda _, machine: machine, **options):
    node = {"vcore": 8_000, "pods": 50}
    shim = ShimOptions(nodes=2, node_capacity=node, default_run_ns=0, **options)
    cluster = LocalCluster(make_bus, SystemClock(), shim, wrap_machine=wrap)
    await cluster.start()
    try:
        await until(lambda: cluster.core.is_synced, "the first sync")
        await until(
            lambda: cluster.api.is_ready, "the API, which hears of nothing that ended before"
        )
        yield cluster
    finally:
        await cluster.stop()


def config_error(cluster):
    partition = cluster.api.partitions.default.model.partition
    return partition.config_error if partition is not None else "no partition yet"


async def restart(cluster, name):
    await cluster.crash(name)
    await cluster.start_service(name)
    await until(lambda: cluster.core.is_synced, "the sync after it")


@pytest.mark.parametrize("order", [(BETTER, BAD), (BAD, BETTER)], ids=["good-bad", "bad-good"])
async def test_of_two_configurations_in_flight_the_good_one_holds_after_every_restart(
    make_bus, order, tmp_path
):
    async with running(make_bus, config=GOOD, state_dir=tmp_path) as cluster:
        answers = await asyncio.gather(*(cluster.ask(UpdateConfiguration(text)) for text in order))
        assert {text: answer.done for text, answer in zip(order, answers, strict=True)} == {
            BETTER: True,
            BAD: False,
        }
        for name in ("core", "shim_adapter", "core"):
            await restart(cluster, name)
            await until(lambda: "root.b" in cluster.core.partition.queues, f"root.b, {name} anew")
        assert cluster.core.partition.config_error == ""


async def test_a_stored_configuration_that_is_bad_falls_back_and_is_said_to_be(make_bus, tmp_path):
    async with running(make_bus, config=GOOD, state_dir=tmp_path) as cluster:
        assert (await cluster.ask(UpdateConfiguration(BETTER))).done
        world = cluster.shim_machine.world
        world.config, world.is_meta_changed = BAD, True  # as an older Muster stored it
        await restart(cluster, "core")
        assert "root.a" in cluster.core.partition.queues
        await until(lambda: "last good configuration" in config_error(cluster), "its error")
        assert (await cluster.ask(UpdateConfiguration(BETTER))).done
        await restart(cluster, "core")
        await until(lambda: config_error(cluster) == "", "no error any more")
        assert "root.b" in cluster.core.partition.queues


@pytest.mark.parametrize(
    "command",
    [SubmitPods((PodSpec("p", "app", ONE, queue_name="root.a"),)), UpdateConfiguration(BETTER)],
    ids=lambda command: type(command).__name__,
)
async def test_a_crash_between_save_and_publish_answers_what_was_done(make_bus, command, tmp_path):
    armed = {}

    def wrap(name, machine):
        return CrashOnce(machine, armed) if name == "shim_adapter" else machine

    async with running(make_bus, wrap, config=GOOD, state_dir=tmp_path) as cluster:
        armed["yes"] = True
        answer = await cluster.ask(command)
        assert (answer.done, answer.message, armed) == (True, "", {})


GANG = tuple(
    PodSpec(
        f"m{at}",
        "gang",
        ONE,
        queue_name="root.a",
        task_group_name="tg",
        task_groups=(TaskGroupSpec("tg", 2, {"vcore": 1_000}),),
    )
    for at in range(2)
)


def summary(cluster):
    view = cluster.api.partitions.default.model.application("gang")
    return view.summary if view is not None else None


@pytest.mark.parametrize("plain", [False, True], ids=["gang", "plain"])
@pytest.mark.parametrize("by", ["pods", "application"])
async def test_an_application_deleted_before_it_is_accepted_ends_everywhere(make_bus, by, plain):
    pods = tuple(replace(pod, task_groups=()) for pod in GANG) if plain else GANG
    names = tuple(PodName(pod.name) for pod in pods)
    delete = DeletePods(names) if by == "pods" else DeleteApplication("gang")
    async with running(make_bus, config=BETTER) as cluster:
        answers = await asyncio.gather(cluster.ask(SubmitPods(pods)), cluster.ask(delete))
        assert all(answer.done for answer in answers), answers
        world, core = cluster.shim_machine.world, cluster.core
        await until(lambda: summary(cluster) is not None, "it is known")
        await until(lambda: summary(cluster).state in ("Failed", "Completed"), "it has ended")
        assert "gang" not in core.partition.applications
        assert not world.applications["gang"].is_live
        assert not world.pods
        again = tuple(replace(pod, queue_name="root.b") for pod in pods)
        assert (await cluster.ask(SubmitPods(again))).done
        await until(lambda: summary(cluster).state == "Running", "the resubmission runs")
        await until(lambda: len(real_pods(world)) == 2, "both of its pods")
        assert summary(cluster).queue_name == "root.b"
        assert core.partition.queues["root.a"].allocated.get("vcore", 0) == 0
        assert len(world.pods) == 2


def real_pods(world):
    return [pod for pod in world.all_pods() if pod.node and not pod.spec.placeholder]


async def test_submitted_and_deleted_again_and_again_at_once_nothing_is_left(make_bus):
    """The last word is a submission: it runs, and nothing of those before it does."""
    async with running(make_bus, config=BETTER) as cluster:
        asked = []
        for at in range(6):
            pods = tuple(replace(p, queue_name=f"root.{'ab'[at % 2]}") for p in GANG)
            asked.append(cluster.ask(SubmitPods(pods)))
            if at < 5:
                asked.append(cluster.ask(DeletePods(tuple(PodName(pod.name) for pod in pods))))
        assert all(answer.done for answer in await asyncio.gather(*asked))
        world, core = cluster.shim_machine.world, cluster.core
        await until(lambda: len(real_pods(world)) == 2, "its pods run")
        await until(lambda: len(world.pods) == 2, "and nothing else")
        assert summary(cluster).queue_name == "root.b"
        assert list(core.partition.applications) == ["gang"]
        used = {
            path: queue.allocated.get("vcore", 0) for path, queue in core.partition.queues.items()
        }
        assert used["root.a"] == 0
        assert used["root.b"] == 2_000
