"""What the previous version sends, this one reads; what a later one adds, this one leaves out."""

import base64
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

import aio_pika
import msgpack
import pytest
from aio_pika.message import IncomingMessage
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from shared.bus import codec
from shared.bus.amqp_message import envelope_in, message_of
from shared.bus.errors import PoisonError
from shared.messages.envelope import CORE, SCHEMA_VERSION, Address, Envelope
from shared.messages.interface import AllocationAsk, UpdateRequest
from shared.messages.protocol import Heartbeat
from shared.messages.registry import KINDS
from tests.table import each_row

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "tests" / "wire" / "previous.json"
EXAMPLES = json.loads(KEPT.read_text())["examples"]


def received(routing_key, header, body):
    """Return a message as the library hands it to a reader."""
    delivery = Basic.Deliver("reader", 1, False, "muster", routing_key)
    return IncomingMessage(DeliveredMessage(delivery, header, body, channel=None))


def is_the_same(value, kept):
    """Return whether a value says what was kept; a field that it has beyond is its default."""
    if dataclasses.is_dataclass(value):
        names = {item.name for item in dataclasses.fields(value)}
        return kept.keys() <= names and all(
            is_the_same(getattr(value, item.name), kept[item.name])
            if item.name in kept
            else getattr(value, item.name) == default_of(item)
            for item in dataclasses.fields(value)
        )
    if isinstance(value, Mapping):
        return value.keys() == kept.keys() and all(is_the_same(value[k], kept[k]) for k in kept)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return len(value) == len(kept) and all(map(is_the_same, value, kept))
    return (value.value if isinstance(value, Enum) else value) == kept


def default_of(item):
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


@each_row("example", EXAMPLES)
def test_a_message_of_the_previous_version_is_read_to_the_same_value(example):
    header = ContentHeader()
    header.unmarshal(base64.b64decode(example["header"]))
    message = received(example["routing_key"], header, base64.b64decode(example["body"]))
    envelope = envelope_in(message, Address(*example["inbox"].split(".", 1)))
    said = {name: getattr(envelope, name) for name in example["envelope"]}
    assert said == example["envelope"]
    assert is_the_same(envelope.message, example["message"])


def fields_of(body):
    """Return the fields of a message as it travels, and the columns of its sections."""
    return {
        (name, column)
        for name, value in msgpack.unpackb(body).items()
        for column in (value["cols"] if isinstance(value, dict) and "cols" in value else [""])
    }


@each_row("example", EXAMPLES[::2])
def test_what_the_previous_version_could_say_is_said_without_what_came_later(example):
    kind, body = example["envelope"]["kind"], base64.b64decode(example["body"])
    assert fields_of(codec.encode(codec.decode(kind, body))) <= fields_of(body)


def test_each_kind_of_the_previous_version_is_kept_whole_and_with_what_it_must_have_alone():
    kinds = [item["envelope"]["kind"] for item in EXAMPLES]
    assert len(kinds) >= 56
    assert all(kinds.count(kind) == 2 for kind in kinds)


def test_the_examples_of_the_next_release_can_be_made_of_every_kind():
    script = ROOT / "scripts" / "wire_examples.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        (sys.executable, script), env=environment, input=b"{}", capture_output=True, check=True
    )
    kinds = [item["envelope"]["kind"] for item in json.loads(made.stdout)]
    assert sorted(kinds) == sorted([*KINDS, *KINDS])


def test_a_field_that_was_kept_otherwise_is_seen():
    kept = {"allocation_key": "a", "application_id": "x", "resource_per_alloc": {"vcore": 1}}
    ask = AllocationAsk(**kept)
    assert is_the_same(ask, kept)
    assert not is_the_same(ask, kept | {"priority": 1})
    assert not is_the_same(ask, kept | {"went": 0})
    assert not is_the_same(dataclasses.replace(ask, priority=1), kept)
    assert not is_the_same(dataclasses.replace(ask, resource_per_alloc={"vcore": 2}), kept)


def sent(schema_version=SCHEMA_VERSION, body=b""):
    beat = Envelope("1", "Heartbeat", Heartbeat("core-1"), CORE, "core")
    message = message_of(dataclasses.replace(beat, schema_version=schema_version))
    header = ContentHeader(properties=message.properties)
    return received("core.default.Heartbeat", header, body or message.body)


def test_a_message_of_a_newer_schema_is_poison_with_both_versions():
    newer = SCHEMA_VERSION + 1
    with pytest.raises(PoisonError, match=f"schema version {newer} is newer than {SCHEMA_VERSION}"):
        envelope_in(sent(newer), CORE)


def test_what_a_later_version_has_added_is_left_out():
    body = msgpack.packb({"instance": "core-1", "zone": {"name": "a"}})
    assert envelope_in(sent(body=body), CORE).message == Heartbeat("core-1")
    columns = {
        "allocationKey": ["a", "b"],
        "applicationID": {"c": "x"},
        "resourcePerAlloc": {"c": {"vcore": 1}},
        "constraints": {"c": {"requiredNode": "n", "zone": "a"}},
        "zone": ["a", "b"],
    }
    later = {"rmID": "rm", "asks": {"n": 2, "cols": columns}, "zones": {"n": 1, "cols": {}}}
    request = codec.decode("UpdateRequest", msgpack.packb(later))
    assert isinstance(request, UpdateRequest)
    assert [ask.allocation_key for ask in request.asks] == ["a", "b"]
    assert request.asks[1].constraints.required_node == "n"


def test_the_library_hands_out_what_was_sent():
    message = sent()
    assert isinstance(message, aio_pika.abc.AbstractIncomingMessage)
    assert (message.type, message.headers["schema_version"]) == ("Heartbeat", SCHEMA_VERSION)
