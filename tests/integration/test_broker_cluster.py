"""Three brokers of which the last one imports the topology: every queue is at each of them."""

import json

import pytest

from shared.bus import topology
from shared.bus.permissions import definitions
from shared.messages.routes import SERVICES
from tests.broker import BrokerCluster

PREFIX = "muster"


@pytest.mark.long
@pytest.mark.limit(600, "three brokers start one after the other")
def test_every_queue_and_the_stream_have_a_member_at_each_of_three_brokers():
    said = json.dumps(definitions(PREFIX, dict.fromkeys(SERVICES, "secret")))
    with BrokerCluster(said) as brokers:
        assert "1000" in brokers.nodes[0].control(
            "eval", "application:get_env(aten, poll_interval)."
        )
        assert "6" in brokers.nodes[0].control("eval", "net_kernel:get_net_ticktime().")
        rows = brokers.nodes[0].control("list_queues", "name", "members").splitlines()
        members = dict(row.split("\t") for row in rows if row.startswith(f"{PREFIX}."))
        assert set(members) == {item.name for item in topology.durable_queues(PREFIX)}
        for name, said in members.items():
            assert all(node.node in said for node in brokers.nodes), (name, said)
