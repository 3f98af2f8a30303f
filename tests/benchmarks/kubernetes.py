"""The kubernetes backend at scale, against the API server double in a process of its own.

``make bench-kubernetes``: lists 5,000 nodes and 50,000 pods, and says how long that took and what memory
it needed; then binds pods, first made at once, then at a rate, and says how many a second.
Numbers, never assertions: the machine decides them.
"""

import argparse
import asyncio
import gc
import resource
import sys
import time
from pathlib import Path

import structlog

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import ApiClient
from tests.kubernetes.harness import Muster
from tests.patience import until

PATIENCE_SECONDS = 300
CONFIG = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
)


def resident_mib() -> int:
    """Return the memory of this process that is resident now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


async def double() -> tuple[asyncio.subprocess.Process, str]:
    """Start the double; return its process and URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kubernetes.double", "0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().strip()


async def run(nodes: int, pods: int, binds: int, rate: int) -> None:
    """Run it, and print a line a figure."""
    process, url = await double()
    client = ApiClient(Access(url))
    try:
        body = {"metadata": {"name": "yunikorn-configs"}, "data": {"queues.yaml": CONFIG}}
        await client.request("POST", "/api/v1/namespaces/default/configmaps", body)
        load = {"nodes": nodes, "pods_in_all": pods}
        await client.request("POST", "/double/load", load)
        before, started = resident_mib(), time.perf_counter()
        async with Muster(Access(url)) as muster:
            await until(muster.is_ready, "the first sync", 300)
            listed = time.perf_counter() - started
            gc.collect()
            print(f"listed {nodes} nodes and {pods} pods in {listed:.1f} s")
            await until(
                lambda: sum(len(n.foreign) for n in muster.model.nodes.values()) == pods, "all", 300
            )
            told = time.perf_counter() - started
            print(f"known to the core and the API after {told:.1f} s")
            print(f"memory of all four services: {before} MiB before, {resident_mib()} MiB after")
            await bind(muster, client, range(binds), 0)
            await bind(muster, client, range(binds, 2 * binds), rate)
    finally:
        await client.close()
        process.kill()
        await process.wait()


async def bind(muster: Muster, client: ApiClient, pods: range, rate: int) -> None:
    """Have pods made in the double, all at once or so many a second; see how fast they are bound."""
    muster.count_binds()
    making = asyncio.create_task(make(client, pods, rate))
    await until(lambda: muster.bound > 0, "the first bind", 60)
    first = time.perf_counter()
    series: list[int] = []
    while muster.bound < len(pods) and time.perf_counter() - first < PATIENCE_SECONDS:
        before, since = muster.bound, time.perf_counter()
        await asyncio.sleep(1)
        series.append(round((muster.bound - before) / (time.perf_counter() - since)))
    took = time.perf_counter() - first
    await making
    how = f"made at {rate} a second" if rate else "made at once"
    print(f"{muster.bound} pods, {how}, bound in {took:.1f} s: {muster.bound / took:.0f} a second")
    print(f"second by second: {' '.join(map(str, series))}")
    print(f"memory {resident_mib()} MiB, {len(muster.world.pods)} pods known")


async def make(client: ApiClient, pods: range, rate: int) -> None:
    """Have pods made, ten times a second where there is a rate."""
    batch = rate // 10 or len(pods)
    started = time.perf_counter()
    for at, first in enumerate(pods[::batch]):
        await asyncio.sleep(max(0, started + at / 10 - time.perf_counter()))
        body = {"count": min(batch, pods.stop - first), "queue": "root.a", "first": first}
        await client.request("POST", "/double/submit", body)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--binds", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=1_000, help="pods made a second")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asyncio.run(run(arguments.nodes, arguments.pods, arguments.binds, arguments.rate))


if __name__ == "__main__":
    main()
