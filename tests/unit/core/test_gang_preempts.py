"""Gangs without placeholders that preempt as a whole under YuniKorn's laws, beside others like them."""

from shared.messages.interface import AllocationRelease, GangSettings, SubGroup, TerminationType
from tests.builders import Core, config_of, section

ONE = {"vcore": 1}
CONFIG = config_of(
    "{name: a, resources: {guaranteed: {vcore: 1m}}}",
    "{name: b, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 4m}}}",
)


def waiting(core, name):
    core.application(name, "root.b", gang=GangSettings((SubGroup("w", "", 2),)))
    keys = [f"{name}-{at}" for at in range(2)]
    return core.asks(name, keys, ONE, task_group_name="w", allow_preempt_other=True)


def test_one_of_two_gangs_that_are_alike_gets_room_and_both_wait_by_themselves():
    core = Core(CONFIG)
    core.node("n", vcore=4)
    core.application("x", "root.a")
    core.asks("x", [f"x{at}" for at in range(4)], ONE)
    for name in ("g", "h"):
        waiting(core, name)
    responses = core.fire_own("preemption")
    core.check()
    gone = section(responses, "released_allocations")
    assert len(gone) == 2
    for each in gone:
        release = AllocationRelease(
            "x", each.allocation_key, TerminationType.PREEMPTED_BY_SCHEDULER
        )
        core.update(releases=(release,))
        core.check()
    found = core.partition.applications
    assert [len(found[name].allocations) for name in ("x", "g", "h")] == [2, 2, 0]
