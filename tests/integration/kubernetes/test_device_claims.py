"""Dynamic resource allocation: the cases of claims that one driver's devices on nodes come to."""

import httpx
import pytest

from services.api.replica import Replica
from services.api.routes.app import make_app
from services.shim_adapter.backends.kubernetes import discovery, pod_groups
from services.shim_adapter.backends.kubernetes.claim_writer import FINALIZER
from tests.integration.kubernetes.test_backend import QUEUES
from tests.kubernetes import groups
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.kubernetes.rights import granted
from tests.patience import until

DRA = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DRA}/namespaces/default/resourceclaims"
GROUPS = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/podgroups"
QUEUE = {"queue": "root.a"}
GPU = "gpu.example.com"
PATIENCE = 60


@pytest.fixture
async def muster(double, server, monkeypatch):
    await server.needs(34, "dynamic resource allocation")
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.1)
    monkeypatch.setattr(pod_groups, "TELL_SECONDS", 0)
    double.serve(*groups.ALPHA_OF_1_37)
    await server.kubectl.config(QUEUES)
    await post(server, "deviceclasses", {
        "metadata": {"name": GPU},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{GPU}"'}}]},
    })  # fmt: skip
    async with muster_over(server.access, server.kubectl) as running:
        yield running


async def post(server, plural, body, path=""):
    kinds = {
        "deviceclasses": "DeviceClass", "resourceslices": "ResourceSlice",
        "resourceclaims": "ResourceClaim", "devicetaintrules": "DeviceTaintRule",
    }  # fmt: skip
    body = {"apiVersion": "resource.k8s.io/v1", "kind": kinds[plural], **body}
    return await server.kubectl.client.request("POST", path or f"{DRA}/{plural}", body)


async def node(muster, name, gpus, *, memory="24Gi", cpu="4", slices=1, generation=1, part=1):
    """Add a node with so many devices in a slice of its pool."""
    if name not in muster.kubectl.nodes:
        await muster.kubectl.node(name, cpu=cpu, memory="8Gi", pods="40")
    await publish(
        muster, name, range(gpus), memory=memory, slices=slices, generation=generation, part=part
    )


async def publish(muster, name, gpus, *, memory="24Gi", slices=1, generation=1, part=1):
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {"model": {"string": "A100"}, "index": {"int": at}},
            "capacity": {"memory": {"value": memory}},
        }
        for at in gpus
    ]
    pool = {"name": name, "generation": generation, "resourceSliceCount": slices}
    spec = {"driver": GPU, "pool": pool, "nodeName": name, "devices": devices}
    await post(muster, "resourceslices", {
        "metadata": {"name": f"{name}-{generation}-{part}"}, "spec": spec,
    })  # fmt: skip


async def claim(muster, name, count=1, expression="", owner="", **exactly):
    exactly = {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": count, **exactly}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    body = {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": owner}
        body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    await post(muster, "resourceclaims", body, CLAIMS)


def claiming(name, *claims, cpu="100m", **more):
    entries = [{"name": f"c{at}", "resourceClaimName": each} for at, each in enumerate(claims)]
    return a_pod(
        name, cpu=cpu, labels={"applicationId": name, **QUEUE}, resourceClaims=entries, **more
    )


async def of_template(muster, name, count=1, group="", **more):
    """Make a pod with a claim from a template, which its controller makes."""
    entry = {"name": "gpus", "resourceClaimTemplateName": "t"}
    labels = QUEUE if group else {"applicationId": name, **QUEUE}
    pod = a_pod(name, cpu="100m", labels=labels, resourceClaims=[entry], **more)
    if group:
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    await muster.kubectl.pod(pod)
    uid = (await muster.kubectl.pods())[name]["metadata"]["uid"]
    await claim(muster, f"{name}-gpus", count, owner=uid)
    said = [{"name": "gpus", "resourceClaimName": f"{name}-gpus"}]
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    await muster.kubectl.patch(path, {"status": {"resourceClaimStatuses": said}})


async def found(muster, name):
    return await muster.kubectl.get(f"{CLAIMS}/{name}")


async def given(muster, name):
    """Return the devices of a claim, and for how many it is reserved."""
    status = (await found(muster, name)).get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    return [each["device"] for each in results], len(status.get("reservedFor") or ())


async def end(muster, pod, *claims):
    """Delete a pod, and do for its claims what their controller does."""
    await muster.kubectl.delete(pod, gracePeriodSeconds=0)
    for name in claims:
        status = {"status": {"allocation": None, "reservedFor": None}}
        await muster.kubectl.patch(f"{CLAIMS}/{name}/status", status)


async def until_running(muster, *names):
    await until(lambda: all(name in muster.kubelets.ran for name in names), f"{names} run")


async def until_says(muster, name, words):
    async def says():
        pod = (await muster.kubectl.pods())[name]
        return any(words in item.get("message", "") for item in pod["status"].get("conditions", ()))

    await until(says, f"{name} says {words!r}")


async def until_explained(muster, name, words):
    app = make_app(Replica(lambda: muster.cluster.running["api"].host, lambda: muster.cluster.api))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as http:

        async def is_so():
            return words in (await http.get(f"/v1/why/{name}")).text

        await until(is_so, f"why {name} says {words!r}", 20)


async def test_a_claim_is_allocated_reserved_and_its_devices_are_free_again_when_it_is_released(
    muster,
):
    await node(muster, "n1", 2)
    await claim(muster, "a", 2)
    await claim(muster, "b", 1)
    await muster.kubectl.pod(claiming("pa", "a"))
    await until_running(muster, "pa")
    whole = await found(muster, "a")
    assert whole["metadata"]["finalizers"] == [FINALIZER]
    assert await given(muster, "a") == (["gpu-0", "gpu-1"], 1)
    selector = whole["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]
    assert selector["matchFields"][0]["values"] == ["n1"]
    await muster.kubectl.pod(claiming("pb", "b"))
    await until_says(muster, "pb", "deviceclass/gpu.example.com")
    await end(muster, "pa", "a")
    await until_running(muster, "pb")
    assert await given(muster, "b") == (["gpu-0"], 1)


async def test_an_incomplete_pool_gives_nothing_and_an_older_generation_is_not_there(muster):
    await node(muster, "n1", 4, slices=2)  # D1
    await claim(muster, "a", 1)
    await muster.kubectl.pod(claiming("pa", "a"))
    await until_says(muster, "pa", "pool n1 of gpu.example.com is incomplete (1 of 2 slices)")
    await publish(muster, "n1", range(4, 8), slices=2, part=2)
    await until_running(muster, "pa")
    await publish(muster, "n1", range(7), generation=2)  # D2: the eighth is there no more
    await claim(muster, "b", 7)
    await muster.kubectl.pod(claiming("pb", "b"))
    await until_says(muster, "pb", "deviceclass/gpu.example.com")
    await end(muster, "pa", "a")
    await until_running(muster, "pb")
    assert "gpu-7" not in (await given(muster, "b"))[0]


async def test_a_selector_counts_the_devices_that_it_leaves(muster):
    await node(muster, "n1", 4, slices=2)
    await publish(muster, "n1", range(4, 8), memory="80Gi", slices=2, part=2)
    large = f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0'
    await claim(muster, "five", 5, large)  # D3
    await muster.kubectl.pod(claiming("p5", "five"))
    await until_says(muster, "p5", "deviceclass/gpu.example.com.")
    await claim(muster, "any", 4)
    await muster.kubectl.pod(claiming("any", "any"))
    await until_running(muster, "any")
    assert (await given(muster, "any"))[0] == [f"gpu-{at}" for at in range(4)]  # nobody else's
    await claim(muster, "four", 4, large)
    await muster.kubectl.pod(claiming("p4", "four"))
    await until_running(muster, "p4")
    assert sorted((await given(muster, "four"))[0]) == [f"gpu-{at}" for at in range(4, 8)]


async def test_what_fails_for_a_device_is_no_on_its_node_and_others_are_tried(muster):
    await node(muster, "n1", 2)  # D18
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="40")
    devices = [{"name": "gpu-0", "attributes": {"tier": {"int": 1}}}]
    spec = {"driver": GPU, "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1}}
    spec |= {"nodeName": "n2", "devices": devices}
    await post(muster, "resourceslices", {"metadata": {"name": "n2"}, "spec": spec})
    await claim(muster, "a", 1, f'device.attributes["{GPU}"].tier >= 1')
    await muster.kubectl.pod(claiming("pa", "a"))
    await until_running(muster, "pa")
    assert muster.kubelets.ran["pa"] == "n2"


@pytest.mark.parametrize(
    ("exactly", "words"),
    [
        ({"capacity": {"limits": {"memory": "1Gi"}}}, "exactly.capacity.limits: not supported"),
        ({"expression": "device.attributes.all(k, true)"}, "macro 'all' is not supported"),
        ({"deviceClassName": "other"}, "there is no DeviceClass other"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(muster, exactly, words):
    await node(muster, "n1", 2)
    await claim(muster, "a", **exactly)
    await muster.kubectl.pod(claiming("pa", "a"))
    await until_says(muster, "pa", words)


async def test_all_devices_of_a_node_and_those_of_one_root(muster):
    await node(muster, "n1", 4)  # D5
    await claim(muster, "one")
    await claim(muster, "all", allocationMode="All")
    await muster.kubectl.pod(claiming("p1", "one"))
    await until_running(muster, "p1")
    await muster.kubectl.pod(claiming("pa", "all"))
    await until_says(muster, "pa", "deviceclass/claim.")
    await end(muster, "p1", "one")
    await until_running(muster, "pa")
    assert len((await given(muster, "all"))[0]) == 4
    exactly = {"deviceClassName": GPU, "allocationMode": "All", "adminAccess": True}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    body = {"metadata": {"name": "admin"}, "spec": {"devices": devices}}
    await post(muster, "resourceclaims", body, CLAIMS)
    await muster.kubectl.pod(claiming("pd", "admin"))
    await until_running(muster, "pd")
    assert len((await given(muster, "admin"))[0]) == 4


async def test_a_gang_with_claims_of_a_template_starts_whole_or_writes_no_claim(muster):
    await node(muster, "n1", 4)  # D6
    await node(muster, "n2", 3)
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup"}
    await muster.kubectl.client.request(
        "POST", GROUPS, {**body, "metadata": {"name": "g"}, "spec": spec}
    )
    for at in range(4):
        await of_template(muster, f"m{at}", 2, "g")
    await until(lambda: muster.model.application("default-podgroup-g"), "it waits for room")
    assert not muster.kubelets.ran
    assert [(await given(muster, f"m{at}-gpus"))[0] for at in range(4)] == [[]] * 4
    await publish(muster, "n2", range(4), generation=2)
    await until_running(muster, *(f"m{at}" for at in range(4)))
    devices = [(await given(muster, f"m{at}-gpus")) for at in range(4)]
    assert [(len(each), reserved) for each, reserved in devices] == [(2, 1)] * 4


async def test_a_claim_that_pods_share_ties_them_to_its_node(muster):
    await node(muster, "n1", 1, cpu="2")  # D8
    await claim(muster, "shared")
    for name in ("p0", "p1", "p2"):
        await muster.kubectl.pod(claiming(name, "shared", cpu="800m"))
    await until(lambda: len(muster.kubelets.ran) == 2, "two run")
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="40")
    await until_running(muster, await settle(muster))
    assert {muster.kubelets.ran.get(name) for name in ("p0", "p1", "p2")} == {"n1", None}
    assert (await given(muster, "shared"))[1] == 2


async def settle(muster):
    await muster.kubectl.pod(a_pod("settled", cpu="1m", labels={"applicationId": "s", **QUEUE}))
    return "settled"


async def test_what_a_refused_bind_has_reserved_is_given_back(muster, double):
    await node(muster, "n1", 2)  # D10
    await claim(muster, "c1")
    await claim(muster, "c2")
    double.fault(method="PATCH", path="/resourceclaims/c2/status$", code=409, times=1,
                 reason="Conflict", message="the object has been modified")  # fmt: skip
    await muster.kubectl.pod(claiming("p1", "c1", "c2"))
    await muster.kubectl.pod(claiming("p2", "c2", "c1"))
    await until_running(muster, "p1", "p2")
    assert [(await given(muster, name))[1] for name in ("c1", "c2")] == [2, 2]


async def group_of(muster, name, pods, shared, cpu="100m", *, waits=False):
    """Make a PodGroup with a claim of its pods in common, and the pods."""
    spec = {
        "schedulingPolicy": {"gang": {"minCount": pods}},
        "resourceClaims": [{"name": "c0", "resourceClaimName": shared}],
    }
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "spec": spec}
    await muster.kubectl.client.request("POST", GROUPS, {**body, "metadata": {"name": name}})
    names = [f"{name}{at}" for at in range(pods)]
    for each in names:
        pod = claiming(each, shared, cpu=cpu)
        del pod["metadata"]["labels"]["applicationId"]
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        await muster.kubectl.pod(pod)
    if not waits:
        await until_running(muster, *names)
    return {muster.kubelets.ran[each] for each in names if not waits}


async def test_the_claim_of_a_pod_group_is_reserved_for_it_once(muster):
    await node(muster, "n1", 1)
    await node(muster, "n2", 1)
    await claim(muster, "shared")
    assert len(await group_of(muster, "g", 3, "shared")) == 1
    status = (await found(muster, "shared"))["status"]
    assert [(each["resource"], each["name"]) for each in status["reservedFor"]] == [
        ("podgroups", "g")
    ]


async def gang_with_claims(muster, name, *claims, cpu="100m"):
    """Make a PodGroup, and a pod for each name of claims; they are the group's no more than theirs."""
    spec = {"schedulingPolicy": {"gang": {"minCount": len(claims)}}}
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "spec": spec}
    await muster.kubectl.client.request("POST", GROUPS, {**body, "metadata": {"name": name}})
    names = [f"{name}{at}" for at in range(len(claims))]
    for each, own in zip(names, claims, strict=True):
        pod = claiming(each, *own.split(), cpu=cpu)
        del pod["metadata"]["labels"]["applicationId"]
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
        await muster.kubectl.pod(pod)
    return names


async def test_a_gang_whose_pods_share_a_claim_goes_to_the_node_that_takes_all_of_them(muster):
    await node(muster, "n1", 2, cpu="1")
    await node(muster, "n2", 1, cpu="4")
    for name in ("shared", "own"):
        await claim(muster, name)
    pods = await gang_with_claims(muster, "g", "shared own", "shared", "shared", cpu="400m")
    await until_running(muster, await settle(muster))
    assert [*muster.kubelets.ran] == ["settled"]  # n1 lacks CPU, n2 a device
    assert [await given(muster, name) for name in ("shared", "own")] == [([], 0)] * 2
    await publish(muster, "n2", range(2), generation=2)
    await until_running(muster, *pods)
    assert {muster.kubelets.ran[name] for name in pods} == {"n2"}
    assert [(await given(muster, name))[1] for name in ("shared", "own")] == [3, 1]


async def test_pods_of_a_gang_that_share_a_claim_are_together_and_not_with_those_of_another(muster):
    for name in ("n1", "n2"):
        await node(muster, name, 1, cpu="2")
    for name in ("s", "t"):
        await claim(muster, name)
    pods = await gang_with_claims(muster, "g", "s", "s", "t", "t", cpu="700m")
    await until_running(muster, *pods)
    one, other = ({muster.kubelets.ran[name] for name in each} for each in (pods[:2], pods[2:]))
    assert sorted((*one, *other)) == ["n1", "n2"]


async def claim_on_what_every_node_reaches(muster):
    """Have two nodes, a device that both reach over the network, and the claim ``shared`` on it."""
    await muster.kubectl.node("n1", cpu="1", memory="8Gi", pods="40")
    await muster.kubectl.node("n2", cpu="1", memory="8Gi", pods="40")
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU, "pool": pool, "allNodes": True, "devices": [{"name": "far"}]}
    await post(muster, "resourceslices", {"metadata": {"name": "fabric"}, "spec": spec})
    await claim(muster, "shared")


async def test_the_pods_of_a_group_go_anywhere_with_a_claim_that_every_node_reaches(muster):
    await claim_on_what_every_node_reaches(muster)  # D9
    assert await group_of(muster, "g", 2, "shared", cpu="800m") == {"n1", "n2"}
    assert (await given(muster, "shared"))[1] == 1


async def test_an_extended_resource_that_a_class_offers_is_claimed_where_no_plugin_has_it(muster):
    await muster.kubectl.node("n1", cpu="4", memory="8Gi", pods="40", **{"nvidia.com/gpu": "1"})
    await node(muster, "n2", 2)  # D15
    offer = {"spec": {"extendedResourceName": "nvidia.com/gpu"}}
    await muster.kubectl.patch(f"{DRA}/deviceclasses/{GPU}", offer)
    pod = a_pod("pa", cpu="100m", labels={"applicationId": "a", **QUEUE})
    resources = pod["spec"]["containers"][0]["resources"]
    for kind in ("requests", "limits"):
        resources.setdefault(kind, {})["nvidia.com/gpu"] = "2"
    await muster.kubectl.pod(pod)
    await until_running(muster, "pa")
    assert muster.kubelets.ran["pa"] == "n2"
    claims = (await muster.kubectl.get(CLAIMS))["items"]
    (made,) = claims
    (request,) = made["spec"]["devices"]["requests"]
    assert (request["name"], request["exactly"]["count"]) == ("container-0-request-0", 2)
    assert len(made["status"]["allocation"]["devices"]["results"]) == 2
    status = (await muster.kubectl.pods())["pa"]["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == made["metadata"]["name"]
    used = lambda: muster.model.application("a").summary.allocated  # noqa: E731
    await until(lambda: used().get("nvidia.com/gpu") == 2, "its queue counts two")


async def test_a_gang_that_claims_an_extended_resource_starts_and_its_placeholders_claim_nothing(
    muster,
):
    text = f'device.driver == "{GPU}"'
    selectors = [{"cel": {"expression": text}}]
    spec = {"selectors": selectors, "extendedResourceName": "nvidia.com/gpu"}
    await post(muster, "deviceclasses", {"metadata": {"name": "offered"}, "spec": spec})
    await node(muster, "n1", 3)
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "spec": spec}
    await muster.kubectl.client.request("POST", GROUPS, {**body, "metadata": {"name": "g"}})
    for at in range(2):
        pod = a_pod(f"p{at}", cpu="100m", labels=QUEUE)
        pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "2"
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        await muster.kubectl.pod(pod)
    await until(lambda: muster.model.application("default-podgroup-g"), "it waits for room")
    await until_running(muster, await settle(muster))
    assert [*muster.kubelets.ran] == ["settled"]
    await publish(muster, "n1", range(4), generation=2)
    await until_running(muster, "p0", "p1")
    claims = (await muster.kubectl.get(CLAIMS))["items"]
    owners = [each["metadata"]["ownerReferences"][0]["name"] for each in claims]
    assert sorted(owners) == ["p0", "p1"]


async def test_without_the_right_to_write_claims_the_pod_waits_and_says_which(muster, double):
    await node(muster, "n1", 1)  # D16
    right = ("patch", "resource.k8s.io", "resourceclaims/status", "")
    double.rights["muster"] = granted() - {right}
    await claim(muster, "a")
    await muster.kubectl.pod(claiming("pa", "a"))
    await muster.kubectl.pod(a_pod("other", cpu="1", labels={"applicationId": "o", **QUEUE}))
    await until_running(muster, "other")

    async def says():
        events = (await muster.kubectl.get("/apis/events.k8s.io/v1/events"))["items"]
        return any("resourceclaims/status" in event.get("note", "") for event in events)

    await until(says, "an event says which right is missing")
    assert "pa" not in muster.kubelets.ran
    double.rights["muster"] = granted()
    await until_running(muster, "pa")


async def test_a_claim_that_was_written_before_a_restart_is_its_pods(muster, double):
    await node(muster, "n1", 2)  # D17
    await claim(muster, "a")
    double.fault(method="POST", path="/binding$", code=503, times=3)
    await muster.kubectl.pod(claiming("pa", "a"))

    async def is_written():
        return (await given(muster, "a"))[1] == 1

    await until(is_written, "the claim is written")
    before = muster.world
    await muster.kill_shim()
    await until(lambda: muster.world is not before and muster.is_ready(), "the next turn")
    await until_running(muster, "pa")
    assert len((await given(muster, "a"))[0]) == 1
    await claim(muster, "b")
    await muster.kubectl.pod(claiming("pb", "b"))
    await until_running(muster, "pb")


async def test_the_node_with_the_better_alternative_is_preferred(muster):
    await node(muster, "n1", 2)  # D11
    await node(muster, "n2", 1, memory="80Gi")
    large = f'device.capacity["{GPU}"].memory.isGreaterThan(quantity("40Gi"))'
    first = [
        {"name": "large", "deviceClassName": GPU, "selectors": [{"cel": {"expression": large}}]},
        {"name": "two", "deviceClassName": GPU, "count": 2},
    ]
    devices = {"requests": [{"name": "gpu", "firstAvailable": first}]}
    for name in ("a", "b"):
        body = {"metadata": {"name": name}, "spec": {"devices": devices}}
        await post(muster, "resourceclaims", body, CLAIMS)
        await muster.kubectl.pod(claiming(f"p{name}", name))
        await until_running(muster, f"p{name}")
    assert [muster.kubelets.ran[name] for name in ("pa", "pb")] == ["n2", "n1"]
    assert (await given(muster, "b"))[0] == ["gpu-0", "gpu-1"]
    results = (await found(muster, "a"))["status"]["allocation"]["devices"]["results"]
    assert [each["request"] for each in results] == ["gpu/large"]


async def test_a_claim_over_the_network_ties_its_pods_to_no_node_and_is_for_256_of_them(muster):
    await claim_on_what_every_node_reaches(muster)  # D9
    await muster.kubectl.pod(claiming("p0", "shared", cpu="800m"))
    await muster.kubectl.pod(claiming("p1", "shared", cpu="800m"))
    await until_running(muster, "p0", "p1")
    assert {muster.kubelets.ran["p0"], muster.kubelets.ran["p1"]} == {"n1", "n2"}
    whole = await found(muster, "shared")
    assert "nodeSelector" not in whole["status"]["allocation"]
    others = [{"resource": "pods", "name": f"o{at}", "uid": f"o{at}"} for at in range(254)]
    reserved = {"status": {"reservedFor": [*whole["status"]["reservedFor"], *others]}}
    await muster.kubectl.patch(f"{CLAIMS}/shared/status", reserved)
    await muster.kubectl.pod(claiming("last", "shared"))
    await until_says(muster, "last", "is reserved for 256 pods, no more")
    reserved["status"]["reservedFor"].pop()
    await muster.kubectl.patch(f"{CLAIMS}/shared/status", reserved)
    await until_running(muster, "last")


async def publish_pool(muster, name, devices, slices=1, **where):
    """Publish devices of a pool, or its counters."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": GPU, "pool": pool, **(where or {"nodeName": name}), **devices}
    kind = next(iter(devices)).lower()
    await post(muster, "resourceslices", {"metadata": {"name": f"{name}-{kind}"}, "spec": spec})


async def test_a_gang_is_given_the_halves_of_a_device_that_its_first_pod_would_take_whole(muster):
    await muster.kubectl.node("n1", cpu="4", memory="8Gi", pods="40")  # D12

    def part(name, amount):
        consumes = {"counterSet": "gpu-0", "counters": {"units": {"value": amount}}}
        attributes = {"size": {"int": int(amount)}}
        return {"name": name, "attributes": attributes, "consumesCounters": [consumes]}

    sets = [{"name": "gpu-0", "counters": {"units": {"value": "2"}}}]
    await publish_pool(muster, "n1", {"sharedCounters": sets}, slices=2)
    parts = [part("whole", "2"), part("half-0", "1"), part("half-1", "1")]
    await publish_pool(muster, "n1", {"devices": parts}, slices=2)
    first = [
        {"name": name, "deviceClassName": GPU, "selectors": [{"cel": {
            "expression": f'device.attributes["{GPU}"].size == {size}'}}]}
        for name, size in (("whole", 2), ("half", 1))
    ]  # fmt: skip
    devices = {"requests": [{"name": "gpu", "firstAvailable": first}]}
    for at in range(2):
        body = {"metadata": {"name": f"c{at}"}, "spec": {"devices": devices}}
        await post(muster, "resourceclaims", body, CLAIMS)
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "spec": spec}
    await muster.kubectl.client.request("POST", GROUPS, {**body, "metadata": {"name": "g"}})
    for at in range(2):
        pod = claiming(f"p{at}", f"c{at}")
        del pod["metadata"]["labels"]["applicationId"]
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        await muster.kubectl.pod(pod)
    await until_running(muster, "p0", "p1")
    assert sorted([(await given(muster, f"c{at}"))[0] for at in range(2)]) == [
        ["half-0"],
        ["half-1"],
    ]


async def test_shares_of_a_device_are_rounded_up_and_who_finds_too_little_waits(muster):
    await muster.kubectl.node("n1", cpu="4", memory="8Gi", pods="40")  # D14
    steps = {"min": "10Gi", "max": "80Gi", "step": "10Gi"}
    policy = {"default": "20Gi", "validRange": steps}
    memory = {"value": "80Gi", "requestPolicy": policy}
    gpu = {"name": "gpu", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    await publish_pool(muster, "n1", {"devices": [gpu]})
    for name, size in (("a", "15Gi"), ("b", ""), ("c", "45Gi")):
        more = {"capacity": {"requests": {"memory": size}}} if size else {}
        await claim(muster, name, **more)
        await muster.kubectl.pod(claiming(f"p{name}", name))
        if name != "c":
            await until_running(muster, f"p{name}")
    await until_says(muster, "pc", "deviceclass/claim.")
    shares = [
        (await found(muster, name))["status"]["allocation"]["devices"]["results"][0]
        for name in "ab"
    ]  # fmt: skip
    assert [each["consumedCapacity"]["memory"] for each in shares] == [str(20 * 2**30)] * 2
    assert len({each["shareID"] for each in shares}) == 2
    await end(muster, "pa", "a")
    await until_running(muster, "pc")


async def test_a_group_goes_to_the_nodes_of_a_device_that_reaches_enough_of_them(muster):
    for rack, nodes in (("a", 3), ("b", 1)):  # D7
        for at in range(nodes):
            name = f"{rack}{at}"
            await muster.kubectl.node(name, {"rack": rack}, cpu="1", memory="8Gi", pods="40")
        term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
        where = {"nodeSelector": {"nodeSelectorTerms": [term]}}
        own = {"devices": [{"name": f"slice-{'z' if rack == 'a' else 'b'}"}]}
        await publish_pool(muster, f"rack-{rack}", own, **where)
    await claim(muster, "shared")
    await muster.kubectl.patch("/api/v1/nodes/a2", {"spec": {"unschedulable": True}})
    await group_of(muster, "g", 3, "shared", cpu="800m", waits=True)
    await until_explained(
        muster, "default-podgroup-g", "the best, slice-z, has places for 2 of 3 members"
    )
    assert (await given(muster, "shared"), muster.kubelets.ran) == (([], 0), {})
    await muster.kubectl.patch("/api/v1/nodes/a2", {"spec": {"unschedulable": False}})
    await until_running(muster, "g0", "g1", "g2")
    assert {muster.kubelets.ran[f"g{at}"] for at in range(3)} == {"a0", "a1", "a2"}
    assert await given(muster, "shared") == (["slice-z"], 1)
    (term,) = (await found(muster, "shared"))["status"]["allocation"]["nodeSelector"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["values"] == ["a"]


async def test_a_device_that_a_rule_taints_is_given_to_nobody(muster, server):
    await server.needs(37, "rules of device taints")
    await node(muster, "n1", 1)
    rule = {"deviceSelector": {"driver": GPU, "pool": "n1"},
            "taint": {"key": "sick", "effect": "NoExecute"}}  # fmt: skip
    await post(muster, "devicetaintrules", {"metadata": {"name": "r"}, "spec": rule})
    await claim(muster, "a")
    await muster.kubectl.pod(claiming("pa", "a"))
    await until_says(muster, "pa", "deviceclass/gpu.example.com")
    await muster.kubectl.client.request("DELETE", f"{DRA}/devicetaintrules/r")
    await until_running(muster, "pa")
