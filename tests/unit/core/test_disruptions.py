"""Disruption budgets as the core knows them: who is spared, who goes last, and what is refused."""

import pytest

from services.core.scheduler.actions.quota_preemption import victims_of
from services.core.scheduler.nodes.victim_budgets import VictimBudgets
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AllocationAskRelease,
    AllocationRelease,
    Disruption,
    DisruptionState,
    TerminationType,
)
from tests.builders import Core, config_of
from tests.table import each_row
from tests.unit.core.test_preemption import PREEMPTED, Cluster, guaranteed

FREE, BUDGETED, BARRED = DisruptionState


def four_and_one(**states: DisruptionState) -> Cluster:
    """Four victims, the last of them the newest; ``wants`` may have the room of one."""
    leaf2 = guaranteed("leaf2", 5, "properties: {preemption.delay: 1ms},")
    core = Cluster("{name: leaf1}", leaf2, nodes={f"n{at}": 5 for at in range(1, 5)})
    for at in range(1, 5):
        core.place("leaf1", f"v{at}", 5, f"n{at}")
    core.update(disruptions=tuple(Disruption(key, "leaf1", s) for key, s in states.items()))
    core.run("leaf2", "wants", 5, priority=1)
    return core


@each_row(
    ("states", "expected"),
    [
        ({}, ["v4"]),
        ({"v4": BARRED}, ["v3"]),
        ({"v4": BUDGETED, "v3": BUDGETED}, ["v2"]),
        ({"v1": BUDGETED, "v2": BARRED, "v3": BARRED, "v4": BARRED}, ["v1"]),
        ({"v1": BARRED, "v2": BARRED, "v3": BARRED, "v4": BARRED}, []),
    ],
)
def test_victims_without_a_budget_go_first_and_barred_ones_never(states, expected):
    core = four_and_one(**states)
    assert core.look() == expected


def test_what_is_barred_is_taken_once_it_may_go():
    core = four_and_one(**dict.fromkeys(("v1", "v2", "v3", "v4"), BARRED))
    assert core.look() == []
    core.update(disruptions=(Disruption("v2", "leaf1", BUDGETED),))
    assert core.look() == ["v2"]


def test_a_refused_eviction_is_taken_back_and_another_is_chosen():
    core = four_and_one()
    assert core.look() == ["v4"]
    leaf1 = core.partition.queues["root.parent.leaf1"]
    assert leaf1.preempting == {"vcore": 5}
    core.update(disruptions=(Disruption("v4", "leaf1", BARRED, is_refused=True),))
    core.check()
    assert leaf1.preempting == {}
    assert core.partition.applications["leaf1"].released == {}
    assert core.look(seconds=0) == ["v3"]  # not 15 s later: the try was not its own to fail
    assert core.confirm("leaf1", "v3") == ["wants"]
    core.update(disruptions=(Disruption("v4", "leaf1", FREE),))
    core.check()
    assert core.look() == []


def test_an_eviction_that_had_no_answer_is_decided_anew_for_who_still_needs_it():
    core = four_and_one()
    assert core.look() == ["v4"]
    core.update(disruptions=(Disruption("v4", "leaf1", FREE, is_refused=True),))
    core.check()
    assert core.look(seconds=0) == ["v4"]
    gone = AllocationAskRelease("leaf2", "wants", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.update(disruptions=(Disruption("v4", "leaf1", FREE, is_refused=True),))
    core.check()
    assert core.partition.applications["leaf1"].released == {}
    assert core.look(seconds=0) == []


def test_nobody_goes_for_a_preemptor_that_has_gone_when_its_budget_allows_it_again():
    core = four_and_one(**dict.fromkeys(("v1", "v2", "v3"), BARRED))
    assert core.look() == ["v4"]
    core.update(disruptions=(Disruption("v4", "leaf1", BARRED, is_refused=True),))
    core.update(
        ask_releases=(AllocationAskRelease("leaf2", "wants", TerminationType.STOPPED_BY_RM),)
    )
    core.update(disruptions=(Disruption("v4", "leaf1", FREE),))
    assert core.look() == []
    core.check()


def test_news_that_come_again_or_of_nothing_change_nothing():
    core = four_and_one()
    assert core.look() == ["v4"]
    refused = Disruption("v4", "leaf1", BARRED, is_refused=True)
    unknown = Disruption("no", "leaf1", BARRED, is_refused=True)
    core.update(disruptions=(refused, refused, unknown, Disruption("v1", "none", BARRED)))
    core.check()
    assert core.partition.victims.disruptions == {"v4": BARRED}
    core.confirm("leaf1", "v4")
    assert core.partition.victims.disruptions == {}


def test_a_daemons_pod_takes_whom_it_may_and_waits_for_the_rest():
    core = Cluster("{name: leaf1}", "{name: leaf2}", nodes={"n1": 10, "n2": 10})
    core.place("leaf1", "old", 5, "n1")
    core.place("leaf1", "new", 5, "n1")
    core.update(disruptions=(Disruption("new", "leaf1", BARRED),))
    needs = Constraints(required_node="n1")
    released = core.run("leaf2", "daemon", 5, priority=1, constraints=needs)
    keys = [r.allocation_key for answer in released for r in answer.released_allocations]
    assert keys == ["old"]
    core.update(disruptions=(Disruption("old", "leaf1", BARRED, is_refused=True),))
    core.check()
    assert core.partition.applications["leaf1"].released == {}
    answers = core.update(disruptions=(Disruption("new", "leaf1", FREE),))
    keys = [r.allocation_key for answer in answers for r in answer.released_allocations]
    assert keys == ["new"]
    assert core.confirm("leaf1", "new") == ["daemon"]


def test_a_quota_that_shrinks_spares_what_is_barred():
    core = four_and_one(v4=BARRED, v3=BUDGETED)
    leaf = core.partition.queues["root.parent.leaf1"]
    found = victims_of(core.partition, leaf, {"vcore": 15})
    assert [allocation.allocation_key for allocation in found] == ["v2", "v1", "v3"]


# --- how many of one budget ---------------------------------------------------------------------


def under(budget, allowed, *keys, app="leaf1"):
    state = BUDGETED if allowed > 0 else BARRED
    return tuple(Disruption(k, app, state, budget=budget, allowed=allowed) for k in keys)


def pairs(*news):
    """Two nodes with two each, the second's the newer; ``wants`` needs the room of two."""
    leaf2 = guaranteed("leaf2", 10, "properties: {preemption.delay: 1ms},")
    core = Cluster("{name: leaf1}", leaf2, nodes={"n1": 10, "n2": 10})
    for at, node in enumerate(("n1", "n1", "n2", "n2"), 1):
        core.place("leaf1", f"v{at}", 5, node)
    core.update(disruptions=news)
    core.run("leaf2", "wants", 10, priority=1)
    return core


@each_row(
    ("news", "expected"),
    [
        (under("b", 2, "v1", "v2", "v3", "v4"), ["v3", "v4"]),
        (under("b", 1, "v1", "v2", "v3", "v4"), []),
        (under("b", 1, "v3", "v4") + under("c", 2, "v1", "v2"), ["v1", "v2"]),
        (under("b", 1, "v3", "v2") + under("c", 1, "v1", "v4"), ["v3", "v4"]),
        (under("b", 2, "v3", "v4") + under("b", 1, "v1", "v2"), []),  # what was said last
        (under("", 0, "v1") + tuple(Disruption(f"v{n}", "leaf1", BUDGETED) for n in (3, 4)),
         ["v3", "v4"]),  # as an earlier version says it
    ],
)  # fmt: skip
def test_no_more_of_a_budget_are_chosen_together_than_it_allows(news, expected):
    assert pairs(*news).look() == expected


def two_preemptors(allowed):
    core = four_and_one()
    core.update(disruptions=under("b", allowed, "v1", "v2", "v3", "v4"))
    core.partition.queues["root.parent.leaf2"].guaranteed_resource = {"vcore": 10}
    core.run("leaf2", "more", 5, priority=1)
    return core


def test_what_one_ask_takes_of_a_budget_is_not_there_for_the_next():
    core = two_preemptors(1)
    assert core.look() == ["v4"]
    assert core.look() == []
    core.update(disruptions=under("b", 1, "v1"))  # it was counted in, and one more may go
    assert core.look() == ["v3"]


def test_who_has_gone_without_being_counted_or_was_kept_leaves_its_place_to_another():
    core = two_preemptors(1)
    assert core.look() == ["v4"]
    core.confirm("leaf1", "v4")
    assert core.look() == ["v3"]
    core = two_preemptors(1)
    assert core.look() == ["v4"]
    refused = Disruption("v4", "leaf1", BARRED, is_refused=True, budget="b", allowed=1)
    core.update(disruptions=(refused,))
    assert core.look(seconds=0) == ["v3"]


def test_a_daemons_pod_and_a_quota_take_no_more_of_a_budget_than_it_allows():
    core = pairs(*under("b", 1, "v3", "v4"))
    needs = Constraints(required_node="n2")
    assert keys_of(core.run("leaf2", "daemon", 10, priority=1, constraints=needs)) == []
    core = four_and_one()
    core.update(disruptions=under("b", 1, "v3", "v4") + under("c", 0, "v1"))
    leaf = core.partition.queues["root.parent.leaf1"]
    found = victims_of(core.partition, leaf, {"vcore": 20})
    assert [allocation.allocation_key for allocation in found] == ["v2", "v4"]


def keys_of(answers):
    return [r.allocation_key for answer in answers for r in answer.released_allocations]


def test_a_budget_is_forgotten_with_the_last_that_is_under_it():
    budgets = VictimBudgets()
    budgets.set("a", "one", 1)
    budgets.set("b", "one", 1)
    budgets.set("a", "two", 3)
    assert (budgets.of("a"), budgets.left("one"), budgets.left("two")) == ("two", 1, 3)
    budgets.choose("b")
    assert not budgets.releases().may_go("b")
    budgets.set("b", "", 0)
    budgets.forget("a")
    budgets.forget("a")
    assert not budgets
    assert budgets._budgets == {}


def test_the_type_of_a_refused_eviction_is_what_was_decided():
    core = four_and_one()
    core.look()
    assert core.partition.applications["leaf1"].released == {"v4": PREEMPTED}


# --- under kai, within one search ---------------------------------------------------------------

GPU = "nvidia.com/gpu"
OWED = "{name: %s, resources: {guaranteed: {nvidia.com/gpu: %d}}}"


def filled(*news, actions=""):
    """Two nodes of two GPUs, all of them greedy's; queue two is owed half."""
    settings = (("policy", "kai"), *((("actions", actions),) if actions else ()))

    core = Core(config_of(OWED % ("one", 2), OWED % ("two", 2)), settings=settings)
    for name in ("n0", "n1"):
        core.node(name, **{"vcore": 10_000, GPU: 2, "pods": 100})
    core.application("greedy", "root.one")
    core.asks("greedy", [f"g{at}" for at in range(4)], {"vcore": 100, GPU: 1, "pods": 1})
    core.update(disruptions=news)
    for at in range(2):
        core.application(f"owed-{at}", "root.two")
    return core


def looked(core):
    core.check()
    if "preemption" not in core.partition.timers:
        return []
    return keys_of(core.fire_own("preemption"))


def wanted(core, *sizes):
    for at, size in enumerate(sizes):
        core.asks(f"owed-{at}", [f"o{at}"], {"vcore": 100, GPU: size, "pods": 1})


@each_row(
    ("news", "sizes", "expected"),
    [
        ((), (2,), 2),
        (under("b", 1, "g0", "g1", "g2", "g3", app="greedy"), (2,), 0),  # both on one node
        (under("b", 2, "g0", "g1", "g2", "g3", app="greedy"), (2,), 2),
        (under("b", 1, "g0", "g1", "g2", "g3", app="greedy"), (1, 1), 1),  # for two in one look
        (under("b", 1, "g0", "g1", app="greedy") + under("c", 1, "g2", "g3", app="greedy"),
         (1, 1), 2),
    ],
)  # fmt: skip
def test_kai_no_more_of_a_budget_go_in_one_look_than_it_allows(news, sizes, expected):
    core = filled(*news)
    wanted(core, *sizes)
    assert len(looked(core)) == expected
    core.check()


def test_kai_who_shares_a_budget_that_lets_one_go_is_spared_for_another():
    """On each node one is under the budget; both of a node would go, and only those of one."""
    core = filled()
    first = one_of_each_node(core)
    core.update(disruptions=under("b", 1, *first, app="greedy"))
    wanted(core, 2)
    going = looked(core)
    assert len(going) == 2
    assert len({*first} & {*going}) == 1


@pytest.mark.parametrize(("allowed", "moved"), [(2, 1), (1, 1), (0, 0)])
def test_kai_a_budget_counts_who_only_moves(allowed, moved):
    """One on each node: another of its budget goes already, and that leaves so many."""
    core = filled(actions="consolidation")
    left = one_of_each_node(core)
    gone = [key for key in core.partition.applications["greedy"].allocations if key not in left]
    stopped = TerminationType.STOPPED_BY_RM
    core.update(releases=tuple(AllocationRelease("greedy", key, stopped) for key in gone))
    core.update(disruptions=under("b", allowed + 1, *left, app="greedy"))
    core.partition.victims.budgets._budgets["b"].chosen["another"] = None
    wanted(core, 2)
    assert len(looked(core)) == moved


def one_of_each_node(core):
    held = core.partition.applications["greedy"].allocations
    return [*{item.node_id: key for key, item in held.items()}.values()]


def test_kai_who_is_spared_leaves_room_for_another_to_go():
    """The newest two of a node of three are of a budget that lets one go: the third goes, too."""
    core = Core(config_of(OWED % ("one", 1), OWED % ("two", 2)), settings=(("policy", "kai"),))
    core.node("n0", **{"vcore": 10_000, GPU: 3, "pods": 100})
    for at in range(3):
        core.application(f"greedy-{at}", "root.one")
        core.asks(f"greedy-{at}", [f"g{at}"], {"vcore": 100, GPU: 1, "pods": 1})
    for at in (1, 2):
        core.update(disruptions=under("b", 1, f"g{at}", app=f"greedy-{at}"))
    core.application("owed-0", "root.two")
    wanted(core, 2)
    assert sorted(looked(core)) == ["g0", "g2"]
