"""The head gang: which it is, which nodes are held, who may use them, and what is said of it."""

import pytest

from services.core.scheduler.model.settings import settings_from
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
)
from shared.messages.protocol import TimerKind
from shared.model.names import RUN_SECONDS
from shared.model.sentences import text_of
from shared.model.units import MAX_DURATION_NS, seconds
from tests.builders import START_NS, Core, config_of

WHOLE = {"gpu": 8}
NODE = {"gpu": 8}
LANE = (("gangAdmission", "cluster"), ("reservations", "gang"))
EASY = (*LANE, ("backfill", "enabled"))
SHORTEST = (*LANE, ("backfill", "shortestFirst"))


def tags(run: int) -> dict[str, str]:
    return {RUN_SECONDS: str(run)} if run else {}


def cluster(
    nodes: int = 4,
    settings: tuple = LANE,
    runs: tuple = (100, 200, 300, 400),
    config: str = config_of("{name: a}", "{name: b}"),
) -> Core:
    """Return a cluster full of jobs of one node each, which state how long they run."""
    core = Core(config, settings=settings)
    for at in range(nodes):
        core.node(f"n{at}", **NODE)
    core.application("full", "root.a")
    for at in range(nodes):
        core.asks("full", [f"full-{at}"], WHOLE, allocation_tags=tags(runs[at]))
    assert len(core.partition.applications["full"].allocations) == nodes
    return core


def gang(core: Core, name: str, members: int, queue: str = "root.a", amount: int = 8) -> None:
    core.gang(name, members, {"gpu": amount}, queue=queue)
    core.check()


def pod(core: Core, name: str, amount: int = 8, run: int = 0, queue: str = "root.b") -> None:
    core.application(name, queue)
    core.asks(name, [f"{name}-0"], {"gpu": amount}, allocation_tags=tags(run))
    core.check()


def end(core: Core, key: str, after: int) -> None:
    core.now_ns = START_NS + seconds(after)
    application = key.rpartition("-")[0]
    core.update(releases=(AllocationRelease(application, key, TerminationType.STOPPED_BY_RM),))
    core.check()


def held(core: Core) -> list[str]:
    return sorted(name for name, node in core.partition.nodes.nodes.items() if node.is_held)


def runs(core: Core, name: str) -> int:
    return len(core.partition.applications[name].allocations)


def head_gang_of(core: Core) -> str:
    head_gang = core.partition.head_gang
    return head_gang.application.id if head_gang is not None else ""


def test_the_nodes_that_will_be_free_soonest_are_held_and_the_gang_starts_when_they_are():
    core = cluster()
    gang(core, "wide", 2)
    assert (head_gang_of(core), held(core)) == ("wide", ["n0", "n1"])
    assert core.partition.head_gang.start_ns == START_NS + seconds(200)
    end(core, "full-0", 100)
    pod(core, "other")
    assert (runs(core, "other"), held(core)) == (0, ["n0", "n1"])
    end(core, "full-1", 200)
    assert (runs(core, "wide"), runs(core, "other"), held(core)) == (2, 0, [])


def test_another_node_that_is_free_sooner_is_held_instead_and_the_first_is_everybody_s_again():
    core = cluster()
    gang(core, "wide", 2)
    end(core, "full-3", 50)
    assert held(core) == ["n0", "n3"]
    end(core, "full-2", 60)
    assert (runs(core, "wide"), held(core)) == (2, [])


def test_the_oldest_gang_is_the_head_gang_and_the_next_one_after_it():
    core = cluster()
    gang(core, "first", 2)
    core.now_ns += seconds(1)
    gang(core, "second", 2, "root.b")
    assert head_gang_of(core) == "first"
    gone = AllocationAskRelease("first", "", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.check()
    assert head_gang_of(core) == "second"


def test_a_reload_that_changes_priorities_changes_who_is_next():
    core = cluster()
    gang(core, "first", 2)
    for name, queue in (("second", "root.a"), ("third", "root.b")):
        core.now_ns += seconds(1)
        gang(core, name, 2, queue)
    higher = config_of("{name: a}", "{name: b, properties: {priority.offset: '5'}}")
    core.send(UpdateConfiguration(higher))
    core.update(ask_releases=(AllocationAskRelease("first", "", TerminationType.STOPPED_BY_RM),))
    core.check()
    assert head_gang_of(core) == "third"


@pytest.mark.parametrize("members", [1, 5])
def test_a_gang_of_one_node_or_of_more_than_there_are_is_not_the_head_gang(members):
    core = cluster()
    gang(core, "narrow", members)
    assert (head_gang_of(core), held(core)) == ("", [])


def test_a_gang_whose_members_fit_one_node_is_not_the_head_gang():
    core = cluster()
    gang(core, "narrow", 4, amount=2)
    assert head_gang_of(core) == ""


def test_a_gang_that_its_queue_s_max_keeps_is_not_the_head_gang():
    core = Core(config_of("{name: a, resources: {max: {gpu: 8}}}", "{name: b}"), settings=LANE)
    for at in range(2):
        core.node(f"n{at}", **NODE)
    pod(core, "used", amount=8, queue="root.b")
    pod(core, "own", amount=4, queue="root.a")
    gang(core, "wide", 2, amount=4)
    assert head_gang_of(core) == ""


def test_without_backfill_nobody_uses_what_is_held_however_short():
    core = cluster()
    gang(core, "wide", 2)
    end(core, "full-0", 10)
    pod(core, "short", run=1)
    assert runs(core, "short") == 0


@pytest.mark.parametrize(("run", "starts"), [(189, True), (190, True), (191, False)])
def test_with_backfill_who_has_ended_in_time_may(run, starts):
    core = cluster(settings=EASY)
    gang(core, "wide", 2)
    end(core, "full-0", 10)
    pod(core, "other", run=run)
    assert runs(core, "other") == starts
    assert core.partition.head_gang.start_ns == START_NS + seconds(200)


def test_with_backfill_what_the_gang_leaves_of_a_node_is_for_whoever_runs_for_long():
    core = cluster(settings=EASY)
    gang(core, "wide", 4, amount=6)
    end(core, "full-0", 10)
    pod(core, "two", amount=2)
    pod(core, "three", amount=3, run=86_400)
    assert (runs(core, "two"), runs(core, "three")) == (1, 0)


# --- what is stated, and what is only predicted -------------------------------------------------

STATED = (*LANE, ("backfill", "stated"))


@pytest.mark.parametrize(("settings", "starts"), [(STATED, False), (EASY, True)])
def test_who_states_nothing_passes_by_a_prediction_only_where_that_is_set(settings, starts):
    core = cluster(settings=settings)
    end(core, "full-0", 10)
    pod(core, "filler", run=190, queue="root.a")
    gang(core, "wide", 2)
    end(core, "full-1", 20)  # those of its kind have run for 10 and 20 s
    pod(core, "other", queue="root.a")
    assert runs(core, "other") == starts
    pod(core, "stated", run=30)
    assert runs(core, "stated") != starts


@pytest.mark.parametrize("settings", [STATED, EASY])
def test_who_is_older_but_states_nothing_does_not_take_what_is_held(settings):
    """With ``backfill: enabled`` it may if it is predicted to end: in 100 s, as ``full-3`` did."""
    core = cluster(settings=settings, runs=(100, 200, 300, 100))
    end(core, "full-3", 100)
    pod(core, "filler", run=1_000)
    pod(core, "old")
    core.now_ns += seconds(1)
    gang(core, "wide", 2)
    end(core, "full-0", 110)
    assert (runs(core, "old"), held(core)) == (0, ["n0", "n1"])
    pod(core, "brief", run=5)
    assert runs(core, "brief") == 1


def test_what_passes_by_a_prediction_goes_to_other_nodes_first_and_what_states_its_time_last():
    core = cluster(settings=EASY)
    end(core, "full-0", 10)
    pod(core, "half", amount=4, run=1_000)
    gang(core, "wide", 2)
    end(core, "full-1", 100)
    assert held(core) == ["n1", "n2"]
    for name, run, node in (("stated", 50, "n1"), ("one", 0, "n0"), ("two", 0, "n1")):
        pod(core, name, amount=4, run=run)
        assert core.partition.applications[name].allocations[f"{name}-0"].node_id == node


# --- how long nodes may stand idle --------------------------------------------------------------


def idle(percent: str, runs: tuple = (0, 0, 0, 0), members: int = 3) -> Core:
    """Return three nodes that run pods of 1,000 s, by prediction, one that is empty, and a gang."""
    core = cluster(settings=(*STATED, ("maxReservedNodes", percent)), runs=runs)
    for at in range(4):
        end(core, f"full-{at}", 1_000)
    for at in range(3):
        pod(core, f"new-{at}", queue="root.a", run=runs[at])
    gang(core, "wide", members)
    return core


@pytest.mark.parametrize(("percent", "is_held"), [("0%", False), ("1%", False), ("5%", True)])
def test_nodes_are_held_while_what_they_may_stand_idle_lasts(percent, is_held):
    """Expected are 8 GPUs for 1,024 s; half of 1 % of 32 GPUs in a week is 1,512 s of them."""
    core = idle(percent)
    assert bool(held(core)) == (percent != "0%")
    pod(core, "other")
    assert runs(core, "other") == (percent == "0%")
    core.now_ns += seconds(7_000)  # all that was predicted is outlived
    core.update()
    assert bool(held(core)) == is_held


def test_why_says_that_no_nodes_are_held_for_what_they_may_stand_idle():
    core = idle("0%")
    said = text_of(core.partition.applications["wide"].refusal)
    assert "no nodes are reserved for it now: they would stand idle for longer" in said


def test_how_much_stood_idle_is_counted():
    core = idle("5%")
    core.now_ns += seconds(1_000)
    core.update()
    assert core.partition.idle_allowance.total == 8 * seconds(1_000)
    assert core.scheduler.figures()["held_idle_ppm"] == {"default": 250_000}  # a node of four


def test_what_rests_on_stated_ends_is_held_whatever_it_costs():
    core = idle("0%", (9_000, 9_000, 9_000, 9_000), 4)
    assert len(held(core)) == 4
    core.now_ns += seconds(5_000)
    core.update()
    pod(core, "other")
    assert (len(held(core)), runs(core, "other")) == (4, 0)


def test_a_timer_ends_what_may_stand_idle_no_longer():
    core = idle("1%")
    assert core.partition.reservations_due_ns > 0
    pod(core, "other")
    assert runs(core, "other") == 0
    due_ns = core.partition.reservations_due_ns
    core.now_ns = due_ns
    core.fire_own(TimerKind.RESERVATION)
    assert (held(core), runs(core, "other")) == ([], 1)


# --- a gang that has waited long ----------------------------------------------------------------


def twelve_hours(percent: str = "1%") -> Core:
    """Return the same after twelve hours: what runs is expected to run for as long again."""
    core = idle(percent)
    core.now_ns += seconds(12 * 3_600)
    core.update()
    return core


def test_a_gang_that_has_waited_long_holds_the_last_nodes_that_are_free_in_time():
    core = idle("1%")
    core.now_ns += seconds(11 * 3_600)
    core.update()
    assert (core.partition.head_gang.waited_long, held(core)) == (False, [])
    core.now_ns += seconds(3_600)
    core.fire_own(TimerKind.RESERVATION)
    assert (core.partition.head_gang.waited_long, held(core)) == (True, ["n0", "n1", "n2"])


def test_what_is_predicted_to_end_in_time_passes_a_gang_that_waited_long_on_other_nodes_first():
    core = twelve_hours("5%")
    pod(core, "half", amount=4, queue="root.a")
    end(core, "half-0", 12 * 3_600 + 1_060)
    pod(core, "whole", queue="root.a", run=86_400)
    end(core, "new-0-0", 13 * 3_600)
    assert held(core) == ["n0", "n1", "n2"]
    pod(core, "long", amount=4, queue="root.a", run=86_400)
    assert runs(core, "long") == 0
    for name, node in (("two", "n0"), ("three", "n4")):
        pod(core, name, amount=4, queue="root.a")
        assert core.partition.applications[name].allocations[f"{name}-0"].node_id == node
        if name == "two":
            core.node("n4", **NODE)


def test_nobody_passes_by_a_prediction_before():
    core = idle("5%")
    assert (core.partition.head_gang.waited_long, len(held(core))) == (False, 3)
    pod(core, "one", queue="root.a")
    assert runs(core, "one") == 0


def test_what_states_nothing_passes_no_gang_while_an_older_pod_waits_for_a_node():
    core = idle("1%", members=3)
    core.update(releases=(AllocationRelease("wide", "", TerminationType.STOPPED_BY_RM),))
    pod(core, "filler", queue="root.a")
    pod(core, "old")
    core.now_ns += seconds(1)
    gang(core, "late", 3)
    core.now_ns += seconds(12 * 3_600)
    core.update()
    backfill_window = core.partition.nodes.backfill_window
    assert (head_gang_of(core), core.partition.head_gang.waited_long) == ("late", True)
    assert (len(held(core)), backfill_window.predicted_ns) == (3, 0)
    core.update(ask_releases=(AllocationAskRelease("old", "", TerminationType.STOPPED_BY_RM),))
    assert backfill_window.predicted_ns > 0


def test_where_nothing_may_stand_idle_a_gang_that_waited_long_holds_nothing_either():
    core = twelve_hours("0%")
    assert (core.partition.head_gang.waited_long, held(core)) == (True, [])


# --- the shortest first -------------------------------------------------------------------------


def first(core: Core, *names: str) -> list[str]:
    """Return who got the node that is free from 30 s on, while others wait for it."""
    end(core, "full-0", 30)
    return [name for name in names if runs(core, name)]


@pytest.mark.parametrize(("settings", "who"), [(SHORTEST, "short"), (EASY, "long")])
def test_while_nodes_are_held_for_a_gang_the_shortest_is_tried_first(settings, who):
    core = cluster(settings=settings)
    gang(core, "wide", 2)
    pod(core, "unknown", amount=4)
    pod(core, "long", run=150)
    pod(core, "short", run=60)
    assert first(core, "unknown", "long", "short") == [who]
    assert core.partition.head_gang.reported_start_ns == START_NS + seconds(200)


def test_a_gang_runs_for_as_long_as_its_longest_member():
    core = cluster(settings=SHORTEST)
    gang(core, "wide", 2)
    for name, members in (("long", (10, 150)), ("short", (60, 60))):
        core.application(name, "root.b", placeholder_ask={"gpu": 8})
        for at, run in enumerate(members):
            more = {
                "placeholder": True,
                "task_group_name": f"tg-{at}",
                "allocation_tags": tags(run),
            }
            core.asks(name, [f"{name}-{at}"], {"gpu": 4}, **more)
    assert first(core, "long", "short") == ["short"]


@pytest.mark.parametrize(("ran", "stated"), [(5, 150), (20, 12)])
def test_what_is_predicted_counts_but_never_for_more_than_is_stated(ran, stated):
    """``known`` is predicted to run for as long as ``full-3`` did; ``other`` states 16 s."""
    core = cluster(settings=SHORTEST)
    end(core, "full-3", ran)
    pod(core, "filler", run=500)
    gang(core, "wide", 2, "root.b")
    pod(core, "other", amount=7, run=16, queue="root.a")
    pod(core, "known", run=stated, queue="root.a")
    assert first(core, "other", "known") == ["known"]


def test_who_comes_before_the_gang_is_tried_first_however_long():
    core = cluster(settings=SHORTEST)
    pod(core, "old", run=9_999)
    core.now_ns += seconds(1)
    gang(core, "wide", 2)
    pod(core, "short", run=60)
    assert first(core, "old", "short") == ["old"]


def test_a_higher_priority_counts_for_more_than_a_shorter_run_time():
    core = cluster(settings=SHORTEST)
    core.application("wide", "root.a", placeholder_ask={"gpu": 16})
    more = {"placeholder": True, "task_group_name": "tg"}
    core.asks("wide", ["wide-0", "wide-1"], WHOLE, priority=5, **more)
    for name, run, priority in (("short", 60, 0), ("long", 150, 3)):
        core.application(name, "root.b")
        core.asks(name, [name], WHOLE, allocation_tags=tags(run), priority=priority)
    assert head_gang_of(core) == "wide"
    assert first(core, "short", "long") == ["long"]


def test_a_leaf_that_goes_by_shares_goes_on_doing_so():
    fair = "{name: b, properties: {application.sort.policy: fair}}"
    core = cluster(settings=SHORTEST, config=config_of("{name: a}", fair))
    gang(core, "wide", 2)
    pod(core, "long", run=150)
    pod(core, "short", run=60)
    assert first(core, "long", "short") == ["long"]


@pytest.mark.parametrize("others", [LANE[:1], LANE[1:], (), (("reservations", "none"),)])
def test_the_order_is_refused_where_nobody_backfills_a_head_gang(others):
    settings = settings_from((*others, SHORTEST[-1]))
    assert settings.refused[-1] == (
        "backfill: shortestFirst needs reservations: gang and gangAdmission: cluster; enabled is used"
    )
    assert len(settings.refused) == (2 if others == LANE[1:] else 1)
    assert (settings.backfill, settings.shortest_first) == (True, False)
    assert settings_from(SHORTEST).shortest_first


# --- run times ----------------------------------------------------------------------------------


def test_what_states_nothing_is_predicted_by_the_last_two_of_its_queue_and_size():
    """Of the two that end of ``full`` the longer counts, 80 s; then 40 s: the mean is 60, so 64."""
    core = cluster(settings=EASY)
    for at, ran in ((0, 40), (1, 80)):
        end(core, f"full-{at}", ran)
        pod(core, f"again-{at}", queue="root.a")
        assert runs(core, f"again-{at}") == 1
    end(core, "again-0-0", 80)
    pod(core, "last", queue="root.a")
    gang(core, "wide", 2, "root.b")
    assert held(core) == ["n0", "n1"]
    assert core.partition.head_gang.start_ns == START_NS + seconds(80 + 64)


def test_what_outlives_its_time_is_expected_to_run_as_long_again_and_a_minute_at_least():
    core = cluster(2, runs=(100, 300))
    gang(core, "wide", 2)
    core.now_ns = START_NS + seconds(310)
    core.update()
    assert core.partition.head_gang.start_ns == START_NS + seconds(620)


def test_pods_of_which_nothing_is_known_end_last_and_no_start_is_told():
    core = cluster(3, runs=(0, 100, 0))
    gang(core, "wide", 2)
    assert "n1" in held(core)
    assert (len(held(core)), core.partition.head_gang.start_ns) == (2, 0)
    assert "when it will start is not known" in text_of(core.partition.applications["wide"].refusal)


@pytest.mark.parametrize(
    ("is_stated", "leaves", "start"),
    [(True, ["one", "several"], 300), (False, ["one", "one"], 310)],
)
def test_a_node_that_one_pod_leaves_is_held_first_if_ends_are_only_predicted(
    is_stated, leaves, start
):
    """Of several pods one outlives its prediction (150 s: 160); what the others leave is empty."""
    core = cluster(2, runs=(150, 150))
    core.node("n2", **NODE)
    core.application("halves", "root.a")
    core.asks("halves", ["halves-0", "halves-1"], {"gpu": 4})
    for key, after in (("halves-0", 50), ("halves-1", 50), ("full-0", 150), ("full-1", 150)):
        end(core, key, after)
    for name, amount, count, run in (("one", 8, 2, 150), ("several", 4, 2, 50)):
        core.application(name, "root.a")
        keys = [f"{name}-{at}" for at in range(count)]
        core.asks(name, keys, {"gpu": amount}, allocation_tags=tags(run * is_stated))
    gang(core, "wide", 2)
    where = {
        node.node_id: {allocation.application_id for allocation in node.allocations.values()}
        for node in core.partition.nodes.nodes.values()
    }
    assert sorted(name for node in held(core) for name in where[node]) == leaves
    assert core.partition.head_gang.start_ns == START_NS + seconds(start)


def test_a_node_that_goes_is_held_no_more_and_another_is():
    core = cluster()
    gang(core, "wide", 2)
    core.update(nodes=(NodeInfo("n0", NodeAction.DRAIN_NODE),))
    core.check()
    assert held(core) == ["n1", "n2"]
    core.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    core.check()
    assert held(core) == ["n2", "n3"]
    assert core.partition.nodes.backfill_window.nodes == 2


def test_it_is_said_since_when_which_nodes_and_until_when():
    core = cluster()
    gang(core, "wide", 2)
    said = text_of(core.partition.applications["wide"].refusal)
    assert said.endswith(
        "; it has been first in line (the head gang) since 2026-01-01 00:00:00 UTC; nodes n0 and n1 "
        "are reserved for it; it is expected to start by 2026-01-01 00:03:20 UTC"
    )


def test_nobody_gets_a_node_for_its_age_while_there_is_a_head_gang():
    core = cluster(8, runs=(0,) * 8)
    pod(core, "old")
    core.now_ns += seconds(60)
    core.update()
    assert not core.partition.reservations_due_ns or not core.partition.reserved_nodes.by_age


def test_presets_are_defaults_and_a_head_gang_needs_gangs_with_places():
    muster = settings_from([("preset", "muster")])
    assert (muster.reservations, muster.gang_admission) == ("gang", "cluster")
    assert (muster.backfill, muster.passes_predicted) == (True, False)
    assert muster.idle_share(50) == (2, 100)
    assert settings_from([("maxReservedNodes", "7%")]).idle_share(50) == (7, 100)
    assert settings_from([("maxReservedNodes", "3")]).idle_share(50) == (3, 50)
    assert settings_from([("preset", "muster"), ("reservations", "none")]).reservations == "none"
    yunikorn = settings_from([("preset", "yunikorn")])
    assert yunikorn.reservations == "asks"
    assert yunikorn.max_reserved_nodes(50) == 50
    assert yunikorn.starvation_guard_ns == MAX_DURATION_NS
    alone = settings_from([("reservations", "gang")])
    assert (alone.reservations, alone.refused) == (
        "heads",
        ("reservations: gang needs gangAdmission: cluster, found 'queue'; heads is used",),
    )
    assert settings_from([]) == settings_from([("preset", "design")])
    assert "preset: one of" in settings_from([("preset", "none")]).refused[0]


# --- tried again as more of what is held is left ------------------------------------------------


def half_free(settings: tuple = EASY) -> Core:
    """Return two nodes of 8, of which 4 are free on one; 4 end at 150 s there, 8 on the other."""
    core = Core(config_of("{name: a}", "{name: b}"), settings=settings)
    for node, name, amount, run in (("n0", "late", 4, 150), ("n1", "early", 8, 100)):
        core.node(node, **NODE)
        core.application(name, "root.a")
        where = Constraints(required_node=node)
        core.asks(
            name, [f"{name}-0"], {"gpu": amount}, allocation_tags=tags(run), constraints=where
        )
        assert runs(core, name) == 1
    return core


def withdraw(core: Core, application: str) -> None:
    gone = AllocationAskRelease(application, "", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.check()


def test_who_was_refused_is_tried_again_when_the_start_moves_and_the_gang_leaves_more():
    """Without ``n1`` it starts at 180 s: ``late`` has gone by then, and 4 are left of ``n0``."""
    core = half_free()
    core.node("n2", **NODE)
    on_third = Constraints(required_node="n2")
    core.application("third", "root.a")
    core.asks("third", ["third-0"], WHOLE, allocation_tags=tags(180), constraints=on_third)
    gang(core, "wide", 3, amount=4)
    pod(core, "other", amount=4)
    assert (held(core), runs(core, "other")) == (["n0", "n1"], 0)
    core.now_ns = START_NS + seconds(90)
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    core.check()
    assert core.partition.head_gang.start_ns == START_NS + seconds(180)
    assert (runs(core, "wide"), runs(core, "other")) == (0, 1)


def test_what_the_gang_leaves_is_there_from_when_it_is_the_head_gang():
    core = half_free()
    core.node("n2", **NODE)
    gang(core, "wide", 3, amount=6)
    pod(core, "other", amount=2)
    assert (held(core), runs(core, "other")) == (["n0", "n1", "n2"], 1)


def test_who_is_short_is_tried_again_when_nobody_waits_any_more_who_comes_before_the_gang():
    core = half_free()
    pod(core, "old", run=86_400)
    core.now_ns += seconds(1)
    gang(core, "wide", 2)
    pod(core, "short", amount=4, run=60)
    assert (held(core), runs(core, "short")) == (["n0", "n1"], 0)
    withdraw(core, "old")
    assert runs(core, "short") == 1


@pytest.mark.parametrize(("priority", "starts"), [(3, True), (0, False)])
def test_who_comes_before_the_next_gang_is_tried_again_when_it_is_the_head_gang(priority, starts):
    core = half_free()
    more = {"placeholder": True, "task_group_name": "tg"}
    for name, first in (("first", 5), ("second", 1)):
        core.application(name, "root.a", placeholder_ask={"gpu": 16})
        core.asks(name, [f"{name}-0", f"{name}-1"], WHOLE, priority=first, **more)
    core.application("other", "root.b")
    core.asks("other", ["other-0"], {"gpu": 4}, priority=priority, allocation_tags=tags(86_400))
    assert (head_gang_of(core), runs(core, "other")) == ("first", 0)
    withdraw(core, "first")
    assert (head_gang_of(core), runs(core, "other")) == ("second", starts)


def test_who_was_refused_is_tried_again_when_a_held_node_is_larger():
    core = half_free()
    gang(core, "wide", 3, amount=4)
    pod(core, "other", amount=4)
    assert runs(core, "other") == 0
    core.update(nodes=(NodeInfo("n0", NodeAction.UPDATE, {"gpu": 12}),))
    core.check()
    assert (runs(core, "wide"), runs(core, "other")) == (0, 1)
