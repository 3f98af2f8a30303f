"""The instances of every service in one run, their storage, and faults by time."""

from collections.abc import Callable

from services.api.machine import ApiMachine
from services.core import service as core_service
from services.core.scheduler.scheduler import Scheduler
from services.shim_adapter.machine import ShimMachine
from services.shim_adapter.records import NodeRecord
from services.timers import service as timers_service
from services.timers.wheel import TimerWheel
from shared.messages.envelope import (
    CORE,
    PARTITIONED,
    SHIM_ADAPTER,
    TIMERS,
    Address,
    inbox_of,
)
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND, seconds
from tools.simulate import faults as kinds
from tools.simulate import workload
from tools.simulate.bus import SimulatedBroker
from tools.simulate.faults import Armed, Fault
from tools.simulate.instance import Instance, MakeMachine
from tools.simulate.loop import VirtualLoop
from tools.simulate.resource_manager import Disk, FaultyCluster
from tools.simulate.watch import Watched, WatchedCore, WatchedShim

INSTANCES = (("api", 1), ("core", 2), ("timers", 2), ("shim_adapter", 1))


class Deployment:
    """The instances of every service, with what outlives them."""

    def __init__(
        self,
        seed: int,
        loop: VirtualLoop,
        faults: list[Fault],
        partitions: int = 1,
        *,
        racks: bool = False,
    ) -> None:
        self.loop = loop
        self.violations: list[str] = []
        self._apis = 0
        self.armed = Armed(faults)
        self.broker = SimulatedBroker(seed, loop, self.armed)
        self.work = workload.drawn(seed, faults, partitions, racks=racks)
        self.partitions = workload.NAMES[:partitions]
        self.disk = Disk(self.armed, loop, self.report, self._stall)
        order = self.broker.order
        makers: dict[str, MakeMachine] = {
            "core": lambda *of: WatchedCore(core_service.make_machine(*of), self.report, order),
            "timers": lambda *of: Watched(timers_service.make_machine(*of), self.report, order),
            "api": lambda name, _: Watched(self._api_machine(name), self.report, order),
            "shim_adapter": lambda *_: WatchedShim(
                self._shim_machine, self.disk, self.report, order
            ),
        }
        inboxes: dict[str, Callable[[str], Address] | None] = {
            "core": lambda _: CORE,
            "timers": lambda _: TIMERS,
            "api": lambda name: Address("api", name),
            "shim_adapter": lambda _: SHIM_ADAPTER,
        }
        if partitions > 1:
            inboxes |= dict.fromkeys(PARTITIONED)  # an inbox for each, shared by the processes
        self.instances = [
            Instance(self.broker, service, number, inboxes[service], makers[service])
            for service, count in INSTANCES
            for number in range(count)
        ]

    def report(self, sentence: str) -> None:
        """Record a violation with its time."""
        self.violations.append(f"{self.loop.now_ns / NANOS_PER_SECOND:.3f} s: {sentence}")

    def _stall(self, for_ns: int) -> None:
        """Pause the shim adapter, as if it waited for its disk."""
        instance = self.active("shim_adapter")
        if instance is not None:
            instance.pause(for_ns)

    def _api_machine(self, name: str) -> ApiMachine:
        """Return an API machine whose requests are numbered deterministically."""
        self._apis += 1
        machine = ApiMachine(name)
        machine.uuid = f"{name}-{self._apis}"
        return machine

    def _shim_machine(self) -> ShimMachine:
        """Return a shim adapter's machine over the stored world, as a new process would."""
        world = self.disk.load()
        if not world.epoch:
            world.set_config(self.work.config)
            world.scheduler_settings = dict(self.work.settings)
            for node in self.work.nodes:
                world.nodes[node.name] = NodeRecord(node.name, node.capacity, node.labels)
                world.touch_node(node.name)
        cluster = FaultyCluster(
            world, self.armed, self.disk, self.report, self.work.confirm_delay_ns
        )
        return ShimMachine(world, cluster, playground=cluster, save=self.disk.save)

    # --- looking in -----------------------------------------------------------------------------

    def of(self, service: str) -> list[Instance]:
        """Return the instances of a service."""
        return [instance for instance in self.instances if instance.service == service]

    def active(self, service: str, partition: str = DEFAULT_PARTITION) -> Instance | None:
        """Return the instance that is active for a service and partition."""
        return next((item for item in self.of(service) if item.is_active(partition)), None)

    def working(self, service: str, partition: str = DEFAULT_PARTITION) -> Instance | None:
        """Return the active instance that is not paused, else the first active one."""
        active = (item for item in self.of(service) if item.is_active(partition))
        return min(active, key=lambda item: not item.is_running, default=None)

    def _inner(self, service: str, partition: str = DEFAULT_PARTITION) -> object:
        instance = self.working(service, partition)
        machine = instance.hosts[partition].machine if instance is not None else None
        return getattr(machine, "inner", machine)

    def core(self, partition: str) -> Scheduler | None:
        """Return the machine of the core that is active for a partition."""
        machine = self._inner("core", partition)
        return machine if isinstance(machine, Scheduler) else None

    @property
    def shim(self) -> ShimMachine | None:
        """Return the machine of the shim adapter."""
        machine = self._inner("shim_adapter")
        return machine if isinstance(machine, ShimMachine) else None

    def wheel(self, partition: str) -> TimerWheel | None:
        """Return the timers that are active for a partition."""
        machine = self._inner("timers", partition)
        return machine if isinstance(machine, TimerWheel) else None

    @property
    def api(self) -> ApiMachine | None:
        """Return the API."""
        machine = self._inner("api")
        return machine if isinstance(machine, ApiMachine) else None

    def is_quiet(self) -> bool:
        """Whether no message is in transit, except heartbeats."""
        return all(instance.is_quiet for instance in self.instances) and not any(
            inbox.waiting or any(reader._held for reader in inbox.readers)
            for inbox in self.broker.inboxes.values()
        )

    # --- faults by time -------------------------------------------------------------------------

    def schedule_faults(self) -> None:
        """Schedule the faults that affect a whole service."""
        for fault in self.armed.take_timed(kinds.TIMED):
            self.loop.call_later(fault.at_ns / NANOS_PER_SECOND, self._befall, fault)

    def _befall(self, fault: Fault) -> None:
        self.armed.note(fault, self.loop.now_ns)
        instance, partition = self._target(fault)
        match fault.kind:
            case "crash":
                instance.kill(fault.amount_ns)
            case "pause":
                instance.pause(fault.amount_ns)
            case "full":
                inbox = inbox_of(fault.service, partition).routing_key
                self.broker.refusing[inbox] = self.loop.now_ns + fault.amount_ns
            case "broker":
                self.broker.stop()
                over = fault.amount_ns / NANOS_PER_SECOND
                self.loop.call_later(over, setattr, self.broker, "is_up", True)
            case "clock-set":
                instance.ahead_ns += _off(fault)
            case "clock":
                instance.be_on(_off(fault), _drift_ppm(fault))
                instance.kill(0)
            case _:  # it is moved
                instance.be_on(seconds(fault.choice % 1_201 - 600), _drift_ppm(fault))
                instance.number += len(self.of(fault.service))
                instance.kill(fault.amount_ns)

    def _target(self, fault: Fault) -> tuple[Instance, str]:
        """Return the instance and partition that a fault affects, more often an active one."""
        instances, partition = self.of(fault.service), DEFAULT_PARTITION
        if fault.service in PARTITIONED:
            partition = self.partitions[fault.choice // 6 % len(self.partitions)]
        instance = instances[fault.choice % len(instances)]
        if fault.choice % 3:
            instance = self.active(fault.service, partition) or instance
        return instance, partition

    def note_mishaps(self) -> None:
        """Record the faults that users' actions cause."""
        for fault in self.armed.take_timed(kinds.BY_PEOPLE):
            self.loop.call_later(
                fault.at_ns / NANOS_PER_SECOND, self.armed.note, fault, fault.at_ns
            )

    def calm(self) -> None:
        """Stop all faults, and resume all instances."""
        self.armed.is_on = False
        self.broker.is_up = True
        self.broker.refusing.clear()
        for instance in self.instances:
            instance.resume()
            instance.start()


def _off(fault: Fault) -> int:
    """Return the offset of a fault's clock, in either direction."""
    return fault.amount_ns * (1 if fault.choice % 2 else -1)


def _drift_ppm(fault: Fault) -> int:
    return fault.choice % 400 - 200
