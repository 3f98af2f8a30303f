"""Two of every service as processes, each with a link of its own to the broker, and a supervisor.

A second shim adapter on the simulated cluster's folder is refused by design: there is one, and the
supervisor starts it again, as it does with everything that ends.
"""

import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from shared.bus.addresses import addresses_of
from tests.broker import free_port
from tests.chaos.links import Links
from tests.integration.processes import HTTP, ROOT, Deployment
from tests.patience import PATIENCE_SECONDS

INSTANCES = {
    "core-1": "core",
    "core-2": "core",
    "timers-1": "timers",
    "timers-2": "timers",
    "shim-1": "shim_adapter",
    "api-1": "api",
    "api-2": "api",
}
RESTART_SECONDS = 1.0
NODES, NODE_VCORE = 20, 8


def _by_links(url: str, links: Links, name: str) -> str:
    """Return the URL of all brokers as an instance has it: each behind a link of its own."""
    credentials = url.rpartition("@")[0]
    ports = [int(address.rstrip("/").rpartition(":")[2]) for address in addresses_of(url)]
    hosts = ",".join(f"127.0.0.1:{links.add(name, port)}" for port in ports)
    return f"{credentials}@{hosts}/"


class Cluster(Deployment):
    """The instances by name; whoever ends by itself is started again and noted in ``ended``."""

    def __init__(
        self, links: Links | None, broker_url: str, folder: Path, prefix: str, **more: str
    ) -> None:
        settings = {
            "MUSTER_SIMULATED_NODES": str(NODES),
            "MUSTER_SIMULATED_NODE_VCORE_MILLI": str(NODE_VCORE * 1000),
            "MUSTER_RELEASE_DELAY_MS": "300",
            "MUSTER_POD_RUN_SECONDS": "2",
        }
        super().__init__(broker_url, folder, prefix, **settings | more)
        self._broker_links = links
        self.trees: dict[str, Path] = {}  # of instances that are of another version than this
        self.ended: Counter[str] = Counter()
        self.offsets = dict.fromkeys(INSTANCES, 0)  # seconds that a wall clock is off
        self.health: dict[str, str] = {}
        self.apis: dict[str, str] = {}
        self._own: dict[str, dict[str, str]] = {}
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        for name, service in INSTANCES.items():
            port = free_port()
            own = {"MUSTER_BUS_URL": broker_url}
            if links is not None:
                own = {"MUSTER_BUS_URL": _by_links(broker_url, links, name)}
            own["MUSTER_HTTP_PORT" if service == "api" else "MUSTER_HEALTH_PORT"] = str(port)
            self._own[name] = own
            self.health[name] = f"http://127.0.0.1:{port}"
            if service == "api":
                self.apis[name] = self.health[name]
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor")

    @property
    def links(self) -> Links:
        """Return the links, which a cluster that is to break has."""
        assert self._broker_links is not None
        return self._broker_links

    def tree(self, name: str) -> Path:
        return self.trees.get(name, ROOT)

    def command(self, service: str) -> list[str]:
        name, _, kind = service.partition("/")
        if name in self.trees:
            return [sys.executable, "-m", f"services.{kind}"]
        start = f"from tests.chaos.skewed import run; run({kind!r}, {self.offsets[name]})"
        return [sys.executable, "-c", start]

    def renew(self, name: str) -> None:
        """End an instance in order, start it again, and wait until it is ready."""
        self.end(name)
        self.raise_up(name)
        self.wait(lambda: self.is_ready(name), f"{name} is ready again")

    def raise_up(self, name: str) -> None:
        """Start an instance, with the clock that it has."""
        with self._lock:
            self.start(f"{name}/{INSTANCES[name]}", name, **self._own[name])

    def kill(self, name: str) -> None:
        with self._lock:
            super().kill(name)

    def end(self, name: str) -> None:
        """End an instance in order, and wait until it has."""
        with self._lock:
            process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.ended[f"{name} did not end in {PATIENCE_SECONDS:g} s of SIGTERM"] += 1
            process.kill()
            process.wait()

    def start_all(self) -> None:
        for name in INSTANCES:
            self.raise_up(name)
        self._supervisor.start()
        self.wait(lambda: all(self.is_ready(name) for name in INSTANCES), "ready")

    def stop(self) -> None:
        self._is_over.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        super().stop()

    def _supervise(self) -> None:
        while not self._is_over.wait(RESTART_SECONDS):
            with self._lock:
                for name, process in list(self.processes.items()):
                    status = process.poll()
                    if status is not None:
                        self.ended[f"{name} ended by itself with status {status}"] += 1
                        self.raise_up(name)

    # --- looking from outside -------------------------------------------------------------------

    def is_ready(self, name: str) -> bool:
        return self._asked(f"{self.health[name]}/health/ready") is not None

    def is_active(self, name: str) -> bool:
        """Return whether an instance is the one that works, and knows what it has to."""
        text = self._asked(f"{self.health[name]}/metrics") or ""
        service = INSTANCES[name]
        figure = "muster_is_synced" if service == "core" else "muster_epoch"
        line = f'{figure}{{service="{service}"}} '
        found = [row.removeprefix(line) for row in text.splitlines() if row.startswith(line)]
        return bool(found) and float(found[0]) > 0

    def active(self, service: str) -> str | None:
        """Return the name of the active instance of a service."""
        names = [name for name, kind in INSTANCES.items() if kind == service]
        return next(
            (name for name in names if name in self.processes and self.is_active(name)), None
        )

    def ask(self, api: str, path: str) -> Any:
        """Return what a replica answers. Raises httpx.HTTPError."""
        answer = HTTP.get(f"{self.apis[api]}{path}", timeout=PATIENCE_SECONDS)
        answer.raise_for_status()
        return answer.json()

    def _asked(self, url: str) -> str | None:
        with suppress(httpx.HTTPError):
            answer = HTTP.get(url, timeout=0.5)
            if answer.status_code == 200:
                return answer.text
        return None

    def until(self, holds: Any, seconds: float) -> float | None:
        """Return how many seconds it took until something held, None where it did not."""
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            if holds():
                return time.monotonic() - start
            time.sleep(0.03)
        return None
