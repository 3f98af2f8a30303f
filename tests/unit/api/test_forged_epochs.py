"""A snapshot that the core never sent, of any epoch, does not leave a replica deaf."""

from dataclasses import replace

from services.api.projection.projection import ASK_AGAIN_NS, Projection
from shared.messages.envelope import API_ALL, Envelope, Outgoing
from shared.messages.protocol import MAX_EPOCH
from shared.messages.state import NodeState, SnapshotRequest, StateDelta
from tests.builders import Core, config_of
from tests.table import each_row

FORGED = StateDelta(reset=True, nodes=(NodeState("forged", {}, {}, {}, {}, {}, True),))


class Followed:
    """A core, and a replica that hears all that it says and whose questions it answers."""

    def __init__(self):
        self.core = Core(config_of("{name: a}"))
        self.replica = Projection("one")
        self.now_ns, self.asked, self.numbers = 1, 0, 0
        self.core.node("n1", vcore=1)
        self.hear()

    @property
    def nodes(self):
        return list(self.replica.model.nodes)

    def told(self, message, epoch, seq):
        """Tell the replica something; the core answers its questions at once."""
        for item in self.replica.handle(
            Envelope("m", "StateDelta", message, API_ALL, "core", epoch=epoch, seq=seq), self.now_ns
        ):
            assert isinstance(item, Outgoing)
            assert isinstance(item.message, SnapshotRequest)
            self.asked += 1
            self.core.send(item.message)
            self.hear()

    def hear(self):
        said, self.core.answers[:] = list(self.core.answers), []
        for item in said:
            if isinstance(item.message, StateDelta):
                self.told(item.message, item.epoch, item.seq)

    def adds_a_node(self):
        self.numbers += 1
        self.core.node(f"more-{self.numbers}", vcore=1)
        self.hear()


def followed():
    """Return one whose replica follows, and may ask again."""
    system = Followed()
    assert system.nodes == ["n1"]
    assert system.replica.is_ready
    system.now_ns += ASK_AGAIN_NS
    system.asked = 0
    return system


@each_row("more", [False, True])
@each_row(("epoch", "seq"), [(1, 2**40), (2, 0), (2**40, 7), (MAX_EPOCH, 2**62)])
def test_what_the_core_says_next_makes_a_replica_ask_and_follow_it_again(epoch, seq, more):
    system = followed()
    system.told(replace(FORGED, more=more), epoch, seq)
    assert system.nodes == ["forged"]
    system.now_ns += ASK_AGAIN_NS
    system.adds_a_node()
    assert system.nodes == ["n1", "more-1"]
    assert (system.replica.is_ready, system.replica.epoch) == (True, 1)
    asked = system.asked
    system.adds_a_node()
    assert system.nodes == ["n1", "more-1", "more-2"]
    assert system.asked == asked >= 1


def test_an_epoch_above_which_there_is_none_is_nobody_s():
    system = followed()
    for epoch in (MAX_EPOCH + 1, 2**63 - 1):
        system.told(FORGED, epoch, 0)
    assert (system.nodes, system.asked) == (["n1"], 0)


def test_a_core_that_wakes_up_late_costs_one_question_and_changes_nothing():
    system = followed()
    system.replica.epoch = system.core.epoch = system.core.scheduler._epoch = 5
    for _ in range(3):
        system.told(StateDelta(nodes=FORGED.nodes), 4, 9)
        assert system.nodes == ["n1"]
    assert system.asked == 1
