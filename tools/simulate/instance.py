"""One instance of a service: it runs, pauses, dies and restarts, with a clock of its own."""

import asyncio
import traceback
from collections.abc import Callable

from shared.messages.envelope import Address
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND, seconds
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host, HostOptions
from shared.runtime.machine import Machine
from shared.runtime.members import Members
from shared.runtime.metrics import HostMetrics
from tools.simulate.bus import SimulatedBroker, SimulatedBus
from tools.simulate.loop import VirtualLoop

START_NS = 1_767_225_600 * NANOS_PER_SECOND  # 2026-01-01
HEARTBEAT_NS = seconds(3)
NOTICED_SECONDS = 3.0  # after which a broker takes the place of one who stands still
_CRASHED_SECONDS = 0.5
MakeMachine = Callable[[str, str], Machine]  # of an instance, for a partition


class PowerLostError(BaseException):
    """An instance is killed in the middle of saving its state."""

    def __init__(self, down_ns: int) -> None:
        super().__init__("the power went")
        self.down_ns = down_ns


class SkewedClock(SystemClock):
    """The clock of one process: its machine's has an offset and a drift."""

    def __init__(self, loop: VirtualLoop, station: "Instance") -> None:
        drift_ppm = station.drift_ppm  # of this start's machine

        def running_ns() -> int:
            true_ns = loop.now_ns
            return true_ns + true_ns * drift_ppm // 1_000_000

        self.wall_ns = lambda: START_NS + station.ahead_ns + running_ns()
        super().__init__(self.wall_ns, running_ns)
        self._station = station

    async def sleep_until(self, due_ns: int) -> None:
        """Sleep; a paused instance sleeps on."""
        await super().sleep_until(due_ns)
        await self._station.stand_still()


class StillMetrics(HostMetrics):
    """Metrics without measured times, which would not be deterministic."""

    def __init__(self) -> None:
        super().__init__("simulated")

    def started(self) -> int:
        """Return 0."""
        return 0

    def handled(self, kind: str, started: int) -> int:
        """Return 0."""
        del kind, started
        self.handled_total += 1
        return 0

    def waited(self, kind: str, age_ns: int) -> None:
        """Do nothing."""

    def published(self, count: int) -> None:
        """Count."""
        self.published_total += count

    def repeated(self) -> None:
        """Do nothing."""


class Instance:
    """A service's instance in the deployment; each start is a new process with a new name.

    It has a host at the inbox of its ``address``; without one, a host for every partition.
    """

    def __init__(
        self,
        broker: SimulatedBroker,
        service: str,
        number: int,
        address: Callable[[str], Address] | None,
        make_machine: MakeMachine,
    ) -> None:
        self.service = service
        self.number = number
        self.ahead_ns = 0
        self.drift_ppm = 0
        self.crashes: list[str] = []
        self.handled_total = 0
        self._broker = broker
        self._loop = broker.loop
        self._address = address
        self._make_machine = make_machine
        self._bus: SimulatedBus | None = None
        self._runner: Host | Members | None = None
        self._task: asyncio.Task[None] | None = None
        self._starts = 0
        self.resumed_ns = 0  # when a stopped process went on: then it sends what it had written
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._is_ending = False

    # --- what the run does with it --------------------------------------------------------------

    def start(self) -> None:
        """Start a process with a new machine."""
        if self._task is not None or self._is_ending:
            return
        self._starts += 1
        name = f"{self.service.replace('_', '-')}-{self.number}-{self._starts}"
        self._bus = SimulatedBus(self._broker, self)
        self._runner = self._runs(name, self._bus)
        self._task = self._loop.create_task(self._live(self._runner, self._bus))

    def _runs(self, name: str, bus: SimulatedBus) -> Host | Members:
        clock, options = (
            SkewedClock(self._loop, self),
            HostOptions(heartbeat_ns=HEARTBEAT_NS, make_metrics=lambda _: StillMetrics()),
        )
        if self._address is None:
            return Members(
                self.service, lambda partition: self._make_machine(name, partition), bus, clock,
                instance=name, options=options,
            )  # fmt: skip
        return Host(
            self._address(name), lambda: self._make_machine(name, DEFAULT_PARTITION), bus, clock,
            instance=name, options=options,
        )  # fmt: skip

    async def _live(self, runner: Host | Members, bus: SimulatedBus) -> None:
        """Run a process until it ends; a supervisor starts the next one."""
        again_in = _CRASHED_SECONDS
        try:
            await runner.run()
            self.crashes.append(f"{runner.instance} ended by itself")
        except asyncio.CancelledError:
            again_in = -1.0  # whoever ends it starts it
        except PowerLostError as power:
            again_in = power.down_ns / NANOS_PER_SECOND
        except Exception as error:  # noqa: BLE001 - whatever it is, it is to be told
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.crashes.append(f"{runner.instance}: {error!r} at {place.name}:{place.lineno}")
        await bus.close()
        self.handled_total += sum(host.metrics.handled_total for host in self.hosts.values())
        self._task = self._runner = self._bus = None
        if again_in >= 0 and not self._is_ending:
            self._loop.call_later(again_in, self.start)

    def be_on(self, ahead_ns: int, drift_ppm: int) -> None:
        """Use a machine with such a clock, from the next start on."""
        self.ahead_ns, self.drift_ppm = ahead_ns, drift_ppm

    def kill(self, down_ns: int) -> None:
        """Kill the process like ``kill -9``, and start another one after ``down_ns``."""
        if self._task is not None:
            self._task.cancel()
            self._goes_on.set()
            self._loop.call_later(max(0.001, down_ns / NANOS_PER_SECOND), self.start)

    def pause(self, for_ns: int) -> None:
        """Pause the process; the broker notices after a while and activates another reader."""
        if self._bus is None:
            return
        self._goes_on.clear()
        self._loop.call_later(for_ns / NANOS_PER_SECOND, self.resume)
        if for_ns / NANOS_PER_SECOND > NOTICED_SECONDS:
            self._loop.call_later(NOTICED_SECONDS, self._bus.lose)

    def resume(self) -> None:
        """Resume the process."""
        self.resumed_ns = self._loop.now_ns
        self._goes_on.set()

    async def end(self) -> None:
        """End it permanently."""
        self._is_ending = True
        self._goes_on.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # --- what its connections ask ---------------------------------------------------------------

    def is_at_work(self, partition: str) -> bool:
        """Whether it handles its heartbeats for a partition."""
        host = self.hosts.get(partition)
        return host is not None and host.is_at_work

    async def stand_still(self) -> None:
        """Wait while it is paused."""
        while not self._goes_on.is_set():
            await self._goes_on.wait()

    async def die(self, down_ns: int) -> None:
        """Kill it now; never returns."""
        self._loop.call_soon(self.kill, down_ns)
        await asyncio.Event().wait()

    # --- looking in -----------------------------------------------------------------------------

    @property
    def hosts(self) -> dict[str, Host]:
        """Return its hosts by partition; none while it is down."""
        if isinstance(self._runner, Members):
            return self._runner.hosts
        return {DEFAULT_PARTITION: self._runner} if self._runner is not None else {}

    @property
    def host(self) -> Host | None:
        """Return its host, of several the default partition's, or None while it is down."""
        return self.hosts.get(DEFAULT_PARTITION)

    def is_active(self, partition: str) -> bool:
        """Whether it runs and is the active reader of a partition's inbox."""
        host = self.hosts.get(partition)
        return host is not None and host.is_active and host.is_connected

    @property
    def is_running(self) -> bool:
        """Whether it runs and is not paused."""
        return self._task is not None and self._goes_on.is_set()

    @property
    def starts(self) -> int:
        """The number of started processes, including ended ones."""
        return self._starts

    @property
    def is_quiet(self) -> bool:
        """Whether it waits for messages."""
        runner = self._runner
        return runner is not None and runner.is_waiting and runner.is_connected
