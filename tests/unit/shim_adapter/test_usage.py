"""Usage over time, as a core reports it: kept, and brought along in the next recovery."""

from services.shim_adapter.mirror.kept import MAX_USAGE
from services.shim_adapter.mirror.world import World
from shared.messages.interface import UpdateRequest, UpdateResponse, UsageRecord
from shared.messages.protocol import SyncRequest
from tests.unit.shim_adapter.test_border import Shim


def report(shim: Shim, *records: UsageRecord, epoch: int | None = None) -> None:
    shim.send(UpdateResponse(usage=records), shim.machine.world.epoch if epoch is None else epoch)


def kept(shim: Shim) -> list[UsageRecord]:
    said = shim.send(SyncRequest("core"), shim.machine.world.epoch)
    return [each for one in said if isinstance(one, UpdateRequest) for each in one.usage]


def used(queue: str, at_ns: int, amount: str = "5", user: str = "") -> UsageRecord:
    return UsageRecord(queue, user, at_ns, {"vcore": amount})


def test_what_was_reported_last_comes_with_the_next_recovery_also_after_a_restart(tmp_path):
    shim = Shim(tmp_path)
    kept(shim)
    report(shim, used("", 1), used("root.a", 1), used("root.a", 1, user="ann"))
    huge = used("root.a", 2, "9" * 40)
    report(shim, huge)
    report(shim, used("root.a", 1))  # it comes again: what is newer holds
    report(shim, used("root.b", 3), epoch=0)  # of a core whose epoch is over
    expected = [used("", 1), used("root.a", 1, user="ann"), huge]
    assert kept(shim) == expected
    shim.service.close()
    again = Shim(tmp_path)
    assert kept(again) == expected


def test_no_more_is_kept_than_there_is_room_for_and_the_oldest_goes():
    world = World()
    for at in range(MAX_USAGE + 2):
        world.usage.record("default", used(f"root.q{at}", 1))
    assert len(world.usage.of("default")) == MAX_USAGE
    assert world.usage.of("default")[0] == used("root.q2", 1)
    assert world.usage.of("other") == ()
