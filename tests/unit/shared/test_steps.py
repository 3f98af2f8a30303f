"""Which step led to what, in the trace of each application."""

import pytest

from shared.messages.commands import DeletePods, PodName, SubmitManifests
from shared.messages.envelope import CORE, SHIM_ADAPTER, TIMERS, Envelope, Outgoing
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.protocol import (
    Heartbeat,
    Tick,
    TimerFired,
    TimerFirings,
    TimerKind,
    TimerOrders,
    TimerSet,
)
from shared.messages.trace import causes_of
from shared.messages.what_if import WhatIf
from shared.runtime import steps as module
from shared.runtime.steps import Steps, decision_id


def asks(message_id, *applications):
    items = tuple(AllocationAsk(f"{name}-pod", name, {"vcore": 1}) for name in applications)
    return came(message_id, UpdateRequest("rm", asks=items), CORE, "shim_adapter")


def came(message_id, message, to, source, cause_id="before"):
    kind = type(message).__name__
    return Envelope(message_id, kind, message, to, source, cause_id=cause_id, published_ns=3)


def allocation(*applications):
    items = tuple(Allocation(f"{name}-pod", name, "n", {"vcore": 1}) for name in applications)
    return Outgoing(SHIM_ADAPTER, UpdateResponse(new_allocations=items))


def evicted(application, key):
    why = TerminationType.PREEMPTED_BY_SCHEDULER
    release = AllocationRelease(application, key, why, message="for another")
    return Outgoing(SHIM_ADAPTER, UpdateResponse(released_allocations=(release,)))


def gone(application, key):
    release = AllocationRelease(application, key, TerminationType.STOPPED_BY_RM)
    return Outgoing(CORE, UpdateRequest("rm", releases=(release,)))


def closed(steps, *envelopes, decided=(), now_ns=10):
    """Handle messages as a batch that ends with a decision; return its records by step."""
    for envelope in envelopes:
        steps.handled(envelope, 1)
    if decided:
        steps.decided(list(decided), envelopes[-1], 1)
    return {done.record.message_id: done.record for done in steps.close(now_ns)}


def causes(record, application):
    return causes_of(record, record.applications.index(application))


def test_what_a_message_is_about_was_led_to_by_what_sent_it():
    records = closed(Steps("core"), asks("m1", "a", "b"))
    assert causes(records["m1"], "a") == causes(records["m1"], "b") == ("before",)
    assert (records["m1"].queued_ns, records["m1"].handled_ns) == (7, 1)


def test_a_decision_was_led_to_by_the_messages_about_the_application_and_by_no_other():
    first, second, third = asks("m1", "a", "b"), asks("m2", "b"), asks("m3", "c")
    records = closed(Steps("core"), first, second, third, decided=[allocation("a", "b")])
    decision = records[decision_id("core", third)]
    assert causes(decision, "a") == ("m1",)
    assert causes(decision, "b") == ("m2", "m1")
    assert "c" not in decision.applications
    assert (decision.kind, decision.source, decision.queued_ns) == ("decision", "core", 0)


def test_a_decision_about_somebody_else_hangs_below_his_ask_and_links_to_what_led_to_it():
    steps = Steps("core")
    closed(steps, asks("m1", "a"))
    closed(steps, came("m2", UpdateRequest("rm"), CORE, "shim_adapter"))
    last = asks("m4", "c")
    records = closed(steps, asks("m3", "b"), last, decided=[allocation("a")])
    assert causes(records[decision_id("core", last)], "a") == ("m1", "m3", "m4")


def test_an_eviction_hangs_below_the_victim_s_own_story_and_says_why():
    steps = Steps("core")
    closed(steps, asks("m1", "victim"))
    closed(steps, asks("m2", "victim-2"))
    asked = asks("m3", "winner")
    records = closed(steps, asked, decided=[evicted("victim", "victim-pod")])
    decision = records[decision_id("core", asked)]
    assert causes(decision, "victim") == ("m1", "m3")
    assert decision.reasons == ("for another",)
    assert decision.decisions == ("to shim_adapter: 1 released allocation PREEMPTED_BY_SCHEDULER",)


def test_a_pod_that_is_gone_hangs_below_what_was_last_heard_of_it_not_of_another():
    steps = Steps("shim_adapter")
    for number, said in enumerate([evicted("app", "one"), allocation("app")], start=1):
        closed(steps, came(f"m{number}", said.message, SHIM_ADAPTER, "core"))
    tick = came("t", Tick(), SHIM_ADAPTER, "clock")
    steps.handled(tick, 1)
    said = gone("app", "one")
    assert steps.note_sent(said, [(said, tick)], tick) == "t"
    (done,) = steps.close(10)
    assert causes(done.record, "app") == ("m1",)
    steps.handled(came("t2", Tick(), SHIM_ADAPTER, "clock"), 1)
    assert steps.close(11) == []  # nothing came of it


def test_a_firing_hangs_below_the_order_that_armed_the_timer():
    steps = Steps("timers")
    for number, kind in enumerate([TimerKind.PLACEHOLDER, TimerKind.EXECUTION], start=1):
        orders = TimerOrders(armed=(TimerSet(f"app/{kind}", kind, "app", "1", 5),))
        closed(steps, came(f"m{number}", orders, TIMERS, "core"))
    tick = came("t", Tick(), TIMERS, "clock")
    steps.handled(tick, 1)
    fired = TimerFired(f"app/{TimerKind.PLACEHOLDER}", TimerKind.PLACEHOLDER, "app", "1")
    said = Outgoing(CORE, TimerFirings((fired,)))
    steps.note_sent(said, [(said, tick)], tick)
    (done,) = steps.close(10)
    assert causes(done.record, "app") == ("m1",)


def test_answers_said_together_keep_whose_they_are():
    steps = Steps("shim_adapter")
    commands = [came(f"c{n}", SubmitManifests(), SHIM_ADAPTER, "api") for n in (1, 2)]
    parts = []
    for envelope, name in zip(commands, ("a", "b"), strict=True):
        steps.handled(envelope, 1)
        new = UpdateRequest("rm", new_applications=(AddApplicationRequest(name),))
        parts.append((Outgoing(CORE, new), envelope))
    both = UpdateRequest("rm", new_applications=tuple(map(AddApplicationRequest, "ab")))
    step = steps.note_sent(Outgoing(CORE, both), parts, commands[-1])
    done = {item.record.message_id: item for item in steps.close(10)}
    assert step == decision_id("shim_adapter", commands[-1])
    assert causes(done[step].record, "a") == ("c1",)
    assert causes(done[step].record, "b") == ("c2",)
    assert done["c1"].record.applications == ("a",)
    assert causes(done["c1"].record, "a") == ("",)
    assert done["c2"].submitted == {"b"}


def test_a_command_of_people_s_hangs_below_the_submission_and_links_to_what_it_is_about():
    steps = Steps("shim_adapter")
    closed(steps, came("m1", allocation("app").message, SHIM_ADAPTER, "core"))
    command = came("c", DeletePods((PodName("p"),)), SHIM_ADAPTER, "api")
    steps.handled(command, 1)
    said = gone("app", "app-pod")
    steps.note_sent(said, [(said, command)], command)
    (done,) = steps.close(10)
    assert causes(done.record, "app") == ("", "m1")


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_what_has_no_name_that_can_be_said_has_no_story(name):
    records = closed(Steps("core"), asks("m1", name, "app"))
    assert records["m1"].applications == ("app",)


def test_what_is_known_has_a_limit_and_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr(module, "MAX_KNOWN", 2)
    steps = Steps("core")
    for number, name in enumerate("abc", start=1):
        closed(steps, asks(f"m{number}", name))
    beat = came("h", Heartbeat("x"), CORE, "core")
    records = closed(steps, beat, decided=[allocation("a", "c")])
    decision = records[decision_id("core", beat)]
    assert causes(decision, "a") == ("",)
    assert causes(decision, "c") == ("m3",)


def test_causes_have_a_limit():
    steps = Steps("core")
    batch = [asks(f"m{number}", "app") for number in range(module.MAX_CAUSES + 5)]
    records = closed(steps, *batch, decided=[allocation("app")])
    led = causes(records[decision_id("core", batch[-1])], "app")
    assert len(led) == module.MAX_CAUSES
    assert led[0] == batch[-1].message_id


def test_what_if_is_nobody_s_story():
    asked = asks("m1", "app").message
    records = closed(Steps("api"), came("w", WhatIf(asks=tuple(asked.asks)), CORE, "api"))
    assert records == {}


def test_an_answer_to_one_message_of_a_batch_was_led_to_by_that_one_alone():
    steps = Steps("core")
    first, second = asks("m1", "a"), asks("m2", "b")
    for envelope in (first, second):
        steps.handled(envelope, 1)
    said = allocation("a")
    assert steps.note_sent(said, [(said, first)], second) == "m1"
    records = {done.record.message_id: done.record for done in steps.close(10)}
    assert records["m1"].decisions == ("to shim_adapter: 1 new allocation",)
    assert records["m2"].decisions == ("",)
