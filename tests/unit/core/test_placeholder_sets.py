"""Real pods that are larger than the placeholders of their group."""

import pytest

from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from tests.builders import Core, config_of, section
from tests.table import each_row
from tests.unit.core.test_replacement import (
    LONELY,
    LONELY_TAGS,
    add_node,
    change,
    data,
    failed,
    placed,
)

TIMEOUT = TerminationType.TIMEOUT
TWO = {"vcore": 2, "memory": 2}
NO_MATCH = "are not matching placeholder"


def full_core(members=5, resource=None, capacity=None, config=""):
    """A gang that fills its node."""
    core = Core(config)
    resource = resource or TWO
    add_node(core, "n1", capacity or {name: members * value for name, value in resource.items()})
    core.gang("app", members, resource)
    app = core.partition.applications["app"]
    assert (app.state, len(app.allocations)) == ("Running", members)
    return core


def real(core, key, resource, **more):
    """Ask for a real pod; return the releases that this leads to."""
    responses = core.asks("app", [key], resource, task_group_name="tg", **more)
    releases = section(responses, "released_allocations")
    assert all(r.termination_type is TIMEOUT for r in releases)
    assert all(r.message == "cancel placeholder: resource incompatible" for r in releases)
    return releases


def events(core, text=NO_MATCH):
    return [
        event
        for answer in core.answers
        for event in getattr(answer.message, "events", ())
        if text in event.message
    ]


def confirm(core, releases):
    responses = core.update(releases=tuple(releases))
    core.check()
    return responses


# --- how many, and where --------------------------------------------------------------------------


def test_5_five_placeholders_of_a_full_node_make_way_for_one_pod_of_its_size():
    core = full_core()
    releases = real(core, "big", {"vcore": 10, "memory": 10})
    assert [r.allocation_key for r in releases] == [f"app-ph-{at}" for at in range(5)]
    assert data(core) == {"tg": (5, 0, 0)}
    core.check()
    for number, release in enumerate(releases[:-1], start=1):
        assert placed(confirm(core, [release])) == []
        assert data(core) == {"tg": (5, number, 0)}
    assert placed(confirm(core, releases[-1:])) == [("big", "n1")]
    assert data(core) == {"tg": (5, 5, 0)}
    app = core.partition.applications["app"]
    assert app.allocated == {"vcore": 10, "memory": 10}
    assert app.placeholder_used == {}


@each_row(
    "nodes",
    [
        {"n1": 8},
        {"n1": 9},
        {"n1": 100},
        {"n1": 4, "n2": 4},
        {"n1": 4, "n2": 4, "n3": 50},
        {"n1": 3, "n2": 3, "n3": 3, "n4": 3},
        {"n1": 2, "n2": 2, "n3": 2, "n4": 2, "n5": 3},
    ],
)
def test_5_of_four_placeholders_of_two_a_pod_of_three_takes_two(nodes):
    core = Core()
    for name in list(nodes)[:4]:
        add_node(core, name, {"vcore": nodes[name], "pods": 9})
    core.gang("app", 4, {"vcore": 2})
    for name in list(nodes)[4:]:
        add_node(core, name, {"vcore": nodes[name], "pods": 9})
    releases = real(core, "big", {"vcore": 3})
    assert len(releases) == 2
    core.check()
    responses = confirm(core, releases)
    assert [key for key, _ in placed(responses)] == ["big"]
    assert data(core) == {"tg": (4, 2, 0)}
    assert len(core.partition.applications["app"].task_groups["tg"].held) == 2


def test_5_they_are_all_on_one_node_where_that_can_be():
    core = Core()
    add_node(core, "n1", {"vcore": 2})
    add_node(core, "n2", {"vcore": 6})
    core.gang("app", 4, {"vcore": 2})
    app = core.partition.applications["app"]
    on_n2 = {key for key, held in app.allocations.items() if held.node_id == "n2"}
    assert len(on_n2) == 3
    releases = real(core, "big", {"vcore": 4})
    assert len(releases) == 2
    assert {r.allocation_key for r in releases} < on_n2
    assert placed(confirm(core, releases)) == [("big", "n2")]


def test_5_as_many_as_cover_it_in_every_type():
    core = full_core(4, {"vcore": 2, "memory": 9})
    releases = real(core, "big", {"vcore": 1, "memory": 20})
    assert len(releases) == 3
    assert placed(confirm(core, releases)) == [("big", "n1")]


def test_5_what_no_placeholder_has_must_be_free_beside_them():
    core = full_core(4, {"vcore": 2}, {"vcore": 8, "gpu": 1})
    assert len(real(core, "one", {"vcore": 3, "gpu": 1})) == 2
    assert real(core, "two", {"vcore": 3, "gpu": 1}) == []
    assert failed(core.asks("app", ["x"], {"vcore": 3, "gpu": 1}, task_group_name="tg")) == ["x"]
    core.check()


def test_5_placeholders_of_several_sizes_the_fewest_go():
    core = Core()
    add_node(core, "n1", {"vcore": 9})
    core.application("app", placeholder_ask={"vcore": 9})
    for key, size in (("a", 1), ("b", 1), ("c", 3), ("d", 4)):
        core.asks("app", [key], {"vcore": size}, placeholder=True, task_group_name="tg")
    assert [r.allocation_key for r in real(core, "big", {"vcore": 7})] == ["d", "c"]
    core.check()


def test_5_a_placeholder_that_is_large_enough_is_replaced_and_the_others_stay():
    core = Core()
    add_node(core, "n1", {"vcore": 9})
    core.application("app", placeholder_ask={"vcore": 7})
    for key, size in (("a", 2), ("b", 2), ("c", 3)):
        core.asks("app", [key], {"vcore": size}, placeholder=True, task_group_name="tg")
    responses = core.asks("app", ["big"], {"vcore": 3}, task_group_name="tg")
    (release,) = section(responses, "released_allocations")
    assert release.allocation_key == "c"
    assert release.termination_type is TerminationType.PLACEHOLDER_REPLACED


def test_5_a_placeholder_too_small_goes_though_its_node_has_the_room_beside_it():
    core = full_core(1, {"vcore": 1}, {"vcore": 9})
    releases = real(core, "big", {"vcore": 2})
    assert len(releases) == 1
    assert placed(confirm(core, releases)) == [("big", "n1")]
    assert data(core) == {"tg": (1, 1, 0)}


def test_5_several_large_pods_take_their_placeholders_each():
    core = full_core(5, {"vcore": 2})
    responses = core.asks("app", ["a", "b", "c"], {"vcore": 3}, task_group_name="tg")
    releases = section(responses, "released_allocations")
    assert len(releases) == 4  # the third finds one, and that does not cover it
    core.check()
    assert placed(confirm(core, reversed(releases))) == [("b", "n1"), ("a", "n1")]
    assert sorted(core.partition.applications["app"].group_of) == ["c"]


def test_5_the_rest_of_the_gang_goes_on_meanwhile():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    responses = core.asks("app", ["r1", "r2"], {"vcore": 2}, task_group_name="tg")
    swaps = section(responses, "released_allocations")
    assert {r.termination_type for r in swaps} == {TerminationType.PLACEHOLDER_REPLACED}
    assert [key for key, _ in placed(confirm(core, swaps))] == ["r1", "r2"]
    assert placed(confirm(core, releases)) == [("big", "n1")]
    assert data(core) == {"tg": (4, 2, 2)}


# --- its room is kept -----------------------------------------------------------------------------


def greedy(core, size=1, count=9, **more):
    core.application("greedy", **more)
    return core.asks("greedy", [f"g{at}" for at in range(count)], {"vcore": size}, priority=9)


def test_5_nobody_else_takes_the_room_on_the_node():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    assert placed(greedy(core)) == []
    assert placed(confirm(core, releases[:1])) == [("g0", "n1")]  # what is over is everybody's
    assert placed(confirm(core, releases[1:])) == [("big", "n1")]


def test_5_nobody_else_takes_the_free_room_that_it_needs():
    core = full_core(1, {"vcore": 2}, {"vcore": 4})
    releases = real(core, "big", {"vcore": 3})
    assert placed(greedy(core)) == [("g0", "n1")]
    assert placed(confirm(core, releases)) == [("big", "n1")]


def test_5_nobody_else_takes_the_room_in_the_queue():
    config = config_of("{name: default, resources: {max: {vcore: 8m}}}")
    core = Core(config)
    for name in ("n1", "n2", "n3", "n4"):
        add_node(core, name, {"vcore": 10})
    core.gang("app", 4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 4})
    assert len(releases) == 2
    assert placed(greedy(core)) == []
    assert placed(confirm(core, releases[:1])) == []
    assert [key for key, _ in placed(confirm(core, releases[1:]))] == ["big"]


@pytest.mark.parametrize("who", ["users: [alice]", "groups: [dev]"])
def test_5_nobody_else_takes_the_room_under_a_limit(who):
    core = Core(config_of("{name: default, limits: [{%s, maxresources: {vcore: 8m}}]}" % who))
    for name in ("n1", "n2", "n3", "n4"):
        add_node(core, name, {"vcore": 10})
    alice = UserGroupInformation("alice", ("dev",))
    core.gang("app", 4, {"vcore": 2}, ugi=alice)
    releases = real(core, "big", {"vcore": 4})
    assert placed(greedy(core, ugi=alice)) == []
    assert placed(confirm(core, releases[:1])) == []
    assert [key for key, _ in placed(confirm(core, releases[1:]))] == ["big"]


def test_5_a_limit_that_a_reload_brings_counts_what_is_kept():
    core = Core(config_of("{name: default}"))
    for name in ("n1", "n2"):
        add_node(core, name, {"vcore": 10})
    alice = UserGroupInformation("alice", ("dev",))
    core.gang("app", 2, {"vcore": 2}, ugi=alice)
    releases = real(core, "big", {"vcore": 4})
    confirm(core, releases[:1])
    limit = "{name: default, limits: [{groups: [dev], maxresources: {vcore: 4m}}]}"
    core.send(UpdateConfiguration(config_of(limit)))
    core.check()
    assert placed(greedy(core, ugi=alice)) == []
    assert [key for key, _ in placed(confirm(core, releases[1:]))] == ["big"]


@pytest.mark.parametrize("policy", ["yunikorn", "kai"])
def test_5_preemption_does_not_count_on_the_room(policy):
    config = config_of(
        "{name: default}",
        "{name: owed, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 6m}}}",
    )
    core = Core(config, settings=(("policy", policy),))
    add_node(core, "n1", {"vcore": 8})
    core.gang("app", 4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 4})
    core.application("needy", "root.owed")
    core.asks("needy", ["n"], {"vcore": 4})
    core.now_ns += 10**10
    victims = section(core.fire_own("preemption"), "released_allocations")
    assert {v.allocation_key for v in victims} == {"app-ph-2", "app-ph-3"}
    assert placed(confirm(core, releases)) == [("big", "n1")]
    assert placed(confirm(core, victims)) == [("n", "n1")]


@pytest.mark.parametrize("policy", ["yunikorn", "kai"])
def test_5_what_a_placeholder_leaves_beside_its_real_pod_is_expected(policy):
    config = config_of(
        "{name: default}",
        "{name: owed, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 6m}}}",
    )
    core = Core(config, settings=(("policy", policy),))
    add_node(core, "n1", {"vcore": 8})
    core.gang("app", 2, {"vcore": 4})
    responses = core.asks("app", ["small"], {"vcore": 1}, task_group_name="tg")
    swap = section(responses, "released_allocations")
    core.application("needy", "root.owed")
    core.asks("needy", ["n"], {"vcore": 3})
    core.now_ns += 10**10
    assert section(core.fire_own("preemption"), "released_allocations") == []
    assert sorted(placed(confirm(core, swap))) == [("n", "n1"), ("small", "n1")]


def test_5_nor_does_a_pod_that_must_have_the_node():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 4})
    add_node(core, "n2", {"vcore": 8})
    core.application("daemon")
    responses = core.asks(
        "daemon", ["d"], {"vcore": 2}, constraints=Constraints(required_node="n1")
    )
    (victim,) = section(responses, "released_allocations")
    assert victim.allocation_key not in {r.allocation_key for r in releases}
    assert placed(confirm(core, releases)) == [("big", "n1")]
    assert placed(confirm(core, [victim])) == [("d", "n1")]


# --- what people are told -------------------------------------------------------------------------


def test_5_it_is_told_once_to_the_pod_and_on_the_application():
    core = full_core(4, TWO)
    text = (
        "Task group 'tg' in application 'app': allocation resources 'map[memory:3 vcore:3]' are "
        "not matching placeholder 'map[memory:2 vcore:2]' allocation with ID 'app-ph-0'"
    )
    responses = core.asks("app", ["big"], {"vcore": 3, "memory": 3}, task_group_name="tg")
    (event,) = events(core)
    assert (event.type, event.object_id, event.reference_id) == (1, "big", "app")
    assert event.message == text
    (state,) = section(responses, "scheduling_states")
    assert (state.allocation_key, state.state, state.reason) == ("big", "SKIPPED", text)
    assert core.partition.applications["app"].message == text
    confirm(core, section(responses, "released_allocations"))
    add_node(core, "n2")
    assert len(events(core)) == 1


def test_5_a_pod_that_no_node_can_hold_leaves_the_gang_as_it_is():
    core = full_core(4, {"vcore": 2})
    responses = core.asks("app", ["huge"], {"vcore": 9}, task_group_name="tg")
    assert section(responses, "released_allocations") == []
    assert failed(responses) == ["huge"]
    assert len(events(core)) == 1
    app = core.partition.applications["app"]
    assert NO_MATCH in app.message
    assert len(app.task_groups["tg"].held) == 4
    core.check()
    responses = add_node(core, "n2", {"vcore": 9})
    releases = section(responses, "released_allocations")
    assert len(releases) == 4
    assert (len(events(core)), failed(responses)) == (1, [])
    assert placed(confirm(core, releases)) == [("huge", "n2")]


def test_5_nor_does_one_that_its_queue_cannot_hold():
    core = Core(config_of("{name: default, resources: {max: {vcore: 8m}}}"))
    add_node(core, "n1", {"vcore": 100})
    core.gang("app", 4, {"vcore": 2})
    responses = core.asks("app", ["huge"], {"vcore": 9}, task_group_name="tg")
    assert section(responses, "released_allocations") == []
    assert failed(responses) == []  # more nodes would not help
    assert len(events(core)) == 1
    (group,) = core.partition.applications["app"].groups.values()
    assert group.unplaced.reason == "QUEUE_QUOTA"
    core.check()
    responses = core.send(
        UpdateConfiguration(config_of("{name: default, resources: {max: {vcore: 9m}}}"))
    )
    releases = section(responses, "released_allocations")
    assert len(releases) == 4
    assert placed(confirm(core, releases)) == [("huge", "n1")]


def test_5_the_placeholder_timeout_ends_the_wait_for_a_node():
    core = full_core(4, {"vcore": 2})
    core.asks("app", ["huge"], {"vcore": 9}, task_group_name="tg")
    releases = section(core.fire("app", "placeholder"), "released_allocations")
    assert len(releases) == 4
    confirm(core, releases)
    assert data(core) == {"tg": (4, 4, 0)}
    assert placed(add_node(core, "n2", {"vcore": 9})) == [("huge", "n2")]


# --- what happens in between ----------------------------------------------------------------------


def test_5_a_pod_that_is_deleted_gives_the_room_back():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    greedy(core)
    confirm(core, releases[:1])
    gone = AllocationAskRelease("app", "big", TerminationType.STOPPED_BY_RM)
    assert placed(core.update(ask_releases=(gone,))) == [("g1", "n1")]
    core.check()
    assert placed(confirm(core, releases[1:])) == [("g2", "n1"), ("g3", "n1")]
    assert data(core) == {"tg": (4, 2, 0)}


def test_5_the_next_large_pod_takes_what_goes_already():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    gone = AllocationAskRelease("app", "big", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    assert real(core, "next", {"vcore": 4}) == []
    greedy(core)
    assert placed(confirm(core, releases)) == [("next", "n1")]


def test_5_a_pod_that_changes_keeps_what_goes_for_it():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    assert real(core, "big", {"vcore": 3}, priority=5) == []
    greedy(core)
    assert placed(confirm(core, releases))[0] == ("big", "n1")


def test_5_an_application_that_is_removed_keeps_nothing():
    core = full_core(4, {"vcore": 2})
    real(core, "big", {"vcore": 3})
    responses = core.update(remove_applications=(RemoveApplicationRequest("app"),))
    assert len(section(responses, "released_allocations")) == 4
    core.check()
    assert len(placed(greedy(core))) == 8


@pytest.mark.parametrize("how", ["drain", "shrink"])
def test_5_a_node_that_takes_it_no_more_is_passed_over_for_another(how):
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    if how == "drain":
        change(core, "n1", NodeAction.DRAIN_NODE)
    else:
        change(core, "n1", schedulable_resource={"vcore": 6})
    add_node(core, "n2", {"vcore": 4})
    assert placed(confirm(core, releases)) == [("big", "n2")]


def test_5_with_no_other_node_it_is_unschedulable_and_nothing_is_kept():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    change(core, "n1", NodeAction.DRAIN_NODE)
    responses = confirm(core, releases)
    assert (placed(responses), failed(responses)) == ([], ["big"])
    assert section(responses, "released_allocations") == []  # there is nothing to be had for it
    assert core.partition.root.reserved == {}
    responses = add_node(core, "n2", {"vcore": 4})
    assert placed(confirm(core, section(responses, "released_allocations"))) == [("big", "n2")]


def test_5_the_node_is_removed():
    core = full_core(4, {"vcore": 2})
    real(core, "big", {"vcore": 3})
    add_node(core, "n2", {"vcore": 4})
    assert placed(change(core, "n1", NodeAction.DECOMISSION)) == [("big", "n2")]
    core.check()
    assert core.partition.root.reserved == {}


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_5_a_restarted_core_releases_no_more_of_them(gone):
    """Some have gone, the others are on their way; the shim says which."""
    core = Core()
    core.send(SyncBegin(""), epoch=2)
    core.epoch = 2
    core.update(
        nodes=(NodeInfo("n1", NodeAction.CREATE, {"vcore": 8}),),
        new_applications=(
            AddApplicationRequest("app", placeholder_ask={"vcore": 8}, state="Running"),
        ),
    )
    core.update(
        allocations=tuple(
            Allocation(
                f"ph{at}",
                "app",
                "n1",
                {"vcore": 2},
                placeholder=True,
                task_group_name="tg",
                released=at < 2,
            )
            for at in range(gone, 4)
        )
    )
    core.asks("app", ["big"], {"vcore": 3}, task_group_name="tg")
    responses = core.send(SyncEnd(1, 4 - gone, 1))
    core.check()
    releases = section(responses, "released_allocations")
    going = tuple(AllocationRelease("app", f"ph{at}", TIMEOUT) for at in range(gone, 2))
    assert len(releases) == gone
    assert placed(confirm(core, (*going, *releases))) == [("big", "n1")]


def test_5_labels_that_begin_to_count_change_nothing():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    core.application("other")
    core.asks("other", ["o"], {"vcore": 50}, constraints=LONELY, allocation_tags=LONELY_TAGS)
    core.check()
    assert placed(confirm(core, releases)) == [("big", "n1")]


def test_5_a_placeholder_that_is_resized_or_deleted_is_heeded():
    core = full_core(4, {"vcore": 2})
    releases = real(core, "big", {"vcore": 3})
    first, second = releases
    small = Allocation(
        first.allocation_key,
        "app",
        "n1",
        {"vcore": 1},
        placeholder=True,
        task_group_name="tg",
        released=True,
    )
    core.update(allocations=(small,))
    core.check()
    assert placed(greedy(core)) == [("g0", "n1")]
    stopped = AllocationRelease("app", second.allocation_key, TerminationType.STOPPED_BY_RM)
    assert placed(confirm(core, [stopped])) == []
    assert placed(confirm(core, [first])) == [("big", "n1")]


def test_5_a_node_that_is_reserved_gives_its_placeholders_room_alone():
    core = full_core(4, {"vcore": 2}, {"vcore": 9})
    add_node(core, "n2", {"vcore": 8})
    core.application("old")
    core.asks("old", ["o"], {"vcore": 9})
    core.now_ns += 3 * 10**9
    core.fire_own("reservation")
    assert list(core.partition.nodes.nodes["n1"].reservations) == ["o"]
    assert len(real(core, "big", {"vcore": 9})) == 0
    releases = real(core, "fits", {"vcore": 8})
    assert len(releases) == 4
    assert placed(confirm(core, releases)) == [("fits", "n1")]


def test_5_constraints_are_heeded():
    core = Core()
    add_node(core, "n1", {"vcore": 4}, zone="a")
    add_node(core, "n2", {"vcore": 4}, zone="b")
    core.gang("app", 4, {"vcore": 2})
    app = core.partition.applications["app"]
    releases = real(core, "big", {"vcore": 3}, constraints=Constraints((("zone", "b"),)))
    assert {app.allocations[r.allocation_key].node_id for r in releases} == {"n2"}
    assert placed(confirm(core, releases)) == [("big", "n2")]
