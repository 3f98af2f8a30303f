"""YuniKorn's states, gangs and counts in other numbers than its own cases have: by messages.

Each test says the rule that it holds to. What comes of it is read off the answers, and off the rows.
"""

from itertools import product

import pytest

from shared.messages.interface import (
    Allocation,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.state import StateDelta
from shared.model.units import seconds
from tests.builders import START_NS, Core, config_of, section
from tests.table import each_row

ONE = {"vcore": 1000, "pods": 1}
TWO = {"vcore": 2000, "pods": 1}
STOPPED, TIMEOUT = TerminationType.STOPPED_BY_RM, TerminationType.TIMEOUT
PARTIAL = (("gangAdmission", "partial"),)


def core_of(vcore=10_000, config="", settings=(), **more):
    core = Core(config, settings=settings)
    core.node("n1", vcore=vcore, memory=100_000, pods=100, **more)
    return core


def app_of(core, name="app"):
    return core.partition.applications.get(name)


def states(core, name="app"):
    """Return the state log of an application, ended or not, as the API was told."""
    logs = [
        [change.state for change in summary.state_log]
        for out in core.answers
        if isinstance(out.message, StateDelta)
        for summary in out.message.applications
        if summary.application_id == name
    ]
    return logs[-1]


def told(responses, name="app"):
    """Return the states, with their messages, that the resource manager was told."""
    updates = section(responses, "updated_applications")
    return [(one.state, one.message) for one in updates if one.application_id == name]


def release(core, key, why=STOPPED, app="app"):
    return core.update(releases=(AllocationRelease(app, key, why),))


def unask(core, key, app="app"):
    return core.update(ask_releases=(AllocationAskRelease(app, key, STOPPED),))


def confirm(core, responses):
    """Confirm every release that was asked for, with its type; return what follows."""
    return core.update(releases=tuple(section(responses, "released_allocations")))


def data(core, name="app"):
    """Return placeholderData as the API was told: count, timedout, replaced by group."""
    shown = [
        summary.placeholders
        for out in core.answers
        if isinstance(out.message, StateDelta)
        for summary in out.message.applications
        if summary.application_id == name
    ][-1]
    return {one.task_group_name: (one.count, one.timedout, one.replaced) for one in shown}


def placeholders(core, keys, amount=ONE, group="tg", app="app"):
    return core.asks(app, keys, amount, placeholder=True, task_group_name=group)


# --- states -------------------------------------------------------------------------------------


def test_an_application_that_asks_for_nothing_stays_new_and_logs_nothing():
    core = core_of()
    core.application("app")
    core.now_ns += seconds(3600)
    core.update()
    assert (app_of(core).state, states(core), app_of(core).timers) == ("New", [], {})


def test_what_the_resource_manager_is_told_of_each_state_is_its_event():
    core = core_of(vcore=500)
    core.application("app")
    said = told(core.asks("app", ["a"], ONE))
    said += told(core.node("n2", vcore=5000, pods=9))
    said += told(release(core, "a"))
    said += told(core.fire("app", "completing"))
    assert said == [
        ("Accepted", "runApplication"),
        ("Running", "runApplication"),
        ("Completing", "completeApplication"),
        ("Completed", "completeApplication"),
    ]


@pytest.mark.parametrize("waited_s", [0, 29])
def test_an_ask_of_a_completing_application_has_it_run_again_and_then_wait_thirty_seconds(waited_s):
    core = core_of()
    core.application("app")
    core.asks("app", ["a"], ONE)
    release(core, "a")
    core.now_ns += seconds(waited_s)
    core.asks("app", ["b"], {"vcore": 99_000})  # which never fits: it runs all the same
    assert (app_of(core).state, app_of(core).timers) == ("Running", {})
    unask(core, "b")
    assert app_of(core).state == "Completing"
    ((_, due_ns),) = app_of(core).timers.values()
    assert due_ns - core.now_ns == seconds(30)
    core.fire("app", "completing")
    assert states(core) == [
        "Accepted", "Running", "Completing", "Running", "Completing", "Completed",
    ]  # fmt: skip


def test_an_accepted_application_whose_last_ask_goes_completes_without_having_run():
    core = core_of(vcore=1)
    core.application("app")
    core.asks("app", ["a", "b"], ONE)
    unask(core, "a")
    assert app_of(core).state == "Accepted"
    unask(core, "b")
    core.fire("app", "completing")
    assert states(core) == ["Accepted", "Completing", "Completed"]


def test_the_same_id_may_come_again_once_it_has_ended_and_not_before():
    core = core_of()
    core.application("app")
    core.asks("app", ["a"], ONE)
    release(core, "a")
    again = "adding application app to partition default, but application already existed"
    for _ in range(2):
        (no,) = section(core.application("app"), "rejected_applications")
        assert no.reason == again
    assert app_of(core).state == "Completing"
    core.fire("app", "completing")
    assert section(core.application("app"), "accepted_applications")
    assert app_of(core).state == "New"


def test_a_rejected_application_may_come_again_and_holds_nothing():
    core = core_of(config=config_of("{name: a}"))
    (no,) = section(core.application("app", "root.b"), "rejected_applications")
    assert no.reason.startswith("failed to place application app: application rejected: no placem")
    assert states(core) == ["Rejected"]
    assert app_of(core) is None
    assert core.partition.users.users == {}
    assert section(core.application("app", "root.a"), "accepted_applications")


def test_a_running_application_with_a_pending_ask_is_not_completing_when_its_pods_end():
    core = core_of(vcore=1000)
    core.application("app")
    core.asks("app", ["a", "b"], ONE)
    release(core, "a")
    assert (app_of(core).state, list(app_of(core).allocations)) == ("Running", ["b"])


def test_removing_an_application_ends_its_pods_and_says_why():
    core = core_of(vcore=2000)
    core.application("app")
    core.asks("app", ["a", "b", "c"], ONE)
    said = core.update(remove_applications=(RemoveApplicationRequest("app"),))
    gone = section(said, "released_allocations")
    assert [(one.allocation_key, one.termination_type, one.message) for one in gone] == [
        (key, STOPPED, "Application app Removed") for key in ("a", "b")
    ]
    assert core.partition.root.allocated == {}
    assert core.partition.root.pending == {}
    core.check()


# --- gangs that run out of time -----------------------------------------------------------------


def half_a_gang(style, timeout_ms=0, **more):
    """Return a core where two of a gang's four placeholders have a place: one of a, one of b."""
    core = core_of(vcore=2000, settings=PARTIAL)
    core.application(
        "app",
        placeholder_ask={"vcore": 4000, "pods": 4},
        gang_scheduling_style=style,
        execution_timeout_milli_seconds=timeout_ms,
        **more,
    )
    for group in "ab":
        placeholders(core, [f"{group}1"], group=group)
    for group in "ab":
        placeholders(core, [f"{group}2"], group=group)
    return core


@each_row("style", ["Soft", "", "hard", "HARD", "soft", "Harder"])
def test_a_style_that_is_not_hard_to_the_letter_is_soft(style):
    core = half_a_gang(style)
    said = core.fire("app", "placeholder")
    assert app_of(core).state == "Resuming"
    assert data(core) == {"a": (2, 1, 0), "b": (2, 1, 0)}  # those that waited, at once
    confirm(core, said)
    assert data(core) == {"a": (2, 2, 0), "b": (2, 2, 0)}
    assert states(core) == ["Accepted", "Resuming", "Accepted"]
    core.asks("app", ["r"], ONE, task_group_name="a")
    assert states(core)[-1] == "Running"
    core.check()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_hard_gang_fails_when_the_last_placeholder_is_confirmed_whichever_it_is(order):
    core = half_a_gang("Hard")
    core.asks("app", ["r"], {"vcore": 99_000})  # no node takes it
    said = core.fire("app", "placeholder")
    assert told(said) == [("Failing", "ResourceReservationTimeout")]
    assert {one.allocation_key for one in section(said, "released_asks")} == {"a2", "b2", "r"}
    gone = section(said, "released_allocations")
    assert {one.termination_type for one in gone} == {TIMEOUT}
    first, last = (gone[at] for at in order)
    assert told(core.update(releases=(first,))) == []
    (no,) = section(core.asks("app", ["late"], ONE), "rejected_allocations")
    assert no.allocation_key == "late"
    assert told(core.update(releases=(last,))) == [("Failed", "ResourceReservationTimeout")]
    assert data(core) == {"a": (2, 2, 0), "b": (2, 2, 0)}
    assert app_of(core) is None
    core.check()


@each_row(("age_s", "left_s"), [(0, 60), (20, 40), (59, 1), (60, 0.001), (9999, 0.001), (-30, 60)])
def test_a_creation_time_takes_what_has_passed_off_the_timeout(age_s, left_s):
    created = str(START_NS // 10**9 - age_s)
    core = half_a_gang("Soft", 60_000, tags={"yunikorn.apache.org/creationTime": created})
    ((_, due_ns),) = app_of(core).timers.values()
    assert due_ns - core.now_ns == int(left_s * 10**9)


@each_row("created", ["", "x", "-5", "1.5", "9" * 30])
def test_a_creation_time_that_is_none_takes_nothing_off(created):
    core = half_a_gang("Soft", 60_000, tags={"yunikorn.apache.org/creationTime": created})
    ((_, due_ns),) = app_of(core).timers.values()
    assert due_ns - core.now_ns == seconds(60)


def test_a_gang_that_runs_loses_its_placeholders_at_the_timeout_and_goes_on():
    core = core_of(vcore=3000)
    core.gang("app", 3, ONE, execution_timeout_milli_seconds=60_000)
    confirm(core, core.asks("app", ["r"], ONE, task_group_name="tg"))
    said = core.fire("app", "placeholder")
    assert {one.message for one in section(said, "released_allocations")} == {
        "releasing allocated placeholders on placeholder timeout"
    }
    confirm(core, said)
    assert (app_of(core).state, data(core)) == ("Running", {"tg": (3, 2, 1)})
    core.asks("app", ["s", "t", "u"], ONE, task_group_name="tg")
    assert list(app_of(core).allocations) == ["r", "s", "t"]  # without placeholders, as they fit
    core.check()


def test_placeholders_of_which_none_was_ever_placed_never_run_out_of_time():
    core = core_of(vcore=1)
    core.application("app", placeholder_ask=ONE, execution_timeout_milli_seconds=1000)
    placeholders(core, ["p"])
    core.now_ns += seconds(10**6)
    core.update()
    assert (app_of(core).state, app_of(core).timers) == ("Accepted", {})


def test_an_application_that_completes_with_a_placeholder_left_waits_for_it_and_no_longer():
    core = core_of()
    core.gang("app", 2, ONE)
    confirm(core, core.asks("app", ["r"], ONE, task_group_name="tg"))
    release(core, "r")
    assert app_of(core).state == "Completing"
    said = core.fire("app", "completing")
    assert [one.termination_type for one in section(said, "released_allocations")] == [TIMEOUT]
    assert app_of(core).state == "Completing"
    assert told(confirm(core, said)) == [("Completed", "completeApplication")]
    assert data(core) == {"tg": (2, 1, 1)}


def test_an_ask_that_comes_while_a_completing_gang_has_a_placeholder_takes_its_place():
    core = core_of()
    core.gang("app", 2, ONE)
    confirm(core, core.asks("app", ["r"], ONE, task_group_name="tg"))
    release(core, "r")
    assert app_of(core).state == "Completing"
    said = core.asks("app", ["s"], ONE, task_group_name="tg")
    assert app_of(core).state == "Running"
    assert [one.allocation_key for one in section(confirm(core, said), "new_allocations")] == ["s"]
    assert data(core) == {"tg": (2, 0, 2)}
    core.check()


# --- replacement --------------------------------------------------------------------------------


def test_a_real_pod_that_is_smaller_gives_the_rest_back_to_its_node_queue_and_user():
    core = core_of(vcore=5000)
    core.gang("app", 2, TWO, ugi=UserGroupInformation("ann"))
    said = core.asks("app", ["r", "s"], {"vcore": 500, "pods": 1}, task_group_name="tg")
    assert core.partition.root.allocated == {"vcore": 4000, "pods": 2}
    confirm(core, said)
    for held in (
        core.partition.root.allocated,
        core.partition.nodes.nodes["n1"].allocated,
        core.partition.users.users["ann"].usage["root.default"],
        app_of(core).allocated,
    ):
        assert held == {"vcore": 1000, "pods": 2}
    assert app_of(core).allocated_placeholder == {}
    core.check()


def test_a_real_pod_of_another_group_or_of_none_takes_no_placeholder():
    core = core_of(vcore=4000)
    core.application("app", placeholder_ask={"vcore": 2000, "pods": 2})
    placeholders(core, ["a1"], group="a")
    placeholders(core, ["b1"], group="b")
    said = core.asks("app", ["x"], ONE) + core.asks("app", ["y"], ONE, task_group_name="c")
    assert section(said, "released_allocations") == []
    assert {one.allocation_key for one in section(said, "new_allocations")} == {"x", "y"}
    assert data(core) == {"a": (1, 0, 0), "b": (1, 0, 0)}


@pytest.mark.parametrize("settings", [(), PARTIAL])
def test_more_real_pods_than_placeholders_wait_until_these_have_gone(settings):
    """yunikorn.md 3.3, step 4: also those that are asked for in one message."""
    core = core_of(settings=settings)
    core.gang("app", 1, ONE)
    said = core.asks("app", ["r", "s", "t"], ONE, task_group_name="tg")
    assert section(said, "new_allocations") == []
    assert section(core.node("n2", vcore=9000, pods=9), "new_allocations") == []
    placed = section(confirm(core, said), "new_allocations")
    assert [one.allocation_key for one in placed] == ["r", "s", "t"]
    assert data(core) == {"tg": (1, 0, 1)}
    core.check()


def test_of_two_groups_each_counts_its_own():
    core = core_of()
    core.application("app", placeholder_ask={"vcore": 5000, "pods": 5})
    placeholders(core, ["a1", "a2"], group="a")
    placeholders(core, ["b1", "b2", "b3"], group="b")
    assert app_of(core).state == "Running"
    confirm(core, core.asks("app", ["r1", "r2"], ONE, task_group_name="b"))
    release(core, "a1")  # somebody deletes it
    assert data(core) == {"a": (2, 1, 0), "b": (3, 0, 2)}
    core.asks("app", ["r3"], ONE, task_group_name="a")
    core.check()


def test_a_placeholder_without_a_task_group_is_an_ask_like_any_other():
    core = core_of()
    core.application("app")
    core.asks("app", ["p"], ONE, placeholder=True)
    assert (app_of(core).state, app_of(core).allocated) == ("Running", ONE)


def test_a_confirmation_that_comes_for_a_release_that_was_never_asked_for_ends_the_placeholder():
    """A resource manager that confirms a swap that nobody waits for: it counts as replaced."""
    core = core_of()
    core.gang("app", 2, ONE)
    release(core, "app-ph-0", TerminationType.PLACEHOLDER_REPLACED)
    assert data(core) == {"tg": (2, 0, 1)}
    release(core, "app-ph-0", TerminationType.PLACEHOLDER_REPLACED)
    assert data(core) == {"tg": (2, 0, 1)}
    core.check()


# --- how many may run ---------------------------------------------------------------------------

BOUNDED = config_of("{name: p, maxapplications: 2, queues: [{name: a, maxapplications: 2}]}")


def test_an_accepted_application_with_a_placeholder_counts_and_stops_counting_once_it_runs():
    core = core_of(vcore=1000, config=BOUNDED, settings=PARTIAL)
    core.application("app", "root.p.a", placeholder_ask={"vcore": 2000, "pods": 2})
    placeholders(core, ["p1", "p2"])
    for path in ("root", "root.p", "root.p.a"):
        queue = core.partition.queues[path]
        assert (list(queue.allocating_accepted), queue.running_apps) == (["app"], 0)
    core.node("n2", vcore=1000, pods=9)
    for path in ("root", "root.p", "root.p.a"):
        queue = core.partition.queues[path]
        assert (list(queue.allocating_accepted), queue.running_apps) == ([], 1)


def test_a_completing_application_lets_the_next_one_run_and_may_run_over_the_limit_itself():
    core = core_of(config=BOUNDED)
    for name in ("a", "b", "c"):
        core.application(name, "root.p.a")
        core.asks(name, [f"{name}1"], ONE)
    assert [app_of(core, name).state for name in "abc"] == ["Running", "Running", "Accepted"]
    release(core, "a1", app="a")
    assert [app_of(core, name).state for name in "abc"] == ["Completing", "Running", "Running"]
    core.asks("a", ["a2"], ONE)
    assert [app_of(core, name).state for name in "abc"] == ["Running"] * 3
    core.check()


@pytest.mark.parametrize(("now", "runs"), [(0, 4), (3, 3), (1, 2)])
def test_a_reload_lets_more_run_and_ends_none(now, runs):
    limited = "{name: a, maxapplications: %d}"
    core = core_of(config=config_of(limited % 2))
    for name in "wxyz":
        core.application(name, "root.a")
        core.asks(name, [f"{name}1"], ONE)
    core.send(UpdateConfiguration(config_of(limited % now)))
    running = [name for name in "wxyz" if app_of(core, name).state == "Running"]
    assert running == list("wxyz")[:runs]
    core.check()


def test_who_waits_for_others_to_end_goes_by_priority_and_then_by_age():
    core = core_of(config=config_of("{name: a, maxapplications: 1}"))
    for at, (name, priority) in enumerate((("x", 0), ("y", 0), ("z", 5))):
        core.now_ns += seconds(at)
        core.application(name, "root.a")
        core.asks(name, [f"{name}1"], ONE, priority=priority)
    order = ["x"]
    for _ in range(2):
        release(core, f"{order[-1]}1", app=order[-1])
        order += [n for n in "yz" if app_of(core, n).state == "Running"]
    assert order == ["x", "z", "y"]


# --- recovery -----------------------------------------------------------------------------------


@each_row(
    ("held", "asked", "announced", "state"),
    [
        ({"r": False}, {}, 0, "Running"),
        ({"p1": True}, {}, 2, "Accepted"),
        ({"p1": True, "p2": True}, {}, 2, "Running"),
        ({"p1": True, "r": False}, {}, 2, "Running"),
        ({"p1": True}, {"p2": True}, 2, "Running"),  # there is room for it: now it is whole
        ({}, {"r": False}, 0, "Running"),
        ({"p1": True}, {"r": False}, 2, "Accepted"),  # which is in the place of none yet
    ],
)
def test_what_exists_says_in_which_state_an_application_is(held, asked, announced, state):
    core = core_of()
    core.application("app", placeholder_ask={"vcore": 1000 * announced, "pods": announced})
    core.update(
        allocations=tuple(
            Allocation(
                key, "app", "n1", ONE, placeholder=is_ph, task_group_name="tg" if is_ph else ""
            )
            for key, is_ph in held.items()
        )
    )
    for key, is_ph in asked.items():
        core.asks("app", [key], ONE, placeholder=is_ph, task_group_name="tg")
    app = app_of(core)
    swaps = bool(app.replacing)
    assert (app.state, swaps) == (state, bool({"r"} & {*asked} and announced))
    core.check()


def test_an_allocation_that_exists_is_counted_above_every_limit():
    limits = "limits: [{users: [ann], maxresources: {vcore: 1}, maxapplications: 1}]"
    leaf = "{name: a, resources: {max: {vcore: 1}}, maxapplications: 1, %s}" % limits
    core = core_of(config=config_of(leaf))
    for name in ("x", "y"):
        core.application(name, "root.a", ugi=UserGroupInformation("ann"))
        found = [Allocation(f"{name}{at}", name, "n1", ONE) for at in range(2)]
        core.update(allocations=tuple(found))
    leaf = core.partition.queues["root.a"]
    assert (leaf.allocated["vcore"], leaf.running_apps) == (4000, 2)
    assert core.partition.users.users["ann"].usage["root.a"]["vcore"] == 4000
    core.asks("x", ["more"], ONE)
    assert "more" not in app_of(core, "x").allocations
    core.check()


@each_row(
    ("amount", "node", "app", "reason"),
    [
        (ONE, "n2", "app", "failed to find node n2"),
        (ONE, "n1", "nobody", "failed to find application nobody"),
        ({}, "n1", "app", "allocation contains no resources"),
        ({"vcore": 0}, "n1", "app", "allocation contains no resources"),
        ({"vcore": -1}, "n1", "app", "allocation contains negative resources"),
    ],
)
def test_what_of_an_allocation_does_not_hold_is_refused_with_its_reason(amount, node, app, reason):
    core = core_of()
    core.application("app")
    for said in (
        core.update(allocations=(Allocation("a", app, node, amount),)),
        core.asks(app, ["b"], amount) if node == "n1" else (),
    ):
        refused = section(said, "rejected_allocations")
        assert [one.reason for one in refused] == [reason] * bool(said)
    assert app_of(core).state == "New"


# --- nodes --------------------------------------------------------------------------------------


def test_a_drained_node_keeps_its_pods_and_gets_no_more_until_it_is_schedulable():
    core = core_of()
    core.application("app")
    core.asks("app", ["a"], ONE)
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    core.asks("app", ["b"], ONE)
    assert list(app_of(core).allocations) == ["a"]
    assert core.partition.root.max_resource["vcore"] == 10_000  # it counts all the same
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_TO_SCHEDULABLE),))
    assert list(app_of(core).allocations) == ["a", "b"]


def test_a_swap_on_a_node_that_is_drained_meanwhile_goes_elsewhere_or_waits():
    core = core_of()
    core.gang("app", 1, ONE)
    said = core.asks("app", ["r"], ONE, task_group_name="tg")
    core.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    assert section(confirm(core, said), "new_allocations") == []
    (new,) = section(core.node("n2", vcore=1000, pods=9), "new_allocations")
    assert (new.allocation_key, new.node_id) == ("r", "n2")
    core.check()


def test_a_node_of_the_same_name_is_refused_and_the_first_one_stays():
    core = core_of()
    (no,) = section(core.node("n1", vcore=1), "rejected_nodes")
    assert no.reason == ("partition default has an existing node n1, node name must be unique")
    assert core.partition.root.max_resource["vcore"] == 10_000


def test_a_placeholder_that_goes_with_its_node_counts_as_timed_out():
    core = core_of(vcore=2000)
    core.gang("app", 2, ONE)
    said = core.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    assert {one.message for one in section(said, "released_allocations")} == {"Node n1 Removed"}
    assert data(core) == {"tg": (2, 2, 0)}
    core.check()


def test_placeholders_that_come_back_with_their_node_are_the_same_as_before():
    core = core_of(vcore=2000)
    core.gang("app", 2, ONE)
    core.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    core.node("n1", vcore=2000, pods=9)
    held = {"placeholder": True, "task_group_name": "tg"}
    back = tuple(Allocation(f"app-ph-{at}", "app", "n1", ONE, **held) for at in range(2))
    core.update(allocations=back)
    assert data(core) == {"tg": (2, 0, 0)}
    confirm(core, core.asks("app", ["r", "s"], ONE, task_group_name="tg"))
    assert data(core) == {"tg": (2, 0, 2)}
    core.check()


def test_placeholders_that_are_asked_for_in_place_of_lost_ones_are_counted_once():
    core = core_of(vcore=2000, settings=PARTIAL)
    core.application("app", placeholder_ask={"vcore": 3000, "pods": 3})
    placeholders(core, ["p1", "p2", "p3"])
    for lost, made in (("p1", "q1"), ("p3", "q3")):
        (unask if lost == "p3" else release)(core, lost)
        assert data(core) == {"tg": (3, 1, 0)}
        placeholders(core, [made])
        assert data(core) == {"tg": (3, 0, 0)}
    core.check()


def test_a_placeholder_more_of_a_gang_that_runs_is_one_more():
    core = core_of()
    core.gang("app", 2, ONE)
    release(core, "app-ph-0")
    placeholders(core, ["more"])
    assert data(core) == {"tg": (3, 1, 0)}


def test_the_placeholder_timeout_runs_on_when_all_that_a_gang_held_was_lost():
    core = core_of(vcore=1000, settings=PARTIAL)
    core.application(
        "app", placeholder_ask={"vcore": 2000, "pods": 2}, execution_timeout_milli_seconds=60_000
    )
    placeholders(core, ["p1", "p2"])
    first_ns = core.now_ns
    core.now_ns += seconds(20)
    core.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    ((_, due_ns),) = app_of(core).timers.values()
    assert (app_of(core).state, due_ns) == ("Accepted", first_ns + seconds(60))
    core.now_ns += seconds(20)
    core.node("n1", vcore=1000, pods=9)
    placeholders(core, ["q1"])
    ((_, due_ns),) = app_of(core).timers.values()
    assert (app_of(core).state, due_ns) == ("Accepted", first_ns + seconds(60))
    core.fire("app", "placeholder")
    assert app_of(core).state == "Resuming"


# --- what became of each group's placeholders ---------------------------------------------------

HARD = {"gang_scheduling_style": "Hard"}


def gang_of_groups(groups, vcore, **more):
    """Return a core with a gang of groups of so many placeholders each, on a node of its own each.

    The nodes have room for ``vcore`` placeholders in all, one each.
    """
    core = Core(settings=PARTIAL)
    for at in range(vcore):
        core.node(f"n{at}", vcore=1000, pods=9)
    wanted = sum(groups.values())
    core.application("app", placeholder_ask={"vcore": 1000 * wanted, "pods": wanted}, **more)
    for group, count in groups.items():
        placeholders(core, [f"{group}-{at}" for at in range(count)], group=group)
    core.check()
    return core


def lose_node(core, key):
    node = app_of(core).allocations[key].node_id
    return core.update(nodes=(NodeInfo(node, NodeAction.DECOMISSION),))


def forget(core, _):
    return core.update(remove_applications=(RemoveApplicationRequest("app"),))


ENDS = {
    "as it was asked for": lambda core, key: release(core, key, TIMEOUT),
    "stopped": release,
    "with its node": lose_node,
    "with its application": forget,
}


@pytest.mark.parametrize("first", ENDS)
def test_each_group_of_a_gang_that_failed_says_how_many_timed_out(first):
    """Some were allocated, some never; they go in one order or the other, and each in its way."""
    groups = {"a": 2, "b": 1, "c": 2}
    for there, is_reversed, last in product(range(1, 5), (False, True), ENDS):
        core = gang_of_groups(groups, there, **HARD)
        keys = sorted(app_of(core).allocations, reverse=is_reversed)
        assert len(keys) == there
        core.fire("app", "placeholder")
        core.check()
        for key in keys:
            if app_of(core) is not None:
                ENDS[first if key == keys[0] else last](core, key)
                core.check()
        assert app_of(core) is None
        assert states(core)[-1] == "Failed"
        assert data(core) == {group: (count, count, 0) for group, count in groups.items()}


@each_row("style", ["Soft", "Hard"])
@each_row("last", ENDS)
def test_each_group_says_how_many_of_it_timed_out_beside_those_that_were_replaced(last, style):
    """Of a one is replaced and one is being, of b one is, of c and d none; the rest time out."""
    groups = {"a": 3, "b": 2, "c": 2, "d": 1}
    core = gang_of_groups(groups, 7, gang_scheduling_style=style)
    core.asks("app", ["real-a"], ONE, task_group_name="a")
    core.asks("app", ["real-b"], ONE, task_group_name="b")
    assert app_of(core).state == "Accepted"  # d-0 still waits
    for key in [key for key in app_of(core).released if key[0] != "d"]:
        release(core, key, TerminationType.PLACEHOLDER_REPLACED)
    core.node("n9", vcore=1000, pods=9)
    for key in list(app_of(core).released):
        release(core, key, TerminationType.PLACEHOLDER_REPLACED)
    assert app_of(core).state == "Running"
    asked = section(core.asks("app", ["next-a"], ONE, task_group_name="a"), "released_allocations")
    core.fire("app", "placeholder")
    core.check()
    for item in asked:
        release(core, item.allocation_key, TerminationType.PLACEHOLDER_REPLACED)
    for key in [key for key, held in app_of(core).allocations.items() if held.placeholder]:
        if app_of(core) is not None:
            ENDS[last](core, key)
            core.check()
    assert data(core) == {"a": (3, 1, 2), "b": (2, 1, 1), "c": (2, 2, 0), "d": (1, 1, 0)}
