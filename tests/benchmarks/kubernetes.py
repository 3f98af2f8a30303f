"""The kubernetes backend at scale, against the API server double in a process of its own.

With KUBECONFIG or KUBEBUILDER_ASSETS set only what a real server can tell: ``tests/benchmarks/binding.py``.

``make bench-kubernetes``: the shim adapter alone lists a tenth of 5,000 nodes and 50,000 pods, and all of
them, and hears that something happens to each pod: the CPU and memory of a pod, and how they grow. Then
all services list them and bind pods, first made at once, then at a rate: how many a second.
Numbers, never assertions: the machine decides them.
"""

import argparse
import asyncio
import gc
import resource
import sys
import time
from pathlib import Path

import aiohttp
import structlog

from services.shim_adapter.backends.kubernetes.access import Access
from services.shim_adapter.backends.kubernetes.client import ApiClient
from services.shim_adapter.backends.kubernetes.observed import PodSeen
from services.shim_adapter.backends.kubernetes.session import Session
from shared.runtime.service import spare_the_collector
from tests.benchmarks.binding import beside
from tests.kubernetes.harness import Muster
from tests.kubernetes.real import real_access
from tests.patience import until

PATIENCE_SECONDS = 300
ROUNDS = 5  # beside a raw client, of which the median counts
AT_ONCE = 1_000  # pods that something happens to
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


async def tell(url: str, what: str, **how: int) -> None:
    """Have the double do something, however long that takes."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(raise_for_status=True, timeout=timeout) as session:
        await (await session.post(f"{url}/double/{what}", json=how)).read()


async def alone(nodes: int, pods: int) -> tuple[float, float]:
    """Let a shim adapter list, as a standby does, and hear news; return the CPU µs a pod of each."""
    process, url = await double()
    client = ApiClient(Access(url))
    session = Session(client, instance="bench", is_warm=True)
    counted = count_calls(session)
    try:
        await tell(url, "load", nodes=nodes, pods_in_all=pods)
        gc.collect()
        memory, cpu = resident_mib(), time.process_time()
        running = asyncio.create_task(session.run(lambda: None))
        world = session.cluster.world
        await until(lambda: len(world.pods) == pods, "every pod", PATIENCE_SECONDS)
        listed = time.process_time() - cpu
        gc.collect()
        print(f"{pods} pods on {nodes} nodes, the shim adapter alone:", end=" ")
        print(f"listed in {listed:.1f} s of CPU and {resident_mib() - memory} MiB;", end=" ")
        counted[0], cpu = 0, time.process_time()
        for first in range(0, pods, AT_ONCE):
            await tell(url, "touch", first=first, count=AT_ONCE)
        await until(lambda: counted[0] >= pods, "the news of each", PATIENCE_SECONDS)
        heard = time.process_time() - cpu
        print(f"news of {pods} in {heard:.1f} s of CPU: {pods / heard:.0f} a second")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    finally:
        await client.close()
        process.kill()
        await process.wait()
    return listed / pods * 1e6, heard / pods * 1e6


def count_calls(session: Session) -> list[int]:
    """Count what the session hears of pods, once it has been taken in."""
    counted, handlers = [0], session.cluster._handlers
    take_in = handlers[PodSeen]

    def counting(seen, now_ns):
        counted[0] += 1
        return take_in(seen, now_ns)

    handlers[PodSeen] = counting
    return counted


async def growth(nodes: int, pods: int) -> None:
    """Print what a pod costs among ten times as many."""
    small = await alone(nodes // 10, pods // 10)
    large = await alone(nodes, pods)
    for what, few, many in zip(("listed", "news"), small, large, strict=True):
        print(f"CPU a pod, {what}: {few:.0f} µs, of ten times as many {many:.0f} µs", end="")
        print(f" ({many / few:.2f} times)")


async def run(nodes: int, pods: int, binds: int, rate: int) -> None:
    """Run it, and print a line a figure."""
    process, url = await double()
    client = ApiClient(Access(url), "bench")
    try:
        body = {"metadata": {"name": "yunikorn-configs"}, "data": {"queues.yaml": CONFIG}}
        await client.request("POST", "/api/v1/namespaces/default/configmaps", body)
        await tell(url, "load", nodes=nodes, pods_in_all=pods)
        before, started, cpu = resident_mib(), time.perf_counter(), time.process_time()
        async with Muster(Access(url)) as muster:
            await until(muster.is_ready, "the first sync", 300)
            listed = time.perf_counter() - started
            gc.collect()
            print(f"listed {nodes} nodes and {pods} pods in {listed:.1f} s,", end=" ")
            print(f"{time.process_time() - cpu:.1f} s of CPU, {resident_mib() - before} MiB")
            await until(
                lambda: sum(len(n.foreign) for n in muster.model.nodes.values()) == pods, "all", 300
            )
            told = time.perf_counter() - started
            print(f"known to the core and the API after {told:.1f} s,", end=" ")
            print(f"{time.process_time() - cpu:.1f} s of CPU")
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
    parser.add_argument("--beside", type=int, default=1_000, help="pods of a real API server")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    spare_the_collector()
    with real_access(is_asked=False) as access:
        if access is not None:
            asyncio.run(beside(access, arguments.beside, ROUNDS))
            return
    asyncio.run(growth(arguments.nodes, arguments.pods))
    asyncio.run(run(arguments.nodes, arguments.pods, arguments.binds, arguments.rate))


if __name__ == "__main__":
    main()
