"""In which order the policy kai has pods wait for the nodes that others leave."""

from shared.messages.constraints import NO_CONSTRAINTS, Constraints, NodeTerm, Requirement
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from tests import domains
from tests.builders import Core, section
from tests.table import each_row

SORTED = """
partitions: [{name: default, nodesortpolicy: {type: %s},
  queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]
"""
PACKED = """
partitions: [{name: default, nodesortpolicy: {type: binpacking},
  queues: [{name: root, submitacl: '*', queues: [{name: default}]}]}]
"""
N1 = Requirement("name", "In", ("n1",))
PREFERS_N1 = Constraints(preferred_nodes=(NodeTerm((N1,), weight=100),))


def cluster(policy):
    """Return a core with two full nodes: on each a low pod of three, on the larger one another."""
    core = Core(SORTED % policy, settings=(("policy", "kai"),))
    for name, vcore in (("n0", 4), ("n1", 3)):
        labels = {"name": name}
        node = NodeInfo(name, NodeAction.CREATE, {"vcore": vcore}, labels=labels)
        core.update(nodes=(node,))
        core.application(f"low-{name}", "root.a")
        core.asks(f"low-{name}", [f"low-{name}"], {"vcore": 3}, priority=1)
    core.application("stays", "root.a")
    core.asks("stays", ["stays"], {"vcore": 1}, priority=9)
    return core


def gang_of_two(core, first):
    """Submit a gang that needs both nodes; ``first`` are the constraints of its first member."""
    asks = tuple(
        AllocationAsk(
            key, "high", {"vcore": 3}, priority=9, placeholder=True, task_group_name="tg",
            constraints=constraints,
        )
        for key, constraints in (("h0", first), ("h1", NO_CONSTRAINTS))
    )  # fmt: skip
    request = AddApplicationRequest("high", "root.a", placeholder_ask={"vcore": 6})
    core.update(new_applications=(request,), asks=asks)


def places(core, name="high"):
    """Let the search run and the pods that it evicts end; return where the gang's members are."""
    looks = (section(core.fire_own("preemption"), "released_allocations") for _ in range(20))
    evicted = next(filter(None, looks))
    for item in evicted:
        why = TerminationType.PREEMPTED_BY_SCHEDULER
        core.update(releases=(AllocationRelease(item.application_id, item.allocation_key, why),))
    core.check()
    held = core.partition.applications[name].allocations.values()
    return {each.allocation_key: each.node_id for each in held}


@each_row(
    ("policy", "first", "node"),
    [
        ("binpacking", NO_CONSTRAINTS, "n0"),  # as much is left on both: by name
        ("binpacking", PREFERS_N1, "n1"),
        ("fair", NO_CONSTRAINTS, "n1"),  # all of it is left there
    ],
)
def test_members_wait_in_the_order_of_what_they_prefer_and_of_what_will_be_left(
    policy, first, node
):
    core = cluster(policy)
    gang_of_two(core, first)
    other = {"n0": "n1", "n1": "n0"}[node]
    assert places(core) == {"h0": node, "h1": other}


def full_of_low(blocks):
    """Return a core with blocks of racks of nodes with so many places, each of which is taken."""
    core = domains.cluster(blocks, settings=(("policy", "kai"),), config=PACKED)
    count = sum(sum(nodes) for racks in blocks for nodes in racks)
    core.application("low", "root.default")
    core.asks("low", [f"low-{at}" for at in range(count)], {"vcore": 1}, priority=1)
    return core


def test_members_wait_first_in_the_preferred_domain_that_will_have_the_most_room():
    core = full_of_low([[[1, 1], [2, 1], [1, 1]]])
    wish = domains.near(required="block", preferred="rack")
    domains.gang(core, "gang", ("w", 7, wish), priority=9)
    nodes = list(dict(sorted(places(core, "gang").items())).values())
    assert nodes == ["0-1-1", "0-1-0", "0-1-0", "0-2-0", "0-2-1", "0-0-0", "0-0-1"]
