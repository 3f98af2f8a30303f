"""The oracle finds what is wrong: what it is shown here must not hold."""

import pytest

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationPhase, ApplicationRecord, PodPhase, PodRecord
from shared.messages.commands import PodSpec
from tests.chaos.faults import Failover, slowness
from tests.chaos.load import submitted
from tests.chaos.oracle import of_application, replicas_agree, sums_are_exact


def world_of(*pods, phase=ApplicationPhase.ENDED):
    world = World()
    world.add_application(ApplicationRecord("a", 1, phase=phase))
    for number, (name, pod_phase, placeholder) in enumerate(pods):
        spec = PodSpec(name, "a", {"vcore": 1}, placeholder=placeholder)
        world.add_pod(PodRecord(f"uid-{number}", spec, 1, number, phase=pod_phase))
    return world


def wanted(**more):
    item = submitted("a", 2, 1)
    item.is_accepted = True
    for name, value in more.items():
        setattr(item, name, value)
    return item


RAN = [("p-0", PodPhase.SUCCEEDED, False), ("p-1", PodPhase.SUCCEEDED, False)]


def test_every_pod_once_is_right():
    assert of_application(world_of(*RAN), wanted()) == []


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([*RAN, RAN[0]], "the pod p-0 is there 2 times"),
        (RAN[:1], "2 pods were to succeed, there are {'Succeeded': 1}"),
        ([RAN[0], ("p-1", PodPhase.FAILED, False)], "'Failed': 1"),
        ([*RAN, ("tg-0", PodPhase.RUNNING, True)], "the placeholder tg-0 was left over"),
    ],
)
def test_a_pod_twice_too_few_pods_and_a_placeholder_left_over_are_found(pods, said):
    assert any(said in problem for problem in of_application(world_of(*pods), wanted()))


def test_what_lives_on_after_its_pods_or_its_deletion_is_found():
    alive = world_of(*RAN, phase=ApplicationPhase.RUNNING)
    assert of_application(alive, wanted()) == ["a is still Running"]
    runs = world_of(("p-0", PodPhase.RUNNING, False))
    assert of_application(runs, wanted(is_deleted=True)) == [
        "a was deleted, its pods are {'Running': 1}"
    ]


class Shown:
    """A cluster whose replicas show what they are given."""

    def __init__(self, **answers):
        self.apis = {"one": "", "other": ""}
        self._answers = answers

    def ask(self, api, path):
        return self._answers[path.rpartition("/")[2]][api]

    def until(self, holds, seconds):
        return 0.0 if holds() else None


def both(value):
    return {"one": value, "other": value}


def test_replicas_that_show_different_things_are_found_and_their_order_is_not():
    dump = {"one": {"nodes": [1, 2], "timestamp": 1}, "other": {"nodes": [2, 1], "timestamp": 2}}
    assert replicas_agree(Shown(fullstatedump=dump)) == []
    dump["other"] = {"nodes": [2, 3]}
    assert replicas_agree(Shown(fullstatedump=dump)) == [
        "one and other differ in nodes of the full state dump"
    ]


def test_what_replicas_count_of_the_ended_is_their_own_and_of_the_living_is_not():
    def partitions(**counts):
        listed = [{"applicationState": state} for state in counts if state != "total"]
        partition = {"name": "default", "applications": counts}
        return {"partitions": [partition], "applications": listed}

    shown = {"one": partitions(Completed=9, Running=1, total=10), "other": partitions(Running=1)}
    assert replicas_agree(Shown(fullstatedump=shown)) == []
    shown["other"] = partitions(Running=2, Failing=1)
    assert len(replicas_agree(Shown(fullstatedump=shown))) == 2


def test_a_node_whose_sum_is_not_that_of_its_allocations_is_found():
    check = {"Name": "Orphans", "Succeeded": True, "DiagnosisMessage": ""}
    node = {
        "nodeID": "n", "capacity": {"vcore": 3}, "allocated": {"vcore": 4},
        "allocations": [
            {"allocationKey": key, "resource": {"vcore": 2}} for key in ("twice", "twice")
        ],
    }  # fmt: skip
    shown = Shown(nodes=both([node]), healthcheck=both({"HealthChecks": [check]}))
    found = sums_are_exact(shown)
    assert {"one: n is over its capacity of vcore", "other: twice has 2 places"} < set(found)
    node["allocated"] = {"vcore": 2}
    check["Succeeded"] = False
    found = sums_are_exact(shown)
    assert "one: n shows {'vcore': 2}, its allocations {'vcore': 4}" in found
    assert "one: Orphans: " in found


def test_a_failover_is_late_by_the_machine_that_it_came_on():
    failover = Failover(bound=2.0)
    failover.note(1.9, 1.0)
    failover.note(7.9, 4.0)
    assert failover.late == []
    failover.note(2.1, 1.0)
    failover.note(8.1, 4.0)
    assert failover.late == [2.1, 8.1]
    assert slowness() >= 1
