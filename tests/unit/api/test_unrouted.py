"""What no route takes is answered as YuniKorn's router does (docs/rules/rest.md#every-answer)."""

import httpx
import pytest

from services.api.replica import Replica
from tests.apps import app_of
from tests.builders import config_of
from tests.unit.api.following import System, _no_host

NODES = "/ws/v1/partition/default/nodes"


async def sent(method, path, **more):
    system = System(config_of("{name: a}"))
    system.node("node-1", vcore=1)
    with app_of(Replica(_no_host, lambda: system.machine)) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
            return await client.request(method, path, **more)


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/ws/v1/clusters/", "/ws/v1/clusters"),
        ("/ws/v1/Clusters", "/ws/v1/clusters"),
        ("/WS/V1/CLUSTERS/", "/ws/v1/clusters"),
        ("/ws//v1/../v1/clusters", "/ws/v1/clusters"),
        ("/ws/v1/Partition/DEFAULT/Nodes", "/ws/v1/partition/DEFAULT/nodes"),
        (f"{NODES}/?a=b&c", f"{NODES}?a=b&c"),
        ("/ws/v1/partition/default/Queue/root.a%20b", "/ws/v1/partition/default/queue/root.a%20b"),
        ("/Debug/FullStateDump", "/debug/fullstatedump"),
    ],
)
async def test_another_case_or_a_slash_too_many_is_moved_permanently(path, location):
    response = await sent("GET", path)
    assert (response.status_code, response.headers["location"]) == (301, location)
    shown = location.replace("&", "&amp;")
    assert response.text == f'<a href="{shown}">Moved Permanently</a>.\n\n'
    assert response.headers["content-type"] == "text/html; charset=utf-8"


async def test_what_has_a_body_is_moved_with_it():
    response = await sent("POST", "/ws/v1/validate-conf/", content="partitions: []")
    assert (response.status_code, response.headers["location"]) == (308, "/ws/v1/validate-conf")


@pytest.mark.parametrize("path", ["/ws/v1/clusters", NODES, "/ws/v1/events/batch"])
async def test_options_says_what_is_allowed(path):
    response = await sent("OPTIONS", path)
    assert (response.status_code, response.text) == (200, "")
    assert response.headers["allow"] == "GET, OPTIONS"
    assert response.headers["access-control-allow-methods"] == "GET, OPTIONS"
    assert response.headers["access-control-allow-origin"] == "*"


async def test_what_is_posted_allows_its_own_methods():
    response = await sent("OPTIONS", "/ws/v1/validate-conf")
    assert response.headers["allow"] == "OPTIONS, POST"
    judged = await sent("POST", "/ws/v1/validate-conf", content="a: 1")
    assert judged.headers["access-control-allow-methods"] == "OPTIONS, POST"
    read = await sent("GET", NODES)
    assert read.headers["access-control-allow-methods"] == "GET, OPTIONS"


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "HEAD"])
async def test_another_method_is_405_and_says_which_are_allowed(method):
    response = await sent(method, NODES)
    assert (response.status_code, response.headers["allow"]) == (405, "GET, OPTIONS")


@pytest.mark.parametrize(
    "path", ["/ws/v1/nothing", "/page", "/ws/v1/partition//nodes/x/y", "/WS/v2"]
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
async def test_what_nobody_takes_is_not_found_in_plain_text(method, path):
    response = await sent(method, path)
    assert (response.status_code, response.text) == (404, "404 page not found\n")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_partition_is_found_in_any_case_and_called_by_its_name():
    response = await sent("GET", "/ws/v1/partition/DEFAULT/queues")
    assert (response.status_code, response.json()["partition"]) == (200, "default")


async def test_the_keys_of_a_map_are_in_order_and_the_fields_of_a_record_are_not():
    system = System(config_of("{name: a}"))
    system.node("node-1", vcore=1000, memory=7, pods=3, **{"ephemeral-storage": 1})
    response = await system.get(NODES)
    (node,) = response.json()
    assert list(node["capacity"]) == ["ephemeral-storage", "memory", "pods", "vcore"]
    assert next(iter(node)) == "nodeID"
    (partition,) = (await system.get("/ws/v1/partitions")).json()
    assert list(partition["capacity"]["capacity"]) == sorted(partition["capacity"]["capacity"])
    text = (await system.get("/ws/v1/partitions")).text
    assert '"resourceWeights":{"memory":1,"vcore":1}' in text  # as Go writes a whole float64


async def test_a_cluster_says_what_was_built():
    system = System(config_of("{name: a}"))
    (cluster,) = (await system.get("/ws/v1/clusters")).json()
    (built,) = cluster["rmBuildInformation"]
    assert list(built) == [
        "arch", "buildDate", "buildVersion", "coreSHA", "goVersion", "isPluginVersion", "rmId",
        "shimSHA", "siSHA",
    ]  # fmt: skip
    assert all(isinstance(value, str) for value in built.values())
    assert (cluster["partition"], cluster["clusterName"]) == ("default", "kubernetes")
    assert isinstance(cluster["startTime"], int)


async def test_nobody_is_told_that_a_page_elsewhere_may_change_things():
    for path in ("/v1/manifests", "/v1/config", "/v1/applications/a"):
        response = await sent("OPTIONS", path)
        assert response.status_code == 200
        told = response.headers["access-control-allow-methods"]
        assert not {"POST", "DELETE"} & set(told.split(", "))
        assert {"POST", "DELETE"} & set(response.headers["allow"].split(", "))
