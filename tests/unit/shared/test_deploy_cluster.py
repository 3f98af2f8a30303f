"""The overlay with three brokers, checked by parsing: no Docker engine is asked."""

from pathlib import Path

import yaml

from shared.bus.addresses import addresses_of
from shared.bus.permissions import user_of

DEPLOY = Path(__file__).parents[3] / "deploy"
BROKERS = ("rabbitmq", "rabbitmq-2", "rabbitmq-3")
SERVICES = ("core", "timers", "shim_adapter", "api")


class Loader(yaml.SafeLoader):
    """Reads compose's own tag, which says that a list replaces the one below."""


Loader.add_constructor("!override", lambda loader, node: loader.construct_sequence(node))
CLUSTER = yaml.load((DEPLOY / "compose.cluster.yaml").read_text(), Loader)
ALONE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def configuration(name):
    lines = (DEPLOY / name).read_text().splitlines()
    return dict(line.split(" = ") for line in lines if line and not line.startswith("#"))


def mounts(name):
    return {item.split(":")[1]: item for item in CLUSTER["services"][name]["volumes"]}


def test_there_are_three_brokers_each_with_a_name_and_data_of_its_own():
    assert set(CLUSTER["services"]) == {*BROKERS, *SERVICES}
    said = configuration("rabbitmq.compose.conf")
    assert said["cluster_formation.peer_discovery_backend"] == "classic_config"
    nodes = [value for key, value in said.items() if ".classic_config.nodes." in key]
    assert nodes == [f"rabbit@{name}" for name in BROKERS]
    volumes = {**ALONE["volumes"], **CLUSTER["volumes"]}
    for name in BROKERS:
        assert CLUSTER["services"][name]["hostname"] == name
        assert mounts(name)["/var/lib/rabbitmq"] == f"{name}:/var/lib/rabbitmq"
        assert name in volumes


def test_a_broker_may_no_more_than_the_one_alone_and_knows_the_others_by_a_cookie_that_was_made():
    alone = ALONE["services"]["rabbitmq"]
    for name in BROKERS:
        service = CLUSTER["services"][name]
        for key in ("image", "user", "read_only", "cap_drop", "security_opt", "tmpfs", "restart"):
            assert service[key] == alone[key], (name, key)
        assert "ports" not in service
        assert "/etc/rabbitmq/muster/erlang-cookie" in service["command"][2]
        assert service["healthcheck"]["test"] == alone["healthcheck"]["test"]
        assert mounts(name)["/etc/rabbitmq/muster"] == "secrets-rabbitmq:/etc/rabbitmq/muster:ro"


def test_each_has_the_topology_and_queues_wait_for_the_third_so_that_they_have_members_everywhere():
    """A queue that is made while there is one node has one member, which is away when it is."""
    said = configuration("rabbitmq.compose.conf")
    assert said["cluster_formation.target_cluster_size_hint"] == str(len(BROKERS))
    assert all("/etc/rabbitmq/conf.d/20-muster.conf" in mounts(name) for name in BROKERS)
    assert all("/etc/rabbitmq/advanced.config" in mounts(name) for name in BROKERS)
    for name in BROKERS:
        for item in CLUSTER["services"][name]["volumes"]:
            source = item.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).is_file()


def test_what_a_list_below_has_already_is_replaced_and_not_said_twice():
    """Compose puts lists of two files one behind the other, and refuses a capability said twice."""
    text = (DEPLOY / "compose.cluster.yaml").read_text()
    for key in ("tmpfs", "security_opt", "cap_drop"):
        assert f"  {key}: !override [" in text


def test_each_service_knows_all_three_and_waits_for_them():
    for name in SERVICES:
        service = CLUSTER["services"][name]
        url = service["environment"]["MUSTER_BUS_URL"]
        user = user_of("muster", name)
        assert addresses_of(url) == tuple(f"amqp://{user}@{one}:5672/" for one in BROKERS)
        for broker in BROKERS:
            assert service["depends_on"][broker] == {"condition": "service_healthy"}


def test_a_node_that_stands_still_is_given_up_soon_and_becomes_one_with_the_others_again():
    said = configuration("rabbitmq.cluster.conf")
    assert said == {
        "cluster_partition_handling": "autoheal",
        "queue_leader_locator": "balanced",
        "net_ticktime": "6",
    }
