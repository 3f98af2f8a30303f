"""All four services in one process, on any bus and any clock; each can crash and start again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import structlog

from services.api.machine import ApiMachine
from services.core import service as core_service
from services.core.forecast_process import CAN_COPY
from services.core.scheduler.scheduler import Scheduler
from services.shim_adapter.kubernetes_service import KubernetesService
from services.shim_adapter.machine import ShimMachine
from services.shim_adapter.service import INBOX as SHIM_INBOX
from services.shim_adapter.service import ShimOptions, ShimService
from services.timers import service as timers_service
from shared.bus.base import Bus
from shared.messages.envelope import Address
from shared.model.names import DEFAULT_PARTITION
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.host import Host, HostOptions
from shared.runtime.machine import Machine
from shared.runtime.members import Members

# The API first: it hears the others from their first word on.
SERVICES = ("api", "core", "timers", "shim_adapter")
_RESTART_SECONDS = 0.5
_POLL_SECONDS = 0.002
log = structlog.get_logger("muster.launcher")


@dataclass(slots=True)
class Running:
    """A service that runs: what runs it, its own connection, and the task that drives it."""

    runner: Host | Members
    bus: Bus
    task: "asyncio.Task[None]"

    @property
    def hosts(self) -> dict[str, Host]:
        """Return its hosts by partition; a service that is of no partition has that of default."""
        runner = self.runner
        return runner.hosts if isinstance(runner, Members) else {DEFAULT_PARTITION: runner}

    @property
    def host(self) -> Host:
        """Return its host, of several the default partition's."""
        return self.hosts[DEFAULT_PARTITION]

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits for something to come."""
        return self.runner.is_waiting

    @property
    def is_connected(self) -> bool:
        """Return whether it reads its inbox, or all of them."""
        return self.runner.is_connected


@dataclass
class LocalCluster:
    """The four services of one process."""

    make_bus: Callable[[], Bus]
    clock: Clock
    shim: ShimOptions = field(default_factory=ShimOptions)
    host_options: HostOptions = field(default_factory=HostOptions)
    wrap_machine: Callable[[str, Machine], Machine] = lambda _, machine: machine
    kubernetes: KubernetesService | None = None  # in place of a simulated cluster

    def __post_init__(self) -> None:
        self.running: dict[str, Running] = {}
        self.shim_service = ShimService(self.shim)
        self._starts = 0

    async def start(self) -> None:
        """Start every service, each once the one before it reads its inbox."""
        for name in SERVICES:
            await self.start_service(name)
            running = self.running[name]
            while not running.is_connected:  # noqa: ASYNC110 - ends when the bus answers
                await asyncio.sleep(_POLL_SECONDS)

    async def start_service(self, name: str) -> None:
        """Start one service on a connection of its own."""
        self._starts += 1
        instance = f"{name.replace('_', '-')}-{self._starts}"
        bus = self.make_bus()
        await bus.connect()
        runner = self._runner(name, instance, bus)
        task = asyncio.create_task(self._supervise(name, runner), name=f"muster-{name}")
        self.running[name] = Running(runner, bus, task)

    def _runner(self, name: str, instance: str, bus: Bus) -> Host | Members:
        """Return what runs as a service: a host, or a host for every partition."""
        match name:
            case "core":
                copies = CAN_COPY and isinstance(self.clock, SystemClock)  # they take real time
                make = partial(core_service.make_machine, copies=copies)
                return self._members(name, instance, bus, make)
            case "timers":
                return self._members(name, instance, bus, timers_service.make_machine)
            case "shim_adapter":
                service = self.kubernetes or self.shim_service
                return self._host(name, instance, bus, SHIM_INBOX, service.make_machine)
            case "api":
                inbox = Address("api", instance)
                return self._host(name, instance, bus, inbox, lambda: ApiMachine(instance))
            case _:
                raise ValueError(f"no such service: {name!r}; there are {', '.join(SERVICES)}")

    def _host(
        self, name: str, instance: str, bus: Bus, inbox: Address, make: Callable[[], Machine]
    ) -> Host:
        return Host(
            inbox,
            lambda: self.wrap_machine(name, make()),
            bus,
            self.clock,
            instance=instance,
            options=self.host_options,
        )

    def _members(
        self, name: str, instance: str, bus: Bus, make: Callable[[str, str], Machine]
    ) -> Members:
        return Members(
            name,
            lambda partition: self.wrap_machine(name, make(instance, partition)),
            bus,
            self.clock,
            instance=instance,
            options=self.host_options,
        )

    async def _supervise(self, name: str, runner: Host | Members) -> None:
        """Run a service; a bug stops it, and it starts over after a moment (style: crash)."""
        try:
            await runner.run()
        except (Exception, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.exception("a service crashed; starting it again", service=name)
            await asyncio.sleep(_RESTART_SECONDS)
            running = self.running.pop(name, None)
            if running is not None:
                await running.bus.close()
                await self.start_service(name)

    async def crash(self, name: str) -> None:
        """Stop a service as ``kill -9`` would: no goodbye, nothing acknowledged."""
        running = self.running.pop(name)
        running.task.cancel()
        with suppress(asyncio.CancelledError):
            await running.task
        await running.bus.close()

    async def stop(self) -> None:
        """Stop every service."""
        for name in list(self.running):
            await self.crash(name)
        self.shim_service.close()

    # --- looking in -----------------------------------------------------------------------------

    def host_of(self, name: str) -> Host | None:
        """Return the host of a service, or None while it is down."""
        running = self.running.get(name)
        return running.host if running is not None else None

    def machine(self, name: str) -> Machine:
        """Return the machine of a running service."""
        machine = self.running[name].host.machine
        return getattr(machine, "inner", machine)

    @property
    def core(self) -> Scheduler:
        """Return the machine of the default partition's core."""
        return self.cores[DEFAULT_PARTITION]

    @property
    def cores(self) -> dict[str, Scheduler]:
        """Return the machines of the core, by partition."""
        found: dict[str, Scheduler] = {}
        for name, host in self.running["core"].hosts.items():
            machine = getattr(host.machine, "inner", host.machine)
            assert isinstance(machine, Scheduler)
            found[name] = machine
        return found

    @property
    def shim_machine(self) -> ShimMachine:
        """Return the shim adapter's machine."""
        machine = self.machine("shim_adapter")
        assert isinstance(machine, ShimMachine)
        return machine

    @property
    def api(self) -> ApiMachine:
        """Return the API's machine."""
        machine = self.machine("api")
        assert isinstance(machine, ApiMachine)
        return machine

    async def ask(self, message: object) -> object:
        """Send a command through the API, as its HTTP routes do, and return the answer."""
        return await self.api.ask(self.running["api"].host, message)
