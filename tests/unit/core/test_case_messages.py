"""What cases G and R say of single messages, keys and their order, which no scenario sees."""

import pytest

from services.api.projection.projection import Projection
from services.api.yunikorn.answers import application_info
from services.core.scheduler.actions import cycle
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
)
from shared.messages.protocol import ContinueCycle
from shared.messages.state import StateDelta
from tests.builders import Core, config_of, envelope, section

ONE = {"vcore": 1000, "pods": 1}
TIMEOUT = TerminationType.TIMEOUT


@pytest.mark.parametrize(
    ("style", "state", "last"), [("Soft", "Resuming", "Accepted"), ("Hard", "Failing", "Failed")]
)
def test_g_10_g_11_two_allocations_and_one_ask_are_released_each_once(style, state, last):
    """One message with both lists, where YuniKorn sends two, of 2 and then 1."""
    core = Core()
    core.node("n1", vcore=4000, pods=9)
    gang = AddApplicationRequest(
        "app",
        "root.default",
        gang_scheduling_style=style,
        placeholder_ask={"vcore": 3000, "pods": 3},
    )
    nowhere = Constraints((("zone", "nowhere"),))
    asks = (
        AllocationAsk(
            "waits", "app", ONE, placeholder=True, task_group_name="tg1", constraints=nowhere
        ),
        *(
            AllocationAsk(f"held-{n}", "app", ONE, placeholder=True, task_group_name="tg2")
            for n in range(2)
        ),
    )
    core.update(new_applications=(gang,), asks=asks)
    (response,) = core.fire("app", "placeholder")
    releases, asks_released = response.released_allocations, response.released_asks
    assert [(item.allocation_key, item.termination_type) for item in releases] == [
        ("held-0", TIMEOUT),
        ("held-1", TIMEOUT),
    ]
    assert [(item.allocation_key, item.termination_type) for item in asks_released] == [
        ("waits", TIMEOUT)
    ]
    assert [item.state for item in response.updated_applications] == [state]
    app = core.partition.applications["app"]
    assert app.allocated_placeholder == {"vcore": 2000, "pods": 2}
    assert core.partition.root.pending == {}
    assert core.update(releases=(releases[0],)) == []  # until both confirms nothing follows
    assert app.state == state
    done = core.update(releases=(releases[1],))
    assert [item.state for item in section(done, "updated_applications")] == [last]
    assert section(done, "released_allocations") == []
    counts = {name: (c.count, c.timedout, c.replaced) for name, c in app.task_groups.items()}
    assert counts == {"tg1": (1, 1, 0), "tg2": (2, 2, 0)}
    core.check()


def test_g_20_three_have_used_a_placeholder_and_three_have_not():
    core = Core()
    core.node("n1", vcore=9000, pods=20)
    core.gang("app", 3, ONE)
    released = section(
        core.asks("app", [f"real-{n}" for n in range(6)], ONE, task_group_name="tg"),
        "released_allocations",
    )
    assert [item.termination_type for item in released] == ["PLACEHOLDER_REPLACED"] * 3
    core.update(releases=tuple(released))
    projection = Projection("api-test")
    for item in core.answers:
        if isinstance(item.message, StateDelta):
            projection.handle(envelope(item.message, epoch=item.epoch, seq=item.seq), core.now_ns)
    answer = application_info(projection.model, projection.model.applications["app"])
    used = {item["allocationKey"]: item.get("placeholderUsed") for item in answer["allocations"]}
    swapped = {f"real-{n}": True for n in range(3)}
    assert used == swapped | {f"real-{n}": None for n in range(3, 6)}
    (group,) = answer["placeholderData"]
    assert (group["count"], group.get("timedout", 0), group["replaced"]) == (3, 0, 3)
    core.check()


# --- reservations -------------------------------------------------------------------------------


def memory(megabytes: int) -> dict[str, int]:
    return {"memory": megabytes, "pods": 1}


def reserved(core: Core) -> dict[str, list[str]]:
    nodes = core.partition.nodes.nodes.values()
    return {node.node_id: list(node.reservations) for node in nodes if node.reservations}


def two_nodes(*leaves: str) -> Core:
    core = Core(config_of(*leaves))
    for name in ("node-1", "node-2"):
        core.node(name, memory=50, pods=100)
    return core


def test_r_01_one_reservation_a_node_and_none_when_the_application_has_gone():
    core = two_nodes("{name: leaf, resources: {max: {memory: 200}}}")
    core.application("app-1", "root.leaf")
    core.asks("app-1", [f"k{n}" for n in range(6)], memory(20))
    core.fire_own("reservation")
    app, leaf = core.partition.applications["app-1"], core.partition.queues["root.leaf"]
    assert {name: len(keys) for name, keys in reserved(core).items()} == {"node-1": 1, "node-2": 1}
    assert sorted(key for keys in reserved(core).values() for key in keys) == ["k4", "k5"]
    assert (leaf.allocated["memory"], leaf.pending["memory"]) == (80, 40)
    core.update(
        releases=tuple(
            AllocationRelease("app-1", f"k{n}", TerminationType.STOPPED_BY_RM) for n in range(6)
        )
    )
    assert (dict(app.allocations), reserved(core)) == ({}, {})
    assert (leaf.allocated, leaf.pending, core.partition.root.allocated) == ({}, {}, {})
    core.check()


def test_r_02_those_with_reservations_are_served_in_two_cycles_and_the_small_ones_in_two_more(
    monkeypatch,
):
    core = two_nodes("{name: leaf1}", "{name: leaf2}")
    core.application("app-1", "root.leaf1")
    core.asks("app-1", [f"one-{n}" for n in range(4)], memory(20))
    core.application("app-2", "root.leaf2")
    core.asks("app-2", ["two-0", "two-1"], memory(20))
    core.fire_own("reservation")
    assert sorted(key for keys in reserved(core).values() for key in keys) == ["two-0", "two-1"]
    core.application("app-3", "root.leaf2")
    assert section(core.asks("app-3", ["three-0", "three-1"], memory(5)), "new_allocations") == []
    assert core.partition.applications["app-3"].reservations == {}
    monkeypatch.setattr(cycle, "MAX_DECISIONS", 1)  # a cycle of YuniKorn's
    core.update(
        releases=tuple(
            AllocationRelease("app-1", f"one-{n}", TerminationType.STOPPED_BY_RM) for n in range(4)
        )
    )
    leaf, seen = core.partition.queues["root.leaf2"], []
    for number in range(4):
        seen.append(leaf.allocated["memory"])
        core.send(ContinueCycle(number))
    assert seen == [20, 40, 45, 50]
    assert core.partition.applications["app-2"].allocated["memory"] == 40
    assert core.partition.applications["app-3"].allocated["memory"] == 10
    assert reserved(core) == {}
    core.check()


def test_r_08_r_10_asks_that_require_a_node_stack_up_on_it_whosever_they_are(monkeypatch):
    core = Core(config_of("{name: leaf}"))
    for name in ("node-1", "node-2"):
        core.node(name, vcore=10, pods=100)
    here = Constraints(required_node="node-1")

    def ask(application: str, key: str, vcore: int):
        return core.asks(application, [key], {"vcore": vcore, "pods": 1}, constraints=here)

    core.application("app-1", "root.leaf")
    (first,) = section(ask("app-1", "first", 8), "new_allocations")
    assert (first.node_id, reserved(core)) == ("node-1", {})
    core.application("app-2", "root.leaf")
    assert section(ask("app-1", "big", 8), "new_allocations") == []
    assert section(ask("app-2", "small", 1), "new_allocations") == []  # though 2 are free
    assert reserved(core) == {"node-1": ["big", "small"]}
    core.application("app-3", "root.leaf")
    assert section(ask("app-3", "third", 1), "new_allocations") == []
    assert reserved(core) == {"node-1": ["big", "small", "third"]}
    monkeypatch.setattr(cycle, "MAX_DECISIONS", 1)
    core.update(releases=(AllocationRelease("app-1", "first", TerminationType.STOPPED_BY_RM),))
    left = []
    for number in range(3):
        left.append(reserved(core).get("node-1", []))
        core.send(ContinueCycle(number))
    assert left == [["small", "third"], ["third"], []]  # in the order in which they came
    assert core.partition.nodes.nodes["node-1"].allocated == {"vcore": 10, "pods": 3}
    core.check()


def test_r_11_a_required_node_that_is_unknown_reserves_nothing():
    core = two_nodes("{name: leaf}")
    core.application("app", "root.leaf")
    core.asks("app", ["k"], memory(1), constraints=Constraints(required_node="unknown"))
    assert reserved(core) == {}
    assert core.partition.applications["app"].allocations == {}
    core.check()
