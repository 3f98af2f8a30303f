"""What people are told while a part is away: each service in its own process, on a real broker."""

import contextlib
import signal
import subprocess
import sys
import uuid

import pytest

from services.cli.exits import Exit
from tests.integration.processes import HTTP, ROOT, Deployment

pytestmark = pytest.mark.xdist_group("processes")

POD = """
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {applicationId: one, queue: root.default}}
spec:
  schedulerName: yunikorn
  containers: [{name: c, image: i, resources: {requests: {cpu: "1", memory: 1Gi}}}]
"""


@pytest.fixture
def deployment(broker_url, tmp_path):
    deployment = Deployment(
        broker_url, tmp_path, f"works-{uuid.uuid4().hex[:8]}", MUSTER_POD_RUN_SECONDS="0"
    )
    try:
        deployment.start_all()
        deployment.submit(POD)
        deployment.wait(lambda: deployment.application("one")["running"] == 1, "a pod that runs")
        yield deployment
    finally:
        for process in deployment.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        deployment.stop()


def ready(deployment):
    answered = HTTP.get(f"{deployment.url}/health/ready")
    return answered.status_code, answered.json()["status"]


def command(deployment, *words, stdin=""):
    done = subprocess.run(
        [sys.executable, "-m", "tools.main", *words, "--url", deployment.url],
        cwd=ROOT, env=deployment.environment | {"PYTHONPATH": str(ROOT)},
        input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def at_work(deployment):
    """Return the services that the metrics of the API say are at work."""
    text = HTTP.get(f"{deployment.url}/metrics").text
    rows = [line for line in text.splitlines() if line.startswith("muster_at_work{")]
    return {line.split('service="')[1].split('"')[0]: line.split()[-1] for line in rows}


@pytest.mark.limit(300, "four services are missed and come back, commands are processes")
def test_whoever_is_away_is_named_everywhere_and_what_was_known_is_shown(deployment):
    assert ready(deployment) == (200, "ready")
    deployment.wait(lambda: set(at_work(deployment).values()) == {"1.0"}, "all have been heard")
    core = deployment.processes["core"]
    core.send_signal(signal.SIGSTOP)
    deployment.wait(lambda: ready(deployment)[0] == 503, "it is noticed that the core stands still")
    assert ready(deployment)[1].startswith("no core has been at work for ")
    assert at_work(deployment)["core"] == "0.0"
    health = deployment.get("/ws/v1/scheduler/healthcheck")
    failed = [
        check["DiagnosisMessage"] for check in health["HealthChecks"] if not check["Succeeded"]
    ]
    assert (health["Healthy"], len(failed)) == (False, 1)
    assert failed[0].startswith("no core has been at work for ")
    for words in (("apps",), ("why", "one"), ("nodes",)):
        status, out, error = command(deployment, *words)
        assert status == Exit.NO_ANSWER, (words, out, error)
        assert "no core has been at work for " in error
        assert "last known state" in error
        assert out.strip()
    status, out, error = command(deployment, "submit", "-f", "-", stdin=POD.replace("one", "two"))
    assert status == Exit.WAITING, (out, error)
    assert "accepted" in out
    assert "handed in" in error
    core.send_signal(signal.SIGCONT)
    deployment.wait(lambda: ready(deployment)[0] == 200, "it goes on")
    deployment.wait(
        lambda: deployment.application("two")["running"] == 1, "what was handed in runs"
    )
    for service, name in (("timers", "timer service"), ("shim_adapter", "shim adapter")):
        deployment.kill(service)
        deployment.wait(lambda: ready(deployment)[0] == 503, f"{service} is missed")
        assert ready(deployment)[1].startswith(f"no {name} has been at work for ")
        deployment.start(service)
        deployment.wait(lambda: ready(deployment)[0] == 200, f"{service} is back")
    assert command(deployment, "apps")[0] == Exit.DONE
