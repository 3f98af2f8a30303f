"""Two partitions of one replica: each answer is of one, or spans them; with one nothing changes."""

import json
from functools import partial

import httpx
import pytest

from services.api.machine import ApiMachine
from services.api.projection import events
from services.api.projection.history import EVERY_NS
from services.api.replica import Replica
from services.api.routes.app import make_app
from services.api.routes.live import LivePages
from services.api.web.answers import AnswerError
from shared.messages.commands import CommandResult
from shared.messages.envelope import API_ALL, Address, Envelope
from shared.messages.interface import (
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UserGroupInformation,
)
from shared.messages.protocol import Heartbeat, Partitions, PartitionsRequest
from shared.messages.state import SnapshotRequest, StateDelta
from shared.messages.trace import TraceRecord, TraceRecords
from shared.messages.what_if import Forecast, WhatIf
from tests.patience import patience
from tests.unit.api.following import System, _no_host

TWO = """
partitions:
  - name: default
    queues: [{name: root, submitacl: '*', queues: [{name: a}, {name: both}]}]
  - name: gpu
    nodesortpolicy: {type: binpacking}
    preemption: {enabled: false}
    placementrules: [{name: fixed, value: root.train}]
    queues:
      - name: root
        submitacl: '*'
        queues: [{name: train, resources: {max: {vcore: 3}}}, {name: both}]
"""
ONE = {"vcore": 1000}
ANN = UserGroupInformation("ann")


def tell(machine, *names):
    """Tell a replica which partitions there are; return what it asks for."""
    told = Envelope("p", "Partitions", Partitions(names), API_ALL, "shim_adapter")
    return machine.handle(told, 1)


def submit(system, name, queue):
    system.application(name, queue, ugi=ANN, partition_name=system.scheduler.name)


class Two:
    """A replica that follows the cores of ``default`` and ``gpu``, whose contents differ."""

    def __init__(self) -> None:
        self.default = System(TWO)
        self.machine = self.default.machine
        self.asked = tell(self.machine, "default", "gpu")
        self.gpu = System(TWO, machine=self.machine, name="gpu")
        self.default.node("cpu-1", vcore=4000, memory=1000)
        self.gpu.node("gpu-1", vcore=8000, memory=500)
        self.gpu.node("gpu-2", vcore=2000)
        for system, own, queue in ((self.default, "here", "root.a"), (self.gpu, "there", "")):
            submit(system, own, queue)
            system.asks(own, [f"{own}-1", f"{own}-2"], ONE)
        for system, count in ((self.default, 1), (self.gpu, 2)):
            submit(system, "both", "root.both" if count == 1 else "")
            system.asks("both", [f"{system.scheduler.name}-{n}" for n in range(count)], ONE)

    @property
    def get(self):
        return self.default.get

    async def read(self, path):
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def two():
    return Two()


# --- which partitions there are -----------------------------------------------------------------


def test_each_partition_is_asked_for_its_own_snapshot_and_follows_its_own_core():
    system = System(TWO)
    machine = system.machine
    (asked,) = tell(machine, "default", "gpu")
    assert (asked.to, asked.message) == (Address("core", "gpu"), SnapshotRequest("one"))
    assert asked.partition == "gpu"
    gpu = System(TWO, machine=machine, name="gpu", epoch=9)
    assert machine.partitions.default.epoch == 1
    assert machine.partitions.get("gpu").epoch == 9
    assert machine.figures()["epoch"] == {"default": 1, "gpu": 9}
    gpu.node("g", vcore=1)
    assert list(machine.partitions.get("gpu").model.nodes) == ["g"]
    assert not machine.partitions.default.model.nodes
    assert not machine.partitions.waiting


def test_a_new_replica_asks_which_partitions_there_are_once_and_not_when_it_was_told():
    beat = Envelope("h", "Heartbeat", Heartbeat("x"), API_ALL, "api")
    machine = ApiMachine("one")
    asked = [item.message for item in machine.handle(beat, 1)]
    assert PartitionsRequest("one") in asked
    assert not [m for m in machine.handle(beat, 2) if isinstance(m.message, PartitionsRequest)]
    told = ApiMachine("two")
    assert [item.message for item in tell(told, "default")] == [SnapshotRequest("two")]
    assert told.handle(beat, 2) == []


def test_what_a_core_of_no_known_partition_tells_is_left_alone():
    machine = System(TWO).machine
    two = System.__new__(System)  # its replica does not know of it, so it looks at nothing there
    two.check_rows = lambda: None
    two.__init__(TWO, machine=machine, name="gpu")
    assert [item.partition for item in machine.partitions] == ["default"]
    assert not machine.partitions.default.model.nodes


def test_a_partition_that_is_named_no_more_is_forgotten_and_default_never_is(two):
    tell(two.machine)
    assert [item.partition for item in two.machine.partitions] == ["default"]
    assert list(two.machine.partitions.default.model.nodes) == ["cpu-1"]
    (asked,) = tell(two.machine, "gpu")
    assert asked.to == Address("core", "gpu")


def test_partitions_are_told_default_first_whatever_the_order_and_however_often(two):
    before = [id(item) for item in two.machine.partitions]
    assert tell(two.machine, "gpu", "default", "gpu") == []
    assert [id(item) for item in two.machine.partitions] == before
    assert [item.partition for item in two.machine.partitions] == ["default", "gpu"]


async def test_a_partition_without_a_snapshot_is_not_ready_by_name_and_the_others_answer():
    system = System(TWO)
    system.node("n", vcore=1)
    tell(system.machine, "default", "gpu")
    ready = await system.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json() == {"status": "waiting for a snapshot from the core of partition gpu"}
    assert not system.machine.is_ready
    waits = await system.get("/ws/v1/partition/gpu/nodes")
    assert (waits.status_code, waits.json()["message"]) == (
        503,
        "no state yet: waiting for a snapshot from the core of partition gpu",
    )
    assert (await system.get("/ws/v1/partition/default/nodes")).status_code == 200
    assert [p["name"] for p in (await system.get("/ws/v1/partitions")).json()] == ["default"]
    System(TWO, machine=system.machine, name="gpu")
    assert (await system.get("/health/ready")).json() == {"status": "ready"}


async def test_before_there_is_any_state_nothing_is_called_unknown():
    two = Two()
    two.machine.partitions._of["default"] = type(two.machine.partitions.default)("one")
    tell(two.machine)
    for partition in ("default", "nonesuch"):
        answer = await two.get(f"/ws/v1/partition/{partition}/nodes")
        assert (answer.status_code, answer.json()["message"]) == (
            503,
            "no state yet: waiting for a snapshot from the core",
        )


# --- YuniKorn's answers -------------------------------------------------------------------------


OF_ONE = (
    "queues", "queue/root.both", "queue/root.both?subtree", "nodes", "placementrules",
    "queue/root.both/applications", "queue/root.both/applications/active",
    "applications/active", "applications/completed", "application/both",
    "queue/root.both/application/both",
)  # fmt: skip


@pytest.mark.parametrize("path", OF_ONE)
async def test_an_unknown_partition_is_not_found(two, path):
    answer = await two.get(f"/ws/v1/partition/nonesuch/{path}")
    sentence = "Partition not found"
    assert (answer.status_code, answer.json()) == (
        404,
        {"status_code": 404, "message": sentence, "description": sentence},
    )
    assert (await two.get(f"/ws/v1/partition/default/{path}")).status_code == 200


async def test_nodes_and_queues_are_those_of_the_partition_that_is_named(two):
    for partition, nodes, leaves in (
        ("default", ["cpu-1"], ["root.a", "root.both"]),
        ("gpu", ["gpu-1", "gpu-2"], ["root.both", "root.train"]),
        ("GPU", ["gpu-1", "gpu-2"], ["root.both", "root.train"]),
    ):
        base = f"/ws/v1/partition/{partition}"
        assert [n["nodeID"] for n in await two.read(f"{base}/nodes")] == nodes
        root = await two.read(f"{base}/queues")
        assert root["partition"] == partition.lower()
        assert [child["queuename"] for child in root["children"]] == leaves
        assert (await two.read(f"{base}/node/{nodes[0]}"))["nodeID"] == nodes[0]
    assert (await two.get("/ws/v1/partition/default/node/gpu-1")).json()["message"] == (
        "Node not found"
    )
    assert (await two.get("/ws/v1/partition/default/queue/root.train")).json()["message"] == (
        "Queue not found"
    )


async def test_an_application_is_its_partitions_and_says_which(two):
    for partition, queue, pods in (("default", "root.both", 1), ("gpu", "root.train", 1)):
        found = await two.read(f"/ws/v1/partition/{partition}/application/both")
        assert (found["partition"], found["queueName"]) == (partition, queue)
        assert len(found["allocations"]) == pods
    active = await two.read("/ws/v1/partition/gpu/applications/active")
    assert [item["applicationID"] for item in active] == ["there", "both"]
    assert (await two.get("/ws/v1/partition/default/application/there")).status_code == 404


async def test_placement_rules_and_usage_are_by_partition(two):
    for partition, rules in (("default", ["provided", "recovery"]), ("gpu", ["fixed", "recovery"])):
        told = await two.read(f"/ws/v1/partition/{partition}/placementrules")
        assert [rule["name"] for rule in told] == rules
    for partition, vcore in (("default", 3000), ("gpu", 3000), ("nonesuch", 3000)):
        (user,) = await two.read(f"/ws/v1/partition/{partition}/usage/users")
        assert user["queues"]["resourceUsage"]["vcore"] == vcore
        leaf = user["queues"]["children"][0]["queuePath"]
        assert leaf == ("root.train" if partition == "gpu" else "root.a")
        assert await two.read(f"/ws/v1/partition/{partition}/usage/user/ann") == user
    assert (await two.get("/ws/v1/partition/gpu/usage/user/bob")).json()["message"] == (
        "User not found"
    )
    assert (await two.get("/ws/v1/partition/gpu/usage/group/dev")).json()["message"] == (
        "Group not found"
    )
    assert await two.read("/ws/v1/partition/gpu/usage/groups") == []


async def test_w_01_lists_of_partitions_name_each_the_default_one_first(two):
    told = await two.read("/ws/v1/partitions")
    assert [(p["name"], p["totalNodes"], p["totalContainers"]) for p in told] == [
        ("default", 1, 3),
        ("gpu", 2, 3),
    ]
    assert [p["nodeSortingPolicy"]["type"] for p in told] == ["fair", "binpacking"]
    assert [p["preemptionEnabled"] for p in told] == [True, False]
    assert [p["applications"]["total"] for p in told] == [2, 2]
    clusters = await two.read("/ws/v1/clusters")
    assert [c["partition"] for c in clusters] == ["default", "gpu"]
    full = await two.read("/ws/v1/scheduler/node-utilizations")
    assert [item["partition"] for item in full] == ["default", "gpu"]
    named = [
        name
        for item in full[1]["utilizations"]
        for step in item["utilization"]
        for name in step.get("nodeNames", [])
    ]
    assert {*named} == {"gpu-1", "gpu-2"}


async def test_the_health_check_is_of_all_partitions_and_names_the_one_that_fails(two):
    assert (await two.read("/ws/v1/scheduler/healthcheck"))["Healthy"]
    state = two.gpu.model.nodes["gpu-1"].state
    state.capacity = {**state.capacity, "vcore": 1}
    told = await two.read("/ws/v1/scheduler/healthcheck")
    assert not told["Healthy"]
    checks = {check["Description"]: check for check in told["HealthChecks"]}
    assert len(told["HealthChecks"]) == 9
    sums = checks[
        "Check if total partition resource == sum of the node resources from the partition"
    ]
    assert sums["DiagnosisMessage"] == "Partitions with inconsistent data: [gpu]"
    fits = checks["Check if a node's allocated resource <= total resource of the node"]
    assert fits["DiagnosisMessage"] == "Nodes with inconsistent data: [gpu-1]"
    ratios = checks["Check the reservation nr compared to the number of nodes"]
    assert ratios["DiagnosisMessage"] == "Reservation/node nr ratio: [0.000000 0.000000]"


async def test_a_sample_of_the_history_sums_over_the_partitions(two):
    history = two.machine.partitions.history
    history.samples.clear()
    two.machine.handle(Envelope("h", "Heartbeat", Heartbeat("x"), API_ALL, "api"), EVERY_NS)
    (applications,) = await two.read("/ws/v1/history/apps")
    (containers,) = await two.read("/ws/v1/history/containers")
    assert applications["totalApplications"] == "4"
    assert containers["totalContainers"] == "6"


async def test_the_state_dump_has_both(two):
    dump = await two.read("/debug/fullstatedump")
    assert [p["name"] for p in dump["partitions"]] == ["default", "gpu"]
    assert [item["partitionName"] for item in dump["nodes"]] == ["default", "gpu"]
    assert [len(item["nodesInfo"]) for item in dump["nodes"]] == [1, 2]
    assert [queue["partition"] for queue in dump["queues"]] == ["default", "gpu"]
    assert [item["partition"] for item in dump["placementRules"]] == ["default", "gpu"]
    named = [(app["partition"], app["applicationID"]) for app in dump["applications"]]
    assert named == [("default", "here"), ("default", "both"), ("gpu", "there"), ("gpu", "both")]
    assert [part["Name"] for part in dump["config"]["Partitions"]] == ["default", "gpu"]


async def test_the_configuration_is_the_whole_file(two):
    answer = await two.get("/ws/v1/config", accept="application/json")
    assert [part["Name"] for part in answer.json()["Partitions"]] == ["default", "gpu"]


async def test_metrics_of_another_partition_say_which_and_those_of_default_say_none(two):
    text = (await two.get("/ws/v1/metrics")).text
    lines = text.splitlines()
    assert 'yunikorn_queue_app{queue="root.both",state="running"} 1.0' in lines
    assert 'yunikorn_queue_app{partition="gpu",queue="root.both",state="running"} 0.0' in lines
    assert 'yunikorn_queue_app{partition="gpu",queue="root.train",state="running"} 2.0' in lines
    assert 'yunikorn_scheduler_node{state="active"} 1.0' in lines
    assert 'yunikorn_scheduler_node{partition="gpu",state="active"} 2.0' in lines
    assert lines.count("# TYPE yunikorn_scheduler_node gauge") == 1
    (told,) = [line for line in lines if line.startswith("yunikorn_event_total_created")]
    assert told == f"yunikorn_event_total_created {float(two.machine.partitions.events.next_id)}"


# --- events -------------------------------------------------------------------------------------


async def test_events_have_one_row_of_numbers_that_goes_on_when_a_partition_comes(two):
    alone = System(TWO)
    alone.node("first", vcore=1)
    before = (await alone.get("/ws/v1/events/batch")).json()
    tell(alone.machine, "default", "gpu")
    assert (await alone.get("/ws/v1/events/batch")).json() == before
    gpu = System(TWO, machine=alone.machine, name="gpu")
    gpu.node("second", vcore=1)
    alone.node("third", vcore=1)
    told = (await alone.get("/ws/v1/events/batch")).json()
    assert told["EventRecords"][: len(before["EventRecords"])] == before["EventRecords"]
    nodes = [e["objectID"] for e in told["EventRecords"] if e["type"] == 3]
    assert [*dict.fromkeys(nodes)] == ["first", "second", "third"]
    assert told["HighestID"] - told["LowestID"] + 1 == len(told["EventRecords"])
    own = [event.object_id for event in gpu.model.events.read(0, 1_000)]
    assert "second" in own
    assert not {"first", "third"} & {*own}


def test_beside_the_ring_of_all_each_partition_holds_its_latest_alone(monkeypatch):
    monkeypatch.setattr(events, "MAX_BESIDE", 5)
    system = System(TWO)
    system.model.events.hold(40)
    for at in range(20):
        system.node(f"n{at}", vcore=1)
    before = system.model.events.read(system.model.events.lowest, 100)
    tell(system.machine, "default", "gpu")
    System(TWO, machine=system.machine, name="gpu")
    own, whole = system.model.events, system.machine.partitions.events
    own.hold(40)  # as a configuration says it, that all be held: in the whole
    for name in ("first", "second", "last"):
        system.node(name, vcore=1)
    assert own.next_id - own.lowest == 5
    assert whole.next_id - whole.lowest == 40
    assert before[-1] in whole.read(whole.lowest, 100)
    assert [event.object_id for event in own.newest(own.lowest)][-1] == "last"


def test_what_comes_with_each_change_reaches_its_partition_alone(monkeypatch):
    two, reached = Two(), []
    for projection in two.machine.partitions:
        monkeypatch.setattr(projection, "handle", lambda *_, p=projection: reached.append(p) or [])
    change = Envelope("c", "StateDelta", StateDelta(), API_ALL, "core", partition="gpu")
    two.machine.handle(change, 1)
    two.machine.handle(Envelope("t", "TraceRecords", TraceRecords(), API_ALL, "core"), 1)
    assert [projection.partition for projection in reached] == ["gpu"]
    two.machine.handle(Envelope("h", "Heartbeat", Heartbeat("x"), API_ALL, "api"), 1)
    assert [projection.partition for projection in reached[1:]] == ["default", "gpu"]


def test_a_ring_that_is_made_smaller_makes_the_whole_smaller(two):
    two.gpu.model.events.hold(3)
    ring = two.machine.partitions.events
    assert ring.next_id - ring.lowest == 3


# --- Muster's own -------------------------------------------------------------------------------


async def test_rows_of_another_partition_say_which(two):
    told = await two.read("/v1/applications")
    marks = {(row["applicationID"], row.get("partition")) for row in told}
    assert marks == {("here", None), ("both", None), ("there", "gpu"), ("both", "gpu")}
    pods = await two.read("/v1/pods")
    assert pods["total"] == 7
    assert {(p["allocationKey"], p.get("partition")) for p in pods["pods"]} >= {
        ("here-1", None),
        ("there-1", "gpu"),
    }
    assert (await two.read("/v1/pods?application=both"))["total"] == 3


@pytest.mark.parametrize("path", ["applications", "pods", "outstanding", "evictions"])
async def test_a_list_may_be_of_one_partition(two, path):
    whole = await two.read(f"/v1/{path}")
    parts = [await two.read(f"/v1/{path}?partition={name}") for name in ("default", "gpu")]
    if path == "pods":
        whole, *parts = (item["pods"] for item in (whole, *parts))
    key = partial(json.dumps, sort_keys=True)
    assert sorted(whole, key=key) == sorted([*parts[0], *parts[1]], key=key)
    answer = await two.get(f"/v1/{path}?partition=nonesuch")
    assert (answer.status_code, answer.json()["message"]) == (404, "Partition not found")


async def test_the_queue_tree_and_the_configuration_are_of_default_unless_one_is_said(two):
    trees = [await two.read(f"/v1/queues{query}") for query in ("", "?partition=gpu")]
    assert [tree["partition"] for tree in trees] == ["default", "gpu"]
    leaf = trees[1]["children"][1]
    assert (leaf["queuename"], leaf["waiting"][0]["reason"]) == ("root.train", "QUEUE_QUOTA")
    both = [await two.read(f"/v1/config{query}") for query in ("", "?partition=gpu")]
    assert both[0]["checksum"] == both[1]["checksum"]
    for path in ("queues", "config"):
        assert (await two.get(f"/v1/{path}?partition=nonesuch")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/applications/", "/v1/why/"])
async def test_a_name_is_found_where_it_is_and_one_in_two_partitions_has_to_be_said(two, path):
    assert (await two.read(f"{path}there"))["partition"] == "gpu"
    assert "partition" not in await two.read(f"{path}here")
    answer = await two.get(f"{path}both")
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "both is in several partitions, default, gpu: say ?partition=",
    )
    assert (await two.read(f"{path}both?partition=gpu"))["partition"] == "gpu"
    assert "partition" not in await two.read(f"{path}both?partition=default")
    assert (await two.get(f"{path}there?partition=default")).status_code == 404
    assert (await two.get(f"{path}both?partition=nonesuch")).json()["message"] == (
        "Partition not found"
    )
    assert (await two.get(f"{path}nobody")).status_code == 404


async def test_an_application_that_is_live_comes_before_one_of_its_name_that_has_ended(two):
    release = AllocationRelease("both", "default-0", TerminationType.STOPPED_BY_RM)
    two.default.update(releases=(release,))
    two.default.fire("both", "completing")
    assert two.default.model.standing("both") == 1
    assert (await two.read("/v1/applications/both"))["partition"] == "gpu"
    assert (await two.read("/v1/why/both"))["partition"] == "gpu"


async def test_a_pod_is_explained_in_whichever_partition_it_is(two):
    waits = await two.read("/v1/why/gpu-1")
    assert (waits["kind"], waits["partition"], waits["reason"]) == ("pod", "gpu", "QUEUE_QUOTA")
    assert "partition" not in await two.read("/v1/why/here-1")


def step(message_id, partition, source="shim_adapter", destination="core"):
    return TraceRecord(
        message_id, "", "both", "", "X", source, destination, 1, 0, 0,
        ("both",), ("",), ("",), partition=partition,
    )  # fmt: skip


async def test_a_trace_may_be_of_one_partition_and_keeps_what_is_of_none(two):
    records = (
        step("submitted", "default", "api", "shim_adapter"),
        step("here", "default"),
        step("there", "gpu"),
        step("bound there", "gpu", "core", "shim_adapter"),
    )
    message = TraceRecords(records)
    two.machine.handle(Envelope("t", "TraceRecords", message, API_ALL, "core"), 1)

    async def told(query=""):
        return [entry["messageID"] for entry in await two.read(f"/v1/trace/both{query}")][1:]

    assert await told() == ["submitted", "here", "there", "bound there"]
    assert await told("?partition=default") == ["submitted", "here"]
    assert await told("?partition=gpu") == ["submitted", "there", "bound there"]
    assert (await two.get("/v1/trace/both?partition=nonesuch")).status_code == 404


# --- questions and commands ---------------------------------------------------------------------


class Asked:
    """A host that answers every command at once, and keeps where it was asked."""

    def __init__(self, machine):
        self.machine, self.asked = machine, []

    async def inject(self, message, *, reply_to, traceparent, partition):
        envelope = Envelope(
            "i", type(message).__name__, message, API_ALL, "api",
            reply_to=reply_to, partition=partition,
        )  # fmt: skip
        (sent,) = self.machine.handle(envelope, 1)
        self.asked.append((sent.to, sent.partition))
        done = Forecast(done=True) if isinstance(message, WhatIf) else CommandResult(done=True)
        self.machine.handle(Envelope("r", "x", done, API_ALL, "core", reply_to=sent.reply_to), 1)


@pytest.fixture
async def asking(two):
    host = Asked(two.machine)
    app = make_app(Replica(lambda: host, lambda: two.machine))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        client.host = host
        yield client


@pytest.mark.parametrize(
    ("question", "query", "where"),
    [
        ({"drain": "cpu-1"}, "", "default"),
        ({"drain": "gpu-1"}, "", "gpu"),
        ({"addNodes": 2, "like": "gpu-2"}, "", "gpu"),
        ({"drain": "nobody"}, "", "default"),
        ({"queues": TWO}, "", "default"),
        ({"queues": TWO}, "?partition=gpu", "gpu"),
        ({"drain": "cpu-1"}, "?partition=gpu", "gpu"),
    ],
)
async def test_a_what_if_goes_to_the_core_of_the_partition_that_it_is_about(
    asking, question, query, where
):
    answer = await asking.post(f"/v1/what-if{query}", json=question)
    assert answer.status_code == 200, answer.text
    assert asking.host.asked == [(Address("core", where), where)]


async def test_a_what_if_of_no_partition_is_refused_before_anybody_is_asked(asking):
    answer = await asking.post("/v1/what-if?partition=nonesuch", json={"drain": "cpu-1"})
    assert (answer.status_code, answer.json()["message"]) == (404, "Partition not found")
    assert asking.host.asked == []


async def test_commands_go_to_the_shim_with_the_partition_that_is_meant(asking):
    shim = Address("shim_adapter")
    assert (await asking.delete("/v1/applications/there")).status_code == 200
    assert (await asking.delete("/v1/applications/both")).status_code == 400
    assert (await asking.delete("/v1/applications/both?partition=gpu")).status_code == 200
    assert (await asking.delete("/v1/applications/here")).status_code == 200
    assert asking.host.asked == [(shim, "gpu"), (shim, "gpu"), (shim, "default")]
    assert (await asking.post("/v1/nodes/gpu-2/drain")).status_code == 200
    assert (await asking.post("/v1/nodes/nobody/drain")).status_code == 404


# --- the live page ------------------------------------------------------------------------------


def frame_of(text):
    kind, data, *_ = text.decode().split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_a_live_stream_is_of_one_partition_and_says_which_there_are(two):
    pages = LivePages(Replica(_no_host, lambda: two.machine))
    seen = {}
    for name in ("default", "gpu"):
        stream = pages.open(name)
        async with patience():
            kind, snapshot = frame_of(await anext(stream))
            assert kind == "snapshot"
            while kind != "beat":
                kind, beat = frame_of(await anext(stream))
        seen[name] = [row[0] for row in snapshot["nodes"]]
        assert snapshot["partition"]["name"] == name
        assert beat["partitions"] == ["default", "gpu"]
        await stream.aclose()
    assert seen == {"default": ["cpu-1"], "gpu": ["gpu-1", "gpu-2"]}
    with pytest.raises(AnswerError, match="Partition not found") as error:
        pages.open("nonesuch")
    assert error.value.status == 404


async def test_while_there_is_one_partition_no_beat_names_it():
    system = System(TWO)
    stream = LivePages(Replica(_no_host, lambda: system.machine)).open("default")
    async with patience():
        kind = ""
        while kind != "beat":
            kind, beat = frame_of(await anext(stream))
    assert "partitions" not in beat
    await stream.aclose()


async def test_the_streams_of_a_partition_that_goes_end_and_a_new_one_of_its_name_is_followed(two):
    pages = LivePages(Replica(_no_host, lambda: two.machine))
    stream = pages.open("gpu")
    async with patience():
        assert frame_of(await anext(stream))[0] == "snapshot"
        tell(two.machine, "default")
        async for _ in stream:
            pass
    tell(two.machine, "default", "gpu")
    again = System(TWO, machine=two.machine, name="gpu")
    stream = pages.open("gpu")
    async with patience():
        assert frame_of(await anext(stream))[0] == "snapshot"
        again.update(nodes=(NodeInfo("late", NodeAction.CREATE, ONE),))
        kind = ""
        while kind != "difference":
            kind, frame = frame_of(await anext(stream))
    assert [row[0] for row in frame["nodes"]] == ["late"]
    await stream.aclose()
