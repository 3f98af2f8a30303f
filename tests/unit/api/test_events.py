"""Every row of the table of events, as /ws/v1/events/batch answers it.

Source: docs/rules/events.md#what-is-recorded.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.projection.ended import RETENTION_NS, SWEEP_NS
from services.api.projection.events import EventRing
from services.api.projection.news import ApplicationNews
from services.api.yunikorn import answers
from services.api.yunikorn import events as ws_v1_events
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    GangSchedulingStyle,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import Heartbeat
from shared.messages.sections import split
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    EventState,
    SnapshotRequest,
    StateChange,
    StateDelta,
)
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from tests.builders import Core, config_of, envelope
from tests.unit.api.following import System

ONE = {"vcore": 1000, "pods": 1}
NODE = {"vcore": 10_000, "pods": 100}
ALICE = UserGroupInformation("alice", ("dev",))
Record = tuple[Any, ...]


def records(system: System, *only: str) -> list[Record]:
    """Return type, change, detail, object, reference, message and resource of every event."""
    answer = ws_v1_events.batch(system.model.events, "i", None, 10_000)
    found = [
        (
            EventType(record["type"]).name,
            ChangeType(record.get("eventChangeType", 0)).name,
            ChangeDetail(record.get("eventChangeDetail", 0)).name,
            record["objectID"],
            record.get("referenceID", ""),
            record.get("message", ""),
            {
                name: v.get("value", 0)
                for name, v in record["resource"].get("resources", {}).items()
            },
        )
        for record in answer["EventRecords"] or []
    ]
    return [record for record in found if not only or record[0] in only]


def of(system: System, name: str, *, since: int = 0) -> list[str]:
    """Return the events of one object in short: ``ADD.APP_NEW``."""
    return [f"{r[1]}.{r[2]}" for r in records(system) if r[3] == name][since:]


def after(system: System, before: int) -> list[Record]:
    return records(system)[before:]


def one_running(config: str = "", **more: Any) -> System:
    """Return a system with a node and an application that runs one pod."""
    system = System(config or config_of("{name: a}"))
    system.node("n1", **NODE)
    system.application("app", "root.a", **{"ugi": UserGroupInformation("alice"), **more})
    system.asks("app", ["k1"], ONE)
    return system


# --- applications -----------------------------------------------------------------------------


def test_a_life_in_order():
    system = one_running()
    system.update(releases=(AllocationRelease("app", "k1", TerminationType.STOPPED_BY_RM),))
    system.fire("app", "completing")
    life = [record for record in records(system) if "app" in record[3:5] or "k1" in record[3:5]]
    assert life == [
        ("APP", "ADD", "APP_NEW", "app", "", "", {}),
        ("QUEUE", "ADD", "QUEUE_APP", "root.a", "app", "", {}),
        ("APP", "ADD", "APP_REQUEST", "app", "k1", "", ONE),
        ("APP", "SET", "APP_ACCEPTED", "app", "", "", {}),
        ("NODE", "ADD", "NODE_ALLOC", "n1", "k1", "", ONE),
        ("APP", "ADD", "APP_ALLOC", "app", "k1", "", ONE),
        ("APP", "SET", "APP_RUNNING", "app", "", "", {}),
        ("APP", "REMOVE", "ALLOC_CANCEL", "app", "k1", "", ONE),
        ("NODE", "REMOVE", "NODE_ALLOC", "n1", "k1", "", ONE),
        ("APP", "SET", "APP_COMPLETING", "app", "", "", {}),
        ("APP", "SET", "APP_COMPLETED", "app", "", "", {}),
        ("QUEUE", "REMOVE", "QUEUE_APP", "root.a", "app", "", {}),
        ("APP", "REMOVE", "DETAILS_NONE", "app", "", "", {}),
    ]


def test_a_life_within_one_batch_is_told_in_order_too():
    """Everything in one message: the state tells each thing once, the events all of it."""
    system = System(config_of("{name: a}"))
    system.node("n1", **NODE)
    system.update(
        new_applications=(AddApplicationRequest("app", "root.a"),),
        asks=(AllocationAsk("k1", "app", ONE), AllocationAsk("k2", "app", {"vcore": 99_000})),
        ask_releases=(AllocationAskRelease("app", "k2", TerminationType.STOPPED_BY_RM),),
    )
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    assert of(system, "app") == [
        "ADD.APP_NEW",
        "ADD.APP_REQUEST",
        "ADD.APP_REQUEST",
        "SET.APP_ACCEPTED",
        "ADD.APP_ALLOC",
        "SET.APP_RUNNING",
        "REMOVE.REQUEST_CANCEL",
        "REMOVE.ALLOC_CANCEL",
        "SET.APP_COMPLETING",
        "SET.APP_COMPLETED",
        "REMOVE.DETAILS_NONE",
    ]


def test_that_a_request_fits_again_is_told_before_it_is_allocated():
    system = System(config_of("{name: a, resources: {max: {vcore: 1}}}"))
    system.node("n1", **NODE)
    system.application("app", "root.a")
    system.asks("app", ["k1", "k2"], ONE)
    before = len(records(system))
    system.send(UpdateConfiguration(config_of("{name: a, resources: {max: {vcore: 3}}}")))
    told = [(r[0], r[2], r[4]) for r in after(system, before)]
    assert told == [
        ("QUEUE", "QUEUE_MAX", ""),
        ("REQUEST", "DETAILS_NONE", "app"),  # it has become schedulable
        ("NODE", "NODE_ALLOC", "k2"),
        ("USERGROUP", "UG_USER_RESOURCE", "root.a"),
        ("APP", "APP_ALLOC", "k2"),
    ]


def test_a_rejected_application_is_new_rejected_and_in_no_queue():
    system = System(config_of("{name: a}"))
    system.application("bad", "root.nowhere")
    reason = "failed to place application bad: application rejected: no placement rule matched"
    assert [record for record in records(system) if "bad" in record[3:5]] == [
        ("APP", "ADD", "APP_NEW", "bad", "", "", {}),
        ("APP", "SET", "APP_REJECT", "bad", "", reason, {}),
    ]
    system.application("good", "root.a")
    system.application("good", "root.a")  # refused, for it is there: no second one is created
    assert of(system, "good") == ["ADD.APP_NEW"]


def test_a_hard_gang_that_fails():
    system = System(config_of("{name: a}"))
    give_a_gang_up(system, GangSchedulingStyle.HARD)
    why = "ResourceReservationTimeout"
    found = [r for r in records(system, "APP") if r[3] == "g"]
    assert found[-5:] == [
        ("APP", "SET", "APP_FAILING", "g", "", why, {}),
        ("APP", "REMOVE", "REQUEST_TIMEOUT", "g", "ph-1", "", {"vcore": 500}),
        ("APP", "REMOVE", "ALLOC_TIMEOUT", "g", "ph-0", "", ONE),
        ("APP", "SET", "APP_FAILED", "g", "", why, {}),
        ("APP", "REMOVE", "DETAILS_NONE", "g", "", "", {}),
    ]


def give_a_gang_up(system: System, style: str) -> None:
    """Let a gang of two that holds one placeholder run into its timeout."""
    system.node("n1", **NODE)
    two = {"vcore": 1500, "pods": 1}
    system.application("g", "root.a", placeholder_ask=two, gang_scheduling_style=style)
    system.asks("g", ["ph-0"], ONE, placeholder=True, task_group_name="tg")
    nowhere = Constraints(required_node="nowhere")
    gang = {"placeholder": True, "task_group_name": "tg", "constraints": nowhere}
    system.asks("g", ["ph-1"], {"vcore": 500}, **gang)
    system.fire("g", "placeholder")
    system.update(releases=(AllocationRelease("g", "ph-0", TerminationType.TIMEOUT),))


def test_a_soft_gang_that_resumes():
    system = System(config_of("{name: a}"))
    give_a_gang_up(system, GangSchedulingStyle.SOFT)
    states = [r for r in records(system, "APP") if r[1] == "SET" and r[3] == "g"]
    assert [(r[2], r[5]) for r in states] == [
        ("APP_ACCEPTED", ""),
        ("APP_RESUMING", "ResourceReservationTimeout"),
        ("APP_ACCEPTED", ""),
    ]
    why = [f"{r[2]} {r[4]}".strip() for r in records(system, "APP") if r[3] == "g"]
    assert why[-4:] == [
        "APP_RESUMING", "REQUEST_TIMEOUT ph-1", "ALLOC_TIMEOUT ph-0", "APP_ACCEPTED",
    ]  # fmt: skip


def test_what_goes_makes_room_for_what_comes_within_one_batch():
    system = System(config_of("{name: a, resources: {max: {vcore: 1}}}"))
    system.node("n1", **NODE)
    system.application("app", "root.a")
    system.asks("app", ["k1", "k2"], ONE)
    before = len(records(system))
    system.update(releases=(AllocationRelease("app", "k1", TerminationType.STOPPED_BY_RM),))
    told = [f"{r[2]} {r[4]}" for r in after(system, before) if r[0] in ("APP", "NODE")]
    assert told == ["ALLOC_CANCEL k1", "NODE_ALLOC k1", "NODE_ALLOC k2", "APP_ALLOC k2"]


def test_what_has_ended_expires_and_is_swept_out():
    system = System(config_of("{name: a}"))
    system.node("n1", **NODE)
    system.application("rejected", "root.nowhere")
    system.application("ended", "root.a")
    system.asks("ended", ["k"], ONE)
    system.update(remove_applications=(RemoveApplicationRequest("ended"),))
    projection, ended_ns = system.projection, system.now_ns
    assert projection.ended.next_due_ns() == ended_ns + RETENTION_NS

    def at(now_ns: int) -> dict[str, str]:
        projection.handle(envelope(Heartbeat("t")), now_ns)
        return {name: view.summary.state for (name, _), view in system.model.ended.items()}

    both = {"rejected": "Rejected", "ended": "Completed"}
    assert at(ended_ns + RETENTION_NS - 1) == both
    assert at(ended_ns + RETENTION_NS) == dict.fromkeys(both, "Expired")
    assert [of(system, name)[-1] for name in both] == ["SET.APP_EXPIRED"] * 2
    log = system.model.application("ended").summary.state_log
    assert log[-1] == StateChange(ended_ns + RETENTION_NS, "Expired")
    sweep_ns = projection.ended.next_due_ns()
    assert sweep_ns % SWEEP_NS == 0
    assert ended_ns + RETENTION_NS < sweep_ns <= ended_ns + RETENTION_NS + SWEEP_NS
    assert at(sweep_ns - 1) == dict.fromkeys(both, "Expired")
    assert at(sweep_ns) == {}
    assert projection.ended.next_due_ns() is None
    assert [of(system, name).count("SET.APP_EXPIRED") for name in both] == [1, 1]


def test_an_expired_application_stays_in_the_list_that_it_was_in():
    system = System(config_of("{name: a}"))
    system.application("bad", "root.nowhere")
    system.application("good", "root.a")
    system.update(remove_applications=(RemoveApplicationRequest("good"),))
    system.projection.handle(envelope(Heartbeat("t")), system.now_ns + RETENTION_NS)
    listed = {
        state: [
            v.summary.application_id for v in answers.applications_in_state(system.model, state)
        ]
        for state in ("active", "rejected", "completed")
    }
    assert listed == {"active": [], "rejected": ["bad"], "completed": ["good"]}


def test_a_submission_whose_place_was_taken_expires_without_a_word():
    """A replica that missed the end of an application learns of the next one of its name."""
    system = one_running()
    (view,) = system.model.applications.values()
    again = replace(view.summary, submission="99", state="New", state_log=())
    delta = StateDelta(time_ns=system.now_ns, applications=(again,))
    projection = system.projection
    projection.handle(envelope(delta, epoch=projection.epoch, seq=projection.seq + 1), 1)
    ((name, _),) = system.model.ended
    assert (name, view.summary.state) == ("app", "Running")
    projection.handle(envelope(Heartbeat("t")), system.now_ns + RETENTION_NS)
    projection.handle(envelope(Heartbeat("t")), system.now_ns + RETENTION_NS + SWEEP_NS)
    assert system.model.ended == {}
    assert "SET.APP_EXPIRED" not in of(system, "app")


def test_what_comes_and_goes_within_one_batch_is_told_as_both():
    system = System(config_of("{name: a}"))
    created, gone = NodeAction.CREATE, NodeAction.DECOMISSION
    system.update(nodes=(NodeInfo("n", created, {"vcore": 5}), NodeInfo("n", gone)))
    assert of(system, "n") == ["ADD.DETAILS_NONE", "REMOVE.NODE_DECOMISSION"]


def test_only_so_many_of_the_ended_wait_for_their_end(monkeypatch):
    monkeypatch.setattr("services.api.projection.ended.MAX_ENDED", 3)
    system = System(config_of("{name: a}"))
    for at in range(10):
        system.application(f"bad-{at}", "root.nowhere")
    assert [name for name, _ in system.model.ended] == ["bad-7", "bad-8", "bad-9"]
    system.projection.handle(envelope(Heartbeat("t")), system.now_ns + RETENTION_NS)
    system.application("bad-10", "root.nowhere")
    assert system.projection.ended.next_due_ns() is not None
    system.projection.handle(envelope(Heartbeat("t")), system.now_ns + 2 * RETENTION_NS)
    system.projection.handle(envelope(Heartbeat("t")), system.now_ns + 3 * RETENTION_NS)
    assert (system.model.ended, system.projection.ended.next_due_ns()) == ({}, None)


# --- asks and allocations ---------------------------------------------------------------------


def test_an_ask_that_is_taken_back_and_one_that_is_changed():
    system = System(config_of("{name: a}"))
    system.application("app", "root.a")
    system.asks("app", ["k"], ONE)
    system.asks("app", ["k"], {"vcore": 5})  # the same key again is an update
    system.update(ask_releases=(AllocationAskRelease("app", "k", TerminationType.STOPPED_BY_RM),))
    assert [r for r in records(system, "APP") if r[4] == "k"] == [
        ("APP", "ADD", "APP_REQUEST", "app", "k", "", ONE),
        ("APP", "REMOVE", "REQUEST_CANCEL", "app", "k", "", {"vcore": 5}),
    ]


def test_an_allocation_that_the_resource_manager_ends():
    system = one_running()
    before = len(records(system))
    system.update(releases=(AllocationRelease("app", "k1", TerminationType.STOPPED_BY_RM),))
    assert after(system, before)[:3] == [
        ("APP", "REMOVE", "ALLOC_CANCEL", "app", "k1", "", ONE),
        ("NODE", "REMOVE", "NODE_ALLOC", "n1", "k1", "", ONE),
        ("USERGROUP", "REMOVE", "UG_USER_RESOURCE", "alice", "root.a", "", ONE),
    ]


ENDS = {
    TerminationType.UNKNOWN_TERMINATION_TYPE: "ALLOC_NODEREMOVED",
    TerminationType.STOPPED_BY_RM: "ALLOC_CANCEL",
    TerminationType.TIMEOUT: "ALLOC_TIMEOUT",
    TerminationType.PREEMPTED_BY_SCHEDULER: "ALLOC_PREEMPT",
    TerminationType.PLACEHOLDER_REPLACED: "ALLOC_REPLACED",
}


@pytest.mark.parametrize("decided", [None, TerminationType.PREEMPTED_BY_SCHEDULER])
@pytest.mark.parametrize("placeholder", [False, True])
@pytest.mark.parametrize("why", ENDS)
def test_an_end_is_told_by_the_type_of_the_release_that_comes(why, placeholder, decided):
    system = System(config_of("{name: a}"))
    system.node("n1", **NODE)
    system.application("app", "root.a", placeholder_ask=ONE if placeholder else {})
    group = "tg" if placeholder else ""
    system.asks("app", ["k1"], ONE, placeholder=placeholder, task_group_name=group)
    if decided is not None:  # and the pod ends otherwise meanwhile
        system.partition.release(system.partition.applications["app"], "k1", decided, "a test")
    system.update(releases=(AllocationRelease("app", "k1", why),))
    told = [r[2] for r in records(system, "APP") if r[1] == "REMOVE" and r[4] == "k1"]
    assert told == [ENDS[why]]


@pytest.mark.parametrize("is_full", [False, True])
def test_an_allocation_that_could_not_be_bound_is_a_request_again(is_full):
    system = one_running()
    before = len(records(system))
    if is_full:  # it has to wait, else it is placed in the same moment
        system.update(nodes=(NodeInfo("n1", NodeAction.DRAIN_NODE),))
    why = TerminationType.SCHEDULING_FAILED_ON_RM
    system.update(releases=(AllocationRelease("app", "k1", why, message="no"),))
    found = [r[:3] for r in after(system, before) if r[4] == "k1"]
    assert found == [
        ("APP", "REMOVE", "ALLOC_CANCEL"),
        ("NODE", "REMOVE", "NODE_ALLOC"),
        ("APP", "ADD", "APP_REQUEST"),
        *[("NODE", "ADD", "NODE_ALLOC"), ("APP", "ADD", "APP_ALLOC")] * (not is_full),
    ]
    (node,) = system.model.nodes.values()
    assert list(node.allocations) == ["k1"] * (not is_full)


@pytest.mark.parametrize("why", ["TIMEOUT", "PREEMPTED_BY_SCHEDULER"])
def test_an_allocation_that_the_core_ends(why):
    system = one_running()
    app = system.partition.applications["app"]
    system.partition.release(app, "k1", TerminationType(why), "for a test")
    system.update(releases=(AllocationRelease("app", "k1", TerminationType(why)),))
    detail = "ALLOC_TIMEOUT" if why == "TIMEOUT" else "ALLOC_PREEMPT"
    assert f"REMOVE.{detail}" in of(system, "app")


def test_a_placeholder_that_is_replaced():
    system = System(config_of("{name: a}"))
    system.node("n1", **NODE)
    system.gang("g", 1, ONE, queue="root.a")
    system.asks("g", ["real"], ONE, task_group_name="tg")
    before = len(records(system))
    why = TerminationType.PLACEHOLDER_REPLACED
    system.update(releases=(AllocationRelease("g", "g-ph-0", why),))
    assert [r for r in after(system, before) if r[0] == "APP"] == [
        ("APP", "REMOVE", "ALLOC_REPLACED", "g", "g-ph-0", "", ONE),
        ("APP", "ADD", "APP_ALLOC", "g", "real", "", ONE),
    ]
    assert of(system, "g").count("ADD.APP_REQUEST") == 2


def test_a_swap_that_is_called_off_cancels_the_request():
    system = System(config_of("{name: a}"))
    system.node("n1", **NODE)
    system.gang("g", 1, ONE, queue="root.a")
    system.asks("g", ["real"], ONE, task_group_name="tg")
    release = AllocationAskRelease("g", "real", TerminationType.STOPPED_BY_RM)
    system.update(ask_releases=(release,))
    assert [r[1:3] for r in records(system, "APP") if r[4] == "real"] == [
        ("ADD", "APP_REQUEST"),
        ("REMOVE", "REQUEST_CANCEL"),
    ]


# --- runnable -----------------------------------------------------------------------------------


def test_runnable_by_the_queue():
    system = one_running(config_of("{name: a, maxapplications: 1}"))
    system.application("next", "root.a")
    system.asks("next", ["n"], ONE)
    assert of(system, "next")[-1] == "NONE.APP_CANNOTRUN_QUEUE"
    system.asks("next", ["n2"], ONE)
    assert of(system, "next").count("NONE.APP_CANNOTRUN_QUEUE") == 1
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    assert of(system, "next", since=-4) == [
        "NONE.APP_RUNNABLE_QUEUE",
        "ADD.APP_ALLOC",
        "ADD.APP_ALLOC",
        "SET.APP_RUNNING",
    ]


def test_runnable_by_the_quota_of_a_user():
    config = config_of("{name: a, limits: [{users: [alice], maxapplications: 1}]}")
    system = one_running(config)
    system.application("next", "root.a", ugi=UserGroupInformation("alice"))
    system.asks("next", ["n"], ONE)
    assert of(system, "next")[-1] == "NONE.APP_CANNOTRUN_QUOTA"
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    assert of(system, "next", since=-3) == [
        "NONE.APP_RUNNABLE_QUOTA",
        "ADD.APP_ALLOC",
        "SET.APP_RUNNING",
    ]


def test_runnable_by_neither():
    limits = "limits: [{users: [alice], maxapplications: 1}]"
    system = one_running(config_of("{name: a, maxapplications: 1, %s}" % limits))
    system.application("next", "root.a", ugi=UserGroupInformation("alice"))
    system.asks("next", ["n"], ONE)
    assert of(system, "next", since=-2) == ["NONE.APP_CANNOTRUN_QUEUE", "NONE.APP_CANNOTRUN_QUOTA"]
    more = config_of("{name: a, maxapplications: 2, %s}" % limits)
    system.send(UpdateConfiguration(more))
    assert of(system, "next")[-1] == "NONE.APP_RUNNABLE_QUEUE"


# --- nodes --------------------------------------------------------------------------------------


def test_a_node_s_life():
    system = System(config_of("{name: a}"))
    system.update(nodes=(NodeInfo("n", NodeAction.CREATE_DRAIN, {"vcore": 5}),))
    for action, capacity in (
        (NodeAction.DRAIN_TO_SCHEDULABLE, {}),
        (NodeAction.DRAIN_TO_SCHEDULABLE, {}),  # it is: nothing has changed
        (NodeAction.UPDATE, {"vcore": 7}),
        (NodeAction.UPDATE, {"vcore": 7}),
        (NodeAction.DRAIN_NODE, {}),
        (NodeAction.DECOMISSION, {}),
    ):
        system.update(nodes=(NodeInfo("n", action, capacity),))
    assert records(system, "NODE") == [
        ("NODE", "ADD", "DETAILS_NONE", "n", "", "Node added to the scheduler", {"vcore": 5}),
        ("NODE", "SET", "NODE_SCHEDULABLE", "n", "", "schedulable: true", {}),
        ("NODE", "SET", "NODE_CAPACITY", "n", "", "", {"vcore": 7}),
        ("NODE", "SET", "NODE_SCHEDULABLE", "n", "", "schedulable: false", {}),
        ("NODE", "REMOVE", "NODE_DECOMISSION", "n", "", "Node removed from the scheduler", {}),
    ]


def test_a_node_goes_after_what_was_on_it():
    system = one_running()
    foreign = Allocation("f", "", "n1", {"vcore": 1}, allocation_tags={"foreign": "static"})
    system.update(allocations=(foreign,))
    before = len(records(system))
    system.update(nodes=(NodeInfo("n1", NodeAction.DECOMISSION),))
    gone = [r for r in after(system, before) if r[0] in ("APP", "NODE")]
    assert gone == [
        ("APP", "REMOVE", "ALLOC_NODEREMOVED", "app", "k1", "", ONE),
        ("NODE", "REMOVE", "NODE_ALLOC", "n1", "k1", "", ONE),
        ("APP", "SET", "APP_COMPLETING", "app", "", "", {}),
        ("NODE", "REMOVE", "NODE_ALLOC", "n1", "f", "foreign: static", {"vcore": 1}),
        ("NODE", "REMOVE", "NODE_DECOMISSION", "n1", "", "Node removed from the scheduler", {}),
    ]


def test_a_foreign_pod_comes_once_and_goes_once_and_is_no_occupied_event():
    system = System(config_of("{name: a}"))
    system.node("n", vcore=10)
    for vcore in (3, 4):
        pod = Allocation("f", "", "n", {"vcore": vcore}, allocation_tags={"foreign": "default"})
        system.update(allocations=(pod,))
    system.update(releases=(AllocationRelease("", "f", TerminationType.STOPPED_BY_RM),))
    assert records(system, "NODE")[1:] == [
        ("NODE", "ADD", "NODE_ALLOC", "n", "f", "foreign: default", {"vcore": 3}),
        ("NODE", "REMOVE", "NODE_ALLOC", "n", "f", "foreign: default", {"vcore": 4}),
    ]


def test_a_reservation():
    system = System(config_of("{name: a}"))
    system.node("n", **ONE)
    system.node("tiny", vcore=500, pods=9)  # so that it is no queue that refuses
    system.application("app", "root.a")
    system.asks("app", ["small"], {"vcore": 600})
    system.asks("app", ["large"], {"vcore": 800})
    system.fire_own("reservation")
    release = AllocationAskRelease("app", "large", TerminationType.STOPPED_BY_RM)
    system.update(ask_releases=(release,))
    assert [r for r in records(system, "NODE") if r[2] == "NODE_RESERVATION"] == [
        ("NODE", "ADD", "NODE_RESERVATION", "n", "large", "", {}),
        ("NODE", "REMOVE", "NODE_RESERVATION", "n", "large", "", {}),
    ]


# --- queues -------------------------------------------------------------------------------------


def test_queues_come_change_and_go():
    system = System(config_of("{name: a}", "{name: b}"))
    assert records(system) == [
        ("QUEUE", "ADD", "DETAILS_NONE", path, "", "", {}) for path in ("root", "root.a", "root.b")
    ]
    system.node("n", vcore=5)
    amounts = "{guaranteed: {vcore: 1}, max: {vcore: 2}}"
    system.send(UpdateConfiguration(config_of("{name: a, resources: %s}" % amounts)))
    system.fire_own("cleaner")
    system.send(UpdateConfiguration(config_of("{name: a, parent: true}")))
    assert records(system, "QUEUE")[3:] == [
        ("QUEUE", "SET", "QUEUE_MAX", "root", "", "", {"vcore": 5}),
        ("QUEUE", "SET", "QUEUE_MAX", "root.a", "", "", {"vcore": 2000}),
        ("QUEUE", "SET", "QUEUE_GUARANTEED", "root.a", "", "", {"vcore": 1000}),
        ("QUEUE", "REMOVE", "DETAILS_NONE", "root.b", "", "", {}),
        ("QUEUE", "SET", "QUEUE_MAX", "root.a", "", "", {}),
        ("QUEUE", "SET", "QUEUE_GUARANTEED", "root.a", "", "", {}),
        ("QUEUE", "SET", "QUEUE_TYPE", "root.a", "", "leaf queue: false", {}),
    ]
    system.send(UpdateConfiguration(config_of("{name: a}")))
    assert records(system, "QUEUE")[-1][2:6] == ("QUEUE_TYPE", "root.a", "", "leaf queue: true")


def quota(most: str) -> str:
    leaf = "{name: a, properties: {quota.preemption.delay: 1s}, resources: {max: {vcore: %s}}}"
    head = "{name: default, preemption: {quotapreemptionenabled: true},"
    return config_of(leaf % most).replace("{name: default,", head)


def test_a_quota_that_is_enforced():
    system = one_running(quota("5"))
    system.asks("app", ["k2"], ONE)
    system.send(UpdateConfiguration(quota("1")))
    before = len(records(system))
    system.fire_own("quota")
    told = "Preempted by Quota change enforcement process in root.a"
    summary = (
        "Quota Preemption results summary: preemptable resources: map[vcore:1000], claimed "
        "resources: map[pods:1 vcore:1000], selected victims: 1, preempted victims: 1"
    )
    assert after(system, before) == [
        ("REQUEST", "NONE", "DETAILS_NONE", "k1", "app", told, {}),
        ("QUEUE", "SET", "QUEUE_PREEMPTION", "root.a", "", summary, {}),
    ]


def test_dynamic_queues():
    rules = ", placementrules: [{name: user, create: true, parent: {name: fixed, value: p, create: true}}]"
    text = config_of("{name: a}").removesuffix("}]") + rules + "}]"
    system = System(text)
    system.application("app", "", ugi=UserGroupInformation("alice"))
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    system.fire_own("cleaner")
    dynamic = [r for r in records(system, "QUEUE") if r[2] == "QUEUE_DYNAMIC"]
    assert [(r[1], r[3]) for r in dynamic] == [
        ("ADD", "root.p"),
        ("ADD", "root.p.alice"),
        ("REMOVE", "root.p.alice"),
        ("REMOVE", "root.p"),
    ]


# --- users and groups -----------------------------------------------------------------------------

LIMITS = "limits: [{users: [alice], maxresources: {vcore: 9}}, {groups: [dev], maxapplications: 4}]"


def test_users_and_groups():
    system = one_running(config_of("{name: a, %s}" % LIMITS), ugi=ALICE)
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    assert records(system, "USERGROUP") == [
        ("USERGROUP", "SET", "UG_USER_LIMIT", "alice", "root.a", "", {"vcore": 9000}),
        ("USERGROUP", "SET", "UG_GROUP_LIMIT", "dev", "root.a", "", {}),
        ("USERGROUP", "SET", "UG_APP_LINK", "dev", "app", "", {}),
        ("USERGROUP", "ADD", "UG_USER_RESOURCE", "alice", "root.a", "", ONE),
        ("USERGROUP", "ADD", "UG_GROUP_RESOURCE", "dev", "root.a", "", ONE),
        ("USERGROUP", "REMOVE", "UG_USER_RESOURCE", "alice", "root.a", "", ONE),
        ("USERGROUP", "REMOVE", "UG_GROUP_RESOURCE", "dev", "root.a", "", ONE),
        ("USERGROUP", "REMOVE", "UG_APP_LINK", "dev", "app", "", {}),
    ]


def test_limits_that_a_reload_changes_leaves_and_takes_away():
    system = System(
        config_of(
            "{name: a, %s}" % LIMITS, "{name: b, limits: [{users: [bob], maxapplications: 1}]}"
        )
    )
    before = len(records(system))
    less = (
        "limits: [{users: [alice], maxresources: {vcore: 8}}, {groups: [dev], maxapplications: 4}]"
    )
    system.send(UpdateConfiguration(config_of("{name: a, %s}" % less)))
    system.send(UpdateConfiguration(config_of("{name: a}")))
    system.fire_own("cleaner")
    assert [r for r in after(system, before) if r[0] == "USERGROUP"] == [
        ("USERGROUP", "SET", "UG_USER_LIMIT", "alice", "root.a", "", {"vcore": 8000}),
        ("USERGROUP", "REMOVE", "UG_USER_LIMIT", "alice", "root.a", "", {}),
        ("USERGROUP", "REMOVE", "UG_GROUP_LIMIT", "dev", "root.a", "", {}),
        ("USERGROUP", "REMOVE", "UG_USER_LIMIT", "bob", "root.b", "", {}),
    ]


def test_an_application_is_linked_by_a_reload_and_a_resize_moves_its_usage():
    system = one_running(ugi=ALICE)
    assert "SET.UG_APP_LINK" not in of(system, "dev")
    system.send(UpdateConfiguration(config_of("{name: a, %s}" % LIMITS)))
    assert [r[1:3] + r[6:] for r in records(system) if r[3] == "dev"] == [
        ("SET", "UG_GROUP_LIMIT", {}),
        ("SET", "UG_APP_LINK", {}),
        ("ADD", "UG_GROUP_RESOURCE", ONE),
    ]
    before = len(records(system))
    larger = Allocation("k1", "app", "n1", {"vcore": 3000, "pods": 1})
    system.update(allocations=(larger,))
    assert [r[1:3] + r[6:] for r in after(system, before) if r[3] == "alice"] == [
        ("ADD", "UG_USER_RESOURCE", {"vcore": 3000, "pods": 1}),
        ("REMOVE", "UG_USER_RESOURCE", ONE),
    ]


# --- the table ------------------------------------------------------------------------------------

ROWS = {
    *(("APP", "ADD", detail) for detail in ("APP_NEW", "APP_REQUEST", "APP_ALLOC")),
    *(
        ("APP", "SET", f"APP_{state}")
        for state in (
            *("ACCEPTED", "RUNNING", "COMPLETING", "COMPLETED", "FAILING", "FAILED"),
            *("REJECT", "RESUMING", "EXPIRED"),
        )
    ),
    *(
        ("APP", "REMOVE", detail)
        for detail in (
            *("REQUEST_CANCEL", "REQUEST_TIMEOUT", "DETAILS_NONE", "ALLOC_NODEREMOVED"),
            *("ALLOC_CANCEL", "ALLOC_TIMEOUT", "ALLOC_PREEMPT", "ALLOC_REPLACED"),
        )
    ),
    *(
        ("APP", "NONE", f"APP_{can}_{by}")
        for can in ("CANNOTRUN", "RUNNABLE")
        for by in ("QUEUE", "QUOTA")
    ),
    ("NODE", "ADD", "DETAILS_NONE"),
    ("NODE", "REMOVE", "NODE_DECOMISSION"),
    ("NODE", "SET", "NODE_SCHEDULABLE"),
    ("NODE", "SET", "NODE_CAPACITY"),
    *(
        (kind, change, detail)
        for change in ("ADD", "REMOVE")
        for kind, detail in (
            ("NODE", "NODE_ALLOC"),
            ("NODE", "NODE_RESERVATION"),
            ("QUEUE", "QUEUE_DYNAMIC"),
            ("QUEUE", "DETAILS_NONE"),
            ("QUEUE", "QUEUE_APP"),
            ("USERGROUP", "UG_USER_RESOURCE"),
            ("USERGROUP", "UG_GROUP_RESOURCE"),
        )
    ),
    *(
        ("QUEUE", "SET", f"QUEUE_{detail}")
        for detail in ("MAX", "GUARANTEED", "TYPE", "PREEMPTION")
    ),
    *(
        ("USERGROUP", change, f"UG_{detail}")
        for change in ("SET", "REMOVE")
        for detail in ("USER_LIMIT", "GROUP_LIMIT", "APP_LINK")
    ),
}


def test_every_row_of_the_table_is_walked_by_a_test_above(monkeypatch):
    """The tests above, once more, with all that they read gathered: nothing of it lacks."""
    seen: set[tuple[str, str, str]] = set()
    read = records

    def gather(system: System, *only: str) -> list[Record]:
        seen.update(record[:3] for record in read(system))
        return read(system, *only)

    monkeypatch.setitem(globals(), "records", gather)
    for story in (
        *(test_a_life_in_order, test_a_life_within_one_batch_is_told_in_order_too),
        *(test_a_rejected_application_is_new_rejected_and_in_no_queue, test_a_hard_gang_that_fails),
        *(test_a_soft_gang_that_resumes, test_what_has_ended_expires_and_is_swept_out),
        *(
            test_an_ask_that_is_taken_back_and_one_that_is_changed,
            test_a_placeholder_that_is_replaced,
        ),
        *(test_runnable_by_the_queue, test_runnable_by_the_quota_of_a_user, test_a_node_s_life),
        *(test_a_node_goes_after_what_was_on_it, test_a_reservation, test_dynamic_queues),
        *(test_queues_come_change_and_go, test_a_quota_that_is_enforced, test_users_and_groups),
        test_limits_that_a_reload_changes_leaves_and_takes_away,
    ):
        story()
    test_an_allocation_that_the_core_ends("PREEMPTED_BY_SCHEDULER")
    assert ROWS - seen == set()
    assert {row for row in seen - ROWS if row[0] != "REQUEST"} == set()


# --- a snapshot, and several messages --------------------------------------------------------------


def test_a_snapshot_tells_nothing_that_is_known_and_what_is_not():
    system = one_running(config_of("{name: a, %s}" % LIMITS), ugi=ALICE)
    known = records(system)
    system.send(SnapshotRequest("one"))
    assert records(system) == known
    fresh = System(config_of("{name: a, %s}" % LIMITS))
    fresh.projection, missed = type(fresh.projection)("two"), fresh.projection
    fresh.scheduler = system.scheduler
    fresh.send(SnapshotRequest("two"))
    assert missed is not fresh.projection
    assert [r for r in records(fresh) if r[0] in ("APP", "NODE")] == [
        ("NODE", "ADD", "DETAILS_NONE", "n1", "", "Node added to the scheduler", NODE),
        ("APP", "ADD", "APP_NEW", "app", "", "", {}),
        ("APP", "SET", "APP_ACCEPTED", "app", "", "", {}),
        ("NODE", "ADD", "NODE_ALLOC", "n1", "k1", "", ONE),
        ("APP", "ADD", "APP_ALLOC", "app", "k1", "", ONE),
        ("APP", "SET", "APP_RUNNING", "app", "", "", {}),
    ]


def test_a_change_in_several_messages_is_told_as_one():
    system = Split(config_of("{name: a}"))
    system.node("n1", **NODE)
    system.update(
        new_applications=(AddApplicationRequest("app", "root.a"),),
        asks=tuple(AllocationAsk(f"k{at}", "app", ONE) for at in range(8)),
    )
    assert system.parts > 4
    assert of(system, "app") == [
        "ADD.APP_NEW",
        *["ADD.APP_REQUEST"] * 8,
        "SET.APP_ACCEPTED",
        *["ADD.APP_ALLOC"] * 8,
        "SET.APP_RUNNING",
    ]
    system.update(remove_applications=(RemoveApplicationRequest("app"),))
    assert of(system, "app", since=19) == [
        *["REMOVE.ALLOC_CANCEL"] * 8,
        "SET.APP_COMPLETING",
        "SET.APP_COMPLETED",
        "REMOVE.DETAILS_NONE",
    ]
    (view,) = system.model.ended.values()
    assert (view.asks, view.allocations) == ({}, {})


class Split(System):
    """A system whose state is told in several messages, as the host would."""

    parts = 0

    def send(self, message, *, epoch=None):
        before = len(self.answers)
        responses = Core.send(self, message, epoch=epoch)
        parts = (part for item in self.answers[before:] for part in split(item, 5))
        for item in parts:
            if isinstance(item.message, StateDelta):
                self.parts += 1
                told = envelope(item.message, epoch=item.epoch, seq=item.seq)
                assert not self.projection.handle(told, 1)
        return responses


# --- the ring ---------------------------------------------------------------------------------------

allocation = st.builds(
    AllocationState, st.text(), st.just("app"), st.text(), why=st.sampled_from(TerminationType)
)
summary = st.builds(
    lambda user, group, rejected, log: ApplicationSummary(
        "app", "1", "root.a", "New", user, (), 0, 0, 0, {}, {}, {}, {}, 0, rejected, "",
        state_log=tuple(StateChange(1, state) for state in log), group=group,
    ),
    st.sampled_from(["", "u"]), st.sampled_from(["", "g", "h"]), st.sampled_from(["", "why"]),
    st.lists(st.sampled_from(["Accepted", "Running", "Completing", "Failing", "Expired"])),
)  # fmt: skip


@st.composite
def news(draw):
    told = ApplicationNews(draw(summary), 5)
    told.is_new, told.has_left = draw(st.booleans()), draw(st.booleans())
    told.group_before = draw(st.sampled_from(["", "g"]))
    told.states += told.summary.state_log
    for allocated in draw(st.lists(allocation, max_size=3)):
        told.ask_added(allocated.allocation_key, {})
        told.allocation_added(allocated)
    for allocated in draw(st.lists(allocation, max_size=3)):
        told.allocation_ended(allocated)
        told.ask_ended(allocated.allocation_key, {}, "TIMEOUT")
        told.resized(allocated, allocated)
    told.said += [EventState(2, "app", "said", 1)] * draw(st.integers(0, 2))
    return told


@given(st.lists(st.one_of(news(), st.integers(0, 3)), max_size=8), st.integers(1, 40))
def test_the_ring_holds_the_newest_by_their_numbers_whatever_they_are_made_of(entries, capacity):
    ring, everything = EventRing(capacity), []
    for entry in entries:
        if isinstance(entry, int):
            event = EventState(entry, "o", "", 0)
            ring.add(event)
            everything.append(event)
        else:
            ring.add_all(entry)
            everything += entry.events()
    total = len(everything)
    lowest = max(0, total - capacity)
    assert (ring.lowest, ring.highest) == (lowest, max(0, total - 1))
    for start in range(total + 2):
        expected = everything[start : start + 7] if start >= lowest else []
        assert ring.read(start, 7) == expected
