"""Under kai: what queues are owed where not every one of them states a guarantee."""

from shared.messages.interface import AllocationRelease, TerminationType
from tests.builders import Core, config_of, section
from tests.table import each_row

KAI = (("policy", "kai"),)
OWED_4 = "resources: {guaranteed: {vcore: 4m}}"
NESTED = "{name: p, parent: true, queues: [{name: %s}]}"


def run_out(core: Core, looks: int = 12) -> None:
    """Let actions run; what they evict ends at once, and is asked for again by its application."""
    again = 0
    for _ in range(looks):
        if "preemption" not in core.partition.timers:
            return
        for item in section(core.fire_own("preemption"), "released_allocations"):
            why = TerminationType.PREEMPTED_BY_SCHEDULER
            name = item.application_id
            core.update(releases=(AllocationRelease(name, item.allocation_key, why),))
            again += 1
            core.asks(name, [f"{name}-again{again}"], {"vcore": 1})
        core.check()


def used(core: Core) -> dict[str, int]:
    return {
        queue.path: queue.allocated.get("vcore", 0)
        for queue in core.partition.queues.values()
        if queue.is_leaf
    }


@each_row(
    ("parent", "owed"),
    [
        (f"{{name: p, parent: true, queues: [{{name: x, {OWED_4}}}]}}", 4),
        (f"{{name: p, parent: true, queues: [{{name: q, parent: true, queues: [{{name: x, {OWED_4}}}]}}]}}", 4),
        (f"{{name: p, parent: true, {OWED_4}, queues: [{{name: x, {OWED_4}}}]}}", 4),
        (f"{{name: p, parent: true, {OWED_4}, queues: [{{name: x}}]}}", 4),
        ("{name: p, parent: true, queues: [{name: x}]}", 2),  # 4 of 8 are left for x and c
    ],
)  # fmt: skip
def test_a_parent_without_a_guarantee_is_owed_what_its_children_are(parent, owed):
    core = Core(config_of(parent, f"{{name: b, {OWED_4}}}", "{name: c}"), settings=KAI)
    core.node("n0", vcore=8)
    leaf = "root.p.q.x" if "name: q" in parent else "root.p.x"
    core.application("x", leaf)
    core.asks("x", [f"x{at}" for at in range(4)], {"vcore": 1})
    core.application("c", "root.c")
    core.asks("c", [f"c{at}" for at in range(4)], {"vcore": 1})
    core.application("b", "root.b")
    core.asks("b", [f"b{at}" for at in range(4)], {"vcore": 1})
    run_out(core)
    assert used(core) == {leaf: owed, "root.b": 4, "root.c": 4 - owed}


def test_a_parent_is_owed_the_sum_of_its_children_type_by_type():
    inner = "{name: x, resources: {guaranteed: {vcore: 2m}}}, {name: y, resources: {guaranteed: {memory: 3}}}"
    core = Core(
        config_of("{name: p, parent: true, resources: {guaranteed: {vcore: 3m}}, queues: [%s]}" % inner,
                  "{name: c}"),
        settings=KAI,
    )  # fmt: skip
    core.node("n0", vcore=8, memory=8)
    core.application("c", "root.c")
    core.asks("c", [f"c{at}" for at in range(8)], {"vcore": 1, "memory": 1})
    for name, leaf in (("x", "root.p.x"), ("y", "root.p.y")):
        core.application(name, leaf)
        core.asks(
            name, [f"{name}{at}" for at in range(4)], {"memory": 1} if name == "y" else {"vcore": 1}
        )
    run_out(core)
    assert used(core)["root.p.x"] >= 3
    assert core.partition.queues["root.p.y"].allocated.get("memory", 0) >= 3


# --- properties of queues -----------------------------------------------------------------------


def shares_of(one: str, two: str, cpus: int = 4) -> dict[str, int]:
    """Return what two queues have once both want all of it; the first had it."""
    leaf = "{name: %s, properties: {%s}}"
    third = "{name: third, resources: {guaranteed: {vcore: 1m}}}"  # else no type is anybody's
    core = Core(config_of(leaf % ("one", one), leaf % ("two", two), third), settings=KAI)
    core.node("n0", vcore=cpus)
    for name in ("one", "two"):
        for at in range(cpus):
            core.application(f"{name}{at}", f"root.{name}")
            core.asks(f"{name}{at}", [f"{name}{at}"], {"vcore": 1})
    run_out(core)
    return {name: used(core)[f"root.{name}"] for name in ("one", "two")}


@each_row(
    ("one", "two", "expected"),
    [
        ("", "", {"one": 2, "two": 2}),
        ("overquota.weight: '1'", "overquota.weight: '3'", {"one": 1, "two": 3}),
        ("overquota.weight: '0'", "", {"one": 0, "two": 4}),
        ("", "overquota.weight: '0'", {"one": 4, "two": 0}),
        ("", "overquota.priority: '200'", {"one": 0, "two": 4}),
        ("overquota.priority: '200'", "", {"one": 4, "two": 0}),
        ("overquota.weight: 'many'", "overquota.weight: '-1'", {"one": 4, "two": 0}),
        ("reclaim.min.runtime: 10h", "", {"one": 4, "two": 0}),
        ("reclaim.min.runtime: 1s", "", {"one": 2, "two": 2}),
    ],
)
def test_what_is_over_the_guarantees_is_divided_as_queues_say(one, two, expected):
    assert shares_of(one, two) == expected


def test_within_the_time_that_it_is_left_a_lower_priority_stays():
    core = Core(config_of("{name: a, properties: {preempt.min.runtime: 60s}}"), settings=KAI)
    core.node("n0", vcore=1)
    core.application("low", "root.a")
    core.asks("low", ["l"], {"vcore": 1})
    core.application("high", "root.a")
    core.asks("high", ["h"], {"vcore": 1}, priority=9)
    began = core.now_ns
    released: list = []
    while not released:
        released = section(core.fire_own("preemption"), "released_allocations")
    assert core.now_ns - began >= 60 * 10**9


def test_a_window_is_that_of_the_queues_where_the_two_part():
    inner = "{name: x, properties: {reclaim.min.runtime: %s}}"
    parent = "{name: p, parent: true, properties: {reclaim.min.runtime: %s}, queues: [%s]}"
    for above, own, stays in (("10h", "1s", True), ("1s", "10h", False)):
        core = Core(
            config_of(parent % (above, inner % own), f"{{name: b, {OWED_4}}}"), settings=KAI
        )
        core.node("n0", vcore=4)
        for at in range(4):
            core.application(f"x{at}", "root.p.x")
            core.asks(f"x{at}", [f"x{at}"], {"vcore": 1})
        core.application("b", "root.b")
        core.asks("b", ["b0"], {"vcore": 1})
        run_out(core)
        assert used(core)["root.p.x"] == (4 if stays else 3), (above, own)
