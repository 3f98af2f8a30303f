"""Long lists of the API while scheduling goes on: four services, a driver and clients, a broker.

    make bench-api
    make bench-api ARGS="--nodes 1000 --applications 2000 --allocations 10000"

A cluster of 5,000 nodes and a queue of 10,000 applications is filled with pods. Then more pods are
placed, so many a second, at first with nobody asking, then with four clients who ask by turns for
the list of nodes and for that of the queue's applications, each once in ``--pause`` seconds. It is
printed how long an answer takes to its last byte, and the core's CPU for a pod and the time from
the submission of a pod to the news of its place in both parts: compare the ratios within one run.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
import uuid
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import aiohttp

from tests.benchmarks.bus import Driver, Services, as_bytes, paced, raw, sweep
from tests.broker import broker

CLIENTS = 4
PATHS = {
    "nodes": "/ws/v1/partition/default/nodes",
    "applications": "/ws/v1/partition/default/queue/root.default/applications",
}
LEAST_PARTS = 100


async def _ask(url: str, pause: float, seconds: float) -> dict[str, list[tuple[float, int]]]:
    """Ask for each list by turns; return how long every answer took, and its bytes."""
    took: dict[str, list[tuple[float, int]]] = {name: [] for name in PATHS}
    headers = {"Accept-Encoding": "identity"}
    end, is_first = time.perf_counter() + seconds, True
    async with aiohttp.ClientSession(url, headers=headers) as session:
        while is_first or time.perf_counter() < end:
            is_first = False
            for name, path in PATHS.items():
                started, size = time.perf_counter(), 0
                async with session.get(path) as response:
                    async for part in response.content.iter_any():
                        size += len(part)
                took[name].append((time.perf_counter() - started, size))
                await asyncio.sleep(max(0.0, pause - (time.perf_counter() - started)))
    return took


def client(url: str, pause: float, seconds: float, results: "Queue[Any]") -> None:
    """Be one client, in a process of its own."""
    results.put(asyncio.run(_ask(url, pause, seconds)))


async def part(driver: Driver, services: Services, options: Any) -> dict[str, float]:
    """Place pods at a steady rate; return what each cost, and how long it waited."""
    driver.latencies.clear()
    before = services.cpu()
    started = time.perf_counter()
    await paced(driver, options.seconds, options.rate, 10)
    spent = {name: value - before[name] for name, value in services.cpu().items()}
    pods = len(driver.latencies)
    cuts = statistics.quantiles(driver.latencies, n=100)
    return {
        "core CPU µs a pod": spent["core"] / pods * 1e6,
        "api CPU µs a pod": spent["api"] / pods * 1e6,
        "pods/s": pods / (time.perf_counter() - started),
        "p50 ms to a place": cuts[49] * 1e3,
        "p99 ms to a place": cuts[98] * 1e3,
    }


async def measure(services: Services, url: str, prefix: str, options: Any) -> dict[str, Any]:
    """Fill the cluster, and return the figures of both parts and of the clients."""
    driver = Driver(url, prefix, options.applications)
    await driver.start()
    each = max(1, options.allocations // options.applications)
    for at in range(0, options.applications, 500):
        await driver.submit(each, min(500, options.applications - at))
        await driver.settle(2_000)
    await driver.settle()
    await _ask(services.url, 0.0, 0.0)  # each list was asked for once
    alone = await part(driver, services, options)
    results: Queue[Any] = multiprocessing.get_context("spawn").Queue()
    clients = [
        multiprocessing.get_context("spawn").Process(
            target=client, args=(services.url, options.pause, options.seconds, results)
        )
        for _ in range(CLIENTS)
    ]
    for process in clients:
        process.start()
    beside = await part(driver, services, options)
    told = [await asyncio.to_thread(results.get) for _ in clients]
    for process in clients:
        process.join()
    await driver.stop()
    took = {name: [item for answers in told for item in answers[name]] for name in PATHS}
    return {"alone": alone, "beside": beside, "took": took}


def report(figures: dict[str, Any]) -> None:
    print(f"{'LIST':<34}{'ANSWERS':>9}{'MB':>9}{'P50 MS':>9}{'P99 MS':>9}")
    for name, answers in figures["took"].items():
        times = sorted(seconds for seconds, _ in answers)
        cuts = statistics.quantiles(times, n=LEAST_PARTS, method="inclusive")
        size = max(size for _, size in answers) / 1e6
        print(f"{name:<34}{len(times):>9}{size:>9.1f}{cuts[49] * 1e3:>9.0f}{cuts[98] * 1e3:>9.0f}")
    print(f"{'SCHEDULING':<34}{'ALONE':>9}{'BESIDE':>9}{'RATIO':>9}")
    for name, alone in figures["alone"].items():
        beside = figures["beside"][name]
        print(f"{name:<34}{alone:>9.0f}{beside:>9.0f}{beside / alone:>9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--applications", type=int, default=10_000)
    parser.add_argument("--allocations", type=int, default=50_000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pause", type=float, default=1.0)
    options = parser.parse_args()
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    more = {
        "MUSTER_SIMULATED_NODES": str(options.nodes),
        "MUSTER_SIMULATED_NODE_VCORE_MILLI": "64000",
        "MUSTER_POD_RUN_SECONDS": "0",
        "MUSTER_RELEASE_DELAY_MS": "0",
    }
    with broker() as url, tempfile.TemporaryDirectory() as folder:
        services = Services(url, Path(folder), prefix, **more)
        services.environment.pop("MUSTER_STATE_DIR")
        try:
            services.start_all()
            with as_bytes(raw):
                figures = asyncio.run(measure(services, url, prefix, options))
        finally:
            services.stop()
        asyncio.run(sweep(url, prefix))
    report(figures)


if __name__ == "__main__":
    main()
