"""Beside another scheduler: who is nominated for which node, said by us and respected by us."""

import pytest

from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH
from tests.integration.kubernetes.test_backend import until_condition
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.kubernetes.versions import POD_GENERATION
from tests.patience import until

OWED = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {name: over, resources: {guaranteed: {vcore: 1}}}
          - {name: owed, resources: {guaranteed: {vcore: 3}}, properties: {preemption.delay: 1s}}
"""
POD = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def muster(server):
    await server.kubectl.config(OWED)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="20")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


def over(name):
    return a_pod(name, cpu="1", labels={"applicationId": f"app-{name}", "queue": "root.over"})


async def nominated(muster, name):
    return (await muster.kubectl.pods())[name]["status"].get("nominatedNodeName", "")


async def fill(muster, *, grace=0):
    for at in range(4):
        body = over(f"v{at}")
        body["spec"]["terminationGracePeriodSeconds"] = grace
        body["metadata"]["finalizers"] = ["test/held"] if grace else []
        await muster.kubectl.pod(body)
    await until(lambda: len(muster.kubelets.ran) == 4, "the node is full")


async def test_a_preemptor_is_nominated_for_the_node_that_it_waits_for(muster, double):
    """Its victims are long in going: other schedulers read meanwhile whose room that is."""
    double.fault(method="DELETE", path="/pods/v", code=500, times=60)
    await fill(muster)
    await muster.kubectl.pod(
        a_pod("owed", cpu="2", labels={"applicationId": "owed", "queue": "root.owed"})
    )

    async def is_nominated():
        return await nominated(muster, "owed") == "n1"

    await until(is_nominated, "it is nominated")
    assert "owed" not in muster.kubelets.ran
    await until(lambda: muster.kubelets.ran.get("owed") == "n1", "it runs there")


async def test_a_nomination_of_a_turn_that_is_over_is_taken_back(muster):
    await fill(muster)
    await muster.kubectl.pod(
        a_pod("big", cpu="64", labels={"applicationId": "b", "queue": "root.over"})
    )
    await until_condition(muster.kubectl, "big", ("False", "Unschedulable"))
    stale = {"status": {"nominatedNodeName": "n1"}}
    await muster.kubectl.client.request(
        "PATCH", f"{POD}/big/status", stale, content_type=STRATEGIC_PATCH
    )
    await muster.kill_shim()

    async def is_taken_back():
        return not await nominated(muster, "big")

    await until(is_taken_back, "nobody makes way for it")


async def test_a_condition_says_which_generation_of_the_pod_it_is_about(server, muster):
    await server.needs(POD_GENERATION, "generations of pods")
    labels = {"applicationId": "b", "queue": "root.over"}
    gated = a_pod("big", cpu="64", labels=labels, schedulingGates=[{"name": "wait"}])
    await muster.kubectl.pod(gated)
    await muster.kubectl.patch(f"{POD}/big", {"spec": {"schedulingGates": None}})
    await until_condition(muster.kubectl, "big", ("False", "Unschedulable"))
    pod = (await muster.kubectl.pods())["big"]
    (found,) = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert found["observedGeneration"] == pod["metadata"]["generation"] > 1
