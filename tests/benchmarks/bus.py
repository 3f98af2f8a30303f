"""What the whole costs over RabbitMQ: four services and a driver, each a process, and a broker.

    make bench-bus
    make bench-bus ARGS="--pods 10000 --applications 5"
    make bench-bus ARGS="--profile FOLDER"      writes what each service spends its time on

Pods of some applications are created through the shim adapter's inbox, and the state events tell
when the core has placed them. *sustained*: as fast as they are placed, with a window of pods not yet
placed; its CPU is that of the four services, the driver's and the broker's are beside it. *paced*:
so many pods a second, and how long from the submission to the news of the allocation.

The floor does nothing: three processes hand on messages of the same bytes, in the same bursts,
through the same bus. Figures are of this machine at this moment: compare ratios within one run.
"""

import argparse
import asyncio
import cProfile
import multiprocessing
import os
import runpy
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack

from shared.bus import codec
from shared.bus.rabbitmq import RabbitBus
from shared.messages.commands import PodSpec, SubmitPods
from shared.messages.conversions import allocation_of
from shared.messages.envelope import API_ALL, CORE, SHIM_ADAPTER, Address, Envelope
from shared.messages.interface import AllocationAsk, UpdateRequest, UpdateResponse
from shared.messages.state import AllocationState, AskState, StateDelta
from shared.model.ids import derived_id
from tests.broker import broker
from tests.integration.processes import Deployment

SERVICES = ("core", "shim_adapter", "timers", "api")
RESOURCE = {"vcore": 100, "memory": 2**27, "pods": 1}
DRIVER = Address("api", "bench-driver")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def broker_pid() -> int | None:
    """Return the process of a broker that we started ourselves, None of any other."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            name, _, fields = (entry / "stat").read_text().partition("(")[2].rpartition(") ")
            parents[int(entry.name)] = (int(fields.split()[1]), name)
    for pid, (parent, name) in parents.items():
        above = parent
        while name.startswith("beam") and above in parents and above != os.getpid():
            above = parents[above][0]
        if name.startswith("beam") and above == os.getpid():
            return pid
    return None


class Services(Deployment):
    """The four services; ``profiles`` is where each writes what it spent its time on."""

    profiles: Path | None = None

    def command(self, service: str) -> list[str]:
        if self.profiles is None:
            return super().command(service)
        start = f"from tests.benchmarks.bus import profiled; profiled({service!r}, {str(self.profiles)!r})"
        return [sys.executable, "-c", start]

    def profile(self, row: str = "") -> None:
        """Begin to profile every service, or (with a row) end it and write it down."""
        if self.profiles is not None:
            for process in self.processes.values():
                process.send_signal(signal.SIGUSR2 if row else signal.SIGUSR1)
            time.sleep(1.0 if row else 0.2)
            for name in SERVICES if row else ():
                (self.profiles / f"{name}.prof").rename(self.profiles / f"{row}-{name}.prof")

    def cpu(self) -> dict[str, float]:
        return {name: cpu_of(process.pid) for name, process in self.processes.items()}


def profiled(service: str, folder: str) -> None:
    """Run a service that profiles itself from SIGUSR1 to SIGUSR2."""
    profile = cProfile.Profile(time.process_time)

    def end(*_: object) -> None:
        profile.disable()
        profile.dump_stats(f"{folder}/{service}.prof")
        profile.clear()

    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    signal.signal(signal.SIGUSR2, end)
    runpy.run_module(f"services.{service}", run_name="__main__")


class Driver:
    """Creates pods through the bus and hears from the state events which are placed."""

    def __init__(self, url: str, prefix: str, applications: int) -> None:
        self._bus = RabbitBus(url, prefix=prefix, name="bench-driver")
        self._applications = applications
        self._sent = 0
        self._run = uuid.uuid4().hex[:8]
        self.asked: dict[str, float] = {}
        self.latencies: list[float] = []
        self.changed = asyncio.Event()

    async def start(self) -> None:
        await self._bus.connect()
        self._place = await self._bus.subscribe(DRIVER)
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        self._reading.cancel()
        await self._bus.close()

    async def _read(self) -> None:
        while True:
            deliveries = await self._place.receive(200)
            now = time.perf_counter()
            for delivery in deliveries:
                for key in keys_in(delivery.envelope.message):
                    asked = self.asked.pop(key, None)
                    if asked is not None:
                        self.latencies.append(now - asked)
            await self._place.ack(deliveries)
            self.changed.set()

    async def submit(self, count: int, times: int = 1) -> None:
        """Create so many pods of one application, so many times, and wait for the confirms."""
        envelopes = [self._submission(count) for _ in range(times)]
        now = time.perf_counter()
        for envelope in envelopes:
            for at in range(count):
                self.asked[derived_id(f"pod/{envelope.message_id}", at)] = now
        await self._bus.publish(envelopes)

    def _submission(self, count: int) -> Envelope:
        number = self._sent
        self._sent += 1
        message = submission(f"{self._run}-{number}", number % self._applications, count)
        message_id = f"bench-{self._run}-{number}"
        return Envelope(message_id, "SubmitPods", message, SHIM_ADAPTER, "bench")

    async def settle(self, most: int = 0) -> None:
        """Wait until no more than so many pods are not placed."""
        async with asyncio.timeout(120):
            while len(self.asked) > most:
                self.changed.clear()
                await self.changed.wait()


def submission(name: str, application: int, count: int) -> SubmitPods:
    return SubmitPods(
        tuple(
            PodSpec(f"p-{name}-{at}", f"app-{application}", RESOURCE, queue_name="root.default")
            for at in range(count)
        )
    )


def keys_in(body: object) -> list[str]:
    """Return the keys of the allocations that a state event tells of."""
    section = body.get("allocations") if isinstance(body, dict) else None
    if section is None:
        return []
    column = section["cols"]["allocationKey"]
    return column if isinstance(column, list) else [column["c"]] * section["n"]


@contextmanager
def as_bytes(decode: Callable[[str, bytes], object]) -> Iterator[None]:
    """Have the codec of this process leave bytes as they are, and read in a way of our own."""
    encode, before = codec.encode, codec.decode
    codec.encode = lambda message: message if isinstance(message, bytes) else encode(message)
    codec.decode = decode
    try:
        yield
    finally:
        codec.encode, codec.decode = encode, before


def raw(kind: str, data: bytes) -> object:
    return msgpack.unpackb(data) if kind == "StateDelta" else None


async def sustained(driver: Driver, pods: int, burst: int, window: int) -> float:
    start = time.perf_counter()
    left = pods // burst
    while left:
        await driver.settle(window - burst)
        times = min(left, (window - len(driver.asked)) // burst)
        await driver.submit(burst, times)
        left -= times
    await driver.settle()
    return time.perf_counter() - start


async def paced(driver: Driver, seconds: float, rate: int, burst: int) -> None:
    start = time.perf_counter()
    for at in range(int(seconds * rate / burst)):
        await asyncio.sleep(max(0.0, start + at * burst / rate - time.perf_counter()))
        await driver.submit(burst)
    await driver.settle()


async def measure(services: Services, url: str, prefix: str, options: Any) -> dict[str, Any]:
    """Run the services against the driver; return the figures."""
    driver = Driver(url, prefix, options.applications)
    await driver.start()
    for _ in range(options.applications):  # so that every application is there
        await driver.submit(20)
    await driver.settle()
    rate, burst = options.rate, options.paced_burst
    await paced(driver, 1.0, rate, burst)
    driver.latencies.clear()
    services.profile()
    before = services.cpu()
    await paced(driver, options.seconds, rate, burst)
    spent = {name: value - before[name] for name, value in services.cpu().items()}
    paced_each = {
        f"paced {name}": value / options.seconds / rate * 1e6 for name, value in spent.items()
    }
    services.profile("paced")
    cuts = statistics.quantiles(driver.latencies, n=100)
    pid = broker_pid()
    services.profile()
    before = services.cpu()
    own, brokers = time.process_time(), cpu_of(pid) if pid else 0.0
    took = await sustained(driver, options.pods, options.burst, options.window)
    spent = {name: value - before[name] for name, value in services.cpu().items()}
    services.profile("sustained")
    each = {name: value / options.pods * 1e6 for name, value in spent.items()}
    result = {
        "allocations/s": options.pods / took,
        "CPU µs": sum(each.values()),
        **each,
        "driver": (time.process_time() - own) / options.pods * 1e6,
        "broker": (cpu_of(pid) - brokers) / options.pods * 1e6 if pid else 0.0,
        "paced p50 ms": cuts[49] * 1e3,
        "paced p99 ms": cuts[98] * 1e3,
        "paced CPU µs": sum(paced_each.values()),
        **paced_each,
    }
    await driver.stop()
    return result


# --- the floor ----------------------------------------------------------------------------------


def bodies(count: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the bytes of a burst: its submission, the asks, the decisions, the state events."""
    keys = [derived_id("floor", at) for at in range(count)]
    asks = tuple(
        AllocationAsk(key, "app", RESOURCE, allocation_tags={"kubernetes.io/meta/podName": key})
        for key in keys
    )
    placed = tuple(allocation_of(ask, f"node-{at % 100:04d}") for at, ask in enumerate(asks))
    delta = StateDelta(
        asks=tuple(AskState(key, "app", removed=True) for key in keys),
        allocations=tuple(
            AllocationState(a.allocation_key, "app", a.node_id, RESOURCE, tags=a.allocation_tags)
            for a in placed
        ),
    )
    said = (
        submission("floor", 0, count),
        UpdateRequest("rm", asks=asks),
        UpdateResponse(new_allocations=placed),
        delta,
    )
    first, second, third, fourth = (codec.encode(message) for message in said)
    return first, second, third, fourth


async def _hand_on(url: str, prefix: str, inbox: Address, body: dict[str, list[Any]]) -> None:
    bus = RabbitBus(url, prefix=prefix, name=f"floor-{inbox.routing_key}")
    await bus.connect()
    place = await bus.subscribe(inbox)
    number = 0
    while True:
        deliveries = await place.receive(200)
        out = []
        for delivery in deliveries:
            for to, kind, data in body.get(delivery.envelope.kind, ()):
                number += 1
                out.append(Envelope(f"{inbox.service}-{number}", kind, data, to, inbox.service))
        await bus.publish(out)
        await place.ack(deliveries)


def _stage(url: str, prefix: str, inbox: Address, body: dict[str, list[Any]]) -> None:
    with as_bytes(lambda _, data: data):
        asyncio.run(_hand_on(url, prefix, inbox, body))


async def _floor(url: str, prefix: str, pods: int, burst: int, window: int) -> float:
    bus = RabbitBus(url, prefix=prefix, name="floor-driver")
    await bus.connect()
    place = await bus.subscribe(DRIVER)
    first, *_ = bodies(burst)
    sent = heard = 0
    start = time.perf_counter()
    while heard < pods:
        while sent < pods and sent - heard <= window - burst:
            await bus.publish(
                [Envelope(f"floor-{sent}", "SubmitPods", first, SHIM_ADAPTER, "driver")]
            )
            sent += burst
        deliveries = await place.receive(200)
        heard += burst * sum(item.envelope.kind == "StateDelta" for item in deliveries)
        await place.ack(deliveries)
    took = time.perf_counter() - start
    await bus.close()
    return took


def floor(url: str, pods: int, burst: int, window: int) -> tuple[float, float]:
    """Return pods/s, and the CPU µs a pod of the three processes that hand messages on."""
    prefix = f"floor-{uuid.uuid4().hex[:8]}"
    _, asks, placed, delta = bodies(burst)
    stages = {
        SHIM_ADAPTER: {"SubmitPods": [(CORE, "UpdateRequest", asks)]},
        CORE: {
            "UpdateRequest": [
                (SHIM_ADAPTER, "UpdateResponse", placed),
                (API_ALL, "StateDelta", delta),
            ]
        },
        Address("api", "floor"): {},
    }
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_stage, args=(url, prefix, inbox, body), daemon=True)
        for inbox, body in stages.items()
    ]
    for process in processes:
        process.start()
    time.sleep(4)  # until all of them read
    with as_bytes(lambda _, data: data):
        asyncio.run(_floor(url, prefix, burst * 10, burst, window))
        before = sum(cpu_of(process.pid or 0) for process in processes)
        took = asyncio.run(_floor(url, prefix, pods, burst, window))
        spent = sum(cpu_of(process.pid or 0) for process in processes) - before
    for process in processes:
        process.terminate()
        process.join()
    asyncio.run(sweep(url, prefix))
    return pods / took, spent / pods * 1e6


async def sweep(url: str, prefix: str) -> None:
    """Delete what a run has made on a broker."""
    bus = RabbitBus(url, prefix=prefix)
    await bus.delete_topology()
    await bus.close()


def report(figures: dict[str, Any], base: tuple[float, float]) -> None:
    rate, each = base
    rows = [
        ("sustained allocations/s", figures["allocations/s"], rate),
        ("CPU µs an allocation, four services", figures["CPU µs"], each),
        *((f"  {name}", figures[name], 0.0) for name in (*SERVICES, "driver", "broker")),
        ("paced: p50 ms", figures["paced p50 ms"], 0.0),
        ("paced: p99 ms", figures["paced p99 ms"], 0.0),
        ("paced: CPU µs an allocation", figures["paced CPU µs"], 0.0),
        *((f"  {name}", figures[f"paced {name}"], 0.0) for name in SERVICES),
    ]
    print(f"{'ROW':<42}{'NOW':>12}{'FLOOR':>12}{'RATIO':>12}")
    for name, value, least in rows:
        beside = f"{least:>12,.0f}{value / least:>12.2f}" if least else ""
        print(f"{name:<42}{value:>12,.0f}{beside}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--applications", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--burst", type=int, default=10)
    parser.add_argument("--window", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--paced-burst", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--state", action="store_true", help="keep the cluster in a file")
    parser.add_argument("--no-floor", action="store_true")
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
        if not options.state:
            services.environment.pop("MUSTER_STATE_DIR")
        services.profiles = options.profile
        try:
            services.start_all()
            with as_bytes(raw):
                figures = asyncio.run(measure(services, url, prefix, options))
        finally:
            services.stop()
        asyncio.run(sweep(url, prefix))
        base = (0.0, 0.0)
        if not options.no_floor:
            base = floor(url, options.pods, options.burst, options.window)
    report(figures, base)


if __name__ == "__main__":
    main()
