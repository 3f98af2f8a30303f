"""What the whole costs over RabbitMQ: four services and a driver, each a process, and a broker.

    make bench-bus                              the curve by pods a submission, some minutes
    make bench-bus ARGS="--bursts 10 --pods 10000 --applications 5"     one row
    make bench-bus ARGS="--one-process"         all services in this process, no broker, a state file
    make bench-bus ARGS="--profile FOLDER"      writes what each service spends its time on

Pods of some applications are created through the shim adapter's inbox, so many with each message,
and the state events tell when the core has placed them. *sustained*: as fast as they are placed,
with a window of pods not yet placed; its CPU is that of the four services, the driver's and the
broker's are beside it. *paced*: so many pods a second, each message by itself, and how long from
the submission to the news of the allocation. Each row has services of its own.

The floor does nothing: three processes hand on messages of the same bytes, in the same bursts,
through the same bus. Figures are of this machine at this moment: compare ratios within one run.
"""

import argparse
import asyncio
import cProfile
import multiprocessing
import os
import platform
import re
import resource
import runpy
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgpack

from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus import codec
from shared.bus.base import Bus
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus
from shared.messages.commands import PodSpec, SubmitPods
from shared.messages.conversions import allocation_of
from shared.messages.envelope import API_ALL, CORE, SHIM_ADAPTER, Address, Envelope
from shared.messages.interface import AllocationAsk, UpdateRequest, UpdateResponse
from shared.messages.state import AllocationState, AskState, StateDelta
from shared.model.ids import derived_id
from shared.runtime.clock import SystemClock
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

    def __init__(self, bus: Bus, applications: int) -> None:
        self._bus = bus
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

    async def submit(self, count: int, due: Sequence[float] = ()) -> None:
        """Create so many pods of one application for each time that is due, and wait for confirms.

        With none it is now.
        """
        times = due or [time.perf_counter()]
        envelopes = [self._submission(count) for _ in times]
        for envelope, begun in zip(envelopes, times, strict=True):
            for at in range(count):
                self.asked[derived_id(f"pod/{envelope.message_id}", at)] = begun
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
    """Return the keys of the allocations that a state event tells of, decoded or as bytes."""
    if isinstance(body, StateDelta):
        return [item.allocation_key for item in body.allocations if not item.removed]
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
        await driver.submit(burst, [time.perf_counter()] * times)
        left -= times
    await driver.settle()
    return time.perf_counter() - start


async def paced(driver: Driver, seconds: float, rate: int, burst: int) -> None:
    """Submit so many pods a second; what became due while the last were confirmed goes together.

    A latency begins when the submission was due, whatever it waited for.
    """
    start, done = time.perf_counter(), 0
    total = int(seconds * rate / burst)
    while done < total:
        await asyncio.sleep(max(0.0, start + done * burst / rate - time.perf_counter()))
        due = min(total, int((time.perf_counter() - start) * rate / burst) + 1)
        await driver.submit(burst, [start + at * burst / rate for at in range(done, due)])
        done = due
    await driver.settle()


async def warmed(driver: Driver, options: Any, burst: int) -> None:
    """Begin, with every application there, and some pods placed at the pace that is measured."""
    await driver.start()
    for _ in range(options.applications):
        await driver.submit(20)
    await driver.settle()
    await paced(driver, 1.0, options.rate, burst)
    driver.latencies.clear()


async def measure(
    services: Services, url: str, prefix: str, options: Any, burst: int
) -> dict[str, float]:
    """Run the services against the driver; return the figures."""
    driver = Driver(RabbitBus(url, prefix=prefix, name="bench-driver"), options.applications)
    await warmed(driver, options, burst)
    rate = options.rate
    services.profile()
    before = services.cpu()
    await paced(driver, options.seconds, rate, burst)
    spent = {name: value - before[name] for name, value in services.cpu().items()}
    in_paced = sum(spent.values()) / options.seconds / rate * 1e6
    services.profile(f"{burst}-paced")
    cuts = statistics.quantiles(driver.latencies, n=100)
    pid = broker_pid()
    services.profile()
    before = services.cpu()
    own, brokers = time.process_time(), cpu_of(pid) if pid else 0.0
    took = await sustained(driver, options.pods, burst, max(options.window, 2 * burst))
    spent = {name: value - before[name] for name, value in services.cpu().items()}
    services.profile(f"{burst}-sustained")
    pods = options.pods // burst * burst
    each = {name: value / pods * 1e6 for name, value in spent.items()}
    result = {
        "pods": burst,
        "/s": pods / took,
        "CPU µs": sum(each.values()),
        **each,
        "driver": (time.process_time() - own) / pods * 1e6,
        "broker": (cpu_of(pid) - brokers) / pods * 1e6 if pid else 0.0,
        "p50 ms": cuts[49] * 1e3,
        "p99 ms": cuts[98] * 1e3,
        "paced µs": in_paced,
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
        told = []
        while sent < pods and sent - heard <= window - burst:
            told.append(Envelope(f"floor-{sent}", "SubmitPods", first, SHIM_ADAPTER, "driver"))
            sent += burst
        await bus.publish(told)
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


def row(url: str, options: Any, burst: int) -> dict[str, float]:
    """Return the figures of one row, with services of its own."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    more = {
        "MUSTER_SIMULATED_NODES": str(options.nodes),
        "MUSTER_SIMULATED_NODE_VCORE_MILLI": "64000",
        "MUSTER_POD_RUN_SECONDS": "0",
        "MUSTER_RELEASE_DELAY_MS": "0",
    }
    with tempfile.TemporaryDirectory() as folder:
        services = Services(url, Path(folder), prefix, **more)
        if not options.state:
            services.environment.pop("MUSTER_STATE_DIR")
        services.profiles = options.profile
        try:
            services.start_all()
            with as_bytes(raw):
                figures = asyncio.run(measure(services, url, prefix, options, burst))
        finally:
            services.stop()
    asyncio.run(sweep(url, prefix))
    if not options.no_floor:
        rate, spent = floor(url, options.pods, burst, max(options.window, 2 * burst))
        figures |= {"floor /s": rate, "floor µs": spent}
    return figures


async def in_one_process(options: Any, burst: int, folder: Path) -> dict[str, float]:
    """Return the figures of a row with all services, and the driver, in this process."""
    memory = MemoryBroker()
    capacity = {"vcore": 64_000, "memory": 2**40, "pods": 1_000}
    simulated = ShimOptions(
        state_dir=folder, nodes=options.nodes, node_capacity=capacity, default_run_ns=0
    )
    cluster = LocalCluster(lambda: MemoryBus(memory), SystemClock(), simulated)
    await cluster.start()
    driver = Driver(MemoryBus(memory), options.applications)
    await warmed(driver, options, burst)
    began = time.process_time()
    await paced(driver, options.seconds, options.rate, burst)
    in_paced = (time.process_time() - began) / options.seconds / options.rate * 1e6
    cuts = statistics.quantiles(driver.latencies, n=100)
    began, pods = time.process_time(), options.pods // burst * burst
    took = await sustained(driver, pods, burst, max(options.window, 2 * burst))
    spent = time.process_time() - began
    await driver.stop()
    await cluster.stop()
    return {
        "pods": burst,
        "/s": pods / took,
        "CPU µs": spent / pods * 1e6,
        "p50 ms": cuts[49] * 1e3,
        "p99 ms": cuts[98] * 1e3,
        "paced µs": in_paced,
        "MiB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def row_in_one_process(options: Any, burst: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(in_one_process(options, burst, Path(folder)))


def machine() -> str:
    """Return on which kind of machine this runs, and how busy it is with other things."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    model = found[1] if found else platform.machine()
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {model}; Python {platform.python_version()}; load before {load:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bursts", default="1,3,10,30,100,300", help="pods a submission")
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--applications", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--window", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--state", action="store_true", help="keep the cluster in a file")
    parser.add_argument("--no-floor", action="store_true")
    parser.add_argument("--one-process", action="store_true", help="as `muster up` runs them")
    options = parser.parse_args()
    print(machine())
    print(f"/s, CPU µs a pod: sustained; ms, paced µs: at {options.rate}/s")
    names: list[str] = []
    with nullcontext("") if options.one_process else broker() as url:
        for burst in map(int, options.bursts.split(",")):
            figures = row(url, options, burst) if url else row_in_one_process(options, burst)
            if not names:
                names = list(figures)
                print("".join(f"{name:>13}" for name in names))
            print("".join(f"{figures[name]:>13,.0f}" for name in names), flush=True)


if __name__ == "__main__":
    main()
