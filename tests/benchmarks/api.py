"""Long lists of the API while scheduling goes on: four services, a driver and clients, a broker.

    make bench-api
    make bench-api ARGS="--nodes 1000 --applications 2000 --allocations 10000 --seconds 20"

A cluster of 5,000 nodes and a queue of 10,000 applications is filled with pods. Then more pods are
placed, so many a second: with nobody asking; beside four clients who ask a **floor** by turns, at
once, each once in ``--pause`` seconds; and beside the same clients, who ask the API for the list of
nodes and for that of the queue's applications. The floor is a process that knows nothing and sends
the bytes of these two lists: what the clients and the kernel cost, who share the processors with
the services, costs there as well. It is printed how long an answer takes to its last byte, apart
from the first, for which all rows are written that have changed since nobody asked, and the
services' CPU for a pod and the time from the submission of a pod to the news of its place: compare
the ratios within one run.
"""

import argparse
import asyncio
import multiprocessing
import socketserver
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from shared.bus.rabbitmq import RabbitBus
from tests.benchmarks.bus import Driver, Services, as_bytes, paced, raw, sweep
from tests.broker import broker

CLIENTS = 4
PATHS = {
    "nodes": "/ws/v1/partition/default/nodes",
    "applications": "/ws/v1/partition/default/queue/root.default/applications",
}
LEAST_PARTS = 100
_SPAWN = multiprocessing.get_context("spawn")
_READ_BYTES = 1_048_576
Answers = dict[str, list[tuple[float, int]]]


# --- who asks -----------------------------------------------------------------------------------


def ask(port: int, pause: float, seconds: float) -> Answers:
    """Ask for each list by turns; return how long every answer took, and its bytes."""
    took: Answers = {name: [] for name in PATHS}
    buffer = bytearray(_READ_BYTES)
    end, is_first = time.perf_counter() + seconds, True
    connection = HTTPConnection("127.0.0.1", port)
    while is_first or time.perf_counter() < end:
        is_first = False
        for name, path in PATHS.items():
            started, size = time.perf_counter(), 0
            connection.request("GET", path, headers={"Accept-Encoding": "identity"})
            response = connection.getresponse()
            while read := response.readinto(buffer):
                size += read
            took[name].append((time.perf_counter() - started, size))
            time.sleep(max(0.0, pause - (time.perf_counter() - started)))
    connection.close()
    return took


def client(orders: Connection) -> None:
    """Be one client: ask as it is ordered, until the orders end."""
    while order := orders.recv():
        orders.send(ask(*order))


class Clients:
    """Processes that are there before anything is timed: their start is nobody's cost."""

    def __init__(self) -> None:
        pairs = [_SPAWN.Pipe() for _ in range(CLIENTS)]
        self._orders = [ours for ours, _ in pairs]
        self._processes = [_SPAWN.Process(target=client, args=(theirs,)) for _, theirs in pairs]
        for process in self._processes:
            process.start()

    def start(self, port: int, pause: float, seconds: float) -> None:
        for orders in self._orders:
            orders.send((port, pause, seconds))

    async def took(self) -> Answers:
        told = [await asyncio.to_thread(orders.recv) for orders in self._orders]
        return {name: [item for answers in told for item in answers[name]] for name in PATHS}

    def stop(self) -> None:
        for orders, process in zip(self._orders, self._processes, strict=True):
            orders.send(None)
            process.join()


# --- the floor ----------------------------------------------------------------------------------


class _Floor(socketserver.StreamRequestHandler):
    """Answers a request with the bytes that are kept for its path, and looks at nothing else."""

    bodies: ClassVar[dict[str, bytes]] = {}

    def handle(self) -> None:
        while line := self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            body = self.bodies[line.split()[1].decode()]
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.wfile.write(body)


def serve_floor(bodies: dict[str, bytes], ready: Connection) -> None:
    """Be the floor: a thread for each client."""
    _Floor.bodies = bodies
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Floor) as server:
        ready.send(server.server_address[1])
        server.serve_forever()


@contextmanager
def floor(port: int) -> Iterator[int]:
    """Run a floor that sends what the API says now; its port."""
    bodies: dict[str, bytes] = {}
    connection = HTTPConnection("127.0.0.1", port)
    for path in PATHS.values():
        connection.request("GET", path)
        bodies[path] = connection.getresponse().read()
    connection.close()
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=serve_floor, args=(bodies, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


# --- the parts ----------------------------------------------------------------------------------


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
    """Fill the cluster, and return the figures of each part and of its clients."""
    driver = Driver(RabbitBus(url, prefix=prefix, name="bench-driver"), options.applications)
    await driver.start()
    each = max(1, options.allocations // options.applications)
    for at in range(0, options.applications, 500):
        await driver.submit(each, [time.perf_counter()] * min(500, options.applications - at))
        await driver.settle(2_000)
    await driver.settle()
    clients = Clients()
    parts: dict[str, dict[str, float]] = {}
    took: dict[str, Answers] = {}
    with ExitStack() as stack:
        there = floor(services.port)  # so each list was asked for once
        floors_port = await asyncio.to_thread(stack.enter_context, there)  # heartbeats go on
        parts["alone"] = await part(driver, services, options)
        for name, port in (("floor", floors_port), ("beside", services.port)):
            first = await asyncio.to_thread(ask, port, 0.0, 0.0)
            clients.start(port, options.pause, options.seconds)
            parts[name] = await part(driver, services, options)
            took[name] = await clients.took()
    clients.stop()
    await driver.stop()
    return {"parts": parts, "took": took, "first": first}


def _cuts(answers: list[tuple[float, int]]) -> tuple[float, float]:
    """Return p50 and p99 in ms."""
    times = [seconds * 1e3 for seconds, _ in answers]
    cuts = statistics.quantiles(times, n=LEAST_PARTS, method="inclusive")
    return cuts[49], cuts[98]


def report(figures: dict[str, Any]) -> None:
    print(
        f"{'LIST':<22}{'ANSWERS':>8}{'MB':>7}{'FIRST MS':>10}{'P50':>7}{'P99':>7}"
        f"{'FLOOR P50':>11}{'P99':>7}"
    )
    for name, answers in figures["took"]["beside"].items():
        p50, p99 = _cuts(answers)
        least50, least99 = _cuts(figures["took"]["floor"][name])
        first, size = figures["first"][name][0]
        print(
            f"{name:<22}{len(answers):>8}{size / 1e6:>7.1f}{first * 1e3:>10.0f}"
            f"{p50:>7.0f}{p99:>7.0f}{least50:>11.0f}{least99:>7.0f}"
        )
    parts = figures["parts"]
    print(f"{'SCHEDULING':<26}{'ALONE':>9}{'FLOOR':>9}{'BESIDE':>9}{'/ALONE':>9}{'/FLOOR':>11}")
    for name, alone in parts["alone"].items():
        least, beside = parts["floor"][name], parts["beside"][name]
        print(
            f"{name:<26}{alone:>9.0f}{least:>9.0f}{beside:>9.0f}"
            f"{beside / alone:>9.2f}{beside / least:>11.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--applications", type=int, default=10_000)
    parser.add_argument("--allocations", type=int, default=50_000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
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
