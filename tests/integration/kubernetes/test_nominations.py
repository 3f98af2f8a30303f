"""Beside another scheduler: who is nominated for which node, said by us and respected by us."""

from contextlib import suppress

import pytest

from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH, ApiServerError
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


async def of_another(muster, name, *, priority, node="n1", cpu="2"):
    """Make a pod of another scheduler, and have that nominate it, as one that has preempted."""
    body = a_pod(name, scheduler="another", cpu=cpu, priorityClassName=f"at-{priority}")
    await muster.kubectl.pod(body)
    status = {"status": {"nominatedNodeName": node}}
    await muster.kubectl.client.request(
        "PATCH", f"{POD}/{name}/status", status, content_type=STRATEGIC_PATCH
    )


async def of_ours(muster, name, *, priority=0, cpu="3"):
    labels = {"applicationId": f"app-{name}", "queue": "root.over"}
    await muster.kubectl.pod(
        a_pod(name, cpu=cpu, labels=labels, priorityClassName=f"at-{priority}")
    )


@pytest.fixture
async def classes(muster):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for value in (0, 5, 9):
        body = {"metadata": {"name": f"at-{value}"}, "value": value}
        with suppress(ApiServerError):  # a real server keeps them
            await muster.kubectl.client.request("POST", path, body)
    return muster


async def until_occupied(muster, vcore):
    """Wait until so much of the node is others', those among them that are to come."""
    node = muster.model.nodes["n1"]
    await until(lambda: muster.model.nodes["n1"].state.occupied.get("vcore", 0) == vcore, f"{node}")


@pytest.mark.parametrize("priority", [5, 9])
async def test_room_of_anothers_pod_of_no_lower_priority_is_left_to_it(classes, priority):
    muster = classes
    await of_another(muster, "theirs", priority=priority)
    await until_occupied(muster, 2000)
    await of_ours(muster, "ours", priority=5)
    await until_condition(muster.kubectl, "ours", ("False", "Unschedulable"))
    await of_ours(muster, "small", priority=5, cpu="2")  # there is as much beside it
    await until(lambda: "small" in muster.kubelets.ran, "it runs beside")
    body = {"metadata": {"name": "theirs"}, "target": {"kind": "Node", "name": "n1"}}
    await muster.kubectl.client.request("POST", f"{POD}/theirs/binding", body)
    await until(lambda: "theirs" in muster.kubelets.ran, "it has come")
    await muster.kubectl.delete("small")
    await muster.kubectl.delete("theirs")
    await until(lambda: "ours" in muster.kubelets.ran, "then it runs")


async def test_room_of_anothers_pod_of_a_lower_priority_is_had(classes):
    muster = classes
    await of_another(muster, "theirs", priority=5)
    await until_occupied(muster, 2000)
    await of_ours(muster, "ours", priority=9)
    await until(lambda: "ours" in muster.kubelets.ran, "it runs")


async def test_a_nomination_that_is_taken_back_keeps_nothing(classes):
    muster = classes
    await of_another(muster, "theirs", priority=9)
    await until_occupied(muster, 2000)
    await of_ours(muster, "ours")
    await until_condition(muster.kubectl, "ours", ("False", "Unschedulable"))
    await muster.kill_core()
    await until(muster.is_ready, "the core is there again")
    await until_occupied(muster, 2000)
    status = {"status": {"nominatedNodeName": None}}
    await muster.kubectl.client.request(
        "PATCH", f"{POD}/theirs/status", status, content_type=STRATEGIC_PATCH
    )
    await until(lambda: "ours" in muster.kubelets.ran, "it runs")


async def test_a_nominated_pod_that_goes_keeps_nothing(classes):
    muster = classes
    await of_another(muster, "theirs", priority=9)
    await of_another(muster, "elsewhere", priority=9, node="nowhere")
    await until_occupied(muster, 2000)
    await of_ours(muster, "ours")
    await until_condition(muster.kubectl, "ours", ("False", "Unschedulable"))
    await muster.kubectl.delete("theirs")
    await until(lambda: "ours" in muster.kubelets.ran, "it runs")
