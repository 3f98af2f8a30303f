"""The composed stack, as deploy/README.md starts it: ``make test-containers``.

The image is built, two cores, three api replicas and two timers run on RabbitMQ 4, containers are
killed and start again, volumes outlive ``down``, and ``down -v`` leaves nothing behind.

Not collected by ``make test``: it needs a Docker Engine, takes minutes and the tag of the image.
``DOCKER_BUILD_ARGS`` goes to ``docker build`` as it is (``--network host``, say).
"""

import json
import os
import shlex
import subprocess
import time
import uuid
from pathlib import Path

import httpx
import pytest

from tests.jobs import job

ROOT = Path(__file__).parent.parent.parent
FILES = [ROOT / "deploy" / name for name in ("compose.yaml", "compose.tokens.yaml")]
IMAGE = "muster:0.1.0"  # as compose.yaml has it
SCALE = {"core": 2, "api": 3, "timers": 2}
SERVICES = ("rabbitmq", "shim_adapter", *SCALE)
PATIENCE_SECONDS = 240
# ends whatever runs below the container's init, as a crash would
CRASH = """
import os, signal
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        os.kill(int(name), signal.SIGKILL)
"""


def run(*command, check=True):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if check and done.returncode:
        pytest.fail(
            f"{shlex.join(command)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


@pytest.fixture(scope="module")
def engine():
    """Fail, with a sentence, where no engine answers."""
    done = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(
            "make test-containers needs a Docker Engine with compose and found none: start one, or "
            f"point DOCKER_HOST at one. docker version says: {done.stderr.strip()[-300:]}"
        )


@pytest.fixture(scope="module")
def image(engine):
    more = shlex.split(os.environ.get("DOCKER_BUILD_ARGS", ""))
    run("docker", "build", *more, "-f", "deploy/Dockerfile", "-t", IMAGE, ".")
    return IMAGE


def test_the_image_says_what_is_in_it(image):
    """Its bill of materials (CycloneDX) has every package that is installed, by its version."""
    listed = """
from importlib.metadata import distributions
print(*sorted({f"{one.name}=={one.version}" for one in distributions()}), sep="\\n")
"""
    installed = run("docker", "run", "--rm", image, "python", "-c", listed).split()
    said = json.loads(run("docker", "run", "--rm", image, "cat", "/opt/muster/sbom.cdx.json"))
    assert said["bomFormat"] == "CycloneDX"
    own = said["metadata"]["component"]
    packages = {f"{item['name']}=={item['version']}" for item in [own, *said["components"]]}
    assert packages == set(installed)


class Stack:
    """A project of its own on the engine."""

    def __init__(self):
        self.project = f"muster-test-{uuid.uuid4().hex[:8]}"

    def compose(self, *arguments):
        files = [part for file in FILES for part in ("-f", str(file))]
        return run("docker", "compose", "-p", self.project, *files, *arguments)

    def up(self):
        scale = [part for name, count in SCALE.items() for part in ("--scale", f"{name}={count}")]
        self.compose("up", "-d", "--no-build", *scale)
        running = [name for service in SERVICES for name in self.containers(service)]
        until(lambda: all(map(self.is_healthy, running)), "all healthy", self)
        token = self.compose("exec", "-T", "api", "cat", "/run/muster/initial-token").strip()
        self.headers = {"Authorization": f"Bearer {token}"}

    def containers(self, service):
        return self.compose("ps", "-a", "-q", service).split()

    def asked(self, at, path, **more):
        """Return what a replica answers, by its number. Raises httpx.HTTPError."""
        answer = httpx.get(f"{self.apis()[at]}{path}", headers=self.headers, timeout=10, **more)
        answer.raise_for_status()
        return answer.json()

    def inspected(self, container):
        return json.loads(run("docker", "inspect", container))[0]

    def is_healthy(self, container):
        state = self.inspected(container)["State"]
        return state["Running"] and state["Health"]["Status"] == "healthy"

    def apis(self):
        """Return where each replica answers on this machine."""
        found = []
        for container in self.containers("api"):
            bound = self.inspected(container)["NetworkSettings"]["Ports"]["9080/tcp"]
            found.append(f"http://127.0.0.1:{bound[0]['HostPort']}")
        return found

    def crash(self, service):
        """Kill what the first container of a service runs; the engine is to start it again.

        Return which one it was.
        """
        container = self.containers(service)[0]
        before = self.inspected(container)["RestartCount"]
        run("docker", "exec", container, "python", "-c", CRASH, check=False)
        until(
            lambda: (
                self.inspected(container)["RestartCount"] > before and self.is_healthy(container)
            ),
            f"{service} was started again",
            self,
        )
        return container

    def left(self):
        """Return what the engine still has of this project."""
        of_us = f"label=com.docker.compose.project={self.project}"
        kinds = {
            "container": ["ps", "-a"],
            "volume": ["volume", "ls"],
            "network": ["network", "ls"],
        }
        return {
            kind: run("docker", *ls, "-q", "--filter", of_us).split() for kind, ls in kinds.items()
        }


def until(holds, what, stack=None):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except (httpx.HTTPError, LookupError, TypeError, ValueError):
            pass
        time.sleep(0.5)
    logs = stack.compose("logs", "--tail", "30") if stack is not None else ""
    pytest.fail(f"waited {PATIENCE_SECONDS} s in vain: {what}\n{logs}")


@pytest.fixture
def stack(image):
    found = Stack()
    try:
        yield found
    finally:
        found.compose("down", "-v", "--timeout", "20")


def submit(stack, at, name, run_seconds=1):
    """Submit a gang to a replica, once however often it must be asked."""
    gang = job(name, 4, gang=4, cpu="1", memory="1Gi", run_seconds=run_seconds)
    more = {"Content-Type": "application/yaml", "Idempotency-Key": name}

    def is_taken():
        url = f"{stack.apis()[at]}/v1/manifests"
        answer = httpx.post(url, content=gang, headers=stack.headers | more, timeout=20)
        return answer.status_code == 200

    until(is_taken, f"{name} is taken", stack)


def state_of(stack, at, name):
    return stack.asked(at, f"/v1/applications/{name}")["state"]


def has_run(stack, name, but=""):
    """Wait until every replica knows that it ran, but one that started since: it may not."""
    ends = ("Completing", "Completed")

    def all_know():
        asked = [at for at, replica in enumerate(stack.containers("api")) if replica != but]
        return all(state_of(stack, at, name) in ends for at in asked)

    until(all_know, f"{name} ran, and every replica knows", stack)


def places(stack, name):
    found = stack.asked(0, "/v1/pods", params={"application": name})["pods"]
    return {pod["name"]: pod["nodeID"] for pod in found}


@pytest.mark.limit(
    1800, "an image is built, a stack starts three times, each container ends and comes again"
)
def test_the_composed_stack_survives_crashes_and_down_and_leaves_nothing_when_told(stack):
    stack.up()
    assert {name: len(stack.containers(name)) for name in SCALE} == SCALE
    submit(stack, 0, "first")
    has_run(stack, "first")
    submit(stack, 1, "stays", run_seconds=86_400)
    until(lambda: state_of(stack, 2, "stays") == "Running", "stays runs", stack)
    kept = places(stack, "stays")
    assert len(kept) == 4

    for service in ("core", "timers", "shim_adapter", "api"):
        name = f"during-{service}".replace("_", "-")
        submit(stack, -1, name)
        crashed = stack.crash(service)
        has_run(stack, name, but=crashed)
    stack.compose("kill", "rabbitmq")
    stack.compose("up", "-d", "--no-build", "--no-recreate", "rabbitmq")
    submit(stack, 0, "after-the-broker")
    has_run(stack, "after-the-broker")

    stack.compose("down", "--timeout", "20")
    assert stack.left()["volume"], "volumes outlive down"
    stack.up()
    until(lambda: places(stack, "stays") == kept, "its pods are where they were", stack)
    submit(stack, 0, "anew")
    has_run(stack, "anew")

    stack.compose("down", "-v", "--timeout", "20")
    assert stack.left() == {"container": [], "volume": [], "network": []}
