"""deploy/kubernetes/rbac.yaml grants what the shim adapter asks for, and nothing else."""

import pytest

from tests.integration.kubernetes.test_backend import QUEUES, member
from tests.integration.kubernetes.test_volumes import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    claim,
    local_claim,
    local_volume,
    with_claim,
)
from tests.kubernetes import groups
from tests.kubernetes.double import Double, a_pod
from tests.kubernetes.harness import Access, ApiClient, Kubectl, muster_over
from tests.kubernetes.rights import granted
from tests.patience import until

STATIC = "kubernetes.io/no-provisioner"


async def make_group(kubectl, kind):
    """Make a PodGroup of two, of which there will be one."""
    path, plural, name = kind
    spec = {"minMember": 2}
    if kind == groups.OF_1_36:
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": path, "kind": name, "metadata": {"name": "g"}, "spec": spec}
    await kubectl.client.request("POST", f"/apis/{path}/namespaces/default/{plural}", body)


async def make_devices(kubectl):
    """Offer an extended resource by a class, of which a node has one device."""
    dra, version = "/apis/resource.k8s.io/v1", {"apiVersion": "resource.k8s.io/v1"}
    of_class = {"extendedResourceName": "example.com/gpu"}
    body = {**version, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": of_class}
    await kubectl.client.request("POST", f"{dra}/deviceclasses", body)
    pool = {"name": "n3", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n3", "devices": [{"name": "d"}]}
    body = {**version, "kind": "ResourceSlice", "metadata": {"name": "n3"}, "spec": spec}
    await kubectl.client.request("POST", f"{dra}/resourceslices", body)


async def claim_devices(kubectl, double):
    """Have a pod claim a device, and its bind be refused once."""
    await kubectl.node("n3", cpu="4", memory="8Gi", pods="20")
    await make_devices(kubectl)
    double.fault(method="POST", path="/pods/offered/binding$", code=400, times=1)
    offered = a_pod("offered", cpu="100m", labels={"applicationId": "f", "queue": "root.a"})
    offered["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    await kubectl.pod(offered)
    deletes = "DELETE resourceclaims.resource.k8s.io"
    await until(lambda: double.requests.get(deletes), "a claim is given back")


async def make_circle(kubectl, double):
    """Make a group of groups that is in itself."""
    path, plural, kind = groups.COMPOSITE
    spec = {
        "schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "c",
        "workloadRef": {"workloadName": "w", "templateName": "t"},
    }  # fmt: skip
    body = {"apiVersion": path, "kind": kind, "metadata": {"name": "c"}, "spec": spec}
    await kubectl.client.request("POST", f"/apis/{path}/namespaces/default/{plural}", body)
    name = "PATCH compositepodgroups.scheduling.k8s.io/status"
    await until(lambda: double.requests.get(name), "the status of a group of groups")


def member_of(kind):
    pod = a_pod(f"of-{kind[0].replace('/', '-')}", cpu="1", labels={"queue": "root.a"})
    if kind == groups.COSCHEDULING:
        pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "g"
    elif kind == groups.KAI:
        pod["metadata"]["annotations"] = {"pod-group-name": "g"}
    else:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return pod


@pytest.fixture
async def used():
    """Live through everything that asks for a right; return what was asked for."""
    double = Double()
    for kind in (
        groups.COSCHEDULING, groups.KAI, groups.VOLCANO, groups.OF_1_35, groups.OF_1_36,
        groups.COMPOSITE, groups.JOBSET, groups.GROVE, groups.KUEUE_TOPOLOGY, groups.KAI_TOPOLOGY, groups.HYPER_NODE,
    ):  # fmt: skip
        double.serve(*kind)
    await double.start()
    client = ApiClient(Access(double.url), "tests")
    kubectl = Kubectl(client)
    await kubectl.config(QUEUES)
    await kubectl.node("n1", {"zone": "a"}, cpu="8", memory="8Gi", pods="20")
    async with muster_over(Access(double.url), kubectl) as muster:
        double.fault(method="POST", path="/binding$", code=500, times=1, after=True)
        for at in range(3):
            await kubectl.pod(member(f"m{at}", "gang"))
        await until(lambda: all(f"m{at}" in muster.kubelets.ran for at in range(3)), "the gang")
        await kubectl.pod(a_pod("big", cpu="64", labels={"applicationId": "b", "queue": "root.a"}))
        await until(lambda: double.requests.get("PATCH pods/status", 0) > 3, "its condition")
        late = {
            "metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer",
            "provisioner": "disk",
        }  # fmt: skip
        await client.request("POST", CLASSES, late)
        await client.request("POST", CLAIMS, claim("data", storage_class="late"))
        await kubectl.pod(with_claim("with-a-volume", "data"))
        await until(lambda: double.requests.get("PATCH persistentvolumeclaims"), "its volume")
        static = {**late, "metadata": {"name": "local"}, "provisioner": STATIC}
        await client.request("POST", CLASSES, static)
        await client.request("POST", VOLUMES, local_volume("pv", "a", "9Gi"))
        await client.request("POST", CLAIMS, local_claim("local", "5Gi"))
        await kubectl.pod(with_claim("with-a-local-volume", "local"))
        await until(lambda: double.requests.get("PATCH persistentvolumes"), "its volume")
        await kubectl.node("n2", cpu="4", memory="8Gi", pods="20")
        daemon = a_pod("daemon", cpu="7", labels={"applicationId": "d", "queue": "root.a"})
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}
        daemon["metadata"]["ownerReferences"] = [owner]
        field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        daemon["spec"]["affinity"] = {"nodeAffinity": required}
        await kubectl.pod(daemon)
        await until(lambda: double.requests.get("POST pods/eviction"), "an eviction")
        for path in (groups.COSCHEDULING, groups.KAI, groups.OF_1_36):
            name = f"PATCH {path[1]}.{path[0].partition('/')[0]}/status"
            await make_group(kubectl, path)
            await kubectl.pod(member_of(path))
            await until(lambda name=name: double.requests.get(name), "the status of a PodGroup")
        await claim_devices(kubectl, double)
        await make_circle(kubectl, double)
        await muster.kill_shim()
        await until(muster.is_ready, "the next turn")
    await client.close()
    await double.stop()
    return double.uses["muster"]


async def test_the_rights_are_those_that_are_used_no_more_and_no_fewer(used):
    of_later_versions = {("update", "resource.k8s.io", "resourceclaims/binding", "")}
    assert used == granted() - of_later_versions
