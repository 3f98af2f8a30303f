"""Cases X of the contract, YuniKorn's laws of preemption, through the whole scheduler."""

import pytest

from services.core.scheduler.preemption_victims import eligible_victims
from services.core.scheduler.queues import Queue
from services.core.scheduler.quota_preemption import preemptable
from shared.messages.interface import (
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
)
from shared.messages.protocol import TimerKind
from tests.builders import Core, config_of, section

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
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 5, "n2": 5})
    core.run("leaf1", "alloc-1", 5)
    core.run("leaf1", "alloc-2", 5)
    core.run("leaf2", "wants", 5, priority=1)
    assert core.look() == ["alloc-2"]
    leaf1 = core.partition.queues["root.parent.leaf1"]
    assert leaf1.preempting == {"vcore": 5}
    node = core.partition.nodes.nodes["n2"]
    assert list(node.reservations) == ["wants"]
    assert core.confirm("leaf1", "alloc-2") == ["wants"]
    assert leaf1.preempting == {}
    assert node.reservations == {}
    assert core.look() == []


def test_x_02_one_victim_is_enough_and_more_than_the_guarantee_is_refused():
    leaves = (guaranteed("child1", 5), guaranteed("child2", 5))
    parent = "resources: {guaranteed: {vcore: 10m}},"
    core = Cluster(*leaves, parent=parent, nodes={"n1": 10})
    core.run("child1", "a1", 5)
    core.run("child1", "a2", 5)
    core.run("child2", "wants", 5)
    assert core.look() == ["a2"]
    core = Cluster(*leaves, parent=parent, nodes={"n1": 10, "big": 25})
    core.run("child1", "a1", 5)
    core.run("child1", "a2", 25)
    core.run("child2", "wants", 25)
    assert core.look() == []


def test_x_04_no_node_could_ever_hold_it():
    core = Cluster("{name: child1}", guaranteed("child2", 6), nodes={"n1": 5, "n2": 5})
    core.run("child1", "a1", 5)
    core.run("child1", "a2", 5)
    core.run("child2", "wants", 6)
    assert core.look() == []


def test_x_05_victims_that_do_not_cover_the_ask_are_let_alone():
    core = Cluster(
        "{name: child1}", guaranteed("child2", 5),
        parent="resources: {max: {vcore: 8m}},", nodes={"n1": 20},
    )  # fmt: skip
    core.run("child1", "a1", 2)
    core.run("child1", "a2", 2)
    core.run("child2", "wants", 5)
    assert core.look() == []


@pytest.mark.parametrize(("priority", "taken"), [(0, ["a2", "a3"]), (1000, ["a1", "a2"])])
def test_x_07_x_08_victims_for_a_queues_max(priority, taken):
    core = Cluster(
        "{name: child1}", guaranteed("child2", 15), "{name: child3}",
        parent="resources: {max: {vcore: 18m}},", nodes={"n1": 30, "n2": 30},
    )  # fmt: skip
    core.run("child1", "a1", 5)
    core.run("child1", "a2", 5)
    core.run("child3", "a3", 5, priority=priority)
    core.run("child2", "wants", 10)
    found = core.look()
    assert len(found) == 2
    assert found == taken or priority == 0


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


def seen(one: str, other: str, leaf1: str = "", leaf2: str = "", **ask) -> int:
    """Return how many of two allocations in parent2.leaf2 an ask in parent1.leaf1 may take."""
    core = Core(
        config_of(
            "{name: parent1, %s queues: [{name: leaf1, %s}]}" % (one, leaf1),
            "{name: parent2, %s queues: [{name: leaf2, %s}]}" % (other, leaf2),
        )
    )
    core.node("n1", vcore=10)
    core.application("app1", "root.parent1.leaf1")
    core.application("app2", "root.parent2.leaf2")
    core.asks("app2", ["v1", "v2"], {"vcore": 5}, priority=-1000)
    core.asks("app1", ["wants"], {"vcore": ask.pop("vcore", 5)}, **ask)
    leaf = core.partition.queues["root.parent1.leaf1"]
    ask = next(iter(core.partition.applications["app1"].asks()))
    return len(eligible_victims(core.partition, leaf, ask))


FENCE, OFF = "preemption.policy: fence", "preemption.policy: disabled"


@pytest.mark.parametrize(
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
    assert seen(queues.pop("one", ""), queues.pop("other", ""), **queues) == count


def test_x_11_released_and_required_ones_are_not_seen():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    leaf = core.partition.queues["root.parent.leaf2"]
    (ask,) = core.partition.applications["leaf2"].asks()
    core.partition.release(core.partition.applications["leaf1"], "v1", PREEMPTED, "gone")
    found = eligible_victims(core.partition, leaf, ask)
    assert [victim.allocation.allocation_key for victim in found] == ["v2"]


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
    assert core.partition.root.kept == {}
    assert core.confirm("leaf1", "v2") == ["again"]


def test_who_loses_the_node_that_was_freed_for_it_may_preempt_once_more():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 5, "n2": 5})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    assert core.look() == ["v2"]
    core.update(nodes=(NodeInfo("n2", NodeAction.DECOMISSION),))
    core.check()
    assert core.partition.root.kept == {}
    assert core.look() == ["v1"]
    assert core.confirm("leaf1", "v1") == ["wants"]


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


# --- quota changes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
