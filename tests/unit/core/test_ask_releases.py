"""Ask releases: the side that did not start one confirms it, with the same type, and once."""

import pytest

from shared.messages.interface import AllocationAskRelease, AllocationRelease, TerminationType
from tests.builders import Core, section
from tests.table import each_row

ONE = {"vcore": 1000, "pods": 1}
STOPPED = TerminationType.STOPPED_BY_RM


def released(core, application, key, why=STOPPED):
    release = AllocationAskRelease(application, key, why, message="why")
    return section(core.update(ask_releases=(release,)), "released_asks")


def test_what_the_resource_manager_takes_back_is_confirmed_with_the_same_type():
    core = Core()
    core.application("app")
    core.asks("app", ["a", "b"], ONE)
    (echo,) = released(core, "app", "a")
    assert (echo.application_id, echo.allocation_key) == ("app", "a")
    assert (echo.termination_type, echo.message) == (STOPPED, "why")
    assert [ask.key for ask in core.partition.applications["app"].asks()] == ["b"]
    (echo,) = released(core, "app", "")
    assert echo.allocation_key == ""
    assert list(core.partition.applications["app"].asks()) == []
    core.check()


@pytest.mark.parametrize(("application", "key"), [("app", "a"), ("nobody", "x")])
def test_a_release_that_comes_again_is_confirmed_again_and_changes_nothing(application, key):
    core = Core()
    core.application("app")
    core.asks("app", ["a", "b"], ONE)
    released(core, application, key)
    before = [ask.key for ask in core.partition.applications["app"].asks()]
    (echo,) = released(core, application, key)
    assert echo.termination_type is STOPPED
    assert [ask.key for ask in core.partition.applications["app"].asks()] == before


@pytest.mark.parametrize("why", [TerminationType.TIMEOUT, TerminationType.PREEMPTED_BY_SCHEDULER])
def test_a_confirmation_is_not_confirmed_and_leaves_an_ask_that_has_come_since(why):
    core = Core()
    core.application("app")
    core.asks("app", ["a"], ONE)
    assert released(core, "app", "a", why) == []
    assert [ask.key for ask in core.partition.applications["app"].asks()] == ["a"]
    core.check()


def test_everything_of_an_application_goes_with_a_release_of_no_key():
    core = Core()
    core.application("app")
    core.asks("app", ["a"], ONE)
    core.update(releases=(AllocationRelease("app", "", STOPPED),))
    assert list(core.partition.applications["app"].asks()) == []


KINDS = list(TerminationType)
KEEPING = (TerminationType.TIMEOUT, TerminationType.SCHEDULING_FAILED_ON_RM)


@each_row("key", ["a", ""])
@each_row("why", KINDS)
def test_a_release_takes_an_ask_that_waits_unless_its_type_is_about_allocations_alone(why, key):
    core = Core()
    core.application("app")
    core.asks("app", ["a"], ONE)
    assert core.update(releases=(AllocationRelease("app", key, why),)) == [] or why not in KEEPING
    app = core.partition.applications["app"]
    assert [ask.key for ask in app.asks()] == (["a"] if why in KEEPING else [])
    assert app.state == ("Accepted" if why in KEEPING else "Completing")
    core.check()


@each_row("why", KINDS)
def test_a_real_ask_that_is_to_take_a_placeholders_place_goes_or_stays_as_one_that_waits(why):
    core = Core()
    core.node("n1", vcore=9000, pods=9)
    core.gang("app", 1, ONE)
    (going,) = section(core.asks("app", ["r"], ONE, task_group_name="tg"), "released_allocations")
    core.update(releases=(AllocationRelease("app", "r", why),))
    core.check()
    new = section(core.update(releases=(going,)), "new_allocations")
    assert [item.allocation_key for item in new] == (["r"] if why in KEEPING else [])
    core.check()


@pytest.mark.parametrize("why", KEEPING)
def test_a_timeout_of_everything_ends_what_is_allocated_and_leaves_what_waits(why):
    core = Core()
    core.node("n1", vcore=1000, pods=9)
    core.application("app")
    core.asks("app", ["a", "b"], ONE)
    core.update(releases=(AllocationRelease("app", "", why),))
    app = core.partition.applications["app"]
    held, waiting = set(app.allocations), {ask.key for ask in app.asks()}
    assert (held | waiting, len(held)) == (
        {"b"} if why is TerminationType.TIMEOUT else {"a", "b"}, 1,
    )  # fmt: skip
    core.check()
