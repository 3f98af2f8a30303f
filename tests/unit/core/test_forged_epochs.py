"""A recovery that nobody began, of any epoch, does not leave the core deaf."""

import pytest

from services.core.scheduler.scheduler import ASK_AGAIN_NS
from services.shim_adapter.mirror.world import World
from shared.messages.interface import NodeAction, NodeInfo, UpdateRequest
from shared.messages.protocol import MAX_EPOCH, Heartbeat, SyncBegin, SyncEnd, SyncRequest
from tests.builders import Core
from tests.table import each_row


def asked(answers):
    """Return the epochs of the questions for a recovery among answers."""
    return [item.epoch for item in answers if isinstance(item.message, SyncRequest)]


def recovered(core, epoch):
    """Have the resource manager answer a question of an epoch, as it does, from ``epoch``."""
    world = World()
    world.epoch = epoch
    world.next_epoch(core.scheduler._epoch)
    core.epoch = world.epoch
    core.send(SyncBegin(""))
    core.update(nodes=(NodeInfo("n1", NodeAction.CREATE, schedulable_resource={"vcore": 1000}),))
    core.send(SyncEnd(1, 0, 0))
    return core.scheduler.is_synced and list(core.partition.nodes.nodes) == ["n1"]


def said(core, message, epoch):
    before = len(core.answers)
    core.send(message, epoch=epoch)
    return core.answers[before:]


@pytest.mark.parametrize("epoch", [2, 2**40, MAX_EPOCH])
def test_a_recovery_that_does_not_go_on_is_asked_for_anew(epoch):
    core = Core()
    assert asked(said(core, SyncBegin(""), epoch)) == []
    core.now_ns += ASK_AGAIN_NS + 1
    assert asked(said(core, Heartbeat("h"), 0)) == [epoch]
    assert recovered(core, 1)


@each_row("epoch", [2, 2**40, MAX_EPOCH])
@each_row("is_ended", [False, True])
def test_news_of_whom_it_followed_before_makes_it_ask_at_once_and_once(epoch, is_ended):
    core = Core()
    said(core, SyncBegin(""), epoch)
    if is_ended:
        said(core, SyncEnd(0, 0, 0), epoch)
    for expected in ([epoch], []):
        assert asked(said(core, UpdateRequest("mycluster"), 1)) == expected
    assert recovered(core, 1)


def test_a_resource_manager_that_begins_anew_below_is_asked_to_go_above():
    core = Core(epoch=7)
    assert asked(said(core, SyncBegin(""), 1)) == [7]
    assert recovered(core, 1)


@pytest.mark.parametrize("epoch", [MAX_EPOCH + 1, 2**63 - 1])
def test_an_epoch_above_which_there_is_none_is_nobody_s(epoch):
    core = Core()
    for message in (SyncBegin(""), UpdateRequest("x"), SyncEnd(0, 0, 0)):
        assert asked(said(core, message, epoch)) == []
    assert core.scheduler.is_synced
    assert core.scheduler.figures()["epoch"] == {"default": 1}


def test_a_recovery_that_goes_on_is_waited_for():
    core = Core()
    said(core, SyncBegin(""), 2)
    for _ in range(5):
        core.now_ns += ASK_AGAIN_NS - 1
        assert asked(said(core, UpdateRequest("mycluster"), 2)) == []


def test_the_resource_manager_goes_no_higher_than_anybody_may_believe():
    world = World()
    world.next_epoch(2**63 - 1)
    assert world.epoch == 1


def test_an_update_of_no_epoch_is_nobody_s():
    core = Core(epoch=3)
    core.epoch = 0
    core.update(nodes=(NodeInfo("n1", NodeAction.CREATE, schedulable_resource={"vcore": 1000}),))
    assert core.scheduler.is_synced
    assert not core.partition.nodes.nodes
