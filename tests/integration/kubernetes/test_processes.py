"""The services as processes on RabbitMQ over an API server, as deployed; ``kill -9`` in mid-gang."""

import asyncio
import uuid
from functools import partial

import pytest

from services.shim_adapter.backends.kubernetes.client import ApiClient
from tests.integration.kubernetes.test_backend import QUEUES, member, until_only
from tests.integration.processes import Deployment
from tests.kubernetes.double import Double
from tests.kubernetes.harness import Access, Kubectl, Kubelets
from tests.patience import until

pytestmark = pytest.mark.xdist_group("restarts")

MEMBERS = 30  # more than there are binds at one time: the gang comes about in waves


@pytest.mark.long
@pytest.mark.limit(300, "three gangs, each with a service that is killed and started again")
async def test_a_service_killed_in_mid_gang_leaves_every_pod_bound_once(broker_url, tmp_path):
    """The same service is started again; of the active shim adapter a standby takes the turn over.

    In one life: what one kill leaves behind the next gang meets.
    """
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
        double.fault(method="POST", path="/binding$", code=0, times=1_000, delay=0.3)
        async with Kubelets(kubectl) as kubelets:
            await _until_holder(kubectl)
            await _kill_in_mid_gang(deployment, kubectl, kubelets, "core")
            await _kill_in_mid_gang(deployment, kubectl, kubelets, "shim_adapter")
            await _until_turn(kubectl, 2)
            deployment.start("shim_adapter", "standby", MUSTER_INSTANCE="standby")
            await _kill_in_mid_gang(deployment, kubectl, kubelets, "shim_adapter", comes_back=False)
            await _until_turn(kubectl, 3)
    finally:
        await asyncio.to_thread(deployment.stop)
        await client.close()
        await double.stop()


async def _kill_in_mid_gang(deployment, kubectl, kubelets, victim, *, comes_back=True):
    application = f"gang-{victim}-{comes_back}".lower().replace("_", "-")
    names = [f"{application}-{at}" for at in range(MEMBERS)]
    kubelets.nodes_of.clear()
    for name in names:
        await kubectl.pod(member(name, application, members=MEMBERS))
    await _until(lambda: len(kubelets.nodes_of) >= 3, "some placeholders are bound")
    await asyncio.to_thread(deployment.kill, victim)
    assert not all(name in kubelets.ran for name in names), "it is mid-gang"
    if comes_back:
        deployment.start(victim)
    is_whole = partial(_all_in, names, kubelets.ran)
    await _until(is_whole, f"the whole gang runs, {victim}", deployment)
    assert all(len(nodes) == 1 for nodes in kubelets.nodes_of.values())
    await until_only(kubectl, set(names))
    for name in names:
        await kubectl.delete(name)
    await until_only(kubectl, set())


def _all_in(names, ran):
    return all(name in ran for name in names)


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
