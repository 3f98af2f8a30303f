"""Cases F, and pods that change size or cannot be bound, through the scheduler."""

from dataclasses import replace

import pytest

from services.api.projection.projection import Projection
from services.api.yunikorn.answers import node_info
from shared.messages.constraints import Constraints, HostPort
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
)
from shared.messages.state import SnapshotRequest, StateDelta
from tests.builders import Core, config_of, envelope, section
from tests.table import each_row

FAILED = TerminationType.SCHEDULING_FAILED_ON_RM


def foreign(key: str, node: str, kind: str = "default", priority: int = 0, **resource: int):
    return Allocation(key, "", node, resource, priority=priority, allocation_tags={"foreign": kind})


def projected(core: Core) -> Projection:
    """Return what the API knows from the state events so far."""
    projection = Projection("api-test")
    for item in core.answers:
        if isinstance(item.message, StateDelta):
            projection.handle(envelope(item.message, epoch=item.epoch, seq=item.seq), core.now_ns)
    return projection


def test_f_01_a_foreign_pod_occupies_its_node_and_nothing_else():
    core = Core(config_of("{name: a}"))
    core.node("node-1", memory=100, vcore=10)
    node = core.partition.nodes.nodes["node-1"]
    assert core.update(allocations=(foreign("f-1", "node-1", memory=80, vcore=5),)) == []
    assert node.occupied == {"memory": 80, "vcore": 5}
    assert node.available["memory"] == 20
    assert node.allocated == {}
    core.update(allocations=(foreign("f-1", "node-1", memory=50, vcore=10),))
    assert node.occupied == {"memory": 50, "vcore": 10}
    assert node.available["memory"] == 50
    core.check()
    gone = AllocationRelease("", "f-1", TerminationType.STOPPED_BY_RM)
    assert core.update(releases=(gone,)) == []
    assert node.occupied == {}
    assert node.available["memory"] == 100
    assert core.partition.root.allocated == {}
    core.check()


def placed_on(core: Core, key: str) -> str:
    """Return the node on which a new ask is placed."""
    responses = core.asks("app", [key], {"memory": 1})
    return section(responses, "new_allocations")[0].node_id


@pytest.mark.parametrize("policy", ["fair", "binpacking"])
def test_a_foreign_pod_moves_its_node_in_the_order_at_once(policy):
    """Otherwise than docs/rules/foreign-pods.md and docs/rules/scheduling.md#order-of-nodes: added, resized or gone, the order follows (ADR 23)."""
    empty, full = ("b", "a") if policy == "fair" else ("a", "b")
    text = config_of("{name: q}").replace(
        "{name: default,", "{name: default, nodesortpolicy: {type: %s}," % policy
    )
    core = Core(text)
    core.application("app", "root.q")
    for name in ("a", "b"):
        core.node(name, memory=100)
    core.update(allocations=(foreign("f-1", "a", memory=50),))
    assert placed_on(core, "k-1") == empty
    core.update(allocations=(foreign("f-2", "b", memory=10),))
    core.update(allocations=(foreign("f-2", "b", memory=80),))
    assert placed_on(core, "k-2") == full
    core.update(releases=(AllocationRelease("", "f-2", TerminationType.STOPPED_BY_RM),))
    assert placed_on(core, "k-3") == empty
    core.check()


def test_the_order_of_nodes_is_what_their_ledgers_say_in_whatever_order_they_were_told():
    """A core that recovers hears of nodes, foreign pods and allocations in another order."""

    def tell(core: Core, *, foreign_first: bool) -> None:
        for name in ("a", "b"):
            core.node(name, memory=100)
        core.application("app", "root.q")
        items = [foreign("f", "a", memory=50), Allocation("e", "app", "b", {"memory": 20})]
        for item in items if foreign_first else reversed(items):
            core.update(allocations=(item,))

    found = []
    for foreign_first in (True, False):
        core = Core(config_of("{name: q}"))
        tell(core, foreign_first=foreign_first)
        found.append([placed_on(core, f"k-{at}") for at in range(40)])
    assert found[0] == found[1]


def test_f_02_what_is_refused_of_foreign_pods():
    core = Core(config_of("{name: a}"))
    core.node("node-1", memory=100)
    ask = AllocationAsk(
        "foreign-nonalloc", "", {"memory": 1}, allocation_tags={"foreign": "default"}
    )
    wanted = {
        "foreign-nonalloc": "trying to add a foreign request (non-allocation) foreign-nonalloc",
        "foreign-alloc-1": "node ID is empty for allocation foreign-alloc-1",
        "foreign-alloc-2": "failed to find node node-2 for allocation foreign-alloc-2",
    }
    responses = core.update(
        asks=(ask,),
        allocations=(
            foreign("foreign-alloc-1", "", memory=1),
            foreign("foreign-alloc-2", "node-2", memory=1),
        ),
    )
    found = section(responses, "rejected_allocations")
    assert {item.allocation_key: item.reason for item in found} == wanted
    core.check()


def test_f_04_the_node_answer_has_both_kinds_and_utilized_ignores_them():
    core = Core(config_of("{name: a}"))
    core.node("node_1", memory=1000, vcore=1000)
    core.application("app", "root.a")
    core.asks("app", ["a-1"], {"memory": 500, "vcore": 300})
    core.update(
        allocations=(
            foreign("foreign-1", "node_1", memory=10),
            foreign("foreign-2", "node_1", "static", 123, memory=10),
        )
    )
    model = projected(core).model
    answer = node_info(model.nodes["node_1"])
    assert [
        (item["allocationKey"], item["priority"], item.get("preemptable", False), item["nodeId"])
        for item in answer["foreignAllocations"]
    ] == [("foreign-1", "0", True, "node_1"), ("foreign-2", "123", False, "node_1")]
    tags = [item["allocationTags"] for item in answer["foreignAllocations"]]
    assert tags == [{"foreign": "default"}, {"foreign": "static"}]
    assert answer["utilized"] == {"memory": 50, "vcore": 30}
    assert answer["occupied"] == {"memory": 20}
    assert [item["allocationKey"] for item in answer["allocations"]] == ["a-1"]
    events = [e for e in model.events.read(0, 100) if e.type == 3 and e.change_detail == 303]
    assert [(e.object_id, e.reference_id, e.change_type, e.message) for e in events] == [
        ("node_1", "a-1", 2, ""),
        ("node_1", "foreign-1", 2, "foreign: default"),
        ("node_1", "foreign-2", 2, "foreign: static"),
    ]


def test_the_kind_is_settled_when_a_foreign_pod_first_comes():
    core = Core(config_of("{name: a}"))
    core.node("n", memory=100)
    core.update(allocations=(foreign("f", "n", "static", memory=1),))
    core.update(allocations=(foreign("f", "n", "default", memory=2),))
    held = core.partition.nodes.nodes["n"].foreign["f"]
    assert held.allocation_tags == {"foreign": "static"}
    assert held.resource_per_alloc == {"memory": 2}


def test_a_snapshot_has_the_foreign_pods_and_a_node_takes_its_own_with_it():
    core = Core(config_of("{name: a}"))
    core.node("n", memory=100)
    core.update(allocations=(foreign("f", "n", memory=1),))
    core.send(SnapshotRequest("late"))
    late = [i.message for i in core.answers if isinstance(i.message, StateDelta)][-1]
    assert late.reset
    assert [item.allocation_key for item in late.allocations] == ["f"]
    core.update(nodes=(NodeInfo("n", NodeAction.DECOMISSION),))
    assert core.partition.foreign == {}
    core.check()
    core.node("n", memory=100)
    assert core.update(allocations=(foreign("f", "n", memory=1),)) == []
    core.check()


def test_what_others_placed_is_not_there_to_be_taken():
    core = Core(config_of("{name: a}"))
    core.node("n", memory=100)
    core.update(allocations=(foreign("f", "n", memory=80),))
    core.application("app", "root.a")
    assert section(core.asks("app", ["a"], {"memory": 30}), "new_allocations") == []
    gone = AllocationRelease("", "f", TerminationType.STOPPED_BY_RM)
    responses = core.update(releases=(gone,))
    assert [a.allocation_key for a in section(responses, "new_allocations")] == ["a"]
    core.check()


def test_a_foreign_pod_may_take_a_node_beyond_its_capacity_and_keeps_its_host_port():
    core = Core(config_of("{name: a}"))
    core.node("n", memory=100)
    port = Constraints(host_ports=(HostPort(80),))
    held = Allocation(
        "f", "", "n", {"memory": 10}, allocation_tags={"foreign": "default"}, constraints=port
    )
    core.update(allocations=(held,))
    core.application("app", "root.a")
    waits = core.asks("app", ["a"], {"memory": 1}, constraints=port)
    assert section(waits, "new_allocations") == []
    core.update(allocations=(foreign("g", "n", memory=200),))
    node = core.partition.nodes.nodes["n"]
    assert node.available["memory"] == -110
    core.check()
    core.update(releases=(AllocationRelease("", "g", TerminationType.STOPPED_BY_RM),))
    responses = core.update(releases=(AllocationRelease("", "f", TerminationType.STOPPED_BY_RM),))
    assert [a.allocation_key for a in section(responses, "new_allocations")] == ["a"]


# --- a bind that failed -------------------------------------------------------------------------


def test_a_pod_that_could_not_be_bound_waits_again_at_its_old_place():
    core = Core(config_of("{name: a}"))
    core.node("n", memory=2)
    core.application("app", "root.a")
    responses = core.asks("app", ["a", "b", "c", "d"], {"memory": 1}, create_time_ns=5)
    assert [x.allocation_key for x in section(responses, "new_allocations")] == ["a", "b"]
    core.update(allocations=(foreign("f", "n", memory=1),))
    responses = core.update(
        releases=(AllocationRelease("app", "a", FAILED, message="OutOfmemory"),)
    )
    assert section(responses, "released_allocations") == []
    assert section(responses, "new_allocations") == []
    application = core.partition.applications["app"]
    assert application.state == "Running"
    assert application.pending == {"memory": 3}
    core.check()
    gone = AllocationRelease("", "f", TerminationType.STOPPED_BY_RM)
    responses = core.update(releases=(gone,))
    assert [x.allocation_key for x in section(responses, "new_allocations")] == ["a"]
    told = [e.message for e in projected(core).model.events.read(0, 100)]
    assert "Request 'a' could not be bound and waits again: OutOfmemory" in told


def test_a_placeholder_that_could_not_be_bound_is_asked_for_again_and_counted_once():
    core = Core()
    core.node("n", memory=4)
    core.gang("g", 3, {"memory": 1})
    application = core.partition.applications["g"]
    assert application.state == "Running"
    responses = core.update(releases=(AllocationRelease("g", "g-ph-1", FAILED),))
    assert [x.allocation_key for x in section(responses, "new_allocations")] == ["g-ph-1"]
    assert application.task_groups["tg"].count == 3
    core.check()


def test_a_placeholder_that_somebody_else_bound_is_counted_once():
    core = Core()
    core.node("n", memory=1)
    core.node("m", memory=1)
    core.gang("g", 2, {"memory": 1})
    core.update(releases=(AllocationRelease("g", "g-ph-1", FAILED),))
    application = core.partition.applications["g"]
    elsewhere = Allocation(
        "g-ph-1", "g", "n", {"memory": 1}, placeholder=True, task_group_name="tg"
    )
    core.update(allocations=(elsewhere,))
    assert application.task_groups["tg"].count == 2
    core.check()


def test_a_real_pod_that_could_not_be_bound_takes_the_place_of_the_next_placeholder():
    core = Core()
    core.node("n", memory=2)
    core.gang("g", 2, {"memory": 1})
    core.asks("g", ["r-1", "r-2"], {"memory": 1}, task_group_name="tg")
    application = core.partition.applications["g"]
    for key in ("g-ph-0", "g-ph-1"):
        core.update(releases=(AllocationRelease("g", key, TerminationType.PLACEHOLDER_REPLACED),))
    assert sorted(application.allocations) == ["r-1", "r-2"]
    responses = core.update(releases=(AllocationRelease("g", "r-1", FAILED),))
    assert [x.allocation_key for x in section(responses, "new_allocations")] == ["r-1"]
    core.check()


def test_a_failed_bind_of_what_is_being_released_confirms_the_release():
    core = Core()
    core.node("n", memory=2)
    core.gang("g", 2, {"memory": 1})
    core.asks("g", ["r-1"], {"memory": 1}, task_group_name="tg")
    assert core.partition.applications["g"].released == {"g-ph-0": "PLACEHOLDER_REPLACED"}
    responses = core.update(releases=(AllocationRelease("g", "g-ph-0", FAILED),))
    assert [x.allocation_key for x in section(responses, "new_allocations")] == ["r-1"]
    core.check()


# --- in-place resize ----------------------------------------------------------------------------


def resized(core: Core, app: str, key: str, **resource: int):
    held = core.partition.applications[app].allocations[key]
    return core.update(allocations=(Allocation(key, app, held.node_id, resource),))


def test_a_resized_pod_is_followed_by_every_ledger():
    core = Core(config_of("{name: a, limits: [{users: ['*'], maxresources: {memory: 100}}]}"))
    core.node("n", memory=100)
    core.application("app", "root.a")
    core.asks("app", ["a", "b"], {"memory": 10})
    resized(core, "app", "a", memory=25)
    core.check()
    assert core.partition.root.allocated == {"memory": 35}
    assert core.partition.nodes.nodes["n"].available["memory"] == 65
    resized(core, "app", "a", memory=5)
    core.check()
    assert core.partition.root.allocated == {"memory": 15}
    assert core.partition.applications["app"].max_allocated == {"memory": 35}


def test_a_pod_that_shrinks_lets_others_in():
    core = Core(config_of("{name: a, resources: {max: {memory: 20}}}"))
    core.node("n", memory=100)
    core.application("app", "root.a")
    core.asks("app", ["a", "b"], {"memory": 15})
    responses = resized(core, "app", "a", memory=5)
    assert [x.allocation_key for x in section(responses, "new_allocations")] == ["b"]
    core.check()


@each_row(
    ("delay", "limit", "victims"),
    [("1s", "5", 3), ("", "5", 0), ("0s", "5", 0), ("1s", "12", 0), ("1s", "", 0)],
)
def test_x_19_a_resized_allocation_counts_against_a_lowered_max(delay, limit, victims):
    def config(most: str) -> str:
        wanted = "resources: {max: {vcore: %s}}," % most if most else ""
        more = "properties: {quota.preemption.delay: %s}" % delay if delay else ""
        text = (
            "partitions: [{name: default, preemption: {enabled: true, quotapreemptionenabled: true}, queues: "
            "[{name: root, submitacl: '*', queues: [{name: a, %s %s}]}]}]"
        )
        return text % (wanted, more)

    core = Core(config("100"))
    core.node("n", vcore=100_000)
    core.application("app", "root.a")
    for at in range(1, 6):
        core.asks("app", [f"alloc-{at}"], {"vcore": 2000}, create_time_ns=at)
    core.send(UpdateConfiguration(config(limit)))
    resized(core, "app", "alloc-1", vcore=3000)
    core.now_ns += 1_100_000_000
    responses = core.fire_own("quota") if "quota" in core.partition.timers else []
    assert len(section(responses, "released_allocations")) == victims
    core.check()


# --- bound elsewhere ----------------------------------------------------------------------------


@pytest.mark.parametrize("placeholder", [False, True])
def test_a_pod_that_was_placed_again_before_the_news_where_it_is_goes_there(placeholder):
    """Seed 17: the bind was refused and decided anew; then came where another had bound it.

    The core held to its node, gave the room at the other away, and the cluster refused each bind.
    """
    core = Core(config_of("{name: a}"))
    core.node("n0", vcore=4)
    core.node("n1", vcore=4)
    if placeholder:
        core.gang("app", 1, {"vcore": 4}, queue="root.a")
        key = "app-ph-0"
    else:
        core.application("app", "root.a")
        core.asks("app", [key := "k"], {"vcore": 4})
    app = core.partition.applications["app"]
    decided = app.allocations[key]
    core.update(releases=(AllocationRelease("app", key, FAILED, message="by another"),))
    anew = app.allocations[key]
    other = {"n0": "n1", "n1": "n0"}[anew.node_id]
    nodes = core.partition.nodes.nodes
    core.update(allocations=(replace(decided, node_id=other),))
    assert [key in nodes[name].allocations for name in (other, anew.node_id)] == [True, False]
    assert app.allocations[key].node_id == other
    assert list(app.asks()) == []
    core.application("next", "root.a")
    assert placed_of(core, "next") == anew.node_id
    core.check()


def placed_of(core: Core, application: str) -> str:
    """Return the node on which an application's new ask is placed."""
    (allocation,) = section(core.asks(application, ["n"], {"vcore": 4}), "new_allocations")
    return allocation.node_id


def test_a_pod_that_is_to_go_goes_wherever_it_is():
    core = Core(config_of("{name: a}"))
    core.node("n0", vcore=4)
    core.node("n1", vcore=4)
    core.application("app", "root.a")
    core.asks("app", ["k"], {"vcore": 4})
    app = core.partition.applications["app"]
    held = app.allocations["k"]
    core.partition.mark_released(app, "k", TerminationType.TIMEOUT)
    other = {"n0": "n1", "n1": "n0"}[held.node_id]
    core.update(allocations=(replace(held, node_id=other),))
    assert app.allocations["k"].node_id == held.node_id
    gone = AllocationRelease("app", "k", TerminationType.TIMEOUT)
    core.update(releases=(gone,))
    assert app.allocations == {}
    core.check()
