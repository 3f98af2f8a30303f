"""What the core costs by itself: ``make bench-core``.

    make bench-core                                  # every row, some minutes
    make bench-core ARGS="--only plain --only one"   # rows whose name contains a word
    make bench-core ARGS="--small"                   # a tenth of the sizes: does it run at all

The scheduler is driven by messages, in this process, without a bus; its answers are kept as the
shim adapter would (placeholders that are replaced are confirmed). A figure is per second of this
process's CPU. Beside it stands a floor, measured in the same run: a loop that does nothing but keep
the same integer sums (node, application, queues, user), pick the node from a heap and make one
plain record an allocation. Compare ratios: they hold on any machine, the figures do not. Where a
figure is a time, the floor is what the loop takes for one placement, or for as many as are told.
"""

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from heapq import heappop, heappush
from itertools import count
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from services.core.configuration import ReadOnce
from services.core.scheduler.scheduler import Scheduler
from shared.messages.constraints import Constraints, PodTerm, Requirement, SpreadConstraint
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.protocol import (
    PARTITION_TIMER,
    ContinueCycle,
    Heartbeat,
    SyncBegin,
    SyncEnd,
    TimerFired,
    TimerFirings,
    TimerKind,
)
from shared.model.resources import multiply
from shared.model.units import milliseconds
from shared.runtime.service import spare_the_collector

GIB = 2**30
NODE = {"vcore": 64_000, "memory": 256 * GIB, "pods": 110}
ONE = {"vcore": 500, "memory": 2 * GIB, "pods": 1}
BATCH = 1_000
START_NS = 1_767_225_600_000_000_000
HOSTNAME = "kubernetes.io/hostname"


def cpu_seconds() -> float:
    """Return the CPU that this process has used."""
    return time.process_time()


class Driver:
    """A scheduler and the messages to it; counts what it allocates, and its CPU."""

    clock: Callable[[], float] = staticmethod(cpu_seconds)

    def __init__(self, config: str, settings: tuple[tuple[str, str], ...] = ()) -> None:
        self.scheduler = Scheduler("bench", ReadOnce())
        self.now_ns = START_NS
        self.allocated: list[Allocation] = []
        self.released: list[AllocationRelease] = []
        self.cpu = 0.0
        self.longest = 0.0  # of all that was handled in one go
        self._ids = count(1)
        self.send(Heartbeat("bench"), epoch=0)
        self.send(SyncBegin(config, settings))
        self.send(SyncEnd(0, 0, 0))
        self.cpu = 0.0

    @property
    def partition(self):
        return self.scheduler.partition

    def send(self, message: object, epoch: int = 1, reply_to: str = "") -> None:
        """Let the scheduler handle a message, and all that it wants to go on with."""
        waiting = [message]
        while waiting:
            item = waiting.pop()
            kind = type(item).__name__
            name = f"m{next(self._ids)}"
            wrapped = Envelope(name, kind, item, CORE, "bench", reply_to=reply_to, epoch=epoch)
            read_ahead = self.scheduler.prepare(wrapped)  # which a host does in a thread
            if read_ahead is not None:
                read_ahead()
            start = self.clock()
            out = self.scheduler.handle(wrapped, self.now_ns) + self.scheduler.flush(self.now_ns)
            took = self.clock() - start
            self.cpu += took
            self.longest = max(self.longest, took)
            for answer in out:
                if isinstance(answer.message, UpdateResponse):
                    self.allocated += answer.message.new_allocations
                    self.released += answer.message.released_allocations
                elif isinstance(answer.message, ContinueCycle):
                    waiting.append(answer.message)

    def update(self, **sections) -> None:
        self.send(UpdateRequest("bench", **sections))

    def nodes(self, amount: int, capacity=NODE, first: int = 0) -> None:
        names = [f"node-{at:05}" for at in range(first, first + amount)]
        for batch in batches(names):
            self.update(
                nodes=tuple(
                    NodeInfo(name, NodeAction.CREATE, capacity, {}, labels={HOSTNAME: name})
                    for name in batch
                )
            )

    def applications(self, names_and_queues: list[tuple[str, str]], **more) -> None:
        for batch in batches(names_and_queues):
            self.update(
                new_applications=tuple(
                    AddApplicationRequest(name, queue, **more) for name, queue in batch
                )
            )

    def confirm(self) -> None:
        """Confirm every release that the scheduler began, as the shim adapter does."""
        while self.released:
            released, self.released = self.released, []
            for batch in batches(released):
                self.update(releases=tuple(batch))

    def fire_own(self, kind: TimerKind) -> bool:
        """Let a timer of the partition fire, and the time be what it was armed for."""
        armed = self.partition.timers.get(kind.value)
        if armed is None:
            return False
        self.now_ns = max(self.now_ns, armed[1])
        fired = TimerFired(kind.value, kind, PARTITION_TIMER, armed[0])
        self.send(TimerFirings((fired,)))
        return True


def batches(items: list, size: int = BATCH) -> Iterator[list]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


def config_of(
    leaves: int, policy: str = "binpacking", *, sort: str = "fifo", more: str = ""
) -> str:
    queues = ", ".join(
        f"{{name: leaf{at}, properties: {{application.sort.policy: {sort}}}{more}}}"
        for at in range(leaves)
    )
    return (
        f"partitions: [{{name: default, nodesortpolicy: {{type: {policy}}}, queues: [{{name: root, "
        f"submitacl: '*', queues: [{{name: team, queues: [{queues}]}}]}}]}}]"
    )


# --- the floor ----------------------------------------------------------------------------------


class _Sums:
    __slots__ = ("memory", "vcore")

    def __init__(self) -> None:
        self.vcore = self.memory = 0


class _Record:
    __slots__ = ("application", "key", "memory", "node", "vcore")

    def __init__(self, key, application, node, vcore, memory) -> None:
        self.key, self.application, self.node = key, application, node
        self.vcore, self.memory = vcore, memory


def floor(asks: int, nodes: int) -> float:
    """Return asks placed per CPU second by a loop that only counts."""
    free = [64_000] * nodes
    order = [(0, at) for at in range(nodes)]
    ledgers = [
        [_Sums() for _ in range(5)] for _ in range(10)
    ]  # application, leaf, team, root, user
    keys = [f"ask-{at}" for at in range(asks)]
    made = []
    start = time.process_time()
    for at, key in enumerate(keys):
        path = ledgers[at % 10]
        _, node = heappop(order)
        free[node] -= 500
        heappush(order, (64_000 - free[node], node))
        for sums in path:
            sums.vcore += 500
            sums.memory += 2 * GIB
        made.append(_Record(key, path, node, 500, 2 * GIB))
    return asks / (time.process_time() - start)


# --- rows ---------------------------------------------------------------------------------------


def asks_row(
    asks: int,
    nodes: int,
    *,
    applications: int = 10,
    leaves: int = 5,
    policy: str = "binpacking",
    shapes: int = 1,
    sort: str = "fifo",
) -> float:
    """Place plain asks; return how many a CPU second."""
    driver = Driver(config_of(leaves, policy, sort=sort))
    driver.nodes(nodes)
    driver.applications(
        [(f"app-{at}", f"root.team.leaf{at % leaves}") for at in range(applications)]
    )
    made = [
        AllocationAsk(
            f"ask-{at}",
            f"app-{at % applications}",
            {"vcore": 100 + at % shapes, "memory": GIB, "pods": 1},
        )
        for at in range(asks)
    ]
    driver.cpu = 0.0
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    assert len(driver.allocated) == asks, f"{len(driver.allocated)} of {asks} placed"
    return asks / driver.cpu


def gangs_row(gangs: int, members: int, nodes: int) -> float:
    """Run gangs whole: placeholders, their replacement, confirmed; real ones and both counted."""
    driver = Driver(config_of(5))
    driver.nodes(nodes)
    whole = multiply(ONE, members)
    driver.applications(
        [(f"gang-{at}", f"root.team.leaf{at % 5}") for at in range(gangs)], placeholder_ask=whole
    )
    driver.cpu = 0.0
    for is_placeholder in (True, False):
        made = [
            AllocationAsk(
                f"gang-{gang}-{'ph' if is_placeholder else 'real'}-{at}",
                f"gang-{gang}",
                ONE,
                task_group_name="tg",
                placeholder=is_placeholder,
            )
            for gang in range(gangs)
            for at in range(members)
        ]
        for batch in batches(made):
            driver.update(asks=tuple(batch))
            driver.confirm()
    assert len(driver.allocated) == 2 * gangs * members
    return 2 * gangs * members / driver.cpu


def one_ask(nodes: int, *, packed: bool) -> tuple[float, float]:
    """Return p50 and p99 in ms of one ask on a cluster that is 80 % full."""
    driver = Driver(config_of(5, "binpacking" if packed else "fair"))
    driver.nodes(nodes)
    driver.applications([("filler", "root.team.leaf0"), ("one", "root.team.leaf1")])
    large = {"vcore": 6_400, "memory": 10 * GIB, "pods": 1}
    made = [AllocationAsk(f"f-{at}", "filler", large) for at in range(8 * nodes)]
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    took = []
    for at in range(1_000):
        driver.cpu = 0.0
        driver.update(asks=(AllocationAsk(f"one-{at}", "one", ONE),))
        took.append(driver.cpu * 1000)
    took.sort()
    return statistics.median(took), took[989]


def beside_the_unplaceable(waiting: int, *, shapes: int = 200) -> float:
    """Return the cores that 1,000 placeable asks a second take beside asks without a node."""
    driver = Driver(config_of(5))
    driver.nodes(1_000)
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(10)])
    made = [
        AllocationAsk(
            f"never-{at}",
            f"app-{at % 10}",
            {"vcore": 64_001 + at % shapes, "memory": GIB, "pods": 1},
        )
        for at in range(waiting)
    ]
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    while driver.fire_own(TimerKind.RESERVATION):
        pass
    driver.cpu = 0.0
    total = 3_000
    running: list[str] = []
    for at in range(total // 10):
        driver.now_ns += milliseconds(10)
        keys = [f"yes-{at}-{n}" for n in range(10)]
        ended, running = running[:-20], running[-20:]
        driver.update(
            releases=tuple(
                AllocationRelease("app-0", key, TerminationType.STOPPED_BY_RM) for key in ended
            ),
            asks=tuple(AllocationAsk(key, "app-0", ONE) for key in keys),
        )
        running += keys
    assert len(driver.allocated) == total
    return driver.cpu / (total / 1_000)


def first_refusal(nodes: int) -> float:
    """Return the µs an ask takes that is the first of its shape, and that no node has room for."""
    driver = Driver(config_of(5))
    driver.nodes(nodes)
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(10)])
    made = [
        AllocationAsk(
            f"no-{at}", f"app-{at % 10}", {"vcore": 64_001 + at, "memory": GIB, "pods": 1}
        )
        for at in range(200)
    ]
    driver.cpu = 0.0
    for batch in batches(made, 10):
        driver.update(asks=tuple(batch))
    assert not driver.allocated
    return driver.cpu / len(made) * 1e6


def beside_refused_shapes(shapes: int, nodes: int) -> float:
    """Return the ms that ten ends and ten starts take beside shapes that are refused each time.

    What ends leaves the room for each of them, which is taken by what starts before their turn.
    """
    driver = Driver(config_of(5))
    driver.nodes(nodes, {**NODE, "vcore": 63_000})
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(10)])
    large = {"vcore": 16_000, "memory": 8 * GIB, "pods": 1}
    full = [AllocationAsk(f"run-{at}", f"app-{at % 10}", large) for at in range(3 * nodes)]
    waiting = [
        AllocationAsk(
            f"no-{at}",
            f"app-{at % 10}",
            {"vcore": 30_000 + at, "memory": GIB, "pods": 1},
            priority=-1,
        )
        for at in range(shapes)
    ]
    for batch in batches(full + waiting):
        driver.update(asks=tuple(batch))
    took = []
    for turn in range(min(50, 3 * nodes // 10)):
        driver.cpu = 0.0
        driver.update(
            releases=tuple(
                AllocationRelease(f"app-{at % 10}", f"run-{at}", TerminationType.STOPPED_BY_RM)
                for at in range(10 * turn, 10 * turn + 10)
            ),
            asks=tuple(
                AllocationAsk(f"new-{turn}-{at}", f"app-{at % 10}", large) for at in range(10)
            ),
        )
        took.append(driver.cpu * 1000)
    assert len(driver.allocated) == len(full) + 10 * len(took)
    return statistics.median(took)


def beside_waiting_gangs(waiting: int) -> float:
    """Return the ms that ten ends and ten starts take beside gangs that wait for their queue."""
    limit = ", resources: {max: {vcore: 100}}"
    driver = Driver(config_of(1, more=limit))
    driver.nodes(100)
    driver.applications([("running", "root.team.leaf0")])
    ends = [f"run-{at}" for at in range(200)]
    driver.update(asks=tuple(AllocationAsk(key, "running", ONE, priority=1) for key in ends))
    gang = {"vcore": 10_000, "memory": 40 * GIB, "pods": 20}
    driver.applications(
        [(f"gang-{at}", "root.team.leaf0") for at in range(waiting)], placeholder_ask=gang
    )
    made = [
        AllocationAsk(f"g-{at}-{n}", f"gang-{at}", ONE, task_group_name="tg", placeholder=True)
        for at in range(waiting)
        for n in range(20)
    ]
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    took = []
    for turn in range(20):
        driver.cpu = 0.0
        gone, ends = ends[:10], ends[10:]
        new = [f"new-{turn}-{at}" for at in range(10)]
        driver.update(
            releases=tuple(
                AllocationRelease("running", key, TerminationType.STOPPED_BY_RM) for key in gone
            ),
            asks=tuple(AllocationAsk(key, "running", ONE, priority=1) for key in new),
        )
        took.append(driver.cpu * 1000)
        ends += new
    return statistics.median(took)


def beside_gangs_without_places(waiting: int) -> float:
    """Return the ms until one of the gangs that wait for places has those that come free."""
    driver = Driver(config_of(1), (("gangAdmission", "cluster"),))
    driver.nodes(20)
    driver.applications([("running", "root.team.leaf0")])
    ends = [f"run-{at}" for at in range(400)]
    large = {"vcore": 3_200, "memory": 2 * GIB, "pods": 1}
    driver.update(asks=tuple(AllocationAsk(key, "running", large) for key in ends))
    driver.applications(
        [(f"gang-{at}", "root.team.leaf0") for at in range(waiting)],
        placeholder_ask=multiply(large, 20),
    )
    made = [
        AllocationAsk(f"g-{at}-{n}", f"gang-{at}", large, task_group_name="tg", placeholder=True)
        for at in range(waiting)
        for n in range(20)
    ]
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    took = []
    for turn in range(10):
        driver.cpu = 0.0
        driver.update(
            releases=tuple(
                AllocationRelease("running", key, TerminationType.STOPPED_BY_RM)
                for key in ends[20 * turn : 20 * turn + 20]
            )
        )
        took.append(driver.cpu * 1000)
    assert len(driver.allocated) == 400 + 20 * min(10, waiting)
    return statistics.median(took)


def full_of_victims(nodes: int) -> Driver:
    text = (
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: ["
        "{name: low, resources: {guaranteed: {vcore: 1}}}, {name: owed, properties: "
        "{preemption.delay: 1s}, resources: {guaranteed: {vcore: %d}}}]}]}]" % (32 * nodes)
    )
    driver = Driver(text)
    driver.nodes(nodes)
    driver.applications([("low", "root.low"), ("owed", "root.owed")])
    made = [
        AllocationAsk(f"low-{at}", "low", {"vcore": 4_000, "memory": GIB, "pods": 1})
        for at in range(16 * nodes)
    ]
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    return driver


def preempt(nodes: int, asks: int) -> float:
    """Return the CPU seconds until asks that may preempt on a full cluster have their victims."""
    driver = full_of_victims(nodes)
    made = [
        AllocationAsk(f"owed-{at}", "owed", {"vcore": 4_000, "memory": GIB, "pods": 1}, priority=5)
        for at in range(asks)
    ]
    for batch in batches(made):
        driver.update(asks=tuple(batch))
    driver.cpu = 0.0
    most = min(asks, 8 * nodes)
    while len(driver.released) < most and driver.fire_own(TimerKind.PREEMPTION):
        if driver.cpu > BUDGET_S:
            return float("inf")
    assert len(driver.released) >= most, f"{len(driver.released)} of {most} victims"
    return driver.cpu


def preempt_no(nodes: int, looks: int = 20) -> float:
    """Return the ms of a look that helps nobody: ten asks try, none of whom may take anything."""
    driver = full_of_victims(nodes)
    made = [
        AllocationAsk(f"owed-{at}", "owed", {"vcore": 4_000, "memory": GIB, "pods": 1}, priority=-5)
        for at in range(1_000)
    ]
    driver.update(asks=tuple(made))
    driver.cpu = 0.0
    for _ in range(looks):
        assert driver.fire_own(TimerKind.PREEMPTION)
    assert not driver.released
    return driver.cpu / looks * 1000


def terms_row(asks: int, nodes: int, applications: int) -> float:
    """Place asks of applications that each keep their own pods apart by a term of their own."""
    driver = Driver(config_of(5, "fair"))
    driver.nodes(nodes)
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(applications)])
    apart = [
        Constraints(
            pod_anti_affinity=(
                PodTerm(HOSTNAME, (Requirement("app", "In", (f"app-{at}",)),), ("ns",)),
            ),
            namespace="ns",
        )
        for at in range(applications)
    ]
    tags = [
        {"kubernetes.io/meta/namespace": "ns", "kubernetes.io/label/app": f"app-{at}"}
        for at in range(applications)
    ]
    return _constrained(driver, asks, applications, apart, tags)


def spread_row(asks: int, nodes: int) -> float:
    """Spread the pods of one application evenly over the nodes."""
    driver = Driver(config_of(5, "fair"))
    driver.nodes(nodes)
    driver.applications([("app-0", "root.team.leaf0")])
    even = Constraints(
        spread=(SpreadConstraint(HOSTNAME, 1, selector=(Requirement("app", "In", ("a",)),)),),
        namespace="ns",
    )
    tags = {"kubernetes.io/meta/namespace": "ns", "kubernetes.io/label/app": "a"}
    return _constrained(driver, asks, 1, [even], [tags])


def _constrained(driver, asks, applications, constraints, tags) -> float:
    made = [
        AllocationAsk(
            f"ask-{at}",
            f"app-{at % applications}",
            ONE,
            constraints=constraints[at % applications],
            allocation_tags=tags[at % applications],
        )
        for at in range(asks)
    ]
    driver.cpu = 0.0
    for batch in batches(made, 200):
        driver.update(asks=tuple(batch))
        if driver.cpu > BUDGET_S:
            break
    return len(driver.allocated) / driver.cpu


def node_taken_in(nodes: int) -> float:
    """Return the µs a node takes to be registered, one message a node, beside so many."""
    driver = Driver(config_of(5))
    driver.nodes(nodes)
    driver.cpu = 0.0
    for at in range(500):
        driver.nodes(1, first=nodes + at)
    return driver.cpu / 500 * 1e6


def _recover(nodes: int, allocations: int) -> tuple[float, float]:
    spare_the_collector()
    infos = [
        NodeInfo(f"node-{at:05}", NodeAction.CREATE, NODE, {}, labels={HOSTNAME: f"node-{at:05}"})
        for at in range(nodes)
    ]
    held = [
        Allocation(f"ask-{at}", f"app-{at % 100}", f"node-{at % nodes:05}", dict(ONE))
        for at in range(allocations)
    ]
    messages: list[object] = [SyncBegin(config_of(5))]
    messages += [UpdateRequest("bench", nodes=tuple(batch)) for batch in batches(infos)]
    applications = tuple(
        AddApplicationRequest(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(100)
    )
    messages.append(UpdateRequest("bench", new_applications=applications))
    messages += [UpdateRequest("bench", allocations=tuple(batch)) for batch in batches(held)]
    messages.append(UpdateRequest("bench", asks=(AllocationAsk("first", "app-0", ONE),)))
    messages.append(SyncEnd(0, 0, 0))
    driver = Driver(config_of(5))
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for message in messages:
        driver.send(message)
    assert [item.allocation_key for item in driver.allocated] == ["first"]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return driver.cpu, (after - before) / 1024


def recovery(nodes: int, allocations: int) -> tuple[float, float]:
    """Return the CPU seconds from SyncBegin to the first decision, and the MiB it adds.

    In a process of its own, so that the memory is not that of the rows before.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_recover, nodes, allocations).result()


# --- the table ----------------------------------------------------------------------------------

BUDGET_S = 120.0  # of CPU; a row that takes longer says so


def rows(scale: Callable[[int], int]) -> dict[str, Callable[[], tuple[str, float, float]]]:
    """Return each row: what is counted, today's figure, and the figure of the floor (0: none)."""

    def rate(asks, nodes, **more):
        return "asks/s", asks_row(asks, nodes, **more), floor(asks, nodes)

    n = scale
    return {
        "plain 10,000": lambda: rate(n(10_000), n(1_000)),
        "plain 100,000": lambda: rate(n(100_000), n(1_000)),
        "10,000 nodes, binpacking": lambda: rate(n(10_000), n(10_000)),
        "10,000 nodes, fair": lambda: rate(n(10_000), n(10_000), policy="fair"),
        "50,000 asks, 100 applications": lambda: rate(
            n(50_000), n(5_000), applications=100, policy="fair"
        ),
        "200 shapes": lambda: rate(n(10_000), n(1_000), shapes=200),
        "200 shapes, fair leaves": lambda: rate(n(10_000), n(1_000), shapes=200, sort="fair"),
        "gangs 100 x 100": lambda: (
            "asks/s",
            gangs_row(n(100), 100, n(1_000)),
            floor(n(20_000), n(1_000)),
        ),
        "one ask, even p50": lambda: ("ms", one_ask(n(5_000), packed=False)[0], 0),
        "one ask, even p99": lambda: ("ms", one_ask(n(5_000), packed=False)[1], 0),
        "one ask, packed p50": lambda: ("ms", one_ask(n(5_000), packed=True)[0], 0),
        "1,000/s beside 0 unplaceable": lambda: ("cores", beside_the_unplaceable(0), 0),
        "1,000/s beside 10,000 unplaceable": lambda: (
            "cores",
            beside_the_unplaceable(n(10_000)),
            0,
        ),
        "1,000/s beside 100,000 unplaceable": lambda: (
            "cores",
            beside_the_unplaceable(n(100_000)),
            0,
        ),
        "first refusal, 1,000 nodes": lambda: ("µs", first_refusal(n(1_000)), 0),
        "first refusal, 5,000 nodes": lambda: ("µs", first_refusal(n(5_000)), 0),
        "10 ends and starts beside 0 refused shapes": lambda: (
            "ms",
            beside_refused_shapes(0, n(5_000)),
            0,
        ),
        "10 ends and starts beside 50 refused shapes": lambda: (
            "ms",
            beside_refused_shapes(50, n(5_000)),
            0,
        ),
        "10 ends and starts beside 0 gangs": lambda: ("ms", beside_waiting_gangs(0), 0),
        "10 ends and starts beside 4,000 gangs": lambda: (
            "ms",
            beside_waiting_gangs(n(4_000)),
            0,
        ),
        "places for one gang beside 11 that wait": lambda: (
            "ms",
            beside_gangs_without_places(11),
            0,
        ),
        "places for one gang beside 4,000 that wait": lambda: (
            "ms",
            beside_gangs_without_places(n(4_000)),
            0,
        ),
        "preempt one, 50 nodes": lambda: ("ms", preempt(50, 1) * 1000, 0),
        "preempt one, 1,000 nodes": lambda: ("ms", preempt(n(1_000), 1) * 1000, 0),
        "preempt none, 50 nodes": lambda: ("ms", preempt_no(50), 0),
        "preempt none, 1,000 nodes": lambda: ("ms", preempt_no(n(1_000)), 0),
        "preempt 20,000": lambda: ("s", preempt(n(1_000), n(20_000)), 0),
        "own terms, 10 applications": lambda: ("asks/s", terms_row(n(2_000), n(5_000), 10), 0),
        "own terms, 500 applications": lambda: ("asks/s", terms_row(n(2_000), n(5_000), n(500)), 0),
        "hostname spread": lambda: ("asks/s", spread_row(n(5_000), n(5_000)), 0),
        "a node taken in beside 1,000": lambda: (
            "µs",
            node_taken_in(n(1_000)),
            1e6 / floor(n(10_000), n(1_000)),
        ),
        "a node taken in beside 10,000": lambda: (
            "µs",
            node_taken_in(n(10_000)),
            1e6 / floor(n(10_000), n(10_000)),
        ),
        "recovery, CPU": lambda: (
            "s",
            recovery(n(10_000), n(100_000))[0],
            n(100_000) / floor(n(100_000), n(10_000)),
        ),
        "recovery, memory": lambda: ("MiB", recovery(n(10_000), n(100_000))[1], 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="rows with this in their name")
    parser.add_argument("--small", action="store_true", help="a tenth of the sizes")
    arguments = parser.parse_args()
    table = Table("work", "unit", "figure", "floor", "of the floor")
    for column in table.columns[2:]:
        column.justify = "right"
    console = Console()
    spare_the_collector()
    chosen = rows((lambda size: max(10, size // 10)) if arguments.small else (lambda size: size))
    for name, row in chosen.items():
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        gc.collect()
        with console.status(name):
            unit, figure, least = row()
        share = f"{figure / least:.1%}" if least else ""
        table.add_row(
            name,
            unit,
            f"{figure:,.2f}" if figure < 100 else f"{figure:,.0f}",
            f"{least:,.2f}" if 0 < least < 100 else f"{least:,.0f}" if least else "",
            share,
        )
    console.print(table)


if __name__ == "__main__":
    main()
