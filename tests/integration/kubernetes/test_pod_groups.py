"""Gangs of operators: PodGroups and Workloads that an API server serves, and the pods that name them."""

import pytest

from services.shim_adapter.backends.kubernetes import discovery, pod_groups
from tests.integration.kubernetes.test_backend import QUEUES
from tests.kubernetes import groups
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
LABEL = "scheduling.x-k8s.io/pod-group"
QUEUE = {"queue": "root.a"}


def member(name, group="g", *, cpu="1", **more):
    labels = {LABEL: group, **QUEUE, **more.pop("labels", {})}
    return a_pod(name, cpu=cpu, labels=labels, **more)


async def make(kubectl, path, name, **spec):
    return await kubectl.client.request("POST", path, {"metadata": {"name": name}, "spec": spec})


@pytest.fixture
async def muster(double, server, monkeypatch):
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.1)
    monkeypatch.setattr(pod_groups, "TELL_SECONDS", 0)
    double.serve(*groups.COSCHEDULING)
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="40")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


async def waits(kubectl, name):
    """Return why a pod says that it waits."""
    pod = (await kubectl.pods())[name]
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return found[0]["message"] if found and not pod["spec"].get("nodeName") else ""


async def until_waits(kubectl, name, words):
    async def says():
        return words in await waits(kubectl, name)

    await until(says, f"{name} says {words!r}")


async def until_running(muster, *names):
    await until(lambda: all(name in muster.kubelets.ran for name in names), f"{names} run")


async def test_pods_of_a_pod_group_wait_for_one_another_and_start_as_a_gang(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    for at in range(2):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_waits(muster.kubectl, "m1", "3 pods start at once")
    assert muster.kubelets.ran == {}
    await muster.kubectl.pod(member("m2"))
    await until_running(muster, "m0", "m1", "m2")
    await until(lambda: not [p for p in muster.world.all_pods() if p.spec.placeholder], "no more")
    summary = muster.model.application("default-podgroup-g").summary
    assert (summary.allocated["vcore"], summary.queue_name) == (3000, "root.a")
