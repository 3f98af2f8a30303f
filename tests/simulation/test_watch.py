"""What the simulator's watch takes for wrong, and what it must not take for it."""

from services.core.service import make_machine
from services.shim_adapter.mirror.calls import BindPod, BindRefused
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec, SubmitApplication, TaskGroupSpec
from shared.messages.envelope import SHIM_ADAPTER, Address, Envelope
from shared.messages.interface import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    TerminationType,
    UpdateResponse,
)
from shared.messages.protocol import PartitionsRequest, SyncBegin, SyncEnd, SyncRequest
from tools.simulate.deployment import Deployment
from tools.simulate.faults import Fault
from tools.simulate.guards import without_guard
from tools.simulate.loop import VirtualLoop
from tools.simulate.order import Order
from tools.simulate.watch import WatchedCore, WatchedShim

ONE = {"vcore": 1000}
CORE = Address("core", "default")
QUEUES = "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]"


class Shim:
    """A shim adapter that is watched, with a gang of two whose first placeholder is going."""

    def __init__(self):
        loop = VirtualLoop()
        deployment = Deployment(0, loop, [])
        loop.close()
        self.reported = []
        order = deployment.broker.order
        self.watched = WatchedShim(
            deployment._shim_machine, deployment.disk, self.reported.append, order
        )
        self.sent = 0
        self.send(SyncRequest("core"))
        world = self.watched.inner.world
        self.watched.inner.cluster.confirm_delay_ns = 0
        group = TaskGroupSpec("tg", 2, ONE)
        self.send(SubmitApplication("app", "root.b", task_groups=(group,)))
        self.decide(
            accepted_nodes=tuple(map(AcceptedNode, world.nodes)),
            accepted_applications=(AcceptedApplication("app"),),
        )
        self.going, self.waiting = world.pods
        self.watched.inner.cluster.confirm_delay_ns = 1
        first = Allocation(self.going, "app", "n0", ONE, placeholder=True, task_group_name="tg")
        why = TerminationType.PREEMPTED_BY_SCHEDULER
        release = AllocationRelease("app", self.going, why)
        self.decide(new_allocations=(first,))
        self.decide(released_allocations=(release,))

    def send(self, message, epoch=None):
        self.sent += 1
        epoch = self.watched.inner.world.epoch if epoch is None and self.watched.inner else epoch
        name, kind = f"m{self.sent}", type(message).__name__
        self.watched.handle(Envelope(name, kind, message, SHIM_ADAPTER, "t", epoch=epoch or 0), 0)

    def decide(self, epoch=None, **sections):
        self.send(UpdateResponse(**sections), epoch)


def placed(shim):
    return Allocation(shim.waiting, "app", "n0", ONE, placeholder=True, task_group_name="tg")


def test_what_the_cluster_does_while_an_old_decision_is_read_is_not_taken_for_the_decision():
    shim = Shim()
    pods = dict(shim.watched.inner.world.pods)
    shim.watched.inner.cluster._loop._seconds += 1
    shim.decide(epoch=0, new_allocations=(placed(shim),))
    assert shim.watched.inner.world.pods.keys() - pods.keys()  # one in place of the one that went
    assert shim.reported == []


def test_an_old_decision_that_is_carried_out_is_seen():
    with without_guard("decisions-of-this-epoch"):
        shim = Shim()
        shim.decide(epoch=0, new_allocations=(placed(shim),))
    (sentence,) = shim.reported
    assert "a decision of epoch 0 was carried out in a later one" in sentence


def test_a_decision_of_this_epoch_is_carried_out_and_nothing_is_said_of_it():
    shim = Shim()
    shim.decide(new_allocations=(placed(shim),))
    assert shim.watched.inner.world.pods[shim.waiting].node == "n0"
    assert shim.reported == []


def test_only_of_a_bind_that_was_done_is_the_answer_lost():
    """Seed 254: a bind to a node that had gone was heard of as done, a second later."""
    loop = VirtualLoop()
    fault = Fault(0, "bind-unanswered", "shim_adapter", 0, 1, 0)
    cluster = Deployment(0, loop, [fault])._shim_machine().cluster
    loop.close()
    pod = PodRecord("uid", PodSpec("pod", "app", ONE), 0, 0)
    cluster.world.pods["uid"] = pod
    (refused,) = cluster.carry_out(BindPod("uid", "gone"), 0)
    assert isinstance(refused, BindRefused)
    assert cluster.advance(2) == []


def heard_by_a_core(*places):
    """Return what is reported of a core that reads what was published in such an order."""
    loop = VirtualLoop()
    order = Deployment(0, loop, []).broker.order
    loop.close()
    reported = []
    watched = WatchedCore(make_machine("core"), reported.append, order)
    begin = SyncBegin(QUEUES)
    sent = [
        Envelope(f"m{at}", type(message).__name__, message, CORE, "t", epoch=1)
        for at, message in enumerate((begin, SyncEnd(0, 0, 0), begin))
    ]
    order.publish(1, sent)
    for place in places:
        watched.handle(sent[place], 0)
    return reported


def test_a_recovery_published_twice_is_in_order_for_a_core_that_read_only_the_end_of_the_first():
    """Seed 803: the core before this one had read its beginning."""
    assert heard_by_a_core(1, 0) == []


def test_a_recovery_behind_a_later_one_is_seen():
    assert len(heard_by_a_core(2, 1)) == 1


def test_a_process_that_asks_for_partitions_is_in_no_order_with_its_hosts():
    """Seed 863: the inbox was full while it asked, and took what a host published meanwhile."""
    order = Order()
    messages = (UpdateResponse(), PartitionsRequest("core"), SyncRequest("core"))
    sent = [
        Envelope(f"m{at}", type(message).__name__, message, SHIM_ADAPTER, "t")
        for at, message in enumerate(messages)
    ]
    order.publish(1, sent)
    assert [list(order.places(envelope.message_id).values()) for envelope in sent] == [[1], [], [2]]


def test_what_a_successor_publishes_again_has_a_place_of_each():
    """Seed 1348: what the timers of before had sent arrived behind what those after sent again."""
    order = Order()
    asked = Envelope("m0", "SyncRequest", SyncRequest("core"), SHIM_ADAPTER, "t")
    again = Envelope("m1", "UpdateResponse", UpdateResponse(), SHIM_ADAPTER, "t")
    order.publish(1, (asked, again, again))
    order.publish(2, (again,))
    assert {sender[0]: place for sender, place in order.places("m1").items()} == {1: 2, 2: 1}
