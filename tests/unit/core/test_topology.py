"""Gangs in domains of the nodes: which domain, which nodes, and what is said when there is none."""

import pytest

from services.core.scheduler.actions import domain_places
from shared.messages.constraints import (
    NO_CONSTRAINTS,
    Constraints,
    NodeTerm,
    PodTerm,
    Requirement,
)
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    GangSettings,
    NodeAction,
    NodeInfo,
    SubGroup,
    TerminationType,
)
from tests.builders import section
from tests.domains import HOST, ONE, cluster, counts, gang, near, node, why

ADMISSIONS = ("queue", "cluster", "partial")


def placed(blocks, count, wish, **more):
    core = cluster(blocks, **more)
    gang(core, "gang", ("w", count, wish))
    core.check()
    return counts(core)


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_a_required_rack_holds_all_of_a_gang_or_none_of_it_starts(admission):
    settings = (("gangAdmission", admission),)
    assert placed([[[2, 2], [3, 3]]], 5, near(required="rack"), settings=settings) == [0, 0, 3, 2]
    core = cluster([[[2, 2], [3, 3]]], settings=settings)
    gang(core, "gang", ("w", 7, near(required="rack")))
    assert counts(core) == [0, 0, 0, 0]
    assert why(core).startswith(
        "of 2 domains of level rack the best, b0/r1, has places for 6 of 7 members"
    )
    node(core, "0-1-2", {"block": "b0", "rack": "r1"}, 1)
    assert counts(core) == [0, 0, 0, 0, 0]  # it lacks a label of the tree: it is in no domain
    node(core, "0-1-3", {"block": "b0", "rack": "r1", HOST: "0-1-3"}, 1)
    assert counts(core) == [0, 0, 3, 3, 0, 1]
    core.check()


def test_of_pods_that_are_unlike_a_rack_has_places_for_the_smallest_at_most():
    core = cluster([[[4, 4], [3, 3]]])
    gang(
        core, "gang", ("a", 1, near(), {"vcore": 2}), ("b", 8, near()), above=near(required="rack")
    )
    assert why(core).startswith(
        "of 2 domains of level rack the best, b0/r0, has places for 8 of 9 members"
    )
    assert counts(core) == [0] * 4


def test_racks_of_one_name_in_two_blocks_are_two_domains():
    core = cluster([[[2]], [[2]]])
    gang(core, "gang", ("w", 3, near(required="rack")))
    assert counts(core) == [0, 0]
    gang(core, "two", ("w", 3, near(preferred="rack")))
    assert sum(counts(core, "two")) == 3


def test_the_tightest_domain_that_holds_all_comes_first():
    assert placed([[[8], [5]], [[6]]], 5, near(required="rack")) == [0, 5, 0]
    assert placed([[[8], [5]], [[6]]], 6, near(required="rack")) == [0, 0, 6]


def test_the_fullest_zone_and_in_it_two_racks():
    wish = near(required="block", preferred="rack")
    assert placed([[[2], [1], [1], [1]], [[2], [2], [2]]], 3, wish) == [2, 1, 0, 0, 0, 0, 0]


def test_inside_a_domain_the_last_one_is_the_tightest():
    assert placed([[[3, 3, 2, 1]]], 7, near(required="rack")) == [3, 3, 0, 1]


def test_unconstrained_pods_fill_small_gaps_first():
    assert sorted(placed([[[3, 3, 2, 1]]], 7, near(is_unconstrained=True))) == [1, 1, 2, 3]


def test_room_is_counted_in_whole_slices():
    nodes = [[[6, 5, 4, 3, 2]]]
    assert placed(nodes, 12, near(required="rack", slices=[("host", 2)])) == [6, 0, 4, 0, 2]
    least = near(is_unconstrained=True, slices=[("host", 2)])
    assert placed(nodes, 10, least) == [0, 2, 4, 2, 2]


def test_slices_in_slices():
    block = [[8] * 4] * 2
    wish = near(slices=[("block", 32), ("rack", 16)])
    assert placed([block], 64, wish) == [8] * 8
    core = cluster([[[8] * 4, [8] * 3], [[8]]])
    gang(core, "gang", ("w", 64, wish))
    assert counts(core) == [0] * 8
    assert why(core) == (
        "in slices of 32 pods, each in one domain of level block, the nodes have places for 32 of 64"
    )


@pytest.mark.parametrize(
    ("racks", "count", "slices", "expected"),
    [
        ([[15], [15]], 25, (), [13, 12]),
        ([[15, 13, 10]], 23, (), [12, 11, 0]),
        ([[20, 10], [15, 15]], 22, (), [0, 0, 11, 11]),
        ([[20, 10], [15, 15]], 20, (), [20, 0, 0, 0]),
        ([[10, 5], [5, 5, 5]], 15, (), [0, 0, 5, 5, 5]),
        ([[15], [15], [15, 15]], 25, [("host", 5)], [0, 0, 15, 10]),
    ],
)
def test_balanced(racks, count, slices, expected):
    wish = near(preferred="rack", is_balanced=True, slices=slices)
    assert placed([racks], count, wish) == expected


def test_two_children_of_five_in_one_rack_each_go_to_the_block_that_has_two():
    core = cluster([[[3], [5]], [[5], [5]]])
    rack = near(required="rack")
    gang(core, "gang", ("a", 5, rack), ("b", 5, rack), above=near(required="block"))
    assert counts(core) == [0, 0, 5, 5]


@pytest.mark.parametrize("sizes", [(4, 6), (6, 4)])
def test_unlike_children_are_placed_wherever_their_racks_hold_them(sizes):
    core = cluster([[[6], [4]]])
    rack = near(required="rack")
    parts = [(f"c{at}", size, rack) for at, size in enumerate(sizes)]
    gang(core, "gang", *parts, above=near(required="block"))
    assert counts(core) == [6, 4]


def test_preferred_climbs_to_the_first_level_that_holds_all_and_spreads_at_last():
    assert placed([[[4], [4]]], 4, near(preferred="host")) == [4, 0]
    assert placed([[[2, 2], [4, 1]], [[9]]], 5, near(preferred="rack")) == [0, 0, 4, 1, 0]
    assert placed([[[2], [2]], [[3], [3]]], 9, near(preferred="rack")) == [2, 1, 3, 3]


def test_what_prefers_a_rack_starts_where_no_node_is_in_one():
    core = cluster([])
    node(core, "n0", {}, 2)
    node(core, "n1", {}, 1)
    gang(core, "gang", ("w", 3, near(preferred="rack")))
    assert counts(core) == [2, 1]


def test_a_level_that_is_not_there_is_named_and_the_gang_waits():
    core = cluster([[[4]]])
    said = gang(core, "gang", ("w", 2, near(required="row")))
    assert counts(core) == [0]
    assert why(core) == "there is no topology level row: the levels are block, rack, host"
    assert {state.reason for state in section(said, "scheduling_states")} == {why(core)}


def test_a_member_that_is_lost_comes_back_to_its_rack_or_waits():
    core = cluster([[[2, 2], [8]]])
    gang(core, "gang", ("w", 4, near(required="rack")))
    assert counts(core) == [2, 2, 0]
    lost = AllocationRelease("gang", "gang-w-0", TerminationType.STOPPED_BY_RM)
    core.update(releases=(lost,))
    ask = AllocationAsk("again", "gang", ONE, placeholder=True, task_group_name="w")
    other = AllocationAsk("more", "gang", ONE, placeholder=True, task_group_name="w")
    core.update(asks=(ask, other))
    assert counts(core) == [2, 2, 0]
    core.check()


KAI = (("policy", "kai"),)
PACKED = """
partitions: [{name: default, nodesortpolicy: {type: binpacking},
  queues: [{name: root, submitacl: '*', queues: [{name: default}]}]}]
"""


def packed(blocks, *gangs, **more):
    """Return how many pods of the last gang are on each node, placed as the policy kai does."""
    core = cluster(blocks, settings=KAI, config=PACKED)
    for at, (count, wish) in enumerate(gangs):
        gang(core, f"g{at}", ("w", count, wish), **more)
    core.check()
    return counts(core, f"g{len(gangs) - 1}")


def test_under_kai_the_fuller_node_of_a_domain_goes_first():
    assert packed([[[3, 3]]], (2, near(required="rack")), (3, near(required="rack"))) == [1, 2]


def test_under_kai_of_two_empty_nodes_the_smaller_one_goes_first():
    assert packed([[[4, 3]]], (2, near(required="rack"))) == [0, 2]
    assert packed([[[4, 3]]], (1, near(required="rack")), (2, near(required="rack"))) == [0, 2]
    spread = cluster([[[4, 3]]], settings=KAI, config=PACKED.replace("binpacking", "fair"))
    gang(spread, "gang", ("w", 3, near(required="rack")))
    assert counts(spread) == [2, 1]


def test_under_kai_preferred_domains_with_the_most_room_go_first_of_equal_ones_the_last():
    wish = near(required="block", preferred="rack")
    assert packed([[[1, 1], [2, 1], [1, 1]]], (4, wish)) == [0, 0, 2, 1, 1, 0]
    assert packed([[[2], [2]], [[2], [2]]], (3, near(preferred="block"))) == [2, 1, 0, 0]
    assert packed([[[2]], [[2]]], (3, near(preferred="block"))) == [1, 2]


def test_under_kai_the_domains_above_are_compared_first():
    blocks = [[[4], [3]], [[2], [9]]]
    assert packed(blocks, (2, near(required="rack"))) == [0, 2, 0, 0]
    assert placed(blocks, 2, near(required="rack")) == [0, 0, 2, 0]


def test_under_kai_what_the_pods_prefer_comes_before_the_preferred_domain():
    here = Requirement(HOST, "In", ("0-0-0",))
    wishes = Constraints(preferred_nodes=(NodeTerm((here,), weight=100),))
    wish = near(required="block", preferred="rack")
    assert packed([[[1], [3]]], (4, wish)) == [1, 3]
    assert packed([[[1], [2], [3]]], (4, wish), constraints=wishes) == [1, 0, 3]


def test_under_kai_slices_stay_whole():
    wish = near(required="rack", slices=[("host", 2)])
    assert packed([[[3, 3, 2]]], (6, wish)) == [2, 2, 2]


def test_a_gang_that_the_cluster_has_no_room_for_is_refused_by_counts_alone(monkeypatch):
    core = cluster([[[1, 1], [1]], [[2]]])
    monkeypatch.setattr(domain_places, "find", None)
    gang(core, "gang", ("w", 6, near(required="rack")))
    assert why(core).startswith(
        "of 3 domains of level rack the best, b0/r0, has places for 2 of 6 members"
    )
    gang(core, "parts", *((f"p{at}", 2, near(required="rack")) for at in range(3)))
    assert why(core, "parts").startswith("the whole gang needs 0.006 vcore, and the nodes together")
    monkeypatch.undo()
    node(core, "more", {"block": "b0", "rack": "r2", HOST: "more"}, 2)
    assert sum(counts(core, "parts")) == 6
    core.check()


def test_a_part_that_may_use_fewer_nodes_is_not_missed_for_want_of_its_turn():
    core = cluster([[]])
    for name, size, kind in (("a", 5, "x"), ("b", 2, "x"), ("c", 5, "y")):
        labels = {"block": "b", "rack": "r", HOST: name, "kind": kind}
        info = NodeInfo(name, NodeAction.CREATE, {"vcore": size, "memory": 5}, labels=labels)
        core.update(nodes=(info,))
    chosen = Constraints(node_selector=(("kind", "x"),))
    layout = (SubGroup("p", "", 3), SubGroup("q", "", 3))
    asks = [member(f"p{at}", "p", {"vcore": 1, "memory": 1}, chosen) for at in range(3)]
    asks += [member(f"q{at}", "q", {"vcore": 2, "memory": 1}) for at in range(3)]
    terms = GangSettings(layout=layout, topology=near(required="rack"))
    total = {"vcore": 9, "memory": 6}
    request = AddApplicationRequest("gang", "root.default", placeholder_ask=total, gang=terms)
    core.update(new_applications=(request,), asks=tuple(asks))
    assert sum(counts(core)) == 6
    core.check()


def member(key, part, resource, constraints=NO_CONSTRAINTS):
    return AllocationAsk(
        key, "gang", resource, placeholder=True, task_group_name=part, constraints=constraints
    )


def test_slices_that_need_a_whole_node_are_not_missed_for_those_that_need_a_rack():
    core = cluster([[[4, 1], [2, 3], [2, 1]]])
    two = {"vcore": 2}
    gang(core, "gang", ("p", 2, near(slices=[("rack", 2)]), two),
         ("q", 2, near(slices=[("host", 2)]), two), ("r", 1, near(), two),
         above=near(required="block"))  # fmt: skip
    assert counts(core) == [2, 0, 1, 1, 1, 0]


def test_pods_that_affinity_keeps_together_begin_in_each_of_its_domains():
    core = cluster([[[3, 3], [2, 1]]], settings=(("policy", "kai"),))  # the smallest node first
    term = PodTerm("rack", (Requirement("job", "In", ("g",)),))
    together = Constraints(pod_affinity=(term,), namespace="ns")
    tags = {"kubernetes.io/label/job": "g", "kubernetes.io/meta/namespace": "ns"}
    gang(core, "gang", ("w", 5, near(required="block")), constraints=together, tags=tags)
    assert sum(counts(core)) == 5
    core.check()


def subgroups(blocks, sizes, least, policy, above="", vcore=1):
    """Return how many pods start of a gang that needs some of its subgroups: (pods, level) each."""
    core = cluster(blocks, settings=(("policy", policy),))
    parts = tuple(SubGroup(name, "", size, topology=near(required=level))
                  for name, (size, level) in sizes.items())  # fmt: skip
    terms = GangSettings(parts, least, near(required=above))
    asks = [AllocationAsk(f"{name}{at}", "gang", {"vcore": vcore}, task_group_name=name)
            for name, (size, _) in sizes.items() for at in range(size)]  # fmt: skip
    request = AddApplicationRequest("gang", "root.default", gang=terms)
    core.update(new_applications=(request,), asks=tuple(asks))
    core.check()
    return sum(counts(core))


@pytest.mark.parametrize("policy", ["yunikorn", "kai"])
def test_any_of_its_subgroups_start_that_have_places_together(policy):
    sizes = {"a": (3, "rack"), "b": (2, "rack"), "c": (3, "rack"), "d": (1, "rack")}
    assert subgroups([[[1, 3, 5], [2]]], sizes, 2, policy, vcore=2) == 3
    sizes = {"a": (4, ""), "b": (4, "host"), "c": (3, "host")}
    assert subgroups([[[1, 1], [4], [1]]], sizes, 2, policy, above="block") == 7
