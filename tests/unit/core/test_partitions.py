"""Partitions: each is scheduled by itself; what is of none is refused with a sentence (N-11)."""

from dataclasses import replace
from functools import partial

from services.core.configuration import ReadOnce
from services.core.scheduler.scheduler import Scheduler
from shared.messages.envelope import Address, core_of, timers_of
from shared.messages.interface import (
    AllocationAskRelease,
    AllocationRelease,
    ConfigurationResult,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
)
from shared.messages.protocol import SyncBegin, SyncEnd, TimerOrders
from shared.messages.state import StateDelta
from shared.model.names import NODE_PARTITION
from tests.builders import Core, section
from tests.table import each_row

TWO = """\
partitions:
  - name: default
    queues: [{name: root, submitacl: '*', queues: [{name: a}]}]
  - name: gpu
    preemption: {enabled: false}
    queues: [{name: production, submitacl: '*'}, {name: test, submitacl: '*'}]
"""
ONE = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"


class Of(Core):
    """The core of one partition of a file."""

    def __init__(self, name: str, config: str = TWO) -> None:
        super().__init__(config)
        self.scheduler = Scheduler("c", partial(ReadOnce(), partition=name), name=name)
        self.send(SyncBegin(config))
        self.send(SyncEnd(0, 0, 0))

    def add(self, application: str, queue: str, partition: str):
        return self.application(application, queue, partition_name=partition)

    def verdicts(self):
        said = [item.message for item in self.answers]
        return [item for item in said if isinstance(item, ConfigurationResult)]


def test_n_11_a_partition_has_its_own_root_queues_and_switches():
    default, gpu = Of("default"), Of("gpu")
    assert sorted(default.partition.queues) == ["root", "root.a"]
    assert sorted(gpu.partition.queues) == ["root", "root.production", "root.test"]
    assert default.partition.preemption_enabled
    assert not gpu.partition.preemption_enabled
    for core in (default, gpu):
        (state,) = [
            item.message.partitions[0]
            for item in core.answers
            if isinstance(item.message, StateDelta) and item.message.partitions
        ][-1:]
        assert (state.name, state.state) == (core.scheduler.name, "Active")
        assert core.verdicts()[-1].partitions == ("default", "gpu")


def test_partitions_are_said_where_there_are_several_and_hold():
    core = Of("default", ONE)
    for text in (TWO, "partitions: [{name: x}]", ONE):
        core.send(UpdateConfiguration(text))
    said = [(item.accepted, item.partitions) for item in core.verdicts()[-4:]]
    assert said == [(True, ()), (True, ("default", "gpu")), (False, ()), (True, ())]
    core.epoch += 1
    core.send(SyncBegin("partitions: [{name: x}]", (), TWO))
    said = [(item.accepted, item.partitions) for item in core.verdicts()[-2:]]
    assert said == [(False, ()), (True, ("default", "gpu"))]


def test_what_a_partition_says_goes_to_its_own_timers():
    gpu = Of("gpu")
    assert core_of("gpu") == Address("core", "gpu")
    told = {item.to for item in gpu.answers[-20:] if isinstance(item.message, TimerOrders)}
    assert timers_of("gpu") in told


def test_an_application_of_another_partition_is_rejected_with_the_sentence():
    core = Of("default")
    (rejected,) = section(core.add("x", "root.a", "nosuch"), "rejected_applications")
    assert rejected.reason == (
        "Failed to add application x to partition nosuch, partition doesn't exist"
    )
    gpu = Of("gpu")
    assert section(gpu.add("y", "root.test", "gpu"), "accepted_applications")


@each_row(
    ("named", "is_taken"),
    [("[rm]gpu", True), ("gpu", True), (None, True), ("[rm]default", False), ("[gpu]x", False)],
)
def test_a_node_of_another_partition_is_refused_with_the_sentence(named, is_taken):
    core = Of("gpu")
    attributes = {} if named is None else {NODE_PARTITION: named}
    told = core.update(
        nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 1000}, attributes=attributes),)
    )
    assert [node.node_id for node in section(told, "accepted_nodes")] == ["n"] * is_taken
    reasons = [node.reason for node in section(told, "rejected_nodes")]
    assert reasons == [f"failed to find partition {named} for new node n"] * (not is_taken)
    assert ("n" in core.partition.nodes.nodes) is is_taken


def test_a_dropped_partition_fails_what_is_in_it_and_takes_nothing_new():
    core = Of("gpu")
    core.update(nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 4000}),))
    core.add("runs", "root.test", "gpu")
    core.asks("runs", ["k"], {"vcore": 1000})
    core.add("waits", "root.test", "gpu")
    core.asks("waits", ["w"], {"vcore": 9000})
    told = core.send(UpdateConfiguration(ONE))
    states = {item.application_id: item.state for item in section(told, "updated_applications")}
    assert states == {"runs": "Failing", "waits": "Failed"}
    assert {item.message for item in section(told, "updated_applications")} >= {"PartitionRemoved"}
    (release,) = section(told, "released_allocations")
    assert release.message == "partition gpu was removed"
    told = core.update(
        releases=(AllocationRelease("runs", "k", TerminationType.TIMEOUT),),
        ask_releases=(AllocationAskRelease("waits", "w", TerminationType.TIMEOUT),),
    )
    assert [item.state for item in section(told, "updated_applications")] == ["Failed"]
    (rejected,) = section(core.add("new", "root.test", "gpu"), "rejected_applications")
    assert rejected.reason == "partition gpu is stopped cannot add a new application new"
    core.check()
    core.send(UpdateConfiguration(TWO))
    assert section(core.add("back", "root.test", "gpu"), "accepted_applications")
    core.check()


def test_a_gang_that_gives_its_placeholders_back_fails_when_it_has():
    core = Of("gpu")
    core.update(nodes=(NodeInfo("n", NodeAction.CREATE, {"vcore": 1000}),))
    core.partition.settings = replace(core.partition.settings, gang_admission="partial")
    core.gang("g", 2, {"vcore": 1000}, queue="root.test", partition_name="gpu")
    told = core.fire("g", "placeholder")
    assert [item.state for item in section(told, "updated_applications")] == ["Resuming"]
    core.send(UpdateConfiguration(ONE))
    core.update(releases=(AllocationRelease("g", "g-ph-0", TerminationType.TIMEOUT),))
    assert core.partition.applications["g"].state == "Accepted"
    told = core.fire_own("cleaner")
    assert {item.state for item in section(told, "updated_applications")} == {"Failing", "Failed"}
    core.check()
