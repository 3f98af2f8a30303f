"""Sentences of YuniKorn's rules by themselves, with numbers that its tables of cases do not have.

Each test names its section; the sentence stands in the docstring.
"""

import pytest

from shared.messages.constraints import Constraints, Taint
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    NodeAction,
    NodeInfo,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.model.states import ApplicationState
from tests.builders import Core, config_of, section

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


def predicates_told(core: Core) -> list[str]:
    events = [event for item in core.answers for event in getattr(item.message, "events", ())]
    return [event.message for event in events if event.message.startswith("Unschedulable")]


def test_7_2_people_are_told_what_the_nodes_fail_on_and_not_too_often():
    """ "Unschedulable request '%s': <predicate> (<n>x); ..." (per ask max 1 per 15 s)."""
    core = Core(config_of("{name: a}"))
    taint = Taint("gpu", "", "NoSchedule")
    core.update(
        nodes=(
            NodeInfo("n1", NodeAction.CREATE, {"vcore": 9}, labels={"zone": "x"}, taints=(taint,)),
            NodeInfo("n2", NodeAction.CREATE, {"vcore": 9}),
            NodeInfo("n3", NodeAction.CREATE, {"vcore": 9}, labels={"zone": "y"}),
        )
    )
    core.application("app", "root.a")
    only_x = Constraints(node_selector=(("zone", "x"),))
    core.asks("app", ["first", "second"], {"vcore": 1}, constraints=only_x)
    text = (
        "Unschedulable request 'first': node(s) didn't match Pod's node affinity/selector (2x); "
        "node(s) had untolerated taint {gpu: } (1x)"
    )
    assert predicates_told(core) == [text]  # of those that wait behind one another the first speaks
    for seconds, times in ((14, 1), (1, 2), (14, 2)):
        core.now_ns += seconds * 1_000_000_000
        core.node(f"new-{core.now_ns}", vcore=1)
        core.send(UpdateConfiguration(config_of("{name: a, maxapplications: %d}" % seconds)))
        assert len(predicates_told(core)) == times
    assert "selector (4x)" in predicates_told(core)[-1]
    core.asks("app", ["large"], {"vcore": 99})
    assert len(predicates_told(core)) == 2  # room alone is no predicate
    core.check()
