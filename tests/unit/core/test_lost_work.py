"""Of victims that may all go, those go that lose the least work; what is lost is counted."""

from shared.messages.interface import (
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
    UserGroupInformation,
)
from shared.model.gpus import GPU
from shared.model.names import CHECKPOINT_SECONDS, JOB, RESTART_SECONDS
from shared.model.units import seconds
from tests.builders import Core, config_of, section
from tests.table import each_row

HOUR = 3_600
LEAST_LOST = (("policy", "kai"), ("victimOrder", "leastLost"))


def evicted(core: Core, looks: int = 3) -> list[str]:
    found = []
    for _ in range(looks):
        found += section(core.fire_own("preemption"), "released_allocations")
    return [item.allocation_key for item in found]


def running(core: Core, name: str, gpus: int, ran_s: int, priority: int = 0, **tags: int) -> None:
    stated = {"every": CHECKPOINT_SECONDS, "restart": RESTART_SECONDS}
    core.application(name, "root.a")
    allocation = Allocation(
        name, name, f"n-{name}", {GPU: gpus}, priority=priority,
        allocated_ns=core.now_ns - seconds(ran_s),
        allocation_tags={stated[key]: str(value) for key, value in tags.items()},
    )  # fmt: skip
    core.node(f"n-{name}", **{GPU: gpus})
    core.update(allocations=(allocation,))


@each_row(
    ("one", "two", "goes"),
    [
        ((8, 2_100, 0, {"every": 600}), (8, 6_000, 0, {"every": 3_600}), "x"),  # C1: 300 and 2400 s
        ((16, 1_200, 0, {"every": 1_800, "restart": 0}), (8, 900, 0, {"every": 1_800}), "y"),  # C2
        ((8, 5 * HOUR, 0, {}), (8, 70 * 60, 0, {}), "y"),  # C3: an hour each, the younger
        ((8, 2_000, 0, {}), (8, 10, 5, {"every": 10}), "x"),  # C4: the priority comes first
        ((8, 100, 0, {"every": 50, "restart": 90}), (8, 60, 0, {}), "y"),
    ],
)
def test_of_two_that_may_go_the_one_goes_that_loses_less(one, two, goes):
    core = Core(config_of("{name: a}"), settings=LEAST_LOST)
    for name, (gpus, ran_s, priority, tags) in (("x", one), ("y", two)):
        running(core, name, gpus, ran_s, priority, **tags)
    core.application("p", "root.a")
    core.asks("p", ["p"], {GPU: 8}, priority=9)
    assert evicted(core) == [goes]
    core.check()


def test_the_youngest_goes_unless_it_is_asked_for_and_what_is_lost_is_counted():
    core = Core(config_of("{name: a}"), settings=(("policy", "kai"),))
    running(core, "x", 8, 2_100, every=600)
    running(core, "y", 8, 6_000, every=3_600, restart=100)
    core.application("p", "root.a")
    core.asks("p", ["p"], {GPU: 8}, priority=9)
    assert evicted(core) == ["y"]
    lost = core.scheduler.figures()["lost_gpu_seconds_total"]["default"]
    assert 8 * 2_500 <= lost <= 8 * 2_510
    assert core.scheduler.figures()["lost_vcore_seconds_total"] == {"default": 0}


# --- attained service ---------------------------------------------------------------------------

LEVELS = "{name: a, properties: {attained.service.levels: '1h', preempt.min.runtime: %ss}}"


def with_levels(window_s: int = 0) -> Core:
    return Core(config_of(LEVELS % window_s), settings=(("policy", "kai"),))


@each_row(
    ("ran_s", "tags", "window_s", "goes"),
    [
        (600, {"every": 60, "restart": 60}, 0, True),  # 80 of 60 GPU-minutes; a minute is lost
        (400, {"every": 60, "restart": 60}, 0, False),  # 53: on the same level
        (600, {"every": 60, "restart": 600}, 0, False),  # a restart costs what it has had
        (600, {}, 0, False),  # all would be lost
        (4_000, {}, 0, True),  # an hour of it
        (600, {"every": 60}, 900, False),  # it has just begun
    ],
)
def test_less_service_preempts_more_only_where_more_is_gained_than_lost(
    ran_s, tags, window_s, goes
):
    core = with_levels(window_s)
    running(core, "x", 8, ran_s, **tags)
    core.application("p", "root.a")
    core.asks("p", ["p"], {GPU: 8})
    assert evicted(core, looks=1) == (["x"] if goes else [])
    core.check()


def test_what_was_preempted_goes_after_what_has_had_less_and_takes_nothing_back():
    core = with_levels()
    running(core, "x", 8, 600, every=60)
    core.application("p", "root.a")
    core.asks("p", ["p"], {GPU: 8})
    assert evicted(core, looks=1) == ["x"]
    why = TerminationType.PREEMPTED_BY_SCHEDULER
    core.update(releases=(AllocationRelease("x", "x", why),))
    core.asks("x", ["x2"], {GPU: 8})
    core.application("q", "root.a")
    core.asks("q", ["q"], {GPU: 8})
    assert list(core.partition.applications["p"].allocations) == ["p"]
    core.update(releases=(AllocationRelease("p", "p", TerminationType.STOPPED_BY_RM),))
    held = {name: list(core.partition.applications[name].allocations) for name in "xq"}
    assert held == {"x": [], "q": ["q"]}
    core.check()


def test_the_service_of_an_evicted_job_is_that_of_its_next_application_until_one_ends_well():
    core = with_levels()
    core.node("n", **{GPU: 8})

    def comes(name: str, job: str, user: str = "alice") -> tuple[int, int]:
        core.application(name, "root.a", tags={JOB: job}, ugi=UserGroupInformation(user))
        application = core.partition.applications[name]
        return application.served[0] // seconds(1_000), application.service_level

    def goes(name: str, why: TerminationType, *, has_succeeded: bool = False) -> None:
        core.update(releases=(AllocationRelease(name, name, why, has_succeeded=has_succeeded),))
        core.update(remove_applications=(RemoveApplicationRequest(name),))
        core.check()

    assert comes("x", "train") == (0, 0)
    core.asks("x", ["x"], {GPU: 8}, allocation_tags={CHECKPOINT_SECONDS: "60"})
    core.now_ns += seconds(600)
    core.application("p", "root.a")
    core.asks("p", ["p"], {GPU: 8})
    assert evicted(core, looks=1) == ["x"]
    core.update(ask_releases=(AllocationAskRelease("p", "", TerminationType.STOPPED_BY_RM),))
    goes("x", TerminationType.PREEMPTED_BY_SCHEDULER)
    had, level = comes("y", "train")
    assert 8 * 600 <= had <= 8 * 610
    assert level == 1
    assert [comes(*other) for other in (("z", "x"), ("x", ""), ("o", "train", "bob"))] == [
        (0, 0)
    ] * 3
    core.asks("y", ["y"], {GPU: 8})
    goes("y", TerminationType.STOPPED_BY_RM, has_succeeded=True)
    assert comes("y2", "train") == (0, 0)
