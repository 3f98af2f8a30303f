"""Ask releases: the side that did not start one confirms it, with the same type, and once."""

import pytest

from shared.messages.interface import AllocationAskRelease, AllocationRelease, TerminationType
from tests.builders import Core, section

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
