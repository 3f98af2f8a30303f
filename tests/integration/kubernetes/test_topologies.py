"""The trees of others: Kueue's and KAI's Topology, Volcano's HyperNodes, and the jobs that name them."""

import pytest

from services.shim_adapter.backends.kubernetes import discovery, pod_groups
from tests.integration.kubernetes.test_backend import QUEUES
from tests.kubernetes import groups
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

QUEUE = {"queue": "root.a"}
KUEUE = "kueue.x-k8s.io/podset-"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
VOLCANOS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
KAIS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"


@pytest.fixture
async def muster(double, server, monkeypatch):
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.1)
    monkeypatch.setattr(pod_groups, "TELL_SECONDS", 0)
    for kind in (groups.KUEUE_TOPOLOGY, groups.KAI_TOPOLOGY, groups.HYPER_NODE, groups.JOBSET,
                 groups.VOLCANO, groups.KAI):  # fmt: skip
        double.serve(*kind)
    await server.kubectl.config(QUEUES)
    async with muster_over(server.access, server.kubectl) as running:
        yield running


async def nodes(muster, racks, cpu="1"):
    for name, path in racks.items():
        block, rack = path.split("/")
        await muster.kubectl.node(
            name, {"block": block, "rack": rack}, cpu=cpu, memory="8Gi", pods="40"
        )


async def post(muster, kind, name, spec, path=""):
    version, plural, of = kind
    body = {"apiVersion": version, "kind": of, "metadata": {"name": name}, "spec": spec}
    return await muster.kubectl.client.request("POST", path or f"/apis/{version}/{plural}", body)


async def topology(muster, kind, name, *labels):
    await post(muster, kind, name, {"levels": [{"nodeLabel": label} for label in labels]})


async def hyper_node(muster, name, tier, *members, of="Node", **more):
    chosen = [{"type": of, "selector": {"exactMatch": {"name": each}}} for each in members]
    await post(muster, groups.HYPER_NODE, name, {"tier": tier, "members": chosen, **more})


async def job(muster, name, pods, annotations):
    """Make a Job, and its pods as its controller would."""
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": []}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    await post(muster, ("batch/v1", "jobs", "Job"), name, spec, JOBS)
    for at in range(pods):
        pod = a_pod(f"{name}-{at}", cpu="800m", labels=QUEUE, annotations=annotations)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "1"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await muster.kubectl.pod(pod)
    return [f"{name}-{at}" for at in range(pods)]


async def until_running(muster, *names):
    await until(lambda: all(name in muster.kubelets.ran for name in names), f"{names} run")
    return sorted(muster.kubelets.ran[name] for name in names)


async def until_one_waits(muster, words):
    async def says():
        found = (await muster.kubectl.pods()).values()
        conditions = [item for pod in found for item in pod["status"].get("conditions", ())]
        return any(words in item.get("message", "") for item in conditions)

    await until(says, f"a pod says {words!r}")


async def test_a_job_with_kueues_annotations_is_in_one_rack_of_its_topology(muster):
    await topology(muster, groups.KUEUE_TOPOLOGY, "default", "block", "rack")
    await nodes(muster, {"n1": "b1/r1", "n2": "b1/r2", "n3": "b2/r1", "n4": "b2/r1"})
    names = await job(muster, "train", 2, {f"{KUEUE}required-topology": "rack"})
    assert await until_running(muster, *names) == ["n3", "n4"]  # r1 of b1 is another rack
    await job(muster, "wide", 3, {f"{KUEUE}required-topology": "rack"})
    await until_one_waits(muster, "of 3 domains of level rack the best")


async def test_preferred_unconstrained_and_wrong_annotations_of_a_job(muster):
    await topology(muster, groups.KUEUE_TOPOLOGY, "default", "block", "rack")
    await nodes(muster, {"n1": "b1/r1", "n2": "b2/r1", "n3": "b2/r2"})
    await job(muster, "none", 1, {f"{KUEUE}required-topology": "row"})
    await until_one_waits(muster, "there is no topology level row: the levels are block, rack")
    names = await job(muster, "near", 2, {f"{KUEUE}preferred-topology": "rack"})
    assert await until_running(muster, *names) == ["n2", "n3"]
    names = await job(muster, "any", 1, {f"{KUEUE}unconstrained-topology": "true"})
    await until_running(muster, *names)
    both = {f"{KUEUE}required-topology": "rack", f"{KUEUE}preferred-topology": "rack"}
    await job(muster, "both", 1, both)
    await until_one_waits(muster, "exclude each other")


async def test_a_topology_that_comes_later_lets_the_job_start(muster):
    await nodes(muster, {"n1": "b1/r1", "n2": "b1/r1"})
    names = await job(muster, "train", 2, {f"{KUEUE}required-topology": "rack"})
    await until_one_waits(muster, "there is no topology level rack")
    await topology(muster, groups.KUEUE_TOPOLOGY, "default", "block", "rack")
    await until_running(muster, *names)


async def test_the_slices_of_a_job_set_are_as_large_as_its_jobs(muster):
    await topology(muster, groups.KUEUE_TOPOLOGY, "default", "block", "rack")
    racks = {"n1": "b1/r1", "n2": "b1/r1", "n3": "b1/r2", "n4": "b2/r1", "n5": "b2/r1",
             "n6": "b2/r2", "n7": "b2/r2"}  # fmt: skip
    await nodes(muster, racks)
    annotations = {
        f"{KUEUE}required-topology": "block", f"{KUEUE}slice-required-topology": "rack",
    }  # fmt: skip
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": []}}
    of_jobs = {"spec": {"parallelism": 2, "completions": 2, "template": template}}
    spec = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": of_jobs}]}
    await post(muster, groups.JOBSET, "set", spec, JOBSETS)
    names = []
    for at in range(4):
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "w",
        }  # fmt: skip
        names.append(f"set-w-{at // 2}-{at % 2}")
        labels |= QUEUE
        await muster.kubectl.pod(
            a_pod(names[-1], cpu="800m", labels=labels, annotations=annotations)
        )
    assert await until_running(muster, *names) == ["n4", "n5", "n6", "n7"]


async def test_kais_topology_is_named_by_its_group_and_waited_for(muster):
    await topology(muster, groups.KAI_TOPOLOGY, "net", "block", "rack")
    await nodes(muster, {"n1": "b1/r1", "n2": "b2/r1", "n3": "b2/r1"})

    async def gang(name, of):
        constraint = {"topology": of, "requiredTopologyLevel": "rack"}
        spec = {"minMember": 2, "topologyConstraint": constraint}
        await post(muster, groups.KAI, name, spec, KAIS)
        for at in range(2):
            pod = a_pod(f"{name}{at}", cpu="800m", labels=QUEUE)
            pod["metadata"]["annotations"] = {"pod-group-name": name}
            await muster.kubectl.pod(pod)

    await gang("g", "other")
    await until_one_waits(muster, "Topology.kai.scheduler other is not there")
    await topology(muster, groups.KAI_TOPOLOGY, "other", "rack")
    assert len(await until_running(muster, "g0", "g1")) == 2
    for name in ("g0", "g1"):
        await muster.kubectl.delete(name, gracePeriodSeconds=0)
    await gang("h", "net")
    assert await until_running(muster, "h0", "h1") == ["n2", "n3"]


async def test_the_groups_of_a_pod_gang_of_grove_start_together_each_where_it_says(muster, double):
    double.serve(*groups.GROVE)
    await nodes(muster, {"n1": "b1/r1", "n2": "b2/r1", "n3": "b2/r1", "n4": "b2/r2"})
    rack = {"topologyConstraint": {"packConstraint": {"required": "rack"}}}
    parts = [{"name": "w", "minReplicas": 2, **rack}, {"name": "l", "minReplicas": 1}]
    block = {"packConstraint": {"required": "block", "preferred": "rack"}}
    spec = {"podgroups": parts, "topologyConstraint": block}
    path = f"/apis/{groups.GROVE[0]}/namespaces/default/podgangs"
    await post(muster, groups.GROVE, "gang", spec, path)
    for name, clique in (("w0", "w"), ("l0", "l"), ("w1", "w")):
        labels = {"grove.io/podgang": "gang", "grove.io/podclique": clique, **QUEUE}
        if name == "w1":
            await until_one_waits(muster, "2 of w, 1 of l must start together")
        await muster.kubectl.pod(a_pod(name, cpu="800m", labels=labels))
    assert await until_running(muster, "w0", "w1", "l0") == ["n2", "n3", "n4"]
    assert muster.kubelets.ran["l0"] == "n4"


async def volcanos(muster, name, pods, network):
    await post(
        muster, groups.VOLCANO, name, {"minMember": pods, "networkTopology": network}, VOLCANOS
    )
    for at in range(pods):
        pod = a_pod(f"{name}{at}", cpu="800m", labels=QUEUE)
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
        await muster.kubectl.pod(pod)
    return [f"{name}{at}" for at in range(pods)]


async def until_levels(muster, levels):
    def is_known():
        return muster.world.scheduler_settings.get("topologyLevels") == levels

    await until(is_known, f"the levels are {levels}")


async def test_hyper_nodes_are_the_tree_of_volcanos_groups_and_change_live(muster):
    await nodes(muster, {f"n{at}": "b/r" for at in range(1, 5)})
    await hyper_node(muster, "s1", 1, "n1", "n2")
    await hyper_node(muster, "s2", 1, "n3", "n4", tierName="switch")
    await hyper_node(muster, "top", 2, "s1", "s2", of="HyperNode")
    levels = "tier-2=topology.volcano.sh/tier-2,switch=topology.volcano.sh/tier-1"
    await until_levels(muster, levels)
    names = await volcanos(muster, "two", 2, {"mode": "hard", "highestTierAllowed": 1})
    placed = await until_running(muster, *names)
    assert placed in (["n1", "n2"], ["n3", "n4"])
    for name in names:
        await muster.kubectl.delete(name, gracePeriodSeconds=0)
    await volcanos(muster, "three", 3, {"mode": "hard", "highestTierAllowed": 1})
    await until_one_waits(muster, "of 2 domains of level switch the best")
    path = f"/apis/{groups.HYPER_NODE[0]}/hypernodes/s1"
    pattern = {"type": "Node", "selector": {"regexMatch": {"pattern": "^n[1-3]$"}}}
    await muster.kubectl.patch(path, {"spec": {"members": [pattern]}})
    assert await until_running(muster, "three0", "three1", "three2") == ["n1", "n2", "n3"]


async def test_a_soft_wish_takes_the_nearest_tier_that_holds_all_and_a_higher_one_if_none_does(
    muster,
):
    await nodes(muster, {f"n{at}": "b/r" for at in range(1, 5)})
    await hyper_node(muster, "s1", 1, "n1", "n2")
    await hyper_node(muster, "s2", 1, "n3", "n4")
    await hyper_node(muster, "top", 2, "s1", "s2", of="HyperNode")
    levels = "tier-2=topology.volcano.sh/tier-2,tier-1=topology.volcano.sh/tier-1"
    await until_levels(muster, levels)
    names = await volcanos(muster, "three", 3, {"mode": "soft"})
    await until_running(muster, *names)
    await volcanos(muster, "deep", 1, {"highestTierAllowed": 0})
    await until_one_waits(muster, "there is no HyperNode of tier 0 or below")


async def plain_group(muster, name, total, annotations, *, leader=None):
    """Make plain pods of a group of Kueue's; the first wishes what ``leader`` has, if any."""
    names = []
    for at in range(3):
        wish = annotations if at or leader is None else leader
        stated = {"kueue.x-k8s.io/pod-group-total-count": total, **wish}
        labels = {"kueue.x-k8s.io/pod-group-name": name, **QUEUE}
        names.append(f"{name}-{at}")
        await muster.kubectl.pod(a_pod(names[-1], cpu="800m", labels=labels, annotations=stated))
    return names


async def test_the_plain_pods_of_a_group_of_kueues_are_in_one_rack(muster):
    await topology(muster, groups.KUEUE_TOPOLOGY, "default", "block", "rack")
    await nodes(muster, {"n1": "b1/r1", "n2": "b1/r1", "n3": "b2/r1", "n4": "b2/r1", "n5": "b2/r1"})
    wish = {f"{KUEUE}required-topology": "rack"}
    await plain_group(muster, "four", "4", wish)
    await until_one_waits(
        muster, "PodGroup.kueue.x-k8s.io default/four: 4 pods must start together"
    )
    names = await plain_group(muster, "three", "3", wish)
    assert await until_running(muster, *names) == ["n3", "n4", "n5"]
    for name in names:
        await muster.kubectl.delete(name, gracePeriodSeconds=0)
    names = await plain_group(muster, "three", "3", {f"{KUEUE}preferred-topology": "rack"})
    assert await until_running(muster, *names) == ["n3", "n4", "n5"]  # another group of that name


async def test_plain_pods_that_state_their_group_differently_wait_and_say_so(muster):
    await topology(muster, groups.KUEUE_TOPOLOGY, "default", "block", "rack")
    await nodes(muster, {"n1": "b1/r1", "n2": "b1/r1", "n3": "b1/r1"})
    wish, other = ({f"{KUEUE}{kind}-topology": "rack"} for kind in ("required", "preferred"))
    await plain_group(muster, "mixed", "3", wish, leader=other)
    await until_one_waits(muster, "its pods state different totals, or wish different levels")
    await plain_group(muster, "many", "x", wish)
    await until_one_waits(muster, "1 to 10000 pods were expected, found 'x'")
    assert muster.kubelets.ran == {}


async def labelled(muster, *names):
    """Make pods of Volcano's group w, each of the subgroup that its name begins with."""
    for name in names:
        label, cpu = ({}, "100m") if name == "head" else ({"replica": name[0]}, "800m")
        pod = a_pod(name, cpu=cpu, labels={**QUEUE, **label})
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "w"}
        await muster.kubectl.pod(pod)


async def test_volcanos_subgroup_policy_starts_as_many_as_are_needed_each_in_a_hyper_node(
    muster,
):
    await nodes(muster, {f"n{at}": "b/r" for at in range(1, 7)})
    for name, members in (("s1", "14"), ("s2", "25"), ("s3", "36")):
        await hyper_node(muster, name, 1, *(f"n{each}" for each in members))
    await until_levels(muster, "tier-1=topology.volcano.sh/tier-1")
    policy = {
        "name": "r", "matchLabelKeys": ["replica"], "subGroupSize": 2, "minSubGroups": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }  # fmt: skip
    await labelled(muster, "a0", "b0", "head")  # before their PodGroup
    await until_one_waits(muster, "PodGroup.scheduling.volcano.sh default/w is not there")
    spec = {"minMember": 5, "subGroupPolicy": [policy]}
    await post(muster, groups.VOLCANO, "w", spec, VOLCANOS)
    await until_one_waits(muster, "1 of w, 2 of r/a, 2 of r/b must start together")
    assert muster.kubelets.ran == {}
    await labelled(muster, "a1", "b1")
    await until_running(muster, "a0", "a1", "b0", "b1", "head")
    pairs = {tuple(await until_running(muster, f"{each}0", f"{each}1")) for each in "ab"}
    assert pairs < {("n1", "n4"), ("n2", "n5"), ("n3", "n6")}
    await labelled(muster, "c0")
    await muster.kubectl.pod(a_pod("other", cpu="100m", labels=QUEUE))
    await until_running(muster, "other")
    assert "c0" not in muster.kubelets.ran  # one more subgroup starts as a whole
    await labelled(muster, "c1")
    pairs.add(tuple(await until_running(muster, "c0", "c1")))
    assert pairs == {("n1", "n4"), ("n2", "n5"), ("n3", "n6")}
