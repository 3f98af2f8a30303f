"""Queues, nodes and limits that change while applications run: what the answers say after it."""

import asyncio

import pytest

from shared.messages.interface import (
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from tests.builders import config_of, section
from tests.table import each_row
from tests.unit.api.following import System

PARTITION = "/ws/v1/partition/default"


def told(system, path):
    response = asyncio.run(system.get(path))
    assert response.status_code == 200, response.text
    return response.json()


def queue(system, path):
    return told(system, f"{PARTITION}/queue/{path}")


def app(system, name):
    return told(system, f"{PARTITION}/application/{name}")


def node(system, name):
    return told(system, f"{PARTITION}/node/{name}")


def running(*leaves, capacity=None, **app_options):
    system = System(config_of(*leaves))
    system.node("n1", **(capacity or {"vcore": 10_000, "memory": 100}))
    system.application("app", "root.a", **app_options)
    return system


def reload(system, *leaves):
    return system.send(UpdateConfiguration(config_of(*leaves)))


def test_a_queue_that_is_taken_out_drains_schedules_and_goes():
    system = running("{name: a}", "{name: b}")
    system.asks("app", ["one"], {"vcore": 1})
    reload(system, "{name: b}")
    assert queue(system, "root.a")["status"] == "Draining"
    system.asks("app", ["two"], {"vcore": 1})
    assert len(app(system, "app")["allocations"]) == 2
    (no,) = section(system.application("other", "root.a"), "rejected_applications")
    assert no.reason.endswith("no placement rule matched")
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    system.fire_own("cleaner") if "cleaner" in system.partition.timers else None
    paths = told(system, f"{PARTITION}/queues")["childNames"]
    assert paths == ["root.b"]


def test_a_parent_becomes_a_leaf_when_the_last_queue_below_it_has_gone():
    system = System(config_of("{name: p, queues: [{name: a}]}"))
    reload(system, "{name: p}")
    shown = told(system, f"{PARTITION}/queue/root.p?subtree")
    assert (shown["isLeaf"], shown["children"][0]["status"]) == (False, "Draining")
    system.fire_own("cleaner")
    shown = told(system, f"{PARTITION}/queue/root.p?subtree")
    assert (shown["isLeaf"], "children" in shown) == (True, False)
    events = told(system, "/ws/v1/events/batch")["EventRecords"]
    assert [event["message"] for event in events if event.get("eventChangeDetail") == 402] == [
        "leaf queue: true"
    ]
    assert section(system.application("app", "root.p"), "accepted_applications")


def test_a_queue_that_comes_back_is_active():
    system = running("{name: a}", "{name: b}")
    system.asks("app", ["one"], {"vcore": 1})
    reload(system, "{name: b}")
    reload(system, "{name: a}", "{name: b}")
    assert queue(system, "root.a")["status"] == "Active"
    assert section(system.application("other", "root.a"), "accepted_applications")


def test_a_max_that_is_lowered_kills_nothing_and_holds_and_one_raised_lets_go():
    system = running("{name: a, resources: {max: {vcore: 4m}}}")
    system.asks("app", ["k0", "k1", "k2", "k3"], {"vcore": 1})
    reload(system, "{name: a, resources: {max: {vcore: 2m}}}")
    found = queue(system, "root.a")
    assert (found["allocatedResource"], found["maxResource"]) == ({"vcore": 4}, {"vcore": 2})
    assert found["absUsedCapacity"] == {"vcore": 200}
    assert found["headroom"] == {"vcore": -2, "memory": 100} or found["headroom"]["vcore"] <= 0
    system.asks("app", ["k4"], {"vcore": 1})
    assert queue(system, "root.a")["pendingResource"] == {"vcore": 1}
    reload(system, "{name: a, resources: {max: {vcore: 5m}}}")
    assert "pendingResource" not in queue(system, "root.a")
    assert queue(system, "root.a")["allocatedResource"] == {"vcore": 5}


def test_a_max_that_is_taken_out_is_none():
    system = running("{name: a, resources: {max: {vcore: 1m}, guaranteed: {vcore: 1m}}}")
    system.asks("app", ["k0", "k1"], {"vcore": 1})
    reload(system, "{name: a}")
    found = queue(system, "root.a")
    assert "maxResource" not in found
    assert "guaranteedResource" not in found
    assert found["allocatedResource"] == {"vcore": 2}


def test_maxapplications_that_is_raised_lets_the_next_run():
    system = running("{name: a, maxapplications: 1}")
    system.asks("app", ["k0"], {"vcore": 1})
    system.application("two", "root.a")
    system.asks("two", ["t0"], {"vcore": 1})
    assert app(system, "two")["applicationState"] == "Accepted"
    assert queue(system, "root.a")["runningApps"] == 1
    reload(system, "{name: a, maxapplications: 2}")
    assert app(system, "two")["applicationState"] == "Running"
    assert queue(system, "root.a")["maxRunningApps"] == 2


def test_properties_are_merged_anew():
    system = running(
        "{name: p, properties: {application.sort.policy: fair, preemption.delay: 7s, priority.offset: '4', preemption.policy: fence, priority.policy: fence}, queues: [{name: x}]}",
        "{name: a}",
    )
    found = queue(system, "root.p.x")
    assert found["properties"] == {
        "application.sort.policy": "fair", "preemption.delay": "7s", "priority.offset": "0",
        "preemption.policy": "default", "priority.policy": "default",
    }  # fmt: skip
    assert (found["sortingPolicy"], found["preemptionDelay"]) == ("fair", "7s")
    assert (found["isPreemptionFence"], found["isPriorityFence"]) == (False, False)
    parent = queue(system, "root.p")
    assert (parent["isPreemptionFence"], parent["isPriorityFence"], parent["priorityOffset"]) == (
        True,
        True,
        4,
    )
    reload(
        system,
        "{name: p, properties: {application.sort.priority: Disabled}, queues: [{name: x, properties: {quota.preemption.delay: 1m}}]}",
        "{name: a}",
    )
    found = queue(system, "root.p.x")
    assert found["properties"] == {
        "application.sort.priority": "Disabled",
        "quota.preemption.delay": "1m",
    }
    assert (found["sortingPolicy"], found["preemptionDelay"]) == ("fifo", "30s")
    assert (found["prioritySorting"], found["quotaPreemptionDelay"]) == (False, "1m0s")
    reload(
        system,
        "{name: p, properties: {application.sort.priority: Enabled, application.sort.policy: fair}, queues: [{name: x}]}",
        "{name: a}",
    )
    found = queue(system, "root.p.x")
    assert found["properties"] == {
        "application.sort.priority": "Enabled",
        "application.sort.policy": "fair",
    }
    assert (found["sortingPolicy"], found["prioritySorting"]) == ("fair", True)


@each_row(
    ("text", "shown"),
    [
        ("90s", "1m30s"),
        ("1h", "1h0m0s"),
        ("500ms", "500ms"),
        ("1.5s", "1.5s"),
        ("30", "30s"),
        ("-3s", "30s"),
        ("0s", "30s"),
        ("1h1ns", "1h0m0.000000001s"),
        ("100us", "100µs"),
    ],
)
def test_durations_are_written_as_go_writes_them(text, shown):
    system = running("{name: a, properties: {preemption.delay: '%s'}}" % text)
    assert queue(system, "root.a")["preemptionDelay"] == shown


@each_row(
    ("text", "shown"),
    [
        ("5", 5),
        ("-5", -5),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648", 0),
        ("1.5", 0),
        ("", 0),
        ("+7", 7),
        ("0x10", 0),
    ],
)
def test_offsets_are_int32(text, shown):
    system = running("{name: a, properties: {priority.offset: '%s'}}" % text)
    found = queue(system, "root.a")
    assert found.get("priorityOffset", 0) == shown


@pytest.mark.parametrize(
    ("offset", "priority", "leaf", "root"),
    [
        ("5", 10, 10, 15),
        ("2147483647", 10, 10, 2147483647),
        ("-2147483648", -10, -10, -2147483648),
        ("-20", 10, 10, -10),
    ],
)
def test_current_priorities(offset, priority, leaf, root):
    system = running(
        "{name: p, properties: {priority.offset: '%s'}, queues: [{name: x}]}" % offset, "{name: a}"
    )
    system.application("low", "root.p.x")
    system.asks("low", ["k"], {"vcore": 20_000}, priority=priority)
    assert queue(system, "root.p.x")["currentPriority"] == leaf
    assert queue(system, "root.p")["currentPriority"] == root  # with its own offset
    assert queue(system, "root")["currentPriority"] == root


def test_a_node_below_what_runs_on_it():
    system = running("{name: a}", capacity={"vcore": 10})
    system.asks("app", ["k0"], {"vcore": 8})
    system.update(nodes=(NodeInfo("n1", NodeAction.UPDATE, {"vcore": 5}),))
    found = node(system, "n1")
    assert (found["capacity"], found["allocated"]) == ({"vcore": 5}, {"vcore": 8})
    assert found["available"] == {"vcore": -3}
    assert found["utilized"] == {"vcore": 160}
    assert queue(system, "root")["maxResource"] == {"vcore": 5}
    assert queue(system, "root")["headroom"] == {"vcore": -3}
    system.asks("app", ["k1"], {"vcore": 1})
    assert len(app(system, "app")["allocations"]) == 1
    system.update(nodes=(NodeInfo("n1", NodeAction.UPDATE, {"vcore": 9}),))
    assert len(app(system, "app")["allocations"]) == 2
    found = node(system, "n1")
    assert found.get("available", {}) == {}


def test_a_drained_node_keeps_what_runs_and_takes_nothing():
    system = running("{name: a}", capacity={"vcore": 10})
    system.asks("app", ["k0"], {"vcore": 2})
    system.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE, {}),))
    found = node(system, "n1")
    assert (found["schedulable"], found["allocated"]) == (False, {"vcore": 2})
    assert queue(system, "root")["maxResource"] == {"vcore": 10}
    system.asks("app", ["k1"], {"vcore": 1})
    assert len(app(system, "app")["allocations"]) == 1
    system.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_TO_SCHEDULABLE, {}),))
    assert len(app(system, "app")["allocations"]) == 2


def test_a_node_that_goes_takes_what_ran_and_the_rest_waits():
    system = running("{name: a}", capacity={"vcore": 10})
    system.asks("app", ["k0", "k1"], {"vcore": 6})
    said = system.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION, {}),))
    (gone,) = section(said, "released_allocations")
    assert (gone.termination_type, gone.message) == (
        TerminationType.STOPPED_BY_RM,
        "Node n1 Removed",
    )
    root = queue(system, "root")
    assert "maxResource" not in root
    assert "allocatedResource" not in root
    assert root["pendingResource"] == {"vcore": 6}
    assert told(system, f"{PARTITION}/nodes") == []
    assert app(system, "app")["applicationState"] == "Running"


def test_a_users_limit_that_is_lowered_kills_nothing():
    system = running(
        "{name: a, limits: [{users: [ann], maxresources: {vcore: 4m}}]}",
        ugi=UserGroupInformation("ann", ("dev",)),
    )
    system.asks("app", ["k0", "k1", "k2"], {"vcore": 1})
    reload(
        system, "{name: a, limits: [{users: [ann], maxresources: {vcore: 2m}, maxapplications: 7}]}"
    )
    (leaf,) = told(system, f"{PARTITION}/usage/user/ann")["queues"]["children"]
    assert leaf == {
        "queuePath": "root.a", "resourceUsage": {"vcore": 3}, "runningApplications": ["app"],
        "maxResources": {"vcore": 2}, "maxApplications": 7,
    }  # fmt: skip
    system.asks("app", ["k3"], {"vcore": 1})
    assert [line["message"] for line in app(system, "app")["requests"][0]["allocationLog"]] == [
        "Not enough user quota"
    ]
    reload(system, "{name: a}")
    assert len(app(system, "app")["allocations"]) == 4


def test_the_sort_policy_of_nodes_is_changed():
    text = "partitions: [{name: default, nodesortpolicy: {type: %s}, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
    system = System(text % "binpacking")
    system.node("n1", vcore=10)
    system.node("n2", vcore=10)
    system.application("app", "root.a")
    system.asks("app", ["k0", "k1"], {"vcore": 1})
    assert [
        len(n["allocations"]) if "allocations" in n else 0
        for n in told(system, f"{PARTITION}/nodes")
    ] == [2, 0]
    system.send(UpdateConfiguration(text % "fair"))
    system.asks("app", ["k2", "k3", "k4"], {"vcore": 1})
    assert [n["allocated"]["vcore"] for n in told(system, f"{PARTITION}/nodes")] in ([2, 3], [3, 2])
    (partition,) = told(system, "/ws/v1/partitions")
    assert partition["nodeSortingPolicy"]["type"] == "fair"


def test_root_keeps_its_maxapplications():
    text = "partitions: [{name: default, queues: [{name: root, submitacl: '*', maxapplications: %d, queues: [{name: a, maxapplications: %d}]}]}]"
    system = System(text % (1, 1))
    system.node("n1", vcore=10)
    assert queue(system, "root")["maxRunningApps"] == 1
    system.send(UpdateConfiguration(text % (5, 5)))
    assert queue(system, "root")["maxRunningApps"] == 1
    assert queue(system, "root.a")["maxRunningApps"] == 5


def test_a_dynamic_queue_that_the_file_names_is_managed():
    rules = "partitions: [{name: default, placementrules: [{name: provided, create: true}], queues: [{name: root, submitacl: '*', queues: [%s]}]}]"
    system = System(rules % "{name: b}")
    system.node("n1", vcore=10)
    system.application("app", "root.a")
    system.asks("app", ["k0"], {"vcore": 1})
    assert queue(system, "root.a")["isManaged"] is False
    system.send(UpdateConfiguration(rules % "{name: b}, {name: a, resources: {max: {vcore: 3m}}}"))
    found = queue(system, "root.a")
    assert (found["isManaged"], found["maxResource"]) == (True, {"vcore": 3})


def test_an_acl_that_is_closed_stops_only_who_comes_later():
    system = System(
        "partitions: [{name: default, queues: [{name: root, queues: [{name: a, submitacl: 'ann'}]}]}]"
    )
    system.node("n1", vcore=10)
    ann = UserGroupInformation("ann", ())
    assert section(system.application("app", "root.a", ugi=ann), "accepted_applications")
    system.send(
        UpdateConfiguration(
            "partitions: [{name: default, queues: [{name: root, queues: [{name: a, submitacl: 'bob'}]}]}]"
        )
    )
    system.asks("app", ["k"], {"vcore": 1})
    assert app(system, "app")["applicationState"] == "Running"
    assert section(system.application("later", "root.a", ugi=ann), "rejected_applications")


ACLS = [  # root's submit and admin, the leaf's submit and admin, user, groups, may
    ("", "", "", "", "ann", (), False),
    ("*", "", "", "", "ann", (), True),
    ("", "*", "", "", "ann", (), True),
    ("", "", "ann", "", "ann", (), True),
    ("", "", "", "ann", "ann", (), True),
    ("", "", "bob,ann", "", "ann", (), True),
    ("", "", "bob, ann", "", "ann", ("dev",), False),  # two lists: users bob, groups ann
    ("", "", "bob, dev", "", "ann", ("dev",), True),
    ("", "", " dev", "", "ann", ("dev",), True),
    ("", "", " dev", "", "dev", (), True),  # who has no group has one of the own name
    ("", "", "dev", "", "ann", ("dev",), False),
    ("", "", "ann dev", "", "eve", ("ops", "dev"), True),
    ("", "", "* ", "", "ann", (), True),
    ("", "", " *", "", "ann", ("dev",), True),
    ("", "", "1ann,ann", "", "ann", (), True),  # what is no name is dropped
    ("", "", "a/b", "", "a/b", (), False),
    ("", "", "ANN", "", "ann", (), False),
    ("", " ops", "", "", "ann", ("ops",), True),
]


@each_row(("submit", "admin", "own", "own_admin", "user", "groups", "may"), ACLS)
def test_who_may_submit(submit, admin, own, own_admin, user, groups, may):
    system = System(
        f"partitions: [{{name: default, queues: [{{name: root, submitacl: '{submit}', adminacl: '{admin}', queues: [{{name: a, submitacl: '{own}', adminacl: '{own_admin}'}}]}}]}}]"
    )
    said = system.application("app", "root.a", ugi=UserGroupInformation(user, groups))
    assert bool(section(said, "accepted_applications")) is may
