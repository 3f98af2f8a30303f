"""What became of a gang when, as the timeline of its application says."""

from services.api.projection.model import ApplicationView
from services.api.projection.timeline import MAX_STEPS, Step, note_step
from shared.messages.interface import (
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
)
from shared.messages.state import ApplicationSummary, PlaceholderCount, SnapshotRequest
from tests.builders import START_NS, config_of
from tests.unit.api.following import System

ONE = {"vcore": 1_000}
SECOND = 10**9


def system_with(nodes=1):
    system = System(config_of("{name: a}"))
    system.has_clock = True
    for at in range(nodes):
        system.node(f"n{at}", vcore=2_000)
    return system


def let_go(system, keys, why):
    gone = tuple(AllocationRelease("g", key, TerminationType(why)) for key in keys)
    system.update(releases=gone)


async def timeline(system, name="g"):
    answer = await system.get(f"/v1/applications/{name}/timeline")
    assert answer.status_code == 200
    return answer.json()


def texts(value):
    return [one["text"] for one in value["milestones"]]


async def test_a_gang_is_followed_from_its_submission_to_its_end():
    system = system_with()
    system.gang("g", 4, ONE, queue="root.a")
    value = await timeline(system)
    assert value["wanted"] == 4
    assert texts(value) == ["submitted", "accepted", "first placeholder reserved"]
    assert (value["steps"][-1]["held"], value["steps"][-1]["pending"]) == (2, 2)
    system.now_ns += 5 * SECOND
    system.node("more", vcore=2_000)
    value = await timeline(system)
    assert texts(value)[3:] == ["all 4 placeholders reserved", "running"]
    whole = value["milestones"][3]
    assert whole["time"] == START_NS + 5 * SECOND
    system.now_ns += 5 * SECOND
    system.asks("g", [f"real-{at}" for at in range(4)], ONE, task_group_name="tg")
    held = system.partition.applications["g"].allocations
    let_go(system, [key for key in held if "-ph-" in key], "PLACEHOLDER_REPLACED")
    value = await timeline(system)
    assert texts(value)[5:] == ["all 4 placeholders replaced"]
    assert value["milestones"][-1]["time"] == START_NS + 10 * SECOND
    assert [value["steps"][-1][name] for name in ("held", "replaced", "running")] == [0, 4, 4]
    system.now_ns += 5 * SECOND
    let_go(system, [f"real-{at}" for at in range(4)], "STOPPED_BY_RM")
    system.update(remove_applications=(RemoveApplicationRequest("g"),))
    value = await timeline(system)
    assert value["steps"][-1]["ended"] == 4
    assert value["milestones"][-1]["time"] == value["finishedTime"] == START_NS + 15 * SECOND


async def test_a_plain_application_has_states_and_no_steps():
    system = system_with()
    system.application("p", "root.a")
    system.asks("p", ["k"], ONE)
    value = await timeline(system, "p")
    assert (value["steps"], value["wanted"]) == ([], 0)
    states = [one.state for one in system.model.applications["p"].summary.state_log]
    assert [one["state"] for one in value["states"]] == states
    assert texts(value) == ["submitted", *(state.lower() for state in states if state != "New")]


async def test_pods_that_were_lost_are_among_what_happened():
    system = system_with()
    system.gang("g", 2, ONE, queue="root.a")
    system.asks("g", ["real-0", "real-1"], ONE, task_group_name="tg")
    let_go(system, ["g-ph-0", "g-ph-1"], "PLACEHOLDER_REPLACED")
    system.now_ns += SECOND
    system.update(nodes=(NodeInfo("n0", NodeAction.DECOMISSION),))
    value = await timeline(system)
    assert value["steps"][-1]["lost"] == 2
    assert {"time": system.now_ns, "text": "2 pods lost with a node"} in value["milestones"]


async def test_an_application_that_is_not_there_has_no_timeline():
    answer = await system_with().get("/v1/applications/no/timeline")
    assert (answer.status_code, answer.json()["message"]) == (404, "Application no not found")


async def test_what_was_before_the_replica_knew_of_it_is_not_told_as_if_it_were_now():
    system = system_with(nodes=2)
    system.gang("g", 4, ONE, queue="root.a")
    late = System(config_of("{name: a}"))
    late.has_clock = True
    late.scheduler, late.epoch = system.scheduler, system.epoch
    late.machine.partitions.default.is_ready = False
    late.now_ns = START_NS + 60 * SECOND
    late.send(SnapshotRequest("one"))
    value = await timeline(late)
    assert value["knownSince"] == late.now_ns
    assert "all 4 placeholders reserved" not in texts(value)
    assert texts(value)[0] == "submitted"


def view_of(held, wanted=8):
    group = PlaceholderCount("w", wanted, held, 0, 0, ONE)
    summary = ApplicationSummary(
        "g", "1", "root.a", "Accepted", "", (), 0, 0, 0, {}, {}, {}, {}, 0, "", "", {}, (), (group,)
    )
    return ApplicationView(summary)


def test_a_step_is_added_when_something_differs_and_of_many_every_second_one_goes():
    view = view_of(0)
    note_step(view, 1)
    note_step(view, 2)
    assert [step[0] for step in view.steps] == [1]
    for at in range(1, 500):
        view.summary = view_of(at, 1_000).summary
        note_step(view, at)
        assert len(view.steps) <= MAX_STEPS
    steps = [Step(*step) for step in view.steps]
    assert (steps[0].time_ns, steps[-1].time_ns) == (1, 499)
    assert [step.held for step in steps] == sorted(step.held for step in steps)
