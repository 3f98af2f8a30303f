"""A gang of any size that is taken is made in turns, so that nothing waits long behind it."""

import pytest

from services.shim_adapter.mirror.gangs import MAX_MADE_AT_ONCE
from services.shim_adapter.service import ShimOptions, ShimService
from services.shim_adapter.translation.bounds import MAX_GANG_MEMBERS
from shared.messages.commands import CommandResult, DeleteApplication, SubmitApplication
from shared.messages.commands import TaskGroupSpec as Group
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.interface import AcceptedApplication, UpdateResponse
from shared.messages.protocol import Heartbeat, SyncRequest, Tick

MEMBERS = 2 * MAX_MADE_AT_ONCE + 10


class Shim:
    """A shim adapter without nodes, and what it says; ``asks`` of each turn."""

    def __init__(self, state_dir=None):
        self.service = ShimService(ShimOptions(state_dir=state_dir))
        self.start()

    def start(self):
        self.machine = self.service.make_machine()
        self.count = 0
        self.send(Heartbeat("h"))

    def send(self, message):
        self.count += 1
        epoch, kind = self.machine.world.epoch, type(message).__name__
        envelope = Envelope(
            f"{kind}{epoch}.{self.count}", kind, message, SHIM_ADAPTER, "t",
            epoch=epoch, reply_to="api.x#1",
        )  # fmt: skip
        said = [item.message for item in self.machine.handle(envelope, 1)]
        self.machine.flush(1)
        return said

    def submit(self, members):
        gang = Group("g", members, {"vcore": 100})
        return self.send(SubmitApplication("big", "root.default", task_groups=(gang,)))

    def accept(self):
        accepted = AcceptedApplication("big", self.machine.world.applications["big"].submission)
        return asks(self.send(UpdateResponse(accepted_applications=(accepted,))))

    def turns(self):
        """Go on while there is something to do; return how many asks each turn said."""
        counts = []
        while self.machine.next_due_ns() is not None:
            assert len(counts) < 100
            counts.append(asks(self.send(Tick())))
        return counts


def asks(said):
    return sum(len(getattr(message, "asks", ())) for message in said)


def test_a_gang_is_made_in_turns_of_a_bounded_size_and_whole_in_the_end():
    shim = Shim()
    shim.submit(MEMBERS)
    assert shim.accept() == MAX_MADE_AT_ONCE
    assert shim.turns() == [MAX_MADE_AT_ONCE, 10]
    assert len(shim.machine.world.pods) == MEMBERS


@pytest.mark.parametrize("members", [MAX_GANG_MEMBERS + 1, 300_000])
def test_a_gang_that_is_too_large_is_answered_so(members):
    shim = Shim()
    (answer,) = [said for said in shim.submit(members) if isinstance(said, CommandResult)]
    assert not answer.done
    assert f"at most {MAX_GANG_MEMBERS}" in answer.message
    assert shim.turns() == []


def test_one_that_is_deleted_meanwhile_is_made_no_further():
    shim = Shim()
    shim.submit(MEMBERS)
    shim.accept()
    shim.send(DeleteApplication("big"))
    assert sum(shim.turns()) == 0
    assert not shim.machine.world.pods


def test_one_that_starts_over_goes_on_where_it_was(tmp_path):
    shim = Shim(tmp_path)
    shim.submit(MEMBERS)
    shim.accept()
    shim.start()
    shim.send(SyncRequest("c"))
    assert shim.turns() == [MAX_MADE_AT_ONCE, 10]
    assert len(shim.machine.world.pods) == MEMBERS


def test_one_that_starts_over_makes_what_never_came_to_the_resource_manager(tmp_path, monkeypatch):
    """Seed 38: the creates were on their way when who had sent them died."""
    shim = Shim(tmp_path)
    shim.submit(3)
    with monkeypatch.context() as lost:
        lost.setattr(type(shim.machine.cluster), "carry_out", lambda *_: [])
        assert shim.accept() == 0
    shim.start()
    shim.send(SyncRequest("c"))
    assert sum(shim.turns()) == 3
    assert len(shim.machine.world.pods) == 3
