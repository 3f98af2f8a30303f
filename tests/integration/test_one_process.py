"""One process for all: what `muster up` survives, and how what it keeps moves to services on a broker.

What docs/one-process.md says, tried.
"""

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.broker import free_port
from tests.integration.processes import HTTP, ROOT, Deployment, world_in

pytestmark = pytest.mark.xdist_group("processes")

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: NAME}
spec:
  completions: 3
  parallelism: 3
  template:
    metadata:
      labels: {applicationId: NAME, queue: root.default}
      annotations: {muster.io/run-seconds: "3600"}
    spec:
      schedulerName: yunikorn
      containers: [{name: c, image: i, resources: {requests: {cpu: "CPU", memory: 1Gi}}}]
"""


def job(name: str, cpu: str = "1") -> str:
    return JOB.replace("NAME", name).replace("CPU", cpu)


class OneProcess(Deployment):
    """A `muster up` with a state folder, asked and looked into as a deployment is."""

    def __init__(self, folder: Path) -> None:
        super().__init__("", folder, "unused")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def command(self, service: str) -> list[str]:
        options = ["--port", str(self.port), "--nodes", "3", "--state-dir", str(self.state)]
        return [sys.executable, "-m", "tools.main", "up", *options]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def start_all(self) -> None:
        self.start("up")
        self.wait(lambda: HTTP.get(f"{self.url}/health/ready").status_code == 200, "ready")


def places(folder: Path) -> dict[str, str]:
    """Return on which node each pod is, by its uid, as the file has it."""
    return {pod.uid: pod.node for pod in world_in(folder).pods.values() if pod.node}


def runs(deployment: Deployment, name: str) -> bool:
    return deployment.application(name)["running"] == 3


def handed_in(deployment: Deployment, name: str, cpu: str = "1") -> None:
    deployment.submit(job(name, cpu))


def test_what_was_answered_is_there_after_a_kill_and_what_runs_stays_where_it_is(tmp_path):
    up = OneProcess(tmp_path)
    try:
        up.start_all()
        handed_in(up, "first")
        handed_in(up, "too-large", cpu="1000")
        up.wait(lambda: len(places(up.state)) == 3, "its pods are bound")
        before = places(up.state)
        handed_in(up, "last")  # is answered, and that is all
        up.kill("up")
        up.start_all()
        up.wait(lambda: runs(up, "first") and runs(up, "last"), "both run")
        up.wait(lambda: up.application("too-large")["state"] == "Accepted", "it waits as it did")
        up.wait(lambda: len(places(up.state)) == 6, "all of them are bound")
        after = places(up.state)
        assert {uid: after[uid] for uid in before} == before
    finally:
        up.stop()


@pytest.mark.long
def test_a_second_process_on_the_same_folder_is_refused(tmp_path):
    up = OneProcess(tmp_path)
    try:
        up.start_all()
        second = OneProcess(tmp_path)
        done = subprocess.run(
            second.command("up"), cwd=ROOT, env=up.environment | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 78
        assert "is in use by another shim adapter: stop it first" in done.stderr
    finally:
        up.stop()


@pytest.mark.long
@pytest.mark.limit(300, "five processes after one, and one after them")
def test_what_it_keeps_moves_to_services_on_a_broker_and_back(broker_url, tmp_path):
    up = OneProcess(tmp_path)
    services = Deployment(broker_url, tmp_path, f"moved-{uuid.uuid4().hex[:8]}")
    try:
        up.start_all()
        handed_in(up, "before")
        up.wait(lambda: len(places(up.state)) == 3, "its pods are bound")
        before = places(up.state)
        up.processes["up"].send_signal(signal.SIGTERM)
        assert up.processes.pop("up").wait(60) == 0
        services.start_all()
        handed_in(services, "on-a-broker")
        services.wait(lambda: runs(services, "before"), "it runs there")
        services.wait(lambda: runs(services, "on-a-broker"), "so does what came since")
        services.wait(lambda: len(places(up.state)) == 6, "all of them are bound")
        moved = places(services.folder / "state")
        assert {uid: moved[uid] for uid in before} == before
        services.stop()
        up.start_all()
        up.wait(lambda: runs(up, "before") and runs(up, "on-a-broker"), "both run again")
        assert places(up.state) == moved
    finally:
        services.stop()
        up.stop()
