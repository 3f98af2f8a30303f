"""Sentences of the contract by themselves, with numbers that its tables of cases do not have.

Each test names its section; the sentence stands in the docstring.
"""

import pytest

from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    UserGroupInformation,
)
from shared.model.states import ApplicationState
from tests.builders import Core, section

ONE = {"vcore": 1000, "pods": 1}


def test_3_1_a_type_of_which_nothing_is_announced_is_none():
    """ "allocatedPlaceholder equals placeholderAsk (resources.Equals)" makes a gang Running."""
    core = Core()
    core.node("n1", vcore=8000, pods=10)
    core.application("gang", placeholder_ask={"vcore": 2000, "pods": 2, "nvidia.com/gpu": 0})
    app = core.partition.applications["gang"]
    for at, state in enumerate((ApplicationState.ACCEPTED, ApplicationState.RUNNING)):
        zero = {**ONE, "nvidia.com/gpu": 0}
        core.asks("gang", [f"ph-{at}"], zero, placeholder=True, task_group_name="tg")
        assert app.state is state
    core.check()


@pytest.mark.parametrize("amount", [{}, {"vcore": 0, "pods": 0}])
def test_3_2_an_allocation_without_resources_is_rejected_like_an_ask(amount):
    """ "Ask rejects: ... `allocation contains no resources`": the two are one object."""
    core = Core()
    core.node("n1", vcore=8000, pods=10)
    core.application("app")
    core.asks("app", ["runs"], ONE)
    for key in ("new", "runs"):  # one that is known would have no resources any more
        found = core.update(allocations=(Allocation(key, "app", "n1", amount),))
        (rejected,) = section(found, "rejected_allocations")
        assert rejected.reason == "allocation contains no resources"
    assert list(core.partition.applications["app"].allocations) == ["runs"]
    assert core.partition.root.allocated == ONE
    core.check()


@pytest.mark.parametrize(
    ("partition", "user", "reason"),
    [
        ("gpu", "", "Failed to add application app to partition gpu, partition doesn't exist"),
        ("default", "", "empty user cannot resolve"),
        ("default", "1!", "invalid username, it contains invalid characters"),
        (
            "default",
            "alice",
            "adding application app to partition default, but application already existed",
        ),
    ],
)
def test_3_2_of_several_reasons_the_first_in_the_list_is_told(partition, user, reason):
    core = Core()
    core.application("app")
    ugi = UserGroupInformation(user)
    again = AddApplicationRequest("app", "root.default", partition, ugi)
    (rejected,) = section(core.update(new_applications=(again,)), "rejected_applications")
    assert rejected.reason == reason
    core.check()
