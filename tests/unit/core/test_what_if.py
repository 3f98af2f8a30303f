"""What if: who would be evicted, what cannot be told, and how many may ask at once."""

from services.core.scheduler.policies import what_if
from services.core.scheduler.scheduler import BUSY, RECOVERING, Scheduler
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import AddApplicationRequest, AllocationAsk
from shared.messages.what_if import WhatIf
from shared.model.reasons import Law, Reason
from tests.builders import Core, config_of
from tests.property.dump import dump
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
    assert {victim.law for victim in answer.victims} == {Law.GUARANTEE}
    core.application("new", "root.b")
    core.asks("new", ["new-0", "new-1"], {"vcore": 4})
    while len(core.partition.applications["victim"].released) < 8:
        core.fire_own("preemption")
    gone = core.partition.applications["victim"].released
    assert sorted(gone) == sorted(victim.allocation_key for victim in answer.victims)


def test_nobody_goes_for_an_ask_that_may_not_preempt():
    answer = what_if.forecast(full().partition, question(allow_preempt_other=False))
    assert (answer.victims, answer.applications[0].after_evictions) == ((), 0)


def test_what_is_left_open_is_said():
    core = full(settings=(("policy", "kai"),))
    told = what_if.forecast(core.partition, question())
    assert told.message.startswith("whom the policy kai")
    about_pods = next(item for item in SELECTORS if item.asks_about_pods)
    told = what_if.forecast(full().partition, question(constraints=about_pods))
    assert not told.done
    assert "looks at labels" in told.message


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
