"""A snapshot makes a replica ready with its last part; a part that is lost is noticed."""

import pytest

from services.api.projection import Projection
from services.api.projection.projection import ASK_AGAIN_NS
from shared.bus.fitting import numbered
from shared.messages.envelope import API_ALL, Envelope, Outgoing
from shared.messages.protocol import MAX_EPOCH, AtWork, Heartbeat
from shared.messages.sections import split
from shared.messages.state import NodeState, SnapshotRequest, StateDelta


def node(name):
    return NodeState(name, {}, {}, {}, {}, {}, schedulable=True)


NODES = tuple(node(f"n{at}") for at in range(6))


def parts(seq=0, *, reset=True, nodes=NODES):
    said = split(Outgoing(API_ALL, StateDelta(reset=reset, nodes=nodes), epoch=1, seq=seq), 2)
    return numbered(
        [
            Envelope(f"{seq}.{at}", "StateDelta", item.message, API_ALL, "core", epoch=1, seq=seq)
            for at, item in enumerate(said)
        ]
    )


def at_work(seq, epoch=1):
    return Envelope("w", "AtWork", AtWork("core-1"), API_ALL, "core", epoch=epoch, seq=seq)


class Replica:
    def __init__(self):
        self.projection = Projection("r")
        self.now = 10**18
        self.asked = 0
        self.hear(Envelope("h", "Heartbeat", Heartbeat("h"), API_ALL, "api"))

    def hear(self, *envelopes):
        for envelope in envelopes:
            is_number = isinstance(envelope.message, AtWork)
            take_in = self.projection.compare if is_number else self.projection.handle
            said = take_in(envelope, self.now)
            self.asked += sum(isinstance(item.message, SnapshotRequest) for item in said)

    @property
    def knows(self):
        return len(self.projection.model.nodes)


@pytest.fixture
def replica():
    return Replica()


def test_it_is_ready_with_the_last_part_and_not_before(replica):
    first, second, third = parts()
    for part in (first, second):
        replica.hear(part)
        assert not replica.projection.is_ready
    replica.hear(third)
    assert (replica.projection.is_ready, replica.knows, replica.asked) == (True, 6, 1)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_part_of_a_snapshot_that_is_lost_is_asked_for_and_the_rest_is_not_the_whole(
    replica, lost
):
    said = parts()
    del said[lost]
    replica.hear(*said)
    assert not replica.projection.is_ready
    replica.now += ASK_AGAIN_NS
    replica.hear(Envelope("h2", "Heartbeat", Heartbeat("h"), API_ALL, "api"))
    assert replica.asked == 2 + lost  # at once where the gap shows
    replica.hear(*parts())
    assert (replica.projection.is_ready, replica.knows) == (True, 6)


def test_a_last_part_that_is_lost_is_missed_at_the_next_change_or_in_time(replica):
    replica.hear(*parts()[:-1])
    assert replica.asked == 1
    replica.hear(*parts(1, reset=False, nodes=(node("late"),)))
    assert (replica.asked, replica.projection.is_ready) == (2, False)
    replica.hear(*parts(1))
    replica.hear(*parts(1)[:-1])
    replica.now += ASK_AGAIN_NS
    replica.hear(Envelope("h2", "Heartbeat", Heartbeat("h"), API_ALL, "api"))
    assert replica.asked == 3


def test_the_last_change_of_a_quiet_cluster_is_missed_at_the_next_heartbeat_of_its_core(replica):
    replica.hear(*parts(4), at_work(0), at_work(3), at_work(4))
    assert (replica.asked, replica.projection.is_ready) == (1, True)
    replica.hear(at_work(5), at_work(5))  # what came between is lost
    assert (replica.asked, replica.projection.is_ready) == (2, False)
    replica.hear(*parts(5)[:1], at_work(5))  # a snapshot that comes is as new
    assert (replica.asked, replica.projection.is_ready) == (2, False)
    replica.hear(*parts(5), at_work(5))
    assert (replica.asked, replica.projection.is_ready) == (2, True)


def test_a_core_that_went_on_in_another_epoch_is_missed_at_its_heartbeat(replica):
    replica.hear(
        *parts(4), at_work(9, epoch=0), at_work(0, epoch=2), at_work(1, epoch=MAX_EPOCH + 1)
    )
    assert (replica.asked, replica.projection.is_ready) == (1, True)
    replica.hear(at_work(1, epoch=2))
    assert (replica.asked, replica.projection.is_ready) == (2, False)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_part_of_a_change_that_is_lost_is_asked_for_at_once(replica, lost):
    replica.hear(*parts(nodes=()))
    said = parts(1, reset=False)
    del said[lost]
    replica.hear(*said, *parts(2, reset=False, nodes=()))
    assert (replica.asked, replica.projection.is_ready) == (2, False)


def test_what_comes_twice_changes_nothing(replica):
    said = parts()
    replica.hear(said[0], said[1], said[1], said[2], said[2], said[1])
    change = parts(1, reset=False, nodes=(node("n9"),))
    replica.hear(*change, *change)
    assert (replica.projection.is_ready, replica.knows, replica.asked) == (True, 7, 1)


def test_parts_of_parts_are_counted_through():
    whole = parts()
    torn = [whole[0], *[whole[1]] * 3, whole[2]]
    assert [item.message.part for item in numbered(torn)] == [0, 1, 2, 3, 4]
    assert [item.message.part for item in numbered([*whole, *whole])] == [0, 1, 2, 0, 1, 2]
