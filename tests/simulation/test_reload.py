"""A thousand reloads while applications come and go: none is lost, and no invariant breaks.

One run drives the scheduler itself, the other all four services on the in-memory bus.
"""

import random

import pytest

from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.commands import DeleteApplication, PodSpec, SubmitPods
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.runtime.clock import SystemClock
from tests.builders import Core, config_of

RELOADS = 1_000
LEAVES = ("a", "b", "c")
USERS = (("alice", ()), ("bob", ("dev",)), ("carol", ("ops",)))


def random_config(seed: random.Random) -> str:
    """Return a tree with some of the leaves, each with its own limits, offsets and policies."""
    leaves = []
    for name in LEAVES:
        if seed.random() < 0.2 and name != "a":
            continue
        parts = [f"name: {name}"]
        if seed.random() < 0.5:
            parts.append("resources: {max: {vcore: %d}}" % seed.randint(4, 30))
        if seed.random() < 0.3:
            parts.append(f"maxapplications: {seed.randint(3, 30)}")
        if seed.random() < 0.3:
            limit = "{users: ['*'], maxresources: {vcore: %d}}" % seed.randint(2, 4)
            parts.append(f"limits: [{limit}, {{groups: [dev], maxapplications: 3}}]")
        properties = {
            "application.sort.policy": seed.choice(["fifo", "fair"]),
            "application.sort.priority": seed.choice(["enabled", "disabled"]),
            "priority.offset": str(seed.randint(-5, 5)),
            "priority.policy": seed.choice(["default", "fence"]),
        }
        parts.append(f"properties: {properties}")
        leaves.append("{" + ", ".join(parts) + "}")
    seed.shuffle(leaves)
    return config_of(*leaves)


@pytest.mark.long
def test_a_thousand_reloads_of_the_scheduler():
    seed = random.Random(7)
    core = Core(random_config(seed))
    nodes = tuple(
        NodeInfo(f"n{at}", NodeAction.CREATE, {"vcore": 8000, "pods": 50}) for at in range(6)
    )
    core.update(nodes=nodes)
    live: dict[str, None] = {}
    for number in range(RELOADS):
        core.now_ns += 100_000_000
        name = f"app-{number}"
        user, groups = seed.choice(USERS)
        request = AddApplicationRequest(
            name, f"root.{seed.choice(LEAVES)}", ugi=UserGroupInformation(user, groups)
        )
        asks = tuple(
            AllocationAsk(f"{name}-{at}", name, {"vcore": 1000, "pods": 1}, priority=at % 3)
            for at in range(seed.randint(1, 4))
        )
        core.update(new_applications=(request,), asks=asks)
        if name in core.partition.applications:
            live[name] = None
        core.send(UpdateConfiguration(random_config(seed)))
        assert core.partition.config_error == ""
        assert list(core.partition.applications) == list(live)
        if len(live) > 40:
            gone = seed.choice(list(live))
            del live[gone]
            core.update(remove_applications=(RemoveApplicationRequest(gone),))
        elif seed.random() < 0.5:
            app = core.partition.applications[seed.choice(list(live))]
            releases = tuple(
                AllocationRelease(app.id, key, TerminationType.STOPPED_BY_RM)
                for key in list(app.allocations)[:2]
            )
            core.update(releases=releases)
        if number % 20 == 0:
            core.check()
    core.check()
    placed = sum(len(app.allocations) for app in core.partition.applications.values())
    assert placed > 10


async def test_reloads_while_pods_run_lose_no_application():
    """All four services: every pod that was submitted runs in the end."""
    seed = random.Random(11)
    broker = MemoryBroker()
    text = config_of("{name: a}", "{name: b}", "{name: c}")
    options = ShimOptions(
        config=text, nodes=4, node_capacity={"vcore": 64_000, "pods": 100}, default_run_ns=0
    )
    cluster = LocalCluster(lambda: MemoryBus(broker), SystemClock(), options)
    await cluster.start()
    try:
        for number in range(60):
            pods = tuple(
                PodSpec(
                    f"p{number}-{at}",
                    f"app-{number}",
                    {"vcore": 100, "pods": 1},
                    queue_name="root.a",
                )
                for at in range(3)
            )
            await cluster.ask(SubmitPods(pods))
            answer = await cluster.ask(UpdateConfiguration(random_config(seed)))
            assert answer.done, answer.message
            if number % 3 == 0:
                await cluster.ask(DeleteApplication(f"app-{number}"))
        await cluster.ask(UpdateConfiguration(text))
        for _ in range(500):
            running = [pod for pod in cluster.shim_machine.world.all_pods() if pod.node]
            if len(running) == 40 * 3:
                break
            await cluster.ask(UpdateConfiguration(text))
        assert len(running) == 40 * 3
    finally:
        await cluster.stop()
