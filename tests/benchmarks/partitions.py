"""What partitions bring and what they cost: ``make bench-partitions``.

    make bench-partitions                              # both parts
    make bench-partitions ARGS="--asks 5000"           # fewer asks a partition

Decisions: 1, 2 and 4 partitions, each with a scheduler, nodes and asks of its own, in as many
processes, all of which begin together. With fewer cores than processes these share them: the CPU a
decision says what one costs, the decisions a second of wall time what this machine can do at once.

The broker: one process of each service with 1, 2 and 4 partitions and nothing to do. Everything
that is published is counted over some seconds, the places at inboxes are counted as they stand.
"""

import argparse
import asyncio
import os
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.rabbitmq import RabbitBus
from shared.bus.tracked import TrackedBus, Traffic
from shared.messages.interface import AllocationAsk
from shared.runtime.clock import SystemClock
from shared.runtime.host import HostOptions
from tests.benchmarks.core import ONE, Driver, batches, config_of
from tests.broker import broker
from tests.patience import until

COUNTS = (1, 2, 4)


def schedule(number: int, asks: int, nodes: int, start: float) -> tuple[int, float, float, float]:
    """Schedule one partition; return its decisions, CPU seconds, and when it began and ended."""
    driver = Driver(config_of(1))
    driver.nodes(nodes)
    driver.applications([(f"app-{number}", "root.team.leaf0")])
    time.sleep(max(0.0, start - time.time()))
    began, driver.cpu = time.time(), 0.0
    for batch in batches([f"{number}/{at}" for at in range(asks)]):
        driver.update(asks=tuple(AllocationAsk(key, f"app-{number}", ONE) for key in batch))
    return len(driver.allocated), driver.cpu, began, time.time()


def decisions(asks: int, nodes: int) -> Table:
    """Return the table of decisions a second."""
    table = Table(title=f"{asks} asks and {nodes} nodes a partition, {os.cpu_count()} cores")
    for name in ("partitions", "decisions", "CPU s", "µs CPU a decision", "decisions/s", "ratio"):
        table.add_column(name, justify="right")
    first = 0.0
    for count in COUNTS:
        with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            start = time.time() + 4.0 + 2.0 * count
            futures = [pool.submit(schedule, at, asks, nodes, start) for at in range(count)]
            results = [future.result() for future in futures]
        made = sum(result[0] for result in results)
        assert made == asks * count, f"{made} of {asks * count} asks were placed"
        cpu = sum(result[1] for result in results)
        wall = max(result[3] for result in results) - min(result[2] for result in results)
        rate = made / wall
        first = first or rate
        table.add_row(
            str(count), str(made), f"{cpu:.2f}", f"{cpu / made * 1e6:.1f}", f"{rate:.0f}",
            f"{rate / first:.2f}",
        )  # fmt: skip
    return table


async def idle(url: str, count: int, seconds: float) -> tuple[int, int, dict[str, float]]:
    """Return the durable inboxes, the hosts and the messages a second of each kind."""
    names = ["default", *(f"p{at}" for at in range(1, count))]
    config = "partitions:\n" + "".join(
        f"- {{name: {name}, queues: [{{name: root, submitacl: '*'}}]}}\n" for name in names
    )
    traffic, prefix = Traffic(), f"bench-{uuid.uuid4().hex[:8]}"
    cluster = LocalCluster(
        lambda: TrackedBus(RabbitBus(url, prefix=prefix), traffic), SystemClock(),
        ShimOptions(config=config), HostOptions(),
    )  # fmt: skip
    await cluster.start()
    try:
        await until(
            lambda: (
                len(cluster.cores) == count
                and all(core.is_synced for core in cluster.cores.values())
            ),
            "every partition is scheduled",
        )
        await asyncio.sleep(3)
        traffic.published.clear()
        await asyncio.sleep(seconds)
        told = {kind: number / seconds for kind, number in traffic.published.items()}
        inboxes = [key for key, to in traffic.readers.items() if to.is_durable]
        hosts = sum(len(cluster.running[name].hosts) for name in ("core", "timers"))
    finally:
        await cluster.stop()
        bus = RabbitBus(url, prefix=prefix)
        await bus.delete_topology(names)
        await bus.close()
    return len(inboxes), hosts, told


def counted(url: str, seconds: float) -> Table:
    """Return the table of what stands and is said while there is nothing to do."""
    table = Table(title="on RabbitMQ, a process of each service, nothing to do")
    for name in ("partitions", "inboxes", "places of core and timers", "messages/s"):
        table.add_column(name, justify="right")
    table.add_column("of these")
    for count in COUNTS:
        inboxes, hosts, told = asyncio.run(idle(url, count, seconds))
        kinds = ", ".join(f"{kind} {rate:.1f}" for kind, rate in sorted(told.items()))
        total = f"{sum(told.values()):.1f}"
        table.add_row(str(count), str(inboxes), str(hosts), total, kinds)
    return table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asks", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    console = Console(width=120)
    console.print(decisions(options.asks, options.nodes))
    with broker() as url:
        console.print(counted(url, options.seconds))


if __name__ == "__main__":
    main()
