"""A hundred thousand asks handed in at once: four services, each a process, and a broker.

    make bench-burst
    make bench-burst ARGS="--pods 10000 --members 2500"

One application of plain pods and gangs of so many members come in one request each. It is over when
every pod has its place. Printed of every service: its largest memory, its CPU, how long it held its
loop at most, in CPU seconds of the loop's thread and by the clock, and how often it lost its place at
the bus, which must be never: then a standby would begin all over. Exit status 1 where something did
not hold. Seconds by the clock are this machine's; compare them within one run.
"""

import argparse
import asyncio
import atexit
import contextlib
import json
import runpy
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

from services.shim_adapter.translation.workloads.replicas import MAX_PODS
from tests.benchmarks.bus import SERVICES, cpu_of
from tests.broker import own_broker
from tests.integration.processes import Deployment
from tests.jobs import job

MOST_MIB = 400
PODS_A_NODE = 110  # as the simulated cluster's nodes have
LOST = "the bus is away"  # in the log
PATIENCE_SECONDS = 900.0


class Holding:
    """How long the callbacks of this process' loop took at most, and which one it was."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cpu = self._clock = 0.0
        self._what = ""

    def watch(self) -> None:
        """Take the time of every callback from now on; it is written down at the end."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            cpu, clock = time.thread_time(), time.monotonic()
            run(handle)
            cpu, clock = time.thread_time() - cpu, time.monotonic() - clock
            self._clock = max(self._clock, clock)
            if cpu > self._cpu:
                self._cpu, self._what = cpu, repr(handle)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        atexit.register(self._write)

    def _write(self) -> None:
        self._file.write_text(json.dumps([self._cpu, self._clock, self._what]))


def held(service: str, folder: str) -> None:
    """Run a service that says how long it held its loop."""
    Holding(Path(folder) / f"{service}.held").watch()
    runpy.run_module(f"services.{service}", run_name="__main__")


class Services(Deployment):
    """The four services, each of which says in the end how long it held its loop."""

    def command(self, service: str) -> list[str]:
        start = f"from tests.benchmarks.burst import held; held({service!r}, {str(self.folder)!r})"
        return [sys.executable, "-c", start]


def memory_mib(pid: int) -> int:
    """Return the largest memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def submit(services: Services, name: str, pods: int, *, is_gang: bool) -> None:
    """Hand an application in with one request, of as many documents as that takes."""
    gang = pods if is_gang else 0
    parts = [min(MAX_PODS, pods - at) for at in range(0, pods, MAX_PODS)]
    documents = [
        job(f"{name}-{at}", part, application=name, gang=gang) for at, part in enumerate(parts)
    ]
    start = time.monotonic()
    while True:  # who hears no answer asks again with the same key
        answer = httpx.post(
            f"{services.url}/v1/manifests",
            content="---\n".join(documents).encode(),
            headers={"Content-Type": "application/yaml", "Idempotency-Key": name},
            timeout=120,
        )
        if answer.status_code != 504:
            break
    if answer.status_code != 200:
        sys.exit(f"{name}: {answer.status_code} {answer.text[:500]}")
    print(f"{name}: {pods} pods handed in, answered after {time.monotonic() - start:.1f} s")


def progress(services: Services) -> list[dict[str, Any]]:
    """Return how far all applications are; nothing while nobody answers."""
    with contextlib.suppress(httpx.HTTPError, ValueError):
        answer = httpx.get(f"{services.url}/v1/applications", timeout=60)
        if answer.status_code == 200:
            found: list[dict[str, Any]] = answer.json()
            return found
    return []


def burst(services: Services, pods: int, members: int) -> dict[str, float]:
    """Hand everything in, and wait until all runs; return how long each came to take."""
    start = time.monotonic()
    wanted = {}
    if pods:
        submit(services, "plain", pods, is_gang=False)
        wanted["plain"] = pods
    if members:
        submit(services, "gang", members, is_gang=True)
        wanted["gang"] = members
    seconds: dict[str, float] = {}
    while len(seconds) < len(wanted) and time.monotonic() - start < PATIENCE_SECONDS:
        time.sleep(1)
        running = {item["applicationID"]: item["running"] for item in progress(services)}
        for name in set(wanted) - set(seconds):
            if running.get(name) == wanted[name]:
                seconds[name] = time.monotonic() - start
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000, help="of one plain application")
    parser.add_argument("--members", type=int, default=0, help="of one gang beside it")
    options = parser.parse_args()
    nodes = (options.pods + options.members) // (PODS_A_NODE - 10) + 1
    with own_broker() as broker, tempfile.TemporaryDirectory() as folder:
        prefix = f"burst-{uuid.uuid4().hex[:8]}"
        more = {"MUSTER_SIMULATED_NODES": str(nodes), "MUSTER_POD_RUN_SECONDS": "0"}
        more["MUSTER_RELEASE_DELAY_MS"] = "0"
        more["MUSTER_SIMULATED_NODE_VCORE_MILLI"] = "64000"
        services = Services(broker.url, Path(folder), prefix, **more)
        try:
            services.start_all()
            seconds = burst(services, options.pods, options.members)
            taken = {name: usage(services.processes[name].pid) for name in SERVICES}
        finally:
            services.stop()
        wrong = report(taken, Path(folder))
    for name, took in seconds.items():
        print(f"{name}: all placed after {took:.0f} s")
    for name, wanted in (("plain", options.pods), ("gang", options.members)):
        if wanted and name not in seconds:
            wrong.append(f"{name}: not all of its {wanted} pods were placed")
    sys.exit("\n".join(wrong) or 0)


def usage(pid: int) -> tuple[int, float]:
    """Return the largest memory of a process, and its CPU."""
    return memory_mib(pid), cpu_of(pid)


def report(taken: dict[str, tuple[int, float]], folder: Path) -> list[str]:
    """Print what each service took; return what did not hold."""
    wrong: list[str] = []
    print(f"{'SERVICE':<14}{'MiB AT MOST':>12}{'CPU s':>8}{'LOOP HELD CPU s':>17}{'BY THE CLOCK':>14}"
          f"{'LOST':>6}")  # fmt: skip
    for name, (memory, cpu) in taken.items():
        lost = (folder / f"{name}.log").read_text().count(LOST)
        held_cpu, clock, what = json.loads((folder / f"{name}.held").read_text())
        print(f"{name:<14}{memory:>12}{cpu:>8.0f}{held_cpu:>17.2f}{clock:>14.1f}{lost:>6}")
        print(f"    {what[:74]}")
        if lost:
            wrong.append(f"{name} lost its place {lost} times")
        if memory > MOST_MIB:
            wrong.append(f"{name} had {memory} MiB, at most {MOST_MIB} are promised")
    return wrong


if __name__ == "__main__":
    main()
