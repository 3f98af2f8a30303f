"""Codec, sections, quantities, identities: what every room stands on."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus import codec
from shared.bus.errors import PoisonError
from shared.messages.commands import PodSpec, SubmitPods
from shared.messages.constraints import Constraints, Taint, Toleration
from shared.messages.envelope import CORE, SHIM_ADAPTER, TIMERS, Outgoing, reply_address
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateRequest,
)
from shared.messages.protocol import Heartbeat, SyncEnd, TimerOrders, TimerSet
from shared.messages.sections import (
    MAX_ITEMS_PER_MESSAGE,
    coalesced,
    contents_by_application,
    story_of,
)
from shared.messages.state import AllocationState, QueueState, StateDelta, TemplateState
from shared.model.ids import child_traceparent, is_traceparent
from shared.model.quantity import QuantityError, parse_config_quantity, parse_pod_quantity
from shared.model.states import (
    ApplicationEvent,
    ApplicationState,
    IllegalTransitionError,
    next_state,
)
from tests.table import each_row

names = st.text(min_size=1, max_size=12)
resources = st.dictionaries(names, st.integers(-(2**63), 2**63 - 1), max_size=3)
texts = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
asks = st.builds(
    AllocationAsk, names, names, resources, priority=st.integers(-(2**31), 2**31 - 1),
    task_group_name=st.text(max_size=4), placeholder=st.booleans(), allocation_tags=texts,
    constraints=st.builds(
        Constraints, st.lists(st.tuples(names, st.text(max_size=3)), max_size=2).map(tuple),
        st.lists(st.builds(Toleration, names), max_size=2).map(tuple),
    ),
)  # fmt: skip
nodes = st.builds(
    NodeInfo, names, st.sampled_from(NodeAction), resources, texts, texts,
    st.lists(st.builds(Taint, names), max_size=2).map(tuple),
)  # fmt: skip


@given(st.lists(asks, max_size=6), st.lists(nodes, max_size=4))
def test_what_is_encoded_is_decoded(asked, told):
    message = UpdateRequest("rm", nodes=tuple(told), asks=tuple(asked))
    assert codec.decode("UpdateRequest", codec.encode(message)) == message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"vcore": 1.5}, "valid integer"),
        ({"vcore": "1"}, "valid integer"),
        ({"vcore": True}, "valid integer"),
        ({"vcore": 2**63}, "less than or equal"),
    ],
)
def test_a_resource_that_is_no_integer_of_64_bits_is_poison(value, text):
    import msgpack

    columns = {"allocationKey": ["k"], "applicationID": ["a"], "resourcePerAlloc": [value]}
    body = msgpack.packb({"rmID": "r", "asks": {"n": 1, "cols": columns}})
    with pytest.raises(PoisonError) as caught:
        codec.decode("UpdateRequest", body)
    assert text in str(caught.value)
    assert "asks.resourcePerAlloc" in str(caught.value)


def too_deep():
    value = ("x",)
    for _ in range(5_000):
        value = (value,)
    return value


@each_row(
    ("field", "value", "text"),
    [
        ("resource_per_alloc", {"vcore": 2**63}, "9223372036854775808 does not fit"),
        ("resource_per_alloc", {"vcore": -(2**63) - 1}, "does not fit a signed 64-bit integer"),
        ("resource_per_alloc", {"vcore": 10**5000}, "a number does not fit"),
        ("create_time_ns", 2**63, "does not fit"),
        ("create_time_ns", 2**64, "does not fit"),
        ("create_time_ns", 10**30, "does not fit"),
        ("priority", -(2**70), "does not fit"),
        ("task_group_name", "\ud800", "surrogates not allowed"),
        ("allocation_tags", {"\udfff": "x"}, "surrogates not allowed"),
        ("allocation_tags", {"x": "a\ud800"}, "surrogates not allowed"),
        ("allocation_tags", {"x": object()}, "can not serialize"),
        ("constraints", Constraints(required_node="\ud800"), "surrogates not allowed"),
        ("constraints", Constraints(node_terms=too_deep()), "recursion"),
        ("task_group_name", {1, 2}, "dataclass"),
        ("allocation_key", "", "1 to 512 characters"),
        ("allocation_key", "k" * 513, "1 to 512 characters"),
    ],
)
@each_row("beside", [0, 2])
def test_whatever_cannot_be_written_is_poison_with_a_sentence_that_can(field, value, text, beside):
    bad = AllocationAsk(**{"allocation_key": "k", "application_id": "a", "resource_per_alloc": {}, field: value})  # fmt: skip
    message = UpdateRequest("rm", asks=(*(ask(f"b{n}") for n in range(beside)), bad))
    with pytest.raises(PoisonError, match=text) as caught:
        codec.encode(message)
    assert str(caught.value).startswith("UpdateRequest")
    assert len(str(caught.value).encode()) < 1000


def test_what_is_no_message_is_poison_too():
    with pytest.raises(PoisonError, match="cannot be written"):
        codec.encode(object())
    with pytest.raises(PoisonError, match="does not fit"):
        codec.encode(SyncEnd(2**63, 0, 0))


@given(st.integers(-(2**65), 2**65), st.integers(-(2**65), 2**65))
def test_what_is_sent_can_be_read_and_what_is_not_is_poison(number, amount):
    message = UpdateRequest("rm", asks=(AllocationAsk("k", "a", {"x": amount}, priority=number),))
    try:
        data = codec.encode(message)
    except PoisonError:
        assert not all(-(2**63) <= value < 2**63 for value in (number, amount))
    else:
        assert codec.decode("UpdateRequest", data) == message


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail_otherwise_than_with_poison(data):
    with suppress(PoisonError):
        codec.decode("UpdateRequest", data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["n", "cols", "c", "t", "i", "rmID", "asks", "allocationKey", "priority"]
                ),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_no_structure_makes_the_decoder_fail_otherwise_than_with_poison(value):
    import msgpack

    with suppress(PoisonError):
        codec.decode("UpdateRequest", msgpack.packb(value))


def request(**sections):
    return Outgoing(CORE, UpdateRequest("rm", **sections), epoch=1)


def ask(key):
    return AllocationAsk(key, "app", {"vcore": 1})


def test_a_burst_of_asks_becomes_one_message():
    (merged,) = coalesced([request(asks=(ask(f"k{n}"),)) for n in range(1000)])
    assert len(merged.message.asks) == 1000


def test_messages_merge_only_where_the_order_of_application_stays():
    release = AllocationRelease("app", "k0", TerminationType.TIMEOUT)
    out = coalesced(
        [request(asks=(ask("k0"),)), request(releases=(release,)), request(asks=(ask("k1"),))]
    )
    assert [(len(o.message.asks), len(o.message.releases)) for o in out] == [(1, 1), (1, 0)]


def test_messages_of_other_epochs_or_addresses_do_not_merge():
    a = request(asks=(ask("k0"),))
    b = Outgoing(CORE, a.message, epoch=2)
    c = Outgoing(TIMERS, TimerOrders())
    assert len(coalesced([a, c, b])) == 3


def test_a_large_message_is_split_in_order():
    many = tuple(ask(f"k{n}") for n in range(2 * MAX_ITEMS_PER_MESSAGE + 5))
    parts = coalesced([request(asks=many)])
    assert [len(part.message.asks) for part in parts] == [
        MAX_ITEMS_PER_MESSAGE,
        MAX_ITEMS_PER_MESSAGE,
        5,
    ]
    assert tuple(a for part in parts for a in part.message.asks) == many


def test_only_the_first_part_of_a_large_reset_starts_anew():
    timers = tuple(
        TimerSet(f"t{n}", "placeholder", "app", "1", n) for n in range(MAX_ITEMS_PER_MESSAGE + 1)
    )
    parts = coalesced([Outgoing(TIMERS, TimerOrders(reset=True, armed=timers))])
    assert [part.message.reset for part in parts] == [True, False]


def test_a_command_is_never_split_or_merged():
    pods = tuple(PodSpec(f"p{n}", "app", {"vcore": 1}) for n in range(MAX_ITEMS_PER_MESSAGE + 1))
    command = Outgoing(SHIM_ADAPTER, SubmitPods(pods))
    small = Outgoing(SHIM_ADAPTER, SubmitPods(pods[:1]))
    assert coalesced([command, small, small]) == [command, small, small]


def test_a_message_tells_whose_story_it_is():
    assert story_of(request(asks=(ask("a"), ask("b")))) == "app"
    other = AddApplicationRequest("other")
    assert story_of(request(asks=(ask("a"),), new_applications=(other,))) == ""
    assert contents_by_application(request(asks=(ask("a"), ask("b"))).message) == {"app": "2 asks"}
    assert story_of(Outgoing(CORE, Heartbeat("x"))) == ""


@each_row(
    ("name", "text", "value"),
    [
        ("memory", "0", 0), ("memory", " 25 k ", 25_000), ("memory", "3M", 3_000_000), ("memory", "4Gi", 4 * 1024**3),
        ("memory", str(2**63 - 1), 2**63 - 1), ("vcore", "1", 1000), ("vcore", "500m", 500), ("vcore", "2k", 2_000_000),
        ("vcore", "2Ki", 2_048_000),
    ],
)  # fmt: skip
def test_c01_c02_config_quantities(name, text, value):
    assert parse_config_quantity(name, text) == value


OVERFLOW = "invalid quantity: overflow"


@each_row(
    ("name", "text", "error"),
    [
        ("memory", "9223372036854775808", OVERFLOW), ("memory", "1000E", OVERFLOW), ("memory", "5X", "invalid quantity"),
        ("memory", "500m", "invalid suffix"), ("memory", "-1", "invalid quantity"), ("memory", "1K", "invalid suffix"),
        ("vcore", "9223372036854776", OVERFLOW), ("vcore", "1000P", OVERFLOW), ("vcore", "7E", OVERFLOW), ("vcore", "-1", "invalid quantity"),
        ("memory", "1.5", "invalid quantity"), ("memory", "", "invalid quantity"), ("memory", "1ki", "invalid suffix"),
        ("memory", "9" * 5_000, OVERFLOW),
    ],
)  # fmt: skip
def test_c01_c02_bad_config_quantities(name, text, error):
    with pytest.raises(QuantityError) as caught:
        parse_config_quantity(name, text)
    assert str(caught.value) == error


@each_row(
    ("name", "text", "value"),
    [
        ("cpu", "100m", 100), ("cpu", "0.5", 500), ("cpu", 2, 2000), ("cpu", "1e3", 1_000_000), ("memory", "1.5Gi", 1_610_612_736),
        ("memory", "100m", 1), ("memory", "1E", 10**18), ("memory", "2e2", 200), ("cpu", "100u", 1), ("memory", "-1Ki", -1024),
    ],
)  # fmt: skip
def test_kubernetes_quantities_trialup(name, text, value):
    assert parse_pod_quantity(name, text) == value


@each_row(
    "text",
    ["", "abc", "1 Gi", "1e999999", "9" * 100, "1.2.3", None, [], True, "0x10", "1eG", " 1", "1\n"],
)
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(QuantityError):
        parse_pod_quantity("memory", text)


def test_a_state_has_only_the_moves_of_the_table():
    assert next_state(ApplicationState.NEW, ApplicationEvent.RUN) is ApplicationState.ACCEPTED
    with pytest.raises(IllegalTransitionError, match="not possible"):
        next_state(ApplicationState.COMPLETED, ApplicationEvent.RUN)


def test_a_traceparent_keeps_its_trace_and_gets_a_span_of_its_own():
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    child = child_traceparent(parent, "id")
    assert is_traceparent(child)
    assert child.split("-")[1] == parent.split("-")[1]
    assert child.split("-")[2] != parent.split("-")[2]
    assert is_traceparent(child_traceparent("nonsense", "id"))


def test_an_answer_goes_to_whom_it_names():
    assert reply_address("api.one#7").routing_key == "api.one"
    assert reply_address("") is None


def test_a_record_that_may_be_missing_survives_the_wire():
    """Found by a scenario: a queue with a child template never reached the API."""
    template = TemplateState({"vcore": 2000}, None, 1, {"priority.offset": "4"})
    queues = tuple(
        QueueState(
            path=f"root.{at}", parent="root", is_leaf=False, is_managed=True, status="Active",
            max_resource=None, guaranteed_resource={"vcore": 1}, allocated={}, pending={},
            properties={}, max_running_apps=0, running_apps=0, allocating_accepted_apps=(),
            sort_policy="fifo", priority_sorting=True, current_priority=0, template=found,
        )
        for at, found in enumerate((template, None, template))
    )  # fmt: skip
    delta = StateDelta(queues=queues)
    assert codec.decode("StateDelta", codec.encode(delta)) == delta


def test_equal_texts_of_a_columns_maps_are_one_when_they_are_read():
    pods = tuple(
        AllocationState(f"k{at}", "", "n", tags={"name": f"pod {at}", "space": "a space"})
        for at in range(3)
    )
    delta = StateDelta(allocations=pods)
    read = codec.decode("StateDelta", codec.encode(delta))
    assert read == delta
    assert len({id(pod.tags["space"]) for pod in read.allocations}) == 1
    assert [pod.tags["name"] for pod in read.allocations] == ["pod 0", "pod 1", "pod 2"]
