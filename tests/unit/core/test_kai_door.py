"""Under kai, by messages: what queues are owed, who may exceed it, times that protect, trees of gangs."""

from fractions import Fraction

from services.core.scheduler.model.queue_settings import settings_of
from services.core.scheduler.ordering.quotas import quota_of
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    GangSettings,
    SubGroup,
    TerminationType,
    UpdateResponse,
)
from shared.model.reasons import Reason
from shared.model.sentences import text_of
from shared.model.units import seconds
from shared.queueconfig import load_schedulable
from shared.queueconfig.warnings import warnings_of
from tests.builders import Core, config_of, section
from tests.table import each_row

KAI = (("policy", "kai"),)
ONE = {"vcore": 1}
OWED = "resources: {guaranteed: {vcore: %sm}}"


def gang(core: Core, name: str, queue: str, least: int, pods: int, **more) -> None:
    terms = GangSettings((SubGroup("w", "", least),), **more.pop("terms", {}))
    core.application(name, queue, gang=terms)
    core.asks(name, [f"{name}-{at}" for at in range(pods)], ONE, task_group_name="w", **more)


def held(core: Core, name: str) -> int:
    application = core.partition.applications[name]
    return len(application.allocations) - len(application.released)


def why(core: Core, name: str):
    application = core.partition.applications[name]
    groups = application.groups.values()
    return application.refusal or next(
        (g.refused[0] if g.refused else g.bucket.refusal for g in groups), None
    )


def evicted(core: Core, until_ns: int) -> list[str]:
    """Let the actions run until some time; return what they evict."""
    found = []
    while core.partition.timers.get("preemption", ("", until_ns + 1))[1] <= until_ns:
        found += [
            r.allocation_key for r in section(core.fire_own("preemption"), "released_allocations")
        ]
    core.now_ns = max(core.now_ns, until_ns)
    return found


# --- what queues are owed -----------------------------------------------------------------------


@each_row(
    ("one", "two", "expected"),
    [
        ("", "", ({}, {})),
        (OWED % 2, "", ({"vcore": 2}, {"vcore": 0})),
        ("properties: {deserved.vcore: 3m}", OWED % 1, ({"vcore": 3}, {"vcore": 1})),
        (f"{OWED % 2}, properties: {{deserved.vcore: unlimited}}", OWED % 1, ({"vcore": -1}, {"vcore": 1})),
        ("properties: {deserved.vcore: '0'}", "", ({"vcore": 0}, {"vcore": 0})),
        ("properties: {deserved.gpu: many}", OWED % 1, ({"vcore": 0}, {"vcore": 1})),
        ("resources: {max: {vcore: 1m}}, properties: {deserved.vcore: 5m}", "", ({"vcore": 5}, {"vcore": 0})),
    ],
)  # fmt: skip
def test_what_a_queue_is_owed(one, two, expected):
    core = Core(config_of(f"{{name: a, {one}}}", f"{{name: b, {two}}}"), settings=KAI)
    queues = core.partition.queues
    assert (quota_of(queues["root.a"]), quota_of(queues["root.b"])) == expected


def test_a_parent_of_an_unlimited_queue_is_unlimited_and_its_own_word_comes_first():
    inner = "{name: x, properties: {deserved.vcore: unlimited}}, {name: y, resources: {guaranteed: {vcore: 2m}}}"
    for own, owed in (("", -1), ("properties: {deserved.vcore: 1m},", 1)):
        core = Core(config_of(f"{{name: p, parent: true, {own} queues: [{inner}]}}"), settings=KAI)
        queues = core.partition.queues
        assert quota_of(queues["root.p"]) == {"vcore": owed}
        assert quota_of(queues["root.p.y"]) == {"vcore": 2}  # it did not come down
        assert quota_of(queues["root"]) == {}


def test_queues_below_one_that_asks_for_nothing_that_nodes_have_take_their_turns():
    inner = "{name: x}, {name: y}"
    core = Core(
        config_of("{name: p, parent: true, queues: [%s]}" % inner, "{name: z}"), settings=KAI
    )
    core.node("n", vcore=1)
    wanted = {"p.x": {"fpga": 1}, "p.y": {"fpga": 1}, "z": ONE}
    for name in wanted:
        core.application(name, f"root.{name}")
    core.update(asks=tuple(AllocationAsk(f"{name}-0", name, wanted[name]) for name in wanted))
    assert (held(core, "p.x"), held(core, "z")) == (0, 1)


def test_weights_are_exact_and_may_be_of_one_type():
    settings = settings_of(
        {"overquota.weight": "0.5", "overquota.weight.gpu": "3", "overquota.weight.x": "-1"}
    )
    assert settings.over_quota_weight == Fraction(1, 2)
    assert settings.over_quota_weights == {"gpu": 3}


def test_properties_that_do_not_hold_are_warned_of():
    properties = {
        "overquota.weight": "many", "overquota.weight.gpu": "-1", "overquota.priority": "high",
        "deserved.vcore": "lots", "reclaim.min.runtime": "soon", "preempt.min.runtime": "10m",
        "reclaim.min.runtime.of": "both", "deserved.memory": "1Gi",
    }  # fmt: skip
    text = config_of(
        "{name: a, properties: {%s}}" % ", ".join(f"{k}: '{v}'" for k, v in properties.items())
    )
    found = [sentence for _, sentence in warnings_of(load_schedulable(text))]
    assert [sentence.split(" of queue root.a is ")[0] for sentence in found] == [
        "overquota.weight 'many'", "overquota.weight.gpu '-1'", "overquota.priority 'high'",
        "deserved.vcore 'lots'", "reclaim.min.runtime 'soon'", "reclaim.min.runtime.of 'both'",
    ]  # fmt: skip


# --- what may not be preempted ------------------------------------------------------------------


def test_what_may_not_be_preempted_stays_within_the_quota_and_goes_on_when_there_is_more():
    core = Core(config_of("{name: a, %s}" % OWED % 2, "{name: b}"), settings=KAI)
    core.node("n", vcore=8)
    for name in ("one", "two", "three"):
        gang(core, name, "root.a", 1, 1, allow_preempt_self=False)
    gang(core, "free", "root.a", 1, 2)
    assert [held(core, name) for name in ("one", "two", "three", "free")] == [1, 1, 0, 2]
    refusal = why(core, "three")
    assert refusal.reason is Reason.QUEUE_QUOTA
    assert "needs 0.001 vcore, and queue root.a has 0 vcore left of its 0.002" in text_of(refusal)
    core.check()
    core.update(releases=(AllocationRelease("free", "free-0", TerminationType.STOPPED_BY_RM),))
    assert held(core, "three") == 0  # no quota of theirs
    core.update(releases=(AllocationRelease("one", "one-0", TerminationType.STOPPED_BY_RM),))
    assert held(core, "three") == 1
    core.check()


def test_a_gang_that_may_not_be_preempted_is_within_the_quota_as_a_whole_at_every_level():
    inner = "{name: x, resources: {guaranteed: {vcore: 4m}}}"
    leaf = "{name: p, parent: true, properties: {deserved.vcore: 3m}, queues: [%s]}" % inner
    core = Core(config_of(leaf), settings=KAI)
    core.node("n", vcore=8)
    gang(core, "four", "root.p.x", 4, 4, allow_preempt_self=False)
    assert why(core, "four").reason is Reason.GANG_HEADROOM
    text = text_of(why(core, "four"))
    assert "needs 0.004 vcore, and queue root.p has 0.003 vcore left of its 0.003" in text
    gang(core, "three", "root.p.x", 3, 3, allow_preempt_self=False)
    assert (held(core, "four"), held(core, "three")) == (0, 3)


def test_under_yunikorn_the_guarantee_bounds_nobody():
    core = Core(config_of("{name: a, %s}" % OWED % 1))
    core.node("n", vcore=8)
    core.application("one", "root.a")
    core.asks("one", ["x", "y"], ONE, allow_preempt_self=False)
    assert held(core, "one") == 2


def test_room_that_is_freed_for_one_counts_for_the_next():
    core = Core(config_of("{name: a, %s}" % OWED % 2, "{name: b}"), settings=KAI)
    core.node("n", vcore=3)
    gang(core, "other", "root.b", 1, 3)
    for name in ("one", "two", "three"):
        gang(core, name, "root.a", 1, 1, allow_preempt_self=False)
    assert len(evicted(core, core.now_ns + seconds(2))) == 2
    for key in list(core.partition.applications["other"].released):
        why_ = TerminationType.PREEMPTED_BY_SCHEDULER
        core.update(releases=(AllocationRelease("other", key, why_),))
    assert [held(core, name) for name in ("one", "two", "three")] == [1, 1, 0]
    core.check()


# --- times that protect ---------------------------------------------------------------------------

# A says none; A.B 600s; A.B.C none; leaf1 0s; leaf2 180s; A.B.D 60s; leaf3 none; Z none, Z.z 900s;
# the root's is everybody's default.
WINDOW = "properties: {reclaim.min.runtime: %ss}"
TREE = (
    "{name: root, submitacl: '*', properties: {reclaim.min.runtime: 20s%s}, queues: ["
    "{name: a, properties: {reclaim.min.runtime: 20s}, queues: [{name: b, "
    + WINDOW
    % 600
    + ", queues: ["
    "{name: c, queues: [{name: leaf1, " + WINDOW % 0 + "}, {name: leaf2, " + WINDOW % 180 + "}]},"
    "{name: d, " + WINDOW % 60 + ", queues: [{name: leaf3}]}]}]},"
    "{name: z, properties: {reclaim.min.runtime: 20s}, queues: [{name: z, " + WINDOW % 900 + "}]}]}"
)
LEAVES = {
    "leaf1": "root.a.b.c.leaf1",
    "leaf2": "root.a.b.c.leaf2",
    "leaf3": "root.a.b.d.leaf3",
    "z": "root.z.z",
}


def windowed(
    asks: str, victim: str, ran_s: int, *, by_queue: bool, least: int = 1, pods: int = 1
) -> Core:
    """Return a core in which one pod's worth of another leaf waits for what has run so long."""
    of = ", reclaim.min.runtime.of: queue" if by_queue else ""
    text = "partitions: [{name: default, queues: [%s]}]" % (TREE % of)
    for name, path in ((asks, LEAVES[asks]), (victim, LEAVES[victim])):
        owed = 4 if name == asks else 0
        leaf = path.rpartition(".")[2]
        text = text.replace(
            f"{{name: {leaf}, properties: {{",
            f"{{name: {leaf}, properties: {{deserved.vcore: {owed}m, ",
        )
        text = text.replace(
            f"{{name: {leaf}}}", f"{{name: {leaf}, properties: {{deserved.vcore: {owed}m}}}}"
        )
    core = Core(text, settings=KAI)
    core.node("n", vcore=pods)
    core.application("v", LEAVES[victim], gang=GangSettings((SubGroup("w", "", least),)))
    began_ns = core.now_ns - seconds(ran_s)
    core.update(
        allocations=tuple(
            Allocation(f"v{at}", "v", "n", ONE, task_group_name="w", allocated_ns=began_ns)
            for at in range(pods)
        )
    )
    return core


@each_row(
    ("asks", "victim", "window_s", "by_queue"),
    [
        ("leaf1", "leaf3", 60, False),
        ("leaf1", "leaf3", 60, True),
        ("leaf1", "leaf2", 180, False),
        ("leaf1", "leaf2", 180, True),
        ("leaf3", "leaf1", 600, False),
        ("leaf3", "leaf1", 0, True),
        ("leaf1", "z", 20, False),
        ("leaf1", "z", 900, True),
    ],
)
def test_a_victim_keeps_its_minimum_for_its_first_time(asks, victim, window_s, by_queue):
    for ran_s, goes in ((window_s - 2, False), (window_s, True)):
        if ran_s < 0:
            continue
        core = windowed(asks, victim, ran_s, by_queue=by_queue)
        core.application("p", LEAVES[asks])
        core.asks("p", ["p"], ONE)
        now_ns = core.now_ns
        assert evicted(core, now_ns + seconds(1)) == (["v0"] if goes else []), ran_s
        if not goes:  # a timer ends the wait, and nothing else need happen
            assert evicted(core, now_ns + seconds(3)) == ["v0"]


def test_in_its_first_time_an_elastic_gang_gives_what_it_has_above_its_minimum():
    core = windowed("leaf1", "leaf2", 100, by_queue=False, least=4, pods=6)
    gang(core, "p", LEAVES["leaf1"], 2, 2)
    assert evicted(core, core.now_ns + seconds(1)) == ["v5", "v4"]
    core = windowed("leaf1", "leaf2", 100, by_queue=False, least=4, pods=6)
    gang(core, "p", LEAVES["leaf1"], 3, 3)
    now_ns = core.now_ns
    assert evicted(core, now_ns + seconds(78)) == []
    assert len(evicted(core, now_ns + seconds(81))) == 6


def test_a_window_of_a_queue_above_holds_against_higher_priorities_to_the_second():
    inner = "{name: c, queues: [{name: leaf, properties: {deserved.vcore: 1m}}]}"
    text = "{name: b, properties: {preempt.min.runtime: 600s}, queues: [%s]}" % inner
    for ran_s, goes in ((599, False), (600, True)):
        core = Core(config_of(text), settings=KAI)
        core.node("n", vcore=1)
        gang(core, "low", "root.b.c.leaf", 1, 1)
        core.now_ns += seconds(ran_s)
        gang(core, "high", "root.b.c.leaf", 1, 1, priority=9)
        core.now_ns -= seconds(1)  # the first look is a second after the ask
        began_ns = core.partition.applications["low"].began_ns
        assert evicted(core, began_ns + seconds(ran_s)) == []
        core.now_ns = began_ns + seconds(ran_s)
        assert evicted(core, began_ns + seconds(599)) == []
        assert evicted(core, began_ns + seconds(601)) == ["low-0"], goes


def test_what_has_just_begun_is_not_moved_either():
    for window_s in (1, 60):
        queue = "{name: a, properties: {preempt.min.runtime: %ss}}" % window_s
        core = Core(config_of(queue, order="fair"), settings=KAI)
        core.node("n1", vcore=2)
        core.node("n2", vcore=2)
        for name in ("one", "two"):
            core.application(name, "root.a")
            core.asks(name, [name], ONE)
        began_ns = core.now_ns
        core.now_ns += seconds(5)
        core.application("wide", "root.a")
        core.asks("wide", ["wide"], {"vcore": 2}, priority=9)
        ends_ns = began_ns + seconds(window_s)
        assert evicted(core, ends_ns - 1) == []
        due_ns = max(ends_ns, core.now_ns) + seconds(1)
        before = len(core.answers)
        assert len(evicted(core, due_ns)) == 1, window_s
        told = [each.message for each in core.answers[before:]]
        released = section(
            [m for m in told if isinstance(m, UpdateResponse)], "released_allocations"
        )
        assert released[0].message.startswith("moved so that application wide")
        core.check()


def test_growing_begins_no_new_window_nor_does_losing_the_first():
    core = Core(config_of("{name: a, properties: {preempt.min.runtime: 60s}}"), settings=KAI)
    core.node("n", vcore=2)
    gang(core, "v", "root.a", 1, 1)
    began_ns = core.now_ns
    core.now_ns += seconds(50)
    core.asks("v", ["v-1"], ONE, task_group_name="w")
    core.update(releases=(AllocationRelease("v", "v-0", TerminationType.STOPPED_BY_RM),))
    assert core.partition.applications["v"].began_ns == began_ns
    core.asks("v", ["v-2"], ONE, task_group_name="w")
    gang(core, "high", "root.a", 2, 2, priority=9)
    assert evicted(core, began_ns + seconds(59)) == []
    assert len(evicted(core, began_ns + seconds(62))) == 2


def test_a_delay_begins_when_it_is_submitted_and_anew_when_it_is_evicted():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n", vcore=1)
    gang(core, "low", "root.a", 1, 1)
    start_ns = core.now_ns
    gang(core, "mid", "root.a", 1, 1, priority=5, terms={"preemption_delay_ns": seconds(60)})
    assert evicted(core, start_ns + seconds(59)) == []
    (ask,) = core.partition.applications["mid"].asks()
    assert "Preemption preconditions failed" in ask.log
    assert evicted(core, start_ns + seconds(62)) == ["low-0"]
    confirm(core, "low", "low-0")
    assert held(core, "mid") == 1
    gang(core, "high", "root.a", 1, 1, priority=9)
    evicted_ns = core.now_ns + seconds(2)
    assert evicted(core, evicted_ns) == ["mid-0"]
    confirm(core, "mid", "mid-0")
    core.asks("mid", ["mid-1"], ONE, task_group_name="w", priority=5)
    core.update(releases=(AllocationRelease("high", "high-0", TerminationType.STOPPED_BY_RM),))
    assert held(core, "mid") == 1  # it starts where there is room all the same


def confirm(core: Core, name: str, key: str) -> None:
    why_ = TerminationType.PREEMPTED_BY_SCHEDULER
    core.update(releases=(AllocationRelease(name, key, why_),))


# --- trees of gangs -----------------------------------------------------------------------------


def test_two_gangs_start_with_their_minimum_before_either_grows():
    core = Core(config_of("{name: a}"), settings=KAI)
    gang(core, "x", "root.a", 2, 6)
    gang(core, "y", "root.a", 2, 6)
    core.node("n", vcore=5)
    assert (held(core, "x"), held(core, "y")) == (3, 2)
    core.check()


def test_a_higher_priority_comes_before_a_minimum():
    for room, expected in ((8, (2, 6)), (7, (0, 6))):
        core = Core(config_of("{name: a}"), settings=KAI)
        gang(core, "x", "root.a", 2, 6)
        gang(core, "y", "root.a", 2, 6, priority=9)
        core.node("n", vcore=room)
        assert (held(core, "x"), held(core, "y")) == expected


def tree(minimum: int, *leaves: tuple[str, int]) -> GangSettings:
    return GangSettings(tuple(SubGroup(name, "", least) for name, least in leaves), minimum)


def test_a_further_subgroup_starts_as_a_whole_or_waits():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n", vcore=6)
    core.application("g", "root.a", gang=tree(2, ("a", 2), ("b", 2), ("c", 3)))
    for name, pods in (("a", 2), ("b", 2), ("c", 3)):
        core.asks("g", [f"{name}{at}" for at in range(pods)], ONE, task_group_name=name)
    assert sorted(core.partition.applications["g"].allocations) == ["a0", "a1", "b0", "b1"]
    assert why(core, "g").reason is Reason.GANG_PLACES
    core.node("m", vcore=1)
    assert held(core, "g") == 7
    core.check()


def test_a_part_that_has_too_few_pods_is_passed_over():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n", vcore=9)
    core.application("g", "root.a", gang=tree(1, ("a", 2), ("b", 2)))
    core.asks("g", ["a0"], ONE, task_group_name="a")
    assert held(core, "g") == 0
    core.asks("g", ["b0", "b1"], ONE, task_group_name="b")
    assert sorted(core.partition.applications["g"].allocations) == ["b0", "b1"]
    core.asks("g", ["a1", "other"], ONE, task_group_name="a")
    assert held(core, "g") == 5


def test_pods_that_alone_are_not_enough_wait_for_those_of_any_part():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n", vcore=9)
    core.application("g", "root.a", gang=tree(1, ("a", 2), ("b", 2)))
    core.asks("g", ["b0"], ONE, task_group_name="b")
    core.check()
    core.asks("g", ["b1"], ONE, task_group_name="b")
    assert held(core, "g") == 2


def test_a_gang_of_a_tree_waits_for_its_pods_under_either_policy():
    for settings in (KAI, ()):
        core = Core(config_of("{name: a}"), settings=settings)
        core.node("n", vcore=9)
        gang(core, "g", "root.a", 3, 2)
        assert held(core, "g") == 0
        core.asks("g", ["more"], ONE, task_group_name="w")
        assert held(core, "g") == 3


def test_a_gang_is_stale_by_its_own_grace_through_a_restart_too():
    for grace_ns, gone_s in ((None, 60), (seconds(10), 10), (0, 0), (-1, None)):
        core = Core(config_of("{name: a}"), settings=KAI)
        core.node("n", vcore=1)
        core.application(
            "g", "root.a", gang=GangSettings((SubGroup("w", "", 2),), staleness_grace_ns=grace_ns)
        )
        core.update(allocations=(Allocation("g0", "g", "n", ONE, task_group_name="w"),))
        start_ns = core.now_ns
        if gone_s is None:
            assert evicted(core, start_ns + seconds(3600)) == []
            continue
        assert evicted(core, start_ns + seconds(gone_s) - 1) == []
        assert evicted(core, start_ns + seconds(gone_s)) == ["g0"]


def test_of_a_satisfied_tree_a_broken_part_is_stale_by_itself():
    core = Core(config_of("{name: a}"), settings=KAI)
    core.node("n", vcore=3)
    core.application("g", "root.a", gang=tree(1, ("a", 2), ("b", 2)))
    found = [("a0", "a"), ("a1", "a"), ("b0", "b")]
    core.update(
        allocations=tuple(
            Allocation(key, "g", "n", ONE, task_group_name=part) for key, part in found
        )
    )
    start_ns = core.now_ns
    assert evicted(core, start_ns + seconds(60) - 1) == []
    assert evicted(core, start_ns + seconds(60)) == ["b0"]
    core.update(releases=(AllocationRelease("g", "b0", TerminationType.PREEMPTED_BY_SCHEDULER),))
    assert evicted(core, core.now_ns + seconds(600)) == []
    core.update(releases=(AllocationRelease("g", "a0", TerminationType.STOPPED_BY_RM),))
    assert evicted(core, core.now_ns + seconds(61)) == ["a1"]


def test_what_waits_for_room_that_comes_has_nobody_else_make_way():
    core = Core(config_of("{name: a, %s}" % OWED % 1, "{name: b, %s}" % OWED % 1), settings=KAI)
    core.node("n", vcore=2)
    gang(core, "one", "root.a", 1, 1)
    gang(core, "two", "root.a", 1, 1)
    gang(core, "owed", "root.b", 1, 1)
    first = evicted(core, core.now_ns + seconds(1))
    assert first == ["two-0"]
    gang(core, "high", "root.a", 1, 1, priority=9)
    assert evicted(core, core.now_ns + seconds(30)) == ["one-0"]  # for who has a higher priority
    core.check()


@each_row(
    ("whole", "goes"),
    [
        ((), ["b2"]),
        (("b",), ["a2"]),
        (("a", "b"), ["b0", "b1", "b2"]),
        (("",), ["a0", "a1", "a2", "b0", "b1", "b2"]),
    ],
)
def test_what_goes_as_a_whole_goes_all_at_once_or_not_at_all(whole, goes):
    for settings in (KAI, ()):
        core = Core(config_of("{name: a}"), settings=settings)
        core.node("n", vcore=6)
        parts = tuple(SubGroup(name, "", 1, goes_whole=name in whole) for name in "ab")
        core.application("g", "root.a", gang=GangSettings(parts, 1, goes_whole="" in whole))
        for name in "ab":
            core.asks("g", [f"{name}{at}" for at in range(3)], ONE, task_group_name=name)
        assert held(core, "g") == 6
        core.application("h", "root.a")
        core.asks("h", ["h0"], ONE, priority=10)
        application = core.partition.applications["g"]
        if settings:
            assert sorted(evicted(core, core.now_ns + seconds(60))) == goes
        else:  # YuniKorn's laws take pod by pod: none of what goes only as a whole
            may_go = [name for name in "ab" if application.surplus(name)]
            assert may_go == [name for name in "ab" if name not in whole and "" not in whole]
        core.check()
