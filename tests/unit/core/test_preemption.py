"""Cases X, YuniKorn's laws of preemption, through the whole scheduler."""

import pytest

from services.core.scheduler.actions.quota_preemption import preemptable
from services.core.scheduler.model.rows import Queue
from services.core.scheduler.nodes import victim_sets
from services.core.scheduler.ordering import queueing
from services.core.scheduler.policies import preemption
from shared.messages.constraints import Constraints, PodTerm, Requirement
from shared.messages.interface import (
    Allocation,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import Heartbeat, SyncBegin, SyncEnd, TimerKind
from shared.messages.state import AskState, UsedResource
from tests.builders import Core, config_of, section
from tests.table import each_row
from tests.victims import eligible_keys

QUEUE_QUOTA = "Not enough queue quota"
PRECONDITIONS = "Preemption preconditions failed"
GUARANTEES = "Preemption queue guarantees check failed"
NO_HELP = "Preemption does not help"
SHORTFALL = "Preemption helped but short of resources"
EXHAUSTED = "Preemption max attempts exhausted"
PREEMPTED = TerminationType.PREEMPTED_BY_SCHEDULER


class Cluster(Core):
    """Queues below root.parent, one application a leaf, and what was preempted."""

    def __init__(self, *leaves: str, parent: str = "", nodes: dict | None = None, top: tuple = ()):
        below = ", ".join(leaves)
        super().__init__(config_of("{name: parent, %s queues: [%s]}" % (parent, below), *top))
        for name, vcore in (nodes or {}).items():
            self.node(name, vcore=vcore)

    def run(self, leaf: str, key: str, vcore: int, path: str = "root.parent", **more):
        self.now_ns += 1_000_000_000
        if leaf not in self.partition.applications:
            self.application(leaf, f"{path}.{leaf}")
        more.setdefault("create_time_ns", self.now_ns)
        return self.asks(leaf, [key], {"vcore": vcore}, **more)

    def place(self, leaf: str, key: str, vcore: int, node: str, path: str = "root.parent", **more):
        """Let a pod exist on a node already; each is newer than those before it."""
        self.now_ns += 1_000_000_000
        if leaf not in self.partition.applications:
            self.application(leaf, f"{path}.{leaf}")
        more.setdefault("create_time_ns", self.now_ns)
        self.update(allocations=(Allocation(key, leaf, node, {"vcore": vcore}, **more),))

    def log(self, key: str) -> dict[str, int]:
        """Return how often an ask was told what, as the state events say it."""
        told = [
            ask.log
            for item in self.answers
            for ask in getattr(item.message, "asks", ())
            if isinstance(ask, AskState) and ask.allocation_key == key
        ]
        assert [line.last_occurrence_ns for line in told[-1]] == sorted(
            line.last_occurrence_ns for line in told[-1]
        )
        return {line.message: line.count for line in told[-1]}

    def events(self, text: str) -> list[str]:
        events = [event for item in self.answers for event in getattr(item.message, "events", ())]
        return [event.object_id for event in events if text in event.message]

    def look(self, seconds: int = 31) -> list[str]:
        """Let time pass and the next look happen; return the keys that are preempted."""
        if "preemption" not in self.partition.timers:
            return []
        self.now_ns += seconds * 1_000_000_000
        responses = self.fire_own("preemption")
        released = section(responses, "released_allocations")
        assert {item.termination_type for item in released} <= {PREEMPTED}
        self.check()
        return sorted(item.allocation_key for item in released)

    def confirm(self, app: str, key: str) -> list[str]:
        responses = self.update(releases=(AllocationRelease(app, key, PREEMPTED),))
        self.check()
        return [item.allocation_key for item in section(responses, "new_allocations")]


def guaranteed(name: str, vcore: int, more: str = "") -> str:
    """Return a leaf with a guarantee in milli of vcore."""
    return "{name: %s, %s resources: {guaranteed: {vcore: %dm}}}" % (name, more, vcore)


def test_x_01_the_newer_victim_goes_and_the_ask_gets_its_room():
    leaf2 = guaranteed("leaf2", 5, "properties: {preemption.delay: 1ms},")
    core = Cluster("{name: leaf1}", leaf2, nodes={"n1": 5, "n2": 5})
    core.run("leaf1", "alloc-1", 5)
    core.run("leaf1", "alloc-2", 5)
    core.run("leaf2", "wants", 5, priority=1)
    assert core.look(0) == ["alloc-2"]  # 1 ms later
    leaf1 = core.partition.queues["root.parent.leaf1"]
    assert leaf1.preempting == {"vcore": 5}
    node = core.partition.nodes.nodes["n2"]
    assert list(node.reservations) == ["wants"]
    core.now_ns = core.partition.applications["leaf1"].placed_ns["alloc-2"] + 1_000_000_000_000
    assert core.confirm("leaf1", "alloc-2") == ["wants"]
    assert leaf1.preempting == {}
    assert node.reservations == {}
    assert core.look() == []
    told = [a for item in core.answers for a in getattr(item.message, "applications", ())]
    history = {a.application_id: a.history for a in told}
    assert history == {
        "leaf1": (UsedResource("preemptedResource", "UNKNOWN", {"vcore": 5000}),),
        "leaf2": (),
    }


def test_x_02_one_victim_is_enough_and_more_than_the_guarantee_is_refused():
    leaves = (guaranteed("child1", 5), guaranteed("child2", 5))
    parent = "resources: {guaranteed: {vcore: 10m}},"
    core = Cluster(*leaves, parent=parent, nodes={"n1": 10})
    core.run("child1", "a1", 5)
    core.run("child1", "a2", 5)
    core.run("child2", "wants", 5)
    assert core.look() == ["a2"]
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1}
    for more, used in (({}, 5), ({"big": 25}, 25)):  # the second could hold it, were it empty
        core = Cluster(*leaves, parent=parent, nodes={"n1": 10, **more})
        core.place("child1", "a1", 5, "n1")
        core.place("child1", "a2", used, [*more, "n1"][0])
        core.run("child2", "wants", 25)
        assert core.look() == []
        assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, GUARANTEES: 1}
        assert core.look() == []
        assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, GUARANTEES: 2}


def test_x_04_no_node_could_ever_hold_it():
    core = Cluster("{name: child1}", guaranteed("child2", 6), nodes={"n1": 5, "n2": 5})
    core.run("child1", "a1", 5)
    core.run("child1", "a2", 5)
    core.run("child2", "wants", 6)
    assert core.look() == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1}  # nothing by the try itself


def test_x_05_victims_need_not_cover_what_a_queue_has_left():
    """The parent has 4 of its 8 left: of the 5 that are asked for victims have to give 1."""
    core = Cluster(
        "{name: child1}", guaranteed("child2", 5),
        parent="resources: {max: {vcore: 8m}},", nodes={"n1": 20},
    )  # fmt: skip
    core.run("child1", "a1", 2)
    core.run("child1", "a2", 2)
    core.run("child2", "wants", 5)
    assert core.look() == ["a2"]


@each_row(
    ("free", "wants", "expected"),
    [
        # what the node has free the victim need not give
        (1, 5, ["a2"]),
        (2, 6, ["a2"]),
        (0, 4, ["a2"]),
        (2, 4, ["a2"]),
        # no node could ever hold it
        (0, 5, []),
    ],
)
def test_x_06_victims_give_what_their_node_has_not_free(free, wants, expected):
    size = 4 + free
    core = Cluster("{name: child1}", guaranteed("child2", wants), nodes={"n1": size, "n2": size})
    core.place("child1", "a1", 4, "n1")
    core.place("child1", "a2", 4, "n2")
    core.run("child2", "wants", wants)
    assert core.look() == expected
    said = core.log("wants")
    assert said.pop(PRECONDITIONS) == 1
    said.pop(QUEUE_QUOTA, None)
    assert said == {}


def over_and_owed(asked: dict[str, int], *, gpus: int = 4) -> Core:
    """Eight pods of 1 cpu and 1G on a node of 8 cpu, 100G: their queue is owed 2, another 4."""
    core = Core(config_of(guaranteed("over", 2000), guaranteed("owed", 4000)))
    core.node("n1", vcore=8000, memory=100 * 10**9, gpu=gpus)
    core.application("over", "root.over")
    for at in range(8):
        core.now_ns += 1
        pod = {"vcore": 1000, "memory": 10**9}
        core.asks("over", [f"v{at}"], pod, create_time_ns=core.now_ns)
    core.application("owed", "root.owed")
    core.asks("owed", ["wants"], asked, create_time_ns=core.now_ns)
    core.now_ns += 31_000_000_000
    return core


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"vcore": 1000, "memory": 12 * 10**9}, ["v7"]),
        ({"vcore": 1000, "gpu": 1}, ["v7"]),
        ({"vcore": 2000, "memory": 50 * 10**9, "gpu": 4}, ["v6", "v7"]),
        # 92G are free: two victims give the cpu, and the third is for the memory
        ({"vcore": 2000, "memory": 95 * 10**9}, ["v5", "v6", "v7"]),
    ],
)
def test_only_what_is_short_has_to_come_from_victims(asked, expected):
    core = over_and_owed(asked)
    released = section(core.fire_own("preemption"), "released_allocations")
    assert sorted(item.allocation_key for item in released) == expected
    for item in released:
        core.update(releases=(AllocationRelease("over", item.allocation_key, PREEMPTED),))
    assert "wants" in core.partition.applications["owed"].allocations
    core.check()


def test_the_fewest_victims_go_though_smaller_ones_are_newer():
    core = Cluster("{name: child1}", guaranteed("child2", 3), nodes={"n1": 6})
    core.run("child1", "three", 3)
    for at in range(3):
        core.run("child1", f"one-{at}", 1)
    core.run("child2", "wants", 3)
    assert core.look() == ["three"]


def test_a_newer_victim_that_is_not_needed_goes_on_where_no_set_is_searched_for(monkeypatch):
    monkeypatch.setattr(victim_sets, "MAX_CANDIDATES", 0)
    core = Cluster("{name: child1}", guaranteed("child2", 3), nodes={"n1": 4})
    core.run("child1", "three", 3)
    core.run("child1", "one", 1)
    core.run("child2", "wants", 3)
    assert core.look() == ["three"]


def test_a_set_is_found_where_the_newest_victims_use_up_what_their_queue_may_lose():
    """child1 may lose 3 of its 5: either the two newest, which are too little, or the oldest."""
    core = Cluster(guaranteed("child1", 2), guaranteed("child2", 4), nodes={"n1": 6})
    core.run("child1", "three", 3)
    core.run("child1", "one", 1)
    core.run("child1", "another", 1)
    core.run("child2", "wants", 4)
    assert core.look() == ["three"]


def test_x_06_victims_elsewhere_are_taken_where_the_node_has_the_room_already():
    """It is the queues that have no room: then it does not matter where the victims are."""
    core = Cluster(
        "{name: child1}", guaranteed("child2", 6),
        parent="resources: {max: {vcore: 10m}},", nodes={"n1": 12, "n2": 12},
    )  # fmt: skip
    core.place("child1", "a1", 5, "n1")
    core.place("child1", "a2", 5, "n2")
    core.run("child2", "wants", 6)
    assert core.look() == ["a1", "a2"]
    core = Cluster(
        "{name: child1}", guaranteed("child2", 6),
        parent="resources: {max: {vcore: 10m}},", nodes={"n1": 6, "n2": 6},
    )  # fmt: skip
    core.place("child1", "a1", 5, "n1")
    core.place("child1", "a2", 5, "n2")
    core.run("child2", "wants", 6)
    assert core.look() == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, SHORTFALL: 1}


@pytest.mark.parametrize(("priority", "taken"), [(0, ["a2", "a3"]), (1000, ["a1", "a2"])])
def test_x_07_x_08_victims_for_a_queues_max(priority, taken):
    core = Cluster(
        "{name: child1}", guaranteed("child2", 15), "{name: child3}",
        parent="resources: {max: {vcore: 18m}},", nodes={"n1": 30, "n2": 30},
    )  # fmt: skip
    core.place("child1", "a1", 5, "n1")
    core.place("child1", "a2", 5, "n2")
    core.place("child3", "a3", 5, "n2", priority=priority)
    core.run("child2", "wants", 10)
    assert core.look() == taken
    if not priority:
        assert list(core.partition.nodes.nodes["n2"].reservations) == ["wants"]


def test_x_10_a_guarantee_above_both_takes_nothing_from_a_sibling():
    parent = "resources: {guaranteed: {vcore: 10m}},"
    core = Cluster("{name: child1}", "{name: child2}", parent=parent, nodes={"n1": 2})
    core.run("child1", "alloc1", 1)
    core.run("child1", "alloc2", 1)
    core.run("child2", "wants", 1)
    assert core.look() == []
    core = Cluster("{name: child1}", guaranteed("child2", 1), parent=parent, nodes={"n1": 2})
    core.run("child1", "alloc1", 1)
    core.run("child1", "alloc2", 1)
    core.run("child2", "wants", 1)
    assert core.look() == ["alloc2"]


def seen(one: str, other: str, leaf1: str = "", leaf2: str = "", **ask) -> list[str]:
    """Return which of two allocations in parent2.leaf2 an ask in parent1.leaf1 may take."""
    core = Core(
        config_of(
            "{name: parent1, %s queues: [{name: leaf1, %s}]}" % (one, leaf1),
            "{name: parent2, %s queues: [{name: leaf2, %s}]}" % (other, leaf2),
        )
    )
    core.node("n1", vcore=10)
    core.application("app1", "root.parent1.leaf1")
    core.application("app2", "root.parent2.leaf2")
    first = Constraints(required_node=ask.pop("required_node", ""))
    core.asks("app2", ["v1"], {"vcore": 5}, priority=-1000, constraints=first)
    core.asks("app2", ["v2"], {"vcore": 5}, priority=-1000)
    assert len(core.partition.nodes.nodes["n1"].allocations) == 2
    core.asks("app1", ["wants"], {"vcore": ask.pop("vcore", 5)}, **ask)
    ask = next(iter(core.partition.applications["app1"].asks()))
    return eligible_keys(core.partition, ask)


FENCE, OFF = "preemption.policy: fence", "preemption.policy: disabled"


@each_row(
    ("queues", "count"),
    [
        ({}, 2),
        ({"leaf2": "properties: {%s}" % OFF}, 0),
        ({"one": "properties: {%s}," % FENCE}, 0),
        ({"leaf1": "properties: {%s}" % FENCE}, 0),
        ({"other": "properties: {%s}," % FENCE}, 2),
        ({"one": "resources: {max: {vcore: 4m}},"}, 0),
        ({"one": "resources: {max: {vcore: 5m}},"}, 2),
        ({"other": "properties: {priority.offset: '1001'},"}, 0),
        ({"other": "properties: {priority.policy: fence, priority.offset: '1'},"}, 0),
        ({"other": "properties: {priority.policy: fence, priority.offset: '-1'},"}, 2),
        ({"one": "properties: {priority.policy: fence, priority.offset: '-1000'},"}, 2),
        ({"one": "properties: {priority.policy: fence, priority.offset: '-1001'},"}, 0),
        ({"other": "resources: {guaranteed: {vcore: 10m}},"}, 0),
        ({"other": "resources: {guaranteed: {vcore: 9m}},"}, 2),
    ],
)
def test_x_11_which_victims_are_seen(queues, count):
    assert len(seen(queues.pop("one", ""), queues.pop("other", ""), **queues)) == count


def test_x_11_one_that_requires_its_node_is_not_seen():
    assert seen("", "", required_node="n1") == ["v2"]


def test_x_11_a_released_one_is_not_seen():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    (ask,) = core.partition.applications["leaf2"].asks()
    core.partition.release(core.partition.applications["leaf1"], "v1", PREEMPTED, "gone")
    assert eligible_keys(core.partition, ask) == ["v2"]


def test_nothing_before_the_delay_and_nothing_where_it_is_off():
    text = "partitions: [{name: default, %s queues: [{name: root, submitacl: '*', queues: [%s]}]}]"
    leaves = "{name: a}, " + guaranteed("b", 5, "properties: {preemption.delay: 10s},")
    for switch, expected in (("", ["v"]), ("preemption: {enabled: false},", [])):
        core = Core(text % (switch, leaves))
        core.node("n1", vcore=5)
        core.application("a", "root.a")
        core.application("b", "root.b")
        core.asks("a", ["v"], {"vcore": 5})
        core.asks("b", ["wants"], {"vcore": 5}, create_time_ns=core.now_ns)
        assert ("preemption" in core.partition.timers) is bool(expected)
        if expected:
            due_ns = core.partition.timers["preemption"][1]
            assert due_ns == core.now_ns + 10_000_000_000
            released = section(core.fire_own("preemption"), "released_allocations")
            assert [item.allocation_key for item in released] == expected


def test_an_ask_that_may_not_preempt_does_not():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    core.run("leaf2", "wants", 5, allow_preempt_other=False)
    assert core.look() == []


# --- the allocation log -------------------------------------------------------------------------


def test_who_may_never_preempt_is_told_so_when_it_is_refused():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    core.run("leaf2", "wants", 5, allow_preempt_other=False)
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1}


def test_where_nothing_is_guaranteed_an_old_ask_is_told_so():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    core.run("leaf2", "wants", 5, create_time_ns=core.now_ns - 60_000_000_000)
    assert core.log("wants") == {QUEUE_QUOTA: 1, GUARANTEES: 1}


def test_x_03_where_nothing_is_guaranteed_an_ask_is_told_so_once_it_is_old_enough():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    core.run("leaf2", "wants", 5)
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1}
    assert core.look(30) == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, GUARANTEES: 1}
    assert core.look() == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, GUARANTEES: 1}


def test_x_03_each_ask_is_told_so_when_it_is_old_enough_itself():
    core = Cluster("{name: leaf1}", "{name: leaf2}", "{name: leaf3}", nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    core.run("leaf2", "first", 5)
    core.now_ns += 10_000_000_000
    core.run("leaf3", "second", 5)
    core.look(19)
    assert GUARANTEES in core.log("first")
    assert GUARANTEES not in core.log("second")
    core.look(11)
    assert GUARANTEES in core.log("second")
    assert "preemption" not in core.partition.timers


def test_x_03_more_asks_than_are_told_in_one_look_are_told_in_the_next():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    keys = [f"wants{at}" for at in range(12)]
    for at, key in enumerate(keys):
        core.run("leaf2", key, 5 + at)
    core.look(60)
    assert sum(GUARANTEES in core.log(key) for key in keys) == 10
    core.look(1)
    assert all(GUARANTEES in core.log(key) for key in keys)


def test_a_limit_of_the_user_is_no_case_for_preemption():
    leaf = "{name: leaf2, limits: [{users: ['*'], maxresources: {vcore: 4m}}]}"
    core = Cluster("{name: leaf1}", leaf, nodes={"n1": 50})
    core.run("leaf2", "wants", 5)
    assert core.log("wants") == {"Not enough user quota": 1}


def test_where_it_is_switched_off_no_word_of_preemption():
    text = "partitions: [{name: default, preemption: {enabled: false}, queues: [{name: root, submitacl: '*', queues: [{name: parent, queues: [{name: a}]}]}]}]"
    core = Cluster(nodes={})
    core.send(UpdateConfiguration(text))
    core.node("n1", vcore=5)
    core.run("a", "v", 5)
    core.run("a", "wants", 5)
    assert core.log("wants") == {QUEUE_QUOTA: 1}


def test_victims_that_no_node_has_enough_of_are_no_help():
    core = Cluster("{name: child1}", guaranteed("child2", 6), nodes={"n1": 6, "n2": 6})
    core.place("child1", "a1", 5, "n1")
    core.place("child1", "a2", 5, "n2", constraints=Constraints(required_node="n2"))
    core.place("child1", "a3", 1, "n1", priority=5)
    core.run("child2", "wants", 6)
    assert core.look() == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, NO_HELP: 1}


def test_ten_of_a_leaf_try_at_a_look_and_as_many_more_are_told_that_they_did_not():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 50), nodes={"n1": 50})
    core.run("leaf1", "v", 50, priority=9)  # it may not be taken
    keys = [f"w{at:02}" for at in range(25)]
    core.application("leaf2", "root.parent.leaf2")
    core.asks("leaf2", keys, {"vcore": 1}, create_time_ns=core.now_ns)
    assert core.look() == []
    for at, key in enumerate(keys):
        log = core.log(key)
        assert (NO_HELP in log) == (at < 10)
        assert (EXHAUSTED in log) == (10 <= at < 20)
    assert core.look(1) == []  # the next ten have their turn
    assert [key for key in keys if NO_HELP in core.log(key)] == keys[:20]


def test_what_is_said_again_and_again_is_counted_and_told_now_and_then():
    core = Cluster("{name: leaf1}", "{name: leaf2, resources: {max: {vcore: 4m}}}", nodes={"n": 50})
    core.run("leaf2", "runs", 4)
    core.run("leaf2", "wants", 3)
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1}
    leaf = core.partition.queues["root.parent.leaf2"]
    before = len(core.answers)
    for _ in range(3):
        queueing.requeue_all(leaf.wait_list)
        core.send(Heartbeat("t"))
    assert core.partition.applications["leaf2"].group_of["wants"].asks["wants"].log[
        QUEUE_QUOTA
    ].count == 4  # fmt: skip
    assert not any(getattr(item.message, "asks", ()) for item in core.answers[before:])
    core.now_ns += 5_000_000_000
    queueing.requeue_all(leaf.wait_list)
    core.send(Heartbeat("t"))
    assert core.log("wants") == {QUEUE_QUOTA: 5, PRECONDITIONS: 5}


def test_a_daemons_pod_that_finds_no_victim_says_so_and_not_too_often():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 10})
    core.run("leaf1", "low", 4)
    core.run("leaf1", "high", 6, priority=9)
    core.run("leaf2", "daemon", 5, constraints=Constraints(required_node="n1"))
    text = "Unschedulable request 'daemon' with required node 'n1', no preemption victim found"
    assert core.log("daemon") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1}
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 10, "n2": 10})
    core.place("leaf1", "low", 4, "n1")
    core.place("leaf1", "high", 6, "n1", priority=9)
    core.run("leaf2", "daemon", 5, constraints=Constraints(required_node="n1"))
    no_fit = "No fit on required node, preemption does not help"
    assert core.log("daemon") == {no_fit: 1}
    assert core.events(text) == ["daemon"]
    core.update(allocations=(Allocation("low", "leaf1", "n1", {"vcore": 3}),))
    core.now_ns += 15_000_000_000
    assert core.events(text) == ["daemon"]
    core.update(allocations=(Allocation("low", "leaf1", "n1", {"vcore": 2}),))
    assert core.log("daemon") == {no_fit: 3}
    assert core.events(text) == ["daemon", "daemon"]


def test_a_victim_of_a_daemon_is_told_for_whom_it_went():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 10, "n2": 10})
    core.place("leaf1", "low", 6, "n1")
    core.run("leaf2", "daemon", 5, constraints=Constraints(required_node="n1"))
    text = "Preempted by daemon from application leaf2 in root.parent.leaf2"
    assert core.events(text) == ["low"]


def test_x_16_those_that_opted_out_go_last():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "may", 5)
    core.run("leaf1", "rather-not", 5, allow_preempt_self=False)
    core.run("leaf2", "wants", 5)
    assert core.look() == ["may"]


def test_x_13_a_queue_at_its_guarantee_gives_nothing():
    core = Cluster(guaranteed("leaf1", 10), guaranteed("leaf2", 10), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    assert core.look() == []


def test_the_room_is_kept_for_the_one_it_was_freed_for():
    """The queue that lost a pod asks again at once, with a higher priority: it does not get it."""
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    assert core.look() == ["v2"]
    core.run("leaf1", "again", 5, priority=100)
    assert core.confirm("leaf1", "v2") == ["wants"]
    for _ in range(5):
        assert core.look() == []
    assert "again" in core.partition.applications["leaf1"].group_of


def test_kept_room_is_given_back_with_the_ask():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    assert core.look() == ["v2"]
    core.run("leaf1", "again", 5)
    core.update(releases=(AllocationRelease("leaf2", "wants", TerminationType.STOPPED_BY_RM),))
    assert core.partition.root.reserved == {}
    assert core.confirm("leaf1", "v2") == ["again"]


def test_who_loses_the_node_that_was_freed_for_it_may_preempt_once_more():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 5, "n2": 5})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    assert core.look() == ["v2"]
    core.update(nodes=(NodeInfo("n2", NodeAction.DECOMISSION),))
    core.check()
    assert core.partition.root.reserved == {}
    assert core.look() == ["v1"]
    assert core.confirm("leaf1", "v1") == ["wants"]


def test_what_the_first_victim_frees_in_the_queues_is_kept_until_the_last_has_gone():
    """Else a pod on another node would take of the quota above, and the last victim go in vain."""
    core = Cluster(
        "{name: leaf1}",
        guaranteed("leaf2", 4),
        nodes={"n1": 4},
        parent="resources: {max: {vcore: 4m}},",
    )
    core.run("leaf1", "v1", 2)
    core.run("leaf1", "v2", 2)
    core.run("leaf2", "wants", 4)
    assert sorted(core.look()) == ["v1", "v2"]
    core.node("n2", vcore=4)
    core.run("leaf1", "other", 2)
    assert core.confirm("leaf1", "v1") == []
    assert core.confirm("leaf1", "v2") == ["wants"]


def test_a_gang_that_is_owed_its_room_takes_it():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 6), nodes={"n1": 6})
    for at in range(3):
        core.run("leaf1", f"v{at}", 2)
    core.gang("gang", 3, {"vcore": 2}, queue="root.parent.leaf2")
    taken = core.look() + core.look() + core.look()
    assert sorted(taken) == ["v0", "v1", "v2"]
    placed = [key for key in taken for key in core.confirm("leaf1", key)]
    assert len(placed) == 3
    assert core.partition.applications["gang"].state == "Running"


@pytest.mark.parametrize(
    ("owed", "starts"),
    [("vcore: 6m, gpu: 3", True), ("vcore: 6m", False), ("vcore: 6m, gpu: 2", False)],
)
def test_a_gang_is_let_start_if_every_type_that_its_queues_limit_is_owed_to_it(owed, starts):
    """A queue above limits gpu; the guarantee of vcore alone lets nobody start half a gang."""
    core = Cluster(
        "{name: leaf1}", "{name: leaf2, resources: {guaranteed: {%s}}}" % owed,
        parent="resources: {max: {vcore: 6m, gpu: 3, disk: 9}},",
    )  # fmt: skip
    core.node("n1", vcore=9, gpu=3)
    for at in range(3):
        core.application(f"v{at}", "root.parent.leaf1")
        core.asks(f"v{at}", [f"v{at}"], {"vcore": 2, "gpu": 1})
    core.gang("gang", 3, {"vcore": 2, "gpu": 1}, queue="root.parent.leaf2")
    taken = [key for _ in range(5) for key in core.look()]
    assert core.partition.applications["gang"].gang_admitted == starts
    assert sum(len(core.confirm(key, key)) for key in taken) == (3 if starts else 0)


def test_a_gang_that_its_user_keeps_waiting_is_not_let_start_because_its_queue_is_owed():
    limit = "limits: [{users: [alice], maxresources: {vcore: 2m}}],"
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 6, limit), nodes={"n1": 6})
    core.run("leaf1", "v", 6)
    alice = UserGroupInformation("alice")
    core.gang("gang", 3, {"vcore": 1}, queue="root.parent.leaf2", ugi=alice)
    assert core.partition.applications["gang"].refusal.reason == "GANG_HEADROOM"
    core.look()
    assert not core.partition.applications["gang"].gang_admitted


# --- quota changes ------------------------------------------------------------------------------


@each_row(
    ("limit", "used", "above", "expected"),
    [
        (1000, 1500, None, {"vcore": 500}),
        (1000, 1000, None, {}),
        (1000, 900, None, {}),
        (None, 1500, None, {}),
        (1000, 1500, 1200, {"vcore": 300}),
        (1000, 1500, 900, {"vcore": 500}),
    ],
)
def test_x_17_what_is_given_back(limit, used, above, expected):
    parent = Queue("parent", is_leaf=False)
    parent.guaranteed_resource = {"vcore": above} if above else None
    leaf = Queue("leaf", parent, max_resource={"vcore": limit} if limit else None)
    leaf.allocate({"vcore": used})
    assert preemptable(leaf) == expected


def quota(most: int, delay: str = "1s", enabled: str = "true") -> str:
    leaf = "{name: a, properties: {quota.preemption.delay: %s}, resources: {max: {vcore: %dm}}}"
    return (
        "partitions: [{name: default, preemption: {quotapreemptionenabled: %s}, queues: "
        "[{name: root, submitacl: '*', queues: [%s]}]}]" % (enabled, leaf % (delay, most))
    )


def lowered(to: str) -> list[str]:
    """Return what is preempted after a queue that uses 10 in five parts got another max."""
    core = Core(quota(20))
    core.node("n1", vcore=100)
    core.application("app", "root.a")
    for at in range(5):
        core.now_ns += 1_000_000_000
        core.asks("app", [f"k{at}"], {"vcore": 2}, create_time_ns=core.now_ns)
    core.send(UpdateConfiguration(to))
    if TimerKind.QUOTA.value not in core.partition.timers:
        return []
    released = section(core.fire_own("quota"), "released_allocations")
    core.check()
    assert core.partition.queues["root.a"].preempting == {"vcore": 2 * len(released)}
    return [item.allocation_key for item in released]


def test_x_19_a_lowered_max_is_enforced_after_the_delay():
    assert lowered(quota(4)) == ["k4", "k3", "k2"]
    assert lowered(quota(5)) == ["k4", "k3"]  # a third would be more than is over
    assert lowered(quota(12)) == []
    assert lowered(quota(5, delay="0s")) == []
    assert lowered(quota(5, enabled="false")) == []


# --- gangs that would be whole ------------------------------------------------------------------


def four_for_a_gang(admission: str, gpu: int, *leaves: str, high: int = 0) -> Cluster:
    """Return a gang of four in leaf2 that lacks its queue's room, and four that run in leaf1.

    The gang wants a GPU for each; so many are there, and those of leaf1 have them. The last two of
    leaf1 have a priority.
    """
    core = Cluster(*leaves, parent="resources: {max: {vcore: 8m}},")
    config = core.partition.config_text
    core.send(SyncBegin(config, (("gangAdmission", admission),)))
    core.send(SyncEnd(0, 0, 0))
    core.node("n1", vcore=20, gpu=gpu)
    for at in range(4):
        core.application(f"v{at}", "root.parent.leaf1")
        size = {"vcore": 2, "gpu": 1} if at < gpu else {"vcore": 2}
        core.asks(f"v{at}", [f"v{at}"], size, priority=high if at > 1 else 0)
    core.gang("gang", 4, {"vcore": 2, "gpu": 1}, queue="root.parent.leaf2")
    assert core.partition.applications["gang"].waits_as_a_whole
    return core


@pytest.mark.parametrize("admission", ["queue", "cluster"])
def test_a_gang_is_not_let_start_for_a_type_that_the_nodes_lack_and_nobody_is_evicted(admission):
    """Its queue is owed the vcore; there are three GPUs, and it would hold them with three."""
    leaves = ("{name: leaf1}", guaranteed("leaf2", 8))
    core = four_for_a_gang(admission, 3, *leaves)
    assert [key for _ in range(5) for key in core.look()] == []
    gang = core.partition.applications["gang"]
    assert not gang.gang_admitted
    assert not gang.allocations
    core = four_for_a_gang(admission, 4, *leaves)
    taken = [key for _ in range(5) for key in core.look()]
    assert sorted(taken) == ["v0", "v1", "v2", "v3"]
    assert sum(len(core.confirm(key, key)) for key in taken) == 4
    assert core.partition.applications["gang"].state == "Running"


@pytest.mark.parametrize("admission", ["queue", "cluster"])
@pytest.mark.parametrize(("priority", "taken"), [(9, []), (0, ["v0", "v1", "v2", "v3"])])
def test_a_gang_is_not_let_start_if_it_may_take_no_more_than_a_part(admission, priority, taken):
    """Two of the four that run may have a higher priority: the gang would hold a half for ever."""
    core = four_for_a_gang(admission, 4, "{name: leaf1}", guaranteed("leaf2", 8), high=priority)
    assert sorted(key for _ in range(5) for key in core.look()) == taken
    assert core.partition.applications["gang"].gang_admitted == bool(taken)


# --- pods that care about others, and who came before -------------------------------------------


HOST = "kubernetes.io/hostname"
APART = PodTerm(HOST, (Requirement("app", "In", ("a",)),), ("d",))


def labelled(app: str) -> dict:
    return {"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": app}


def apart(**more) -> dict:
    constraints = Constraints(pod_anti_affinity=(APART,), namespace="d")
    return {"constraints": constraints, "allocation_tags": labelled("a"), **more}


def two_nodes(*keep: str) -> Cluster:
    """Return a full cluster of two nodes; a pod labelled app=a stays on the one or the other."""
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), "{name: leaf3}", nodes={})
    for name in ("n1", "n2"):
        info = NodeInfo(name, NodeAction.CREATE, {"vcore": 6}, labels={HOST: name})
        core.update(nodes=(info,))
        core.place("leaf1", f"v-{name}", 5, name)
        tags = labelled("a") if name in keep else {}
        core.place("leaf3", f"stays-{name}", 1, name, priority=9, allocation_tags=tags)
    return core


@pytest.mark.parametrize(("keep", "taken"), [((), ["v-n2"]), (("n2",), ["v-n1"])])
def test_no_victim_is_taken_on_a_node_that_the_asks_anti_affinity_forbids(keep, taken):
    core = two_nodes(*keep)
    core.run("leaf2", "wants", 5, **apart())
    assert core.look() == taken
    assert core.confirm("leaf1", taken[0]) == ["wants"]


def test_where_anti_affinity_forbids_every_node_nobody_goes():
    core = two_nodes("n1", "n2")
    core.run("leaf2", "wants", 5, **apart())
    assert core.look() == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, NO_HELP: 1}


def test_a_victim_that_keeps_the_ask_away_goes_and_opens_its_node():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={})
    info = NodeInfo("n1", NodeAction.CREATE, {"vcore": 10}, labels={HOST: "n1"})
    core.update(nodes=(info,))
    core.place("leaf1", "apart", 4, "n1", allocation_tags=labelled("a"))
    core.place("leaf1", "newer", 6, "n1")
    core.run("leaf2", "wants", 4, **apart())
    assert core.look() == ["apart"]
    assert core.confirm("leaf1", "apart") == ["wants"]


def test_two_that_stay_apart_do_not_preempt_on_one_node():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 9), nodes={})
    for name in ("n1", "n2"):
        info = NodeInfo(name, NodeAction.CREATE, {"vcore": 6}, labels={HOST: name})
        core.update(nodes=(info,))
    for at in range(6):
        core.place("leaf1", f"v{at}", 2, "n1" if at % 2 else "n2")
    core.run("leaf2", "one", 2, **apart())
    core.run("leaf2", "other", 2, **apart())
    taken = core.look()
    assert taken == ["v4", "v5"]
    assert [key for victim in taken for key in core.confirm("leaf1", victim)] == ["other", "one"]


@pytest.mark.parametrize(("priority", "taken"), [(9, ["v-n1"]), (-1, ["v-n2"])])
def test_no_victim_is_taken_on_a_node_that_is_reserved_for_another(priority, taken):
    """But of one of a lower priority that has had its node for more than two hours."""
    core = two_nodes()
    core.run("leaf3", "older", 6, priority=priority, create_time_ns=core.now_ns - 60_000_000_000)
    older = core.partition.applications["leaf3"]
    for held in list(older.reservations.values()):
        core.partition.unreserve(held)
    ask = older.group_of["older"].asks["older"]
    held = core.partition.reserve(older, ask, core.partition.nodes.nodes["n2"])
    held.since_ns -= 3 * 3_600 * 1_000_000_000
    core.run("leaf2", "wants", 5)
    assert core.look() == taken


def test_a_daemon_takes_nobody_where_its_anti_affinity_forbids_the_node():
    core = two_nodes("n1")
    core.node("n3", vcore=10)
    forbidden = Constraints(required_node="n1", pod_anti_affinity=(APART,), namespace="d")
    core.run("leaf2", "daemon", 5, priority=5, constraints=forbidden)
    assert core.partition.applications["leaf1"].released == {}
    no_fit = "No fit on required node, preemption does not help"
    assert no_fit in core.log("daemon")
    core = two_nodes("n2")
    core.node("n3", vcore=10)
    core.run("leaf2", "daemon", 5, priority=5, constraints=forbidden)
    assert list(core.partition.applications["leaf1"].released) == ["v-n1"]


def test_room_that_a_real_pod_takes_over_from_its_placeholder_is_nobodys():
    """With it the ask would fit: its victim would go, and the room would not be enough."""
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 10), "{name: leaf3}", nodes={"n1": 10})
    core.gang("gang", 1, {"vcore": 5}, queue="root.parent.leaf3")
    core.run("leaf1", "v", 5)
    core.asks("gang", ["real"], {"vcore": 5}, task_group_name="tg")
    assert list(core.partition.applications["gang"].replacing) == ["gang-ph-0"]
    core.run("leaf2", "wants", 10)
    assert core.look() == []
    assert core.log("wants") == {QUEUE_QUOTA: 1, PRECONDITIONS: 1, NO_HELP: 1}


def test_a_look_without_a_node_finds_nobody():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 5})
    core.run("leaf1", "v", 5)
    core.run("leaf2", "wants", 5)
    core.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    assert core.look() == []


def test_victims_leave_their_queue_what_it_is_guaranteed():
    core = Cluster(guaranteed("child1", 3), guaranteed("child2", 2), nodes={"n1": 5})
    for at in range(5):
        core.run("child1", f"v{at}", 1)
    core.run("child2", "one", 1)
    assert core.look() == ["v4"]
    assert core.confirm("child1", "v4") == ["one"]
    core = Cluster(guaranteed("child1", 3), guaranteed("child2", 2), nodes={"n1": 4})
    for at in range(4):
        core.run("child1", f"v{at}", 1)
    core.run("child2", "both", 2)
    assert core.look() == [], "the second would take child1 below its guarantee"


def test_an_ask_that_was_tried_is_not_tried_within_fifteen_seconds():
    core = Cluster("{name: child1}", guaranteed("child2", 9), nodes={"n1": 4})
    core.run("child1", "high", 4, priority=9)
    core.run("child2", "first", 3)
    assert core.look() == []
    (first,) = core.partition.applications["child2"].asks()
    tried_ns = first.preemption_checked_ns
    assert tried_ns == core.now_ns
    assert core.partition.preemption_due_ns == tried_ns + 15_000_000_000
    for seconds_later, is_tried in ((14, False), (15, True)):
        core.now_ns = tried_ns + seconds_later * 1_000_000_000
        core.send(Heartbeat("t"))
        preemption.begin_pass(core.partition)
        assert (first.preemption_checked_ns == core.now_ns) is is_tried


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # an originator after ordinary pods, those that opted out last, whatever their priorities
        ({"priority": 5}, {"originator": True}),
        ({"originator": True, "priority": 5}, {"allow_preempt_self": False}),
        (
            {"allow_preempt_self": False, "priority": 5},
            {"allow_preempt_self": False, "originator": True},
        ),
        # a lower priority before a higher one, whatever their age
        ({"create_time_ns": 1}, {"priority": 1, "create_time_ns": 2}),
        # the newest first, whatever their size
        ({"vcore": 6, "create_time_ns": 2}, {"vcore": 5, "create_time_ns": 1}),
        # then the smaller
        ({"vcore": 5, "create_time_ns": 1}, {"vcore": 6, "create_time_ns": 1}),
    ],
)
@pytest.mark.parametrize("order", ["as they are", "turned"])
def test_victims_for_a_required_node_go_by_rank_priority_age_and_size(one, other, order):
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 12, "n2": 12})
    pods = {"one": one, "other": other}
    for key in pods if order == "as they are" else reversed(pods):
        core.place("leaf1", key, node="n1", **{"vcore": 6, "create_time_ns": 1, **pods[key]})
    core.run("leaf2", "daemon", 5, constraints=Constraints(required_node="n1"), priority=9)
    assert list(core.partition.applications["leaf1"].released) == ["one"]


def test_an_ask_that_requires_a_node_preempts_there_once():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 10, "n2": 10})
    core.place("leaf1", "low", 6, "n1")
    core.run("leaf2", "daemon", 5, constraints=Constraints(required_node="n1"))
    assert list(core.partition.applications["leaf1"].released) == ["low"]
    core.place("leaf1", "late", 4, "n1")
    core.update(allocations=(Allocation("low", "leaf1", "n1", {"vcore": 5}),))
    core.now_ns += 60_000_000_000
    core.partition.applications["leaf2"].reservations["daemon"].retry()
    core.send(Heartbeat("t"))
    assert list(core.partition.applications["leaf1"].released) == ["low"]
    assert core.events("no preemption victim found") == []
    core.check()
