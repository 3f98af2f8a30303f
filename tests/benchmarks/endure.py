"""Minutes at so many applications a second: whether memory stays flat, and anything is left over.

    make endure ARGS="20 20"                  minutes, applications a second
    make endure ARGS="4 5 --caps 50"          what is kept of the past, a fiftieth: full early
    make endure ARGS="4 5 --heap shim_adapter"    what grew in it, by line of source

Four services, each a process, on a broker of its own; gangs and plain applications whose pods run for
a second. Of every service its resident memory is sampled every 5 s: the slope is that of the second
half, by least squares. A latency is from the request to the news of the application's first
allocation. In the end everything is let end, and what is left is counted. Exit status 1 where
a service grows by more than 1 MB a minute, the median latency of the second half is more than
a quarter above the first's, or anything is left.

A service keeps so many ended applications, events, steps and identities, and then forgets the
oldest: it grows until it has them (docs/limits.md), which at 20 a second takes some ten minutes. With
``--caps`` each keeps so many times fewer, and a few minutes show whether it grows beyond them.
"""

import argparse
import asyncio
import importlib
import os
import random
import runpy
import signal
import statistics
import sys
import tempfile
import time
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from shared.bus.rabbitmq import RabbitBus
from shared.messages.envelope import CORE, SHIM_ADAPTER, TIMERS, Address
from shared.messages.state import StateDelta
from tests.benchmarks.bus import SERVICES, cpu_of
from tests.broker import free_port, own_broker
from tests.integration.processes import Deployment
from tests.jobs import job
from tests.patience import until

SAMPLE_SECONDS = 5.0
MOST_MIB_A_MINUTE = 1.0
MOST_SLOWER = 1.25
EMPTY_SECONDS = 600.0  # what has to end has an end by then
NODES = 40
LISTENER = Address("api", "endure")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
_LINES, _FRAMES = 15, 4  # of a heap
# What a service keeps of the past, by the modules that look at it: the first are imported first.
_OF_ALL = ("shared.runtime.dedupe.MAX_REMEMBERED", "shared.runtime.steps.MAX_KNOWN")
CAPS = {
    "core": _OF_ALL,
    "timers": _OF_ALL,
    "shim_adapter": (
        *_OF_ALL,
        "services.shim_adapter.mirror.world.MAX_APPLICATIONS",
        "services.shim_adapter.mirror.kept.MAX_ANSWERS",
        "services.shim_adapter.mirror.kept.MAX_ANSWERED",
        "services.shim_adapter.backends.simulated.cluster.MAX_ENDED_PODS",
        "services.shim_adapter.backends.simulated.cluster.MAX_REMEMBERED",
    ),
    "api": (
        *_OF_ALL,
        "services.api.projection.event_settings.MAX_EVENTS",
        "services.api.projection.ended.MAX_ENDED",
        "services.api.projection.stories.MAX_STORIES",
        "services.api.projection.stories.MAX_HELD",
    ),
}


def serve(service: str, divisor: int, heap: str) -> None:
    """Run a service that keeps so many times fewer, and on SIGUSR1 and 2 notes its heap, or not."""
    for cap in CAPS[service]:
        module, _, name = cap.rpartition(".")
        found = importlib.import_module(module)
        setattr(found, name, getattr(found, name) // divisor)
    if heap:
        tracemalloc.start(_FRAMES)
        kept: list[tracemalloc.Snapshot] = []

        def grown(*_: object) -> None:
            now = tracemalloc.take_snapshot()
            rows = now.compare_to(kept[0], "traceback")[:_LINES]
            Path(heap).write_text("\n\n".join(f"{row}\n" + "\n".join(row.traceback.format()) for row in rows))  # fmt: skip

        signal.signal(signal.SIGUSR1, lambda *_: kept.append(tracemalloc.take_snapshot()))
        signal.signal(signal.SIGUSR2, grown)
    runpy.run_module(f"services.{service}", run_name="__main__")


class Services(Deployment):
    """The four services, as ``serve`` runs them; ``heap_of`` is looked into."""

    def __init__(self, url: str, folder: Path, prefix: str, divisor: int, heap_of: str) -> None:
        self._divisor, self._heap_of = divisor, heap_of
        self.heap = folder / f"heap-{heap_of}.txt"
        self.timers_port = free_port()
        super().__init__(
            url,
            folder,
            prefix,
            MUSTER_SIMULATED_NODES=str(NODES),
            MUSTER_SIMULATED_NODE_VCORE_MILLI="16000",
            MUSTER_RELEASE_DELAY_MS="100",
            MUSTER_POD_RUN_SECONDS="1",
        )

    def start(self, service: str, name: str = "", **more: str) -> None:
        if service == "timers":
            more["MUSTER_HEALTH_PORT"] = str(self.timers_port)
        super().start(service, name, **more)

    def command(self, service: str) -> list[str]:
        heap = str(self.heap) if service == self._heap_of else ""
        start = f"from tests.benchmarks.endure import serve; serve({service!r}, {self._divisor}, {heap!r})"
        return [sys.executable, "-c", start]

    def note_heap(self, number: signal.Signals) -> None:
        """Have the service that is looked into note its heap, or tell what grew since."""
        if self._heap_of:
            self.processes[self._heap_of].send_signal(number)

    def memory(self) -> dict[str, float]:
        """Return the resident MiB of each service."""
        return {
            name: int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE_MIB
            for name, process in self.processes.items()
        }

    def left(self) -> dict[str, int]:
        """Return what there is that has an end: as soon as all has ended, nothing."""
        applications = self.get("/v1/applications")
        nodes = self.get("/ws/v1/partition/default/nodes")
        metrics = httpx.get(f"http://127.0.0.1:{self.timers_port}/metrics", timeout=60).text
        armed = [line for line in metrics.splitlines() if line.startswith("muster_timers_armed{")]
        return {
            "applications that have not ended": sum(not item["hasEnded"] for item in applications),
            "pods on nodes": sum(len(node.get("allocations") or ()) for node in nodes),
            "timers": int(float(armed[0].split()[-1])),
            "dead letters": self.get("/v1/dead-letters")["total"],
        }


@dataclass
class Client:
    """Hands applications in at a pace, and hears when each has its first allocation."""

    services: Services
    bus: RabbitBus
    rate: float
    waiting: dict[str, float] = field(default_factory=dict)  # since when
    latencies: list[tuple[float, float]] = field(default_factory=list)  # when handed in, how long
    answers: Counter[str] = field(default_factory=Counter)
    chance: random.Random = field(default_factory=lambda: random.Random("endure"))

    async def listen(self) -> None:
        place = await self.bus.subscribe(LISTENER)
        while True:
            deliveries = await place.receive(200)
            now = time.monotonic()
            for delivery in deliveries:
                if isinstance(delivery.envelope.message, StateDelta):
                    for item in delivery.envelope.message.allocations:
                        since = self.waiting.pop(item.application_id, None)
                        if since is not None:
                            self.latencies.append((since, now - since))
            await place.ack(deliveries)

    async def hand_in(self, seconds: float) -> None:
        """Hand in at the pace, however long the answers take; wait for them in the end."""
        start = time.monotonic()
        async with httpx.AsyncClient(timeout=60) as http, asyncio.TaskGroup() as requests:
            for at in range(int(seconds * self.rate)):
                await asyncio.sleep(start + at / self.rate - time.monotonic())
                requests.create_task(self._submit(http, f"app-{at}"))

    async def _submit(self, http: httpx.AsyncClient, name: str) -> None:
        pods = self.chance.randint(1, 5)
        gang = pods if self.chance.random() < 0.5 else 0
        self.waiting[name] = time.monotonic()
        body = job(name, pods, gang=gang)
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": name}
        status = 504
        while status == 504:  # who hears no answer asks again with the same key
            answer = await http.post(
                f"{self.services.url}/v1/manifests", content=body, headers=headers
            )
            status = answer.status_code
            self.answers[str(status)] += 1


@dataclass
class Seen:
    """What was sampled while applications were handed in."""

    started: float
    seconds: float
    memory: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    async def sample(self, services: Services) -> None:
        """Sample until cancelled; the heap is noted at the half."""
        is_noted, minutes = False, 0.0
        while True:
            now = time.monotonic() - self.started
            self.memory.append((now, services.memory()))
            if now // 60 > minutes:
                minutes = now // 60
                told = ", ".join(f"{name} {mib:.0f}" for name, mib in self.memory[-1][1].items())
                print(f"after {minutes:.0f} min, MiB: {told}", flush=True)
            if now > self.seconds / 2 and not is_noted:
                services.note_heap(signal.SIGUSR1)
                is_noted = True
            await asyncio.sleep(SAMPLE_SECONDS)

    def second_half(self, name: str) -> list[tuple[float, float]]:
        """Return a service's samples of the second half: minutes and MiB."""
        return [(at / 60, mib[name]) for at, mib in self.memory if at >= self.seconds / 2]


def medians(client: Client, seen: Seen) -> list[float]:
    """Return the median latency of those handed in in the first half, and in the second."""
    half = seen.started + seen.seconds / 2
    halves = [[took for at, took in client.latencies if (at >= half) is second] for second in (False, True)]  # fmt: skip
    return [statistics.median(half) if half else 0.0 for half in halves]


def report(services: Services, client: Client, seen: Seen, left: dict[str, int]) -> list[str]:
    """Print the table; return what does not hold."""
    wrong: list[str] = []
    table = Table("service", "MiB at half", "MiB at the end", "MiB a minute", "CPU s")
    for name in SERVICES:
        samples = seen.second_half(name)
        slope, _ = statistics.linear_regression(*zip(*samples, strict=True))
        cpu = cpu_of(services.processes[name].pid)
        table.add_row(
            name, f"{samples[0][1]:.1f}", f"{samples[-1][1]:.1f}", f"{slope:+.2f}", f"{cpu:.0f}"
        )
        if slope > MOST_MIB_A_MINUTE:
            wrong.append(f"{name} grows by {slope:.2f} MiB a minute, at most {MOST_MIB_A_MINUTE:g}")
    Console(width=80).print(table)
    first, second = medians(client, seen)
    print(f"median latency: first half {first * 1e3:.0f} ms, second {second * 1e3:.0f} ms")
    if second > first * MOST_SLOWER:
        wrong.append(f"the median latency grew by {second / first - 1:.0%}, at most 25%")
    print(f"handed in: {client.answers.total()}, answers {dict(client.answers)}")
    print("left: " + ", ".join(f"{count} {what}" for what, count in left.items()))
    wrong += [f"left over: {count} {what}" for what, count in left.items() if count]
    if not client.answers.keys() <= {"200", "504"}:
        wrong.append(f"not all were taken: {dict(client.answers)}")
    return wrong


async def endure(services: Services, url: str, prefix: str, options: Any) -> list[str]:
    """Hand in, let end, and judge."""
    bus = RabbitBus(url, prefix=prefix, name="endure")
    client = Client(services, bus, options.rate)
    seen = Seen(time.monotonic(), options.minutes * 60)
    listening = asyncio.create_task(client.listen())
    sampling = asyncio.create_task(seen.sample(services))
    try:
        await client.hand_in(seen.seconds)
        sampling.cancel()
        services.note_heap(signal.SIGUSR2)
        left: dict[str, int] = {}

        async def is_empty() -> bool:
            with suppress(httpx.HTTPError):
                found = await asyncio.to_thread(services.left)
                found["messages in inboxes"] = await waiting_messages(bus)
                left.clear()
                left.update(found)
                return not any(found.values())
            return False

        with suppress(AssertionError):
            await until(is_empty, "everything has ended", EMPTY_SECONDS, pause=1.0)
        left["without an allocation"] = len(client.waiting)
        return report(services, client, seen, left)
    finally:
        listening.cancel()
        sampling.cancel()
        await bus.close()


async def waiting_messages(bus: RabbitBus) -> int:
    """Return how many messages wait in the services' inboxes; a heartbeat may be one."""
    waiting = [(await bus.fill(inbox)).waiting for inbox in (CORE, SHIM_ADAPTER, TIMERS)]
    return sum(count for count in waiting if count > 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make endure", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("minutes", type=float, nargs="?", default=20.0)
    parser.add_argument("rate", type=float, nargs="?", default=20.0, help="applications a second")
    parser.add_argument("--caps", type=int, default=1, help="keep so many times fewer of the past")
    parser.add_argument("--heap", choices=SERVICES, default="", help="say what grew in a service")
    options = parser.parse_args()
    stop: Callable[..., Any] = lambda *_: sys.exit("ended by SIGTERM")  # noqa: E731
    signal.signal(signal.SIGTERM, stop)
    with own_broker() as broker, tempfile.TemporaryDirectory() as folder:
        prefix = f"endure-{uuid.uuid4().hex[:8]}"
        services = Services(broker.url, Path(folder), prefix, options.caps, options.heap)
        try:
            services.start_all()
            wrong = asyncio.run(endure(services, broker.url, prefix, options))
            if services.heap.exists():
                print(services.heap.read_text())
        finally:
            services.stop()
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
