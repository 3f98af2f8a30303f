"""What is generated of the bus: a broker's definitions, the description of every message."""

from pathlib import Path

import yaml

from shared.bus import topology
from shared.bus.asyncapi import asyncapi_document
from shared.bus.permissions import definitions
from shared.messages.routes import SERVICES

ROOT = Path(__file__).parent.parent.parent.parent


def test_exchanges_and_queues_of_the_definitions_outlast_a_restart_and_take_what_is_published():
    found = definitions("m", dict.fromkeys(SERVICES, "secret"), "/jobs")
    assert [(one["name"], one["type"]) for one in found["exchanges"]] == [
        ("m", "topic"), ("m.dead", "direct"),
    ]  # fmt: skip
    for one in found["exchanges"]:
        assert (one["durable"], one["auto_delete"], one["internal"]) == (True, False, False)
        assert one["vhost"] == "/jobs"
    assert [one["name"] for one in found["queues"]] == [
        item.name for item in topology.durable_queues("m")
    ]
    for one in found["queues"]:
        assert (one["durable"], one["auto_delete"]) == (True, False)


def test_the_description_of_messages_is_that_of_their_fields():
    document = asyncapi_document()
    orders = document["components"]["messages"]["TimerOrders"]["payload"]["properties"]
    assert orders["armed"]["type"] == "array"
    assert orders["armed"]["items"]["properties"]["dueNs"] == {"type": "integer"}
    assert orders["reset"] == {"type": "boolean"}
    written = (ROOT / "docs/asyncapi.yaml").read_text(encoding="utf-8")
    assert yaml.load(written, yaml.CSafeLoader) == document
