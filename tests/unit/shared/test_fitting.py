"""Messages that cannot be sent as they are: in parts by size, without the items that cannot be."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus import codec, fitting
from shared.bus.errors import PoisonError, TooLargeError
from shared.messages.commands import SubmitPods
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import AllocationAsk, NodeAction, NodeInfo, UpdateRequest
from shared.messages.protocol import TimerOrders, TimerSet

LARGE = 300_000


def envelope(message):
    return Envelope("id", type(message).__name__, message, CORE, "test", epoch=3, seq=4)


def ask(key, size=10, **more):
    return AllocationAsk(key, "app", {"vcore": 1}, allocation_tags={key: "x" * size}, **more)


def test_what_fits_is_left_as_it_is():
    whole = envelope(UpdateRequest("rm", asks=(ask("a"), ask("b"))))
    assert fitting.fitting(whole) == ([whole], [])


def test_a_message_is_split_by_its_encoded_size_in_the_order_of_its_items():
    nodes = tuple(
        NodeInfo(f"n{n}", NodeAction.CREATE, labels={"a": f"{n}" * LARGE}) for n in range(10, 40)
    )
    asks = tuple(ask(f"k{n}", LARGE) for n in range(60))
    whole = envelope(UpdateRequest("rm", nodes=nodes, asks=asks))
    with pytest.raises(TooLargeError):
        codec.encode(whole.message)
    parts, aside = fitting.fitting(whole)
    assert aside == []
    assert all(len(codec.encode(part.message)) <= codec.MAX_MESSAGE_BYTES for part in parts)
    assert len(parts) <= 6
    assert tuple(item for part in parts for item in part.message.nodes) == nodes
    assert tuple(item for part in parts for item in part.message.asks) == asks
    assert len({part.message_id for part in parts} | {"id"}) == len(parts) + 1
    assert {(part.epoch, part.seq, part.kind) for part in parts} == {(3, 4, "UpdateRequest")}
    assert fitting.fitting(whole)[0] == parts


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_only_the_items_that_cannot_be_written_are_set_aside(are_bad):
    asks = tuple(
        ask(f"k{n}", create_time_ns=2**64 if is_bad else n) for n, is_bad in enumerate(are_bad)
    )
    parts, aside = fitting.fitting(envelope(UpdateRequest("rm", asks=asks)))
    assert [item for part in parts for item in part.message.asks] == [
        item for item, is_bad in zip(asks, are_bad, strict=True) if not is_bad
    ]
    assert [item.item for item in aside] == [
        item for item, is_bad in zip(asks, are_bad, strict=True) if is_bad
    ]


def test_an_item_that_is_too_large_by_itself_is_set_aside():
    asks = (ask("a"), ask("b", codec.MAX_MESSAGE_BYTES), ask("c"))
    parts, (aside,) = fitting.fitting(envelope(UpdateRequest("rm", asks=asks)))
    assert [item.allocation_key for part in parts for item in part.message.asks] == ["a", "c"]
    assert aside.item.allocation_key == "b"
    assert "bytes, at most" in aside.reason


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_message_that_starts_anew_does_so_whichever_of_its_items_is_set_aside(bad):
    timers = [TimerSet(f"t{n}", "placeholder", "app", "1", n) for n in range(3)]
    timers[bad] = replace(timers[bad], due_ns=2**63)
    parts, aside = fitting.fitting(envelope(TimerOrders(reset=True, armed=tuple(timers))))
    assert [part.message.reset for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [item.timer_id for part in parts for item in part.message.armed] == [
        f"t{n}" for n in range(3) if n != bad
    ]
    assert len(aside) == 1


def test_what_cannot_be_taken_apart_is_set_aside_whole():
    own = envelope(UpdateRequest("\ud800", asks=(ask("a"), ask("b"))))
    parts, (whole,) = fitting.fitting(own)
    assert (parts, whole.item) == ([], None)
    command = envelope(SubmitPods(("no pod",)))
    with pytest.raises(PoisonError):
        codec.encode(command.message)
    parts, (whole,) = fitting.fitting(command)
    assert (parts, whole.item) == ([], None)
