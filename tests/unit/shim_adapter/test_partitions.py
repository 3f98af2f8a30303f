"""Partitions at the shim adapter: each core hears of its own, in its own epoch; all hear of all."""

import pytest

from services.shim_adapter.records import NodeRecord
from services.shim_adapter.service import ShimOptions, ShimService
from shared.messages.commands import DeleteApplication, PodSpec, SubmitPods
from shared.messages.envelope import (
    API_ALL,
    CORE,
    MEMBERS,
    SHIM_ADAPTER,
    Envelope,
    core_of,
)
from shared.messages.interface import (
    AcceptedApplication,
    Allocation,
    ConfigurationResult,
    UpdateConfiguration,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.protocol import (
    Heartbeat,
    Partitions,
    PartitionsRequest,
    SyncBegin,
    SyncRequest,
)
from shared.model.checksum import checksum_of
from shared.model.names import NODE_PARTITION, PARTITION

GPU = core_of("gpu")
CAPACITY = {"vcore": 4000, "pods": 9}


class Shim:
    """A machine, and what it says, by address."""

    def __init__(self, **options):
        nodes = (
            NodeRecord("plain", CAPACITY),
            NodeRecord("fast", CAPACITY, {NODE_PARTITION: "gpu"}),
            NodeRecord("stray", CAPACITY, {NODE_PARTITION: "nosuch"}),
        )
        self.service = ShimService(ShimOptions(config="x", first_nodes=nodes, **options))
        self.machine = self.service.make_machine()
        self.count = 0

    def send(self, message, partition="default", epoch=None):
        self.count += 1
        world = self.machine.world
        envelope = Envelope(
            f"m{self.count}", type(message).__name__, message, SHIM_ADAPTER, "t",
            partition=partition, epoch=world.epoch_of(partition) if epoch is None else epoch,
        )  # fmt: skip
        out = self.machine.handle(envelope, 1_000)
        self.machine.flush(1_000)
        assert all(item.partition in ("", "default") for item in out if item.to == CORE)
        assert all(item.partition == "gpu" for item in out if item.to == GPU)
        return out

    def judged(self, *names, text="x"):
        return self.send(ConfigurationResult(True, checksum_of(text), partitions=names))

    def run(self, name, partition):
        self.send(SubmitPods((PodSpec(name, name, {"vcore": 100}, partition=partition),)))


def items(out, to, section):
    messages = [item.message for item in out if item.to == to]
    return [
        item
        for message in messages
        if isinstance(message, UpdateRequest)
        for item in getattr(message, section)
    ]


def applications(out, to):
    return [item.application_id for item in items(out, to, "new_applications")]


def test_everybody_is_told_which_partitions_there_are():
    shim = Shim()
    assert not [item for item in shim.send(Heartbeat("h")) if isinstance(item.message, Partitions)]
    for told in (
        shim.judged("default", "gpu"), shim.send(Heartbeat("h")), shim.send(PartitionsRequest("n"))
    ):  # fmt: skip
        said = {item.to: item.message for item in told if isinstance(item.message, Partitions)}
        assert said == dict.fromkeys((API_ALL, *MEMBERS), Partitions(("default", "gpu")))


def test_a_recovery_says_what_is_of_its_partition_alone():
    shim = Shim()
    shim.send(Heartbeat("h"))
    shim.judged("default", "gpu")
    shim.run("here", "default")
    shim.run("there", "gpu")
    out = shim.send(SyncRequest("core"), "gpu")
    assert {item.to for item in out} == {GPU}
    assert [node.node_id for node in items(out, GPU, "nodes")] == ["fast"]
    assert applications(out, GPU) == ["there"]
    (request,) = items(out, GPU, "new_applications")
    assert request.partition_name == "gpu"
    out = shim.send(SyncRequest("core"))
    assert [node.node_id for node in items(out, CORE, "nodes")] == ["plain", "stray"]
    assert applications(out, CORE) == ["here"]
    attributes = {
        node.node_id: node.attributes[NODE_PARTITION] for node in items(out, CORE, "nodes")
    }
    assert attributes == {"plain": "[mycluster]default", "stray": "[mycluster]nosuch"}


def test_what_names_a_partition_is_held_until_it_is_known_whether_there_is_one():
    shim = Shim()
    out = shim.send(Heartbeat("h"))
    assert [node.node_id for node in items(out, CORE, "nodes")] == ["plain"]
    shim.run("there", "gpu")
    shim.run("lost", "nosuch")
    assert shim.send(SyncRequest("core"), "gpu") == []
    out = shim.judged("default", "gpu")
    assert isinstance(next(item.message for item in out if item.to == GPU), SyncBegin)
    assert applications(out, GPU) == ["there"]
    assert applications(out, CORE) == ["lost"]  # to be refused
    assert [node.node_id for node in items(out, CORE, "nodes")] == ["stray"]
    assert shim.send(SyncRequest("core"), "nosuch") == []


def test_each_partition_is_fenced_by_its_own_epoch():
    shim = Shim()
    shim.send(Heartbeat("h"))
    shim.judged("default", "gpu")
    shim.send(SyncRequest("core"), "gpu")
    shim.run("here", "default")
    world = shim.machine.world
    assert world.epochs == {"default": 1, "gpu": 2}
    accepted = UpdateResponse(accepted_applications=(AcceptedApplication("here"),))
    shim.send(SyncRequest("core"), "gpu")
    out = shim.send(accepted, epoch=1)
    assert items(out, CORE, "asks")  # the default's own epoch stands, whatever gpu's is
    shim.run("there", "gpu")
    shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("there"),)), "gpu", epoch=2)
    assert shim.machine.mirror.refused_decisions == 1


@pytest.fixture
def running(tmp_path):
    """Return a shim adapter, its state kept, with an application that runs in each partition."""
    shim = Shim(state_dir=tmp_path)
    shim.send(Heartbeat("h"))
    shim.judged("default", "gpu")
    shim.send(SyncRequest("core"), "gpu")
    shim.run("there", "gpu")
    shim.send(UpdateResponse(accepted_applications=(AcceptedApplication("there"),)), "gpu")
    (pod,) = shim.machine.world.pods_of("there")
    bound = UpdateResponse(new_allocations=(Allocation(pod.uid, "there", "fast", {}),))
    shim.send(UpdateResponse(accepted_nodes=()), "gpu")
    shim.machine.mirror._unanswered.clear()
    shim.send(bound, "gpu")
    assert pod.node == "fast"
    yield shim
    shim.service.close()


def test_a_dropped_partition_is_told_of_until_its_last_application_has_ended(running):
    running.judged("default", text="x")
    out = running.send(Heartbeat("h"))
    names = [item.message.names for item in out if isinstance(item.message, Partitions)]
    assert names == [("default", "gpu")] * 3
    out = running.send(SyncRequest("core"), "gpu")
    (request,) = items(out, GPU, "new_applications")
    assert request.tags["application.create.force"] == "true"
    running.run("late", "gpu")  # its core is to refuse it
    running.send(DeleteApplication("there"))
    running.send(DeleteApplication("late"))
    running.machine.world.applications["there"].phase = "Ended"
    running.machine.world.applications["late"].phase = "Ended"
    out = running.send(Heartbeat("h"))
    names = [item.message.names for item in out if isinstance(item.message, Partitions)]
    assert names == [("default",)] * 3
    assert "gpu" not in running.machine.world.epochs


def test_an_accepted_file_that_names_none_has_the_default_alone(running):
    refused = ConfigurationResult(False, checksum_of("x"), "no")
    running.send(refused)
    assert list(running.machine.world.partitions) == ["default", "gpu"]
    running.judged(text="x")
    assert list(running.machine.world.partitions) == ["default"]
    fresh = Shim()
    fresh.send(refused)
    assert list(fresh.machine.world.partitions) == []
    names = [item.message.names for item in fresh.judged() if isinstance(item.message, Partitions)]
    assert names == [("default",)] * 3


def test_the_others_are_told_what_the_default_partition_s_core_took(running):
    running.send(UpdateConfiguration("y"))
    out = running.judged("default", "gpu", text="y")
    told = [(item.to, item.message.config) for item in out if item.to == GPU]
    assert told == [(GPU, "y")]
    refused = running.send(ConfigurationResult(False, checksum_of("y"), "no"), "gpu")
    assert refused == []
    assert running.machine.world.config == "y"


def test_partitions_and_epochs_outlive_a_crash(running):
    running.machine = running.service.make_machine()
    world = running.machine.world
    assert (list(world.partitions), world.epochs) == (["default", "gpu"], {"default": 1, "gpu": 2})
    out = running.send(Heartbeat("h"))
    begun = {item.to: item.epoch for item in out if isinstance(item.message, SyncBegin)}
    assert begun == {CORE: 3, GPU: 4}
    (held,) = items(out, GPU, "allocations")
    assert held.node_id == "fast"


def test_placeholders_name_the_partition_of_their_application():
    from services.shim_adapter.records import ApplicationRecord
    from services.shim_adapter.translation.placeholders import placeholder_pod
    from shared.messages.commands import TaskGroupSpec

    group = TaskGroupSpec("w", 1, {"vcore": 1})
    pod = placeholder_pod(ApplicationRecord("a", 1, partition="gpu"), group, "c")
    assert (pod.annotations[PARTITION], pod.partition) == ("gpu", "gpu")
    assert PARTITION not in placeholder_pod(ApplicationRecord("a", 1), group, "c").annotations


def test_an_application_is_of_the_partition_of_its_pods_and_one_that_is_not_known_of_the_default():
    shim = Shim()
    shim.send(Heartbeat("h"))
    shim.judged("default", "gpu")
    shim.run("here", "default")
    shim.run("there", "gpu")
    partition_of = shim.machine.world.partition_of
    assert [partition_of(name) for name in ("here", "there", "nobody")] == [
        "default", "gpu", "default"
    ]  # fmt: skip
