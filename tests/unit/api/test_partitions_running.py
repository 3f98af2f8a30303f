"""Two partitions of a whole system in one process: the shim tells, the cores decide, HTTP answers."""

import httpx
import pytest

from services.api.replica import Replica
from services.api.routes.app import make_app
from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.commands import ChangeNodes, NodeSpec
from shared.model.names import NODE_PARTITION
from shared.runtime.clock import SystemClock
from tests import patience
from tests.unit.api.test_routes import GANG, until

TWO = """
partitions:
  - name: default
    queues: [{name: root, submitacl: '*', queues: [{name: a}]}]
  - name: gpu
    queues: [{name: root, submitacl: '*', queues: [{name: a, resources: {max: {vcore: 4}}}]}]
"""
THERE = (
    GANG.replace("name: gang", "name: there")
    .replace("applicationId: gang", "applicationId: there")
    .replace("annotations:", "annotations:\n        muster.io/partition: gpu")
)
CAPACITY = {"vcore": 4000, "memory": 2**30, "pods": 9}
GPU = "/ws/v1/partition/gpu"


@pytest.fixture
async def two():
    broker = MemoryBroker()
    options = ShimOptions(config=TWO, nodes=1, node_capacity=CAPACITY, default_run_ns=0)
    cluster = LocalCluster(lambda: MemoryBus(broker), SystemClock(), options)
    await cluster.start()
    app = make_app(Replica(lambda: cluster.running["api"].host, lambda: cluster.api))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:

        async def both_are_ready():
            names = [item["name"] for item in (await client.get("/ws/v1/partitions")).json()]
            is_ready = (await client.get("/health/ready")).status_code == 200
            return is_ready and names == ["default", "gpu"]

        await patience.until(both_are_ready, "the snapshots of both partitions")
        nodes = [NodeSpec(f"gpu-{n}", "add", CAPACITY, {NODE_PARTITION: "gpu"}) for n in range(2)]
        await cluster.ask(ChangeNodes(tuple(nodes)))
        await until(client, f"{GPU}/nodes", lambda found: len(found) == 2)
        for manifest in (GANG, THERE):
            assert (await client.post("/v1/manifests", content=manifest)).status_code == 200
        for name, partition in (("gang", "default"), ("there", "gpu")):
            path = f"/ws/v1/partition/{partition}/application/{name}"
            await until(client, path, lambda app: app.get("applicationState") == "Running")
        client.cluster = cluster
        yield client
    await cluster.stop()


async def test_each_application_is_answered_in_its_partition_and_found_without_it(two):
    (here,) = (await two.get("/ws/v1/partition/default/applications/active")).json()
    (there,) = (await two.get(f"{GPU}/applications/active")).json()
    assert (here["applicationID"], here["partition"]) == ("gang", "default")
    assert (there["applicationID"], there["partition"]) == ("there", "gpu")
    assert {item["nodeId"] for item in there["allocations"]} <= {"gpu-0", "gpu-1"}
    assert (await two.get("/v1/why/there")).json()["partition"] == "gpu"
    rows = (await two.get("/v1/applications")).json()
    assert {(row["applicationID"], row.get("partition")) for row in rows} == {
        ("gang", None),
        ("there", "gpu"),
    }


async def test_a_trace_goes_through_its_partitions_core_alone(two):
    whole = await until(
        two, "/v1/trace/there", lambda steps: any(step["to"] == "core" for step in steps)
    )
    assert any(step["from"] == "core" for step in whole)
    none = (await two.get("/v1/trace/there?partition=default")).json()
    assert not [step for step in none if "core" in (step["from"], step["to"])]
    own = (await two.get("/v1/trace/there?partition=gpu")).json()
    assert any(step["to"] == "core" for step in own)


async def test_what_ifs_are_answered_by_the_core_that_they_are_about(two):
    drained = (await two.post("/v1/what-if", json={"drain": "gpu-0"})).json()
    assert drained["done"], drained
    more = THERE.replace("there", "more")
    asked = (await two.post("/v1/what-if", json={"manifest": more})).json()
    assert asked["done"], asked
    named = [item["applicationID"] for kind in ("starts", "waits") for item in asked[kind]]
    assert "more" in named
    nodes = {p["nodeID"] for item in asked["starts"] for p in item["places"]}
    assert nodes <= {"gpu-0", "gpu-1"}
    elsewhere = await two.post("/v1/what-if?partition=default", json={"drain": "gpu-0"})
    assert elsewhere.json()["done"] is False


async def test_a_node_is_drained_and_an_application_deleted_wherever_it_is(two):
    assert (await two.post("/v1/nodes/gpu-1/drain")).status_code == 200
    await until(two, f"{GPU}/node/gpu-1", lambda node: node["schedulable"] is False)
    assert (await two.delete("/v1/applications/there")).json()["deleted"] == "there"
    # that ends half a minute later (docs/rules/applications.md#states)
    path = f"{GPU}/application/there"
    gone = await until(two, path, lambda app: app["applicationState"] == "Completing")
    assert "allocations" not in gone
    (here,) = (await two.get("/ws/v1/partition/default/applications/active")).json()
    assert (here["applicationState"], len(here["allocations"])) == ("Running", 3)


async def test_a_partition_that_is_dropped_and_one_that_comes_are_followed(two):
    without = TWO[: TWO.index("  - name: gpu")]
    assert (await two.post("/v1/config", content=without)).status_code == 200
    await until(two, "/ws/v1/partitions", lambda found: [p["name"] for p in found] == ["default"])
    assert (await two.get(f"{GPU}/nodes")).status_code == 404
    anew = TWO.replace("name: gpu", "name: tpu")
    assert (await two.post("/v1/config", content=anew)).status_code == 200
    await until(
        two, "/ws/v1/partitions", lambda found: [p["name"] for p in found] == ["default", "tpu"]
    )
