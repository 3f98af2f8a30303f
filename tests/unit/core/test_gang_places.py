"""Gangs that start when every member has a place on the nodes: ``gangAdmission: cluster``."""

import pytest

from services.core.scheduler.actions import gang as gang_module
from services.core.scheduler.actions import gang_places
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.statement.tentative import Tentative
from shared.messages.constraints import Constraints, PodTerm, Requirement, SpreadConstraint, Taint
from shared.messages.conversions import allocation_of
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    SchedulingState,
    TerminationType,
    UpdateResponse,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from shared.model.resources import add, multiply
from shared.model.sentences import text_of
from shared.model.states import ApplicationState
from shared.model.units import seconds
from tests.builders import Core, config_of, section
from tests.property.gangs import everything

CLUSTER = (("gangAdmission", "cluster"),)
STOPPED = TerminationType.STOPPED_BY_RM
FIVE = {"vcore": 5}


def cluster(*nodes, config="", settings=()):
    core = Core(config, settings=CLUSTER + settings)
    for at, capacity in enumerate(nodes):
        core.node(f"n{at}", **capacity)
    return core


def gang(core, name, *groups, queue="root.default", **more):
    """Announce a gang of several groups: (name, members, resource, Constraints, tags)."""
    wanted = {}
    asks = []
    for group, members, resource, *rest in groups:
        wanted = add(wanted, multiply(resource, members))
        constraints = rest[0] if rest else Constraints()
        tags = rest[1] if len(rest) > 1 else {}
        asks += [
            AllocationAsk(
                f"{name}-{group}-{at}", name, resource, placeholder=True, task_group_name=group,
                constraints=constraints, allocation_tags=tags,
            )
            for at in range(members)
        ]  # fmt: skip
    request = AddApplicationRequest(name, queue, placeholder_ask=wanted, **more)
    return core.update(new_applications=(request,), asks=tuple(asks))


def app_of(core, name="gang"):
    return core.partition.applications[name]


def held(core, name="gang"):
    return len(app_of(core, name).allocations)


def test_the_setting_is_read():
    assert settings_from(CLUSTER).gang_admission == "cluster"


def test_five_members_of_five_on_four_nodes_of_eight_hold_nothing_and_are_unschedulable():
    core = cluster(*[{"vcore": 8}] * 4)
    told = core.gang("gang", 5, FIVE)
    assert section(told, "new_allocations") == []
    states = section(told, "scheduling_states")
    assert [(s.allocation_key, s.state) for s in states] == [
        (f"gang-ph-{at}", SchedulingState.FAILED) for at in range(5)
    ]
    refusal = app_of(core).refusal
    assert refusal.reason == "GANG_PLACES"
    assert text_of(refusal) == (
        "there is room for at most 4 of its 5 members, on 4 of the 4 nodes; another needs 0.005 "
        "vcore, and the nearest node, n0, lacks 0.002 vcore"
    )
    core.check()
    told = core.node("n4", vcore=8)
    (response,) = [item for item in told if item.new_allocations]
    assert len(response.new_allocations) == 5
    assert app_of(core).state is ApplicationState.RUNNING
    core.check()


def test_all_places_are_told_in_one_message_however_many_there_are(monkeypatch):
    monkeypatch.setattr("services.core.scheduler.actions.cycle.MAX_DECISIONS", 3)
    core = cluster({"vcore": 50})
    told = core.gang("gang", 20, {"vcore": 1})
    (response,) = [item for item in told if item.new_allocations]
    assert len(response.new_allocations) == 20
    assert isinstance(response, UpdateResponse)


def test_a_gang_that_lacks_a_type_holds_nothing_and_others_go_on():
    core = cluster(*[{"vcore": 8}] * 3, {"vcore": 8, "gpu": 3})
    gang(core, "gang", ("cpu", 4, {"vcore": 1}), ("gpu", 4, {"vcore": 1, "gpu": 1}))
    assert held(core) == 0
    assert "at most 7 of its 8 members" in text_of(app_of(core).refusal)
    assert "lacks 1 gpu" in text_of(app_of(core).refusal)
    core.application("plain")
    core.asks("plain", ["p"], {"vcore": 8})
    assert held(core, "plain") == 1
    core.node("gpu", vcore=9, gpu=1)
    assert held(core) == 8
    core.check()


def test_of_two_gangs_that_arrive_together_neither_holds_a_part():
    core = cluster({"vcore": 4}, {"vcore": 2})
    asks = tuple(
        AllocationAsk(f"{name}{at}", name, {"vcore": 1}, placeholder=True, task_group_name="tg")
        for at in range(4)
        for name in ("a", "b")
    )
    core.update(
        new_applications=tuple(
            AddApplicationRequest(name, "root.default", placeholder_ask={"vcore": 4})
            for name in ("a", "b")
        ),
        asks=asks,
    )
    assert (held(core, "a"), held(core, "b")) == (4, 0)
    for key in list(app_of(core, "a").allocations):
        core.check()
        assert held(core, "b") == 0
        core.update(releases=(AllocationRelease("a", key, STOPPED),))
        if held(core, "b"):
            break
    assert (held(core, "a"), held(core, "b")) == (2, 4)
    core.check()


def test_a_part_that_was_asked_for_waits_for_the_rest():
    core = cluster({"vcore": 9})
    core.application("gang", placeholder_ask={"vcore": 4})
    more = {"placeholder": True, "task_group_name": "tg"}
    assert section(core.asks("gang", ["a", "b"], {"vcore": 1}, **more), "scheduling_states") == []
    assert held(core) == 0
    assert app_of(core).refusal.reason == "GANG_PLACEHOLDERS_PENDING"
    core.check()
    core.asks("gang", ["c", "d"], {"vcore": 1}, **more)
    assert held(core) == 4
    core.check()


def test_an_ask_that_is_withdrawn_or_changed_lets_the_gang_be_tried_again():
    core = cluster({"vcore": 3})
    core.application("gang", placeholder_ask={"vcore": 3})
    more = {"placeholder": True, "task_group_name": "tg"}
    core.asks("gang", ["a", "b", "c", "d"], {"vcore": 1}, **more)
    assert held(core) == 0
    core.update(ask_releases=(AllocationAskRelease("gang", "d", STOPPED),))
    assert held(core) == 3
    core.check()


@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_the_group_with_the_fewest_places_is_placed_first(policy):
    core = cluster(
        {"vcore": 8},
        {"vcore": 8},
        config="partitions: [{name: default, nodesortpolicy: {type: %s}, queues: "
        "[{name: root, submitacl: '*', queues: [{name: default}]}]}]" % policy,
    )
    gang(core, "gang", ("small", 2, {"vcore": 4}), ("large", 1, {"vcore": 8}))
    assert held(core) == 3
    core.check()


def labelled(core, name, labels, taints=(), **capacity):
    info = NodeInfo(name, NodeAction.CREATE, capacity, labels=labels, taints=taints)
    return core.update(nodes=(info,))


def test_selectors_and_taints_of_members_are_respected():
    core = cluster()
    labelled(core, "a", {"disk": "ssd"}, vcore=2)
    labelled(core, "b", {"disk": "ssd"}, (Taint("only", "x", "NoSchedule"),), vcore=9)
    labelled(core, "c", {}, vcore=9)
    gang(core, "gang", ("tg", 3, {"vcore": 1}, Constraints(node_selector=(("disk", "ssd"),))))
    assert held(core) == 0
    assert "at most 2 of its 3 members, on 1 of the 3 nodes" in text_of(app_of(core).refusal)
    info = NodeInfo("c", NodeAction.UPDATE, {}, labels={"disk": "ssd"})
    core.update(nodes=(info,))
    assert held(core) == 3
    core.check()


APART = Constraints(
    pod_anti_affinity=(PodTerm("host", (Requirement("job", "In", ("g",)),)),), namespace="ns"
)
HOST = {"kubernetes.io/hostname": "small"}
TAGS = {"kubernetes.io/label/job": "g", "kubernetes.io/meta/namespace": "ns"}


def test_members_that_stay_apart_count_one_another_while_they_are_tried():
    core = cluster()
    for name in "ab":
        labelled(core, name, {"host": name}, vcore=9)
    gang(core, "gang", ("tg", 3, {"vcore": 1}, APART, TAGS))
    assert held(core) == 0
    message = text_of(app_of(core).refusal)
    assert "room for 2 of its 3 members, on 2 of the 2 nodes" in message
    assert "2 node(s) didn't match pod anti-affinity rules" in message
    core.check()
    labelled(core, "c", {"host": "c"}, vcore=9)
    assert sorted(a.node_id for a in app_of(core).allocations.values()) == ["a", "b", "c"]
    core.check()


def test_members_that_must_be_beside_others_are_placed_after_them():
    core = cluster()
    for name in "ab":
        labelled(core, name, {"host": name}, vcore=4)
    beside = Constraints(
        pod_affinity=(PodTerm("host", (Requirement("job", "In", ("g",)),)),), namespace="ns"
    )
    leader = Constraints(node_selector=(("host", "b"),), namespace="ns")
    other = {"kubernetes.io/meta/namespace": "ns"}
    gang(core, "gang", ("w", 2, {"vcore": 2}, beside, other), ("z", 1, {"vcore": 1}, leader, TAGS))
    assert held(core) == 0  # there is room for one worker only beside the leader
    core.update(nodes=(NodeInfo("b", NodeAction.UPDATE, {"vcore": 5}),))
    assert [a.node_id for a in app_of(core).allocations.values()] == ["b"] * 3
    core.check()


@pytest.mark.parametrize("wish", ["beside", "apart"])
def test_a_gang_is_woken_by_a_pod_that_comes_or_goes_where_no_member_has_room(wish):
    core = cluster()
    labelled(core, "large", {"zone": "a"}, vcore=4)
    labelled(core, "small", {"zone": "a"}, vcore=1)
    core.application("other")
    only = Constraints(node_selector=(("kubernetes.io/hostname", "small"),), namespace="ns")
    core.update(nodes=(NodeInfo("small", NodeAction.UPDATE, labels={**HOST, "zone": "a"}),))
    term = (PodTerm("zone", (Requirement("job", "In", ("g",)),)),)
    wishes = {
        "beside": Constraints(pod_affinity=term, namespace="ns"),
        "apart": Constraints(pod_anti_affinity=term, namespace="ns"),
    }
    if wish == "apart":
        core.asks("other", ["o"], {"vcore": 1}, constraints=only, allocation_tags=TAGS)
    gang(core, "gang", ("tg", 2, {"vcore": 2}, wishes[wish]))
    assert (held(core), held(core, "other")) == (0, int(wish == "apart"))
    if wish == "apart":
        core.update(releases=(AllocationRelease("other", "o", STOPPED),))
    else:
        core.asks("other", ["o"], {"vcore": 1}, constraints=only, allocation_tags=TAGS)
    assert held(core) == 2
    core.check()


def test_spread_members_are_tried_with_one_another():
    core = cluster()
    for name, vcore in (("a", 9), ("b", 1)):
        labelled(core, name, {"zone": name}, vcore=vcore)
    even = Constraints(
        spread=(SpreadConstraint("zone", selector=(Requirement("job", "In", ("g",)),)),),
        namespace="ns",
    )
    gang(core, "gang", ("tg", 4, {"vcore": 1}, even, TAGS))
    assert held(core) == 0
    core.update(nodes=(NodeInfo("b", NodeAction.UPDATE, {"vcore": 2}),))
    nodes = sorted(a.node_id for a in app_of(core).allocations.values())
    assert nodes == ["a", "a", "b", "b"]
    core.check()


def test_a_member_that_requires_its_node_waits_with_the_others():
    core = cluster({"vcore": 2}, {"vcore": 9})
    core.application("plain")
    core.asks("plain", ["p"], {"vcore": 2}, constraints=Constraints(required_node="n0"))
    groups = (("d", 1, {"vcore": 1}, Constraints(required_node="n0")), ("w", 2, {"vcore": 1}))
    gang(core, "gang", *groups)
    assert held(core) == 0
    core.update(releases=(AllocationRelease("plain", "p", STOPPED),))
    assert held(core) == 3
    assert app_of(core).allocations["gang-d-0"].node_id == "n0"
    core.check()


def test_reserved_nodes_are_not_taken():
    core = cluster({"vcore": 4}, {"vcore": 4})
    for name in ("n0", "n1"):
        core.application(f"on-{name}")
        core.asks(f"on-{name}", [name], {"vcore": 1}, constraints=Constraints(required_node=name))
    core.application("large")
    core.asks("large", ["l"], {"vcore": 4})
    core.fire_own("reservation")
    reserved = [n for n in core.partition.nodes.nodes.values() if n.reservations]
    assert len(reserved) == 1
    core.gang("gang", 4, {"vcore": 1})
    assert held(core) == 0
    assert "at most 3 of its 4" in text_of(app_of(core).refusal)
    core.update(ask_releases=(AllocationAskRelease("large", "l", STOPPED),))
    assert held(core) == 4
    core.check()


# --- no trace -------------------------------------------------------------------------------------


def test_a_trial_that_fails_leaves_no_trace():
    core = cluster()
    for name in "ab":
        labelled(core, name, {"host": name}, vcore=9, memory=9)
    away = Constraints(
        pod_anti_affinity=(PodTerm("host", (Requirement("job", "In", ("x",)),)),), namespace="ns"
    )
    core.application("other")
    core.asks("other", ["o1", "o2"], {"vcore": 1, "memory": 1}, constraints=away)
    gang(core, "gang", ("free", 4, {"vcore": 1}), ("apart", 3, {"memory": 1}, APART, TAGS))
    assert held(core) == 0
    before = everything(core)
    found = gang_places.find(Tentative(core.partition.nodes), app_of(core))
    assert isinstance(found, gang_places.NoPlaces)
    assert "6 of its 7 members" in text_of(found.refusal)
    assert everything(core) == before
    core.partition.nodes.pods_changed = True
    gang_places.find(Tentative(core.partition.nodes), app_of(core))
    assert core.partition.nodes.pods_changed


# --- waiting at no cost ---------------------------------------------------------------------------


def test_a_gang_is_not_tried_before_the_sum_of_its_places_reaches_its_size(monkeypatch):
    core = cluster({"vcore": 9})
    core.application("plain")
    core.asks("plain", [f"p{at}" for at in range(9)], {"vcore": 1})
    looked = []
    place_whole = gang_module._place_whole

    def look(*args):
        looked.append(args)
        return place_whole(*args)

    monkeypatch.setattr(gang_module, "_place_whole", look)
    core.gang("gang", 4, {"vcore": 1})
    assert len(looked) == 1
    core.node("far", gpu=4)
    for at in range(3):
        core.update(releases=(AllocationRelease("plain", f"p{at}", STOPPED),))
    assert len(looked) == 1
    core.update(releases=(AllocationRelease("plain", "p3", STOPPED),))
    assert len(looked) == 2
    assert held(core) == 4


def test_of_the_gangs_that_room_was_freed_for_only_those_are_tried_that_it_is_left_for(monkeypatch):
    core = cluster(*[{"vcore": 8, "memory": 999}] * 4)
    core.application("plain")
    core.asks("plain", [f"p{at}" for at in range(4)], {"vcore": 8})
    for at in range(20):  # no two alike
        core.gang(f"gang-{at}", 2, {"vcore": 8, "memory": at + 1})
    tried = []
    place_whole = gang_module._place_whole

    def note(partition, application):
        tried.append(application.id)
        return place_whole(partition, application)

    monkeypatch.setattr(gang_module, "_place_whole", note)
    ended = tuple(AllocationRelease("plain", f"p{at}", STOPPED) for at in range(4))
    core.update(releases=ended)
    assert tried == ["gang-0", "gang-1"]
    assert [held(core, f"gang-{at}") for at in range(3)] == [2, 2, 0]
    core.check()


@pytest.mark.parametrize("policy", ["fifo", "fair"])
def test_one_that_is_unlike_the_gangs_around_it_keeps_its_place_among_them(policy):
    properties = f"properties: {{application.sort.policy: {policy}}}"
    config = config_of(f"{{name: default, {properties}}}")
    core = cluster(*[{"vcore": 8}] * 4, config=config, settings=(("fairLeafGangs", "enabled"),))
    core.application("plain")
    core.asks("plain", [f"p{at}" for at in range(4)], {"vcore": 8})
    for name, vcore in (("first", 8), ("unlike", 7), ("like-the-first", 8)):
        core.gang(name, 2, {"vcore": vcore})
    core.update(releases=tuple(AllocationRelease("plain", f"p{at}", STOPPED) for at in range(4)))
    assert [held(core, name) for name in ("first", "unlike", "like-the-first")] == [2, 2, 0]
    core.check()


@pytest.mark.parametrize("how", ["undrained", "larger", "untainted"])
def test_a_node_that_improves_wakes_a_gang(how):
    core = cluster({"vcore": 1})
    if how == "undrained":
        core.update(nodes=(NodeInfo("x", NodeAction.CREATE_DRAIN, {"vcore": 4}),))
        news = NodeInfo("x", NodeAction.DRAIN_TO_SCHEDULABLE)
    elif how == "larger":
        labelled(core, "x", {}, vcore=1)
        news = NodeInfo("x", NodeAction.UPDATE, {"vcore": 4})
    else:
        labelled(core, "x", {"a": "b"}, (Taint("only", "x", "NoSchedule"),), vcore=4)
        news = NodeInfo("x", NodeAction.UPDATE, {}, labels={"a": "b"})
    core.gang("gang", 4, {"vcore": 1})
    assert held(core) == 0
    core.update(nodes=(news,))
    assert held(core) == 4
    core.check()


# --- the clock ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "ends"), [("Soft", "Accepted"), ("Hard", None)])
def test_a_gang_that_never_had_a_place_times_out(style, ends):
    core = cluster({"vcore": 1})
    start_ns = core.now_ns
    core.gang(
        "gang", 2, {"vcore": 1}, gang_scheduling_style=style,
        placeholder_timeout_milli_seconds=30_000,
    )  # fmt: skip
    assert [due for _, due in app_of(core).timers.values()] == [start_ns + seconds(30)]
    core.now_ns += seconds(10)
    core.node("small", memory=1)
    told = core.fire("gang", "placeholder")
    assert core.now_ns == start_ns + seconds(30)
    assert len(section(told, "released_asks")) == 2
    assert section(told, "released_allocations") == []
    gone = core.partition.applications.get("gang")
    assert (gone and gone.state) == ends
    states = [item.state for item in section(told, "updated_applications")]
    assert ("Failed" in states) == (style == "Hard")
    if gone:
        core.asks("gang", ["real"], {"vcore": 1}, task_group_name="tg")
        assert held(core) == 1
    core.check()


def test_the_time_to_hold_placeholders_begins_when_they_are_held():
    core = cluster({"vcore": 1})
    core.gang("gang", 2, {"vcore": 1}, placeholder_timeout_milli_seconds=30_000)
    core.now_ns += seconds(20)
    core.node("n", vcore=1)
    assert [due for _, due in app_of(core).timers.values()] == [core.now_ns + seconds(30)]


def test_the_clock_runs_on_through_a_restart_where_the_resource_manager_says_when_it_began():
    core = cluster()
    start_ns = core.now_ns
    core.now_ns += seconds(20)
    core.epoch = 2
    core.send(SyncBegin("", CLUSTER))
    core.node("n", vcore=1)
    core.gang(
        "gang", 2, {"vcore": 1}, reservation_start_ns=start_ns,
        placeholder_timeout_milli_seconds=30_000,
    )  # fmt: skip
    core.send(SyncEnd(1, 0, 2))
    assert [due for _, due in app_of(core).timers.values()] == [start_ns + seconds(30)]
    core.check()


def test_placeholders_that_exist_count_as_places_held():
    core = cluster()
    core.epoch = 2
    core.send(SyncBegin("", CLUSTER))
    core.node("n", vcore=2)
    core.application("gang", placeholder_ask={"vcore": 3})
    ask = AllocationAsk("a", "gang", {"vcore": 1}, placeholder=True, task_group_name="tg")
    core.update(allocations=(allocation_of(ask, "n"),))
    core.asks("gang", ["b", "c"], {"vcore": 1}, placeholder=True, task_group_name="tg")
    core.send(SyncEnd(1, 1, 2))
    assert held(core) == 1
    assert app_of(core).refusal.reason == "GANG_PLACES"
    core.check()
    core.node("m", vcore=1)
    assert held(core) == 3
    assert app_of(core).state is ApplicationState.RUNNING
    core.check()


def test_a_member_lost_while_the_gang_runs_is_placed_by_itself():
    core = cluster({"vcore": 2}, {"vcore": 2})
    core.gang("gang", 4, {"vcore": 1})
    core.update(
        releases=(AllocationRelease("gang", "gang-ph-0", TerminationType.SCHEDULING_FAILED_ON_RM),)
    )
    assert held(core) == 4
    core.check()


# --- order, limits, preemption --------------------------------------------------------------------


def test_the_older_gang_is_not_passed_for_longer_than_its_patience():
    core = cluster({"vcore": 4}, settings=(("starvationGuard", "60s"),))
    core.application("plain")
    core.asks("plain", ["p"], {"vcore": 2})
    core.gang("old", 4, {"vcore": 1}, placeholder_timeout_milli_seconds=600_000)
    core.now_ns += seconds(1)
    core.gang("young", 2, {"vcore": 1})
    assert (held(core, "old"), held(core, "young")) == (0, 2)
    for at in range(2):
        core.update(releases=(AllocationRelease("young", f"young-ph-{at}", STOPPED),))
    core.now_ns += seconds(60)
    core.gang("late", 2, {"vcore": 1})
    assert held(core, "late") == 0
    assert app_of(core, "late").refusal.reason == "GANG_PATIENCE"
    core.check()
    core.update(releases=(AllocationRelease("plain", "p", STOPPED),))
    assert (held(core, "old"), held(core, "late")) == (4, 0)
    core.check()


def test_nobody_waits_behind_a_gang_that_the_empty_nodes_could_not_hold():
    core = cluster({"vcore": 4}, settings=(("starvationGuard", "0"),))
    core.gang("old", 5, {"vcore": 1})
    core.gang("young", 2, {"vcore": 1})
    assert (held(core, "old"), held(core, "young")) == (0, 2)
    core.check()


def test_maxima_are_heeded_first_and_then_the_nodes():
    core = cluster({"vcore": 4}, config=config_of("{name: a, resources: {max: {vcore: 4m}}}"))
    core.gang("one", 2, {"vcore": 1}, queue="root.a")
    core.gang("gang", 3, {"vcore": 1}, queue="root.a")
    assert app_of(core).refusal.reason == "GANG_HEADROOM"
    for at in range(2):
        core.update(releases=(AllocationRelease("one", f"one-ph-{at}", STOPPED),))
    assert held(core) == 3
    core.check()


GUARANTEED = (
    "{name: p, resources: {max: {vcore: 8m}}, queues: [{name: a}, {name: b, properties: "
    "{preemption.delay: 1s}, resources: {guaranteed: {vcore: 4m}}}]}"
)


@pytest.mark.parametrize(("may_be_taken", "admitted"), [(True, True), (False, False)])
def test_a_gang_that_is_owed_its_room_preempts_only_if_its_places_can_be_made(
    may_be_taken, admitted
):
    core = cluster({"vcore": 3}, {"vcore": 3}, config=config_of(GUARANTEED))
    core.application("v", "root.p.a")
    required = {} if may_be_taken else {"constraints": Constraints(required_node="n0")}
    core.asks("v", [f"v{at}" for at in range(3)], {"vcore": 1}, **required)
    core.asks("v", ["w"], {"vcore": 1})
    core.gang("gang", 4, {"vcore": 1}, queue="root.p.b")
    assert held(core) == 0
    core.now_ns += seconds(40)
    told = core.fire_own("preemption")
    assert app_of(core).gang_admitted == admitted
    assert bool(section(told, "new_allocations")) == admitted
    core.check()


@pytest.mark.parametrize("keys", [("zone",), ("zone", "region")])
@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_a_gang_that_affinity_keeps_together_starts_in_the_domain_that_has_the_room(policy, keys):
    config = config_of("{name: a}").replace(
        "{name: default,", "{name: default, nodesortpolicy: {type: %s}," % policy
    )
    core = Core(config, settings=(("gangAdmission", "cluster"),))

    def node(name: str, zone: str, vcore: int) -> None:
        labels = {"zone": zone, "region": "r"}
        core.update(nodes=(NodeInfo(name, NodeAction.CREATE, {"vcore": vcore}, labels=labels),))

    node("a1", "a", 4 if policy == "fair" else 2)  # the first in order, of a zone that is too small
    for name in ("b1", "b2", "b3"):
        node(name, "b", 2 if policy == "fair" else 3)
    own = (Requirement("job", "In", ("g",)),)
    terms = tuple(PodTerm(key, own) for key in keys)
    tags = {"kubernetes.io/label/job": "g", "kubernetes.io/meta/namespace": "ns"}
    core.application("g", "root.a", placeholder_ask={"vcore": 5})
    core.asks(
        "g", [f"g{at}" for at in range(5)], {"vcore": 1}, placeholder=True, task_group_name="tg",
        constraints=Constraints(pod_affinity=terms, namespace="ns"), allocation_tags=tags,
    )  # fmt: skip
    core.check()
    held = core.partition.applications["g"].allocations.values()
    assert len(held) == 5
    assert {allocation.node_id[0] for allocation in held} == {"b"}
