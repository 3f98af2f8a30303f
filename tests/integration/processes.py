"""The services as processes of their own, on a real broker, as a deployment runs them."""

import contextlib
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

from services.shim_adapter.backends.simulated.store import ClusterStore
from services.shim_adapter.mirror.world import World
from services.shim_adapter.service import STATE_FILE
from tests.broker import free_port
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent.parent
# One connection a request, and no certificates, which httpx.get would read each time (25 ms).
HTTP = httpx.Client(
    verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    limits=httpx.Limits(max_keepalive_connections=0),
    timeout=PATIENCE_SECONDS,
)


class Deployment:
    """Four services; each can be killed and started again, and there can be more of one."""

    def __init__(self, broker_url: str, folder: Path, prefix: str, **more: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")},
            "MUSTER_BUS_URL": broker_url,
            "MUSTER_BUS_PREFIX": prefix,
            "MUSTER_HTTP_PORT": str(self.port),
            "MUSTER_STATE_DIR": str(folder / "state"),
            "MUSTER_SIMULATED_NODES": "6",
            "MUSTER_SIMULATED_NODE_VCORE_MILLI": "4000",
            "MUSTER_RELEASE_DELAY_MS": "1500",
            "MUSTER_POD_RUN_SECONDS": "4",
            "MUSTER_LOG_FORMAT": "json",
            "PYTHONFAULTHANDLER": "1",  # what one stood at that does not end is in its log
            **more,
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, service: str, name: str = "", **more: str) -> None:
        name = name or service
        log = (self.folder / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            self.command(service),
            cwd=self.tree(name),
            env=self.environment | {"PYTHONPATH": str(self.tree(name))} | more,
            stdout=log,
            stderr=log,
        )

    def tree(self, name: str) -> Path:
        """Return the source tree that an instance runs."""
        return ROOT

    def command(self, service: str) -> list[str]:
        return [sys.executable, "-m", f"services.{service}"]

    def start_all(self) -> None:
        for service in ("core", "timers", "shim_adapter", "api"):
            self.start(service)
        self.wait(lambda: HTTP.get(f"{self.url}/health/ready").status_code == 200, "ready")

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        stuck = []
        for name, process in self.processes.items():
            try:
                process.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                stuck.append(name)
                process.send_signal(signal.SIGABRT)
                process.wait()
        self.processes.clear()
        assert not stuck, f"{stuck} do not end when they are told to\n{self.logs()}"

    def get(self, path: str) -> Any:
        """Return what a path answers. Raises httpx.HTTPError, also for an answer that is a no."""
        return HTTP.get(f"{self.url}{path}").raise_for_status().json()

    def application(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(httpx.HTTPError, ValueError):
            value = self.get(f"/v1/applications/{name}")
            if isinstance(value, dict) and "state" in value:
                return value
        return {"state": "unknown", "placeholders": {"held": 0, "replaced": 0}, "running": 0}

    def submit(self, manifest: str) -> None:
        """Submit a manifest until it is answered, as a client does that is told "later": it is taken."""
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": uuid.uuid4().hex}
        answers: list[httpx.Response] = []

        def is_answered() -> bool:
            answers.append(
                HTTP.post(f"{self.url}/v1/manifests", content=manifest, headers=headers)
            )  # fmt: skip
            return answers[-1].status_code not in (503, 504)

        self.wait(is_answered, "the submission is answered")
        assert answers[-1].status_code == 200, answers[-1].text

    def has_held(self, name: str, members: int) -> bool:
        """Return whether the placeholders of a gang were all held; some may be replaced since."""
        placeholders = self.application(name)["placeholders"]
        return placeholders["held"] + placeholders["replaced"] == members

    def has_started(self, name: str) -> bool:
        """Return whether an application runs, or has run."""
        return self.application(name)["state"] in ("Running", "Completing", "Completed")

    def world(self) -> World:
        """Return what the resource manager's own file says."""
        return world_in(self.folder / "state")

    def wait(self, holds: Any, what: str, seconds: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
                if holds():
                    return
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds:g} s in vain for: {what}\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.folder.glob("*.log"))
        )


class _Reader(ClusterStore):
    """The file, for one who writes nothing: its owner is kept out at no moment."""

    def __init__(self, path: Path) -> None:
        """Open the file. A reader that may write empties the log as it leaves, and locks it."""
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)


def world_in(folder: Path) -> World:
    """Return what the simulated cluster's file in a state folder says."""
    with contextlib.closing(_Reader(folder / STATE_FILE)) as reader:
        return reader.load()
