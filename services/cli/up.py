"""`muster up`: everything in one process, its progress live on the terminal."""

import asyncio
import os
import signal
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from services.api.documents import read_documents
from services.api.progress import all_progress
from services.api.replica import Replica
from services.api.routes import make_app
from services.api.server import serve
from services.cli.launcher import LocalCluster
from services.cli.render import APPLICATIONS
from services.cli.render import console as make_console
from services.cli.table import terminal_table
from services.core.configuration import parse_configuration
from services.core.plugins import find_plugin
from services.core.scheduler.model.hooks import PluginError
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.scheduler import ConfigurationError
from services.shim_adapter.backends.kubernetes.access import AccessError, find_access
from services.shim_adapter.config_watch import watch
from services.shim_adapter.kubernetes_service import KubernetesService
from services.shim_adapter.service import ShimOptions
from shared.bus.errors import BusUnavailableError
from shared.bus.factory import UnknownBusError, bus_factory
from shared.messages.commands import SubmitManifests, SubmitResult
from shared.model.resources import MEMORY, PODS, VCORE
from shared.model.units import milliseconds, seconds
from shared.runtime.clock import SystemClock
from shared.runtime.logs import set_up_logs

EXIT_CONFIGURATION = 78
DEMO_SETTINGS = {"gangAdmission": "cluster"}  # a gang gets all its places at once, or holds none
NODE_CAPACITY = {VCORE: 8_000, MEMORY: 32 * 2**30, PODS: 110}
_REFRESH_SECONDS = 0.25
_READY_SECONDS = 60.0
_START_DELAY_MS = 200
_CONFIRM_DELAY_MS = 300
_DEMO = files("services.cli") / "demo"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `muster up` was asked to do."""

    bus: str
    demo: bool
    once: bool
    config: Path | None
    nodes: int
    port: int
    state_dir: Path | None
    prefix: str
    kubeconfig: Path | None = None
    plugins: str = ""


def run_up(options: UpOptions) -> int:
    """Run until interrupted, or with ``once`` until every application has ended."""
    set_up_logs(level="warning")
    try:
        config = _config(options)
        parse_configuration(config)
        make_bus = bus_factory(options.bus, prefix=options.prefix, name="muster up")
        simulated = ShimOptions(
            state_dir=options.state_dir,
            config=config,
            scheduler_settings=_scheduler_settings(options),
            start_delay_ns=milliseconds(_START_DELAY_MS),
            confirm_delay_ns=milliseconds(_CONFIRM_DELAY_MS),
            default_run_ns=seconds(10),
            nodes=options.nodes,
            node_capacity=NODE_CAPACITY,
        )
        kubernetes = _kubernetes(options)
        cluster = LocalCluster(make_bus, SystemClock(), simulated, kubernetes=kubernetes)
        return asyncio.run(_run(cluster, options))
    except (
        OSError, UnknownBusError, ConfigurationError, BusUnavailableError, AccessError, PluginError,
    ) as error:  # fmt: skip
        print(f"muster up: {error}", file=sys.stderr)
        return EXIT_CONFIGURATION


def _kubernetes(options: UpOptions) -> KubernetesService | None:
    """Return what looks after a Kubernetes cluster's pods, where one is named."""
    if options.kubeconfig is None:
        return None
    if options.demo or options.config or options.state_dir or options.plugins:
        raise AccessError(
            "--kubeconfig goes without --demo, --config, --state-dir and --plugins: the cluster "
            "has its own pods, and its ConfigMap yunikorn-configs has the queues and the settings"
        )
    return KubernetesService(find_access(options.kubeconfig), instance=f"muster-up-{os.getpid()}")


def _scheduler_settings(options: UpOptions) -> dict[str, str]:
    """Return the scheduler settings of a new cluster. Raises PluginError."""
    chosen = settings_from([("plugins", options.plugins)]).plugins
    for name in chosen:
        find_plugin(name)
    return {**(DEMO_SETTINGS if options.demo else {}), "plugins": ",".join(chosen)}


def _config(options: UpOptions) -> str:
    if options.config is not None:
        return options.config.read_text()
    return (_DEMO / "queues.yaml").read_text() if options.demo else ""


async def _run(cluster: LocalCluster, options: UpOptions) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    console = make_console()
    await cluster.start()
    app = make_app(Replica(lambda: cluster.running["api"].host, lambda: cluster.api))
    web = asyncio.create_task(serve(app, "127.0.0.1", options.port))
    beside = [asyncio.create_task(watch(lambda: cluster.host_of("shim_adapter"), options.config))]
    if cluster.kubernetes is not None:
        running = cluster.kubernetes.run(lambda: cluster.host_of("shim_adapter"))
        beside.append(asyncio.create_task(running))
    try:
        await _until_ready(cluster, web)
        where = f"http://127.0.0.1:{options.port}" if options.port else "a free port"
        nodes = len(cluster.api.projection.model.nodes)
        console.print(f"Muster is up: {nodes} nodes, API on {where}, bus {_bus(options)}")
        if options.demo:
            await _submit_demo(cluster, console)
        if await _watch(cluster, options, console, stopping, web):
            _summary(cluster, console)
    finally:
        for task in (web, *beside):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await cluster.stop()
    return 0


def _bus(options: UpOptions) -> str:
    return "in this process" if options.bus == "memory" else "RabbitMQ"


async def _until_ready(cluster: LocalCluster, web: "asyncio.Task[None]") -> None:
    """Wait until the API follows the core. Raises OSError when the port is taken."""
    async with asyncio.timeout(_READY_SECONDS):
        while not cluster.api.projection.is_ready:  # noqa: ASYNC110 - hosts have no such event
            await asyncio.sleep(0.02)
    if web.done():
        web.result()


async def _submit_demo(cluster: LocalCluster, console: Console) -> None:
    for item in sorted(_DEMO.iterdir(), key=lambda item: item.name):
        if item.name == "queues.yaml" or not item.name.endswith(".yaml"):
            continue
        documents = read_documents(item.read_bytes(), item.name)
        result = await cluster.ask(SubmitManifests(documents))
        assert isinstance(result, SubmitResult)
        for refused in result.refused:
            console.print(f"refused {refused.source}: {refused.field_path}: {refused.message}")


async def _watch(
    cluster: LocalCluster,
    options: UpOptions,
    console: Console,
    stopping: asyncio.Event,
    web: "asyncio.Task[None]",
) -> bool:
    """Show the applications until told to stop; with ``once`` return True when all have ended."""
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    told: dict[str, str] = {}
    with live or nullcontext():
        while not stopping.is_set() and not web.done():
            progress = all_progress(cluster.api.projection.model)
            if live is not None:
                live.update(terminal_table(progress, APPLICATIONS, console.width), refresh=True)
            else:
                _print_changes(progress, told)
            if options.once and progress and all(item["hasEnded"] for item in progress):
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _REFRESH_SECONDS)
    if web.done() and not web.cancelled():
        web.result()
    return False


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


def _summary(cluster: LocalCluster, console: Console) -> None:
    progress = all_progress(cluster.api.projection.model)
    states: dict[str, int] = {}
    for item in progress:
        states[item["state"]] = states.get(item["state"], 0) + 1
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    hosts = [running.host for running in cluster.running.values()]
    published = sum(host.metrics.published_total for host in hosts)
    console.print(f"\n{len(progress)} applications ended: {counted}")
    console.print(f"{cluster.core.decisions} decisions, {published} messages on the bus")
