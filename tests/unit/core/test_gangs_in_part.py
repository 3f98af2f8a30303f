"""Gangs under ``gangAdmission: partial``: real asks and placeholders as YuniKorn's core has them."""

import pytest

from shared.messages.interface import AllocationRelease, TerminationType
from shared.model.states import ApplicationState
from tests.builders import Core, config_of, section

PARTIAL = (("gangAdmission", "partial"),)
ONE = {"vcore": 1000, "pods": 1}
TWO = {"vcore": 2000, "pods": 1}
NODE = {"vcore": 10_000, "pods": 20}
REPLACED, TIMEOUT = TerminationType.PLACEHOLDER_REPLACED, TerminationType.TIMEOUT


def placed(responses):
    return [item.allocation_key for item in section(responses, "new_allocations")]


def released(responses):
    return [
        (item.allocation_key, item.termination_type)
        for item in section(responses, "released_allocations")
    ]


def confirm(core, key, why):
    return core.update(releases=(AllocationRelease("app", key, why),))


def counted(core):
    (found,) = core.partition.applications["app"].task_groups.values()
    return found.count, found.replaced, found.timedout


def reserving(members=3, places=2):
    """A gang of which as many placeholders as ``places`` fit the queue."""
    core = Core(
        config_of(f"{{name: a, resources: {{max: {{vcore: {places}}}}}}}"), settings=PARTIAL
    )
    core.node("n1", **NODE)
    core.application("app", "root.a", placeholder_ask={"vcore": 1000 * places, "pods": members})
    keys = [f"ph-{at}" for at in range(members)]
    responses = core.asks("app", keys, ONE, placeholder=True, task_group_name="tg")
    assert placed(responses) == keys[:places]
    return core, core.partition.applications["app"]


def test_a_real_ask_takes_a_placeholders_place_while_others_wait():
    """yunikorn.md 3.3, step 6: it asks for the group and the placeholder alone."""
    core, app = reserving()
    responses = core.asks("app", ["real-0"], ONE, task_group_name="tg")
    assert (placed(responses), released(responses)) == ([], [("ph-0", REPLACED)])
    assert placed(confirm(core, "ph-0", REPLACED)) == ["real-0"]
    assert (app.state, counted(core)) == (ApplicationState.ACCEPTED, (3, 1, 0))
    core.check()
    assert released(core.asks("app", ["real-1"], ONE, task_group_name="tg")) == [("ph-1", REPLACED)]
    assert placed(confirm(core, "ph-1", REPLACED)) == ["real-1"]
    assert (app.state, counted(core)) == (ApplicationState.RUNNING, (3, 2, 0))
    core.check()


def test_an_ask_of_no_group_or_of_another_is_placed_while_placeholders_wait():
    core, _ = reserving(places=2)
    responses = core.asks("app", ["none"], {"vcore": 0, "pods": 1})
    assert placed(responses) == ["none"]
    responses = core.asks("app", ["other"], {"vcore": 0, "pods": 1}, task_group_name="other")
    assert placed(responses) == ["other"]
    core.check()


def test_a_real_ask_that_comes_before_any_placeholder_is_placed_by_itself():
    core = Core(settings=PARTIAL)
    core.node("n1", **NODE)
    core.application("app", placeholder_ask={"vcore": 2000, "pods": 2})
    assert placed(core.asks("app", ["real"], ONE, task_group_name="tg")) == ["real"]
    assert core.partition.applications["app"].timers == {}
    core.check()


@pytest.mark.parametrize("members", [1, 2, 5])
def test_every_placeholder_of_a_group_goes_for_a_larger_ask_which_is_placed_behind_them(members):
    """yunikorn.md 3.3, step 6; case G-08."""
    core = Core(settings=PARTIAL)
    core.node("n1", **NODE)
    core.gang("app", members, ONE)
    keys = [f"app-ph-{at}" for at in range(members)]
    responses = core.asks("app", ["real"], TWO, task_group_name="tg")
    assert (placed(responses), released(responses)) == ([], [(key, TIMEOUT) for key in keys])
    assert counted(core) == (members, 0, 0)
    assert core.asks("app", [], TWO) == []
    core.check()
    for at, key in enumerate(keys, 1):
        responses = confirm(core, key, TIMEOUT)
        assert placed(responses) == (["real"] if at == members else [])
        assert counted(core) == (members, 0, at)
    core.check()


def test_a_larger_ask_that_no_node_takes_has_the_placeholders_go_all_the_same():
    core = Core(settings=PARTIAL)
    core.node("n1", **NODE)
    core.gang("app", 2, ONE)
    responses = core.asks("app", ["real"], {"vcore": 11_000}, task_group_name="tg")
    assert len(released(responses)) == 2
    for key in ("app-ph-0", "app-ph-1"):
        assert placed(confirm(core, key, TIMEOUT)) == []
    assert counted(core) == (2, 0, 2)
    core.check()


def test_a_smaller_ask_of_the_group_takes_a_place_and_the_larger_one_has_the_others_go():
    core = Core(settings=PARTIAL)
    core.node("n1", **NODE)
    core.gang("app", 3, ONE)
    assert released(core.asks("app", ["small"], ONE, task_group_name="tg")) == [
        ("app-ph-0", REPLACED)
    ]
    found = released(core.asks("app", ["large"], TWO, task_group_name="tg"))
    assert found == [("app-ph-1", TIMEOUT), ("app-ph-2", TIMEOUT)]
    assert placed(confirm(core, "app-ph-0", REPLACED)) == ["small"]
    confirm(core, "app-ph-1", TIMEOUT)
    assert placed(confirm(core, "app-ph-2", TIMEOUT)) == ["large"]
    assert counted(core) == (3, 1, 2)
    core.check()


@pytest.mark.parametrize("style", ["Soft", "Hard"])
def test_the_timeout_finds_a_place_that_is_being_handed_over(style):
    core = Core(settings=PARTIAL)
    core.node("n1", vcore=2000, pods=9)
    core.gang("app", 3, ONE, gang_scheduling_style=style)
    core.asks("app", ["real"], ONE, task_group_name="tg")
    app = core.partition.applications["app"]
    assert released(core.fire("app", "placeholder")) == [("app-ph-1", TIMEOUT)]
    core.check()
    confirm(core, "app-ph-1", TIMEOUT)
    assert placed(confirm(core, "app-ph-0", REPLACED)) == []
    assert app.state == ("Accepted" if style == "Soft" else "Failed")
    assert not app.allocations
    core.check()
