"""A replica that has as many ended applications as it keeps holds no more, however many more end."""

import gc
from collections import Counter
from types import FrameType, FunctionType, ModuleType

import pytest

from shared.messages.envelope import API_TRACE, Envelope
from shared.messages.interface import (
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
)
from shared.messages.trace import TraceRecord, TraceRecords
from tests.builders import config_of
from tests.unit.api.following import System

KEPT = 8
MEMBERS = 3
ONE = {"vcore": 1}
SETTINGS = (("event.ringBufferCapacity", "50"),)
_OF_THE_PROCESS = (type, ModuleType, FunctionType, FrameType)


def held_by(root):
    """Return how many objects of each type can be reached, code and types aside."""
    seen, left = {id(root)}, [root]
    found = Counter()
    while left:
        item = left.pop()
        found[type(item).__name__] += 1
        for inner in gc.get_referents(item):
            if id(inner) not in seen and not isinstance(inner, _OF_THE_PROCESS):
                seen.add(id(inner))
                left.append(inner)
    return found


async def live_and_end(system, number):
    """Let a plain application and a gang run, be told, be looked at, and end."""
    plain, gang = f"plain-{number:04}", f"gang-{number:04}"
    system.application(plain, "root.a")
    system.asks(plain, [f"{plain}-{at}" for at in range(MEMBERS)], ONE)
    system.gang(gang, MEMBERS, ONE, queue="root.a")
    for name in (plain, gang):
        record = TraceRecord(
            f"step-{name}", "", name, "", "UpdateRequest", "shim", "core", 1, 1, 1, (name,), ("",),
            ("",), ("",), ((),),
        )  # fmt: skip
        told = TraceRecords((record,))
        system.machine.handle(
            Envelope(f"t-{name}", "TraceRecords", told, API_TRACE, "core"), system.now_ns
        )
    for path in ("/v1/applications", "/ws/v1/partition/default/applications/active"):
        assert (await system.get(path)).status_code == 200
    why = TerminationType.STOPPED_BY_RM
    for name in (plain, gang):
        held = system.partition.applications[name].allocations
        gone = tuple(AllocationRelease(name, key, why) for key in held)
        assert len(gone) == MEMBERS
        system.update(releases=gone)
        system.update(remove_applications=(RemoveApplicationRequest(name),))
    assert not system.partition.applications
    assert {plain, gang} <= {name for name, _ in system.model.ended}


@pytest.mark.parametrize("rounds", [40])
async def test_what_ends_beyond_what_is_kept_leaves_nothing_behind(monkeypatch, rounds):
    monkeypatch.setattr("services.api.projection.ended.MAX_ENDED", KEPT)
    monkeypatch.setattr("services.api.projection.stories.MAX_STORIES", KEPT)
    system = System(config_of("{name: a}"), settings=SETTINGS)
    system.has_clock = True
    system.node("n1", vcore=100)
    for number in range(2 * KEPT):
        await live_and_end(system, number)
    full = held_by(system.machine)
    for number in range(2 * KEPT, 2 * KEPT + rounds):
        await live_and_end(system, number)
    now = held_by(system.machine)
    assert len(system.model.ended) == KEPT
    grown = {name: count - full[name] for name, count in now.items() if count > full[name]}
    assert sum(grown.values()) < rounds, grown  # not even one object for each that came and went


def test_what_is_held_is_seen():
    plain = {"a": [object() for _ in range(10)]}
    assert held_by(plain)["object"] == 10
