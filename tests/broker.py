"""A RabbitMQ broker for the tests: RABBITMQ_URL, else a container, else a private process.

A container where a Docker engine answers and has, or can pull, the image. A broker of a test's own,
which it may kill and start again, is had in the same way, without RABBITMQ_URL.
Never a silent skip: when none can be had, ``BrokerUnavailableError`` says what to install.
"""

import contextlib
import functools
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.patience import longer

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
IMAGE = "rabbitmq:4-management"
_DEPLOY = Path(__file__).parent.parent / "deploy"
CLUSTER_CONF = _DEPLOY / "rabbitmq.cluster.conf"
CLUSTER_ADVANCED = _DEPLOY / "rabbitmq.cluster.advanced.config"
START_SECONDS = 240.0
SERVING_PORTS = (20_000, 32_000)
PULL_SECONDS = 600
CONTROL_SECONDS = 100  # of rabbitmqctl, which is a virtual machine that starts
LEADER_SECONDS = 120  # that a cluster may take to say who leads
STATE = (
    ("list_queues", "name", "type", "state", "messages_ready", "messages_unacknowledged", "consumers"),
    ("list_consumers", "queue_name", "channel_pid", "prefetch_count", "active", "activity_status"),
    ("list_connections", "pid", "state", "recv_oct", "send_oct", "timeout"),
)  # fmt: skip
_told: set[int] = set()  # ports
running: "dict[ContainerBroker | PrivateBroker, None]" = {}  # those of this process


class BrokerUnavailableError(RuntimeError):
    """No broker can be had; the message says what to install."""


def given_broker() -> str:
    """Return the URL of the broker that the environment gives, "" where it gives none."""
    return os.environ.get("RABBITMQ_URL", "")


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """Yield the URL of a broker, of that which the environment gives, or of one of our own."""
    url = given_broker()
    if url:
        yield url
    else:
        with own_broker() as own:
            yield own.url


def own_broker(definitions: str = "") -> "ContainerBroker | PrivateBroker":
    """Return a broker that nobody else uses, not yet started. Raises BrokerUnavailableError.

    With ``definitions`` (JSON) it has the users that stand there, and no guest.
    """
    missing = image_missing(IMAGE)
    if not missing:
        return ContainerBroker(definitions)
    if not SERVER.exists():
        raise BrokerUnavailableError(
            f"these tests need a RabbitMQ broker and found none ({missing}): set RABBITMQ_URL, "
            f"start a Docker engine that has or can pull {IMAGE}, or install the package "
            "rabbitmq-server (apt-get install rabbitmq-server), then run make test again"
        )
    return PrivateBroker(definitions)


def state_of(one: "ContainerBroker | PrivateBroker") -> list[str]:
    """Return what a broker says of its queues, consumers and connections, or why it says nothing."""
    lines = []
    for command in STATE:
        lines.append(" ".join(command))
        try:
            lines += one.control(*command).splitlines()
        except (OSError, subprocess.SubprocessError, AssertionError) as error:
            lines.append(f"no answer: {error!r}")
    return lines


@functools.cache
def image_missing(image: str) -> str:
    """Return why an image cannot be had here, "" when it can; it is pulled if it must be."""
    where = os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists()
    if not where and shutil.which("docker") is None:
        return "no Docker engine answers"
    import docker

    try:
        client = docker.from_env(timeout=20)
        client.ping()
    except (docker.errors.DockerException, OSError):
        return "no Docker engine answers"
    with contextlib.closing(client):
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.get(image)
            return ""
        client.api.timeout = PULL_SECONDS
        try:
            with longer(PULL_SECONDS):
                client.images.pull(image)
        except (docker.errors.DockerException, OSError) as error:
            return f"a Docker engine answers, and {image} cannot be pulled: {error}"
    return ""


def free_port() -> int:
    """Return a port that nobody listens on, below those that outgoing connections are given.

    One of those may be taken again before whoever is told of it comes to listen there; for the same
    reason none is told twice.
    """
    while True:
        port = random.randrange(*SERVING_PORTS)
        if port in _told:
            continue
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            _told.add(port)
            return port


class ContainerBroker:
    """A RabbitMQ in a container of its own, always on the same port of this machine."""

    def __init__(self, definitions: str = "") -> None:
        self._port = free_port()
        self._host = ""
        self._definitions = definitions
        self._container: Any = None

    @property
    def url(self) -> str:
        """Return where it listens, once it has been started."""
        return f"amqp://guest:guest@{self._host}:{self._port}/"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BrokerUnavailableError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        running.pop(self, None)
        self._container.stop()

    def start(self) -> None:
        """Start it, or start it again with the data that it had."""
        if self._container is None:
            from testcontainers.core.container import DockerContainer

            made = DockerContainer(IMAGE).with_bind_ports(5672, self._port)
            if self._definitions:
                folder = Path(tempfile.mkdtemp(prefix="muster-definitions-"))
                folder.chmod(0o755)
                (folder / "definitions.json").write_text(self._definitions)
                (folder / "20.conf").write_text("load_definitions = /etc/muster/definitions.json\n")
                made = made.with_volume_mapping(str(folder), "/etc/muster", "ro")
                conf = (str(folder / "20.conf"), "/etc/rabbitmq/conf.d/20-muster.conf", "ro")
                made = made.with_volume_mapping(*conf)
            self._container = made.start()
            self._host = self._container.get_container_host_ip()
        else:
            self._container.get_wrapped_container().start()
        _wait_for_handshake(self._host, self._port)
        running[self] = None

    def kill(self) -> None:
        """Kill the broker as a power cut would; its data stays."""
        running.pop(self, None)
        self._container.get_wrapped_container().kill()

    def stop(self) -> None:
        """Let the broker end; its data stays."""
        running.pop(self, None)
        self._container.get_wrapped_container().stop()

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl; return what it prints."""
        command = ["timeout", str(CONTROL_SECONDS), "rabbitmqctl", "-q", *arguments]
        status, said = self._container.get_wrapped_container().exec_run(command)
        assert status == 0, said
        return bytes(said).decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Shared:
    """What the nodes of a cluster have in common; ``configuration`` is rabbitmq.conf's."""

    cookie: str
    epmd_port: int
    configuration: str = ""


class PrivateBroker:
    """A rabbitmq-server process of our own: own node name, ports, data folder and cookie.

    A node of a cluster has the cookie and the port mapper of all of them (``shared``).
    """

    def __init__(self, definitions: str = "", shared: Shared | None = None) -> None:
        self._definitions = definitions
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self.node = f"muster{self.port}@localhost"
        self.configuration = ""  # further lines
        self.advanced = "[]."
        self._shared = shared or Shared(secrets.token_hex(16), free_port())
        self._is_alone = shared is None
        self._dist_port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="muster-broker-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        cookie = self._folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(self._shared.cookie)
            cookie.chmod(0o400)
        (self._folder / "enabled_plugins").write_text("[].\n")
        loads = ""
        if self._definitions:
            (self._folder / "definitions.json").write_text(self._definitions)
            loads = f"load_definitions = {self._folder}/definitions.json\n"
        (self._folder / "rabbitmq.conf").write_text(
            f"{loads}loopback_users.guest = true\nlog.console = false\ndisk_free_limit.absolute = 50MB\n"
            f"vm_memory_high_watermark.absolute = 2GB\n{self.configuration}"
        )
        (self._folder / "advanced.config").write_text(self.advanced)
        self._process = subprocess.Popen(
            [str(SERVER)],
            env=self._environment(),
            stdout=(self._folder / "stdout").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_for_handshake("127.0.0.1", self.port, self._process)
            running[self] = None
        except BrokerUnavailableError as error:
            log = (self._folder / "stdout").read_text(errors="replace")[-2000:]
            self.stop()
            raise BrokerUnavailableError(f"{error}\n{log}") from error

    def _environment(self) -> dict[str, str]:
        folder = str(self._folder)
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": folder,
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "ERL_EPMD_PORT": str(self._shared.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def kill(self) -> None:
        """Kill the broker as a power cut would; its data stays."""
        running.pop(self, None)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the broker: to stand still, or to go on."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def control(self, *arguments: str, seconds: float = CONTROL_SECONDS) -> str:
        """Run rabbitmqctl; return what it prints."""
        return subprocess.run(
            [str(SERVER.with_name("rabbitmqctl")), "-q", *arguments],
            env=self._environment(),
            capture_output=True,
            check=True,
            timeout=seconds,
        ).stdout.decode(errors="replace")

    def stop(self) -> None:
        """Stop the broker, and its port mapper where nobody shares it."""
        running.pop(self, None)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None
        if self._is_alone:
            _end_port_mapper(self._shared.epmd_port)


class BrokerCluster:
    """Three nodes that are one broker, with the settings of deploy/ for such.

    They start one after the other, and each joins the first; the last one imports the
    ``definitions`` (JSON).
    """

    def __init__(self, definitions: str = "", size: int = 3) -> None:
        self._epmd_port = free_port()
        shared = Shared(secrets.token_hex(16), self._epmd_port)
        self.nodes = [
            PrivateBroker(definitions if at == size else "", shared) for at in range(1, size + 1)
        ]
        for node in self.nodes:
            node.configuration = CLUSTER_CONF.read_text()
            node.advanced = CLUSTER_ADVANCED.read_text()
        for node in self.nodes[1:]:  # RabbitMQ 4 waits until all are up that a node names
            node.configuration += (
                "cluster_formation.peer_discovery_backend = classic_config\n"
                f"cluster_formation.classic_config.nodes.1 = {self.nodes[0].node}\n"
                f"cluster_formation.classic_config.nodes.2 = {node.node}\n"
            )
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        self.url = f"amqp://guest:guest@{hosts}/"

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            self._check()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
            node.__exit__()
        _end_port_mapper(self._epmd_port)

    def _check(self) -> None:
        named = self.nodes[0].control("cluster_status")
        missing = [node.node for node in self.nodes if named.count(node.node) < 2]
        if missing:
            raise BrokerUnavailableError(f"{missing} are not of the cluster:\n{named}")

    def wait_until_up(self) -> None:
        """Wait until every node serves clients: one that was apart from the others restarts."""
        for node in self.nodes:
            _wait_for_handshake("127.0.0.1", node.port)

    def leader_of(self, queue: str) -> PrivateBroker | None:
        """Return the node that leads a quorum queue, None where none does or none says."""
        for node in self.nodes:
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                rows = node.control(
                    "list_queues", "name", "leader", seconds=LEADER_SECONDS
                ).splitlines()
                leaders = dict(row.split("\t") for row in rows if row.count("\t") == 1)
                return next((one for one in self.nodes if one.node == leaders.get(queue)), None)
        return None


def _end_port_mapper(port: int) -> None:
    epmd = shutil.which("epmd")
    if epmd is not None:
        subprocess.run(
            [epmd, "-port", str(port), "-kill"],
            env={"ERL_EPMD_PORT": str(port), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=False,
        )


def _wait_for_handshake(
    host: str, port: int, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait until the broker speaks AMQP; an open port alone does not mean that."""
    with longer(START_SECONDS):
        _wait_until_it_speaks(host, port, process)


def _wait_until_it_speaks(
    host: str, port: int, process: subprocess.Popen[bytes] | None = None
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise BrokerUnavailableError(f"rabbitmq-server ended with status {process.returncode}")
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), timeout=2) as link,
        ):
            link.settimeout(5)
            link.sendall(b"AMQP\x00\x00\x09\x01")
            if link.recv(1) == b"\x01":
                return
        time.sleep(0.2)
    raise BrokerUnavailableError(f"no AMQP handshake on {host}:{port} within {START_SECONDS:g} s")
