"""What goes and comes again under its name in one batch is there afterwards, for the API too."""

from shared.messages.interface import AddApplicationRequest as Add
from shared.messages.interface import (
    Allocation,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    UpdateRequest,
)
from shared.messages.protocol import PARTITION_TIMER, TimerFired, TimerFirings, TimerKind
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from tests.builders import Core, config_of, envelope
from tests.property.told import Listener

GONE = NodeInfo("n", NodeAction.DECOMISSION)
DYNAMIC = config_of("{name: a}").removesuffix("}]") + (
    ", placementrules: [{name: tag, value: namespace, create: true}]}]"
)


def back(vcore):
    return NodeInfo("n", NodeAction.CREATE, {"vcore": vcore})


def changes(listener, kind, name, detail=None):
    ring = listener.projection.model.events
    told = [e for e in ring.read(ring.lowest, 1_000) if (e.type, e.object_id) == (kind, name)]
    told = [e for e in told if e.change_detail is not ChangeDetail.NODE_ALLOC]
    return [e.change_type for e in told if detail in (None, e.change_detail)]


def test_a_node_that_goes_and_comes_again():
    core = Core(config_of("{name: a}"))
    listener = Listener(core)
    core.node("n", vcore=4)
    core.application("app", "root.a")
    core.asks("app", ["pod"], {"vcore": 1})
    core.update(
        allocations=(Allocation("f", "", "n", {"vcore": 1}, allocation_tags={"foreign": "x"}),)
    )
    listener.check()
    core.update(nodes=(GONE, back(8)))
    listener.check()
    node = listener.projection.model.nodes["n"]
    assert (node.state.capacity, node.allocations, node.foreign) == ({"vcore": 8}, {}, {})
    assert changes(listener, EventType.NODE, "n") == [
        ChangeType.ADD,
        ChangeType.REMOVE,
        ChangeType.ADD,
    ]


def test_a_node_that_comes_again_and_goes():
    core = Core(config_of("{name: a}"))
    listener = Listener(core)
    core.node("n", vcore=4)
    core.update(nodes=(GONE, back(8), GONE))
    listener.check()
    assert not listener.projection.model.nodes
    assert changes(listener, EventType.NODE, "n") == [ChangeType.ADD, ChangeType.REMOVE] * 2


def test_a_node_that_comes_and_goes_and_comes():
    core = Core(config_of("{name: a}"))
    listener = Listener(core)
    core.update(nodes=(back(8), GONE, back(2)))
    listener.check()
    assert listener.projection.model.nodes["n"].state.capacity == {"vcore": 2}
    told = [ChangeType.ADD, ChangeType.REMOVE, ChangeType.ADD]
    assert changes(listener, EventType.NODE, "n") == told


def test_a_node_that_comes_and_goes_is_told_of_once():
    core = Core(config_of("{name: a}"))
    listener = Listener(core)
    core.update(nodes=(back(8), GONE))
    listener.check()
    assert changes(listener, EventType.NODE, "n") == [ChangeType.ADD, ChangeType.REMOVE]


def in_one_batch(core, *messages):
    """Let the core hear messages before it says anything, as its host does when many come."""
    out = []
    for number, message in enumerate(messages):
        wrapped = envelope(message, f"batch-{number}", epoch=core.epoch)
        out += core.scheduler.handle(wrapped, core.now_ns)
    core.answers += out + core.scheduler.flush(core.now_ns)


def test_a_dynamic_queue_that_is_cleaned_up_and_made_anew():
    core = Core(DYNAMIC)
    listener = Listener(core)
    core.update(new_applications=(Add("one", tags={"namespace": "dyn"}),))
    path = core.partition.applications["one"].queue.path
    core.update(remove_applications=(RemoveApplicationRequest("one"),))
    listener.check()
    generation, due_ns = core.partition.timers["cleaner"]
    core.now_ns = due_ns
    fired = TimerFired("cleaner", TimerKind.CLEANER, PARTITION_TIMER, generation)
    again = UpdateRequest("rm", new_applications=(Add("two", tags={"namespace": "dyn"}),))
    was = core.partition.queues[path]
    in_one_batch(core, TimerFirings((fired,)), again)
    assert core.partition.queues[path] is not was
    listener.check()
    told = [ChangeType.ADD, ChangeType.REMOVE, ChangeType.ADD]
    assert changes(listener, EventType.QUEUE, path, ChangeDetail.QUEUE_DYNAMIC) == told


def test_of_two_submissions_in_one_batch_none_is_lost():
    core = Core(config_of("{name: a}"))
    listener = Listener(core)
    core.update(new_applications=(Add("app", "root.nowhere"), Add("app", "root.a")))
    listener.check()
    model = listener.projection.model
    assert model.applications["app"].summary.queue_name == "root.a"
    assert [view.summary.state for view in model.ended.values()] == ["Rejected"]
