"""The kubernetes backend at scale, against the API server double in a process of its own.

``make bench-kubernetes``: lists 5,000 nodes and 50,000 pods, and says how long that took and what memory
it needed; then binds pods as fast as it can, in bursts, and says how many a second, sustained.
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
from tests.kubernetes.harness import Muster, until

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


async def run(nodes: int, pods: int, binds: int) -> None:
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
            await burst(muster, client, binds)
    finally:
        await client.close()
        process.kill()
        await process.wait()


async def burst(muster: Muster, client: ApiClient, binds: int) -> None:
    """Have pods made in the double, and see how fast they are bound."""
    muster.count_binds()
    body = {"count": binds, "queue": "root.a"}
    making = asyncio.create_task(client.request("POST", "/double/submit", body))
    await until(lambda: muster.bound > 0, "the first bind", 60)
    first = time.perf_counter()
    series: list[int] = []
    while muster.bound < binds and time.perf_counter() - first < PATIENCE_SECONDS:
        before, since = muster.bound, time.perf_counter()
        await asyncio.sleep(1)
        series.append(round((muster.bound - before) / (time.perf_counter() - since)))
    took = time.perf_counter() - first
    await making
    print(f"{muster.bound} pods bound in {took:.1f} s: {muster.bound / took:.0f} a second")
    print(f"second by second: {' '.join(map(str, series))}")
    print(f"memory {resident_mib()} MiB, {len(muster.world.pods)} pods known")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--binds", type=int, default=20_000)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asyncio.run(run(arguments.nodes, arguments.pods, arguments.binds))


if __name__ == "__main__":
    main()
