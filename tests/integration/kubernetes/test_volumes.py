"""Pods with volumes of claims: where the volume is, where it is to be made, and what waits for it."""

from dataclasses import replace

import pytest

from services.shim_adapter.backends.kubernetes.volumes import (
    SELECTED_NODE,
    Claim,
    StorageClass,
    ToMake,
    Volume,
    Volumes,
    both,
    claim_names,
    volume_terms,
)
from services.shim_adapter.records import NodeRecord
from shared.messages.constraints import NodeTerm, Requirement
from tests.integration.kubernetes.test_backend import QUEUES, condition_of, until_condition
from tests.kubernetes.double import Double, a_pod
from tests.kubernetes.harness import Access, ApiClient, Kubectl, muster_over
from tests.patience import until

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def on(zone):
    return (NodeTerm((Requirement("zone", "In", (zone,)),)),)


def with_claim(name, claim):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    labels = {"applicationId": "app", "queue": "root.a"}
    return a_pod(name, labels=labels, volumes=[volume])


def volume(name, zone):
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"metadata": {"name": name}, "spec": {"nodeAffinity": {"required": required}}}


def claim(name, *, bound_to="", storage_class=""):
    phase = "Bound" if bound_to else "Pending"
    return {
        "metadata": {"name": name},
        "spec": {"volumeName": bound_to, "storageClassName": storage_class},
        "status": {"phase": phase},
    }


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
    await client.request(
        "POST", CLASSES, {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
    )
    await client.request(
        "POST", CLASSES, {"metadata": {"name": "now"}, "volumeBindingMode": "Immediate"}
    )
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
        await muster.client.request("POST", CLAIMS, claim(f"data-{zone}", bound_to=f"pv-{zone}"))
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
    for _ in range(500):
        told = (await muster.kubectl.get(f"{CLAIMS}/data"))["metadata"].get("annotations", {})
        if SELECTED_NODE in told:
            break
    node = told[SELECTED_NODE]
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
    made["spec"] |= {
        "storageClassName": "local", "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
    }  # fmt: skip
    return made


def local_claim(name, size):
    made = claim(name, storage_class="local")
    made["spec"] |= {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]}
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
    assert volumes.judge("ns", ("c",)).terms == on("a") + on("b")
    assert volumes.keep("ns", "c", node) == ToMake("c", "pv")
    assert volumes.keep("ns", "c", node) == ToMake("c", "pv")
    assert volumes.keep("ns", "d", node) is None
    assert volumes.judge("ns", ("d",)).terms == on("b")
    volumes.keep_no_more(("ns", "c"))
    assert volumes.keep("ns", "d", node) == ToMake("d", "pv")
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
    assert volume_terms({"spec": {}}) == ()
    broken = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}}
    assert volume_terms(broken) == (NodeTerm(),)  # nowhere, rather than anywhere


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
