"""A pass of searches for victims that has much to try: it is cut, and goes on with the next batch."""

import pytest

from services.core.scheduler.actions import cycle, live_actions
from shared.messages.interface import AllocationAsk, AllocationRelease, TerminationType
from shared.messages.protocol import ContinueCycle, Heartbeat, SyncBegin, SyncEnd
from tests.builders import Core, config_of, section

ONE = {"vcore": 1_000, "pods": 1}


def crowded(asks, actions="reclaim"):
    """Return a core under kai where so many asks of one queue reclaim what another has too much."""
    owed = f"resources: {{guaranteed: {{vcore: {asks}}}}}"
    config = config_of(f"{{name: all, {owed}}}", f"{{name: owed, {owed}}}", "{name: third}")
    core = Core(config, settings=(("policy", "kai"), ("actions", actions)))
    core.goes_on = False
    for at in range(asks):
        core.node(f"n{at}", vcore=2_000, pods=10)
    for at in range(2 * asks):
        core.application(f"all-{at}", "root.all")
        core.asks(f"all-{at}", [f"r{at}"], ONE)
    for at in range(asks):
        core.application(f"owed-{at}", "root.owed")
        core.asks(f"owed-{at}", [f"w{at}"], ONE)
    return core


def released(core, since=0):
    told = [answer.message for answer in core.answers[since:]]
    return [item.allocation_key for item in section(
        [message for message in told if hasattr(message, "released_allocations")],
        "released_allocations",
    )]  # fmt: skip


def notes(core, since):
    """Return the notes to itself that the core wrote."""
    return [
        item.message for item in core.answers[since:] if isinstance(item.message, ContinueCycle)
    ]


@pytest.fixture(name="little")
def fixture_little(monkeypatch):
    monkeypatch.setattr(live_actions, "MAX_WORK", 20)


def go_on(core, since):
    """Hand the core its notes; return how many releases each batch had, the first left out."""
    batches = []
    while waiting := notes(core, since):
        assert len(waiting) == 1, "one note is on its way at a time"
        since = len(core.answers)
        core.send(waiting[0])
        batches.append(len(released(core, since)))
    return batches


@pytest.mark.usefixtures("little")
def test_a_pass_is_cut_and_ends_as_it_would_in_one_go():
    core = crowded(24)
    since = len(core.answers)
    core.fire_own("preemption")
    first = len(released(core, since))
    assert 0 < first < 24
    batches = go_on(core, since)
    assert len(batches) >= 3
    assert max(first, *batches) <= 20
    assert len(released(core, since)) == 24
    core.check()


def test_how_much_is_tried_in_one_go_does_not_decide_who_goes(monkeypatch):
    found = []
    for most in (1, 20, 10**9):
        monkeypatch.setattr(live_actions, "MAX_WORK", most)
        core = crowded(8)
        since = len(core.answers)
        core.fire_own("preemption")
        go_on(core, since)
        found.append(released(core, since))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 8


@pytest.mark.usefixtures("little")
def test_others_have_their_turn_while_a_pass_goes_on():
    core = crowded(24)
    core.application("third", "root.third")
    since = len(core.answers)
    core.fire_own("preemption")
    (note,) = notes(core, since)
    core.send(Heartbeat("t"))
    core.node("more", vcore=1_000, pods=10)
    placed = section(core.asks("third", ["now"], {"pods": 1}), "new_allocations")
    assert [item.allocation_key for item in placed] == ["now"]
    gone = released(core, since)[0]
    core.update(releases=(_confirmed(core, gone),))
    assert len(notes(core, since)) == 1, "others write no note for it"
    since = len(core.answers)
    core.send(note)
    assert released(core, since) or notes(core, since)
    core.check()


@pytest.mark.usefixtures("little")
def test_a_look_that_comes_while_a_pass_goes_on_does_not_begin_it_anew():
    core = crowded(24)
    since = len(core.answers)
    core.fire_own("preemption")
    core.partition.check_preemption_at(core.now_ns)
    core.fire_own("preemption")
    go_on(core, since)
    assert len(released(core, since)) == 24
    assert "preemption" in core.partition.timers, "and another look follows"


@pytest.mark.usefixtures("little")
def test_a_pass_ends_with_its_epoch():
    core = crowded(24)
    since = len(core.answers)
    core.fire_own("preemption")
    (note,) = notes(core, since)
    core.epoch = 2
    core.send(SyncBegin(config_of("{name: all}"), (("policy", "kai"),)))
    core.send(SyncEnd(0, 0, 0))
    since = len(core.answers)
    core.send(note, epoch=1)
    core.send(note)
    assert not released(core, since)
    assert not notes(core, since)


def _confirmed(core, key):
    owner = next(app.id for app in core.partition.applications.values() if key in app.allocations)
    return AllocationRelease(owner, key, TerminationType.PREEMPTED_BY_SCHEDULER)


def test_a_cycle_that_refuses_many_is_cut_too_and_those_left_are_refused_in_the_next(monkeypatch):
    monkeypatch.setattr(cycle, "MAX_REFUSALS", 5)
    core = Core(config_of("{name: a}", "{name: b}"))
    core.goes_on = False
    core.node("n", vcore=1_000, pods=10)
    core.application("x", "root.a")
    since = len(core.answers)
    asks = [AllocationAsk(f"x{at}", "x", {"vcore": 2_000 + at}) for at in range(12)]
    core.update(asks=tuple(asks))
    (note,) = notes(core, since)
    told = len(refused(core))
    assert 0 < told < 12
    core.application("y", "root.b")
    placed = section(core.asks("y", ["now"], ONE, priority=1), "new_allocations")
    assert [item.allocation_key for item in placed] == ["now"]
    core.send(note)
    for _ in range(4):
        core.send(Heartbeat("t"))
    assert len(refused(core)) == 12
    core.check()


def refused(core):
    """Return the shapes in root.a that were told to be refused."""
    return {
        item.asks
        for answer in core.answers
        for item in getattr(answer.message, "refusals", ())
        if item.path == "root.a" and item.why is not None
    }
