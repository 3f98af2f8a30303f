"""Usage over time under kai, by messages: what queues have used decides what they get next."""

from services.core.scheduler.actions import kai_turns
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateRequest,
    UpdateResponse,
    UsageRecord,
)
from shared.messages.protocol import Heartbeat, SyncBegin, SyncEnd
from shared.model.units import seconds
from tests.builders import Core, config_of, section
from tests.table import each_row

HOUR = seconds(3_600)
ONE = {"vcore": 1}
LEAF = "{name: %s, properties: {deserved.vcore: '0'}}"  # else all is everybody's quota
WINDOW = ("usageWindow", "168h")


def core_with(*leaves: str, settings=(WINDOW,), vcore: int) -> Core:
    core = Core(config_of(*leaves), settings=(("policy", "kai"), *settings))
    core.node("n", vcore=vcore)
    return core


def use(core: Core, leaf: str, pods: int, hours: float) -> None:
    """Let a leaf run some pods for a time, and no longer."""
    name = f"before-{leaf}-{core.now_ns}"
    if pods:
        core.application(name, f"root.{leaf}")
        core.asks(name, [f"{name}-{at}" for at in range(pods)], ONE)
    core.now_ns += int(hours * HOUR)
    stopped = TerminationType.STOPPED_BY_RM
    core.update(
        releases=tuple(AllocationRelease(name, f"{name}-{at}", stopped) for at in range(pods))
    )


def want(core: Core, **pods: int) -> dict[str, int]:
    """Let leaves want pods at the same time; return what they get."""
    core.update(
        new_applications=tuple(AddApplicationRequest(leaf, f"root.{leaf}") for leaf in pods),
        asks=tuple(
            AllocationAsk(f"{leaf}-{at}", leaf, ONE) for leaf in pods for at in range(pods[leaf])
        ),
    )
    return {leaf: core.partition.queues[f"root.{leaf}"].allocated.get("vcore", 0) for leaf in pods}


K = "kValue"


@each_row(
    ("k", "before", "expected"),
    [
        ("0", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 8, "b": 8}),
        ("1", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 5, "b": 11}),
        ("", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 5, "b": 11}),
        ("0.5", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 6, "b": 10}),
        ("2", [("a", 16, 9), ("b", 16, 1)], {"a": 0, "b": 16}),
    ],
)
def test_what_they_have_used_decides_what_two_queues_get(k, before, expected):
    core = core_with(LEAF % "a", LEAF % "b", settings=(WINDOW, (K, k)), vcore=16)
    for leaf, pods, hours in before:
        use(core, leaf, pods, hours)
    assert want(core, a=16, b=16) == expected
    core.check()


LEVEL = "{name: %s, properties: {%s}}"
FREE = "deserved.vcore: '0'"


@each_row(
    ("leaves", "vcore", "before", "wanted", "expected"),
    [
        (
            {"a": f"{FREE}, overquota.weight: '3'", "b": FREE},  # T5
            12, [("a", 12, 5), ("b", 0, 5)], {"a": 12, "b": 12}, {"a": 8, "b": 4},
        ),
        (
            {"a": FREE, "b": FREE, "c": FREE},  # T6
            10, [("a", 10, 4), ("b", 10, 2), ("b", 0, 4)],
            {"a": 10, "b": 10, "c": 2}, {"a": 3, "b": 5, "c": 2},
        ),
        ({"a": FREE, "b": FREE}, 8, [("a", 8, 10)], {"a": 8, "b": 3}, {"a": 5, "b": 3}),  # T7
        (
            {"a": "deserved.vcore: 8m", "b": FREE},  # T8
            10, [("a", 10, 9), ("b", 0, 1)], {"a": 8, "b": 10}, {"a": 8, "b": 2},
        ),
    ],
)  # fmt: skip
def test_weights_wishes_and_quotas_count_with_it(leaves, vcore, before, wanted, expected):
    core = core_with(*(LEVEL % item for item in leaves.items()), vcore=vcore)
    for leaf, pods, hours in before:
        use(core, leaf, pods, hours)
    assert want(core, **wanted) == expected
    core.check()


def test_where_no_weight_is_left_the_plain_ones_hold():
    """The contract's T9: half of the nodes have left, and the usage is twice what there was."""
    config, settings = config_of(LEAF % "a"), (("policy", "kai"), WINDOW)
    core = Core(config, settings=settings)
    core.epoch = 2
    core.send(SyncBegin(config, settings))
    amounts = {"": "1000000", "root.a": "2000000"}
    records = [
        UsageRecord(path, "", core.now_ns, {"vcore": text}) for path, text in amounts.items()
    ]
    core.update(usage=tuple(records), nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 8}),))
    core.send(SyncEnd(1, 0, 0))
    assert want(core, a=8) == {"a": 8}
    assert core.partition.queues["root.a"].division.entitled == {
        "vcore": 0
    }  # it wanted nothing then
    clock = core.partition.usage
    assert clock.share_ppb(clock.row_of("root.a"), "vcore") == 2_000_000_000
    shares = kai_turns.divided(core.partition)[2]
    assert shares[core.partition.queues["root.a"]].fair_share == [8]


DECADE = ("usageWindow", "87600h")


@each_row(
    ("vcore", "before", "half_life", "share"),
    [
        (16, [("b", 0, 144), ("a", 16, 24)], "24h", "0.504"),  # U1
        (16, [("b", 0, 144), ("a", 16, 24)], "", "0.143"),
        (16, [("b", 0, 120), ("a", 16, 24), ("b", 0, 24)], "24h", "0.252"),
        (16, [("b", 0, 120), ("a", 16, 24), ("b", 0, 24)], "", "0.143"),
        (16, [("a", 8, 168)], "24h", "0.500"),
        (16, [("a", 8, 168)], "", "0.500"),
        (10, [("a", 6, 4), ("b", 0, 6)], "", "0.240"),
        (10, [("a", 6, 4), ("b", 0, 1), ("more", 20, 5)], "", "0.160"),  # U5
    ],
)
def test_usage_is_a_share_of_what_the_cluster_had(vcore, before, half_life, share):
    settings = (("usageHalfLife", half_life),) if half_life else (DECADE,)
    core = core_with(LEAF % "a", LEAF % "b", settings=settings, vcore=vcore)
    for leaf, pods, hours in before:
        if leaf == "more":
            core.update(nodes=(NodeInfo("n", NodeAction.UPDATE, {"vcore": pods}),))
        use(core, leaf, pods if leaf == "a" else 0, hours)
    assert f"{used_ppb(core, 'a') / 1e9:.3f}" == share


# --- over restarts ------------------------------------------------------------------------------


def used_ppb(core: Core, leaf: str, user: str = "") -> int:
    """Return which share of the cluster a queue, or a user in it, has used by now."""
    clock = core.partition.usage
    clock.pass_time(core.now_ns)
    clock.advance(clock.capacity, core.partition.root.max_resource or {})
    queue = core.partition.queues[f"root.{leaf}"]
    queue.advance_usage()
    for tracker in core.partition.users.users.values():
        for level in tracker.levels.values():
            tracker.advance_usage(level)
    return clock.share_ppb(clock.row_of(queue.path, user), "vcore")


def beat(core: Core, hours: float) -> list:
    """Let time pass, and a heartbeat come every minute; return what is handed over to be kept."""
    found = []
    for _ in range(int(hours * 60)):
        core.now_ns += seconds(60)
        found += section(core.send(Heartbeat("t")), "usage")
    return found


def test_usage_is_handed_over_once_a_minute_and_only_what_has_changed():
    core = core_with(LEAF % "a", LEAF % "b", vcore=4)
    core.application("x", "root.a")
    core.asks("x", ["x-0"], ONE)
    core.now_ns += seconds(30)
    assert section(core.send(Heartbeat("t")), "usage") == []
    core.now_ns += seconds(30)
    kept = section(core.send(Heartbeat("t")), "usage")
    assert [each.queue for each in kept if not each.user] == ["", "root", "root.a"]
    minute = str(seconds(60))
    amounts = {each.queue: each.amounts for each in kept if not each.user}
    assert amounts["root.a"] == {"vcore": minute}
    assert amounts[""]["vcore"] == str(4 * seconds(60))
    core.update(releases=(AllocationRelease("x", "x-0", TerminationType.STOPPED_BY_RM),))
    beat(core, 0.05)
    assert {each.queue for each in beat(core, 0.05)} == {""}


@each_row("half_life", ["24h", "1h", ""])
def test_a_core_that_starts_again_knows_what_was_used(half_life):
    settings = (("usageHalfLife", half_life),) if half_life else (WINDOW,)
    config, pairs = config_of(LEAF % "a", LEAF % "b"), (("policy", "kai"), *settings)
    old = Core(config, settings=pairs)
    old.node("n", vcore=16)
    use(old, "b", 16, 3)
    old.application("x", "root.a")
    old.asks("x", [f"x-{at}" for at in range(8)], ONE)
    beat(old, 20)
    said = [each.message for each in old.answers if isinstance(each.message, UpdateResponse)]
    kept = {(each.queue, each.user): each for each in section(said, "usage")}
    old.now_ns += seconds(45)  # and it dies
    new = Core(config, settings=pairs)
    new.now_ns = old.now_ns + 2 * HOUR  # what runs goes on meanwhile
    new.epoch = 2
    new.send(SyncBegin(config, pairs))
    new.send(UpdateRequest("rm", usage=tuple(kept.values())))
    node = NodeInfo("n", NodeAction.CREATE, {"vcore": 16})
    new.update(nodes=(node,), new_applications=(AddApplicationRequest("x", "root.a"),))
    new.update(allocations=tuple(Allocation(f"x-{at}", "x", "n", ONE) for at in range(8)))
    new.send(SyncEnd(1, 8, 0))
    old.now_ns = new.now_ns
    for leaf in "ab":
        before, after = used_ppb(old, leaf), used_ppb(new, leaf)
        assert abs(before - after) <= before // 1_000, (leaf, before, after)
        assert before > 30_000_000 or half_life == "1h"
    assert used_ppb(new, "a", "nobody") == used_ppb(new, "a")
    new.now_ns += 5 * HOUR
    old.now_ns += 5 * HOUR
    assert abs(used_ppb(old, "a") - used_ppb(new, "a")) <= used_ppb(old, "a") // 1_000
    new.check()
