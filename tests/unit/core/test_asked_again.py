"""An ask that comes again: a message of the resource manager may be said twice."""

from tests.builders import Core, section

ONE = {"vcore": 1000}


def test_the_same_ask_again_changes_nothing_of_the_one_that_waits():
    core = Core()
    core.application("app")
    core.asks("app", ["p"], ONE, create_time_ns=core.now_ns)
    (before,) = core.partition.applications["app"].asks()
    core.partition.set(before, preemption_checked_ns=core.now_ns)
    core.asks("app", ["p"], ONE, create_time_ns=core.now_ns)
    (after,) = core.partition.applications["app"].asks()
    assert after is before
    core.check()


def test_the_same_ask_again_is_not_allocated_a_second_time():
    core = Core()
    core.node("n", vcore=2000)
    core.application("app")
    assert len(section(core.asks("app", ["p"], ONE), "new_allocations")) == 1
    again = core.asks("app", ["p"], ONE)
    assert section(again, "new_allocations") == section(again, "rejected_allocations") == []
    assert list(core.partition.applications["app"].asks()) == []
    assert core.partition.root.allocated == ONE
    core.check()
