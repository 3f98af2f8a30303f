"""Gangs that make way: what they have above their minimum goes to others that wait.

With ``gangSurplus: yields``.
"""

from collections.abc import Iterator

from services.core.scheduler.actions import live_actions
from shared.messages.interface import (
    AllocationRelease,
    GangSettings,
    NodeAction,
    NodeInfo,
    SubGroup,
    TerminationType,
)
from shared.model.reasons import EvictionCause, Reason
from shared.model.sentences import text_of
from shared.model.units import seconds
from tests.builders import Core, config_of, section
from tests.table import each_row

MUSTER = (("preset", "muster"), ("gangSurplus", "yields"))
YIELDS = ("gangSurplus", "yields")
ONE = {"vcore": 1}
PLAIN = "{name: a}, {name: b}"


def cluster(leaves: str = PLAIN, settings: tuple = MUSTER, nodes: int = 6) -> Core:
    core = Core(config_of(leaves), settings=settings)
    for at in range(nodes):
        core.node(f"n{at}", vcore=1, memory=5)
    return core


def gang(core: Core, name: str, queue: str, least: int, pods: int, **more) -> None:
    core.application(name, f"root.{queue}", gang=GangSettings((SubGroup("w", "", least),)))
    core.asks(name, [f"{name}-{at}" for at in range(pods)], ONE, task_group_name="w", **more)


def wanting(core: Core, name: str, queue: str, pods: int = 1, **more) -> None:
    core.application(name, f"root.{queue}")
    core.asks(name, [f"{name}-{at}" for at in range(pods)], more.pop("resource", ONE), **more)


def held(core: Core, name: str) -> list[str]:
    application = core.partition.applications[name]
    return [key for key in application.allocations if key not in application.released]


def looks(core: Core, for_s: int = 5) -> Iterator[list[AllocationRelease]]:
    """Let the searches run for some seconds; yield what each of them releases."""
    until_ns = core.now_ns + seconds(for_s)
    while core.partition.timers.get("preemption", ("", until_ns + 1))[1] <= until_ns:
        yield section(core.fire_own("preemption"), "released_allocations")
        core.check()
    core.now_ns = max(core.now_ns, until_ns)


def evicted(core: Core, for_s: int = 5, *, are_gone: bool = True) -> list[str]:
    """Return what is evicted within some seconds; it ends at once if ``are_gone``."""
    found = [release for released in looks(core, for_s) for release in released]
    for release in found if are_gone else ():
        gone = AllocationRelease(
            release.application_id, release.allocation_key, release.termination_type
        )
        core.update(releases=(gone,))
        core.check()
    return [release.allocation_key for release in found]


def causes(core: Core) -> list[str]:
    told = [each for a in core.answers for each in getattr(a.message, "evictions", ())]
    return [each.law for each in told]


def test_the_newest_member_makes_way_for_a_pod_that_waits_and_its_room_goes_there():
    core = cluster()
    gang(core, "g", "a", 4, 8)
    assert len(held(core, "g")) == 6
    wanting(core, "one", "a")
    assert evicted(core) == ["g-5"]
    assert held(core, "one") == ["one-0"]
    assert len(held(core, "g")) == 5
    assert causes(core) == [EvictionCause.SURPLUS]
    assert evicted(core, 600) == []


@each_row(
    ("leaves", "settings", "queue", "more", "gone"),
    [
        (PLAIN, (("preset", "muster"),), "a", {}, 0),
        (PLAIN, (("preset", "yunikorn"),), "a", {}, 0),
        (PLAIN, (("policy", "kai"),), "a", {}, 0),
        (PLAIN, (), "a", {}, 0),
        (PLAIN, (YIELDS,), "a", {}, 1),
        (PLAIN, (*MUSTER, ("gangGrowth", "age")), "b", {}, 1),
        (PLAIN, (("policy", "kai"), YIELDS), "a", {}, 1),
        # other queues: under kai that is reclaim's affair
        (PLAIN, MUSTER, "b", {}, 1),
        (PLAIN, (("policy", "kai"), YIELDS), "b", {}, 0),
        ("{name: a, properties: {preemption.policy: disabled}}, {name: b}", MUSTER, "b", {}, 0),
        ("{name: a}, {name: b, properties: {preemption.policy: fence}}", MUSTER, "b", {}, 0),
        ("{name: a, resources: {guaranteed: {vcore: 6m}}}, {name: b}", MUSTER, "b", {}, 0),
        ("{name: a, resources: {guaranteed: {vcore: 6m}}}, {name: b}", MUSTER, "a", {}, 1),
        ("{name: a, resources: {guaranteed: {vcore: 5m}}}, {name: b}", MUSTER, "b", {}, 1),
        # at least the same priority, as seen from above both
        (PLAIN, MUSTER, "a", {"priority": -1}, 0),
        (PLAIN, MUSTER, "a", {"priority": 1}, 1),
        ("{name: a, properties: {priority.offset: '2'}}, {name: b}", MUSTER, "b",
         {"priority": 1}, 0),
        ("{name: a, properties: {priority.offset: '2'}}, {name: b}", MUSTER, "b",
         {"priority": 2}, 1),
        # who never preempts, and a limit that an eviction would not help
        (PLAIN, MUSTER, "a", {"allow_preempt_other": False}, 0),
        ("{name: a}, {name: b, limits: [{users: ['*'], maxresources: {memory: 1}}]}", MUSTER, "b",
         {"resource": {"vcore": 1, "memory": 2}}, 0),
    ],
)  # fmt: skip
def test_who_makes_way_for_whom(leaves, settings, queue, more, gone):
    core = cluster(leaves, settings)
    gang(core, "g", "a", 4, 8)
    assert len(held(core, "g")) == 6
    wanting(core, "one", queue, **more)
    assert len(evicted(core, 20)) == gone
    assert len(held(core, "g")) == 6 - gone
    assert len(held(core, "one")) == gone if "one" in core.partition.applications else not gone


@each_row(
    ("least", "pods", "gone"),
    [
        (1, 1, 1),  # a whole gang, that starts with one
        (2, 2, 2),
        (2, 5, 2),  # it asks for more, and gets what it needs to start
        (3, 3, 0),  # surplus is not enough: nobody is evicted in vain
    ],
)
def test_a_gang_gets_what_it_lacks_of_its_minimum_or_nothing(least, pods, gone):
    core = cluster()
    gang(core, "g", "a", 4, 8)
    gang(core, "h", "a", least, pods)
    assert len(evicted(core, 20)) == gone
    assert len(held(core, "h")) == gone
    assert evicted(core, 600) == []


@each_row("settings", [MUSTER, (*MUSTER, ("gangGrowth", "age")), (YIELDS,)])
def test_a_gang_of_task_groups_makes_way_and_another_starts_by_it(settings):
    core = cluster(settings=settings)
    core.gang("g", 4, ONE, queue="root.a")
    core.asks("g", ["launcher"], {"memory": 1})  # of none of its task groups: it is no member
    core.asks("g", [f"g-{at}" for at in range(8)], ONE, task_group_name="tg")
    for key in list(core.partition.applications["g"].released):
        release = AllocationRelease("g", key, TerminationType.PLACEHOLDER_REPLACED)
        core.update(releases=(release,))
    assert len(held(core, "g")) == 7
    core.gang("too-large", 3, ONE, queue="root.b")
    assert evicted(core, 20) == []
    core.gang("h", 2, ONE, queue="root.b")
    assert evicted(core, 20) == ["g-5", "g-4"]
    assert sorted(held(core, "h")) == ["h-ph-0", "h-ph-1"]
    wanting(core, "one", "a")
    assert evicted(core, 20) == []


def test_growth_takes_nothing_from_others():
    core = cluster()
    gang(core, "g", "a", 1, 6)
    gang(core, "h", "b", 1, 3)
    assert evicted(core) == ["g-5"]  # for the minimum of the other
    assert evicted(core, 600) == []
    assert (len(held(core, "g")), len(held(core, "h"))) == (5, 1)


def test_what_may_not_be_evicted_stays():
    core = cluster()
    gang(core, "g", "a", 4, 8, allow_preempt_self=False)
    wanting(core, "one", "a")
    assert evicted(core, 20) == []


def test_members_whose_budget_is_used_up_stay():
    core = cluster()
    core.application("g", "root.a", gang=GangSettings((SubGroup("w", "", 4),)))
    core.asks("g", [f"g-{at}" for at in range(6)], ONE, task_group_name="w")
    wanting(core, "two", "a", 3)
    assert len(evicted(core, 20)) == 2  # not three: it has two above its minimum
    assert len(held(core, "g")) == 4


def test_a_queue_keeps_its_guarantee():
    core = cluster("{name: a, resources: {guaranteed: {vcore: 5m}}}, {name: b}")
    gang(core, "g", "a", 1, 6)
    gang(core, "r", "b", 2, 2)
    assert evicted(core, 20) == []
    wanting(core, "one", "b")
    assert evicted(core, 20) == ["g-5"]


def test_a_gang_that_made_way_grows_again_after_a_minute_if_nobody_else_wants_the_room():
    core = cluster()
    gang(core, "g", "a", 4, 8)
    wanting(core, "one", "a")
    assert evicted(core) == ["g-5"]
    core.update(releases=(AllocationRelease("one", "one-0", TerminationType.STOPPED_BY_RM),))
    assert len(held(core, "g")) == 5
    (group,) = core.partition.applications["g"].groups.values()
    assert group.bucket.refusal is None or group.bucket.refusal.reason is not Reason.BACKOFF
    told = [
        each.refusal
        for a in core.answers
        for each in getattr(a.message, "asks", ())
        if getattr(each, "application_id", "") == "g" and getattr(each, "refusal", None)
    ]
    assert any("grows again 1m after" in text_of(each) for each in told) or not told
    for _ in looks(core, 50):
        pass
    assert len(held(core, "g")) == 5
    for _ in looks(core, 20):
        pass
    assert len(held(core, "g")) == 6


def test_freed_room_goes_to_those_who_wait_before_any_gang_grows():
    core = cluster(settings=MUSTER)
    gang(core, "g", "a", 4, 9)
    core.asks("g", ["large"], {"vcore": 2}, task_group_name="w")
    wanting(core, "one", "b", priority=-1)  # of a lower priority: the gang need not make way
    assert evicted(core, 20) == []
    core.node("more", vcore=1)
    assert held(core, "one") == ["one-0"]
    core.node("still-more", vcore=1)
    assert len(held(core, "g")) == 7


def test_nothing_is_looked_for_while_nobody_waits_or_nobody_has_more_than_a_minimum(monkeypatch):
    tries = []
    opened = live_actions.Trial
    monkeypatch.setattr(live_actions, "Trial", lambda *of: tries.append(of) or opened(*of))
    core = cluster()
    gang(core, "g", "a", 4, 8)
    list(looks(core, 60))
    assert not tries  # what waits is growth
    core.update(nodes=(NodeInfo("n5", NodeAction.DECOMISSION),))
    core.update(nodes=(NodeInfo("n4", NodeAction.DECOMISSION),))
    assert len(held(core, "g")) == 4
    wanting(core, "one", "a")
    list(looks(core, 60))
    assert not tries
    core.node("more", vcore=1)
    core.node("and-more", vcore=1)
    wanting(core, "two", "a")
    list(looks(core, 60))
    assert tries


def test_a_node_that_is_reserved_for_the_head_gang_is_not_given_to_others():
    core = cluster(nodes=3)
    gang(core, "g", "a", 2, 3)
    core.node("n3", vcore=1)
    wanting(core, "other", "a")
    gang(core, "wide", "b", 4, 4)
    assert all(node.is_held for node in core.partition.nodes.rows)
    wanting(core, "one", "a")
    assert evicted(core, 20) == []  # the room of g-2 is the head gang's
    assert held(core, "one") == []
