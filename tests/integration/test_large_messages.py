"""What is taken one by one can be told all at once: recovery by size, in memory and on RabbitMQ."""

import json
import uuid

import pytest

from services.api import machine
from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus
from shared.messages.commands import ManifestDocument, SubmitManifests
from shared.model.units import seconds
from shared.runtime.clock import SystemClock
from shared.runtime.host import HostOptions
from tests.patience import PATIENCE_SECONDS, until

NODE = {"vcore": 10**9, "memory": 2**50, "pods": 10**6}


ON_RABBITMQ = pytest.param("rabbitmq", marks=pytest.mark.xdist_group("broker"))
# What takes long runs on RabbitMQ alone: the bus of one process has the same limits, and no network.
on_rabbitmq = pytest.mark.parametrize("cluster", [ON_RABBITMQ], indirect=True)


@pytest.fixture(params=["memory", ON_RABBITMQ])
async def cluster(request, monkeypatch):
    monkeypatch.setattr(machine, "ANSWER_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    prefix = f"large-{uuid.uuid4().hex[:8]}"
    if request.param == "memory":
        broker = MemoryBroker()
        make_bus = lambda: MemoryBus(broker)  # noqa: E731
    else:
        url = request.getfixturevalue("broker_url")
        make_bus = lambda: RabbitBus(url, prefix=prefix)  # noqa: E731
    running = LocalCluster(
        make_bus,
        SystemClock(),
        ShimOptions(nodes=3, node_capacity=NODE, default_run_ns=0),
        HostOptions(heartbeat_ns=seconds(1)),
    )
    await running.start()
    await until(lambda: running.core.is_synced)
    yield running
    await running.stop()
    if request.param != "memory":
        sweeper = make_bus()
        await sweeper.delete_topology()
        await sweeper.close()


def affinity(size, salt):
    """Return node affinity of about so many bytes, all of it of this one pod."""
    values = [f"{salt}-{at}" for at in range(size // 14)]
    expression = {"key": "zone", "operator": "NotIn", "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def document(name, annotations=None, spec=None):
    metadata = {"name": name, "annotations": annotations or {}, "labels": {"applicationId": name}}
    requests = {"resources": {"requests": {"cpu": "1"}}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "yunikorn", "containers": [requests], **(spec or {})},
    }
    return json.dumps(body)


async def submit(cluster, bodies):
    documents = tuple(ManifestDocument("test", at, body) for at, body in enumerate(bodies, 1))
    answer = await cluster.ask(SubmitManifests(documents))
    return answer.accepted, answer.refused


async def restart_core(cluster):
    await cluster.crash("core")
    await cluster.start_service("core")
    await until(lambda: cluster.core.is_synced)


@on_rabbitmq
async def test_a_core_recovers_a_thousand_pods_with_14_kb_of_affinity_each(cluster):
    for at in range(0, 1200, 100):
        documents = [
            document(f"p{n}", spec={"affinity": affinity(14_000, f"{n}")})
            for n in range(at, at + 100)
        ]
        accepted, refused = await submit(cluster, documents)
        assert (len(accepted), refused) == (100, ())
    await restart_core(cluster)
    partition = cluster.core.partition
    assert len(partition.nodes.nodes) == 3
    assert len(partition.applications) == 1200
    await until(lambda: partition.root.allocated.get("vcore") == 1_200_000)


@pytest.mark.long
@on_rabbitmq
async def test_a_core_recovers_sixty_gangs_with_250_kb_of_groups_each(cluster):
    for at in range(60):
        groups = [
            {
                "name": f"g{n}",
                "minMember": 1,
                "minResource": {"cpu": "1"},
                "affinity": affinity(28_000, f"{at}-{n}"),
            }
            for n in range(10)
        ]
        annotations = {"yunikorn.apache.org/task-groups": json.dumps(groups)}
        assert len(annotations["yunikorn.apache.org/task-groups"]) > 220_000
        accepted, refused = await submit(cluster, [document(f"gang-{at}", annotations)])
        assert (len(accepted), refused) == (1, ())
    await until(lambda: sum(len(app.allocations) for app in apps(cluster)) == 660)
    await restart_core(cluster)
    assert len(cluster.core.partition.nodes.nodes) == 3
    assert sum(len(app.allocations) for app in apps(cluster)) == 660


def apps(cluster):
    return cluster.core.partition.applications.values()


async def test_one_pod_that_is_too_large_is_refused_and_names_what_makes_it_so(cluster):
    large = document("large", spec={"affinity": affinity(80_000, "x")})
    accepted, (refused,) = await submit(cluster, [document("small"), large])
    assert [item.name for item in accepted] == ["small"]
    assert "at most 32768; most of it are its affinity" in refused.message


async def test_a_group_that_is_too_large_leaves_its_pod_without_a_gang_and_says_so(cluster):
    group = {"name": "g", "minMember": 1, "minResource": {"cpu": "1"}}
    group["affinity"] = affinity(200_000, "x")
    annotations = {"yunikorn.apache.org/task-groups": json.dumps([group])}
    await submit(cluster, [document("gang", annotations)])
    await until(lambda: cluster.core.partition.root.allocated.get("vcore") == 1000)
    record = cluster.shim_machine.world.applications["gang"]
    assert "taskGroup 'g': its data for the scheduler takes" in record.message
