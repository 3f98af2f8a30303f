"""The services as processes on RabbitMQ over an API server, as deployed; ``kill -9`` in mid-gang."""

import asyncio
import uuid

import pytest

from services.shim_adapter.backends.kubernetes.client import ApiClient
from tests.integration.kubernetes.test_backend import QUEUES, member, until_only
from tests.integration.processes import Deployment
from tests.kubernetes.double import Double
from tests.kubernetes.harness import Access, Kubectl, Kubelets
from tests.patience import until

pytestmark = pytest.mark.xdist_group("restarts")

MEMBERS = 30  # more than there are binds at one time: the gang comes about in waves


@pytest.mark.parametrize("victim", ["core", "shim_adapter", "active-shim"])
async def test_a_service_killed_in_mid_gang_leaves_every_pod_bound_once(
    victim, broker_url, tmp_path
):
    """With ``active-shim`` a standby takes the turn over; else the same service is started again."""
    double = Double(bookmark_seconds=0.2)
    await double.start()
    client = ApiClient(Access(double.url), "tests")
    kubectl = Kubectl(client)
    deployment = Deployment(
        broker_url,
        tmp_path,
        f"kube-{uuid.uuid4().hex[:8]}",
        MUSTER_RESOURCE_MANAGER="kubernetes",
        MUSTER_KUBERNETES_URL=double.url,
    )
    try:
        await kubectl.config(QUEUES)
        await kubectl.node("n1", cpu="64", memory="256Gi", pods="110")
        await asyncio.to_thread(deployment.start_all)
        async with Kubelets(kubectl) as kubelets:
            await _until_holder(kubectl)
            if victim == "active-shim":
                deployment.start("shim_adapter", "standby", MUSTER_INSTANCE="standby")
            double.fault(method="POST", path="/binding$", code=0, times=1_000, delay=0.3)
            for at in range(MEMBERS):
                await kubectl.pod(member(f"m{at}", "gang", members=MEMBERS))
            await _until(lambda: len(kubelets.nodes_of) >= 3, "some placeholders are bound")
            dead = "shim_adapter" if victim == "active-shim" else victim
            await asyncio.to_thread(deployment.kill, dead)
            assert not all(f"m{at}" in kubelets.ran for at in range(MEMBERS)), "it is mid-gang"
            if victim != "active-shim":
                deployment.start(victim)
            await _until(
                lambda: all(f"m{at}" in kubelets.ran for at in range(MEMBERS)),
                "the whole gang runs",
                deployment,
            )
            assert all(len(nodes) == 1 for nodes in kubelets.nodes_of.values())
            await until_only(kubectl, {f"m{at}" for at in range(MEMBERS)})
        if victim != "core":
            await _until_turn(kubectl, 2)
    finally:
        await asyncio.to_thread(deployment.stop)
        await client.close()
        await double.stop()


async def _lease(kubectl):
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/muster-shim-adapter"
    return await kubectl.get(path)


async def _until_turn(kubectl, turn):
    async def taken():
        return (await _lease(kubectl))["spec"]["leaseTransitions"] >= turn

    await until(taken, f"turn {turn}")


async def _until_holder(kubectl):
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

    async def taken():
        return (await kubectl.get(path))["items"]

    await until(taken, "somebody takes the turn")


async def _until(holds, what, deployment=None):
    try:
        await until(holds, what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{deployment.logs() if deployment else ''}") from error
