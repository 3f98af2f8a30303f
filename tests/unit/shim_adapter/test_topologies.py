"""Trees of others: what a Topology or a HyperNode says, and what gangs that name them get."""

import pytest

from services.shim_adapter.backends.kubernetes.sources import gangs_of
from services.shim_adapter.backends.kubernetes.topologies import (
    HYPER_NODE,
    KAI_TOPOLOGY,
    KUEUE_TOPOLOGY,
    Topologies,
)
from services.shim_adapter.translation.workloads.pod_groups import JOB, JOBSET, VOLCANO
from shared.messages.interface import Slice, TopologyConstraint

KUEUE = "kueue.x-k8s.io/podset-"


def topology(*labels):
    return {"spec": {"levels": [{"nodeLabel": label} for label in labels]}}


def hyper_node(tier, *selectors, of="Node", **more):
    members = [{"type": of, "selector": selector} for selector in selectors]
    return {"spec": {"tier": tier, "members": members, **more}}


def exact(name):
    return {"exactMatch": {"name": name}}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ((), "1 to 16 of them, found 0"),
        (tuple(f"l{at}" for at in range(17)), "found 17"),
        (("a", "a"), "two have the same label"),
        (("kubernetes.io/hostname", "a"), "may only be the last"),
        (("",), "spec.levels[0].nodeLabel"),
    ],
)
def test_a_topology_that_does_not_hold_says_which_rule_it_breaks(labels, words):
    found = Topologies()
    found.see(KUEUE_TOPOLOGY, "t", topology(*labels))
    assert words in found.kueue["t"]
    assert found.levels == ""
    annotations = {f"{KUEUE}required-topology": "a"}
    spec = {"template": {"metadata": {"annotations": annotations}}}
    (gang,) = gangs_of(JOB, {"metadata": {"name": "j"}, "spec": spec}).values()
    assert words in found.resolved(gang)


def test_the_levels_of_the_cluster_are_kueues_then_kais_then_the_tiers():
    found = Topologies()
    found.see(HYPER_NODE, "s", hyper_node(1, exact("n"), tierName="switch"))
    found.see(HYPER_NODE, "t", hyper_node(2, exact("s"), of="HyperNode"))
    tiers = "tier-2=topology.volcano.sh/tier-2,switch=topology.volcano.sh/tier-1"
    assert found.levels == tiers
    found.see(KAI_TOPOLOGY, "k", topology("zone", "rack"))
    assert found.levels == "zone,rack"
    assert found.see(KUEUE_TOPOLOGY, "b", topology("block"))
    assert found.levels == "block"
    assert not found.see(KUEUE_TOPOLOGY, "b", topology("block"))
    found.see(KUEUE_TOPOLOGY, "b", None)
    found.see(KAI_TOPOLOGY, "k", None)
    assert found.levels == tiers


def test_nodes_are_in_hyper_nodes_by_name_pattern_and_labels():
    found = Topologies()
    labels = {"labelMatch": {"matchLabels": {"rack": "c"}}}
    pattern = {"regexMatch": {"pattern": "^b[0-9]$"}}
    found.see(HYPER_NODE, "s1", hyper_node(1, exact("a1"), exact("gone")))
    found.see(HYPER_NODE, "s2", hyper_node(1, pattern, labels))
    found.see(HYPER_NODE, "top", hyper_node(2, {"regexMatch": {"pattern": "^s"}}, of="HyperNode"))
    found.see(HYPER_NODE, "loop", hyper_node(3, exact("loop"), exact("top"), of="HyperNode"))
    nodes = {"a1": {}, "b1": {}, "bb": {}, "c9": {"rack": "c"}}
    tier = "topology.volcano.sh/tier-"
    assert found.tiers_of(nodes) == {
        "a1": {f"{tier}1": "s1", f"{tier}2": "top", f"{tier}3": "loop"},
        "b1": {f"{tier}1": "s2", f"{tier}2": "top", f"{tier}3": "loop"},
        "c9": {f"{tier}1": "s2", f"{tier}2": "top", f"{tier}3": "loop"},
    }


@pytest.mark.parametrize(
    ("stated", "required", "preferred"),
    [
        ({"highestTierAllowed": 1}, "1", ""),
        ({"highestTierAllowed": 2}, "2", "1"),
        ({"highestTierAllowed": 9}, "2", "1"),
        ({"highestTierName": "top"}, "2", "1"),
        ({"mode": "soft"}, "", "1"),
        ({"mode": "soft", "highestTierAllowed": 2}, "", "1"),
        ({"mode": "hard"}, "2", "1"),
    ],
)
def test_a_tier_is_the_outer_bound_and_the_nearest_is_preferred(stated, required, preferred):
    found = Topologies()
    found.see(HYPER_NODE, "s", hyper_node(1, exact("n")))
    found.see(HYPER_NODE, "t", hyper_node(2, exact("s"), of="HyperNode", tierName="top"))
    body = {"metadata": {"name": "g"}, "spec": {"networkTopology": stated}}
    gang = found.resolved(gangs_of(VOLCANO, body)[""])
    tier = "topology.volcano.sh/tier-"
    assert gang.topology == TopologyConstraint(
        (f"{tier}2", f"{tier}1"),
        required and f"{tier}{required}",
        preferred and f"{tier}{preferred}",
    )


def test_the_pod_sets_of_a_job_set_are_gangs_and_those_of_one_group_are_one():
    def replicated(name, pods, replicas, **annotations):
        named = {f"{KUEUE}{key.replace('_', '-')}": value for key, value in annotations.items()}
        job = {"parallelism": pods, "template": {"metadata": {"annotations": named}}}
        return {"name": name, "replicas": replicas, "template": {"spec": job}}

    spec = {
        "replicatedJobs": [
            replicated("leader", 1, 1, required_topology="block", group_name="g"),
            replicated("workers", 4, 2, required_topology="block", group_name="g"),
            replicated("sliced", 4, 2, preferred_topology="block", slice_required_topology="rack"),
            replicated("plain", 9, 1),
        ]
    }
    found = gangs_of(JOBSET, {"metadata": {"name": "s"}, "spec": spec})
    assert {name: gang.minimum for name, gang in found.items()} == {"g": 9, "sliced": 8}
    assert found["g"].topology == TopologyConstraint(required="block")
    assert found["sliced"].topology.slices == (Slice("rack", 4),)
    apart = replicated("other", 1, 1, required_topology="rack", group_name="g")
    spec["replicatedJobs"].append(apart)
    wrong = gangs_of(JOBSET, {"metadata": {"name": "s"}, "spec": spec})["g"].topology.wrong
    assert "wish different" in wrong
