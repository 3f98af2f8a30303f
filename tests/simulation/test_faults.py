"""One seed, one thread, every fault: the whole system on a bus that loses confirms and repeats
messages, while services crash and start again. A seed that fails is kept in SEEDS.
"""

import os
import random
from pathlib import Path

import pytest

from services.cli.launcher import SERVICES
from services.cli.scenario.runner import ScenarioRunner
from services.cli.scenario.schema import Scenario
from services.core.scheduler.invariants import over_capacity, violations
from shared.bus.errors import BusUnavailableError
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.commands import ChangeNodes, NodeSpec, PodSpec, SubmitPods, TaskGroupSpec
from shared.model.units import milliseconds, seconds

SEEDS = [*range(int(os.environ.get("FAULT_SEEDS", "12"))), 291]  # make soak runs many more
ONE = {"vcore": 1000, "pods": 1}


class FaultyBus(MemoryBus):
    """Publishes twice at times, and at times loses the confirm of what it has published."""

    def __init__(self, broker, rng):
        super().__init__(broker)
        self.rng = rng
        self.is_on = True

    async def publish(self, envelopes):
        dice = self.rng.random() if self.is_on else 1.0
        if dice < 0.04:
            await super().publish(envelopes[: self.rng.randrange(len(envelopes) + 1)])
            raise BusUnavailableError("the confirm is lost")
        await super().publish(envelopes)
        if dice > 0.9 and self.is_on:
            await super().publish(envelopes)


@pytest.mark.parametrize("seed", SEEDS)
async def test_gangs_finish_on_a_faulty_bus_while_services_crash(seed, monkeypatch):
    monkeypatch.setattr("shared.runtime.host._RETRY_FIRST_SECONDS", 0.0)
    monkeypatch.setattr("shared.runtime.host._RETRY_LONGEST_SECONDS", 0.0)
    rng = random.Random(seed)
    broker = MemoryBroker()
    runner = ScenarioRunner(
        Scenario.model_validate({"name": "faults", "steps": [{"advance": "1s"}]}),
        "", Path("seed"), lambda: FaultyBus(broker, rng),
    )  # fmt: skip
    runner.traffic.is_quiet = lambda: quiet(broker, runner)
    cluster = runner.cluster
    cluster.shim.confirm_delay_ns = milliseconds(700)
    await cluster.start()
    try:
        await runner.settle()
        nodes = tuple(NodeSpec(f"n{n}", "add", {"vcore": 4000, "pods": 9}) for n in range(4))
        await cluster.ask(ChangeNodes(nodes))
        for name, members in (("one", 6), ("two", 9), ("three", 3)):
            group = TaskGroupSpec("tg", members, {"vcore": 1000})
            pods = [
                PodSpec(
                    f"{name}-{n}",
                    name,
                    ONE,
                    queue_name="root.default",
                    task_group_name="tg",
                    task_groups=(group,),
                    run_ns=seconds(rng.randrange(3, 9)),
                )
                for n in range(members)
            ]
            await cluster.ask(SubmitPods(tuple(pods)))
        for _ in range(60):
            await runner.advance(milliseconds(rng.randrange(100, 1500)))
            if rng.random() < 0.25:
                name = rng.choice(SERVICES)
                await cluster.crash(name)
                await cluster.start_service(name)
                await runner.settle()
            assert violations(cluster.core.partition) == []
            assert over_capacity(cluster.core.partition) == []
        await runner.advance(seconds(120))
        states = {pod.spec.name: str(pod.phase) for pod in cluster.shim_machine.world.all_pods()}
        assert states == {
            f"{name}-{n}": "Succeeded"
            for name, members in (("one", 6), ("two", 9), ("three", 3))
            for n in range(members)
        }
        assert cluster.core.partition.applications == {}
        assert all(not node.allocations for node in cluster.core.partition.nodes.nodes.values())
    finally:
        await cluster.stop()


def quiet(broker, runner):
    """Nothing waits in an inbox and nobody holds anything, counted at the broker itself."""
    return all(
        not inbox.waiting and not any(reader._held for reader in inbox.readers)
        for inbox in broker.inboxes.values()
    )
