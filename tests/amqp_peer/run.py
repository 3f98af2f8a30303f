"""A deployment on the peer, and what must hold at its end (``python -m tests.amqp_peer.run 0 1000``).

An API replica hands in numbers, two processes of the core hand them on in two partitions, a shim
adapter takes them. Nothing is lost, nothing is handled twice, numbers keep their order, each comes
within BACK_SECONDS of the end of what held it up, no queue is deleted, and at rest nothing is left:
no connection, no channel, no message beside those of the deployment.
"""

import asyncio
import contextlib
import logging
import sys
import time
from dataclasses import dataclass, field
from unittest import mock

import structlog
from aiormq.base import FutureStore

from shared.bus.rabbitmq import RabbitBus
from shared.messages.envelope import SHIM_ADAPTER, Address, Outgoing, core_of, members_of
from shared.messages.protocol import Partitions, PartitionsRequest, TimerSyncRequest
from shared.runtime.host import Host
from shared.runtime.members import Members
from tests.amqp_peer.broker import Broker
from tests.amqp_peer.faults import Faults, drawn
from tests.amqp_peer.link import PeerLoop
from tests.amqp_peer.session import Session

PARTITIONS = ("default", "second")
EVERY_SECONDS = 1.0
NUMBERS = 30
BACK_SECONDS = 10.0
REST_SECONDS = 60
READERS = {"m.shim_adapter.default": 1, "m.core.default": 2, "m.core.second": 2}
START_SECONDS = 1_700_000_000
URL = "amqp://u:p@one:5672/"


@dataclass
class Outcome:
    """What a run came to."""

    seed: int
    violations: list
    struck: list
    frames: int
    seconds: float
    worst: float = 0.0
    broker: Broker | None = None

    @property
    def holds(self):
        """Return whether nothing is wrong."""
        return not self.violations

    def __str__(self):
        faults = [f"{at:.2f}-{until:.2f} {fault}" for at, until, fault in self.struck]
        return "\n".join((f"seed {self.seed}", *self.violations, *faults))


class LoopClock:
    """The clock of a run."""

    def __init__(self, loop):
        self._loop = loop

    def now_ns(self):
        return START_SECONDS * 10**9 + self._loop.now_ns

    async def sleep_until(self, due_ns):
        await asyncio.sleep(max(0, due_ns - self.now_ns()) / 1e9)


class _Ordered(dict):
    """A set that is walked in the order of what was added."""

    def add(self, item):
        self[item] = None

    def remove(self, item):
        del self[item]

    def pop(self):
        return self.popitem()[0]


@contextlib.contextmanager
def virtual(loop):
    """Let everything that reads the machine's monotonic clock read the loop's."""
    begin = FutureStore.__init__

    def ordered(self, loop):
        begin(self, loop)
        self.futures = _Ordered()

    with (
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(FutureStore, "__init__", ordered),
    ):
        yield


def peer(loop, faults, names=("one",)):
    """Return a broker that a loop's connections come to."""
    broker = Broker(loop, names)
    faults.broker = broker

    async def connecting(host, _port, link):
        node = broker.nodes[host]
        if node.refuses_until > loop.time():
            raise ConnectionRefusedError(111, "refused")
        link.node = node
        return Session(broker, node, link, faults)

    loop.connecting = connecting
    return broker


def on_a_peer(story, faults=(), names=("one",)):
    """Run a story of a broker on a peer, in virtual time; return what it returns."""
    loop = PeerLoop()
    broker = peer(loop, Faults(faults), names)
    try:
        with virtual(loop):
            return loop.run_until_complete(story(broker))
    finally:
        loop.close()


class Entry:
    """The API replica's machine: numbers go to their partition's core."""

    def handle(self, envelope, now_ns):
        message = envelope.message
        if not isinstance(message, TimerSyncRequest):
            return []
        partition = message.instance.partition("/")[0]
        return [Outgoing(core_of(partition), message, partition=partition)]


class Relay:
    """A core's machine: what comes goes on."""

    def handle(self, envelope, now_ns):
        if not isinstance(envelope.message, TimerSyncRequest):
            return []
        return [Outgoing(SHIM_ADAPTER, envelope.message)]


class Sink:
    """The shim adapter's machine: it says which partitions there are, and keeps the numbers."""

    def __init__(self, came):
        self._came = came

    def handle(self, envelope, now_ns):
        message = envelope.message
        if isinstance(message, TimerSyncRequest):
            self._came.append((message.instance, asyncio.get_running_loop().time()))
        if isinstance(message, PartitionsRequest):
            return [Outgoing(members_of("core", "all"), Partitions(PARTITIONS))]
        return []


@dataclass
class Deployment:
    """What runs on a peer."""

    loop: PeerLoop
    url: str = URL
    came: list = field(default_factory=list)
    handed_in: dict = field(default_factory=dict)
    buses: list = field(default_factory=list)
    tasks: list = field(default_factory=list)

    def bus(self, name):
        self.buses.append(RabbitBus(self.url, prefix="m", name=name))
        return self.buses[-1]

    def start(self):
        """Start all."""
        clock = LoopClock(self.loop)
        api = Host(Address("api", "r1"), Entry, self.bus("api"), clock, instance="api")
        shim = Host(SHIM_ADAPTER, lambda: Sink(self.came), self.bus("shim"), clock, instance="shim")
        cores = [
            Members("core", lambda _: Relay(), self.bus(name), clock, instance=name)
            for name in ("c1", "c2")
        ]
        runs = [shim.run(), api.run(), *(core.run() for core in cores), self._hand_in(api)]
        self.tasks = [asyncio.create_task(run) for run in runs]

    async def _hand_in(self, api):
        for number in range(NUMBERS):
            for partition in PARTITIONS:
                name = f"{partition}/{number}"
                self.handed_in[name] = self.loop.time()
                await api.inject(TimerSyncRequest(name))
            await asyncio.sleep(EVERY_SECONDS)

    @property
    def is_done(self):
        return len({name for name, _ in self.came}) == NUMBERS * len(PARTITIONS)

    async def stop(self):
        """Stop all."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for bus in self.buses:
            await bus.close()


def run(seed=-1, faults=None):
    """Run a seed, or given faults."""
    script = Faults(drawn(seed) if faults is None else faults)
    loop = PeerLoop()
    asyncio.set_event_loop(loop)
    try:
        with virtual(loop):
            return loop.run_until_complete(_run(seed, loop, script))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _run(seed, loop, script):
    broker = peer(loop, script)
    deployment = Deployment(loop)
    deployment.start()
    violations = []
    while not deployment.is_done and not violations:
        await asyncio.sleep(1)
        violations += _ended(deployment)
        last = max((until for _, until, _ in script.struck), default=0.0)
        if loop.time() > max(last, NUMBERS * EVERY_SECONDS) + REST_SECONDS:
            break
    for _ in range(REST_SECONDS):
        await asyncio.sleep(1)
        if not any(_left(deployment, broker)):
            break
    violations += _ended(deployment)
    violations += [*_judged(deployment, script), *_left(deployment, broker)]
    frames = sum(session.frames for session in broker.sessions)
    worst = max((late for _, late in _late(deployment, script)), default=0.0)
    await deployment.stop()
    return Outcome(seed, violations, script.struck, frames, loop.time(), worst, broker)


def _ended(deployment):
    for task in deployment.tasks[:-1]:
        if task.done():
            yield f"{task.get_coro().__qualname__} ended: {task.exception()!r}"


def _judged(deployment, script):
    """Yield what is wrong with what came."""
    names = [name for name, _ in deployment.came]
    for name in deployment.handed_in:
        if names.count(name) != 1:
            yield f"{name} came {names.count(name)} times"
    for partition in PARTITIONS:
        order = [int(name.partition("/")[2]) for name in names if name.startswith(f"{partition}/")]
        if order != sorted(order):
            yield f"the order of {partition} is {order}"
    for name, late in _late(deployment, script):
        if late > BACK_SECONDS:
            yield f"{name} came {late:.1f} s after it could"


def _late(deployment, script):
    """Yield how long after all that held it up each number came."""
    for name, at in deployment.came:
        could = max(
            [deployment.handed_in[name]]
            + [until for begun, until, _ in script.struck if begun <= at]
        )
        yield name, at - could


def _left(deployment, broker):
    """Yield what is left over at rest."""
    for name in broker.deleted:
        yield f"{name} was deleted"
    if len(broker.sessions) != 2 * len(deployment.buses):
        yield f"connections are left: {sorted(item.name for item in broker.sessions)}"
    for session in broker.sessions:
        if len(session.channels) > 20:
            yield f"{session.name} has {len(session.channels)} channels"
    for queue in broker.queues.values():
        yield from _left_in(queue)


def _left_in(queue):
    """Yield what is left over in a queue: an inbox has its readers, and at most a heartbeat."""
    readers = READERS.get(queue.name, len(queue.consumers))
    if len(queue.consumers) != readers:
        yield f"{queue.name} has {len(queue.consumers)} readers instead of {readers}"
    if len(queue.ready) > (queue.name in READERS):
        yield f"{queue.name} has {len(queue.ready)} messages that wait"


def main(first, last):
    """Run seeds, and say which of them do not hold."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(first, last):
        outcome = run(seed)
        failed += not outcome.holds
        if not outcome.holds:
            print(outcome, flush=True)
    print(f"{failed} of seeds {first} to {last - 1} do not hold")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
