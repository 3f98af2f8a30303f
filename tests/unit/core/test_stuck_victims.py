"""A victim that does not go: after a time its room is nobody's, and another victim is taken."""

import pytest

from shared.messages.interface import AllocationRelease, TerminationType
from shared.model.names import GRACE_SECONDS
from shared.model.units import seconds
from tests.builders import Core, config_of, section

OWED = "{name: %s, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 2m}}}"
POLICIES = pytest.mark.parametrize("policy", ["yunikorn", "kai"])


def crowded(policy: str, settings: tuple = (), *, asks: bool = True, **tags: str) -> Core:
    """Return four pods of a queue that is owed two of four, on two nodes, and one that is owed."""
    core = Core(config_of(OWED % "one", OWED % "two"), settings=(("policy", policy), *settings))
    for at in range(2):
        core.node(f"n{at}", vcore=2)
    core.application("greedy", "root.one")
    core.asks("greedy", [f"g{at}" for at in range(4)], {"vcore": 1}, allocation_tags=tags)
    core.application("owed", "root.two")
    if asks:
        core.asks("owed", ["o"], {"vcore": 1})
    return core


def victims(core: Core, for_s: int) -> list[str]:
    """Return what is evicted in so many seconds; nothing goes."""
    end_ns, found = core.now_ns + seconds(for_s), []
    while True:
        due = [(due_ns, kind) for kind, (_, due_ns) in core.partition.timers.items()]
        if not due or min(due)[0] > end_ns:
            core.now_ns = end_ns
            core.check()
            return found
        found += section(core.fire_own(min(due)[1]), "released_allocations")
        core.check()


def keys(released: list) -> list[str]:
    return [item.allocation_key for item in released]


def gone(core: Core, key: str) -> None:
    why = TerminationType.PREEMPTED_BY_SCHEDULER
    core.update(releases=(AllocationRelease("greedy", key, why),))
    core.check()


@POLICIES
def test_another_victim_is_taken_after_two_minutes(policy):
    core = crowded(policy)
    (first,) = keys(victims(core, 30))
    assert keys(victims(core, 85)) == []
    (second,) = keys(victims(core, 30))
    assert second != first
    gone(core, second)
    assert list(core.partition.applications["owed"].allocations) == ["o"]
    assert keys(victims(core, 600)) == []
    gone(core, first)
    nodes = core.partition.nodes.nodes.values()
    assert sum(node.available.get("vcore", 0) for node in nodes) == 1


@POLICIES
def test_one_that_goes_after_all_gives_its_room_to_who_waits(policy):
    core = crowded(policy)
    (first,) = keys(victims(core, 30))
    (second,) = keys(victims(core, 120))
    assert second != first
    gone(core, first)
    gone(core, second)
    assert list(core.partition.applications["owed"].allocations) == ["o"]


@POLICIES
def test_the_time_is_a_setting(policy):
    core = crowded(policy, (("stuckInReleasing", "10s"),))
    assert len(victims(core, 20)) == 2
    core = crowded(policy, (("stuckInReleasing", "-1"),))
    assert len(victims(core, 3_000)) == 1


@POLICIES
def test_a_pod_that_may_take_longer_to_end_has_its_time(policy):
    core = crowded(policy, **{GRACE_SECONDS: "600"})
    assert len(victims(core, 30)) == 1
    assert victims(core, 600) == []
    assert len(victims(core, 150)) == 1
    core = crowded(policy, **{GRACE_SECONDS: "30"})
    assert len(victims(core, 150)) == 2


@POLICIES
def test_what_is_stuck_is_shown_as_that(policy):
    core = crowded(policy)
    (first,) = keys(victims(core, 30))
    victims(core, 120)
    states = [s for a in core.answers for s in getattr(a.message, "allocations", ())]
    stuck = [s for s in states if getattr(s, "stuck_since_ns", 0)]
    assert [s.allocation_key for s in stuck] == [first]
    texts = [e.message for a in core.answers for e in getattr(a.message, "events", ())]
    assert len([text for text in texts if "it is stuck" in text]) == 1


@POLICIES
def test_never_more_than_what_is_owed_is_taken(policy):
    """Each victim is stuck: at two of its guarantee the queue gives nothing more."""
    core = crowded(policy)
    assert len(victims(core, 3_600)) == 2


def test_of_a_gang_only_the_member_that_lost_its_room_looks_again():
    core = crowded("kai", asks=False)
    core.gang("gang", 2, {"vcore": 1}, queue="root.two")
    found = keys(victims(core, 30))
    assert len(found) == 2
    gone(core, found[0])
    assert not core.partition.applications["gang"].allocations
    assert victims(core, 240) == []  # one is left of its two that are owed to it
    core.node("n2", vcore=1)
    assert len(core.partition.applications["gang"].allocations) == 2
