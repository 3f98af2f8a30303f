"""The partition's and a queue's state are told where they differ from what was told last."""

from shared.messages.interface import (
    Allocation,
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
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
