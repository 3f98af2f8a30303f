"""A gang of 1,000 members on 500 simulated nodes, from submit to all real pods running.

    make bench                              both buses
    make bench ARGS="--members 2000 --nodes 1000 --bus memory"

Prints asks/s, allocations/s, the p50 and p99 of ask-to-decision (from the moment an ask is
published to the moment its decision is heard by the shim adapter), and how many messages of each
kind it took. Figures are of this machine at this moment: compare ratios within one run.
"""

import argparse
import asyncio
import gc
import statistics
import time
import uuid
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.base import Bus
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus
from shared.bus.tracked import TrackedBus, Traffic
from shared.messages.commands import PodSpec, SubmitPods, TaskGroupSpec
from shared.messages.envelope import CORE
from shared.messages.interface import UpdateRequest, UpdateResponse
from shared.runtime.clock import SystemClock
from shared.runtime.host import HostOptions
from tests.benchmarks.bus import sweep
from tests.broker import broker
from tools.invariants import over_capacity, violations

RESOURCE = {"vcore": 1000, "memory": 2**30, "pods": 1}
NODE = {"vcore": 16_000, "memory": 64 * 2**30, "pods": 110}


class Stopwatch:
    """When each ask was published and when its decision was heard."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        self.latencies: list[float] = []
        self.asks = 0

    def heard(self, key, now):
        asked = self.asked.pop(key, None)
        if asked is not None:
            self.latencies.append(now - asked)

    def wrap(self, name, machine):
        return Watched(machine, self) if name == "shim_adapter" else machine


class Watched:
    def __init__(self, inner, watch: Stopwatch) -> None:
        self.inner = inner
        self._watch = watch

    def handle(self, envelope, now_ns):
        message = envelope.message
        now = time.perf_counter()
        if isinstance(message, UpdateResponse):
            for item in message.new_allocations:
                self._watch.heard(item.allocation_key, now)
        out = self.inner.handle(envelope, now_ns)
        for item in out:
            if item.to == CORE and isinstance(item.message, UpdateRequest):
                for ask in item.message.asks:
                    self._watch.asked[ask.allocation_key] = now
                    self._watch.asks += 1
        return out

    def __getattr__(self, name):
        return getattr(self.inner, name)


async def run(make_bus: Callable[[], Bus], members: int, nodes: int) -> dict:
    """Run one gang; return the figures."""
    traffic, watch = Traffic(), Stopwatch()
    cluster = LocalCluster(
        lambda: TrackedBus(make_bus(), traffic),
        SystemClock(),
        ShimOptions(nodes=nodes, node_capacity=NODE, default_run_ns=0),
        HostOptions(),
        watch.wrap,
    )
    await cluster.start()
    try:
        async with asyncio.timeout(300):
            while not cluster.api.is_ready:
                await asyncio.sleep(0.01)
        group = TaskGroupSpec("workers", members, {"vcore": 1000, "memory": 2**30})
        pods = tuple(
            PodSpec(
                f"w-{n}",
                "gang",
                RESOURCE,
                queue_name="root.default",
                task_group_name="workers",
                task_groups=(group,),
            )
            for n in range(members)
        )
        before = dict(traffic.published)
        gc.collect()
        start = time.perf_counter()
        await cluster.ask(SubmitPods(pods))
        world = cluster.shim_machine.world
        async with asyncio.timeout(300):
            while (
                sum(p.phase == "Running" and not p.spec.placeholder for p in world.all_pods())
                < members
            ):
                await asyncio.sleep(0.005)
        total = time.perf_counter() - start
        await asyncio.sleep(0.3)
        assert violations(cluster.core.partition) == []
        assert over_capacity(cluster.core.partition) == []
    finally:
        await cluster.stop()
    kinds = {
        kind: count - before.get(kind, 0)
        for kind, count in traffic.published.items()
        if kind != "Heartbeat"
    }
    cuts = statistics.quantiles(watch.latencies, n=100)
    return {
        "seconds": total,
        "asks/s": watch.asks / total,
        "allocations/s": 2 * members / total,
        "p50 ms": 1000 * cuts[49],
        "p99 ms": 1000 * cuts[98],
        "messages": sum(kinds.values()),
        "kinds": {kind: count for kind, count in sorted(kinds.items()) if count},
    }


def report(console: Console, rows: dict[str, dict]) -> None:
    table = Table(box=None, header_style="bold")
    table.add_column("BUS")
    for name in ("seconds", "asks/s", "allocations/s", "p50 ms", "p99 ms", "messages"):
        table.add_column(name, justify="right")
    for bus, figures in rows.items():
        numbers = [
            f"{figures[name]:,.1f}" for name in ("asks/s", "allocations/s", "p50 ms", "p99 ms")
        ]
        table.add_row(bus, f"{figures['seconds']:.2f}", *numbers, str(figures["messages"]))
    console.print(table)
    for bus, figures in rows.items():
        console.print(
            f"{bus}: " + ", ".join(f"{kind} {count}" for kind, count in figures["kinds"].items())
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--bus", choices=("memory", "rabbitmq", "both"), default="both")
    options = parser.parse_args()
    console = Console()
    console.print(
        f"a gang of {options.members} members on {options.nodes} nodes, submit to all real pods running"
    )
    rows: dict[str, dict] = {}
    if options.bus in ("memory", "both"):
        inside = MemoryBroker()
        rows["memory"] = asyncio.run(run(lambda: MemoryBus(inside), options.members, options.nodes))
    if options.bus in ("rabbitmq", "both"):
        prefix = f"bench-{uuid.uuid4().hex[:8]}"
        with broker() as url:
            rows["rabbitmq"] = asyncio.run(
                run(lambda: RabbitBus(url, prefix=prefix), options.members, options.nodes)
            )
            asyncio.run(sweep(url, prefix))
    report(console, rows)


if __name__ == "__main__":
    main()
