"""Cases Q: shares, order, headroom, priority, templates."""

from dataclasses import replace

import pytest

from services.core.scheduler.model.priority_counts import NO_PRIORITY
from services.core.scheduler.model.queue_settings import QueueSettings, inheritable, settings_of
from services.core.scheduler.model.rows import Node, Queue
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.ordering.turns import fair_max_of, fair_share, order_of_children
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from shared.messages.state import StateDelta
from shared.model.duration import go_duration, parse_go_duration
from shared.model.names import BINPACKING, FAIR
from shared.queueconfig import QueueConfigError, load_configuration
from tests.builders import Core, config_of, section
from tests.table import each_row
from tests.victims import eligible_keys

NODE = {"vcore": 100_000, "memory": 100_000, "pods": 1000}
ONE = {"vcore": 1000, "pods": 1}


def order_of(
    queues: dict[str, tuple[int, int, int]], *, priority: bool
) -> tuple[list[str], dict[str, float]]:
    """Return names in order, and every share; a queue is (guaranteed, allocated, priority)."""
    root = Queue("root", is_leaf=False, settings=QueueSettings(priority_sorting=priority))
    for name, (guaranteed, allocated, waiting) in queues.items():
        child = root.children[name] = Queue(name, root)
        child.guaranteed_resource = {"memory": guaranteed}
        child.allocated = {"memory": allocated}
        child.change_priority(NO_PRIORITY, waiting)
    ordered = sorted(root.children.values(), key=order_of_children(root))
    shares = {name: fair_share(child, fair_max_of(child)) for name, child in root.children.items()}
    return [queue.name for queue in ordered], shares


GUARANTEED = (500, 300, 200, 200)
PRIORITIES = (1, 1, 1, 3)


@each_row(
    ("allocated", "ratios", "priority", "expected"),
    [
        ((300, 200, 100, 100), (0.6, 2 / 3, 0.5, 0.5), False, ["q3", "q2", "q0", "q1"]),  # Q-01
        ((200, 300, 100, 100), (0.4, 1.0, 0.5, 0.5), False, ["q0", "q3", "q2", "q1"]),  # Q-02
        ((200, 300, 100, 100), (0.4, 1.0, 0.5, 0.5), True, ["q3", "q0", "q2", "q1"]),
        ((150, 120, 100, 100), (0.3, 0.4, 0.5, 0.5), False, ["q0", "q1", "q3", "q2"]),
        ((150, 120, 100, 100), (0.3, 0.4, 0.5, 0.5), True, ["q3", "q0", "q1", "q2"]),
    ],
)
def test_q_01_q_02_queues_by_share_and_priority(allocated, ratios, priority, expected):
    queues = {
        f"q{at}": (GUARANTEED[at], allocated[at], PRIORITIES[at]) for at in range(len(allocated))
    }
    order, shares = order_of(queues, priority=priority)
    assert order == expected
    assert tuple(shares.values()) == ratios


def leaf_with_applications(properties: str, asks: list[list[int]]) -> Core:
    """Return a core with applications 0, 1, ... in root.a, each with asks of these priorities."""
    core = Core(config_of("{name: a, properties: {%s}}" % properties))
    for number, priorities in enumerate(asks):
        core.now_ns += 1_000_000_000
        core.application(f"{number}", "root.a")
        for at, priority in enumerate(priorities):
            core.asks(f"{number}", [f"{number}-{at}"], ONE, priority=priority)
    return core


def served(core: Core) -> list[str]:
    """Return the applications in the order in which their asks are placed."""
    responses = core.node("n1", **NODE)
    placed = [a.application_id for r in responses for a in r.new_allocations]
    return list(dict.fromkeys(placed))


def test_q_04_fifo_is_the_order_of_submission():
    assert served(leaf_with_applications("", [[0], [0], [0], [0]])) == ["0", "1", "2", "3"]


def test_q_04_without_priority_it_only_breaks_ties():
    core = Core(config_of("{name: a, properties: {application.sort.priority: disabled}}"))
    core.application("0", "root.a", submission_time_ns=1)
    for name, more in (("1", {"priority": 3}), ("2", {}), ("3", {"priority": 5})):
        core.application(name, "root.a", submission_time_ns=2)
        core.asks(name, [f"{name}-k"], ONE, **more)
    core.asks("0", ["0-k"], ONE)
    assert served(core) == ["0", "3", "1", "2"]


def test_q_05_with_priority_it_comes_first():
    assert served(leaf_with_applications("", [[0], [5], [0], [4]])) == ["1", "3", "0", "2"]


@each_row("priority", ["enabled", "disabled"])
@each_row("kind", ["ask", "real", "placeholder"])
def test_the_submission_is_no_later_than_anything_that_was_created_for_it(kind, priority):
    """docs/rules/scheduling.md#order-of-applications: the application, every ask, every existing allocation; the oldest counts."""
    core = Core(config_of("{name: a, properties: {application.sort.priority: %s}}" % priority))
    core.node("n0", memory=1)  # which holds what exists, and nothing new
    for name, submitted_ns in (("younger", 300), ("older", 200)):
        core.application(name, "root.a", submission_time_ns=submitted_ns)
        core.asks(name, [f"{name}-k"], ONE, create_time_ns=250)
    younger, older = (core.partition.applications[name] for name in ("younger", "older"))
    assert (younger.submission_time_ns, older.submission_time_ns) == (250, 200)
    if kind == "ask":
        core.asks("younger", ["younger-old"], ONE, create_time_ns=100)
    else:
        existing = Allocation("e", "younger", "n0", ONE, create_time_ns=100, task_group_name="tg")
        core.update(allocations=(replace(existing, placeholder=kind == "placeholder"),))
    assert younger.submission_time_ns == 100
    told = [
        app
        for item in core.answers
        if isinstance(item.message, StateDelta)
        for app in item.message.applications
    ]
    assert [app.submission_time_ns for app in told if app.application_id == "younger"][-1] == 100
    assert served(core)[0] == "younger"
    core.check()


def test_an_allocation_of_unknown_age_or_a_later_one_moves_no_submission():
    core = Core(config_of("{name: a}"))
    core.node("n0", vcore=3000, pods=3)
    core.application("app", "root.a", submission_time_ns=100)
    for key, created_ns in (("unknown", 0), ("later", 101)):
        core.update(allocations=(Allocation(key, "app", "n0", ONE, create_time_ns=created_ns),))
    assert core.partition.applications["app"].submission_time_ns == 100


def test_the_order_of_submission_outlives_a_restart():
    core = Core(config_of("{name: a}"))
    core.epoch = 2
    core.send(SyncBegin(config_of("{name: a}")))
    core.node("n0", memory=1)
    for name, submitted_ns in (("second", 200), ("first", 300)):
        core.application(name, "root.a", submission_time_ns=submitted_ns)
    core.update(allocations=(Allocation("e", "first", "n0", ONE, create_time_ns=100),))
    for name in ("second", "first"):
        core.asks(name, [f"{name}-k"], ONE, create_time_ns=400)
    core.send(SyncEnd(1, 1, 2))
    assert served(core) == ["first", "second"]


def test_q_07_applications_without_asks_are_no_candidates():
    core = leaf_with_applications("", [[], []])
    leaf = core.partition.queues["root.a"]
    core.node("n0", vcore=0, pods=1)

    def candidates():
        groups = [group for bucket in leaf.buckets.values() for group in bucket.groups]
        return sorted({group.application.id for group in groups})

    assert candidates() == []
    core.asks("1", ["k"], ONE)
    assert candidates() == ["1"]


@each_row(
    ("allocated", "guaranteed", "fair_max", "share"),
    [
        ({"vcores": 100, "memory": 2500}, {"vcores": 1000, "memory": 5000}, {}, 0.5),
        ({"vcores": 10}, {"vcores": 0}, {}, 1.0),
        ({"vcores": 0, "memory": 1000}, {"vcores": 0, "memory": 5000}, {}, 0.2),
        ({"vcores": 10}, {}, {"vcores": 0}, 1.0),
        ({"vcores": -10}, {"vcores": 5}, {}, 0.0),
        ({"vcores": -10, "memory": 1000}, {"vcores": 5, "memory": 5000}, {}, 0.2),
        ({}, {"vcores": 5}, {"vcores": 5}, 0.0),
    ],
)
def test_q_08_fair_share(allocated, guaranteed, fair_max, share):
    queue = Queue("q", allocated=allocated, guaranteed_resource=guaranteed)
    assert fair_share(queue, fair_max) == share


@each_row(
    ("cluster", "tiers", "expected"),
    [
        ({"vcore": 1000}, [{"vcore": 800}, {"vcore": 1200}], [{"vcore": 800}, {"vcore": 1200}]),
        ({"vcore": 1000}, [{"vcore": 1200}, {"vcore": 800}], [{"vcore": 1200}, {"vcore": 800}]),
        ({"vcore": 1000}, [None, None], [{"vcore": 1000}, {"vcore": 1000}]),
        ({"vcore": 1000}, [{"vcore": 800}, None], [{"vcore": 800}, {"vcore": 800}]),
        (
            {"vcore": 1000},
            [{"nvidia.com/gpu": 100}],
            [{"vcore": 1000, "nvidia.com/gpu": 100}],
        ),
        (
            {"vcore": 1000, "memory": 5},
            [{"nvidia.com/gpu": 0}, {"memory": 3}],
            [
                {"vcore": 1000, "memory": 5, "nvidia.com/gpu": 0},
                {"vcore": 1000, "memory": 3, "nvidia.com/gpu": 0},
            ],
        ),
        ({"vcore": 1000}, [{"vcore": 0}], [{"vcore": 0}]),
        (None, [{"vcore": 800}, None], [{"vcore": 800}, {"vcore": 800}]),
        (None, [None], [{}]),
    ],
)
def test_q_10_fair_max_is_overwritten_on_the_way_down(cluster, tiers, expected):
    queue = Queue("root", is_leaf=False, max_resource=cluster)
    found = []
    for tier in tiers:
        queue = Queue("t", queue, max_resource=tier)
        found.append(fair_max_of(queue))
    assert found == expected


def test_q_10_the_clusters_own_zeros_are_left_out():
    core = Core(config_of("{name: a}"))
    core.node("n1", **{"vcore": 1000, "ephemeral-storage": 0})
    assert fair_max_of(core.partition.root) == {"vcore": 1000}


def test_q_11_headroom():
    root = Queue("root", is_leaf=False, max_resource={"memory": 20, "vcore": 10})
    parent = Queue("p", root, is_leaf=False, max_resource={"memory": 20, "vcore": 8})
    leaves = [Queue(name, parent) for name in ("a", "b")]
    for leaf in leaves:
        leaf.allocate({"memory": 5, "vcore": 3})
    assert root.headroom() == {"memory": 10, "vcore": 4}
    assert parent.headroom() == {"memory": 10, "vcore": 2}
    assert [leaf.headroom() for leaf in leaves] == [{"memory": 10, "vcore": 2}] * 2


def test_q_13_effective_max():
    root = Queue("root", is_leaf=False, max_resource={"first": 10, "second": 5})
    leaf = Queue("leaf", root, max_resource={"first": 5, "second": 10})
    assert leaf.effective_max() == {"first": 5, "second": 5}
    parent = Queue("p2", root, is_leaf=False, max_resource={"third": 2})
    assert parent.effective_max() == {"first": 10, "second": 5, "third": 2}
    leaf2 = Queue("leaf2", parent, max_resource={"first": 5, "second": 10})
    assert leaf2.effective_max() == {"first": 5, "second": 5, "third": 2}


def test_q_14_offsets_add_up_on_the_way():
    core = Core(
        config_of(
            "{name: p, properties: {priority.offset: '5'}, "
            "queues: [{name: leaf, properties: {priority.offset: '3'}}]}"
        )
    )
    parent, leaf = (core.partition.queues[path] for path in ("root.p", "root.p.leaf"))
    assert (leaf.current_priority, parent.current_priority) == (NO_PRIORITY, NO_PRIORITY)
    core.application("app", "root.p.leaf")
    core.asks("app", ["zero"], ONE, priority=0)
    assert (leaf.current_priority, parent.current_priority) == (3, 8)
    core.asks("app", ["five"], ONE, priority=5)
    assert (leaf.current_priority, parent.current_priority) == (8, 13)
    release = AllocationRelease("app", "five", TerminationType.STOPPED_BY_RM)
    core.update(releases=(release,))
    assert (leaf.current_priority, parent.current_priority) == (3, 8)
    core.update(releases=(AllocationRelease("app", "zero", TerminationType.STOPPED_BY_RM),))
    assert (leaf.current_priority, parent.current_priority) == (NO_PRIORITY, NO_PRIORITY)
    core.check()


@pytest.mark.parametrize(
    ("offset", "policy", "asked", "shown"),
    [
        ("2147483647", "default", 10, 2**31 - 1),
        ("-2147483648", "default", -10, -(2**31)),
        ("7", "fence", 1000, 7),
        ("", "fence", 1000, 0),
        ("2147483648", "default", 1, 1),  # no int32: the default
        ("five", "default", 1, 1),
    ],
)
def test_offsets_are_clamped_and_a_fence_shows_its_offset(offset, policy, asked, shown):
    core = Core(
        config_of(
            "{name: a, properties: {priority.offset: '%s', priority.policy: %s}}" % (offset, policy)
        )
    )
    core.application("app", "root.a")
    core.asks("app", ["k"], ONE, priority=asked)
    assert core.partition.queues["root.a"].current_priority == shown
    core.check()


@pytest.mark.parametrize(
    "properties",
    [
        "priority.offset: '7'",
        "priority.offset: '-2147483648'",
        "priority.policy: fence",
        "priority.policy: fence, priority.offset: '1000', preemption.policy: fence",
    ],
)
def test_offset_and_fence_of_the_root_change_nothing(properties):
    """Neither what is shown, nor the order, nor who may be preempted: as without them."""
    plain, core = (
        Core(config_of(*ROOT_LEAVES).replace("submitacl: '*'", f"submitacl: '*'{more}"))
        for more in ("", f", properties: {{{properties}}}")
    )
    for each in (plain, core):
        each.node("n1", vcore=3000, pods=10)
        each.application("low", "root.low")
        each.asks("low", ["low-1", "low-2", "low-3"], ONE, priority=1)
        each.application("high", "root.high")
        each.asks("high", ["high-1"], ONE, priority=50)
        each.application("other", "root.low")
        each.asks("other", ["other-1"], ONE, priority=90)
        each.check()
    assert shown(core) == shown(plain)
    assert core.partition.root.current_priority == 85
    found = [victims_for(each, "high", "high-1") for each in (plain, core)]
    assert found[0] == found[1] == ["low-1", "low-2", "low-3"]


ROOT_LEAVES = (
    "{name: low, properties: {priority.offset: '-5'}}",
    "{name: high, properties: {priority.offset: '5'}, resources: {guaranteed: {vcore: 1}}}",
)


def shown(core: Core) -> dict[str, tuple[int, int, bool]]:
    queues = core.partition.queues
    return {
        path: (
            queue.current_priority,
            queue.settings.priority_offset,
            queue.settings.priority_fence,
        )
        for path, queue in queues.items()
    }


def victims_for(core: Core, application: str, key: str) -> list[str]:
    owner = core.partition.applications[application]
    ask = next(ask for ask in owner.asks() if ask.key == key)
    return eligible_keys(core.partition, ask)


def test_a_reload_shows_the_new_offset_at_once():
    core = Core(config_of("{name: a, properties: {priority.offset: '5'}}"))
    core.application("app", "root.a")
    core.asks("app", ["k"], ONE, priority=1)
    assert core.partition.root.current_priority == 6
    from shared.messages.interface import UpdateConfiguration

    core.send(UpdateConfiguration(config_of("{name: a, properties: {priority.policy: fence}}")))
    assert core.partition.root.current_priority == 0
    core.check()


def test_q_16_the_highest_ask_priority_follows_the_asks():
    core = Core(config_of("{name: a}"))
    core.application("app", "root.a")
    app = core.partition.applications["app"]
    seen = []
    for key, priority in (("ten", 10), ("five", 5), ("fifteen", 15)):
        core.asks("app", [key], ONE, priority=priority)
        seen.append(app.max_priority)
    for key in ("ten", "fifteen"):
        core.update(releases=(AllocationRelease("app", key, TerminationType.STOPPED_BY_RM),))
        seen.append(app.max_priority)
    assert seen == [10, 10, 15, 15, 5]
    core.node("n1", **NODE)
    assert app.max_priority == NO_PRIORITY
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    failed = AllocationRelease("app", "five", TerminationType.SCHEDULING_FAILED_ON_RM)
    core.update(releases=(failed,))
    assert app.max_priority == 5  # deallocated: it waits again


def test_q_17_what_a_child_inherits():
    inherited = inheritable(
        {
            "priority.policy": "fence",
            "priority.offset": "5",
            "preemption.policy": "fence",
            "application.sort.policy": "fair",
            "application.sort.priority": "disabled",
            "own": "x",
        }
    )
    assert inherited == {
        "priority.policy": "default",
        "priority.offset": "0",
        "preemption.policy": "default",
        "application.sort.policy": "fair",
        "application.sort.priority": "disabled",
        "own": "x",
    }
    assert inheritable({"preemption.policy": "disabled"}) == {"preemption.policy": "disabled"}
    assert inheritable({"application.sort.priority": "Enabled"}) == {
        "application.sort.priority": "Enabled"
    }
    assert inheritable({"preemption.policy": "Disabled"}) == {"preemption.policy": "Disabled"}


def test_q_17_what_a_child_says_itself_wins():
    core = Core(
        config_of(
            "{name: p, properties: {mine: up, both: up, priority.policy: fence, priority.offset: '5', "
            "preemption.policy: fence}, queues: [{name: plain}, {name: own, properties: {both: down, "
            "priority.policy: fence, priority.offset: '7', preemption.policy: fence}}]}"
        )
    )
    plain, own = (core.partition.queues[f"root.p.{name}"] for name in ("plain", "own"))
    assert plain.properties == {
        "mine": "up", "both": "up", "priority.policy": "default", "priority.offset": "0",
        "preemption.policy": "default",
    }  # fmt: skip
    assert own.properties == {
        "mine": "up", "both": "down", "priority.policy": "fence", "priority.offset": "7",
        "preemption.policy": "fence",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("used", "fair", "packed"), [((500, 12_000), 0.35, 0.65), ((1500, 4000), 0.65, 0.35)]
)
def test_q_19_node_scores(used, fair, packed):
    table = NodeTable()
    node = Node("n", 0, {"vcore": 2000, "memory": 16_000}, {}, {}, (), schedulable=True)
    table.add(node)
    node.occupied = {"vcore": used[0], "memory": used[1]}
    table.set_policy(FAIR, {"vcore": 4.0, "memory": 1.0})
    assert table.order.of_node(node, None) == pytest.approx(fair)
    table.set_policy(BINPACKING, {"vcore": 4.0, "memory": 1.0})
    assert table.order.of_node(node, None) == pytest.approx(packed)


@pytest.mark.parametrize(("policy", "first"), [("fair", "n1"), ("binpacking", "n2")])
def test_q_19_the_order_of_nodes_flips_with_the_policy(policy, first):
    text = config_of("{name: a}").removesuffix("}]")
    weights = "{vcore: 4.0, memory: 1.0}"
    core = Core(f"{text}, nodesortpolicy: {{type: {policy}, resourceweights: {weights}}}}}]")
    core.application("app", "root.a")
    used = {"n1": {"vcore": 500, "memory": 12_000}, "n2": {"vcore": 1500, "memory": 4000}}
    for name, amount in used.items():
        core.node(name, vcore=2000, memory=16_000, pods=10)
        core.update(allocations=(Allocation(f"used-{name}", "app", name, amount),))
    responses = core.asks("app", ["k"], {"vcore": 1, "memory": 1})
    assert [item.node_id for item in section(responses, "new_allocations")] == [first]


@pytest.mark.parametrize(("policy", "score"), [(FAIR, 0.0), (BINPACKING, 1.0)])
def test_q_20_weights(policy, score):
    table = NodeTable()
    table.set_policy(policy, {})
    assert table.order.weights == {"vcore": 1.0, "memory": 1.0}
    table.set_policy(policy, {"gpu": 1.0})
    assert table.order.weights == {"gpu": 1.0}
    for capacity in ({"vcore": 1}, {"vcore": 1, "gpu": 0}):
        assert (
            table.order.of_node(Node("n", 0, capacity, {}, {}, (), schedulable=True), None) == score
        )


def test_q_20_a_negative_weight_is_refused():
    text = config_of("{name: a}").removesuffix("}]")
    with pytest.raises(QueueConfigError, match="negative resource weight for vcore"):
        load_configuration(f"{text}, nodesortpolicy: {{resourceweights: {{vcore: -1.0}}}}}}]")


def with_template(resources: str) -> Core:
    return Core(
        "partitions: [{name: default, placementrules: [{name: provided, create: true}], "
        "queues: [{name: root, submitacl: '*', properties: {application.sort.policy: fair}, "
        "childtemplate: {maxapplications: 1, properties: {priority.offset: '4', '': x, y: ''}, "
        f"resources: {resources}}}, queues: [{{name: configured}}]}}]}}]"
    )


def test_q_22_a_template_is_what_a_dynamic_leaf_starts_with():
    core = with_template("{max: {vcore: 10, memory: 5G}, guaranteed: {vcore: 2, memory: 1G}}")
    core.application("a", "root.dynamic")
    core.application("b", "root.parent.dynamic")
    for path in ("root.dynamic", "root.parent.dynamic"):
        leaf = core.partition.queues[path]
        assert leaf.max_applications == 1
        assert leaf.max_resource == {"vcore": 10_000, "memory": 5 * 10**9}
        assert leaf.guaranteed_resource == {"vcore": 2000, "memory": 10**9}
        assert leaf.properties == {"priority.offset": "4"}
        assert leaf.settings == settings_of({"priority.offset": "4"})
    for path in ("root.configured", "root.parent"):  # one that the file names; no leaf
        queue = core.partition.queues[path]
        assert (queue.max_applications, queue.max_resource) == (0, None)
        assert queue.guaranteed_resource is None


def test_q_22_what_is_all_zero_in_a_template_is_not_set():
    core = with_template("{max: {vcore: 0, memory: 0}, guaranteed: {vcore: 0}}")
    core.application("a", "root.dynamic")
    leaf = core.partition.queues["root.dynamic"]
    assert (leaf.max_resource, leaf.guaranteed_resource) == (None, None)
    assert leaf.max_applications == 1


@each_row(
    ("text", "nanoseconds"),
    [
        ("10s", 10_000_000_000),
        ("1m30s", 90_000_000_000),
        ("500ms", 500_000_000),
        ("1.5h", 5_400_000_000_000),
        ("30", None),
        ("", None),
        ("-1s", None),
        ("1d", None),
    ],
)
def test_go_durations(text, nanoseconds):
    assert parse_go_duration(text) == nanoseconds


@each_row("text", ["0s", "30s", "1m30s", "500ms", "1.5s", "2h0m0s", "10µs"])
def test_go_durations_print_as_go_does(text):
    nanoseconds = parse_go_duration(text)
    assert nanoseconds is not None
    assert go_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("policy", "placed"),
    [
        ("fair", ["a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1", "a2"]),
        ("fifo", ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2", "b3"]),
    ],
)
def test_asks_that_come_at_once_are_placed_in_the_order_of_their_leaf(policy, placed):
    """They are placed in one run, which orders its applications itself."""
    core = Core(config_of("{name: a, properties: {application.sort.policy: %s}}" % policy))
    core.node("n", vcore=13)
    for name in "abcd":
        core.application(name, "root.a")
        core.asks(name, [f"{name}-first"], {"vcore": 1})
    asks = [AllocationAsk(f"{name}{at}", name, {"vcore": 1}) for at in range(5) for name in "dcba"]
    told = core.update(asks=tuple(asks))
    core.check()
    assert [item.allocation_key for item in section(told, "new_allocations")] == placed


@pytest.mark.parametrize(("policy", "first"), [("fair", "b"), ("fifo", "a")])
def test_room_that_comes_goes_to_who_uses_least_by_now(policy, first):
    core = Core(config_of("{name: a, properties: {application.sort.policy: %s}}" % policy))
    core.node("n", vcore=3)
    for name, vcore in (("a", 1), ("b", 2)):
        core.application(name, "root.a")
        core.asks(name, [f"{name}0"], {"vcore": vcore})
    for name in "ab":
        core.asks(name, [f"{name}-waits"], {"vcore": 2})
    stopped = AllocationRelease("b", "b0", TerminationType.STOPPED_BY_RM)
    told = core.update(releases=(stopped,))
    core.check()
    placed = [item.allocation_key for item in section(told, "new_allocations")]
    assert placed == [f"{first}-waits"]


def test_an_application_that_is_older_by_a_pod_that_is_found_goes_first():
    core = Core(config_of("{name: a}"))
    core.node("n1", vcore=3000, pods=9)
    core.application("old", "root.a", submission_time_ns=1)
    core.asks("old", ["room"], {"vcore": 2000, "pods": 1})
    core.application("app2", "root.a", submission_time_ns=50)
    core.application("app1", "root.a", submission_time_ns=1000)
    for name in ("app2", "app1"):
        core.asks(name, [f"{name}-0"], {"vcore": 2000, "pods": 1})
    found = Allocation("found", "app1", "n1", {"vcore": 1000, "pods": 1}, create_time_ns=30)
    core.update(allocations=(found,))
    core.check()
    assert allocated_when_ends(core, "old", "room") == ["app1-0"]


def test_an_application_whose_first_ask_was_bound_by_another_has_the_place_of_the_next():
    """The ask of high priority is not waiting any more: the application goes as the others ask."""
    core = Core(config_of("{name: a}"))
    core.node("n1", vcore=3000, pods=9)
    core.application("old", "root.a", submission_time_ns=1)
    core.asks("old", ["room"], {"vcore": 2000, "pods": 1})
    core.application("app2", "root.a", submission_time_ns=50)
    core.application("app1", "root.a", submission_time_ns=1000)
    core.update(allocations=(Allocation("runs", "app1", "n1", {"vcore": 500, "pods": 1}),))
    core.asks("app2", ["two"], {"vcore": 1900, "pods": 1})
    for key, priority in (("one", 0), ("high", 5)):
        core.asks("app1", [key], {"vcore": 2000, "pods": 1}, priority=priority)
    bound = Allocation("high", "app1", "n1", {"vcore": 500, "pods": 1}, priority=5)
    core.update(allocations=(bound,))
    core.check()
    assert allocated_when_ends(core, "old", "room") == ["two"]


def allocated_when_ends(core, application, key):
    """End a pod; return which asks were allocated in the room that it left."""
    gone = AllocationRelease(application, key, TerminationType.STOPPED_BY_RM)
    found = section(core.update(releases=(gone,)), "new_allocations")
    core.check()
    return [allocation.allocation_key for allocation in found]


def test_a_queue_without_a_guarantee_is_compared_by_its_share_of_the_most_that_it_may_have():
    leaves = [
        "{name: a, resources: {guaranteed: {vcore: 10m}}}",
        "{name: b, resources: {guaranteed: {vcore: 2m}}}",
        "{name: c}",
        "{name: d}",
    ]
    for asking, first in (("abc", "c"), ("ab", "a"), ("b", "b")):
        fair = "properties: {application.sort.policy: fair}, queues: [{name: a"
        core = Core(config_of(*leaves).replace("queues: [{name: a", fair))
        core.node("n", vcore=100)
        for name, pods in (("a", 5), ("b", 2), ("c", 1), ("d", 92)):
            core.application(name, f"root.{name}")
            core.asks(name, [f"{name}{at}" for at in range(pods)], {"vcore": 1})
        for name in asking:
            core.asks(name, [f"{name}-next"], {"vcore": 1})
        stopped = AllocationRelease("d", "d0", TerminationType.STOPPED_BY_RM)
        core.update(releases=(stopped,))
        running = core.partition.applications[first].allocations
        assert f"{first}-next" in running, asking
