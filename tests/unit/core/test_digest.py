"""The partition's and a queue's state are told where they differ from what was told last."""

from shared.messages.interface import (
    Allocation,
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
    UserGroupInformation,
)
from shared.messages.state import SnapshotRequest, StateDelta
from shared.model.units import milliseconds, seconds
from tests.builders import START_NS, Core, config_of, section

ONE = {"vcore": 1000, "pods": 1}


def last_delta(core):
    told = [answer.message for answer in core.answers]
    return [message for message in told if isinstance(message, StateDelta)][-1]


def full_core():
    """Return a core with an application that fills root.a."""
    core = Core(config_of("{name: a, resources: {max: {vcore: 1}}}", "{name: b}"))
    core.node("n1", vcore=9_000, pods=100)
    core.application("x", "root.a")
    core.asks("x", ["x1"], ONE)
    return core


def told_of_waiting(core):
    """Return what is told where something waits in root.a: what is pending differs, no more."""
    core.asks("x", ["x2"], {"vcore": 2000, "pods": 1})
    return last_delta(core)


def test_of_queues_only_those_that_differ_are_told():
    core = full_core()
    told = told_of_waiting(core)
    assert [queue.path for queue in told.queues] == ["root.a", "root"]
    assert not told.partitions
    core.node("n2", vcore=9_000, pods=100)
    assert last_delta(core).partitions[0].capacity["vcore"] == 18_000


def test_after_a_snapshot_all_that_changes_is_told():
    core = full_core()
    core.send(SnapshotRequest("late"))
    assert last_delta(core).reset
    assert told_of_waiting(core).partitions


def test_a_dynamic_queue_that_comes_again_is_told_again():
    rules = "partitions: [{name: default, placementrules: [{name: provided, create: true}], "
    core = Core(
        rules + "queues: [{name: root, submitacl: '*', queues: [{name: p, parent: true}]}]}]"
    )
    for name in ("x", "y"):
        core.application(name, "root.p.dynamic")
        assert "root.p.dynamic" in [queue.path for queue in last_delta(core).queues]
        core.update(remove_applications=(RemoveApplicationRequest(name),))
        core.now_ns += milliseconds(60_000)
        core.fire_own("cleaner")
        assert "root.p.dynamic" not in core.partition.queues


def allocation_times(delta):
    return {told.allocation_key: told.allocation_time_ns for told in delta.allocations}


def test_an_allocation_keeps_its_time_whatever_is_told_of_it_later():
    """By a snapshot, a release, a new size: it is allocated since the same moment as before."""
    core = Core()
    core.application("x")
    core.asks("x", ["x1", "x2"], ONE, create_time_ns=START_NS)
    core.now_ns += seconds(3)
    core.node("n1", vcore=9_000, pods=100)
    made = {"x1": core.now_ns, "x2": core.now_ns}
    assert allocation_times(last_delta(core)) == made
    core.now_ns += seconds(3)
    core.send(SnapshotRequest("late"))
    assert allocation_times(last_delta(core)) == made
    core.update(allocations=(Allocation("x1", "x", "n1", {"vcore": 2000, "pods": 1}),))
    assert allocation_times(last_delta(core)) == {"x1": made["x1"]}


def test_a_placeholder_that_is_being_replaced_keeps_its_time_and_the_real_one_has_its_own():
    core = Core()
    core.node("n1", vcore=9_000, pods=100)
    core.gang("g", 1, ONE)
    made_ns = core.now_ns
    core.now_ns += seconds(3)
    released = section(core.asks("g", ["r"], ONE, task_group_name="tg"), "released_allocations")
    assert allocation_times(last_delta(core)) == {"g-ph-0": made_ns}
    core.now_ns += seconds(3)
    core.update(releases=(released[0],))
    assert allocation_times(last_delta(core))["r"] == core.now_ns
    core.now_ns += seconds(3)
    core.send(SnapshotRequest("late"))
    assert allocation_times(last_delta(core)) == {"r": core.now_ns - seconds(3)}


def test_an_allocation_that_is_told_at_a_recovery_has_the_time_that_its_binding_had():
    core = Core()
    core.node("n1", vcore=9_000, pods=100)
    core.application("x")
    bound_ns = START_NS - seconds(60)
    held = Allocation("x1", "x", "n1", ONE, create_time_ns=bound_ns - 1, allocated_ns=bound_ns)
    core.update(allocations=(held,))
    for _ in range(2):
        assert allocation_times(last_delta(core)) == {"x1": bound_ns}
        core.send(SnapshotRequest("late"))
    gone = AllocationRelease("x", "x1", TerminationType.STOPPED_BY_RM)
    core.update(releases=(gone,))
    assert [told.removed for told in last_delta(core).allocations] == [True]


def released(application, key):
    return AllocationRelease(application, key, TerminationType.STOPPED_BY_RM)


def users_over_their_limit(users):
    """Return a core with users of whom each has one pod, and one more that is over the limit."""
    limit = "limits: [{limit: each, users: ['*'], maxresources: {vcore: 1}}]"
    core = Core(config_of(f"{{name: a, {limit}}}", "{name: b}"))
    core.node("n1", vcore=1_000_000, pods=10_000)
    for user in (f"u{at}" for at in range(users)):
        core.application(user, "root.a", ugi=UserGroupInformation(user))
        core.asks(user, [f"{user}-0", f"{user}-1"], ONE)
    return core


def test_of_refusals_only_those_that_differ_are_told():
    core = users_over_their_limit(5)
    core.asks("u3", ["u3-2"], {"vcore": 2000, "pods": 1})
    told = last_delta(core)
    assert [(item.path, item.why.limit.owner) for item in told.refusals] == [("root.a", "user u3")]
    (refused,) = [item.asks for item in told.refusals]
    core.update(releases=(released("u3", "u3-0"), released("u3", "u3-2")))
    told = last_delta(core)
    assert [(item.asks, item.why) for item in told.refusals if item.asks == refused] == [
        (refused, None)
    ]
    assert all(item.asks.endswith("user u3") for item in told.refusals)


def test_of_a_users_queues_only_those_are_told_in_which_something_changed():
    queues = (f"{{name: q{at}}}" for at in range(5))
    core = Core(config_of(*queues))
    core.node("n1", vcore=1_000_000, pods=10_000)
    alice = UserGroupInformation("alice")
    for at in range(5):
        core.application(f"x{at}", f"root.q{at}", ugi=alice)
        core.asks(f"x{at}", [f"x{at}-0"], ONE)
    (user,) = last_delta(core).users
    assert [usage.path for usage in user.queues] == ["root.q4", "root"]
    assert user.is_partial
    core.update(releases=(released("x2", "x2-0"),))
    (user,) = last_delta(core).users
    assert [(usage.path, usage.removed) for usage in user.queues] == [
        ("root.q2", True), ("root", False),
    ]  # fmt: skip


def test_a_snapshot_has_all_refusals_and_all_of_what_a_user_uses():
    core = users_over_their_limit(3)
    core.send(SnapshotRequest("late"))
    told = last_delta(core)
    assert {item.why.limit.owner for item in told.refusals} == {"user u0", "user u1", "user u2"}
    assert all({usage.path for usage in user.queues} == {"root.a", "root"} for user in told.users)
    assert not any(user.is_partial for user in told.users)


def test_while_there_is_no_node_everybody_is_told_so_and_no_more_when_there_is_one():
    core = Core(config_of("{name: a}", "{name: b}"))
    core.application("x", "root.a")
    core.asks("x", ["x1"], ONE)
    (refusal,) = last_delta(core).refusals
    assert refusal.why.reason == "NO_NODES"
    core.node("n1", vcore=9_000, pods=100)
    assert [(item.asks, item.why) for item in last_delta(core).refusals] == [(refusal.asks, None)]
