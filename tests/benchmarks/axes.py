"""The axes of ``make bench-growth``: a core that has so much of something, and an operation on it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from services.core.scheduler.model.settings import KAI
from shared.messages.constraints import Constraints, NodeTerm, PodTerm, Requirement
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import SyncBegin, SyncEnd, TimerFired, TimerFirings, TimerKind
from shared.messages.state import SnapshotRequest
from shared.messages.what_if import WhatIf
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.names import FOREIGN_TAG
from shared.model.resources import multiply
from shared.model.units import seconds
from tests.benchmarks.core import (
    GIB,
    HOSTNAME,
    NODE,
    Driver,
    batches,
    config_of,
    full_of_victims,
)

ONE = {"vcore": 1_000, "memory": GIB, "pods": 1}
Turn = Callable[[int], None]
Made = tuple[Driver, Turn]


def ended(application: str, key: str) -> AllocationRelease:
    return AllocationRelease(application, key, TerminationType.STOPPED_BY_RM)


def ask(key: str, application: str, amount=ONE, **more) -> AllocationAsk:
    return AllocationAsk(key, application, dict(amount), **more)


def apart(label: str, key: str = HOSTNAME) -> dict:
    """Return what an ask says that stays away from those with its own label."""
    term = PodTerm(key, (Requirement("app", "In", (label,)),), ("ns",))
    return {
        "constraints": Constraints(pod_anti_affinity=(term,), namespace="ns"),
        "allocation_tags": tags(label),
    }


def tags(label: str) -> dict[str, str]:
    return {"kubernetes.io/meta/namespace": "ns", "kubernetes.io/label/app": label}


def hand_in(driver: Driver, asks: list[AllocationAsk]) -> None:
    for batch in batches(asks):
        driver.update(asks=tuple(batch))


def _applications_of_users(driver: Driver, size: int) -> None:
    """Add an application of each of so many users."""
    made = [
        AddApplicationRequest(f"app-{at}", "root.team.leaf0", ugi=UserGroupInformation(f"u-{at}"))
        for at in range(size)
    ]
    for batch in batches(made):
        driver.update(new_applications=tuple(batch))


def _in_turn(driver: Driver, size: int, *, ahead: int) -> Turn:
    """Return what ends a pod of each application in turn, and adds another ask to it.

    ``ahead`` is how many asks each application has when it begins.
    """

    def turn(at: int) -> None:
        who, turn_of = at % size, at // size
        driver.update(
            releases=(ended(f"app-{who}", f"{who}-{turn_of}"),),
            asks=(ask(f"{who}-{turn_of + ahead}", f"app-{who}"),),
        )

    return turn


# --- the axes -----------------------------------------------------------------------------------


def nodes(size: int) -> Made:
    """A pod ends and another comes, on so many nodes."""
    driver = Driver(config_of(1))
    driver.nodes(size)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask(f"a{at}", "app") for at in range(size)])

    def turn(at: int) -> None:
        driver.update(releases=(ended("app", f"a{at}"),), asks=(ask(f"b{at}", "app"),))

    return driver, turn


def waiting(size: int) -> Made:
    """A pod ends and one of so many asks takes its place."""
    driver = Driver(config_of(1))
    driver.nodes(10)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask(f"a{at}", "app") for at in range(640 + size)])
    running = iter([item.allocation_key for item in driver.allocated])

    def turn(at: int) -> None:
        driver.update(releases=(ended("app", next(running)),), asks=(ask(f"b{at}", "app"),))

    return driver, turn


def users(size: int) -> Made:
    """A pod ends of one of so many users who are all over their limit, and another comes."""
    limit = ", limits: [{limit: each, users: ['*'], maxresources: {vcore: 1}}]"
    driver = Driver(config_of(1, more=limit))
    driver.nodes(size // 32 + 1)
    _applications_of_users(driver, size)
    hand_in(driver, [ask(f"{at}-{n}", f"app-{at}") for at in range(size) for n in range(2)])

    return driver, _in_turn(driver, size, ahead=2)


def queues_of_a_user(size: int) -> Made:
    """A pod ends in one of so many queues of one user, and another comes."""
    driver = Driver(config_of(size))
    driver.nodes(size // 32 + 1)
    user = UserGroupInformation("alice")
    names = [(f"app-{at}", f"root.team.leaf{at}") for at in range(size)]
    driver.applications(names, ugi=user)
    hand_in(driver, [ask(f"{at}-0", f"app-{at}") for at in range(size)])

    return driver, _in_turn(driver, size, ahead=1)


def shapes(size: int) -> Made:
    """Ten pods end on a full cluster where so many shapes wait, none of which fits there."""
    driver = Driver(config_of(5))
    driver.nodes(100, {"vcore": 64_000, "memory": 256 * GIB, "pods": 110})
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(10)])
    hand_in(driver, [ask(f"r{at}", "app-0") for at in range(6_400)])
    large = [
        ask(f"w{at}", f"app-{at % 10}", {"vcore": 50_000 + at, "memory": GIB, "pods": 1})
        for at in range(size)
    ]
    hand_in(driver, large)

    def turn(at: int) -> None:
        some = range(10 * at, 10 * at + 10)
        driver.update(
            releases=tuple(ended("app-0", f"r{n}") for n in some),
            asks=tuple(ask(f"n{n}", "app-0", priority=1) for n in some),
        )

    return driver, turn


def fitting_shapes(size: int) -> Made:
    """Ten pods end, each of which leaves room for any of so many shapes; others come and take it."""
    driver = Driver(config_of(5))
    driver.nodes(500, {"vcore": 63_000, "memory": 256 * GIB, "pods": 110})
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(10)])
    large = {"vcore": 16_000, "memory": 8 * GIB, "pods": 1}
    hand_in(driver, [ask(f"r{at}", f"app-{at % 10}", large) for at in range(1_500)])
    hand_in(
        driver,
        [
            ask(f"w{at}", f"app-{at % 10}", {**large, "vcore": 30_000 + at}, priority=-1)
            for at in range(size)
        ],
    )

    def turn(at: int) -> None:
        some = range(10 * at, 10 * at + 10)
        driver.update(
            releases=tuple(ended(f"app-{n % 10}", f"r{n}") for n in some),
            asks=tuple(ask(f"n{n}", f"app-{n % 10}", large) for n in some),
        )

    return driver, turn


def own_anti_affinity(size: int) -> Made:
    """Pods end that have nothing to do with so many asks, each kept away by its own term."""
    driver = Driver(config_of(5))
    region = "topology.kubernetes.io/region"
    capacity = {"vcore": 64_000, "memory": 256 * GIB, "pods": 1_000}
    driver.update(
        nodes=tuple(
            NodeInfo(f"node-{at}", NodeAction.CREATE, capacity, {}, labels={region: "r"})
            for at in range(20)
        )
    )
    driver.applications([(f"app-{at}", f"root.team.leaf{at % 5}") for at in range(10)])
    small = {"vcore": 10, "memory": 2**20, "pods": 1}
    plain = [ask(f"r{at}", "app-0", small, allocation_tags=tags("x")) for at in range(200)]
    hand_in(driver, plain)
    hand_in(
        driver,
        [
            ask(f"{at}-{n}", f"app-{at % 10}", small, **apart(f"own-{at}", region))
            for n in range(2)
            for at in range(size)
        ],
    )
    assert len(driver.allocated) == 200 + size

    def turn(at: int) -> None:
        driver.update(
            releases=(ended("app-0", f"r{at}"),),
            asks=(ask(f"n{at}", "app-0", small, allocation_tags=tags("x")),),
        )

    return driver, turn


def node_terms(size: int) -> Made:
    """A pod ends and an ask comes, of so many kinds in turn that differ in their node term."""
    driver = Driver(config_of(1))
    driver.nodes(1_000)
    driver.applications([("app", "root.team.leaf0")])
    small = {"vcore": 1, "memory": 2**20, "pods": 1}

    def with_term(key: str, number: int) -> AllocationAsk:
        rule = Requirement("zone", "NotIn", (f"z{number}",))
        constraints = Constraints(node_terms=(NodeTerm((rule,)),))
        return ask(key, "app", small, constraints=constraints)

    hand_in(driver, [with_term(f"a{at}", at) for at in range(size)])

    def turn(at: int) -> None:
        asks = (with_term(f"b{at}", at % size),)
        driver.update(releases=(ended("app", f"a{at}"),), asks=asks)

    return driver, turn


def priorities(size: int) -> Made:
    """So many asks come at once, each of a priority of its own: the cost by ask."""
    driver = Driver(config_of(1))
    driver.nodes(size // 10 + 1)
    driver.applications([("app", "root.team.leaf0")])

    def turn(at: int) -> None:
        small = {"vcore": 1, "memory": 2**20, "pods": 1}
        hand_in(driver, [ask(f"{at}-{n}", "app", small, priority=n) for n in range(size)])

    return driver, turn


def leaves(size: int) -> Made:
    """A pod ends and an ask comes in one of so many leaves with an application each."""
    driver = Driver(config_of(size))
    driver.nodes(size // 32 + 1)
    driver.applications([(f"app-{at}", f"root.team.leaf{at}") for at in range(size)])
    hand_in(driver, [ask(f"{at}-0", f"app-{at}") for at in range(size)])

    def turn(at: int) -> None:
        who, turn_of = (at * 7) % size, at // size
        driver.update(asks=(ask(f"{who}-{turn_of}-{at}", f"app-{who}"),))

    return driver, turn


def all_leaves(size: int) -> Made:
    """An ask comes in each of so many leaves at once: the cost by ask."""
    driver = Driver(config_of(size))
    driver.nodes(size // 32 + 1)
    driver.applications([(f"app-{at}", f"root.team.leaf{at}") for at in range(size)])

    def turn(at: int) -> None:
        hand_in(driver, [ask(f"{leaf}-{at}", f"app-{leaf}") for leaf in range(size)])

    return driver, turn


def one_max(size: int) -> Made:
    """A configuration comes that changes the max of one among so many queues."""
    return _reloads(size, "max")


def _reloads(size: int, key: str) -> Made:
    """Two configurations come in turn that differ in one of so many queues, in a key of it."""
    driver = Driver(config_of(size))
    driver.nodes(10)
    driver.applications([(f"app-{at}", f"root.team.leaf{at}") for at in range(min(size, 100))])
    leaf = "{name: leaf1,"
    texts = [
        config_of(size).replace(leaf, f"{leaf} resources: {{{key}: {{vcore: {vcore}}}}},")
        for vcore in (9, 8)
    ]
    return driver, lambda at: driver.send(UpdateConfiguration(texts[at % 2]))


def reclaim_at_once(size: int) -> Made:
    """So many asks reclaim at once, under the policy kai."""
    driver = _crowded(size)
    driver.applications([(f"owed-{at}", "root.team.leaf1") for at in range(size)])

    def turn(_: int) -> None:
        hand_in(driver, [ask(f"w{at}", f"owed-{at}") for at in range(size)])
        for _ in range(200):
            driver.now_ns += seconds(1)
            if not driver.fire_own(TimerKind.PREEMPTION) or len(driver.released) >= size:
                break
            driver.confirm()

    return driver, turn


def _crowded(size: int) -> Driver:
    """Return a core under kai with two queues of which one has taken the whole cluster."""
    owed = f", resources: {{guaranteed: {{vcore: {size}}}}}"
    driver = Driver(config_of(2, more=owed), (("policy", KAI),))
    nodes = -(-2 * size // 64)
    driver.nodes(nodes)
    room = range(nodes * 64)
    driver.applications([(f"all-{at}", "root.team.leaf0") for at in room])
    hand_in(driver, [ask(f"r{at}", f"all-{at}") for at in room])
    return driver


def gang_that_reclaims(size: int) -> Made:
    """A gang of so many members reclaims the room for all of them, under the policy kai."""
    driver = _crowded(size)

    def turn(at: int) -> None:
        whole = multiply(ONE, size)
        driver.applications([(f"gang-{at}", "root.team.leaf1")], placeholder_ask=whole)
        more = {"placeholder": True, "task_group_name": "tg"}
        hand_in(driver, [ask(f"g{at}-{n}", f"gang-{at}", **more) for n in range(size)])
        driver.now_ns += seconds(1)
        driver.fire_own(TimerKind.PREEMPTION)
        assert len(driver.released) == size, len(driver.released)

    return driver, turn


def victims_of_one_ask(size: int) -> Made:
    """One ask of a whole node looks for so many victims on it, under the policy kai."""
    owed = ", resources: {guaranteed: {vcore: %d}}" % size
    driver = Driver(config_of(2, more=owed), (("policy", KAI),))
    small = {"vcore": 1_000, "memory": 2**20, "pods": 1}
    driver.nodes(2, {"vcore": 1_000 * size, "memory": 2**20 * size, "pods": 2 * size})
    driver.applications([(f"all-{at}", "root.team.leaf0") for at in range(2 * size)])
    hand_in(driver, [ask(f"r{at}", f"all-{at}", small) for at in range(2 * size)])

    def turn(at: int) -> None:
        driver.applications([("one", "root.team.leaf1")])
        driver.update(asks=(ask("one", "one", multiply(small, size)),))
        driver.now_ns += seconds(1)
        driver.fire_own(TimerKind.PREEMPTION)
        assert len(driver.released) == size, len(driver.released)

    return driver, turn


def victims_of_one(size: int) -> Made:
    """One ask looks for a victim among so many pods, under the policy yunikorn."""
    driver = full_of_victims(max(1, size // 20))

    def turn(at: int) -> None:
        driver.now_ns += seconds(31)
        amount = {"vcore": 4_000, "memory": GIB, "pods": 1}
        driver.update(asks=(ask(f"owed-{at}", "owed", amount),))
        driver.now_ns += seconds(31)
        driver.fire_own(TimerKind.PREEMPTION)

    return driver, turn


def applications_running(size: int) -> Made:
    """A pod comes in one of so many applications of one leaf that run."""
    driver = Driver(config_of(1))
    driver.nodes(size // 32 + 1)
    driver.applications([(f"app-{at}", "root.team.leaf0") for at in range(size)])
    hand_in(driver, [ask(f"{at}-0", f"app-{at}") for at in range(size)])

    def turn(at: int) -> None:
        driver.update(asks=(ask(f"b{at}", f"app-{(7 * at) % size}"),))

    return driver, turn


def depth(size: int) -> Made:
    """A pod ends and another comes in a leaf that is so many queues deep."""
    inner = "{name: leaf}"
    for at in range(size):
        inner = f"{{name: q{at}, queues: [{inner}]}}"
    names = ".".join(f"q{at}" for at in reversed(range(size)))
    driver = Driver(
        f"partitions: [{{name: default, queues: [{{name: root, submitacl: '*', queues: [{inner}]}}]}}]"
    )
    driver.nodes(10)
    driver.applications([("app", f"root.{names}.leaf")])
    hand_in(driver, [ask(f"a{at}", "app") for at in range(100)])

    def turn(at: int) -> None:
        driver.update(releases=(ended("app", f"a{at}"),), asks=(ask(f"b{at}", "app"),))

    return driver, turn


def waiting_gangs(size: int) -> Made:
    """A pod ends and another comes beside so many gangs that wait for their queue."""
    driver = Driver(config_of(1, more=", resources: {max: {vcore: 64}}"))
    driver.nodes(10)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask(f"a{at}", "app", priority=1) for at in range(64)])
    gangs = [(f"gang-{at}", "root.team.leaf0") for at in range(size)]
    driver.applications(gangs, placeholder_ask=multiply(ONE, 20))
    more = {"placeholder": True, "task_group_name": "tg"}
    hand_in(
        driver, [ask(f"g{at}-{n}", f"gang-{at}", **more) for at in range(size) for n in range(20)]
    )
    running = [f"a{at}" for at in range(64)]

    def turn(at: int) -> None:
        gone, new = (ended("app", running[at]),), ask(f"b{at}", "app", priority=1)
        driver.update(releases=gone, asks=(new,))
        running.append(f"b{at}")

    return driver, turn


class _WholeNodes:
    """A full cluster of 36 nodes of 8 GPUs: gangs of whole nodes run, and others wait for nodes.

    Each second gang needs memory of an amount of its own: it is alike to few others.
    """

    sizes = (2, 2, 3, 2, 4, 2, 4, 8)  # nodes, in turn

    def __init__(self, waiting: int) -> None:
        self.driver = Driver(config_of(12), (("preset", "muster"),))
        self.driver.nodes(36, {"vcore": 64_000, "memory": 1_024 * GIB, GPU: 8_000, "pods": 110})
        self.running: list[str] = []
        self._gangs: dict[str, list[AllocationAsk]] = {}
        self._read = self._came = 0
        self.submit(12)  # more than have room: the first of those that wait
        self.submit(waiting)

    def submit(self, gangs: int) -> None:
        """Submit gangs, and let those run that start."""
        for at in range(self._came, self._came + gangs):
            name, nodes = f"gang-{at}", self.sizes[at % len(self.sizes)]
            memory = GIB * (1 + at % 400 if at % 2 else 1)
            amount = {"vcore": 1_000, "memory": memory, GPU: 8_000, "pods": 1}
            self._gangs[name] = [
                ask(f"{name}-{n}", name, amount, task_group_name="tg") for n in range(nodes)
            ]
            whole = multiply(amount, nodes)
            self.driver.applications([(name, f"root.team.leaf{at % 12}")], placeholder_ask=whole)
            hand_in(self.driver, [self._placeholder(each) for each in self._gangs[name]])
            self._run()
        self._came += gangs

    @staticmethod
    def _placeholder(real: AllocationAsk) -> AllocationAsk:
        return replace(real, allocation_key=f"{real.allocation_key}-p", placeholder=True)

    def end(self) -> None:
        """Let a minute pass and the first of the gangs that run end, and let those run that start."""
        self.driver.now_ns += seconds(60)
        while 0 < self.driver.partition.reservations_due_ns <= self.driver.now_ns:
            now_ns = self.driver.now_ns
            self.driver.fire_own(TimerKind.RESERVATION)
            self.driver.now_ns = now_ns
        name = self.running.pop(0)
        gone = tuple(ended(name, real.allocation_key) for real in self._gangs.pop(name))
        removed = (RemoveApplicationRequest(name),)
        self.driver.update(releases=gone, remove_applications=removed)
        self._run()

    def _run(self) -> None:
        """Have the pods of gangs that have their placeholders take their places."""
        while self._read < len(self.driver.allocated):
            news, self._read = self.driver.allocated[self._read :], len(self.driver.allocated)
            for name in dict.fromkeys(each.application_id for each in news if each.placeholder):
                self.driver.update(asks=tuple(self._gangs[name]))
                self.driver.confirm()
                self.running.append(name)


def gangs_without_nodes(size: int) -> Made:
    """Ten gangs end one after the other and others start, beside so many that wait for nodes."""
    cluster = _WholeNodes(size)

    def turn(_: int) -> None:
        for _ in range(10):
            cluster.end()
            cluster.submit(1)

    return cluster.driver, turn


def limits(size: int) -> Made:
    """A pod comes of one of so many users of whom each has a limit of its own."""
    each = ", ".join(
        f"{{limit: l{at}, users: [u-{at}], maxresources: {{vcore: 9}}}}" for at in range(size)
    )
    driver = Driver(config_of(1, more=f", limits: [{each}]"))
    driver.nodes(size // 32 + 1)
    _applications_of_users(driver, size)

    def turn(at: int) -> None:
        driver.update(asks=(ask(f"b{at}", f"app-{at % size}"),))

    return driver, turn


def foreign_pods(size: int) -> Made:
    """A pod of another scheduler comes beside so many of them."""
    driver = Driver(config_of(1))
    driver.nodes(100)

    def foreign(key: str, at: int) -> Allocation:
        small = {"vcore": 1, "memory": 2**20}
        tags = {FOREIGN_TAG: "default"}
        return Allocation(key, "", f"node-{at % 100:05}", small, allocation_tags=tags)

    for batch in batches([foreign(f"f{at}", at) for at in range(size)]):
        driver.update(allocations=tuple(batch))

    def turn(at: int) -> None:
        driver.update(allocations=(foreign(f"n{at}", at),))

    return driver, turn


def ends_at_once(size: int) -> Made:
    """So many pods of one application end at once: the cost by pod."""
    driver = Driver(config_of(1))
    driver.nodes(5 * size // 50 + 1)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask(f"a{at}", "app") for at in range(5 * size)])

    def turn(at: int) -> None:
        gone = [ended("app", f"a{n}") for n in range(at * size, at * size + size)]
        for batch in batches(gone):
            driver.update(releases=tuple(batch))

    return driver, turn


def snapshot(size: int) -> Made:
    """The whole state is told to an API that asks for it: the cost by pod."""
    driver = Driver(config_of(1))
    driver.nodes(size // 32 + 1)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask(f"a{at}", "app") for at in range(size)])
    return driver, lambda _: driver.send(SnapshotRequest("late"), epoch=0)


def node_relabelled(size: int) -> Made:
    """A node of so many gets another label."""
    driver = Driver(config_of(1))
    driver.nodes(size)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask("a", "app")])

    def turn(at: int) -> None:
        name = f"node-{at:05}"
        labels = {HOSTNAME: name, "zone": f"z{at}"}
        driver.update(nodes=(NodeInfo(name, NodeAction.UPDATE, {}, {}, labels=labels),))

    return driver, turn


def behind_the_head_gang(size: int) -> Made:
    """A pod ends while a gang has nodes held and so many jobs wait that state how long they run."""
    settings = ("gangAdmission", "cluster"), ("reservations", "gang"), ("backfill", "enabled")
    driver = Driver(config_of(1), settings)
    driver.nodes(100, {"vcore": 4_000, "memory": 256 * GIB, "pods": 110})

    def jobs(names: list[str], hours: int) -> None:
        for at, batch in enumerate(batches(names)):
            made = [
                AddApplicationRequest(
                    name,
                    "root.team.leaf0",
                    execution_timeout_milli_seconds=3_600_000 * hours + 1_000 * n + at,
                    placeholder_timeout_milli_seconds=1_000,
                )
                for n, name in enumerate(batch)
            ]
            driver.update(new_applications=tuple(made), asks=tuple(ask(f"{n}-0", n) for n in batch))

    jobs([f"r{at}" for at in range(400)], 1)
    driver.applications([("gang", "root.team.leaf0")], placeholder_ask=multiply(ONE, 160))
    more = {"placeholder": True, "task_group_name": "tg"}
    wide = multiply(ONE, 4)
    driver.applications([("head", "root.team.leaf0")], placeholder_ask=multiply(wide, 40))
    hand_in(driver, [ask(f"h{n}", "head", wide, **more) for n in range(40)])
    jobs([f"w{at}" for at in range(size)], 24)

    def turn(at: int) -> None:
        driver.now_ns += seconds(1)
        driver.update(releases=(ended(f"r{at}", f"r{at}-0"),))

    return driver, turn


# --- under reservations, devices, timers --------------------------------------------------------


def reserved_nodes(size: int) -> Made:
    """A pod ends and another comes beside so many asks that have a node reserved each."""
    settings = (("reservations", "asks"), ("maxReservedNodes", str(size)))
    driver = Driver(config_of(1), settings)
    driver.nodes(size)
    driver.applications([("app", "root.team.leaf0"), ("waits", "root.team.leaf0")])
    large = {"vcore": 40_000, "memory": GIB, "pods": 1}
    hand_in(driver, [ask(f"r{at}", "app", large) for at in range(size)])
    hand_in(driver, [ask(f"w{at}", "waits", large) for at in range(size)])
    for _ in range(100):
        driver.now_ns += seconds(10)
        if not driver.fire_own(TimerKind.RESERVATION) or len(_reserved(driver)) == size:
            break
    assert len(_reserved(driver)) == size
    driver.nodes(1, {**NODE, "ours": 1_000}, first=size)
    ours = {"vcore": 1_000, "memory": GIB, "pods": 1, "ours": 1}
    hand_in(driver, [ask(f"a{at}", "app", ours) for at in range(50)])

    def turn(at: int) -> None:
        driver.update(releases=(ended("app", f"a{at}"),), asks=(ask(f"b{at}", "app", ours),))

    return driver, turn


def _reserved(driver: Driver) -> list[object]:
    return [*driver.partition.reserved_nodes.by_age]


def timeouts(size: int) -> Made:
    """The placeholders of so many gangs time out at once: the cost by gang."""
    driver = Driver(config_of(1))
    driver.nodes(size // 16 + 1)
    names = [f"gang-{at}" for at in range(size)]
    driver.applications(
        [(name, "root.team.leaf0") for name in names], placeholder_ask=multiply(ONE, 2)
    )
    more = {"placeholder": True, "task_group_name": "tg"}
    hand_in(driver, [ask(f"{name}-{n}", name, **more) for name in names for n in range(2)])

    def turn(_: int) -> None:
        fired = []
        for name in names:
            application = driver.partition.applications[name]
            for timer_id, (generation, due_ns) in application.timers.items():
                if timer_id.startswith(TimerKind.PLACEHOLDER.value):
                    driver.now_ns = max(driver.now_ns, due_ns)
                    fired.append(TimerFired(timer_id, TimerKind.PLACEHOLDER, name, generation))
        assert len(fired) == size
        for batch in batches(fired):
            driver.send(TimerFirings(tuple(batch)))
        assert len(driver.released) == 2 * size

    return driver, turn


def devices(size: int) -> Made:
    """A quarter of a GPU is given back and another asked for, on so many nodes of four."""
    driver = Driver(config_of(1))
    driver.nodes(size, {**NODE, GPU: 4_000})
    driver.applications([("app", "root.team.leaf0")])
    share = {"vcore": 1_000, "memory": GIB, "pods": 1, GPU_SHARE: 250}
    hand_in(driver, [ask(f"a{at}", "app", share) for at in range(8 * size)])

    def turn(at: int) -> None:
        driver.update(releases=(ended("app", f"a{at}"),), asks=(ask(f"b{at}", "app", share),))

    return driver, turn


# --- victims, by both policies ------------------------------------------------------------------


def preemptor_among_nodes(size: int) -> Made:
    """One ask reclaims the room of one pod, on so many full nodes, under the policy kai."""
    owed = f", resources: {{guaranteed: {{vcore: {2 * size}}}}}"
    driver = Driver(config_of(2, more=owed), (("policy", KAI),))
    driver.nodes(size, {"vcore": 4_000, "memory": 16 * GIB, "pods": 8})
    driver.applications([(f"all-{at}", "root.team.leaf0") for at in range(4 * size)])
    hand_in(driver, [ask(f"r{at}", f"all-{at}") for at in range(4 * size)])

    def turn(at: int) -> None:
        driver.applications([(f"one-{at}", "root.team.leaf1")])
        driver.update(asks=(ask(f"one-{at}", f"one-{at}"),))
        driver.now_ns += seconds(1)
        driver.fire_own(TimerKind.PREEMPTION)
        assert len(driver.released) == 1, len(driver.released)
        driver.confirm()

    return driver, turn


def gang_that_preempts(size: int) -> Made:
    """A gang of so many members preempts, under the policy yunikorn: the cost by member."""
    driver = full_of_victims(size // 8 + 1)
    amount = {"vcore": 4_000, "memory": GIB, "pods": 1}

    def turn(at: int) -> None:
        name = f"gang-{at}"
        whole = multiply(amount, size)
        driver.applications([(name, "root.owed")], placeholder_ask=whole)
        more = {"placeholder": True, "task_group_name": "tg", "priority": 5}
        hand_in(driver, [ask(f"{name}-{n}", name, amount, **more) for n in range(size)])
        for _ in range(4 * size):
            driver.now_ns += seconds(31)
            if len(driver.released) >= size or not driver.fire_own(TimerKind.PREEMPTION):
                break
        assert len(driver.released) == size, len(driver.released)

    return driver, turn


def victims_of_a_large_ask(size: int) -> Made:
    """An ask of a whole node preempts so many pods on it, by yunikorn: the cost by victim."""
    driver = Driver(
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: ["
        "{name: low, resources: {guaranteed: {vcore: 1}}}, {name: owed, properties: "
        "{preemption.delay: 1s}, resources: {guaranteed: {vcore: %d}}}]}]}]" % size
    )
    small = {"vcore": 1_000, "memory": 2**20, "pods": 1}
    driver.nodes(2, {"vcore": 1_000 * size, "memory": 2**20 * size, "pods": 2 * size})
    driver.applications([("low", "root.low"), ("owed", "root.owed")])
    hand_in(driver, [ask(f"low-{at}", "low", small) for at in range(2 * size)])

    def turn(at: int) -> None:
        whole = {**multiply(small, size), "pods": 1}
        driver.update(asks=(ask(f"owed-{at}", "owed", whole, priority=5),))
        driver.now_ns += seconds(31)
        driver.fire_own(TimerKind.PREEMPTION)
        assert len(driver.released) == size, len(driver.released)

    return driver, turn


# --- of the whole, and what comes and goes ------------------------------------------------------


def what_if(size: int) -> Made:
    """What would be if a node were drained of so many with ten pods each: the cost by node."""
    driver = Driver(config_of(1))
    driver.nodes(size)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask(f"a{at}", "app") for at in range(10 * size)])
    question = WhatIf(drain="node-00000")
    return driver, lambda _: driver.send(question, reply_to="api.one#1")


def reload(size: int) -> Made:
    """A configuration comes that changes what one of so many queues is owed: the cost by queue."""
    return _reloads(size, "guaranteed")


def recovery(size: int) -> Made:
    """A core starts over with so many pods: the cost by pod."""
    driver = Driver(config_of(1))
    names = [f"node-{at:05}" for at in range(size // 10 + 1)]
    infos = [NodeInfo(name, NodeAction.CREATE, NODE, {}, labels={HOSTNAME: name}) for name in names]
    pods = [
        Allocation(f"a{at}", f"app-{at % 10}", names[at // 10], dict(ONE)) for at in range(size)
    ]
    applications = [(f"app-{at}", "root.team.leaf0") for at in range(10)]

    def turn(_: int) -> None:
        driver.send(SyncBegin(config_of(1)))
        for batch in batches(infos):
            driver.update(nodes=tuple(batch))
        driver.applications(applications)
        for batch in batches(pods):
            driver.update(allocations=tuple(batch))
        driver.send(SyncEnd(0, 0, 0))
        assert sum(len(node.allocations) for node in driver.partition.nodes.rows) == size

    return driver, turn


def asks_at_once(size: int) -> Made:
    """So many asks of one application come at once: the cost by ask."""
    driver = Driver(config_of(1))
    driver.nodes(5 * size // 50 + 1)
    driver.applications([("app", "root.team.leaf0")])

    def turn(at: int) -> None:
        hand_in(driver, [ask(f"{at}-{n}", "app") for n in range(size)])

    return driver, turn


def task_groups(size: int) -> Made:
    """A gang of so many task groups of one member each starts: the cost by group."""
    driver = Driver(config_of(1))
    driver.nodes(5 * size // 60 + 1)

    def turn(at: int) -> None:
        name = f"gang-{at}"
        driver.applications([(name, "root.team.leaf0")], placeholder_ask=multiply(ONE, size))
        groups = [
            ask(f"{name}-{n}", name, placeholder=True, task_group_name=f"tg-{n}")
            for n in range(size)
        ]
        before = len(driver.allocated)
        hand_in(driver, groups)
        assert len(driver.allocated) == before + size

    return driver, turn


def applications_that_end(size: int) -> Made:
    """An application ends and another comes, beside so many that run."""
    driver = Driver(config_of(1))
    driver.nodes(size // 32 + 1)
    names = [f"app-{at}" for at in range(size)]
    driver.applications([(name, "root.team.leaf0") for name in names])
    hand_in(driver, [ask(f"{name}-0", name) for name in names])

    def turn(at: int) -> None:
        gone, name = f"app-{at % size}", f"new-{at}"
        if at >= size:
            gone = f"new-{at - size}"
        driver.update(
            releases=(ended(gone, f"{gone}-0"),),
            remove_applications=(RemoveApplicationRequest(gone),),
            new_applications=(AddApplicationRequest(name, "root.team.leaf0"),),
            asks=(ask(f"{name}-0", name),),
        )

    return driver, turn


def dynamic_queues(size: int) -> Made:
    """An application comes for which a queue is made, beside so many that were made so."""
    rules = "placementrules: [{name: provided, create: true}], "
    driver = Driver(config_of(1).replace("{name: default, ", "{name: default, " + rules))
    driver.nodes(size // 32 + 1)
    names = [f"app-{at}" for at in range(size)]
    driver.applications([(name, f"root.made.{name}") for name in names])
    hand_in(driver, [ask(f"{name}-0", name) for name in names])

    def turn(at: int) -> None:
        name = f"new-{at}"
        driver.applications([(name, f"root.made.{name}")])
        driver.update(asks=(ask(f"{name}-0", name),))

    return driver, turn


def nodes_that_come(size: int) -> Made:
    """A node comes beside so many."""
    driver = Driver(config_of(1))
    driver.nodes(size)
    driver.applications([("app", "root.team.leaf0")])
    hand_in(driver, [ask("a", "app")])
    return driver, lambda at: driver.nodes(1, first=size + at)


@dataclass(frozen=True)
class Axis:
    """A core of a size and an operation on it. ``turns`` are made; ``by_size``: it does so many."""

    make: Callable[[int], Made]
    sizes: tuple[int, ...] = (10, 100, 1_000, 10_000)
    turns: int = 20
    by_size: bool = False


AXES = {
    "nodes": Axis(nodes, sizes=(100, 1_000, 10_000)),
    "asks that wait": Axis(waiting, sizes=(100, 1_000, 10_000, 100_000)),
    "users over their limit": Axis(users),
    "queues of one user": Axis(queues_of_a_user, sizes=(10, 100, 1_000, 5_000)),
    "shapes on a full cluster": Axis(shapes, sizes=(1, 10, 100, 1_000)),
    "shapes that would fit": Axis(fitting_shapes, sizes=(1, 10, 100, 1_000)),
    "own anti-affinity": Axis(own_anti_affinity, sizes=(5, 50, 500)),
    "node terms": Axis(node_terms),
    "priorities": Axis(priorities, turns=5, by_size=True),
    "applications that run": Axis(applications_running),
    "gangs that wait": Axis(waiting_gangs, sizes=(10, 100, 1_000)),
    "gangs that wait for nodes": Axis(gangs_without_nodes, sizes=(25, 100, 400, 1_600), turns=10),
    "limits": Axis(limits, sizes=(10, 100, 1_000)),
    "depth": Axis(depth, sizes=(1, 10, 50)),
    "foreign pods": Axis(foreign_pods),
    "ends at once": Axis(ends_at_once, turns=5, by_size=True),
    "a snapshot": Axis(snapshot, turns=3, by_size=True),
    "a node relabelled": Axis(node_relabelled, sizes=(100, 1_000, 10_000)),
    "behind the head gang": Axis(behind_the_head_gang),
    "leaves, one of them": Axis(leaves, sizes=(10, 100, 1_000, 5_000)),
    "leaves, all at once": Axis(all_leaves, sizes=(10, 100, 1_000, 5_000), turns=5, by_size=True),
    "one max among queues": Axis(one_max, sizes=(10, 100, 1_000, 5_000), turns=6),
    "reclaim at once, kai": Axis(reclaim_at_once, sizes=(10, 100, 1_000), turns=1, by_size=True),
    "gang that reclaims, kai": Axis(
        gang_that_reclaims, sizes=(10, 100, 1_000), turns=1, by_size=True
    ),
    "victims of one ask, kai": Axis(
        victims_of_one_ask, sizes=(10, 100, 1_000), turns=1, by_size=True
    ),
    "victims of one, yunikorn": Axis(victims_of_one, sizes=(1_000, 10_000), turns=10),
    "reserved nodes": Axis(reserved_nodes, sizes=(10, 100, 1_000)),
    "timeouts at once": Axis(timeouts, sizes=(10, 100, 1_000, 5_000), turns=1, by_size=True),
    "devices": Axis(devices, sizes=(10, 100, 1_000)),
    "preemptor among nodes, kai": Axis(preemptor_among_nodes, sizes=(10, 100, 1_000), turns=3),
    "gang that preempts, yunikorn": Axis(
        gang_that_preempts, sizes=(10, 100, 1_000), turns=1, by_size=True
    ),
    "victims of a large ask, yunikorn": Axis(
        victims_of_a_large_ask, sizes=(10, 100, 1_000), turns=1, by_size=True
    ),
    "what-if": Axis(what_if, sizes=(10, 100, 1_000), turns=3, by_size=True),
    "reload": Axis(reload, sizes=(10, 100, 1_000, 5_000), turns=4, by_size=True),
    "recovery": Axis(recovery, turns=1, by_size=True),
    "asks at once": Axis(asks_at_once, turns=5, by_size=True),
    "task groups": Axis(task_groups, sizes=(10, 100, 1_000), turns=3, by_size=True),
    "applications that end": Axis(applications_that_end),
    "dynamic queues": Axis(dynamic_queues, sizes=(10, 100, 1_000)),
    "nodes that come": Axis(nodes_that_come, sizes=(100, 1_000, 10_000)),
}  # fmt: skip
