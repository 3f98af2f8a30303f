"""Gangs at the level of the scheduler's messages: the cases that need no resource manager."""

from random import Random

import pytest

from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.ordering import queueing
from shared.messages.constraints import Constraints
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    GangGivenUp,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import (
    SyncBegin,
    SyncEnd,
    TimerFired,
    TimerFirings,
    TimerKind,
    TimerOrders,
    TimerSet,
)
from shared.messages.what_if import Forecast, WhatIf
from shared.model.resources import multiply
from shared.model.sentences import text_of
from shared.model.states import ApplicationState
from shared.model.units import seconds
from tests.builders import Core, config_of, section
from tests.table import each_row

ONE = {"vcore": 1000, "pods": 1}
NODE = {"vcore": 10_000, "memory": 10_000, "pods": 20}


def core_with_gang(members=2, resource=ONE, **more):
    core = Core()
    core.node("n1", **NODE)
    responses = core.gang("app", members, resource, **more)
    return core, responses


def test_g01_a_duplicate_confirmation_changes_nothing():
    core, _ = core_with_gang(1)
    released = section(
        core.asks("app", ["real"], ONE, task_group_name="tg"), "released_allocations"
    )
    assert [r.termination_type for r in released] == [TerminationType.PLACEHOLDER_REPLACED]
    first = core.update(releases=tuple(released))
    assert [a.allocation_key for a in section(first, "new_allocations")] == ["real"]
    assert core.update(releases=tuple(released)) == []
    assert core.partition.applications["app"].allocated == ONE
    core.check()


def test_a_gang_stays_accepted_until_the_last_placeholder_is_allocated():
    core, _ = core_with_gang(3)
    app = core.partition.applications["app"]
    assert app.state is ApplicationState.RUNNING
    slow = Core()
    slow.node("n1", vcore=2000, pods=9)
    slow.gang("app", 3, ONE)
    app = slow.partition.applications["app"]
    assert (app.state, len(app.allocations)) == (ApplicationState.ACCEPTED, 2)
    slow.node("n2", vcore=1000, pods=9)
    assert app.state is ApplicationState.RUNNING


def test_the_placeholder_timeout_starts_at_the_first_allocation_and_not_before():
    core = Core()
    core.gang("app", 2, ONE)
    app = core.partition.applications["app"]
    assert app.timers == {}
    core.now_ns += 10**12
    core.node("n1", **NODE)
    assert app.reservation_start_ns == core.now_ns
    (timer,) = [due for name, (_, due) in app.timers.items() if name.startswith("placeholder")]
    assert timer == core.now_ns + 15 * 60 * 10**9


FITS_MS = (2**63 - 1) // 10**6  # the longest duration of int64 nanoseconds


@each_row(
    ("stated_ms", "minutes"),
    [
        (2**63 - 1, 15), (FITS_MS + 1, 15), (-1, 15), (-(2**63), 15), (0, 15), (1_200_000, 20),
        ((2**63 - 1) // 1000 * 1000, 15),
    ],
)  # fmt: skip
@each_row("name", ["execution", "placeholder"])
def test_a_placeholder_timeout_that_overflows_a_duration_is_the_default(name, stated_ms, minutes):
    core, _ = core_with_gang(11, **{f"{name}_timeout_milli_seconds": stated_ms})
    (due_ns,) = (due_ns for _, due_ns in core.partition.applications["app"].timers.values())
    assert due_ns - core.now_ns == minutes * seconds(60)


def test_the_longest_placeholder_timeout_that_there_is_is_no_default():
    core, _ = core_with_gang(11, execution_timeout_milli_seconds=FITS_MS)
    (due_ns,) = (due_ns for _, due_ns in core.partition.applications["app"].timers.values())
    assert due_ns - core.now_ns > 100 * 365 * 24 * seconds(3600)


def test_one_response_carries_ask_releases_then_allocation_releases_then_the_update():
    core = Core()
    core.node("n1", vcore=3000, pods=9)
    core.application(
        "app", placeholder_ask={"vcore": 3000, "pods": 3}, gang_scheduling_style="Hard"
    )
    asks = [
        AllocationAsk(f"p{n}", "app", ONE, placeholder=True, task_group_name="a") for n in range(2)
    ]
    asks.append(
        AllocationAsk(
            "q",
            "app",
            ONE,
            placeholder=True,
            task_group_name="b",
            constraints=Constraints((("zone", "x"),)),
        )
    )
    core.update(asks=tuple(asks))
    (response,) = core.fire("app", "placeholder")
    assert len(response.released_asks) == 1
    assert len(response.released_allocations) == 2
    assert [u.state for u in response.updated_applications] == ["Failing"]
    fields = list(response.__dataclass_fields__)
    order = [
        fields.index(name)
        for name in ("released_asks", "released_allocations", "updated_applications")
    ]
    assert order == sorted(order)
    last = core.update(releases=response.released_allocations)
    assert [u.state for u in section(last, "updated_applications")] == ["Failed"]
    assert "app" not in core.partition.applications
    core.check()


def test_a_late_timer_of_an_earlier_generation_is_harmless():
    core, _ = core_with_gang(2)
    app = core.partition.applications["app"]
    timer_id = next(iter(app.timers))
    app.timers[timer_id] = ("other", app.timers[timer_id][1])
    assert core.send(TimerFirings((TimerFired(timer_id, "placeholder", "app", "1.1"),))) == []
    assert app.state is ApplicationState.RUNNING


def test_g16_recovery_copies_the_task_group_and_a_real_ask_replaces_the_recovered_placeholder():
    core = Core()
    core.send(SyncBegin(""), epoch=2)
    core.epoch = 2
    core.update(
        nodes=(NodeInfo("n1", NodeAction.CREATE, NODE),),
        new_applications=(
            AddApplicationRequest(
                "app",
                "root.default",
                placeholder_ask={"vcore": 2000, "pods": 2},
                reservation_start_ns=77,
            ),
        ),
    )
    core.update(
        allocations=(Allocation("ph1", "app", "n1", ONE, placeholder=True, task_group_name="tg-1"),)
    )
    core.update(
        asks=(
            AllocationAsk("ph2", "app", ONE, placeholder=True, task_group_name="tg-2"),
            AllocationAsk("real", "app", ONE, task_group_name="tg-1"),
        )
    )
    responses = core.send(SyncEnd(1, 1, 2))
    assert [a.allocation_key for a in section(responses, "new_allocations")] == ["ph2"]
    assert [r.allocation_key for r in section(responses, "released_allocations")] == ["ph1"]
    app = core.partition.applications["app"]
    assert app.reservation_start_ns == 77
    assert app.state is ApplicationState.RUNNING
    core.check()


def test_a_confirmation_from_before_a_restart_lets_a_real_ask_take_the_room():
    core = Core()
    core.node("n1", vcore=1000, pods=5)
    core.application("app", placeholder_ask=ONE)
    core.update(
        allocations=(
            Allocation(
                "ph", "app", "n1", ONE, placeholder=True, task_group_name="tg", released=True
            ),
        )
    )
    core.asks("app", ["real"], ONE, task_group_name="tg")
    confirmed = core.update(
        releases=(AllocationRelease("app", "ph", TerminationType.PLACEHOLDER_REPLACED),)
    )
    assert [a.allocation_key for a in section(confirmed, "new_allocations")] == ["real"]
    core.check()


@pytest.mark.parametrize("nodes", [4000, 2000])
def test_two_gangs_never_hold_a_part_each_of_a_queues_room(nodes):
    """Nor while the nodes hold a part of the older one: what it has yet to get is promised."""
    core = Core(
        config_of("{name: p, resources: {max: {vcore: 4}}, queues: [{name: a}, {name: b}]}")
    )
    core.node("n1", vcore=nodes, pods=20)
    for name, leaf in (("old", "a"), ("young", "b")):
        core.application(name, f"root.p.{leaf}", placeholder_ask={"vcore": 3000, "pods": 3})
    for at in range(3):  # their asks arrive in turns, of two groups
        for name in ("old", "young"):
            group = "tg" if at else "other"
            core.asks(name, [f"{name}{at}"], ONE, placeholder=True, task_group_name=group)
    held = {name: len(app.allocations) for name, app in core.partition.applications.items()}
    assert held == {"old": min(3, nodes // 1000), "young": 0}
    assert core.partition.applications["young"].refusal.reason == "GANG_HEADROOM"
    core.check()
    core.node("n2", vcore=10_000, pods=20)
    held = {name: len(app.allocations) for name, app in core.partition.applications.items()}
    assert held == {"old": 3, "young": 0}
    core.check()


def test_what_is_promised_to_a_gang_stays_so_through_a_restart_in_its_middle():
    core = Core(epoch=2)
    core.send(SyncBegin(config_of("{name: a, resources: {max: {vcore: 4}}}")))
    wanted = {"vcore": 3000, "pods": 3}
    core.update(
        nodes=(NodeInfo("n1", NodeAction.CREATE, {"vcore": 1000, "pods": 9}),),
        new_applications=tuple(
            AddApplicationRequest(name, "root.a", placeholder_ask=wanted, state="Accepted")
            for name in ("older", "half")
        ),
    )
    group = {"placeholder": True, "task_group_name": "tg"}
    core.update(allocations=(Allocation("h0", "half", "n1", ONE, **group),))
    core.asks("older", ["o0", "o1", "o2"], ONE, **group)
    core.asks("half", ["h1", "h2"], ONE, **group)
    core.send(SyncEnd(1, 1, 5))
    apps = core.partition.applications
    assert apps["half"].promise == {"vcore": 2000, "pods": 2}
    assert apps["older"].refusal.reason == "GANG_HEADROOM"
    assert [name.split("/")[0] for name in apps["half"].timers] == ["placeholder"]
    core.node("n2", vcore=9000, pods=9)
    assert (len(apps["half"].allocations), len(apps["older"].allocations)) == (3, 0)
    core.check()


def test_what_the_nodes_lack_is_no_headroom_and_what_a_configured_max_lacks_is():
    """Two gangs larger together than the cluster both start; the queue's max holds the third."""
    core = Core(config_of("{name: a, resources: {max: {vcore: 7}}}"))
    core.node("n1", vcore=1000, pods=9)
    for name in ("one", "two", "three"):
        core.gang(name, 3, ONE, queue="root.a")
    apps = core.partition.applications
    assert [app.gang_admitted for app in apps.values()] == [True, True, False]
    leaf = core.partition.queues["root.a"]
    assert (leaf.allocated["vcore"], leaf.promised["vcore"]) == (1000, 5000)
    assert "queue root.a has 1 vcore left of its 7 vcore" in text_of(apps["three"].refusal)
    core.check()


def test_an_application_that_was_accepted_is_not_rejected_after_a_restart():
    """A reload may have made its queue too small for it since: it waits, as it did before."""
    core = Core(config_of("{name: a, resources: {max: {vcore: 1}}}"))
    wanted = {"vcore": 2000}
    rejected = core.application("new", "root.a", placeholder_ask=wanted)
    assert len(section(rejected, "rejected_applications")) == 1
    core.application("known", "root.a", placeholder_ask=wanted, state="Accepted")
    assert "known" in core.partition.applications


def test_removing_the_node_of_a_placeholder_in_a_swap_on_it_lets_the_real_ask_wait_again():
    core, _ = core_with_gang(1)
    core.asks("app", ["real"], ONE, task_group_name="tg")
    core.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    core.check()
    responses = core.node("n2", **NODE)
    assert [a.allocation_key for a in section(responses, "new_allocations")] == ["real"]


def test_an_execution_timeout_releases_the_allocation_when_it_is_due():
    core = Core()
    core.node("n1", **NODE)
    core.application("app")
    core.asks("app", ["a"], ONE, exec_timeout_milli_seconds=5000)
    released = section(core.fire("app", "execution"), "released_allocations")
    assert [(r.allocation_key, r.termination_type) for r in released] == [
        ("a", TerminationType.TIMEOUT)
    ]
    core.update(releases=tuple(released))
    assert core.partition.applications["app"].state is ApplicationState.COMPLETING
    core.check()


@pytest.mark.parametrize("ago_s", [10, -500], ids=["before", "by a clock that was ahead"])
def test_timers_keep_their_start_through_a_recovery(ago_s):
    """Seed 40208: what began by a clock that was ahead of the core's begins now at the latest."""
    core = Core(epoch=2)
    now = core.now_ns
    core.send(SyncBegin(""))
    ago = now - ago_s * 10**9
    core.update(
        nodes=(NodeInfo("n1", NodeAction.CREATE, NODE),),
        new_applications=(
            AddApplicationRequest("done", "root.default", state="Completing", state_since_ns=ago),
            AddApplicationRequest("busy", "root.default", state="Running", state_since_ns=ago),
            AddApplicationRequest(
                "gang", "root.default", placeholder_ask=ONE, reservation_start_ns=ago
            ),
        ),
    )
    core.update(
        allocations=(
            Allocation("k", "busy", "n1", ONE, exec_timeout_milli_seconds=60_000, allocated_ns=ago),
        )
    )
    core.update(
        allocations=(Allocation("p", "gang", "n1", ONE, placeholder=True, task_group_name="tg-1"),)
    )
    core.send(SyncEnd(1, 2, 0))
    apps = core.partition.applications
    began = min(ago, now)
    assert [due for _, due in apps["done"].timers.values()] == [began + 30 * 10**9]
    assert [due for _, due in apps["busy"].timers.values()] == [began + 60 * 10**9]
    assert [due for _, due in apps["gang"].timers.values()] == [began + 900 * 10**9]


def test_an_application_whose_asks_were_taken_back_unheard_comes_to_its_end_after_a_recovery():
    core = Core(epoch=2)
    core.send(SyncBegin(""))
    core.update(
        nodes=(NodeInfo("n1", NodeAction.CREATE, NODE),),
        new_applications=(
            AddApplicationRequest("left", "root.default", state="Accepted"),
            AddApplicationRequest("new", "root.default"),
            AddApplicationRequest("gang", "root.default", state="Accepted", placeholder_ask=ONE),
            AddApplicationRequest("waits", "root.default", state="Accepted"),
        ),
    )
    core.asks("waits", ["a"], {"vcore": 10**9})
    core.send(SyncEnd(1, 0, 1))
    states = {name: str(app.state) for name, app in core.partition.applications.items()}
    assert states == {"left": "Completing", "new": "New", "gang": "New", "waits": "Accepted"}
    core.check()


def timers_of(core, name):
    app = core.partition.applications[name]
    return {
        timer.split("/")[0]: (due - core.now_ns) // 10**9 for timer, (_, due) in app.timers.items()
    }


@pytest.mark.parametrize("has_ask", [False, True], ids=["its node came late", "bound by another"])
def test_the_placeholder_timeout_starts_at_the_first_placeholder_that_is_found(has_ask):
    """It is found when its node comes after the recovery, or when another scheduler binds it."""
    core = Core()
    core.application(
        "app", placeholder_ask=multiply(ONE, 2), execution_timeout_milli_seconds=60_000
    )
    if has_ask:
        core.asks("app", ["p"], ONE, placeholder=True, task_group_name="tg")
    found = Allocation("p", "app", "n1", ONE, placeholder=True, task_group_name="tg")
    core.update(nodes=(NodeInfo("n1", NodeAction.CREATE_DRAIN, NODE),), allocations=(found,))
    assert timers_of(core, "app") == {"placeholder": 60}
    released = section(core.fire("app", "placeholder"), "released_allocations")
    assert [(one.allocation_key, str(one.termination_type)) for one in released] == [
        ("p", "TIMEOUT")
    ]
    assert str(core.partition.applications["app"].state) == "Resuming"
    core.check()


def test_the_placeholder_timeout_and_the_execution_timeout_are_two():
    core = Core()
    core.node("n1", **NODE)
    both = {"placeholder_timeout_milli_seconds": 20_000, "execution_timeout_milli_seconds": 60_000}
    core.gang("both", 2, ONE, **both)
    assert timers_of(core, "both") == {"placeholder": 20, "execution": 60}
    core.gang("interface", 2, ONE, execution_timeout_milli_seconds=60_000)
    assert timers_of(core, "interface") == {"placeholder": 60}  # as YuniKorn's shim means it
    core.application("plain", **both)
    assert timers_of(core, "plain") == {}
    core.asks("plain", ["a"], ONE)
    assert timers_of(core, "plain") == {"execution": 60}


def test_an_execution_timeout_that_fires_while_it_completes_fires_when_it_runs_again():
    core = Core()
    core.node("n1", **NODE)
    core.application(
        "app", placeholder_timeout_milli_seconds=1, execution_timeout_milli_seconds=10_000
    )
    core.asks("app", ["a"], ONE)
    stop = AllocationRelease("app", "a", TerminationType.STOPPED_BY_RM)
    core.now_ns += 9_000_000_000
    core.update(releases=(stop,))
    core.fire("app", "execution")
    assert core.partition.applications["app"].state == "Completing"
    core.asks("app", ["b"], ONE)
    responses = core.fire("app", "execution")
    (release,) = section(responses, "released_allocations")
    assert (release.allocation_key, release.termination_type) == ("b", TerminationType.TIMEOUT)
    assert core.partition.applications["app"].state == "Failing"
    core.update(releases=(release,))
    assert "app" not in core.partition.applications
    core.check()


def test_the_way_of_admission_is_named_queue_and_whole_is_its_old_name():
    ways = {
        name: settings_from([("gangAdmission", name)]).gang_admission
        for name in ("queue", "whole", "partial", "", "no such way")
    }
    assert ways.pop("partial") == "partial"
    assert set(ways.values()) == {"queue"}


# --- real asks that come first ------------------------------------------------------------------

PH = {"placeholder": True, "task_group_name": "tg"}


def with_real_ask_first(**more):
    """A gang of two whose first real ask comes before its first placeholder."""
    core = Core()
    core.node("n1", **NODE)
    core.application("app", placeholder_ask={"vcore": 2000, "pods": 2}, **more)
    responses = core.asks("app", ["real"], ONE, task_group_name="tg")
    assert section(responses, "new_allocations") == []
    app = core.partition.applications["app"]
    (group,) = app.groups.values()
    assert queueing.hold(app, group).reason == "GANG_PLACEHOLDERS_PENDING"
    return core, app


def placed(responses):
    return [allocation.allocation_key for allocation in section(responses, "new_allocations")]


def test_a_real_ask_that_comes_first_waits_for_the_placeholders_and_takes_ones_place():
    core, app = with_real_ask_first()
    assert placed(core.asks("app", ["other"], ONE)) == []  # of no group: it waits as well
    responses = core.asks("app", ["ph0", "ph1"], ONE, **PH)
    assert placed(responses) == ["ph0", "ph1", "other"]
    (release,) = section(responses, "released_allocations")
    assert placed(core.update(releases=(release,))) == ["real"]
    assert app.state is ApplicationState.RUNNING
    core.check()


@pytest.mark.parametrize("style", ["Soft", "Hard"])
def test_it_waits_for_the_placeholder_timeout_at_most(style):
    core, app = with_real_ask_first(
        placeholder_timeout_milli_seconds=30_000, gang_scheduling_style=style
    )
    core.now_ns += 10 * 10**9
    assert placed(core.asks("app", ["second"], ONE)) == []
    assert timers_of(core, "app") == {"placeholder": 20}
    assert placed(core.fire("app", "placeholder")) == ["real", "second"]
    assert app.state is ApplicationState.RUNNING
    core.check()


def test_placeholders_that_come_in_time_end_that_wait_and_never_time_out_unallocated():
    core, app = with_real_ask_first(placeholder_timeout_milli_seconds=30_000)
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    core.asks("app", ["ph0"], ONE, **PH)
    assert app.timers == {}
    core.now_ns += 60 * 10**9
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_TO_SCHEDULABLE),))
    assert timers_of(core, "app") == {"placeholder": 30}
    core.check()


_GIVEN_UP = ("Resuming", "Failing")


@pytest.mark.parametrize(("style", "state"), [("Soft", "Resuming"), ("Hard", "Failing")])
@pytest.mark.parametrize("is_placeholder", [True, False])
def test_a_pod_that_is_found_once_the_gang_is_given_up(style, state, is_placeholder):
    core = Core()
    core.node("n1", vcore=3000, pods=9)
    core.application("app", placeholder_ask={"vcore": 3000, "pods": 3}, gang_scheduling_style=style)
    core.asks("app", ["ph0", "ph1"], ONE, placeholder=True, task_group_name="a")
    app = core.partition.applications["app"]
    core.fire("app", "placeholder")
    assert app.state.value == state
    found = Allocation(
        "found", "app", "n1", ONE, placeholder=is_placeholder, task_group_name="a" * is_placeholder
    )
    responses = core.update(allocations=(found,))
    released = [item.allocation_key for item in section(responses, "released_allocations")]
    assert released == ["found"] * is_placeholder
    is_back = state == "Resuming" and not is_placeholder
    assert app.state.value == ("Accepted" if is_back else state)
    core.check()
    timeout = TerminationType.TIMEOUT
    for key in ("ph0", "ph1", "found"):
        core.update(releases=(AllocationRelease("app", key, timeout),))
    assert "app" not in core.partition.applications or app.state.value not in _GIVEN_UP
    core.check()


@pytest.mark.parametrize("placeholders", [0, 1])
def test_it_waits_no_longer_once_the_gang_is_given_up(placeholders):
    core, app = with_real_ask_first()
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    core.asks("app", [f"ph{at}" for at in range(placeholders)], ONE, **PH)
    given_up = (GangGivenUp("app"), GangGivenUp("nobody"))
    core.update(gangs_given_up=given_up)
    core.update(gangs_given_up=given_up)
    core.check()
    assert app.timers == {}
    assert (app.pending_placeholders, core.partition.root.promised) == (0, {})
    responses = core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_TO_SCHEDULABLE),))
    assert placed(responses) == ["real"]
    core.check()


def test_a_gang_that_is_given_up_while_it_waits_as_a_whole_lets_others_start():
    core = Core(
        config_of("{name: a, resources: {max: {vcore: 4}}}"), settings=(("starvationGuard", "0"),)
    )
    core.node("n1", **NODE)
    core.application("filler", "root.a")
    core.asks("filler", ["f"], ONE)
    core.gang("app", 4, ONE, queue="root.a")
    core.application("plain", "root.a")
    assert placed(core.asks("plain", ["p"], ONE)) == []
    assert placed(core.update(gangs_given_up=(GangGivenUp("app"),))) == ["p"]
    core.check()


def test_what_was_promised_to_a_gang_is_free_once_it_goes_on_without():
    """Soft, and no node takes its real pods: it reserves nothing any more."""
    core = Core(config_of("{name: a, resources: {max: {vcore: 4}}}"))
    core.node("n1", vcore=1000, pods=9)
    core.gang("soft", 4, ONE, queue="root.a")
    core.gang("next", 4, ONE, queue="root.a")
    assert not core.partition.applications["next"].gang_admitted
    releases = section(core.fire("soft", "placeholder"), "released_allocations")
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),), releases=tuple(releases))
    core.asks("soft", ["real"], ONE)
    assert core.partition.applications["soft"].state is ApplicationState.ACCEPTED
    assert core.partition.applications["next"].gang_admitted
    core.check()


@pytest.mark.parametrize("state", ["Accepted", "Running"])
def test_a_restart_lets_wait_whom_it_must_from_when_it_was_made(state):
    """A gang that ran has no placeholders either: what is asked for it later is placed at once."""
    core = Core(epoch=2)
    core.send(SyncBegin(""))
    request = AddApplicationRequest(
        "app",
        "root.default",
        placeholder_ask=ONE,
        placeholder_timeout_milli_seconds=30_000,
        submission_time_ns=core.now_ns - 60 * 10**9,
        state=state,
    )
    core.update(nodes=(NodeInfo("n1", NodeAction.CREATE, NODE),), new_applications=(request,))
    made_ns = core.now_ns - 20 * 10**9
    core.asks("app", ["real"], ONE, create_time_ns=made_ns)
    responses = core.send(SyncEnd(1, 0, 1))
    waits = state == "Accepted"
    assert placed(responses) == ([] if waits else ["real"])
    assert timers_of(core, "app") == ({"placeholder": 10} if waits else {})


def test_a_placeholder_of_no_task_group_is_an_ordinary_pod():
    core = Core()
    core.node("n1", **NODE)
    core.application("app")
    ask = AllocationAsk("a", "app", ONE, placeholder=True)
    assert placed(core.update(asks=(ask,))) == ["a"]
    assert core.update(asks=(ask,)) == []
    existing = Allocation("b", "app", "n1", ONE, placeholder=True)
    core.update(allocations=(existing,))
    app = core.partition.applications["app"]
    assert (app.state, app.allocated) == (ApplicationState.RUNNING, {"vcore": 2000, "pods": 2})
    assert (app.task_groups, app.allocated_placeholder, app.timers) == ({}, {}, {})
    assert not any(allocation.placeholder for allocation in app.allocations.values())
    core.check()


def test_a_gang_whose_placeholders_were_lost_before_a_restart_has_its_timeout_from_the_next_one_on():
    core = Core()
    core.epoch = 2
    core.send(SyncBegin(""))
    wanted = multiply(ONE, 2)
    core.application("app", placeholder_ask=wanted, reservation_start_ns=77, state="Accepted")
    core.asks("app", ["p1", "p2"], ONE, placeholder=True, task_group_name="tg")
    core.send(SyncEnd(0, 0, 2))
    core.now_ns += seconds(5)
    core.node("n1", vcore=1000, pods=9)
    app = core.partition.applications["app"]
    assert (app.allocated_placeholder, app.reservation_start_ns) == (ONE, core.now_ns)
    core.fire("app", "placeholder")
    assert app.state is ApplicationState.RESUMING


# --- admission partial ------------------------------------------------------------------------------

PARTIAL = (("gangAdmission", "partial"),)
TWO_LEAVES = config_of("{name: p, resources: {max: {vcore: 4m}}, queues: [{name: a}, {name: b}]}")


def parts(core: Core) -> dict[str, int]:
    apps = core.partition.applications.items()
    core.check()
    return {name: app.allocated_placeholder.get("vcore", 0) for name, app in apps}


@each_row("admission", ["queue", "cluster", "partial"])
@each_row("leaves", ["ab", "aa"])
def test_two_gangs_that_arrive_together_never_hold_a_part_each_of_a_queues_room(admission, leaves):
    core = Core(TWO_LEAVES, settings=(("gangAdmission", admission),))
    core.node("n", vcore=50)
    names = ("x", "y")
    for name, leaf in zip(names, leaves, strict=True):
        core.application(name, f"root.p.{leaf}", placeholder_ask={"vcore": 3})
    for at in range(3):
        for name in names:
            key = [f"{name}{at}"]
            core.asks(name, key, {"vcore": 1}, placeholder=True, task_group_name="tg")
            held = [value for value in parts(core).values() if 0 < value < 3]
            assert len(held) <= 1
    assert parts(core) == {"x": 3, "y": 1 if admission == "partial" else 0}
    core.update(remove_applications=(RemoveApplicationRequest("x"),))
    assert parts(core) == {"y": 3}


def test_two_gangs_of_one_user_never_hold_a_part_each_of_what_the_user_may_have():
    limited = "limits: [{users: [alice], maxresources: {vcore: 4m}}]"
    core = Core(config_of("{name: a, %s}" % limited), settings=PARTIAL)
    core.node("n", vcore=50)
    alice = UserGroupInformation("alice")
    for name in ("x", "y"):
        wanted = {"vcore": 3}
        core.application(name, "root.a", placeholder_ask=wanted, ugi=alice)
    for at in range(3):
        for name in ("x", "y"):
            key = [f"{name}{at}"]
            core.asks(name, key, {"vcore": 1}, placeholder=True, task_group_name="tg")
            assert parts(core)["y"] == 0 or parts(core)["x"] == 3
    assert parts(core) == {"x": 3, "y": 1}


def test_with_partial_too_a_gang_of_which_no_member_fits_is_not_passed_for_ever():
    core = Core(config_of("{name: a, resources: {max: {vcore: 4m}}}"), settings=PARTIAL)
    core.node("n", vcore=50)

    def started(name: str) -> bool:
        core.now_ns += seconds(1)
        core.application(name, "root.a")
        core.asks(name, [name], {"vcore": 1})
        core.check()
        return name in core.partition.applications[name].allocations

    core.application("filler", "root.a")
    core.asks("filler", ["f"], {"vcore": 3})
    core.gang("old", 2, {"vcore": 2}, queue="root.a")
    assert core.partition.applications["old"].refusal.reason == "GANG_HEADROOM"
    assert started("young")
    core.update(remove_applications=(RemoveApplicationRequest("young"),))
    core.now_ns += seconds(300)
    assert not started("late")
    core.update(remove_applications=(RemoveApplicationRequest("filler"),))
    assert parts(core) == {"old": 4, "late": 0}


def test_a_timer_that_fires_early_is_ordered_again_and_does_nothing():
    core = Core()
    core.node("n", vcore=1_000)
    core.gang("app", 2, {"vcore": 1_000})
    (timer_id,) = [
        name for name in core.partition.applications["app"].timers if "placeholder" in name
    ]
    generation, due_ns = core.partition.applications["app"].timers[timer_id]
    fired = TimerFired(timer_id, "placeholder", "app", generation)
    core.now_ns, core.answers = due_ns - 1, []
    assert core.send(TimerFirings((fired,))) == []
    (orders,) = [item.message for item in core.answers if isinstance(item.message, TimerOrders)]
    assert [(item.generation, item.due_ns) for item in orders.armed] == [(generation, due_ns)]
    core.now_ns = due_ns
    assert core.send(TimerFirings((fired,)))


def test_a_timer_of_an_earlier_generation_does_nothing():
    """It is ordered again: the order of a core that died may have taken its place (seed 2055)."""
    core = Core()
    core.node("n", vcore=1000)
    core.gang("gang", 2, {"vcore": 1000})
    application = core.partition.applications["gang"]
    ((timer_id, (generation, due_ns)),) = application.timers.items()
    core.now_ns = due_ns
    fired = TimerFired(timer_id, TimerKind.PLACEHOLDER, "gang", f"{generation}-before")
    before, core.answers = application.state, []
    assert core.send(TimerFirings((fired,))) == []
    assert application.state is before
    assert application.timers == {timer_id: (generation, due_ns)}
    (orders,) = [item.message for item in core.answers if isinstance(item.message, TimerOrders)]
    assert orders.armed == (TimerSet(timer_id, "placeholder", "gang", generation, due_ns),)


# --- gangs in leaves that go by shares -------------------------------------------------------------

FAIR_LEAF = "{name: a, properties: {application.sort.policy: fair}%s}"
FAIR_GANGS = (("fairLeafGangs", "enabled"),)


def fair_leaf(more: str = "", *settings: tuple[str, str]) -> Core:
    return Core(config_of(FAIR_LEAF % more), settings=(*FAIR_GANGS, *settings))


def placeholders(core: Core) -> dict[str, int]:
    return {
        name: sum(held.placeholder for held in application.allocations.values())
        for name, application in core.partition.applications.items()
        if application.is_gang
    }


@pytest.mark.parametrize("value", ["", "disabled", "yes"])
def test_a_fair_leaf_rejects_gangs_unless_the_setting_lets_it(value):
    core = Core(config_of(FAIR_LEAF % ""), settings=(("fairLeafGangs", value),))
    responses = core.application("app", "root.a", placeholder_ask=ONE)
    assert section(responses, "rejected_applications")[0].reason.endswith("unsupported sort type")
    responses = fair_leaf().application("app", "root.a", placeholder_ask=ONE)
    assert not section(responses, "rejected_applications")


def test_in_a_fair_leaf_a_gang_that_uses_less_comes_before_one_that_was_there_first():
    core = fair_leaf()
    core.node("n1", vcore=4000, pods=9)
    core.application("plain", "root.a")
    core.asks("plain", [f"plain-{at}" for at in range(6)], ONE)
    core.gang("gang", 2, ONE, queue="root.a")
    assert placeholders(core) == {"gang": 0}
    core.node("n2", vcore=3000, pods=9)
    core.check()
    assert placeholders(core) == {"gang": 2}
    assert len(core.partition.applications["plain"].allocations) == 5


@pytest.mark.parametrize("admission", ["queue", "partial"])
def test_of_two_gangs_of_a_fair_leaf_one_has_all_its_members_before_the_other_has_its_first(
    admission,
):
    core = fair_leaf("", ("gangAdmission", admission))
    core.gang("one", 3, ONE, queue="root.a")
    core.gang("two", 3, ONE, queue="root.a")
    found = []
    for at in range(6):
        core.node(f"n{at}", vcore=1000, pods=9)
        core.check()
        found.append(tuple(placeholders(core).values()))
    assert found == [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3)]


def test_a_gang_of_a_fair_leaf_that_has_all_its_members_comes_after_those_that_use_less():
    core = fair_leaf()
    core.node("n1", vcore=3000, pods=9)
    core.gang("gang", 2, ONE, queue="root.a")
    core.application("plain", "root.a")
    core.asks("plain", ["plain-0"], ONE)
    core.asks("gang", ["extra"], ONE)  # of no task group
    core.asks("plain", ["plain-1"], ONE)
    core.node("n2", vcore=1000, pods=9)
    core.check()
    assert set(core.partition.applications["plain"].allocations) == {"plain-0", "plain-1"}


def test_a_gang_of_a_fair_leaf_that_waits_for_a_member_no_more_has_its_share_counted():
    """One placeholder is taken back, and what the others hold counts at once."""
    core = fair_leaf()
    core.node("n1", vcore=2000, pods=9)
    core.gang("gang", 3, ONE, queue="root.a")
    core.application("plain", "root.a")
    core.asks("plain", ["plain-0"], ONE)
    core.asks("gang", ["real"], ONE, task_group_name="tg")  # so that it waits for more than that
    gang, plain = (core.partition.applications[name] for name in ("gang", "plain"))
    assert gang.order < plain.order
    gone = AllocationAskRelease("gang", "gang-ph-2", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.check()
    assert gang.order == gang.order_at(gang.in_use()) > plain.order


def test_a_gang_of_a_fair_leaf_that_waits_for_a_member_again_is_where_it_was_before_the_first():
    core = fair_leaf()
    core.node("n1", vcore=2000, pods=9)
    core.gang("gang", 2, ONE, queue="root.a")
    core.asks("gang", ["extra"], ONE)
    gang = core.partition.applications["gang"]
    before = gang.order
    core.asks("gang", ["gang-ph-2"], ONE, placeholder=True, task_group_name="tg")
    core.check()
    assert gang.pending_placeholders == 1
    assert gang.order == gang.order_at(gang.in_use()) < before


def test_under_cluster_a_gang_of_a_fair_leaf_has_all_its_places_or_none():
    core = fair_leaf("", ("gangAdmission", "cluster"))
    core.node("n1", vcore=2000, pods=9)
    core.gang("one", 3, ONE, queue="root.a")
    core.gang("two", 2, ONE, queue="root.a")
    assert placeholders(core) == {"one": 0, "two": 2}
    core.node("n2", vcore=3000, pods=9)
    core.check()
    assert placeholders(core) == {"one": 3, "two": 2}


@each_row("seed", range(20))
def test_in_a_fair_leaf_no_two_gangs_of_like_members_hold_a_part_each(seed):
    random = Random(seed)
    core = fair_leaf()
    live: list[str] = []
    for at in range(60):
        what = random.random()
        if what < 0.4:
            live.append(f"gang-{at}")
            core.gang(live[-1], random.randint(1, 4), ONE, queue="root.a")
        elif what < 0.7 or not live:
            core.node(f"n{at}", vcore=1000 * random.randint(1, 3), pods=9)
        else:
            gone = live.pop(random.randrange(len(live)))
            core.update(remove_applications=(RemoveApplicationRequest(gone),))
        core.check()
        parts = [
            name
            for name, application in core.partition.applications.items()
            if application.allocations and application.pending_placeholders
        ]
        assert len(parts) <= 1
        for application in core.partition.applications.values():
            assert application.order == application.order_at(application.in_use())


BELOW_P = "{name: p, resources: {max: {vcore: %s}}, queues: [{name: a}, {name: b}]}"
OF_ANN = (
    "{name: p, limits: [{limit: l, users: [ann], maxresources: {vcore: '%s'}}], "
    "queues: [{name: a}, {name: b}]}"
)


@pytest.mark.parametrize("way", ["queue", "partial"])
@pytest.mark.parametrize("leaves", [BELOW_P, OF_ANN])
def test_of_gangs_that_a_reload_leaves_room_for_one_the_first_becomes_whole(way, leaves):
    """Of two that hold a part each, the other keeps its part and takes no more of the room."""
    core = Core(config_of(leaves % "12"), settings=(("gangAdmission", way),))
    for name, leaf in (("one", "a"), ("two", "b"), ("none", "b")):
        ann = UserGroupInformation("ann", ())
        core.gang(name, 4, ONE, queue=f"root.p.{leaf}", ugi=ann)
    core.node("n1", vcore=4000, pods=9)
    gangs = core.partition.applications
    assert [len(gangs[name].allocations) for name in ("one", "two", "none")] == [2, 2, 0]
    smaller = config_of(leaves % "6")
    before = {name: set(gang.allocations) for name, gang in gangs.items()}
    (answer,) = what_if_of(core, WhatIf(queues=smaller))
    core.send(UpdateConfiguration(smaller))
    assert before == {name: set(gang.allocations) for name, gang in gangs.items()}
    assert not any(told.placed for told in answer.applications)
    core.node("n2", vcore=4000, pods=9)
    assert [len(gangs[name].allocations) for name in ("one", "two", "none")] == [4, 2, 0]
    assert gangs["two"].refusal.reason == "GANG_HEADROOM"
    core.check()
    core.send(UpdateConfiguration(config_of(leaves % "12")))
    assert [len(gangs[name].allocations) for name in ("one", "two", "none")] == [4, 4, 0]
    core.check()


def what_if_of(core, question):
    """Ask what would be; return the forecasts."""
    asked = Envelope("q", "WhatIf", question, CORE, "api", reply_to="api.one#1")
    out = core.scheduler.handle(asked, core.now_ns) + core.scheduler.flush(core.now_ns)
    return [item.message for item in out if isinstance(item.message, Forecast)]


def test_a_reload_withdraws_no_admission_that_still_fits():
    core = Core(config_of(BELOW_P % "12"))
    core.node("n1", vcore=4000, pods=9)
    core.gang("one", 3, ONE, queue="root.p.a")
    core.gang("two", 3, ONE, queue="root.p.b")
    core.send(UpdateConfiguration(config_of(BELOW_P % "6")))
    two = core.partition.applications["two"]
    assert two.is_admitted
    assert two.promise == {"vcore": 2000, "pods": 2}
    core.node("n2", vcore=4000, pods=9)
    assert len(two.allocations) == 3
