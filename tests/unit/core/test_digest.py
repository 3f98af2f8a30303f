"""The partition's and a queue's state are told where they differ from what was told last."""

from shared.messages.interface import RemoveApplicationRequest
from shared.messages.state import SnapshotRequest, StateDelta
from shared.model.units import milliseconds
from tests.builders import Core, config_of

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
