"""The read model: order, gaps, epochs, snapshots, and what outlives them."""

from dataclasses import replace

from services.api.projection import Projection, ended
from services.api.projection.ended import RETENTION_NS, SWEEP_NS
from shared.messages.envelope import Envelope
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    NodeState,
    QueueState,
    SnapshotRequest,
    StateDelta,
    Waiting,
)
from tests.builders import CORE


def queue(path, parent="", **more):
    fields = {
        "path": path, "parent": parent, "is_leaf": True, "is_managed": True, "status": "Active", "max_resource": None,
        "guaranteed_resource": None, "allocated": {}, "pending": {}, "properties": {}, "max_running_apps": 0, "running_apps": 0,
        "allocating_accepted_apps": (), "sort_policy": "fifo", "priority_sorting": True, "current_priority": 0,
    }  # fmt: skip
    return QueueState(**(fields | more))


def app(name, submission="1", state="Running", **more):
    return ApplicationSummary(
        name, submission, "root.a", state, "u", (), 1, 0, 0, {}, {}, {}, {}, 0, "", "", **more
    )


def send(projection, message, epoch=1, seq=0):
    out = projection.handle(Envelope("m", "k", message, CORE, "core", epoch=epoch, seq=seq), 0)
    return [item.message for item in out]


def ready():
    projection = Projection("one")
    assert send(projection, StateDelta(), seq=4) == [SnapshotRequest("one")]
    node = NodeState("n1", {}, {"vcore": 9}, {}, {}, {"vcore": 9}, True)
    send(
        projection,
        StateDelta(
            reset=True,
            queues=(queue("root"), queue("root.a", "root")),
            nodes=(node,),
            applications=(app("x"),),
        ),
        seq=4,
    )
    return projection


def test_a_replica_asks_for_a_snapshot_once_and_then_follows():
    projection = ready()
    assert projection.is_ready
    assert send(projection, StateDelta(asks=(AskState("k", "x"),)), seq=5) == []
    assert list(projection.model.applications["x"].asks) == ["k"]


def test_a_gap_makes_it_ask_again_and_keep_the_last_good_model():
    projection = ready()
    assert send(projection, StateDelta(applications=(app("y"),)), seq=9) == [SnapshotRequest("one")]
    assert not projection.is_ready
    assert list(projection.model.applications) == ["x"]


def test_a_lower_epoch_is_refused_and_a_higher_one_needs_a_snapshot():
    projection = ready()
    send(projection, StateDelta(applications=(app("old"),)), epoch=0, seq=5)
    assert "old" not in projection.model.applications
    assert send(projection, StateDelta(applications=(app("new"),)), epoch=2, seq=1) == [
        SnapshotRequest("one")
    ]


def test_ended_applications_outlive_a_snapshot_and_the_latest_submission_is_found():
    projection = ready()
    send(projection, StateDelta(applications=(app("x", state="Completed"),)), seq=5)
    send(projection, StateDelta(applications=(app("x", "2", "Failed"),)), seq=6)
    send(projection, StateDelta(reset=True, queues=(queue("root"),)), epoch=2, seq=0)
    assert projection.model.applications == {}
    assert projection.model.application("x").summary.state == "Failed"


def test_an_end_that_is_told_twice_is_one_and_is_forgotten_once(monkeypatch):
    """A rejection is told, and again in the snapshot of a replica that asks at that moment."""
    monkeypatch.setattr(ended, "MAX_ENDED", 3)
    projection, seq = ready(), 5
    for number in range(20):
        for state in ("Running", "Completed", "Completed"):
            send(projection, StateDelta(applications=(app(f"a{number}", state=state),)), seq=seq)
            seq += 1
        assert len(projection.ended._expiring) == len(projection.model.ended) <= 3
    assert projection.model.ended_counts == {("root.a", "Completed"): 20}
    after = Envelope("m", "k", StateDelta(), CORE, "core", epoch=1, seq=seq)
    projection.handle(after, RETENTION_NS + 1)
    states = [view.summary.state for view in projection.model.ended.values()]
    assert states == ["Expired"] * 3
    projection.handle(after, RETENTION_NS + SWEEP_NS + 1)
    assert not projection.model.ended


def test_allocations_stand_at_their_application_and_at_their_node():
    projection = ready()
    allocation = AllocationState("k", "x", "n1", {"vcore": 1})
    send(projection, StateDelta(allocations=(allocation,)), seq=5)
    assert projection.model.nodes["n1"].allocations == {"k": allocation}
    send(projection, StateDelta(allocations=(replace(allocation, removed=True),)), seq=6)
    assert projection.model.nodes["n1"].allocations == {}
    assert projection.model.applications["x"].allocations == {}


def test_the_application_s_own_reason_comes_before_its_queue_s():
    projection = ready()
    waiting = Waiting("shape-1", "QUEUE_QUOTA", "m", 0)
    send(projection, StateDelta(queues=(queue("root.a", "root", waiting=(waiting,)),)), seq=5)
    ask = AskState("k", "x", shape="shape-1")
    view = projection.model.applications["x"]
    assert projection.model.why(view, ask).reason == "QUEUE_QUOTA"
    own = Waiting("real", "MAX_APPLICATIONS", "m", 0)
    send(projection, StateDelta(applications=(app("x", waiting=(own,)),)), seq=6)
    view = projection.model.applications["x"]
    assert projection.model.why(view, ask).reason == "MAX_APPLICATIONS"
    assert projection.model.why(view, AskState("k", "x", placeholder=True, shape="s")) is None


def test_headroom_is_the_tightest_on_the_path():
    projection = ready()
    queues = (
        queue("root", max_resource={"vcore": 10, "memory": 4}, allocated={"vcore": 5}),
        queue("root.a", "root", max_resource={"vcore": 20}, allocated={"vcore": 5}),
        queue("root.b", "root", removed=True),
    )
    send(projection, StateDelta(queues=queues), seq=5)
    assert projection.model.headroom("root.a") == {"vcore": 5, "memory": 4}


def test_an_allocation_that_comes_again_on_another_node_has_left_the_first():
    """Two decisions of one cycle are told as one: it could not be bound, and went elsewhere."""
    projection = ready()
    second = NodeState("n2", {}, {"vcore": 9}, {}, {}, {"vcore": 9}, True)
    held = AllocationState("k", "x", "n1")
    send(projection, StateDelta(nodes=(second,), allocations=(held,)), seq=5)
    send(projection, StateDelta(allocations=(replace(held, node_id="n2"),)), seq=6)
    model = projection.model
    assert {name: list(node.allocations) for name, node in model.nodes.items()} == {
        "n1": [],
        "n2": ["k"],
    }
