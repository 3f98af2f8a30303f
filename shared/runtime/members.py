"""The hosts of a process of core or timers, whose processes divide the partitions among them.

Rule 1: every process subscribes to every partition's inbox. The bus makes the first subscriber the
        reader, so a partition whose reader dies gets the next one at once.
Rule 2: if there are several partitions, each process publishes with every heartbeat for which ones
        it is active. A process that is silent for MISSED_BEATS no longer counts.
Rule 3: the process with the most partitions gives up half of its surplus over the process with the
        fewest, if the surplus is at least two: it becomes their last standby, and forgets their
        state.
Rule 4: a process that is to become active for a partition while another one has fewer declines, but
        only once in PASS_BEATS, because its knowledge of the others may be old.
So every partition is read by one process. No agreement is needed: the bus has one reader per inbox,
and the epoch fences the previous one.
Limit: MAX_MEMBERS other processes; further ones are ignored.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type

from shared.bus.base import Bus, Subscription
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.messages.envelope import SHIM_ADAPTER, Address, Envelope, inbox_of, members_of
from shared.messages.protocol import Partitions, PartitionsHeld, PartitionsRequest
from shared.model.ids import derived_id
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND
from shared.runtime.beats import MISSED_BEATS
from shared.runtime.clock import Clock
from shared.runtime.host import Host, HostOptions
from shared.runtime.machine import Machine
from shared.runtime.pauses import PAUSE
from shared.runtime.stopping import stop_if_cancelled

PASS_BEATS = 3
MAX_MEMBERS = 1_000  # other processes of a service that one knows; further ones are ignored
_AT_ONCE = 200
log = structlog.get_logger("muster.members")


class Members:
    """One process: a host per partition on one connection, and the reports of other processes.

    ``make_machine`` returns the machine of a partition, by its name.
    """

    def __init__(
        self,
        service: str,
        make_machine: Callable[[str], Machine],
        bus: Bus,
        clock: Clock,
        *,
        instance: str,
        options: HostOptions | None = None,
    ) -> None:
        self.service = service
        self.instance = instance
        self.hosts: dict[str, Host] = {}
        self._make_machine = make_machine
        self._bus = bus
        self._clock = clock
        self._options = options or HostOptions()
        self._inbox = members_of(service, instance)
        self._others: dict[str, tuple[float, int]] = {}  # last report: time, number
        self._passed: dict[str, float] = {}  # when a partition was declined
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._has_ended = asyncio.Event()  # a task has ended
        self._is_reading = False
        self._started_ns = clock.now_ns()
        self._said = 0
        self._add(DEFAULT_PARTITION)

    @property
    def is_waiting(self) -> bool:
        """Whether every host waits for messages."""
        return self._is_reading and all(host.is_waiting for host in self.hosts.values())

    @property
    def is_connected(self) -> bool:
        """Whether it reads the members' inbox and every host is connected."""
        return self._is_reading and all(host.is_connected for host in self.hosts.values())

    @property
    def is_ready(self) -> bool:
        """Whether every host is ready."""
        return self._is_reading and all(host.is_ready for host in self.hosts.values())

    def active(self) -> list[str]:
        """Return the partitions that this process is active for."""
        return [name for name, host in self.hosts.items() if host.is_active and host.is_connected]

    async def run(self) -> None:
        """Run until cancelled, or until a host ends: the process is then restarted from outside."""
        self._watch("", asyncio.create_task(self._follow(), name=f"{self.service} members"))
        for name in list(self.hosts):
            self._start(name)
        try:
            while not (ended := [task for task in self._tasks.values() if task.done()]):
                self._has_ended.clear()
                await self._has_ended.wait()
            ended[0].result()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def close(self) -> None:
        """Close the connection; this ends ``run``."""
        await self._bus.close()

    # --- the partitions -------------------------------------------------------------------------

    def _add(self, partition: str) -> None:
        is_default = partition == DEFAULT_PARTITION
        self.hosts[partition] = Host(
            inbox_of(self.service, partition),
            lambda: self._make_machine(partition),
            self._bus,
            self._clock,
            instance=self.instance if is_default else f"{self.instance}/{partition}",
            options=self._options,
            partition=partition,
            may_take=lambda: self._may_take(partition),
        )

    def _start(self, partition: str) -> None:
        task = asyncio.create_task(self.hosts[partition].run(), name=f"{self.service} {partition}")
        self._watch(f"/{partition}", task)

    def _watch(self, name: str, task: asyncio.Task[None]) -> None:
        """Register a task under a name, and note its end, also if it started after the others."""
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._has_ended.set())

    async def _set(self, names: tuple[str, ...]) -> None:
        """Start the hosts of new partitions, and stop those of removed ones."""
        wanted = dict.fromkeys((DEFAULT_PARTITION, *names))
        gone = [name for name in self.hosts if name not in wanted]
        ended = [self._tasks.pop(f"/{name}") for name in gone]
        for name in gone:
            del self.hosts[name]
            self._passed.pop(name, None)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        for name in wanted:
            if name not in self.hosts:
                self._add(name)
                self._start(name)

    # --- the others -----------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Receive the list of partitions, and what other processes hold, while the bus is open."""
        again = AsyncRetrying(retry=retry_if_exception_type(BusUnavailableError), wait=PAUSE)
        with suppress(BusClosedError):
            await again(self._follow_connected)

    async def _follow_connected(self) -> None:
        subscription = await self._bus.subscribe(self._inbox)
        telling: asyncio.Task[None] | None = None
        try:
            await self._send(PartitionsRequest(self.instance), SHIM_ADAPTER)
            self._is_reading = True
            if self._options.heartbeat_ns:
                telling = asyncio.create_task(self._announce())
            await self._hear(subscription)
        finally:
            self._is_reading = False
            if telling is not None:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
            with suppress(BusUnavailableError, BusClosedError):
                await subscription.close()

    async def _hear(self, subscription: Subscription) -> None:
        while True:
            stop_if_cancelled()
            deliveries = await subscription.receive(_AT_ONCE)
            for delivery in deliveries:
                match delivery.envelope.message:
                    case Partitions(names=names):
                        await self._set(names)
                    case PartitionsHeld(instance=name, names=held) if name != self.instance:
                        self._note(name, len(held))
                    case _:
                        pass
            await subscription.ack(deliveries)

    def _note(self, name: str, count: int) -> None:
        if name in self._others or len(self._others) < MAX_MEMBERS:
            self._others[name] = (asyncio.get_running_loop().time(), count)

    async def _announce(self) -> None:
        """Publish the held partitions and give up the surplus, at each heartbeat."""
        while True:
            stop_if_cancelled()
            await asyncio.sleep(self._beat_seconds)
            if len(self.hosts) == 1:
                continue
            held = self.active()
            with suppress(BusUnavailableError):
                told = PartitionsHeld(self.instance, tuple(held))
                await self._send(told, members_of(self.service, "all"))
            for name in self._surplus(held):
                log.info("giving up a partition: others have fewer", partition=name)
                self.hosts[name].give_up()

    @property
    def _beat_seconds(self) -> float:
        return self._options.heartbeat_ns / NANOS_PER_SECOND

    def _counts(self) -> dict[str, int]:
        """Return for how many partitions each other live process is active."""
        oldest = asyncio.get_running_loop().time() - MISSED_BEATS * self._beat_seconds
        self._others = {name: at for name, at in self._others.items() if at[0] >= oldest}
        return {name: count for name, (_, count) in self._others.items()}

    def _surplus(self, held: list[str]) -> list[str]:
        """Return the partitions to give up: of the process with the most, ties broken by name."""
        counts = self._counts()
        if not counts:
            return []
        own = (len(held), self.instance)
        if any((count, name) > own for name, count in counts.items()):
            return []
        return held[len(held) - (len(held) - min(counts.values())) // 2 :]

    def _may_take(self, partition: str) -> bool:
        """Whether to become active for a partition, now that the bus delivers its messages here."""
        fewest = min(self._counts().values(), default=None)
        if fewest is None or fewest >= len(self.active()):
            return True
        now = asyncio.get_running_loop().time()
        if now - self._passed.get(partition, now - 1e9) < PASS_BEATS * self._beat_seconds:
            return True
        self._passed[partition] = now
        return False

    async def _send(self, message: object, to: Address) -> None:
        self._said += 1
        message_id = derived_id(f"members/{self.instance}/{self._started_ns}", self._said)
        now_ns = self._clock.now_ns()
        kind = type(message).__name__
        envelope = Envelope(message_id, kind, message, to, self.service, published_ns=now_ns)
        await self._bus.publish([envelope])
