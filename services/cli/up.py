"""`muster up`: everything in one process, its progress live on the terminal."""

import asyncio
import os
import re
import shutil
import signal
import socket
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console, Group
from rich.live import Live

from services.api.machine import NoAnswerError, TooManyRequestsError, UnsendableError
from services.api.replica import Replica
from services.api.routes.app import make_app
from services.api.views.progress import all_progress
from services.api.web.documents import read_documents
from services.api.web.server import ListenError, listen, serve
from services.cli.client import DEFAULT_URL
from services.cli.demo.plan import ROUND_SECONDS, plan
from services.cli.exits import Exit, status_of
from services.cli.files import text_of
from services.cli.launcher import LocalCluster
from services.cli.render import APPLICATIONS
from services.cli.render import console as make_console
from services.cli.said import complain
from services.cli.simulated_nodes import NodesError, drawn_levels, in_racks, nodes_of
from services.cli.snapshot_file import Snapshot, SnapshotError, read_snapshot
from services.cli.table import terminal_table
from services.core.configuration import parse_configuration
from services.core.plugins import find_plugin
from services.core.scheduler.model.hooks import PluginError
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.scheduler import ConfigurationError
from services.shim_adapter.backends.kubernetes.access import AccessError, find_access
from services.shim_adapter.backends.kubernetes.configuration import settings_of_environment
from services.shim_adapter.config_watch import watch
from services.shim_adapter.kubernetes_service import KubernetesService
from services.shim_adapter.queue_file import QueueFile, queue_file
from services.shim_adapter.records import NodeRecord
from services.shim_adapter.service import ShimOptions
from shared.bus.errors import BusUnavailableError
from shared.bus.factory import MEMORY, UnknownBusError, bus_factory
from shared.messages.commands import CommandResult, SubmitManifests, SubmitResult
from shared.model.scheduler_settings import MAX_LEVELS, TOPOLOGY_LEVELS, topology_levels
from shared.model.service_keys import from_environment
from shared.model.states import ApplicationState
from shared.model.units import milliseconds, seconds
from shared.queueconfig import QueueConfigError
from shared.runtime.clock import SystemClock
from shared.runtime.logs import set_up_logs

PRESET = "muster"  # a gang gets all its places at once, or holds none
DEMO_SETTINGS = {"preset": PRESET}
_REFRESH_SECONDS = 0.25
_READY_SECONDS = 60.0
_SLOW_SECONDS = 1.5
_IDLE_LOOKS = 4  # without an application: those of a state that is recovered come with the core
_MOST_LIVE = 12  # live applications of the demo; it waits until one has ended
_BESIDE_THE_TABLE = 8  # lines of a terminal
_PREFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_START_DELAY_MS = 200
_CONFIRM_DELAY_MS = 300
_DEMO = Path(__file__).with_name("demo")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `muster up` was asked to do."""

    bus: str = "memory"
    demo: bool = False
    once: bool = False
    config: Path | None = None
    nodes: str = "20"
    port: int = 9080
    state_dir: Path | None = None
    prefix: str = "muster"
    kubeconfig: Path | None = None
    plugins: str = ""
    capacity: str = ""
    gpus: int = 0
    labels: str = ""
    racks: int = 0
    blocks: int = 0
    levels: str = ""
    preset: str = PRESET
    snapshot: Path | None = None


class StartError(RuntimeError):
    """Muster does not come up; the message says what is missing."""


_REFUSED = (
    OSError, UnknownBusError, ConfigurationError, BusUnavailableError, AccessError, PluginError,
    NodesError, SnapshotError, StartError,
)  # fmt: skip


def run_up(options: UpOptions) -> int:
    """Run until interrupted, or with ``once`` until every application has ended.

    Files, names and the port are judged before anything starts.
    """
    set_up_logs(level="warning")
    try:
        found = _snapshot(options)
        config = found.config if found is not None else _config(options)
        kubernetes = _kubernetes(options)
        make_bus = bus_factory(options.bus, prefix=_prefix(options.prefix), name="muster up")
        simulated = ShimOptions(
            state_dir=_folder(options.state_dir),
            config=config.text,
            scheduler_settings=_scheduler_settings(options, config),
            start_delay_ns=milliseconds(_START_DELAY_MS),
            confirm_delay_ns=milliseconds(_CONFIRM_DELAY_MS),
            default_run_ns=seconds(10),
            first_nodes=found.nodes if found is not None else _nodes(options),
        )
        with listen("127.0.0.1", options.port) as listening:
            cluster = LocalCluster(make_bus, SystemClock(), simulated, kubernetes=kubernetes)
            return asyncio.run(_Up(cluster, options, listening, found).run())
    except _REFUSED as error:
        complain(f"muster up: {_sentence(error)}")
        return status_of(error, Exit.CONFIGURATION)


def _sentence(error: Exception) -> str:
    """Return what is said of an error; one of the system names its file as users write it."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    hint = "; another Muster? --port 0 takes a free one" if isinstance(error, ListenError) else ""
    return f"{error or repr(error)}{hint}"


def _prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise StartError(f"--prefix {prefix!r}: up to 64 letters, digits, - and _ are expected")
    return prefix


def _folder(folder: Path | None) -> Path | None:
    """Make the folder of the state where it is not there yet."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _nodes(options: UpOptions) -> tuple[NodeRecord, ...]:
    if options.kubeconfig is not None:
        return ()
    nodes = nodes_of(options.nodes, options.capacity, options.gpus, options.labels)
    return in_racks(nodes, options.racks, options.blocks)


def _kubernetes(options: UpOptions) -> KubernetesService | None:
    """Return the resource manager of a Kubernetes cluster, where one is named."""
    if options.kubeconfig is None:
        return None
    own = options.demo or options.config or options.state_dir or options.plugins
    if own or options.levels or options.racks or options.blocks:
        raise AccessError(
            "--kubeconfig cannot be combined with --demo, --config, --state-dir, --plugins, "
            "--levels, --racks "
            "and --blocks: the cluster "
            "has its own pods, and its ConfigMap yunikorn-configs has the queues and the settings"
        )
    return KubernetesService(
        find_access(options.kubeconfig),
        instance=f"muster-up-{os.getpid()}",
        environment=from_environment(os.environ),
    )


def _scheduler_settings(options: UpOptions, config: QueueFile) -> dict[str, str]:
    """Return the scheduler settings of a new cluster. Raises PluginError.

    Those beside the queues in a ConfigMap or a chart's values go before the preset.
    """
    chosen = settings_from([("plugins", options.plugins)]).plugins
    for name in chosen:
        find_plugin(name)
    levels = options.levels or drawn_levels(options.racks, options.blocks)
    if topology_levels(levels) is None:
        raise StartError(
            f"--levels {levels}: different labels of nodes with commas are expected, each as LABEL "
            f"or NAME=LABEL, at most {MAX_LEVELS}"
        )
    plugins = {"plugins": ",".join(chosen)} if chosen else {}
    drawn = {TOPOLOGY_LEVELS: levels} if levels else {}
    own = settings_of_environment(os.environ)
    return {"preset": options.preset, **own, **config.settings, **plugins, **drawn}


def _snapshot(options: UpOptions) -> Snapshot | None:
    """Return the cluster of --from, where it is given. Raises SnapshotError, OSError."""
    if options.snapshot is None:
        return None
    if options.demo or options.config or options.kubeconfig:
        raise SnapshotError(
            "--from cannot be combined with --demo, --config and --kubeconfig: the file has the "
            "nodes, the "
            "queues and the pods"
        )
    return read_snapshot(options.snapshot)


def _config(options: UpOptions) -> QueueFile:
    """Return the queues that hold at first. Raises ConfigurationError with their file's name."""
    if options.config is None:
        return QueueFile((_DEMO / "queues.yaml").read_text() if options.demo else "")
    try:
        found = queue_file(text_of(options.config))
        parse_configuration(found.text)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{options.config}: not UTF-8: {error}") from error
    except (ConfigurationError, QueueConfigError) as error:
        raise ConfigurationError(f"{options.config}: {error}") from error
    return found


class _Up:
    """One `muster up`: the services, the API, what is shown of them, and their end."""

    def __init__(
        self,
        cluster: LocalCluster,
        options: UpOptions,
        listening: socket.socket,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.cluster = cluster
        self.snapshot = snapshot
        self.options = options
        self.listening = listening
        self.console = make_console()
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.stopping = asyncio.Event()
        self._beside: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Start, show and stop; a signal is respected at any time."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stopping.set)
        starting = asyncio.create_task(self._start())
        try:
            if not await self._is_done(starting):
                complain("muster up: stopped before it was up")
                return Exit.INTERRUPTED
            if await self._watch():
                self._summary()
            else:
                self.console.print("Muster has stopped.")
            return Exit.DONE
        finally:
            for task in (starting, *self._beside):
                task.cancel()
                with suppress(asyncio.CancelledError, *_REFUSED):
                    await task
            await self.cluster.stop()

    async def _is_done(self, task: "asyncio.Task[None]") -> bool:
        """Wait for a task; return False when we are to stop first. Raises what the task raises."""
        stop = asyncio.create_task(self.stopping.wait())
        slow = asyncio.create_task(self._print_what_is_waited_for())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        slow.cancel()
        if task.done():
            task.result()
        return task.done()

    async def _print_what_is_waited_for(self) -> None:
        await asyncio.sleep(_SLOW_SECONDS)
        waits_for = "its state" if self.options.bus == MEMORY else f"RabbitMQ at {self._broker}"
        complain(f"muster up: waiting for {waits_for}; Ctrl-C ends")

    @property
    def _broker(self) -> str:
        """Return the broker's address without the password in it."""
        return urlsplit(self.options.bus).netloc.rpartition("@")[2]

    async def _start(self) -> None:
        """Start everything and wait until it answers."""
        cluster, options = self.cluster, self.options
        try:
            await cluster.start()
        except BusUnavailableError as error:
            raise StartError(
                f"no RabbitMQ at {self._broker}: {error.__cause__ or error}. Is it running there? "
                "Without --bus everything runs in this process"
            ) from error
        app = make_app(
            Replica(lambda: cluster.running["api"].host, lambda: cluster.api, beats=True)
        )
        beside = [
            serve(app, self.listening),
            watch(lambda: cluster.host_of("shim_adapter"), options.config),
        ]
        if cluster.kubernetes is not None:
            beside.append(cluster.kubernetes.run(lambda: cluster.host_of("shim_adapter")))
        self._beside = [asyncio.create_task(item) for item in beside]
        await self._until_ready()
        nodes = sum(len(item.model.nodes) for item in cluster.api.partitions)
        bus = "in this process" if options.bus == MEMORY else f"RabbitMQ at {self._broker}"
        self.console.print(f"Muster is up: {nodes} nodes, API on {self.url}, bus {bus}")
        if self.snapshot is not None:
            for command in self.snapshot.commands():
                self._print_refused(await cluster.ask(command))
        if options.demo:
            await self._submit_demo()
        if not options.once:
            self._hints()
            if options.demo:
                self._beside.append(asyncio.create_task(self._go_on()))

    async def _until_ready(self) -> None:
        """Wait until the API follows the core."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not self.cluster.api.is_ready:
                    self._check()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise StartError(
                f"not up after {_READY_SECONDS:g} s: the core has not reported. Does another "
                f"Muster use this broker with the prefix {self.options.prefix!r}? Try --prefix"
            ) from None

    def _check(self) -> None:
        """Raise what ended a part that should run on."""
        for task in self._beside:
            if task.done() and not task.cancelled():
                task.result()
                raise StartError(
                    "a service of Muster has ended unexpectedly; its log line says why"
                )

    async def _submit_demo(self) -> None:
        for item in sorted(_DEMO.iterdir(), key=lambda item: item.name):
            if item.name == "queues.yaml" or not item.name.endswith(".yaml"):
                continue
            documents = read_documents(item.read_bytes(), item.name)
            self._print_refused(await self.cluster.ask(SubmitManifests(documents)))

    def _print_refused(self, result: object) -> None:
        """Print what of a submission was refused."""
        if isinstance(result, CommandResult) and not result.done:
            self.console.print(f"refused {result.message}")
        if isinstance(result, SubmitResult):
            for refused in result.refused:
                said = f"{refused.source}: {refused.field_path}: {refused.message}"
                self.console.print(f"refused {said}")

    async def _go_on(self) -> None:
        """Have users submit more, by the demo's plan, until we are to stop.

        While _MOST_LIVE applications are there the plan waits. What a service does not answer in
        time is left out. The first round says what there is to see.
        """
        started = monotonic()
        for step in plan([*self.cluster.shim_machine.world.nodes.values()]):
            await asyncio.sleep(step.after)
            while self._live() >= _MOST_LIVE:  # noqa: ASYNC110 - nothing tells when one has ended
                await asyncio.sleep(_REFRESH_SECONDS)
            with suppress(NoAnswerError, TooManyRequestsError, UnsendableError, KeyError):
                await self.cluster.ask(step.message)
            if step.note and monotonic() - started < ROUND_SECONDS:
                self.console.print(f"now: {step.note}", soft_wrap=True, highlight=False)

    def _live(self) -> int:
        """Return how many applications have something that runs or waits."""
        models = self.cluster.api.partitions.models
        views = (view for model in models for view in model.applications.values())
        return sum(view.summary.state != ApplicationState.COMPLETING for view in views)

    def _hints(self) -> None:
        """Say how to leave, and what to try beside it."""
        where = "" if self.url == DEFAULT_URL else f"export MUSTER_API_URL={self.url}"
        activate = "" if shutil.which("muster") else ". .venv/bin/activate"
        name = "spark-pi" if self.options.demo else "NAME"
        tries = (
            ("muster apps", "what each waits for"),
            (f"muster app {name}", "one of them, pod by pod"),
            (f"muster why {'mpi-next' if self.options.demo else 'NAME'}", "why it waits, or runs"),
            (f"muster trace {name}", "every message behind it"),
            ("muster submit -f FILE", "Job, PyTorchJob, SparkApplication, RayJob, …"),
        )
        lines = [line for line in (activate, where) if line]
        lines += [f"{command:<24} {what}" for command, what in tries]
        lines.append(f"{self.url + '/':<24} the live page, in a browser")
        self.console.print("Ctrl-C ends it. To try in another terminal:")
        self.console.print("\n".join(f"  {line}" for line in lines) + "\n")

    async def _watch(self) -> bool:
        """Show the applications until stopped; with ``once`` return True at their end."""
        live = Live(console=self.console, auto_refresh=False) if _can_draw(self.console) else None
        told: dict[str, str] = {}
        had_ended, idle = True, 0
        with live or nullcontext():
            while not self.stopping.is_set():
                self._check()
                progress = all_progress(self.cluster.api.partitions.models)
                if live is not None:
                    live.update(_table(progress, self.console), refresh=True)
                else:
                    _print_changes(progress, told)
                has_ended = all(item["hasEnded"] for item in progress)
                idle = 0 if progress else idle + 1
                if self.options.once and has_ended and (progress or idle > _IDLE_LOOKS):
                    return True
                if has_ended and not had_ended and not self.options.demo:
                    self._print_all_has_ended(progress)
                had_ended = has_ended
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), _REFRESH_SECONDS)
        return False

    def _print_all_has_ended(self, progress: list[dict[str, Any]]) -> None:
        self.console.print(
            f"{_counted(progress)}. Nothing waits any more: submit more with "
            "`muster submit -f FILE`, or Ctrl-C ends."
        )

    def _summary(self) -> None:
        progress = all_progress(self.cluster.api.partitions.models)
        if not progress:
            self.console.print("There is nothing to do: no application, and --once. See --demo.")
            return
        hosts = [running.host for running in self.cluster.running.values()]
        published = sum(host.metrics.published_total for host in hosts)
        self.console.print(f"\n{_counted(progress)}")
        decisions = self.cluster.core.decisions
        self.console.print(f"{decisions} decisions, {published} messages on the bus")


def _can_draw(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal


def _table(progress: list[dict[str, Any]], console: Console) -> Group:
    """Return the table as far as the terminal has room, those that have not ended first."""
    most = max(1, console.height - _BESIDE_THE_TABLE)
    chosen = sorted(progress, key=lambda item: item["hasEnded"])[:most]
    table = terminal_table(chosen, APPLICATIONS, console.width)
    left = len(progress) - len(chosen)
    return Group(table, *[f"… and {left} more: `muster apps`"] * bool(left))


def _counted(progress: list[dict[str, Any]]) -> str:
    states = Counter(item["state"] for item in progress)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{len(progress)} applications ended: {counted}"


def _print_changes(progress: list[dict[str, Any]], told: dict[str, str]) -> None:
    """Print a line for each application that has changed: no terminal, no live table."""
    for item in progress:
        gang = item["placeholders"]
        line = f"{item['applicationID']:<16} {item['state']:<10} running {item['running']}"
        if gang["wanted"]:
            line += f", placeholders {gang['wanted']} wanted, {gang['held']} held"
            line += f", {gang['replaced']} replaced, {gang['timedout']} timed out"
        why = item["waiting"][0]["reason"] if item["waiting"] else item["message"]
        line += f"  {why}" if why else ""
        if told.get(item["applicationID"]) != line:
            told[item["applicationID"]] = line
            print(line, flush=True)
