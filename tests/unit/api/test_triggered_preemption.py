"""An ask for which others go says so, whatever law they go by, for as long as it waits."""

import pytest

from shared.messages.constraints import Constraints
from shared.messages.interface import AllocationRelease, NodeAction, NodeInfo, TerminationType
from tests.builders import config_of, section
from tests.unit.api.following import System

SECOND_NS = 10**9
OWED = "{name: b, resources: {guaranteed: {vcore: 4m}}}"


async def request_of(system, key):
    told = (await system.get("/ws/v1/partition/default/application/asking")).json()
    return next((item for item in told.get("requests", []) if item["allocationKey"] == key), {})


def full():
    system = System(config_of("{name: a}", OWED))
    system.node("n", vcore=4)
    drained = NodeInfo("drained", NodeAction.CREATE_DRAIN, {"vcore": 4})
    system.update(nodes=(drained,))  # the root has room
    system.application("runs", "root.a")
    system.asks("runs", [f"v{at}" for at in range(4)], {"vcore": 1})
    system.application("asking", "root.b")
    return system


@pytest.mark.parametrize("required", ["n", ""])
async def test_it_says_so_until_it_is_placed(required):
    system = full()
    said = system.asks(
        "asking", ["one", "two"], {"vcore": 1},
        constraints=Constraints(required_node=required), create_time_ns=system.now_ns,
    )  # fmt: skip
    gone = section(said, "released_allocations")
    if not required:
        assert "triggeredPreemption" not in await request_of(system, "one")
        system.now_ns += 31 * SECOND_NS
        gone = section(system.fire_own("preemption"), "released_allocations")
    assert len(gone) == 2
    for key in ("one", "two"):
        assert (await request_of(system, key))["triggeredPreemption"] is True
    preempted = TerminationType.PREEMPTED_BY_SCHEDULER
    keys = [item.allocation_key for item in gone]
    system.update(releases=tuple(AllocationRelease("runs", key, preempted) for key in keys))
    assert await request_of(system, "one") == {}
    system.check()


async def test_one_that_finds_nobody_does_not_say_so():
    system = full()
    system.asks(
        "asking", ["one"], {"vcore": 1}, constraints=Constraints(required_node="n"), priority=-1
    )
    assert "triggeredPreemption" not in await request_of(system, "one")
    system.check()


async def test_victims_that_go_for_another_reason_let_it_look_again():
    system = full()
    one = Constraints(required_node="n")
    (victim,) = section(
        system.asks("asking", ["one"], {"vcore": 1}, constraints=one), "released_allocations"
    )
    stopped = TerminationType.STOPPED_BY_RM
    system.update(releases=(AllocationRelease("runs", victim.allocation_key, stopped),))
    assert await request_of(system, "one") == {}
    system.check()


async def test_room_that_comes_to_a_node_is_counted_once():
    """Pods of 2 for asks of 1: what is left of the first is the second's, then another has to go."""
    system = System(config_of("{name: a}", OWED))
    system.node("n", vcore=8)
    system.update(nodes=(NodeInfo("drained", NodeAction.CREATE_DRAIN, {"vcore": 8}),))
    system.application("runs", "root.a")
    system.asks("runs", [f"v{at}" for at in range(4)], {"vcore": 2})
    system.application("asking", "root.b")
    there = Constraints(required_node="n")
    gone = []
    for key in ("one", "two", "three"):
        said = system.asks("asking", [key], {"vcore": 1}, constraints=there)
        gone += [item.allocation_key for item in section(said, "released_allocations")]
    assert len(gone) == 1
    assert "does not help" not in str((await request_of(system, "two"))["allocationLog"])
    preempted = TerminationType.PREEMPTED_BY_SCHEDULER
    said = system.update(releases=(AllocationRelease("runs", gone[0], preempted),))
    assert [new.allocation_key for new in section(said, "new_allocations")] == ["one", "two"]
    (other,) = section(said, "released_allocations")
    said = system.update(releases=(AllocationRelease("runs", other.allocation_key, preempted),))
    assert [new.allocation_key for new in section(said, "new_allocations")] == ["three"]
    system.check()
