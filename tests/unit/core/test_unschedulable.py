"""Which asks are said to be helped by more nodes: once each, and none that a quota or a gang holds."""

from services.core.scheduler.actions import unschedulable
from shared.messages.constraints import Taint
from shared.messages.interface import (
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UserGroupInformation,
)
from tests.builders import Core, config_of, section


def told(responses):
    return [item.allocation_key for item in failed(responses)]


def failed(responses):
    """Return what is said of whom more nodes would help; SKIPPED is an event for people."""
    states = section(responses, "scheduling_states")
    assert {item.state for item in states} <= {"FAILED", "SKIPPED"}
    return [item for item in states if item.state == "FAILED"]


def full(*leaves):
    """A node that is taken but for a little."""
    core = Core(config_of("{name: a}", *leaves))
    core.node("n", vcore=10, memory=100)
    core.application("filler", "root.a")
    core.asks("filler", ["f"], {"vcore": 8})
    return core


def test_an_ask_that_no_node_takes_is_told_once():
    core = full()
    core.application("app", "root.a")
    assert told(core.asks("app", ["a", "b"], {"vcore": 5})) == ["a", "b"]
    assert told(core.asks("app", ["c"], {"vcore": 5})) == ["c"]
    assert told(core.node("tiny", vcore=1)) == []
    responses = core.node("large", vcore=20)
    assert told(responses) == []
    assert len(section(responses, "new_allocations")) == 3


def test_what_waits_for_the_whole_cluster_is_helped_by_nodes_too():
    """The root's max is the sum of the nodes: its quota is the cluster's size."""
    core = full()
    core.application("app", "root.a")
    responses = core.asks("app", ["a"], {"vcore": 3})
    (state,) = failed(responses)
    assert state.reason == "0/1 nodes are available: 1 Insufficient cpu."


def test_what_waits_for_a_quota_is_not_told_and_no_more_than_the_quota_has_room_for():
    core = full(
        "{name: small, resources: {max: {vcore: 10m}}}",
        "{name: none, resources: {max: {vcore: 1m}}}",
    )
    core.application("over", "root.none")
    assert told(core.asks("over", ["o"], {"vcore": 5})) == []
    core.application("app", "root.small")
    assert told(core.asks("app", ["a", "b", "c"], {"vcore": 4})) == ["a", "b"]
    responses = core.node("large", vcore=4)
    assert [item.allocation_key for item in section(responses, "new_allocations")] == ["a"]
    assert told(core.asks("app", ["d"], {"vcore": 4})) == []
    core.check()


def test_the_placeholders_of_a_gang_are_told_and_its_real_pods_are_not():
    core = full()
    resource = {"memory": 1, "vcore": 1}
    core.application("g", "root.a", placeholder_ask={"vcore": 4, "memory": 4})
    keys = [f"ph-{at}" for at in range(4)]
    responses = core.asks("g", keys, resource, placeholder=True, task_group_name="tg")
    assert told(responses) == keys[2:]  # what the nodes do not hold of it
    assert told(core.asks("g", ["real"], resource, task_group_name="tg")) == []
    assert told(core.node("tiny", vcore=1, memory=1)) == []


def test_a_gang_of_a_type_that_no_node_has_is_told_as_far_as_its_queue_lets_it():
    core = full("{name: small, resources: {max: {gpu: 3}}}")
    resource = {"vcore": 1, "gpu": 1}
    responses = core.gang("g", 2, resource, queue="root.small")
    assert told(responses) == ["g-ph-0", "g-ph-1"]
    (state, _) = failed(responses)
    assert state.reason == "0/1 nodes are available: 1 Insufficient gpu."
    assert told(core.gang("waits", 2, resource, queue="root.small")) == []
    core.check()


def test_a_gang_that_its_queue_keeps_from_running_is_not_told():
    core = Core(
        "partitions: [{name: default, queues: [{name: root, maxapplications: 1, submitacl: '*', "
        "queues: [{name: a, maxapplications: 1}, {name: b, maxapplications: 1}]}]}]"
    )
    core.node("n", vcore=10)
    core.application("filler", "root.b")
    core.asks("filler", ["f"], {"vcore": 8})
    assert told(core.gang("g", 2, {"vcore": 5}, queue="root.a")) == []
    assert core.partition.applications["g"].refusal.reason == "MAX_APPLICATIONS"


def test_an_ask_that_comes_back_is_told_anew():
    core = full()
    core.application("app", "root.a")
    core.asks("app", ["a"], {"vcore": 2})
    failed = TerminationType.SCHEDULING_FAILED_ON_RM
    core.asks("filler", ["g"], {"vcore": 1})
    core.update(releases=(AllocationRelease("filler", "f", TerminationType.STOPPED_BY_RM),))
    assert told(core.asks("app", ["b"], {"vcore": 8})) == ["b"]
    responses = core.update(releases=(AllocationRelease("app", "a", failed, message="x"),))
    assert [item.allocation_key for item in section(responses, "new_allocations")]
    core.check()


def test_a_bucket_of_many_applications_is_looked_at_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(unschedulable, "MAX_GROUPS", 2)
    core = full()
    seen = []
    for at in range(5):
        core.application(f"app-{at}", "root.a")
        seen += told(core.asks(f"app-{at}", [f"a-{at}"], {"vcore": 5}))
    assert sorted(seen) == [f"a-{at}" for at in range(5)]
    core.check()


LIMIT = "limits: [{users: ['*'], maxresources: {vcore: 9m}}]"


def test_no_more_are_told_than_a_limit_of_their_user_has_room_for():
    """docs/rules/scheduling.md#the-cycle: "asks that fit queue+user headroom"; every user has what the wildcard says."""
    core = full("{name: limited, %s}" % LIMIT)
    for user in ("alice", "bob"):
        ugi = UserGroupInformation(user)
        core.application(user, "root.limited", ugi=ugi)
        assert told(core.asks(user, [f"{user}-{at}" for at in range(4)], {"vcore": 4})) == [
            f"{user}-0",
            f"{user}-1",
        ]
    core.check()


def test_the_condition_counts_nodes_by_cause_in_the_words_of_kubernetes():
    core = Core(config_of("{name: a}"))
    taint = Taint("gpu", "true", "NoSchedule")
    nodes = [
        NodeInfo(f"t{at}", NodeAction.CREATE, {"vcore": 9}, taints=(taint,)) for at in range(3)
    ]
    nodes += [NodeInfo(f"n{at}", NodeAction.CREATE, {"vcore": 2}) for at in range(2)]
    nodes += [NodeInfo("closed", NodeAction.CREATE_DRAIN, {"vcore": 9})]
    core.update(nodes=tuple(nodes))
    core.application("app", "root.a")
    (state,) = failed(core.asks("app", ["p"], {"vcore": 4}))
    assert state.reason == (
        "0/6 nodes are available: 3 node(s) had untolerated taint {gpu: true}, 2 Insufficient cpu, "
        "1 node(s) were unschedulable."
    )
