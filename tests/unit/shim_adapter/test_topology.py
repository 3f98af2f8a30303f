"""What task groups, PodGroups and annotations say of the topology of a gang."""

import json

import pytest

from services.shim_adapter.backends.kubernetes.sources import gangs_of
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.task_groups import task_groups_of
from services.shim_adapter.translation.topology import layout_of, of_kueue, topology_of, written
from services.shim_adapter.translation.workloads.pod_groups import (
    CORE,
    KAI,
    VOLCANO,
    without_hyper_nodes,
)
from services.shim_adapter.translation.workloads.replicas import Network
from shared.messages.commands import TaskGroupSpec
from shared.messages.interface import NO_TOPOLOGY, Slice, SubGroup, TopologyConstraint

RACK = TopologyConstraint(required="rack")


def near(**wish):
    return TopologyConstraint(**wish)


@pytest.mark.parametrize(
    ("stated", "wish"),
    [
        (None, NO_TOPOLOGY),
        ({"required": "rack"}, RACK),
        ({"Required": "block", "preferred": "rack"}, near(required="block", preferred="rack")),
        ({"unconstrained": True}, near(is_unconstrained=True)),
        ({"preferred": "rack", "balanced": True}, near(preferred="rack", is_balanced=True)),
        ({"slices": {"level": "rack", "size": 4}}, near(slices=(Slice("rack", 4),))),
        (
            {"slices": [{"level": "block", "size": 8}, {"topology": "rack", "size": 4}]},
            near(slices=(Slice("block", 8), Slice("rack", 4))),
        ),
    ],
)
def test_a_task_group_says_what_it_wishes(stated, wish):
    assert topology_of(stated, 16) == (wish, "")
    assert wish == NO_TOPOLOGY or topology_of(written(wish, "g"), 16) == (wish, "g")


@pytest.mark.parametrize(
    ("stated", "rule"),
    [
        ("rack", "a map was expected"),
        ({"rack": 1}, "there is no 'rack'"),
        ({"required": 7}, "required: a name was expected"),
        ({"required": "rack", "unconstrained": True}, "unconstrained excludes required"),
        ({"balanced": True}, "balanced needs a preferred level"),
        ({"balanced": "yes", "preferred": "rack"}, "true or false"),
        ({"slices": {"level": "rack", "size": 5}}, "slice of 5 by rack does not divide the number"),
        ({"slices": {"level": "rack", "size": 0}}, "a size of at least 1"),
        ({"slices": {"size": 2}}, "a level and a size"),
        ({"slices": [{"level": "a", "size": 4}] * 4}, "4 slices in one another, at most 3"),
        (
            {"slices": [{"level": "block", "size": 4}, {"level": "rack", "size": 3}]},
            "does not divide the slice around it, 4",
        ),
        ({"levels": "rack"}, "a list of labels"),
        ({"levels": ["rack"] * 17}, "at most 16"),
    ],
)
def test_what_breaks_a_rule_is_a_wish_that_names_it(stated, rule):
    wish, _ = topology_of(stated, 16)
    assert rule in wish.wrong
    group = {"name": "w", "minMember": 16, "minResource": {"cpu": 1}, "topology": stated}
    (read,) = task_groups_of(json.dumps([group]))  # the gang is there, and waits
    assert read.topology == wish


K = "kueue.x-k8s.io/podset-"


@pytest.mark.parametrize(
    ("annotations", "wish"),
    [
        ({}, NO_TOPOLOGY),
        ({f"{K}required-topology": "rack"}, RACK),
        ({f"{K}preferred-topology": "rack"}, near(preferred="rack")),
        ({f"{K}unconstrained-topology": "true"}, near(is_unconstrained=True)),
        (
            {f"{K}preferred-topology": "block", f"{K}slice-required-topology": "rack",
             f"{K}slice-size": "4"},
            near(preferred="block", slices=(Slice("rack", 4),)),
        ),
        (
            {f"{K}slice-required-topology-constraints":
             '[{"topology": "block", "size": 8}, {"topology": "rack", "size": 4}]'},
            near(slices=(Slice("block", 8), Slice("rack", 4))),
        ),
    ],
)  # fmt: skip
def test_kueue_s_annotations_say_the_same(annotations, wish):
    assert of_kueue(annotations, 16) == (wish, "")


@pytest.mark.parametrize(
    ("annotations", "rule"),
    [
        ({f"{K}required-topology": "a", f"{K}preferred-topology": "b"}, "exclude each other"),
        ({f"{K}required-topology": "a", f"{K}unconstrained-topology": "true"}, "exclude each"),
        ({f"{K}slice-required-topology": "a"}, "need each other"),
        ({f"{K}slice-required-topology": "a", f"{K}slice-size": "x"}, "a size of at least 1"),
        ({f"{K}slice-required-topology": "a", f"{K}slice-size": "3"}, "does not divide"),
        ({f"{K}slice-required-topology-constraints": "{"}, "not JSON"),
        (
            {f"{K}slice-required-topology-constraints": "[]", f"{K}slice-size": "3"},
            "exclude each other",
        ),
    ],
)
def test_annotations_that_contradict_each_other_name_the_rule(annotations, rule):
    assert rule in of_kueue(annotations, 16)[0].wrong


def test_task_groups_that_go_together_are_parts_of_one():
    groups = [TaskGroupSpec(name, 2, {"vcore": 1}, topology=RACK, together="g") for name in "ab"]
    parent = "topology group g"
    assert layout_of(groups) == (
        SubGroup(parent, "", -1, is_group=True, topology=RACK),
        SubGroup("a", parent, 2),
        SubGroup("b", parent, 2),
    )
    other = TaskGroupSpec("c", 2, {"vcore": 1}, topology=near(required="block"), together="g")
    assert "wish different levels" in layout_of([*groups, other])[0].topology.wrong
    assert layout_of([TaskGroupSpec("a", 2, {"vcore": 1})]) == ()


def pod_group(kind, **spec):
    found = gangs_of(kind, {"metadata": {"name": "g"}, "spec": spec})
    return found if isinstance(found, str) else found[""]


def test_a_pod_group_of_core_kubernetes_names_one_label():
    gang = {"gang": {"minCount": 2}}
    rack = {"topology": [{"key": "rack"}]}
    found = pod_group(CORE, schedulingPolicy=gang, schedulingConstraints=rack)
    assert found.topology == TopologyConstraint(("rack",), required="rack")
    two = {"topology": [{"key": "rack"}, {"key": "block"}]}
    said = pod_group(CORE, schedulingPolicy=gang, schedulingConstraints=two)
    assert said == "spec.schedulingConstraints.topology: one label is expected, as its key"
    alone = pod_group(CORE, schedulingPolicy={"basic": {}}, schedulingConstraints=rack)
    assert (alone.terms.minimum, alone.terms.topology) == (1, found.topology)


def test_a_pod_group_of_kai_names_levels_for_itself_and_its_parts():
    stated = {"topology": "t", "requiredTopologyLevel": "block", "preferredTopologyLevel": "rack"}
    part = {"name": "a", "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}
    found = pod_group(KAI, topologyConstraint=stated, subGroups=[part])
    assert found.terms.topology == near(required="block", preferred="rack")
    assert found.terms.subgroups[0].topology == RACK
    alone = pod_group(KAI, topologyConstraint={"requiredTopologyLevel": "rack"})
    assert alone.terms.topology.wrong == "topology: the required level rack is of none"


def test_volcano_s_network_topology_names_a_tier():
    assert pod_group(VOLCANO, networkTopology={"highestTierName": "rack"}).topology == RACK
    soft = {"mode": "soft", "highestTierName": "rack"}
    assert pod_group(VOLCANO, networkTopology=soft).topology == near(preferred="rack")
    assert pod_group(VOLCANO, networkTopology={"mode": "soft"}).topology == NO_TOPOLOGY
    assert pod_group(VOLCANO, networkTopology=soft).network == Network(None, "rack", is_soft=True)
    both = {"highestTierName": "rack", "highestTierAllowed": 1}
    assert "exclude each other" in pod_group(VOLCANO, networkTopology=both).topology.wrong
    by_number = pod_group(VOLCANO, networkTopology={"highestTierAllowed": 1})
    assert by_number.network == Network(1)
    with pytest.raises(ManifestError, match="need HyperNodes"):
        without_hyper_nodes(by_number)
