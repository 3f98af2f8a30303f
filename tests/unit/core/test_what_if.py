"""What if: who would be evicted, what cannot be told, and how many may ask at once."""

from dataclasses import replace

import pytest

from services.core.scheduler.policies import what_if
from services.core.scheduler.policies.questions import BUSY, RECOVERING, Questions
from services.core.scheduler.scheduler import Scheduler
from shared.messages.constraints import Constraints
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    GangSchedulingStyle,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from shared.messages.what_if import QueueChange, WhatIf
from shared.model.names import RUN_SECONDS
from shared.model.reasons import EvictionCause, Reason
from shared.model.states import ApplicationState
from tests.builders import Core, config_of
from tests.property.dump import dump, whole
from tests.property.material import SELECTORS

OWED = "{name: b, resources: {guaranteed: {vcore: 8}}, properties: {preemption.delay: 1s}}"


def question(cores=4, queue="root.b", pods=1, **more):
    asks = tuple(AllocationAsk(f"new-{at}", "new", {"vcore": cores}, **more) for at in range(pods))
    return WhatIf(applications=(AddApplicationRequest("new", queue),), asks=asks)


def full(**more):
    core = Core(config_of("{name: a}", OWED), **more)
    for at in range(2):
        core.node(f"n{at}", vcore=4)
    core.application("victim", "root.a")
    core.asks("victim", [f"v{at}" for at in range(8)], {"vcore": 1})
    return core


def envelope(message, number=1, reply_to="api.one#1"):
    return Envelope(f"q{number}", "WhatIf", message, CORE, "api", reply_to=reply_to)


def test_who_would_be_evicted_is_told_and_then_goes():
    core = full()
    before = dump(core.partition)
    answer = what_if.forecast(core.partition, question(pods=2))
    assert dump(core.partition) == before
    (told,) = answer.applications
    assert (told.placed, told.after_evictions, told.reason) == (0, 2, Reason.QUEUE_QUOTA)
    assert {victim.law for victim in answer.victims} == {EvictionCause.GUARANTEE}
    core.application("new", "root.b")
    core.asks("new", ["new-0", "new-1"], {"vcore": 4})
    while len(core.partition.applications["victim"].released) < 8:
        core.fire_own("preemption")
    gone = core.partition.applications["victim"].released
    assert sorted(gone) == sorted(victim.allocation_key for victim in answer.victims)


def test_nobody_goes_for_an_ask_that_may_not_preempt():
    answer = what_if.forecast(full().partition, question(allow_preempt_other=False))
    assert (answer.victims, answer.applications[0].after_evictions) == ((), 0)


@pytest.mark.parametrize("policy", ["kai", "yunikorn"])
def test_who_would_go_is_told_under_every_policy_and_then_goes(policy):
    core = full(settings=(("policy", policy),))
    answer = what_if.forecast(core.partition, question())
    assert answer.applications[0].after_evictions == 1
    core.application("new", "root.b")
    core.asks("new", ["new-0"], {"vcore": 4})
    while not gone(core):
        core.fire_own("preemption")
    assert gone(core) == {victim.allocation_key for victim in answer.victims}


def test_labels_that_no_pod_has_looked_at_before_are_looked_at_and_forgotten():
    about_pods = next(item for item in SELECTORS if item.asks_about_pods)
    core = full()
    before = whole(core.partition)
    answer = what_if.forecast(core.partition, question(constraints=about_pods))
    assert answer.done
    assert answer.applications[0].wanted == 1
    assert whole(core.partition) == before


def test_an_ask_that_would_be_rejected_is_told_so():
    (told,) = what_if.forecast(full().partition, question(cores=-1)).applications
    assert (told.placed, told.reason) == (0, Reason.POD_REFUSED)
    assert told.message == "allocation contains negative resources"


def test_a_victim_of_an_ask_that_requires_its_node_is_told():
    core = full()
    core.node("n2", vcore=4)
    required = Constraints(required_node="n0")
    answer = what_if.forecast(core.partition, question(cores=1, constraints=required))
    core.application("new", "root.b")
    core.asks("new", ["new-0"], {"vcore": 1}, constraints=required)
    assert gone(core) == {victim.allocation_key for victim in answer.victims} != set()
    assert answer.applications[0].after_evictions == 1


def test_an_application_that_would_be_rejected_is_told_so():
    core = full()
    told = what_if.forecast(core.partition, question(queue="root.nowhere"))
    assert told.applications[0].rejected.startswith("failed to place application new")
    told = what_if.forecast(
        core.partition, WhatIf(applications=(AddApplicationRequest("victim", "root.a"),))
    )
    assert "already existed" in told.applications[0].rejected


def test_one_is_answered_at_a_time_and_the_others_are_refused():
    core = full()
    for number in (1, 2):
        core.scheduler.handle(envelope(question(), number, f"api.one#{number}"), core.now_ns)
    first, second = core.scheduler.flush(core.now_ns)
    assert first.message.done
    assert (second.message.done, second.message.message, second.reply_to) == (
        False, BUSY, "api.one#2",
    )  # fmt: skip
    assert core.scheduler.flush(core.now_ns) == []


def test_a_question_that_comes_again_is_answered_again_and_one_without_an_asker_is_not():
    core = full()
    answers = []
    for _ in range(2):
        core.scheduler.handle(envelope(question()), core.now_ns)
        answers += core.scheduler.flush(core.now_ns)
    assert answers[0] == answers[1]
    core.scheduler.handle(envelope(question(), reply_to=""), core.now_ns)
    assert core.scheduler.flush(core.now_ns) == []


def test_a_core_that_recovers_says_so():
    core = Scheduler("fresh", lambda _: None)
    core.handle(envelope(question()), 1)
    out = core.flush(1)
    assert [item.message.message for item in out if item.reply_to] == [RECOVERING]


def asked(core, text):
    """Ask about a configuration, and see that nothing is other than before."""
    before = dump(core.partition)
    answer = what_if.forecast(core.partition, WhatIf(queues=text), core.scheduler._parse(text))
    assert dump(core.partition) == before
    core.check()
    return answer


def gone(core):
    return {key for app in core.partition.applications.values() for key in app.released}


def test_a_guarantee_says_who_would_be_evicted_for_those_who_wait_and_then_they_go():
    core = Core(config_of("{name: a}", "{name: b}"))
    for at in range(2):
        core.node(f"n{at}", vcore=4)
    core.application("holder", "root.a")
    core.asks("holder", [f"v{at}" for at in range(8)], {"vcore": 1})
    for name in ("first", "second"):
        core.application(name, "root.b")
        core.asks(name, [f"{name}-0"], {"vcore": 2})
    assert asked(core, config_of("{name: a}", "{name: b}")).victims == ()
    owed = config_of("{name: a}", OWED)
    answer = asked(core, owed)
    told = {
        item.application_id: (item.placed, item.after_evictions) for item in answer.applications
    }
    assert told == {"first": (0, 1), "second": (0, 1)}
    assert [(victim.winner, victim.law) for victim in answer.victims] == [
        ("first", EvictionCause.GUARANTEE)] * 2 + [("second", EvictionCause.GUARANTEE)] * 2  # fmt: skip
    core.send(UpdateConfiguration(owed))
    while len(gone(core)) < 4:
        core.fire_own("preemption")
    assert gone(core) == {victim.allocation_key for victim in answer.victims}


def test_a_max_that_is_enforced_says_who_would_be_evicted_and_then_they_go():
    quota = "partitions: [{name: default, preemption: {quotapreemptionenabled: true}, queues: "
    text = quota + (
        "[{name: root, submitacl: '*', properties: {quota.preemption.delay: 10s}, queues: ["
        "{name: a, resources: {max: {vcore: 5m}}, queues: [{name: x, resources: {max: {vcore: 1m}}}, "
        "{name: y}]}]}]}]"
    )
    core = Core(config_of("{name: a, queues: [{name: x}, {name: y}]}"))
    core.node("n0", vcore=12)
    for leaf in "xy":
        core.application(leaf, f"root.a.{leaf}")
        core.asks(leaf, [f"{leaf}{at}" for at in range(4)], {"vcore": 1})
    answer = asked(core, text)
    assert {(victim.winner, victim.law) for victim in answer.victims} == {("", EvictionCause.QUOTA)}
    assert "who would start in the room" in answer.message
    core.send(UpdateConfiguration(text))
    core.fire_own("quota")
    assert gone(core) == {victim.allocation_key for victim in answer.victims}
    assert len(gone(core)) == 4  # three for the parent, and then of x one more


def test_a_group_that_a_limit_names_from_now_on_counts_what_its_users_have():
    named = "{name: b, limits: [{limit: l, groups: [dev], maxresources: {vcore: 9m}}]}"
    core = Core(config_of("{name: a, resources: {max: {vcore: 2m}}}", named))
    core.node("n0", vcore=8)
    ugi = UserGroupInformation("alice", ("dev",))
    for name, leaf in (("known", "b"), ("one", "a"), ("two", "a")):
        core.application(name, f"root.{leaf}", ugi=ugi)
        core.asks(name, [f"{name}-{at}" for at in range(3)], {"vcore": 1})
    limits = "limits: [{limit: l, groups: [dev], maxresources: {vcore: 3m}}]"
    answer = asked(core, config_of(f"{{name: a, {limits}}}", named))
    told = {item.application_id: item for item in answer.applications}
    assert (told["one"].placed, told["two"].placed) == (1, 0)
    assert told["two"].reason == Reason.USER_QUOTA


def test_what_becomes_of_queues_is_told():
    core = Core(config_of("{name: a, queues: [{name: x}]}", "{name: b}", "{name: c}"))
    core.application("app", "root.b")
    answer = asked(
        core,
        config_of("{name: a, queues: [{name: x, maxapplications: 3}]}", "{name: c}", "{name: d}"),
    )
    assert [(told.queue_name, told.change, told.applications, told.changed) for told in answer.queues] == [
        ("root.a.x", QueueChange.CHANGED, 0, ("maxapplications",)),
        ("root.b", QueueChange.DRAINS, 1, ()),
        ("root.d", QueueChange.COMES, 0, ()),
    ]  # fmt: skip
    parent = "{name: a, queues: [{name: x}]}"
    core.send(UpdateConfiguration(config_of(parent, "{name: c}")))
    back = asked(core, config_of(parent, "{name: b}", "{name: c}"))
    kinds = {told.queue_name: told.change for told in back.queues}
    assert kinds["root.b"] is QueueChange.STAYS
    assert "root.c" not in kinds


def test_a_configuration_that_a_reload_would_refuse_has_no_forecast():
    core = Core(config_of("{name: a}"))
    core.application("app", "root.a")
    answer = asked(core, config_of("{name: a, queues: [{name: x}]}"))
    assert not answer.done
    assert answer.message.startswith("queue root.a has 1 applications and cannot become a parent")


def test_whoever_is_supposed_to_go_is_taken_for_one_only():
    core = full()
    asks = tuple(AllocationAsk(f"{name}-0", name, {"vcore": 4}) for name in ("new", "next"))
    applications = tuple(AddApplicationRequest(name, "root.b") for name in ("new", "next"))
    answer = what_if.forecast(core.partition, WhatIf(applications=applications, asks=asks))
    keys = [victim.allocation_key for victim in answer.victims]
    assert len(keys) == len(set(keys)) == 8


def runs(seconds):
    return {RUN_SECONDS: str(seconds)} if seconds else {}


def busy(*run_seconds, config="{name: b}", **more):
    """Return a node of so many cores, each held by a pod that says how long it runs, or not."""
    core = Core(config_of("{name: a}", config), **more)
    core.node("n0", vcore=len(run_seconds))
    core.application("old", "root.a")
    for at, stated in enumerate(run_seconds):
        core.asks("old", [f"old-{at}"], {"vcore": 1}, allocation_tags=runs(stated))
    return core


def start_of(core, asked_for):
    """Return after how many seconds an application is expected, and why it is not."""
    before = dump(core.partition)
    (told,) = (
        item for item in what_if.forecast(core.partition, asked_for).applications if item.is_new
    )
    assert dump(core.partition) == before
    core.check()
    since = told.expected_start_ns - core.now_ns
    return since // 10**9 if told.expected_start_ns else None, told.no_start


def test_the_expected_start_is_when_enough_pods_have_ended():
    core = busy(60, 10, 30, 20)
    assert start_of(core, question(cores=2)) == (20, "")
    assert start_of(core, question(cores=1, pods=3)) == (30, "")
    core.now_ns += 15 * 10**9
    core.update()
    assert start_of(core, question(cores=1)) == (0, "")  # its time was up five seconds ago


def test_without_known_run_times_it_says_so():
    assert start_of(busy(0, 10, 0, 20), question(cores=3)) == (
        None, "no expected start: 2 of 4 running pods state no run time",
    )  # fmt: skip
    assert start_of(busy(0, 10, 0, 20), question(cores=2)) == (20, "")
    assert start_of(busy(5, 10), question(cores=3)) == (
        None, "no expected start: it would wait still when all 2 running pods had ended",
    )  # fmt: skip


def test_timeouts_that_the_core_enforces_are_known_ends_too():
    core = busy(0, 0)
    assert start_of(core, question(cores=1))[0] is None
    core = Core(config_of("{name: a}", "{name: b}"))
    core.node("n0", vcore=2)
    core.application("old", "root.a")
    core.asks("old", ["old-0"], {"vcore": 1}, exec_timeout_milli_seconds=40_000)
    core.application(
        "other", "root.a",
        placeholder_timeout_milli_seconds=1000, execution_timeout_milli_seconds=90_000,
    )  # fmt: skip
    core.asks("other", ["other-0"], {"vcore": 1}, allocation_tags=runs(300))
    assert start_of(core, question(cores=1)) == (40, "")
    assert start_of(core, question(cores=2)) == (90, "")


def test_who_waits_already_is_placed_first():
    core = busy(10, 20, 30)
    core.application("ahead", "root.b")
    core.asks("ahead", ["ahead-0", "ahead-1"], {"vcore": 1})
    assert start_of(core, question(cores=1)) == (30, "")


def test_a_gang_is_expected_when_all_of_it_has_room():
    core = busy(10, 20, 30, config="{name: b, resources: {max: {vcore: 2m}}}")
    core.application("in", "root.b")
    for key, stated in (("in-0", 40), ("in-1", 0)):
        core.asks("in", [key], {"vcore": 1}, allocation_tags=runs(stated))
    members = [AllocationAsk(f"new-{at}", "new", {"vcore": 1}, placeholder=True, task_group_name="tg")
               for at in range(2)]  # fmt: skip
    request = AddApplicationRequest("new", "root.b", placeholder_ask={"vcore": 2})
    gang = WhatIf(applications=(request,), asks=tuple(members))
    assert start_of(core, gang)[1].endswith("before it has a place")  # behind two of its queue
    free = replace(gang, applications=(replace(request, queue_name="root.a"),))
    assert start_of(busy(10, 20, 30), free) == (20, "")


def test_an_expected_start_that_takes_too_many_steps_is_not_told(monkeypatch):
    monkeypatch.setattr(what_if, "MAX_STEPS", 4)
    told = start_of(busy(*range(1, 60)), question(cores=50))
    assert told == (None, "no expected start: to find it takes more steps than a forecast has")


def asked_when(core, name="late"):
    """Return after how many seconds who waits is expected, and nine of ten, and why not."""
    before = whole(core.partition)
    (told,) = what_if.forecast(core.partition, WhatIf(when=(name,))).applications
    assert whole(core.partition) == before
    moments = (told.expected_start_ns, told.latest_start_ns, told.no_start_before_ns)
    return tuple(at and (at - core.now_ns) // 10**9 for at in moments), told.no_start


def ends(core, name, key, seconds):
    """Let time pass, and an application end with its pod."""
    core.now_ns += seconds * 10**9
    gone = AllocationRelease(name, key, TerminationType.STOPPED_BY_RM, has_succeeded=True)
    core.update(releases=(gone,), remove_applications=(RemoveApplicationRequest(name),))


def ran(core, *seconds, stated=0):
    """Let pods of root.a run for so long, one after the other."""
    for at, run in enumerate(seconds):
        core.application(f"before-{at}", "root.a")
        core.asks(f"before-{at}", [f"b-{at}"], {"vcore": 1}, allocation_tags=runs(stated))
        ends(core, f"before-{at}", f"b-{at}", run)


def waits(core, cores=1):
    core.application("late", "root.b")
    core.asks("late", ["late-0"], {"vcore": cores})


def history(*seconds, stated=0):
    """Return a node that is held by a pod of a queue in which others ran for so long."""
    core = Core(config_of("{name: a}", "{name: b}"))
    core.node("n0", vcore=1)
    ran(core, *seconds, stated=stated)
    core.application("old", "root.a")
    core.asks("old", ["old-0"], {"vcore": 1}, allocation_tags=runs(10 * stated))
    waits(core)
    return core


def test_when_of_who_waits_is_by_what_others_ran():
    core = history(*range(100, 1100, 100))
    (start, latest, _), why = asked_when(core)
    assert (why, 300 <= start <= 800, start < latest <= 1000) == ("", True, True)
    core.now_ns += 850 * 10**9  # two of its kind ran for longer
    core.update()
    (start, latest, _), _ = asked_when(core)
    assert 50 <= start <= latest <= 150


def test_when_of_what_outlives_all_others_is_later_the_longer_it_ran():
    core = history(10, 10, 10)
    core.now_ns += 5_000 * 10**9
    core.update()
    (start, latest, _), _ = asked_when(core)
    assert 1_000 < start < 20_000
    assert latest > start


def test_when_by_stated_times_is_as_stated_until_others_used_less_of_theirs():
    core = busy(600)
    waits(core)
    assert asked_when(core) == ((600, 600, 0), "")
    assert asked_when(history(*[60] * 16, stated=600)) == ((600, 600, 0), "")
    (start, latest, _), _ = asked_when(history(60, 60, stated=600))  # few: it may take all of it
    assert 600 <= start <= latest == 6_000


def test_a_gang_that_gives_up_before_it_has_a_place_has_no_start():
    core = Core(config_of("{name: a}"), settings=(("gangAdmission", "partial"),))
    core.node("n0", vcore=2)
    core.application("old", "root.a")
    core.asks("old", ["old-0"], {"vcore": 1}, allocation_tags=runs(5_000))
    core.gang("late", 2, {"vcore": 1}, queue="root.a", placeholder_timeout_milli_seconds=600_000)
    (start, latest, before), why = asked_when(core)
    assert (start, latest, before) == (0, 0, 600)
    assert why.endswith("its placeholders would time out before it has a place")


def test_what_a_gang_that_gives_up_holds_is_had_by_others():
    core = Core(config_of("{name: a}", "{name: b}"), settings=(("gangAdmission", "partial"),))
    core.node("n0", vcore=2)
    core.application("old", "root.a")
    core.asks("old", ["old-0"], {"vcore": 1}, allocation_tags=runs(1_000))
    core.gang("gang", 2, {"vcore": 1}, queue="root.a", placeholder_timeout_milli_seconds=100_000)
    assert len(core.partition.applications["gang"].allocations) == 1
    waits(core)
    assert asked_when(core) == ((100, 100, 0), "")


def test_a_gang_takes_its_placeholders_places_and_runs_once():
    core = busy(10)
    core.application("gang", "root.a", placeholder_ask={"vcore": 1})
    more = {"task_group_name": "tg", "allocation_tags": runs(30)}
    core.asks("gang", ["ph"], {"vcore": 1}, placeholder=True, **more)
    core.asks("gang", ["real"], {"vcore": 1}, **more)
    core.application("late", "root.a")
    core.asks("late", ["late-0"], {"vcore": 1})
    assert asked_when(core, "gang") == ((10, 10, 0), "")
    assert asked_when(core) == ((40, 40, 0), "")


def test_when_of_one_that_nobody_knows_or_that_waits_for_nothing():
    core = busy(600)
    assert not what_if.forecast(core.partition, WhatIf(when=("nobody",))).done
    (told,) = what_if.forecast(core.partition, WhatIf(when=("old",))).applications
    assert (told.wanted, told.expected_start_ns) == (0, 0)


def test_what_takes_too_many_steps_is_told_as_not_before(monkeypatch):
    monkeypatch.setattr(what_if, "MAX_STEPS", 4)
    core = busy(*range(1, 60))
    waits(core, 50)
    (start, latest, before), why = asked_when(core)
    assert (start, latest, before > 0) == (0, 0, True)
    assert why.endswith("more steps than a forecast has")


def test_a_forecast_is_compared_with_what_comes():
    errors = []
    core = busy(600, questions=Questions(observe=lambda which, ns: errors.append((which, ns))))
    waits(core)
    core.scheduler.handle(envelope(WhatIf(when=("late",))), core.now_ns)
    core.scheduler.flush(core.now_ns)
    ends(core, "old", "old-0", 700)
    told = core.scheduler.figures()
    assert told["forecasts_compared_total"] == {"default": 1}
    assert told["forecast_missed_total"] == {"default": 1}
    assert errors == [("p50", 100 * 10**9), ("p90", 100 * 10**9)]


def test_the_moment_for_nine_of_ten_is_as_much_later_as_it_had_to_be_before():
    """Each runs for twice as long as it states; the sixth that is asked about is told so."""
    core = Core(config_of("{name: a}"))
    core.node("n0", vcore=1)
    told = []
    for at in range(7):
        core.application(f"job-{at}", "root.a")
        core.asks(f"job-{at}", [f"job-{at}-0"], {"vcore": 1}, allocation_tags=runs(100))
        if not at:
            continue
        core.scheduler.handle(envelope(WhatIf(when=(f"job-{at}",))), core.now_ns)
        answers = [item.message for item in core.scheduler.flush(core.now_ns) if item.reply_to]
        ((each,),) = [answer.applications for answer in answers]
        moments = (each.expected_start_ns, each.latest_start_ns)
        told.append(tuple((moment - core.now_ns) // 10**9 for moment in moments))
        core.now_ns += 200 * 10**9
        stopped = TerminationType.STOPPED_BY_RM
        core.update(releases=(AllocationRelease(f"job-{at - 1}", f"job-{at - 1}-0", stopped),))
    assert told == [(100, 100)] * 5 + [(100, 200)]
    assert core.scheduler.figures()["forecast_missed_total"] == {"default": 5}


def test_a_forecast_of_a_partition_that_is_no_more_is_forgotten():
    core = busy(600)
    waits(core)
    core.scheduler.handle(envelope(WhatIf(when=("late",))), core.now_ns)
    core.scheduler.flush(core.now_ns)
    core.epoch += 1
    core.send(SyncBegin(config_of("{name: a}", "{name: b}")))
    core.send(SyncEnd(0, 0, 0))
    core.node("n0", vcore=1)
    waits(core)
    assert core.scheduler.figures()["forecasts_compared_total"] == {"default": 0}


def test_a_node_with_the_last_pod_of_an_application_that_fails_may_be_drained():
    core = Core(config_of("{name: a}"))
    core.node("n0", vcore=4)
    request = {"gang_scheduling_style": GangSchedulingStyle.HARD}
    core.gang("gang", 2, {"vcore": 3}, queue="root.a", **request)
    core.fire("gang", "placeholder")
    gang = core.partition.applications["gang"]
    assert (gang.state, len(gang.allocations)) == (ApplicationState.FAILING, 1)
    before = whole(core.partition)
    assert what_if.forecast(core.partition, WhatIf(drain="n0")).done
    assert whole(core.partition) == before


def test_what_starts_later_takes_its_own_steps(monkeypatch):
    monkeypatch.setattr(what_if, "MAX_STEPS", 20)
    core = Core(config_of("{name: a}", "{name: b}"))
    core.node("n0", vcore=18)
    core.application("old", "root.a")
    core.asks("old", ["old-0"], {"vcore": 1}, allocation_tags=runs(10))
    answer = what_if.forecast(core.partition, question(cores=1, pods=18))
    (told,) = answer.applications
    assert (told.placed, answer.message) == (17, "")
    assert told.expected_start_ns == core.now_ns + 10 * 10**9


def test_other_limits_of_the_queues_let_who_waits_start():
    core = Core(config_of("{name: a, resources: {max: {vcore: 2m}}}"))
    core.node("n0", vcore=8)
    core.application("first", "root.a")
    core.asks("first", ["p0", "p1", "p2"], {"vcore": 1})
    before = dump(core.partition)
    config = core.scheduler._parse(config_of("{name: a, resources: {max: {vcore: 3m}}}"))
    (told,) = what_if.forecast(core.partition, WhatIf(queues="x"), config).applications
    assert (told.application_id, told.placed, told.wanted) == ("first", 1, 1)
    assert dump(core.partition) == before


def test_changes_are_supposed_together_and_nothing_stays():
    """Room comes from an added node like the largest, a deleted application, and other limits."""
    core = Core(config_of("{name: a}", "{name: b, resources: {max: {vcore: 4m}}}"))
    for name, cores in (("big", 8), ("small", 4)):
        core.node(name, vcore=cores)
    core.application("old", "root.a")
    core.asks("old", [f"old-{at}" for at in range(12)], {"vcore": 1})
    core.application("waits", "root.a")
    core.asks("waits", [f"waits-{at}" for at in range(12)], {"vcore": 1})
    before = dump(core.partition)
    text = config_of("{name: a}", "{name: b, resources: {max: {vcore: 8m}}}")
    asked_for = replace(question(cores=8), add_nodes=1, drain="small", delete=("old",), queues=text)
    answer = what_if.forecast(core.partition, asked_for, core.scheduler._parse(text))
    told = {item.application_id: (item.placed, item.wanted) for item in answer.applications}
    assert (answer.like, answer.drained, answer.moved) == ("big", 0, 0)
    assert told == {"new": (1, 1), "waits": (8, 12)}  # 16 cores in all
    assert [queue.queue_name for queue in answer.queues] == ["root.b"]
    more = what_if.forecast(
        core.partition, replace(asked_for, add_nodes=2), core.scheduler._parse(text)
    )
    told = {item.application_id: item.placed for item in more.applications}
    assert told == {"new": 1, "waits": 12}
    assert dump(core.partition) == before
    core.check()


def test_the_pods_of_a_drained_node_are_counted_beside_who_else_would_start():
    core = Core(config_of("{name: a}", "{name: b}"))
    for name in ("n0", "n1"):
        core.node(name, vcore=4)
    core.application("old", "root.a")
    core.asks("old", [f"old-{at}" for at in range(6)], {"vcore": 1})
    on = len(core.partition.nodes.nodes["n0"].allocations)
    asked_for = replace(question(cores=4), drain="n0", add_nodes=1, like="n1")
    answer = what_if.forecast(core.partition, asked_for)
    assert (answer.drained, answer.moved) == (on, 1) == (3, 1)  # n1 has room for one of them
    told = {item.application_id: item.placed for item in answer.applications}
    assert told == {"old": 1, "new": 1}


def test_an_application_that_is_not_there_is_not_deleted():
    answer = what_if.forecast(full().partition, WhatIf(delete=("victim", "nobody")))
    assert (answer.done, answer.message) == (False, "there is no application 'nobody' to delete")
