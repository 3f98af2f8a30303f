"""What becomes of placeholders and of the real pods that take their room."""

import pytest

from shared.messages.constraints import Constraints, PodTerm, Requirement, Taint
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from tests.builders import Core, section
from tests.table import each_row

ONE = {"vcore": 1000, "pods": 1}
NODE = {"vcore": 10_000, "memory": 10_000, "pods": 20}


def placeholder_data(summary):
    return [(c.task_group_name, c.count, c.timedout, c.replaced) for c in summary.placeholders]


def told(core, name):
    """The last that the API was told of an application."""
    return [
        summary
        for answer in core.answers
        for summary in getattr(answer.message, "applications", ())
        if summary.application_id == name
    ][-1]


# --- an application that is removed ---------------------------------------------------------------


def removed_with(core):
    core.update(remove_applications=(RemoveApplicationRequest("app"),))
    core.check()
    summary = told(core, "app")
    assert summary.state == "Completed"
    return placeholder_data(summary)


def test_19_an_application_removed_with_an_allocated_placeholder_has_its_counts_closed():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 1, ONE)
    assert removed_with(core) == [("tg", 1, 1, 0)]


def test_19_and_with_pending_ones():
    core = Core()
    core.node("n1", **NODE)
    core.application("app", placeholder_ask={"vcore": 2000, "pods": 2})
    core.asks("app", ["a"], ONE, placeholder=True, task_group_name="tg")
    core.asks("app", ["b"], {"vcore": 20_000}, placeholder=True, task_group_name="tg")
    assert len(core.partition.applications["app"].allocations) == 1
    assert removed_with(core) == [("tg", 2, 2, 0)]


def test_19_and_with_one_that_is_being_replaced_and_one_that_was():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 3, ONE)
    released = section(core.asks("app", ["r1"], ONE, task_group_name="tg"), "released_allocations")
    core.update(releases=tuple(released))
    core.asks("app", ["r2"], ONE, task_group_name="tg")
    assert len(core.partition.applications["app"].replacing) == 1
    assert removed_with(core) == [("tg", 3, 2, 1)]


def test_19_and_with_one_that_is_being_released():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 2, ONE)
    core.fire("app", "placeholder")
    core.update(releases=(AllocationRelease("app", "app-ph-0", TerminationType.TIMEOUT),))
    assert removed_with(core) == [("tg", 2, 2, 0)]


# --- the node chosen before is looked at again ----------------------------------------------------

REPLACED = TerminationType.PLACEHOLDER_REPLACED
IN_ZONE_A = Constraints((("zone", "a"),))
APART = PodTerm("host", (Requirement("app", "In", ("lonely",)),))
LONELY = Constraints(pod_anti_affinity=(APART,), namespace="d")
LONELY_TAGS = {"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": "lonely"}


def add_node(core, name, capacity=NODE, zone="a"):
    labels = {"zone": zone, "host": name}
    return core.update(nodes=(NodeInfo(name, NodeAction.CREATE, capacity, labels=labels),))


def change(core, name, action=NodeAction.UPDATE, **more):
    return core.update(nodes=(NodeInfo(name, action, **more),))


def swapping(core, members=1, **ask):
    """A gang on n1 whose first real pod waits for its placeholder to go; return the release."""
    core.gang("app", members, ONE)
    core.now_ns += 1
    responses = core.asks("app", ["real"], ONE, task_group_name="tg", **ask)
    (release,) = section(responses, "released_allocations")
    assert release.termination_type is REPLACED
    return release


def placed(responses):
    return [(a.allocation_key, a.node_id) for a in section(responses, "new_allocations")]


def failed(responses):
    return [
        s.allocation_key for s in section(responses, "scheduling_states") if s.state == "FAILED"
    ]


def data(core, name="app"):
    return {
        group: (counts.count, counts.timedout, counts.replaced)
        for group, counts in core.partition.applications[name].task_groups.items()
        if counts.count
    }


def other_pod(core, node):
    """A pod comes to a node that wants to be alone there."""
    core.application("other")
    core.update(
        allocations=(
            Allocation("o", "other", node, ONE, constraints=LONELY, allocation_tags=LONELY_TAGS),
        )
    )


NO_MORE = {
    "drained": lambda core: change(core, "n1", NodeAction.DRAIN_NODE),
    "shrunk": lambda core: change(core, "n1", schedulable_resource={"vcore": 500, "pods": 9}),
    "relabelled": lambda core: change(core, "n1", labels={"zone": "z"}),
    "tainted": lambda core: change(core, "n1", labels={"zone": "a"}, taints=(Taint("gone"),)),
    "taken by another pod's affinity": lambda core: other_pod(core, "n1"),
}


@each_row("what", NO_MORE)
def test_8_a_node_that_takes_the_real_pod_no_more_is_passed_over_for_another(what):
    core = Core()
    add_node(core, "n1")
    release = swapping(core, constraints=IN_ZONE_A, allocation_tags=LONELY_TAGS)
    NO_MORE[what](core)
    add_node(core, "n2")
    responses = core.update(releases=(release,))
    assert placed(responses) == [("real", "n2")]
    assert failed(responses) == []
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()


@each_row("what", NO_MORE)
def test_8_with_no_other_node_the_real_pod_is_unschedulable_at_once(what):
    core = Core()
    add_node(core, "n1")
    release = swapping(core, constraints=IN_ZONE_A, allocation_tags=LONELY_TAGS)
    NO_MORE[what](core)
    responses = core.update(releases=(release,))
    assert placed(responses) == []
    assert failed(responses) == ["real"]
    app = core.partition.applications["app"]
    assert (app.allocations, app.replacing, list(app.group_of)) == ({}, {}, ["real"])
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()
    later = add_node(core, "n2")
    assert placed(later) == [("real", "n2")]
    assert failed(later) == []
    core.check()


def test_8_it_waits_again_at_its_old_place():
    core = Core()
    add_node(core, "n1")
    release = swapping(core)
    core.asks("app", ["later"], {"vcore": 20_000}, task_group_name="other")
    change(core, "n1", NodeAction.DRAIN_NODE)
    sequence = core.partition.applications["app"].replacing["app-ph-0"].ask.sequence
    core.asks("app", ["after"], ONE, task_group_name="tg")
    core.update(releases=(release,))
    group = core.partition.applications["app"].group_of["real"]
    assert [group.head().key, group.asks["real"].sequence] == ["real", sequence]
    assert placed(add_node(core, "n2", {"vcore": 1000, "pods": 3})) == [("real", "n2")]


def test_8_the_shim_hears_it_also_when_the_queue_has_no_more_room_for_it():
    config = (
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: "
        "[{name: default, resources: {max: {vcore: 1}}}]}]}]"
    )
    core = Core(config)
    add_node(core, "n1")
    release = swapping(core, constraints=IN_ZONE_A)
    change(core, "n1", NodeAction.DRAIN_NODE)
    add_node(core, "n2", zone="b")
    core.application("greedy")
    core.asks("greedy", ["g"], ONE, priority=9)
    responses = core.update(releases=(release,))
    assert placed(responses) == [("g", "n2")]
    assert failed(responses) == ["real"]
    core.check()


def test_8_another_placeholder_of_its_group_is_replaced_before_anybody_hears_of_a_failure():
    core = Core()
    for name in ("n1", "n2"):
        add_node(core, name, {"vcore": 1000, "pods": 3})
    release = swapping(core, members=2)
    change(core, "n1", NodeAction.DRAIN_NODE)
    responses = core.update(releases=(release,))
    (second,) = section(responses, "released_allocations")
    assert failed(responses) == []
    assert placed(core.update(releases=(second,))) == [("real", "n2")]
    assert data(core) == {"tg": (2, 0, 2)}
    core.check()


def test_8_with_placeholders_left_that_do_not_help_the_shim_hears_it_at_once():
    core = Core()
    add_node(core, "n1")
    release = swapping(core, members=3, constraints=IN_ZONE_A)
    change(core, "n1", NodeAction.DRAIN_NODE)
    responses = core.update(releases=(release,))
    assert failed(responses) == ["real"]
    assert len(core.partition.applications["app"].allocations) == 2
    core.check()


def elsewhere(core, **more):
    """A swap whose real pod goes to n2 while its placeholder is on n1."""
    add_node(core, "n1", zone="b")
    core.gang("app", 1, ONE)
    add_node(core, "n2", {"vcore": 1000, "pods": 3})
    responses = core.asks("app", ["real"], ONE, task_group_name="tg", constraints=IN_ZONE_A, **more)
    (release,) = section(responses, "released_allocations")
    assert list(core.partition.nodes.nodes["n2"].allocations) == ["real"]
    return release


AWAY = {
    "drained": lambda core: change(core, "n2", NodeAction.DRAIN_NODE),
    "shrunk": lambda core: change(core, "n2", schedulable_resource={"vcore": 500, "pods": 9}),
    "relabelled": lambda core: change(core, "n2", labels={"zone": "z"}),
    "gone": lambda core: change(core, "n2", NodeAction.DECOMISSION),
}


@pytest.mark.parametrize("what", AWAY)
def test_8_a_real_pod_that_was_to_start_on_another_node_finds_a_third(what):
    core = Core()
    release = elsewhere(core)
    AWAY[what](core)
    responses = add_node(core, "n3")
    core.check()
    assert (placed(responses), failed(responses)) == ([], [])
    responses = core.update(releases=(release,))
    assert placed(responses) == [("real", "n3")]
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()


@pytest.mark.parametrize("what", AWAY)
def test_8_with_no_third_node_it_is_unschedulable_and_nothing_is_left_on_the_second(what):
    core = Core()
    release = elsewhere(core)
    responses = AWAY[what](core) + core.update(releases=(release,))
    assert failed(responses) == ["real"]
    assert all(not node.allocations for node in core.partition.nodes.nodes.values())
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()
    assert placed(add_node(core, "n3")) == [("real", "n3")]
    core.check()


@pytest.mark.parametrize("has_gone", [False, True])
def test_8_a_swap_that_is_taken_back_leaves_the_second_node_to_others(has_gone):
    core = Core()
    release = elsewhere(core)
    if has_gone:
        core.update(releases=(release,))  # it started: then it is a release that frees the node
        ended = AllocationRelease("app", "real", TerminationType.STOPPED_BY_RM)
        core.update(releases=(ended,))
    else:
        withdrawn = AllocationAskRelease("app", "real", TerminationType.STOPPED_BY_RM)
        core.update(ask_releases=(withdrawn,))
    core.check()
    core.application("other")
    assert placed(core.asks("other", ["o"], ONE, constraints=IN_ZONE_A)) == [("o", "n2")]
    core.check()


def test_8_the_shim_hears_at_once_that_the_second_node_has_gone():
    core = Core()
    elsewhere(core)
    assert failed(change(core, "n2", NodeAction.DECOMISSION)) == ["real"]
    core.check()


def test_8_a_placeholder_whose_node_goes_lets_its_real_pod_start_on_another():
    core = Core()
    add_node(core, "n1", {"vcore": 1000, "pods": 3})
    swapping(core)
    add_node(core, "n2")
    responses = change(core, "n1", NodeAction.DECOMISSION)
    assert placed(responses) == [("real", "n2")]
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()


def test_8_a_placeholder_whose_node_goes_leaves_its_real_pod_unschedulable_at_once():
    core = Core()
    add_node(core, "n1")
    swapping(core)
    responses = change(core, "n1", NodeAction.DECOMISSION)
    assert failed(responses) == ["real"]
    assert data(core) == {"tg": (1, 1, 0)}
    core.check()


def recovered(**node):
    """A core that restarted while a placeholder was going, and knows of no swap yet."""
    core = Core()
    core.send(SyncBegin(""), epoch=2)
    core.epoch = 2
    core.update(
        nodes=(NodeInfo("n1", node.pop("action", NodeAction.CREATE), NODE, **node),),
        new_applications=(AddApplicationRequest("app", "root.default", placeholder_ask=ONE),),
    )
    ph = Allocation("ph", "app", "n1", ONE, placeholder=True, task_group_name="tg", released=True)
    core.update(allocations=(ph,))
    core.send(SyncEnd(1, 1, 0))
    core.asks("app", ["real"], ONE, task_group_name="tg", constraints=IN_ZONE_A)
    return core


GONE = AllocationRelease("app", "ph", REPLACED)


@pytest.mark.parametrize(
    "node",
    [
        {"labels": {"zone": "a"}, "action": NodeAction.CREATE_DRAIN},
        {"labels": {"zone": "b"}},
    ],
)
def test_8_after_a_restart_the_node_is_looked_at_as_well(node):
    core = recovered(**node)
    responses = core.update(releases=(GONE,))
    assert placed(responses) == []
    assert failed(responses) == ["real"]
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()
    core = recovered(**node)
    add_node(core, "n2")
    assert placed(core.update(releases=(GONE,))) == [("real", "n2")]
    core.check()


def test_8_a_placeholder_that_went_for_a_pod_that_was_deleted_takes_the_next_one():
    core = Core()
    add_node(core, "n1", {"vcore": 2000, "pods": 3})
    release = swapping(core, members=2)
    why = TerminationType.STOPPED_BY_RM
    core.update(ask_releases=(AllocationAskRelease("app", "real", why),))
    again = core.asks("app", ["next"], ONE, task_group_name="tg")
    assert section(again, "released_allocations") == []
    assert placed(core.update(releases=(release,))) == [("next", "n1")]
    assert data(core) == {"tg": (2, 0, 1)}
    core.check()


@pytest.mark.parametrize("bound_to", ["n1", "n2"])
@pytest.mark.parametrize("is_drained", [False, True], ids=["in its place", "on another node"])
def test_a_real_pod_bound_before_its_placeholder_has_gone_counts_once(bound_to, is_drained):
    """Its place is for the next real pod of the group."""
    core = Core()
    add_node(core, "n1")
    core.gang("app", 2, ONE)
    add_node(core, "n2")
    if is_drained:
        change(core, "n1", NodeAction.DRAIN_NODE)
    said = core.asks("app", ["real"], ONE, task_group_name="tg")
    found = Allocation("real", "app", bound_to, ONE, task_group_name="tg")
    assert placed(core.update(allocations=(found,))) == []
    core.check()
    core.asks("app", ["next"], ONE, task_group_name="tg")
    released = tuple(section(said, "released_allocations"))
    assert [key for key, _ in placed(core.update(releases=released))] == ["next"]
    app = core.partition.applications["app"]
    assert app.allocations["real"].node_id == bound_to
    assert app.queue.allocated["vcore"] == 3 * ONE["vcore"]
    core.check()
    for key in ("real", "next"):
        core.update(releases=(AllocationRelease("app", key, TerminationType.STOPPED_BY_RM),))
    assert app.queue.allocated["vcore"] == ONE["vcore"]
    core.check()


@pytest.mark.parametrize(("style", "state"), [("Soft", "Resuming"), ("Hard", "Failing")])
def test_a_gang_that_is_given_up_gives_back_the_ask_that_was_to_take_a_place(style, state):
    core = Core()
    add_node(core, "n1")
    two = {"vcore": 2000, "pods": 2}
    core.application("app", placeholder_ask=two, gang_scheduling_style=style)
    core.asks("app", ["a"], ONE, placeholder=True, task_group_name="tg")
    core.asks("app", ["real"], ONE, task_group_name="tg")
    app = core.partition.applications["app"]
    assert (app.state, list(app.replacing)) == ("Accepted", ["a"])
    responses = core.fire("app", "placeholder")
    assert app.state == state
    (ask,) = section(responses, "released_asks")
    assert (ask.allocation_key, ask.termination_type) == ("real", TerminationType.TIMEOUT)
    core.check()
