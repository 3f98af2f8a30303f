"""Gangs in domains, against every placement there is: none is missed, none breaks its wish."""

from collections import Counter
from functools import cache
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.messages.interface import AllocationRelease, NodeAction, NodeInfo, TerminationType
from tests.domains import ONE, cluster, counts, gang, near

STOPPED, REPLACED = TerminationType.STOPPED_BY_RM, TerminationType.PLACEHOLDER_REPLACED

BLOCKS = st.lists(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)
LEVELS = ("block", "rack", "host")


def domains(blocks, level):
    """Return the places of the nodes in each domain of a level, as lists of racks' lists."""
    if level == "block":
        return [[*map(tuple, racks)] for racks in blocks]
    if level == "rack":
        return [[tuple(rack)] for racks in blocks for rack in racks]
    return [[(node,)] for racks in blocks for rack in racks for node in rack]


def holds(places, slices):
    """Return how many pods some racks' nodes hold in slices, each given by brute force."""
    if not slices:
        return sum(map(sum, places))
    (level, size), *rest = slices
    parts = {"block": [places], "rack": [[rack] for rack in places],
             "host": [[(node,)] for rack in places for node in rack]}[level]  # fmt: skip
    return sum(holds(part, rest) // size * size for part in parts)


SLICES = st.sampled_from(
    [(), (("rack", 2),), (("host", 2),), (("rack", 4), ("host", 2)), (("block", 4), ("rack", 2))]
)


POLICIES = st.sampled_from([(), (("policy", "kai"),)])


@given(BLOCKS, st.integers(1, 4), st.sampled_from(LEVELS), SLICES, POLICIES)
def test_like_pods_are_placed_wherever_a_domain_holds_them(blocks, parts, level, slices, policy):
    at = LEVELS.index(level)
    slices = tuple(each for each in slices if LEVELS.index(each[0]) > at)
    count = parts * (slices[0][1] if slices else 2)
    core = cluster(blocks, settings=policy)
    gang(core, "gang", ("w", count, near(required=level, slices=slices)))
    fits = any(holds(places, slices) >= count for places in domains(blocks, level))
    found = counts(core)
    assert sum(found) == (count if fits else 0)
    core.check()
    if fits:
        judge(core, level, slices)


def judge(core, level, slices):
    """Check that a gang is in one domain of a level, and every slice in one of its own."""
    nodes = sorted(core.partition.nodes.nodes)
    placed = {node: n for node, n in zip(nodes, counts(core), strict=True) if n}
    depth = {"block": 1, "rack": 2, "host": 3}
    assert len({tuple(node.split("-"))[: depth[level]] for node in placed}) == 1
    for name, size in slices:
        by = Counter()
        for node, number in placed.items():
            by[tuple(node.split("-"))[: depth[name]]] += number
        assert all(number % size == 0 for number in by.values())


@cache
def packs(racks, sizes):
    """Return whether groups of so many pods go into racks with so many places, each into one."""
    if not sizes:
        return True
    first, *rest = sizes
    return any(
        racks[at] >= first
        and packs(tuple(sorted((*racks[:at], racks[at] - first, *racks[at + 1 :]))), tuple(rest))
        for at in range(len(racks))
    )


RACKS = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=3)


@example([[10, 9]], [5, 4, 3, 3, 2, 2], ())
@example([[6, 4]], [4, 6], ())
@example([[9, 9, 9]], [7, 6, 5, 3, 3, 3], ())
@given(RACKS, st.lists(st.integers(1, 8), min_size=1, max_size=6), POLICIES)
def test_groups_of_like_pods_are_placed_wherever_their_racks_hold_them(blocks, sizes, policy):
    core = cluster([[[rack] for rack in block] for block in blocks], settings=policy)
    parts = [(f"g{at}", size, near(required="rack")) for at, size in enumerate(sizes)]
    gang(core, "gang", *parts, above=near(required="block"))
    fits = any(packs(tuple(sorted(block)), tuple(sizes)) for block in blocks)
    assert sum(counts(core)) == (sum(sizes) if fits else 0)
    core.check()


def best_of(blocks, wishes):
    """Return whether pods of one and of two places each fit in one rack, by trying every way."""
    return any(
        any(
            all(one + 2 * two <= node for one, two, node in zip(ones, twos, rack, strict=True))
            and sum(ones) == wishes[0] and sum(twos) == wishes[1]
            for ones in product(*(range(node + 1) for node in rack))
            for twos in product(*(range(node // 2 + 1) for node in rack))
        )
        for racks in blocks
        for rack in racks
    )  # fmt: skip


@settings(max_examples=60)
@given(BLOCKS, st.integers(1, 3), st.integers(1, 3), POLICIES)
def test_unlike_pods_of_one_domain_are_all_in_it_or_none_is_placed(blocks, ones, twos, policy):
    core = cluster(blocks, settings=policy)
    gang(core, "gang", ("one", ones, near()), ("two", twos, near(), {"vcore": 2}),
         above=near(required="rack"))  # fmt: skip
    fits = best_of(blocks, (ones, twos))
    total = sum(counts(core))
    assert total in ((0, ones + twos) if fits else (0,))
    assert total or not fits  # the larger first: none of so few is missed
    core.check()


STEP = st.tuples(
    st.sampled_from(["lose", "ask", "real", "drain", "open", "go", "come", "other", "timeout"]),
    st.integers(0, 7),
)


@settings(max_examples=80)
@given(
    BLOCKS,
    st.lists(STEP, max_size=25),
    st.sampled_from(["queue", "cluster", "partial"]),
    POLICIES,
)
def test_a_required_rack_is_never_broken_whatever_fails_in_whatever_order(
    blocks, steps, admission, more
):
    core = cluster(blocks, settings=(("gangAdmission", admission), *more))
    gang(core, "gang", ("w", 3, near(required="rack")))
    there = dict(core.partition.nodes.nodes)
    for number, (kind, at) in enumerate(steps):
        take_step(core, there, f"p{number}", kind, at)
        members = core.partition.applications.get("gang")
        if members is None:
            return
        nodes = {each.node_id for each in members.allocations.values()}
        assert len({name.rsplit("-", 1)[0] for name in nodes}) <= 1
        core.check()


def take_step(core, there, key, kind, at):
    """Let something happen to a gang or to its nodes."""
    name = sorted(there)[at % len(there)]
    if kind in ("drain", "open", "go", "come"):
        change_node(core, there[name], kind)
    else:
        change_gang(core, key, kind, at)


def change_gang(core, key, kind, at):
    application = core.partition.applications["gang"]
    if kind == "lose" and application.allocations:
        lost = sorted(application.allocations)[at % len(application.allocations)]
        core.update(releases=(AllocationRelease("gang", lost, STOPPED),))
    elif kind == "ask":
        core.asks("gang", [key], ONE, placeholder=True, task_group_name="w")
    elif kind == "real":
        core.asks("gang", [key], ONE, task_group_name="w")
        for each in list(application.released):
            core.update(releases=(AllocationRelease("gang", each, REPLACED),))
    elif kind == "other":
        core.application(key)
        core.asks(key, [f"{key}-0"], ONE)
    elif kind == "timeout" and any(each.startswith("placeholder") for each in application.timers):
        core.fire("gang", "placeholder")


def change_node(core, node, kind):
    action = {
        "drain": NodeAction.DRAIN_NODE,
        "open": NodeAction.DRAIN_TO_SCHEDULABLE,
        "go": NodeAction.DECOMISSION,
        "come": NodeAction.CREATE,
    }[kind]
    news = NodeInfo(node.node_id, action, dict(node.capacity), labels=node.labels)
    if kind != "come" or node.node_id not in core.partition.nodes.nodes:
        core.update(nodes=(news,))
