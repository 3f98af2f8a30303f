"""The scheduler's answers to good and bad news, one message at a time."""

import pytest

from services.core.configuration import parse_configuration
from services.core.scheduler.scheduler import Scheduler
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
    UserGroupInformation,
)
from shared.messages.protocol import (
    Heartbeat,
    SyncBegin,
    SyncEnd,
    SyncRequest,
    TimerOrders,
    TimerSyncRequest,
)
from shared.messages.state import SnapshotRequest, StateDelta
from tests.builders import Core, config_of, envelope, section

ONE = {"vcore": 1000, "pods": 1}
NODE = {"vcore": 10_000, "pods": 20}


def test_a_core_asks_for_everything_at_its_first_message_and_decides_nothing_before():
    scheduler = Scheduler("c", parse_configuration)
    scheduler.handle(envelope(Heartbeat("x")), 1)
    assert [type(item.message) for item in scheduler.flush(1)] == [SyncRequest]
    scheduler.handle(envelope(Heartbeat("y"), "m2"), 2)
    assert scheduler.flush(2) == []


def test_a_core_asks_also_when_it_hears_the_answer_to_one_that_died():
    """Seed 6305: two cores spoke in one epoch, and nobody could tell which was the later one."""
    scheduler = Scheduler("c", parse_configuration)
    for at, message in enumerate((SyncBegin(""), SyncEnd(0, 0, 0))):
        scheduler.handle(envelope(message, f"m{at}", epoch=3), 1)
    asked = [item for item in scheduler.flush(1) if isinstance(item.message, SyncRequest)]
    assert [item.epoch for item in asked] == [3]  # what answers it is of a later epoch
    scheduler.handle(envelope(SyncBegin(""), "m3", epoch=4), 2)
    scheduler.handle(envelope(SyncEnd(0, 0, 0), "m4", epoch=4), 2)
    assert not any(isinstance(item.message, SyncRequest) for item in scheduler.flush(2))
    assert scheduler.is_synced


def test_a_message_of_a_lower_epoch_is_refused():
    core = Core(epoch=5)
    core.node("n1", **NODE)
    core.epoch = 4
    core.node("n2", **NODE)
    assert list(core.partition.nodes.nodes) == ["n1"]


def test_a_message_of_a_higher_epoch_makes_the_core_recover():
    core = Core(epoch=1)
    core.epoch = 2
    core.node("n1", **NODE)
    assert not core.scheduler.is_synced
    assert any(isinstance(item.message, SyncRequest) for item in core.answers)


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (AllocationAsk("k", "nobody", ONE), "failed to find application nobody"),
        (AllocationAsk("k", "app", {}), "allocation contains no resources"),
        (AllocationAsk("k", "app", {"vcore": -1}), "allocation contains negative resources"),
    ],
)
def test_a_bad_ask_is_rejected_with_the_reason(ask, reason):
    core = Core()
    core.node("n1", **NODE)
    core.application("app")
    (rejected,) = section(core.update(asks=(ask,)), "rejected_allocations")
    assert (rejected.allocation_key, rejected.reason) == ("k", reason)
    core.check()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (AddApplicationRequest("app", "root.default"), "but application already existed"),
        (
            AddApplicationRequest("b", "root.nowhere.x", partition_name="gpu"),
            "partition doesn't exist",
        ),
        (
            AddApplicationRequest("b", "root.default", ugi=UserGroupInformation("")),
            "empty user cannot resolve",
        ),
        (
            AddApplicationRequest("b", "root.default", ugi=UserGroupInformation("1!")),
            "invalid characters",
        ),
    ],
)
def test_a_bad_application_is_rejected_with_the_reason(request_, reason):
    core = Core()
    core.application("app")
    (rejected,) = section(core.update(new_applications=(request_,)), "rejected_applications")
    assert reason in rejected.reason
    assert core.partition.applications["app"].queue.path == "root.default"


def test_an_application_without_a_usable_queue_goes_to_root_default_where_there_is_one():
    core = Core()
    core.application("app", "")
    assert core.partition.applications["app"].queue.path == "root.default"
    other = Core(config_of("{name: a}"))
    (rejected,) = section(other.application("app", ""), "rejected_applications")
    assert "no placement rule matched" in rejected.reason


def test_bad_news_of_nodes_is_rejected_with_the_reason():
    core = Core()
    core.node("n1", **NODE)
    reasons = [
        section(core.node("n1", **NODE), "rejected_nodes")[0].reason,
        section(core.node("n2", vcore=-1), "rejected_nodes")[0].reason,
    ]
    assert "must be unique" in reasons[0]
    assert "negative" in reasons[1]


def test_news_of_a_node_that_is_there_is_never_answered_and_an_unknown_one_is_an_event():
    """yunikorn.md 4, NodeResponse: only CREATE and CREATE_DRAIN are answered."""
    core = Core()
    core.node("n1", **NODE)
    others = [action for action in NodeAction if not action.name.startswith("CREATE")]
    for action in others:
        for name in ("n9", "n1"):
            said = core.update(nodes=(NodeInfo(name, action, {"vcore": -(name == "n1")}),))
            assert section(said, "rejected_nodes") == section(said, "accepted_nodes") == []
    told = [
        event.message
        for item in core.answers
        if isinstance(item.message, StateDelta)
        for event in item.message.events
    ]
    assert told.count("failed to find node n9") == len(others)
    assert "node n1 has a negative capacity" in told


def test_a_release_of_something_unknown_changes_nothing():
    core = Core()
    core.application("app")
    for release in (
        AllocationRelease("app", "x", TerminationType.STOPPED_BY_RM),
        AllocationRelease("nobody", "x", TerminationType.TIMEOUT),
    ):
        assert core.update(releases=(release,)) == []


def test_what_the_resource_manager_stops_is_echoed():
    core = Core()
    core.node("n1", **NODE)
    core.application("app")
    core.asks("app", ["a"], ONE)
    release = AllocationRelease("app", "a", TerminationType.STOPPED_BY_RM)
    (echo,) = section(core.update(releases=(release,)), "released_allocations")
    assert echo.termination_type is TerminationType.STOPPED_BY_RM
    core.check()


def test_a_refused_configuration_changes_nothing_and_says_so():
    core = Core(config_of("{name: a, resources: {max: {vcore: 5}}}"))
    core.send(UpdateConfiguration("partitions: [{name: default, queues: [{name: root, nope: 1}]}]"))
    assert core.partition.queues["root.a"].max_resource == {"vcore": 5000}
    assert "nope" in core.partition.config_error


def test_a_queue_that_a_reload_drops_drains_and_goes_when_it_is_empty():
    core = Core(config_of("{name: a}", "{name: b}"))
    core.node("n1", **NODE)
    core.application("app", "root.a")
    core.asks("app", ["x"], ONE)
    core.send(UpdateConfiguration(config_of("{name: b}")))
    assert core.partition.queues["root.a"].status == "Draining"
    (rejected,) = section(core.application("late", "root.a"), "rejected_applications")
    assert "no placement rule matched" in rejected.reason
    core.fire_own("cleaner")
    assert "root.a" in core.partition.queues, "somebody is in it still"
    core.update(releases=(AllocationRelease("app", "x", TerminationType.STOPPED_BY_RM),))
    core.fire("app", "completing")
    core.fire_own("cleaner")
    assert "root.a" not in core.partition.queues
    core.check()


def test_priority_goes_before_submission_in_a_fifo_leaf():
    core = Core()
    for name in ("first", "second"):
        core.application(name)
    core.asks("first", ["low"], ONE, priority=0)
    core.asks("second", ["high"], ONE, priority=10)
    allocated = section(core.node("n1", vcore=1000, pods=5), "new_allocations")
    assert [a.allocation_key for a in allocated] == ["high"]


def test_a_timer_service_that_starts_gets_every_armed_timer():
    core = Core()
    core.node("n1", **NODE)
    core.gang("app", 2, ONE)
    core.answers.clear()
    core.send(TimerSyncRequest("t"), epoch=0)
    (orders,) = [item.message for item in core.answers if isinstance(item.message, TimerOrders)]
    assert orders.reset
    assert [timer.timer_id for timer in orders.armed] == ["placeholder/app"]


def test_after_a_failover_the_new_core_orders_every_timer_anew():
    """The timers hold those of the core that died: what it tells replaces them, whole."""
    core = Core()
    core.answers.clear()
    core.send(SyncBegin(""), epoch=2)
    core.epoch = 2
    app = AddApplicationRequest("app", "root.default", placeholder_ask={"vcore": 2000, "pods": 2})
    core.update(nodes=(NodeInfo("n1", NodeAction.CREATE, NODE),), new_applications=(app,))
    held = Allocation("a", "app", "n1", ONE, placeholder=True, task_group_name="tg")
    core.update(allocations=(held,))
    core.send(SyncEnd(1, 1, 0))
    told = [item for item in core.answers if isinstance(item.message, TimerOrders)]
    assert [(item.message.reset, item.epoch) for item in told] == [(True, 2)]
    assert [timer.timer_id for timer in told[0].message.armed] == ["placeholder/app"]


def test_a_replica_that_asks_gets_a_snapshot_to_itself():
    core = Core()
    core.node("n1", **NODE)
    core.answers.clear()
    core.send(SnapshotRequest("one"), epoch=0)
    (answer,) = [item for item in core.answers if isinstance(item.message, StateDelta)]
    assert answer.to.routing_key == "api.one"
    assert answer.message.reset
    assert [node.node_id for node in answer.message.nodes] == ["n1"]


def test_a_decision_costs_no_scan_of_those_who_wait():
    """Ten thousand waiting asks in a full queue are one bucket: an ask is refused once for all."""
    core = Core(config_of("{name: a, resources: {max: {vcore: 1}}}"))
    core.node("n1", **NODE)
    for at in range(100):
        core.application(f"app-{at}", "root.a")
        core.asks(f"app-{at}", [f"k-{at}-{n}" for n in range(20)], ONE)
    leaf = core.partition.queues["root.a"]
    assert len(leaf.buckets) == 1
    assert leaf.first_group() is None
    key = next(iter(core.partition.applications["app-0"].allocations))
    responses = core.update(
        releases=(AllocationRelease("app-0", key, TerminationType.STOPPED_BY_RM),)
    )
    assert len(section(responses, "new_allocations")) == 1
    core.check()


def test_an_ask_release_that_crosses_the_allocation_ends_it():
    """Found on RabbitMQ: a pod is deleted in the moment in which the core decides where it goes."""
    core = Core(config_of("{name: a}"))
    core.node("n1", **NODE)
    core.application("app", "root.a")
    core.asks("app", ["x", "y"], ONE)
    release = AllocationAskRelease("app", "x", TerminationType.STOPPED_BY_RM)
    responses = core.update(ask_releases=(release,))
    (gone,) = section(responses, "released_allocations")
    assert (gone.allocation_key, gone.termination_type) == ("x", TerminationType.STOPPED_BY_RM)
    assert list(core.partition.applications["app"].allocations) == ["y"]
    core.check()


def test_time_in_the_core_does_not_run_backwards():
    core = Core()
    known_ns = core.partition.now_ns
    core.now_ns = known_ns - 5
    core.send(Heartbeat("h"))
    assert core.partition.now_ns == known_ns
