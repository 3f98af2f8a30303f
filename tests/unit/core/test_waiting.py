"""At a waiting list applications that are alike wait as one (ADR 30)."""

import pytest

from services.core.scheduler.actions import gang
from services.core.scheduler.queues.dynamic_queues import apply_quota_tags
from shared.messages.interface import (
    AllocationAskRelease,
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
)
from tests.builders import Core, config_of

QUOTA_TAG = '{"resources": {"vcore": {"value": 1}}}'
STOPPED = TerminationType.STOPPED_BY_RM
LEAF = "{name: a, resources: {max: {vcore: 8m}}}"


class Waiting(Core):
    """A leaf of 8 that a filler uses, and gangs that wait for it; counts whom it considers."""

    def __init__(self, monkeypatch, gangs: int, members: int = 4, leaf: str = LEAF):
        super().__init__(config_of(leaf))
        self.considered: list[str] = []
        as_it_is = gang.admission_refusal

        def counted(partition, application):
            self.considered.append(application.id)
            return as_it_is(partition, application)

        monkeypatch.setattr(gang, "admission_refusal", counted)
        self.node("n", vcore=100)
        self.application("filler", "root.a")
        self.asks("filler", [f"f{at}" for at in range(8)], {"vcore": 1})
        for at in range(gangs):
            self.now_ns += 1
            self.gang(f"g{at}", members, {"vcore": 1}, queue="root.a")
        self.check()
        self.considered.clear()
        self.answers.clear()

    def free(self, *keys: str) -> None:
        self.update(releases=tuple(AllocationRelease("filler", key, STOPPED) for key in keys))
        self.check()

    def started(self) -> list[str]:
        apps = self.partition.applications
        return [name for name, app in apps.items() if app.gang_admitted]

    def told(self) -> list[str]:
        """Return the applications whose values were told since, in order."""
        found = [getattr(item.message, "applications", ()) for item in self.answers]
        return [app.application_id for part in found for app in part]


@pytest.mark.parametrize("gangs", [5, 50])
def test_like_gangs_sleep_until_one_fits_and_the_first_is_tried(monkeypatch, gangs):
    core = Waiting(monkeypatch, gangs)
    since_ns = core.partition.applications["g0"].refused_since_ns
    core.now_ns += 1_000
    core.free("f0")
    core.free("f1", "f2")
    assert core.considered == []
    assert set(core.told()) == {"filler"}
    assert core.partition.applications["g0"].refused_since_ns == since_ns
    core.free("f3")
    assert core.started() == ["g0"]
    assert list(dict.fromkeys(core.considered)) == ["g0", "g1"]


def test_the_next_of_the_class_starts_where_there_is_room_for_it_too(monkeypatch):
    core = Waiting(monkeypatch, 5)
    core.free(*(f"f{at}" for at in range(8)))
    assert core.started() == ["g0", "g1"]
    core.update(remove_applications=(RemoveApplicationRequest("g0"),))
    assert core.started() == ["g1", "g2"]
    core.check()


def test_one_that_ends_or_needs_nothing_more_keeps_nobody_asleep(monkeypatch):
    core = Waiting(monkeypatch, 5)
    gone = tuple(AllocationAskRelease("g0", f"g0-ph-{at}", STOPPED) for at in range(4))
    core.update(
        releases=tuple(AllocationRelease("filler", f"f{at}", STOPPED) for at in range(4)),
        ask_releases=gone,
        remove_applications=(RemoveApplicationRequest("g1"),),
    )
    assert core.started() == ["g2"]
    core.check()


def test_who_comes_first_by_a_new_priority_is_tried_first(monkeypatch):
    core = Waiting(monkeypatch, 5)
    core.asks("g3", ["more"], {"vcore": 1}, priority=5, task_group_name="tg", placeholder=True)
    core.free("f0", "f1", "f2", "f3")
    assert core.started() == ["g3"]
    core.check()


def test_like_gangs_that_wait_to_run_start_one_by_one(monkeypatch):
    core = Waiting(monkeypatch, 6, members=1, leaf="{name: a, maxapplications: 1}")
    assert core.started() == []
    core.update(remove_applications=(RemoveApplicationRequest("filler"),))
    assert core.started() == ["g0"]
    assert core.considered.count("g2") == 0
    core.check()


GUARANTEED = "{name: a, resources: {max: {vcore: 8m}, guaranteed: {vcore: 1m}}}"


def test_where_somebody_may_preempt_the_first_of_the_class_is_tried_at_every_chance(monkeypatch):
    core = Waiting(monkeypatch, 5, leaf=GUARANTEED)
    since_ns = core.partition.applications["g0"].refused_since_ns
    core.now_ns += 1_000
    core.free("f0")
    core.free("f1")
    assert core.considered == ["g0", "g0"]
    assert set(core.told()) == {"filler", "g0"}
    assert core.partition.applications["g0"].refused_since_ns == since_ns


def test_asks_sleep_until_their_shape_fits_what_their_queue_has_left(monkeypatch):
    core = Waiting(monkeypatch, 0)
    for size in (2, 3, 4):
        core.asks("filler", [f"w{size}"], {"vcore": size})
    buckets = core.partition.queues["root.a"].buckets
    refusals = [bucket.refusal for bucket in buckets.values()]
    core.free("f0")
    assert [bucket.refusal for bucket in buckets.values()] == refusals
    core.free("f1")
    assert sorted(core.partition.applications["filler"].group_of) == ["w3", "w4"]


def test_a_dynamic_queues_new_guarantee_wakes_who_may_preempt_from_now_on(monkeypatch):
    core = Waiting(monkeypatch, 3)
    leaf = core.partition.queues["root.a"]
    leaf.is_managed = False
    apply_quota_tags(core.partition, leaf, {"namespace.resourceguaranteed": QUOTA_TAG})
    core.asks("filler", ["more"], {"vcore": 1})
    assert core.considered.count("g0") == 1
    assert core.considered.count("g1") == 0


def test_a_smaller_gang_does_not_sleep_behind_a_larger_one(monkeypatch):
    core = Waiting(monkeypatch, 3, leaf=GUARANTEED)
    core.now_ns += 1
    core.gang("small", 2, {"vcore": 1}, queue="root.a")
    core.free("f0", "f1")
    assert core.started() == ["small"]
