"""Columns are as good as the items they hold, on the wire and off it; what is corrupt is poison."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import get_type_hints

import msgpack
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared.bus import codec
from shared.bus.errors import PoisonError
from shared.messages.columns import Columns, Same, Table, columns_of, joined, values_of
from shared.messages.constraints import NO_CONSTRAINTS, Constraints, PodTerm, Requirement
from shared.messages.envelope import CORE, Outgoing
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.sections import coalesced, contents_by_application, split, story_of
from shared.messages.state import AllocationState, AskState, LogEntry, QueueState, StateDelta
from shared.model.gpus import Devices
from tests.soak import examples

INT64 = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]) | st.integers(-9, 9)
TEXT = st.sampled_from(["", "a", "b", "größer"])
NAME = st.sampled_from(["k1", "k2", "k3", "ü"])
AMOUNTS = st.sampled_from([{}, {"vcore": 1}, {"vcore": 1, "ü": -1}, {"vcore": 2**63 - 1}])
TAGS = st.sampled_from([{}, {"a": "b"}, {"a": "c", "": ""}])
TERMS = st.tuples(st.builds(Requirement, TEXT, TEXT, st.tuples(TEXT)))
CONSTRAINTS = st.just(NO_CONSTRAINTS) | st.builds(
    Constraints,
    required_node=TEXT,
    pod_affinity=st.lists(st.builds(PodTerm, TEXT, TERMS), max_size=2).map(tuple),
)
LOG = st.lists(st.builds(LogEntry, TEXT, INT64, INT64), max_size=2).map(tuple)
OF_TYPE = {
    str: TEXT,
    int: INT64,
    bool: st.booleans(),
    Mapping[str, int]: AMOUNTS,
    Mapping[str, str]: TAGS,
    Constraints: CONSTRAINTS,
    tuple[str, ...]: st.lists(TEXT, max_size=2).map(tuple),
    tuple[LogEntry, ...]: LOG,
    Devices: st.lists(st.tuples(INT64, INT64), max_size=2).map(tuple),
    TerminationType: st.sampled_from(TerminationType),
}


def items(cls):
    values = {name: OF_TYPE[hint] for name, hint in get_type_hints(cls).items()}
    values["allocation_key"] = NAME
    return st.lists(st.builds(cls, **values), min_size=1, max_size=4).map(tuple)


KEPT = [
    (AllocationAsk, lambda kept: UpdateRequest("rm", asks=kept)),
    (Allocation, lambda kept: UpdateRequest("rm", allocations=kept)),
    (Allocation, lambda kept: UpdateResponse(new_allocations=kept)),
    (AllocationRelease, lambda kept: UpdateResponse(released_allocations=kept)),
    (AskState, lambda kept: StateDelta(asks=kept)),
    (AllocationState, lambda kept: StateDelta(allocations=kept)),
]
each = pytest.mark.parametrize(("cls", "message"), KEPT)
some_of_each = settings(max_examples=examples(20))


def kept_as(cls, made, draw):
    """Return columns of items, each column as a list, a table, or (where it can) one value."""
    columns = {}
    for name, values in columns_of(cls, made).items():
        if all(value == values[0] for value in values) and draw(st.booleans()):
            columns[name] = Same(values[0])
        elif draw(st.booleans()):
            columns[name] = Table(list(values), list(range(len(values))))
        else:
            columns[name] = list(values)
    return Columns(cls, len(made), columns)


@each
@some_of_each
@given(data=st.data())
def test_columns_travel_as_the_items_they_hold(cls, message, data):
    made = data.draw(items(cls))
    kept = kept_as(cls, made, data.draw)
    kind = type(message(made)).__name__
    for said in (message(made), message(kept)):
        read = codec.decode(kind, codec.encode(said))
        assert read == message(made) == said
        again = codec.decode(kind, codec.encode(read))
        assert again == said


@each
@some_of_each
@given(data=st.data())
def test_columns_are_as_good_as_a_tuple(cls, message, data):
    made, more = data.draw(items(cls)), data.draw(items(cls))
    kept = kept_as(cls, made, data.draw)
    start, stop = data.draw(st.tuples(st.integers(-5, 5), st.integers(-5, 5)))
    assert [kept[at] for at in range(len(made))] == list(made)
    assert kept[start:stop] == made[start:stop]
    assert (made == kept, kept == made, kept == (*made, made[0])) == (True, True, False)
    assert (list(kept), len(kept), bool(kept), kept[-1]) == (list(made), len(made), True, made[-1])
    assert joined([kept, more, (), kept_as(cls, more, data.draw)]) == (*made, *more, *more)
    for item in fields(cls):
        assert list(values_of(kept, item.name)) == list(values_of(made, item.name))
    one, other = message(made), message(kept)
    assert contents_by_application(other) == contents_by_application(one)
    assert story_of(Outgoing(CORE, other)) == story_of(Outgoing(CORE, one))
    parts = split(Outgoing(CORE, other), most=2)
    assert parts == split(Outgoing(CORE, one), most=2)
    assert coalesced([Outgoing(CORE, one), Outgoing(CORE, other)]) == coalesced(
        [Outgoing(CORE, message(made + made))]
    )


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXT | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def places_in(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    for key, inner in children:
        yield from places_in(inner, (*path, key))


@each
@some_of_each
@given(data=st.data())
def test_corrupted_columns_are_poison_or_whole(cls, message, data):
    said = message(data.draw(items(cls)))
    kind = type(said).__name__
    body = msgpack.unpackb(codec.encode(said))
    *path, last = data.draw(st.sampled_from([path for path in places_in(body) if path]))
    inner = body
    for key in path:
        inner = inner[key]
    match data.draw(st.sampled_from(["put", "drop", "double"])):
        case "put":
            inner[last] = data.draw(JUNK)
        case "drop":
            del inner[last]
        case "double" if isinstance(inner, list):
            inner.append(inner[last])
        case _:
            inner[f"{last}{last}"] = inner[last]
    try:
        read = codec.decode(kind, msgpack.packb(body))
    except PoisonError:
        return
    assert codec.decode(kind, codec.encode(read)) == read


@given(data=st.data())
def test_what_is_seen_to_hold_is_what_pydantic_would_return(data):
    cls = data.draw(st.sampled_from([AllocationAsk, Allocation, AskState, QueueState]))
    hints = get_type_hints(cls)
    name = data.draw(st.sampled_from(sorted(hints)))
    holds = codec._seen_to_hold(name, hints[name])
    assume(holds is not None)
    likely = JUNK | TEXT | NAME | INT64 | st.booleans() | AMOUNTS | TAGS | st.lists(TEXT)
    alike = [st.lists(each, max_size=3) for each in (TEXT, AMOUNTS, AMOUNTS | st.none(), st.lists(TEXT))]  # fmt: skip
    values = data.draw(st.lists(likely, max_size=3) | st.one_of(alike))
    judge = codec.TypeAdapter(list[codec._strict(name, hints[name])])
    if holds(values):
        read = codec._reader_of(name, hints[name])("here", values)
        assert judge.validate_python(values) == read


def section(**columns):
    key = {"allocationKey": ["a", "b"], "applicationID": {"c": "app"}}
    return {"n": 2, "cols": {**key, "resourcePerAlloc": {"c": {}}, **columns}}


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        (section(priority=[1]), "1 values, expected 2"),
        (section(priority=[1, 2, 3]), "3 values, expected 2"),
        (section(priority={"t": [1, 2], "i": [0]}), "1 values, expected 2"),
        (section(priority={"t": [1, 2, 3], "i": [0, 1]}), "a table of 3 for 2 values"),
        (section(priority={"t": [1, 2], "i": [0, 2]}), "outside its table"),
        (section(priority={"t": [1, 2], "i": [0, -1]}), "outside its table"),
        (section(priority={"t": [1, 2], "i": [False, True]}), "outside its table"),
        (section(priority={"t": [1], "i": {"0": 0}}), "lists 't' and 'i'"),
        (section(priority={"c": 1, "t": []}), "not a column"),
        (section(priority={"c": 2**63}), "less than or equal"),
        (section(allocationKey=["a", ""]), "at least 1"),
        ({"n": 2, "cols": {"allocationKey": ["a", "b"]}}, "'applicationID' is missing"),
        ({"n": 100_001, "cols": {}}, "'n' must be 0 to 100000"),
        ({"n": True, "cols": {}}, "'n' must be"),
    ],
)
def test_counts_are_judged_before_meaning(asks, text):
    with pytest.raises(PoisonError, match=text):
        codec.decode("UpdateRequest", msgpack.packb({"rmID": "rm", "asks": asks}))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"allocation_key": ["a"], "application_id": Same("x")}, "expected 2"),
        ({"allocation_key": ["a", "b"]}, "'application_id' is missing"),
        ({"allocation_key": ["a", "b"], "nodes": Same("x")}, "no field 'nodes'"),
    ],
)
def test_columns_that_do_not_fit_together_are_not_made(columns, text):
    with pytest.raises(ValueError, match=text):
        Columns(AllocationAsk, 2, columns)


def test_no_item_is_made_until_somebody_asks():
    keys = [f"k{at}" for at in range(100_000)]
    kept = Columns(
        Allocation,
        len(keys),
        {
            "allocation_key": keys,
            "application_id": Same("app"),
            "node_id": Table(["n1", "n2"], [at % 2 for at in range(len(keys))]),
            "resource_per_alloc": Same({"vcore": 1}),
        },
    )
    read = codec.decode("UpdateResponse", codec.encode(UpdateResponse(new_allocations=kept)))
    found = read.new_allocations
    assert list(found.rows("allocation_key", "node_id"))[-1] == ("k99999", "n2")
    assert contents_by_application(read) == {"app": "100000 new allocations"}
    assert found[-1] == Allocation("k99999", "app", "n2", {"vcore": 1})
    assert found._items is None


def test_what_an_older_sender_says_is_read_as_before():
    """Every column, defaults too, as senders wrote them that knew no other way."""
    ask = AllocationAsk("k", "app", {"vcore": 1})
    body = msgpack.unpackb(codec.encode(UpdateRequest("rm", asks=(ask, replace(ask, allocation_key="l")))))  # fmt: skip
    cols = body["asks"]["cols"]
    assert set(cols) == {"allocationKey", "applicationID", "resourcePerAlloc"}
    cols |= {
        "partitionName": {"c": "default"},
        "priority": {"c": 0},
        "placeholder": {"c": False},
        "allocationTags": {"t": [{}], "i": [0, 0]},
        "constraints": {"c": codec.record_to_plain(NO_CONSTRAINTS)},
        "allowPreemptSelf": {"c": True},
    }
    read = codec.decode("UpdateRequest", msgpack.packb(body))
    assert read.asks == (ask, replace(ask, allocation_key="l"))
