"""Which service says what to whom stands in one table, and what is said is what stands there."""

from services.cli.launcher import LocalCluster
from shared.bus.amqp_message import routing_key
from shared.messages.envelope import CORE, Address
from shared.messages.registry import KINDS
from shared.messages.routes import ANY_REPLICA, SENDERS, SERVICES, may_send
from tests.unit.api.test_routes import GANG, until
from tests.unit.api.test_routes import system as running  # noqa: F401 - the fixture

INSIDE = {"Tick"}  # is never on a bus


def test_every_kind_goes_somewhere_and_every_kind_that_goes_is_one():
    told = {kind for kinds in SENDERS.values() for kind in kinds}
    assert told == set(KINDS)
    senders = {name for kinds in SENDERS.values() for names in kinds.values() for name in names}
    assert senders == set(SERVICES)


def test_only_the_shim_adapter_begins_a_recovery_and_only_the_api_commands():
    def who(kind):
        return {name for kinds in SENDERS.values() for name in kinds.get(kind, ())}

    assert who("SyncBegin") == who("SyncEnd") == who("UpdateRequest") == {"shim_adapter"}
    for kind in ("SubmitManifests", "DeleteManifests", "DeleteApplication", "ChangeNodes"):
        assert who(kind) == {"api"}
    assert who("UpdateResponse") == who("StateDelta") == who("TimerOrders") == {"core"}


def test_a_replica_is_any_and_an_inbox_that_is_none_takes_nothing():
    assert may_send("core", "api.somebody", "StateDelta")
    assert not may_send("shim_adapter", "api.somebody", "StateDelta")
    assert not may_send("core", "api.all", "Forecast")
    assert may_send("core", "core.gpu", "Heartbeat")
    assert not may_send("core", "timers.gpu", "Heartbeat")
    assert not may_send("core", "shim_adapter.other", "SyncRequest")
    assert not may_send("core", "nosuch.default", "Heartbeat")
    assert routing_key(CORE, "SyncBegin") == "core.default.SyncBegin"
    assert ANY_REPLICA.startswith("api.")


async def test_what_is_said_in_a_cluster_stands_in_the_table(running, monkeypatch):  # noqa: F811
    """Services that start, people who submit, drain, reload, ask and delete; each starts anew."""
    cluster: LocalCluster = running.cluster
    said = set()
    enqueue = cluster.running["api"].bus.__class__.publish

    async def publish(self, envelopes):
        said.update((item.source, item.to, item.kind) for item in envelopes)
        await enqueue(self, envelopes)

    monkeypatch.setattr(cluster.running["api"].bus.__class__, "publish", publish)
    for service in ("core", "timers", "shim_adapter"):
        await cluster.crash(service)
        await cluster.start_service(service)
    yaml = {"Content-Type": "application/yaml"}
    await running.post("/v1/manifests", content=GANG, headers=yaml)
    await until(running, "/v1/applications/gang", lambda app: app.get("state") == "Running")
    node = (await running.get("/ws/v1/partition/default/nodes")).json()[0]["nodeID"]
    await running.post(f"/v1/nodes/{node}/drain")
    await running.post("/v1/what-if", json={"manifest": GANG.replace("gang", "other")})
    await running.post("/v1/what-if", json={"drain": node})
    await running.post("/v1/config", content="partitions: [", headers=yaml)
    await running.post("/v1/manifests/delete", content=GANG, headers=yaml)
    await running.delete("/v1/applications/gang")
    wrong = [
        (source, to.routing_key, kind)
        for source, to, kind in said
        if not may_send(source, to.routing_key, kind)
    ]
    assert wrong == []
    kinds = {kind for _, _, kind in said}
    assert len(kinds - INSIDE) > 15
    assert any(to == Address("api", "all") for _, to, _ in said)
