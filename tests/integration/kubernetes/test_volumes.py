"""Pods with volumes of claims: where the volume is, where it is to be made, and what waits for it."""

from dataclasses import replace

import pytest

from services.shim_adapter.backends.kubernetes.client import ApiServerError
from services.shim_adapter.backends.kubernetes.volumes import (
    MAX_TERMS,
    SELECTED_NODE,
    Claim,
    StorageClass,
    ToMake,
    Volume,
    Volumes,
    both,
    claim_names,
    claim_of,
    merged,
    storage_class,
    volume_limits,
    volume_node_selector,
    volume_of,
)
from services.shim_adapter.records import NodeRecord
from shared.messages.constraints import AttachedVolume, NodeTerm, Requirement
from tests.integration.kubernetes.test_backend import QUEUES, condition_of, until_condition
from tests.kubernetes.double import Double, a_pod
from tests.kubernetes.harness import Access, ApiClient, Kubectl, muster_over
from tests.patience import until

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"


def on(*zones):
    return (NodeTerm((Requirement("zone", "In", zones),)),)


def with_claim(name, claim):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    labels = {"applicationId": "app", "queue": "root.a"}
    return a_pod(name, labels=labels, volumes=[volume])


def volume(name, zone="", *, mode="ReadWriteOnce"):
    """Return a volume of the driver ``disk``; without a zone it is reached from everywhere."""
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": [mode],
        "csi": {"driver": "disk", "volumeHandle": name},
    }  # fmt: skip
    if zone:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["nodeAffinity"] = {"required": terms}
    return {"metadata": {"name": name}, "spec": spec}


def claim(name, *, storage_class="", mode="ReadWriteOnce"):
    requests = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": storage_class, "accessModes": [mode], "resources": requests}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def muster():
    """Volumes are made and bound by controllers, which only the double can do without."""
    double = Double(bookmark_seconds=0.2)
    await double.start()
    client = ApiClient(Access(double.url), "tests")
    kubectl = Kubectl(client)
    await kubectl.config(QUEUES)
    for zone in ("a", "b"):
        await kubectl.node(f"n-{zone}", {"zone": zone}, cpu="4", memory="8Gi", pods="20")
    for name, mode in (("late", "WaitForFirstConsumer"), ("now", "Immediate")):
        body = {"metadata": {"name": name}, "provisioner": "disk", "volumeBindingMode": mode}
        await client.request("POST", CLASSES, body)
    async with muster_over(Access(double.url), kubectl) as running:
        running.client = client
        yield running
    await client.close()
    await double.stop()


async def bind_claim(muster, name, to):
    path = f"{CLAIMS}/{name}"
    await muster.kubectl.patch(path, {"spec": {"volumeName": to}})
    body = {"status": {"phase": "Bound"}}
    await muster.client.request(
        "PATCH", f"{path}/status", body, content_type="application/merge-patch+json"
    )


async def test_a_pod_goes_where_its_volume_is(muster):
    for zone in ("b", "a"):
        await muster.client.request("POST", VOLUMES, volume(f"pv-{zone}", zone))
        await muster.client.request("POST", CLAIMS, claim(f"data-{zone}"))
        await bind_claim(muster, f"data-{zone}", f"pv-{zone}")
        await muster.kubectl.pod(with_claim(f"p-{zone}", f"data-{zone}"))
    await until(lambda: {"p-a", "p-b"} <= set(muster.kubelets.ran), "both run")
    assert (muster.kubelets.ran["p-a"], muster.kubelets.ran["p-b"]) == ("n-a", "n-b")


async def test_a_pod_waits_for_a_claim_that_is_not_there_and_one_that_is_not_bound(muster):
    await muster.kubectl.pod(with_claim("p", "data"))
    await until_condition(muster.kubectl, "p", ("False", "SchedulerError"))
    await muster.client.request("POST", CLAIMS, claim("data", storage_class="now"))
    await muster.kubectl.pod(a_pod("other", labels={"applicationId": "o", "queue": "root.a"}))
    await until(lambda: "other" in muster.kubelets.ran, "the other runs")
    assert "p" not in muster.kubelets.ran
    await muster.client.request("POST", VOLUMES, volume("pv", "b"))
    await bind_claim(muster, "data", "pv")
    await until(lambda: muster.kubelets.ran.get("p") == "n-b", "it runs where the volume is")
    assert (await condition_of(muster.kubectl, "p"))[0] == "True"


async def test_a_claim_that_waits_for_a_consumer_is_told_the_node_and_the_pod_bound_after_it(
    muster,
):
    await muster.client.request("POST", CLAIMS, claim("data", storage_class="late"))
    await muster.kubectl.pod(with_claim("p", "data"))

    async def told():
        metadata = (await muster.kubectl.get(f"{CLAIMS}/data"))["metadata"]
        return metadata.get("annotations", {}).get(SELECTED_NODE)

    node = await until(told, "its node")
    assert "p" not in muster.kubelets.ran
    await muster.client.request("POST", VOLUMES, volume("pv", node[-1]))
    await bind_claim(muster, "data", "pv")
    await until(lambda: muster.kubelets.ran.get("p") == node, "it runs where it was made")


async def static_class(muster):
    body = {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await muster.client.request("POST", CLASSES, body)


def local_volume(name, zone, size):
    made = volume(name, zone)
    del made["spec"]["csi"]
    made["spec"] |= {
        "storageClassName": "local", "capacity": {"storage": size}, "local": {"path": "/disk"},
    }  # fmt: skip
    return made


def local_claim(name, size):
    made = claim(name, storage_class="local")
    made["spec"]["resources"] = {"requests": {"storage": size}}
    return made


async def bind_what_is_kept(muster, name, to):
    """Do as the controller of volumes: bind a claim to the volume that is kept for it."""
    wanted = (await muster.kubectl.get(f"{CLAIMS}/{name}"))["metadata"]["uid"]

    async def kept():
        found = await muster.kubectl.get(f"{VOLUMES}/{to}")
        return (found["spec"].get("claimRef") or {}).get("uid") == wanted

    await until(kept, f"{to} is kept for {name}")
    return await bind_claim(muster, name, to)


async def test_a_static_local_volume_takes_its_pod_to_its_node(muster):
    """The one that is large enough is on n-b, and is one pod's alone."""
    await static_class(muster)
    await muster.client.request("POST", VOLUMES, local_volume("small", "a", "1Gi"))
    await muster.client.request("POST", VOLUMES, local_volume("large", "b", "10Gi"))
    for at in ("1", "2"):
        await muster.client.request("POST", CLAIMS, local_claim(f"data-{at}", "5Gi"))
        await muster.kubectl.pod(with_claim(f"p{at}", f"data-{at}"))
        if at == "1":
            await bind_what_is_kept(muster, "data-1", "large")
            await until(lambda: muster.kubelets.ran.get("p1") == "n-b", "it is at its volume")
    await until_condition(muster.kubectl, "p2", ("False", "SchedulerError"))
    assert SELECTED_NODE not in (await muster.kubectl.get(f"{CLAIMS}/data-2"))["metadata"].get(
        "annotations", {}
    )
    await muster.client.request("POST", VOLUMES, local_volume("another", "a", "6Gi"))
    await bind_what_is_kept(muster, "data-2", "another")
    await until(lambda: muster.kubelets.ran.get("p2") == "n-a", "it is at the other")


# --- how many a node takes, and who has one for himself ------------------------------------------


async def takes(muster, node, count):
    """Say how many volumes of the driver ``disk`` a node takes."""
    driver = {"name": "disk", "nodeID": node, "topologyKeys": [], "allocatable": {"count": count}}
    body = {"metadata": {"name": node}, "spec": {"drivers": [driver]}}
    try:
        await muster.client.request("POST", CSI_NODES, body)
    except ApiServerError:
        await muster.kubectl.patch(f"{CSI_NODES}/{node}", body)


async def have_claim(muster, name, mode="ReadWriteOnce"):
    await muster.client.request("POST", VOLUMES, volume(f"pv-{name}", mode=mode))
    await muster.client.request("POST", CLAIMS, claim(name, mode=mode))
    await bind_claim(muster, name, f"pv-{name}")


async def why(muster, name):
    """Return why a pod waits, as its condition says it."""
    await until_condition(muster.kubectl, name, ("False", "Unschedulable"))
    conditions = (await muster.kubectl.pods())[name]["status"]["conditions"]
    return next(item["message"] for item in conditions if item["type"] == "PodScheduled")


async def test_a_node_takes_as_many_volumes_as_its_driver_says_foreign_pods_counted(muster):
    for node, count in (("n-a", 1), ("n-b", 2)):
        await takes(muster, node, count)
    for at in range(4):
        await have_claim(muster, f"data-{at}")
    other = with_claim("other", "data-0")
    other["spec"] |= {"schedulerName": "someone-else", "nodeName": "n-b"}
    await muster.kubectl.pod(other)
    await until(lambda: "other" in muster.kubelets.ran, "the other scheduler's pod")
    for at in (1, 2):
        await muster.kubectl.pod(with_claim(f"p{at}", f"data-{at}"))
    await until(lambda: {"p1", "p2"} <= set(muster.kubelets.ran), "both run")
    assert sorted(muster.kubelets.ran[f"p{at}"] for at in (1, 2)) == ["n-a", "n-b"]
    await muster.kubectl.pod(with_claim("p3", "data-3"))
    assert await why(muster, "p3") == (
        "0/2 nodes are available: 2 node(s) exceed max volume count. "
        "2 nodes have enough free, but 1 more volume of disk would be too many on 2 of the 2 "
        "nodes, whose limit is 2 each"
    )
    await muster.kubectl.pod(with_claim("p4", "data-0"))  # which n-b has already
    await until(lambda: muster.kubelets.ran.get("p4") == "n-b", "one that is shared counts once")
    assert "p3" not in muster.kubelets.ran
    await takes(muster, "n-a", 2)
    await until(lambda: muster.kubelets.ran.get("p3") == "n-a", "there is room for it now")


async def test_what_is_attached_is_known_after_a_restart_of_shim_adapter_and_core(muster):
    for node in ("n-a", "n-b"):
        await takes(muster, node, 1)
    for at in range(3):
        await have_claim(muster, f"data-{at}")
    for at in (0, 1):
        await muster.kubectl.pod(with_claim(f"p{at}", f"data-{at}"))
    await until(lambda: {"p0", "p1"} <= set(muster.kubelets.ran), "both run")
    await muster.kill_core()
    await muster.kill_shim()
    await until(muster.is_ready, "the next turn")
    await muster.kubectl.pod(with_claim("p2", "data-2"))
    assert "1 more volume of disk would be too many on 2 of the 2 nodes" in await why(muster, "p2")
    await muster.kubectl.delete("p0", gracePeriodSeconds=0)
    await until(lambda: "p2" in muster.kubelets.ran, "it takes the place")
    assert muster.kubelets.ran["p2"] == muster.kubelets.ran["p0"]


async def test_a_claim_of_one_pod_is_waited_for_by_the_next(muster):
    await have_claim(muster, "mine", mode="ReadWriteOncePod")
    await muster.kubectl.pod(with_claim("p0", "mine"))
    await until(lambda: "p0" in muster.kubelets.ran, "the first runs")
    await muster.kubectl.pod(with_claim("p1", "mine"))
    text = "PersistentVolumeClaim default/mine is ReadWriteOncePod and 1 other pod uses it, on n-"
    assert text in await why(muster, "p1")
    await muster.kubectl.delete("p0", gracePeriodSeconds=0)
    await until(lambda: "p1" in muster.kubelets.ran, "the next runs")


async def test_a_pod_that_waits_for_its_class_runs_once_it_is_there(muster):
    await muster.client.request("POST", CLAIMS, claim("data", storage_class="later"))
    await muster.kubectl.pod(with_claim("p", "data"))
    await until_condition(muster.kubectl, "p", ("False", "SchedulerError"))
    zone = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    body = {
        "metadata": {"name": "later"}, "provisioner": "disk", "allowedTopologies": zone,
        "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    await muster.client.request("POST", CLASSES, body)

    async def is_told():
        made = await muster.kubectl.get(f"{CLAIMS}/data")
        return (made["metadata"].get("annotations") or {}).get(SELECTED_NODE) == "n-b"

    await until(is_told, "the claim is told a node of the class's zone")


# --- the pure part ------------------------------------------------------------------------------


def test_terms_of_several_volumes_hold_together():
    zone, disk = (
        on("a"),
        (NodeTerm((Requirement("disk", "Exists"),)), NodeTerm((Requirement("ssd", "Exists"),))),
    )
    assert both((), zone) == zone
    assert both(zone, ()) == zone
    assert both(zone, disk) == (
        NodeTerm(zone[0].expressions + disk[0].expressions),
        NodeTerm(zone[0].expressions + disk[1].expressions),
    )


def test_what_claims_come_to():
    volumes = Volumes()
    assert volumes.judge("ns", ("c",)).waits == 'persistentvolumeclaim "c" not found'
    volumes.see_claim(("ns", "c"), Claim("", "now"))
    assert volumes.judge("ns", ("c",)).waits == 'persistentvolumeclaim "c" is not bound yet'
    volumes.classes["late"] = StorageClass(True, on("a"))
    volumes.see_claim(("ns", "c"), Claim("", "late"))
    assert volumes.judge("ns", ("c",)).to_make == ("c",)
    assert volumes.judge("ns", ("c",)).terms == on("a")
    volumes.see_claim(("ns", "c"), Claim("pv", "late"))
    assert volumes.judge("ns", ("c",)).waits == 'persistentvolume "pv" not found'
    volumes.name("uid", "ns", ("c",))
    assert volumes.see_volume("pv", Volume(on("b"))) == ["uid"]
    assert volumes.see_volume("pv", Volume(on("b"))) == []
    assert volumes.judge("ns", ("c",)).terms == on("b")
    volumes.forget("uid", "ns", ("c",))
    assert volumes.claimants == {}
    assert volumes.see_claim(("ns", "c"), None) == []


def test_a_free_volume_that_suits_a_claim_is_kept_for_it_alone():
    volumes = Volumes()
    node = NodeRecord("n", {}, {"zone": "a"})
    volumes.classes["local"] = StorageClass(True, static=True)
    asked = Claim("", "local", size=5, modes=("RWO",), selector=(Requirement("disk", "Exists"),))
    for name in ("c", "d"):
        volumes.see_claim(("ns", name), asked)
        volumes.name(f"of-{name}", "ns", (name,))
    waits = volumes.judge("ns", ("c",)).waits
    assert waits == 'no persistent volume is free for claim "c"'
    good = Volume(on("a"), "local", 5, ("RWO", "RWX"), (("disk", "ssd"),))
    for wrong in (
        replace(good, size=4), replace(good, modes=("RWX",)), replace(good, labels=()),
        replace(good, storage_class="other"), replace(good, claim=("ns", "x")),
    ):  # fmt: skip
        volumes.see_volume("pv", wrong)
        assert volumes.judge("ns", ("c",)).waits == waits
    assert volumes.see_volume("pv", good) == ["of-c", "of-d"]
    volumes.see_volume("larger", replace(good, size=9, terms=on("b")))
    assert volumes.judge("ns", ("c",)).terms == on("a", "b")
    assert volumes.reserve("ns", "c", node) == ToMake("c", "pv")
    assert volumes.reserve("ns", "c", node) == ToMake("c", "pv")
    assert volumes.reserve("ns", "d", node) is None
    assert volumes.judge("ns", ("d",)).terms == on("b")
    volumes.release(("ns", "c"))
    assert volumes.reserve("ns", "d", node) == ToMake("d", "pv")
    volumes.see_volume("pv", replace(good, claim=("ns", "d")))
    assert volumes.judge("ns", ("c",)).terms == on("b")


def test_names_of_claims_and_volumes_that_cannot_be_understood():
    spec = {
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "x"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "emptyDir": {}},
        ]
    }
    assert claim_names(spec, "pod") == ("x", "pod-b")
    assert volume_node_selector({"spec": {}}) == ()
    broken = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}}
    assert volume_node_selector(broken) == (NodeTerm(),)  # nowhere, rather than anywhere


def test_zones_may_be_labels_of_the_volume_of_nodes_that_have_such_labels():
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    labels = {zone: "a__b", "failure-domain.beta.kubernetes.io/region": "r"}
    in_zones = (Requirement(zone, "In", ("a", "b")), Requirement(region, "In", ("r",)))
    nowhere = (Requirement(zone, "DoesNotExist"), Requirement(region, "DoesNotExist"))
    assert volume_node_selector({"metadata": {"labels": labels}}) == (
        NodeTerm(in_zones),
        NodeTerm(nowhere),
    )


def test_terms_that_say_the_same_are_one_and_there_are_not_too_many():
    a, b = on("a"), on("b")
    other = NodeTerm((Requirement("disk", "Exists"),))
    assert merged((*a, other, *b, other)) == (*on("a", "b"), other)
    assert both(a, a) == a
    volumes = Volumes()
    names = tuple(f"c{at}" for at in range(20))
    for at, name in enumerate(names):
        volumes.see_claim(("ns", name), Claim(name, ""))
        terms = tuple(NodeTerm((Requirement(f"k{at}-{n}", "Exists"),)) for n in range(4))
        volumes.see_volume(name, Volume(terms))
    assert len(volumes.judge("ns", names[:4]).terms) == 4**4
    assert f"more than {MAX_TERMS} ways" in volumes.judge("ns", names).waits


def test_what_is_attached_is_named_where_two_pods_have_it_and_is_alike_otherwise():
    volumes = Volumes()
    once = "ReadWriteOncePod"
    raw_volume = volume("pv", mode=once)
    volumes.see_claim(("ns", "c"), Claim("pv", "", modes=(once,)))
    volumes.see_volume("pv", volume_of(raw_volume))
    late = {"provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"}
    volumes.see_class("late", storage_class(late))
    volumes.see_claim(("ns", "d"), claim_of(claim("d", storage_class="late")))
    claims = ("d", "c", "none")
    assert volumes.name("first", "ns", claims) == []
    alone = (AttachedVolume("disk"), AttachedVolume("ebs.csi.aws.com"))
    assert volumes.attached("ns", claims) == alone
    assert volumes.name("second", "ns", ("c",)) == ["first"]
    shared = AttachedVolume("disk", "ns/c", exclusive=True)
    assert volumes.attached("ns", claims) == (shared, AttachedVolume("ebs.csi.aws.com"))
    assert volumes.name("third", "ns", ("c",)) == []
    for uid in ("first", "second", "third"):
        volumes.forget(uid, "ns", claims)
    assert volumes.attached("ns", claims) == alone


def test_limits_of_drivers_that_say_none_or_nonsense():
    drivers = [
        {"name": "a", "allocatable": {"count": 2}}, {"name": "b"}, {"name": "c", "allocatable": {}},
        {"name": "d", "allocatable": {"count": 10**12}}, {"name": "e", "allocatable": {"count": "x"}},
        {"name": "f", "allocatable": {"count": 0}},
    ]  # fmt: skip
    found = volume_limits({"spec": {"drivers": drivers}})
    assert found == {"a": 2, "d": 2**31 - 1, "f": 0}
    assert volume_limits({"spec": {}}) == {}


def test_claims_that_have_gone_leave_nothing_behind_and_a_volume_that_returns_is_told():
    volumes = Volumes()
    empty = vars(Volumes())
    for at in range(3):
        name = ("ns", f"c{at}")
        volumes.see_claim(name, Claim("", "late"))
        volumes.see_claim(name, Claim("pv", "late"))
    volumes.name("uid", "ns", ("c1",))
    assert volumes.see_volume("pv", Volume()) == ["uid"]
    assert volumes.see_volume("pv", None) == []
    assert volumes.see_volume("pv", Volume()) == ["uid"]
    volumes.forget("uid", "ns", ("c1",))
    for at in range(3):
        volumes.see_claim(("ns", f"c{at}"), None)
    volumes.see_volume("pv", None)
    assert vars(volumes) == empty
