"""History, health, how full the nodes are, and the configuration (docs/rules/rest.md#fields)."""

import json
from dataclasses import replace

import pytest
import yaml

from services.api.projection.history import EVERY_NS, MAX_SAMPLES, History
from services.api.projection.model import Model
from services.api.yunikorn.health import health
from shared.messages.interface import (
    Allocation,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
)
from shared.model.checksum import checksum_of
from tests.builders import config_of
from tests.unit.api.following import System
from tests.unit.api.test_application_lists import refused

HOUR_NS = 3600 * 10**9


async def answered(system, path, **headers):
    response = await system.get(path, **headers)
    assert response.status_code == 200, response.text
    return response.json()


def with_two_nodes(config=""):
    system = System(config or config_of("{name: a}"))
    for name in ("node-1", "node-2"):
        system.node(name, memory=1000, vcore=1000, **{"nvidia.com/gpu": 10})
    system.application("app", "root.a")
    return system


# --- W-08 ---------------------------------------------------------------------------------------


async def test_one_cluster_has_one_id_from_the_start():
    system = System(config_of("{name: a}"))
    for _ in range(2):
        (partition,) = await answered(system, "/ws/v1/partitions")
        (nodes,) = await answered(system, "/ws/v1/scheduler/node-utilizations")
        (cluster,) = await answered(system, "/ws/v1/clusters")
        (build,) = cluster["rmBuildInformation"]
        wanted = system.partition.rm_id or "mycluster"
        assert {partition["clusterId"], nodes["clusterId"], build["rmId"]} == {wanted}
        system.node("n1", vcore=1)


async def test_w_08_nodes_by_how_full_they_are():
    system = with_two_nodes()
    for node, memory in (("node-1", 500), ("node-2", 300)):
        amount = {"memory": memory, **({"nvidia.com/gpu": 5} if node == "node-1" else {})}
        system.update(allocations=(Allocation(f"k-{node}", "app", node, amount),))
    (told,) = await answered(system, "/ws/v1/scheduler/node-utilizations")
    assert (told["clusterId"], told["partition"]) == (system.partition.rm_id, "default")
    by_type = {item["type"]: item["utilization"] for item in told["utilizations"]}
    assert list(by_type) == ["memory", "nvidia.com/gpu", "vcore"]
    names = [f"{at}-{at + 10}%" for at in range(0, 100, 10)]
    for buckets in by_type.values():
        assert [bucket["bucketName"] for bucket in buckets] == names
    filled = {
        (kind, at): (bucket["numOfNodes"], bucket["nodeNames"])
        for kind, buckets in by_type.items()
        for at, bucket in enumerate(buckets)
        if bucket != {"bucketName": names[at]}
    }
    assert filled == {
        ("memory", 4): (1, ["node-1"]),
        ("memory", 2): (1, ["node-2"]),
        ("vcore", 0): (2, ["node-1", "node-2"]),
        ("nvidia.com/gpu", 4): (1, ["node-1"]),
        ("nvidia.com/gpu", 0): (1, ["node-2"]),
    }


@pytest.mark.parametrize(
    ("used", "bucket"),
    [(0, 0), (1, 0), (100, 0), (109, 0), (110, 1), (200, 1), (999, 9), (1000, 9)],
)
async def test_w_08_the_percentage_is_cut_and_a_whole_ten_belongs_below(used, bucket):
    system = with_two_nodes()
    if used:
        system.update(allocations=(Allocation("k", "app", "node-1", {"memory": used}),))
    (told,) = await answered(system, "/ws/v1/scheduler/node-utilizations")
    (memory,) = (i["utilization"] for i in told["utilizations"] if i["type"] == "memory")
    assert [at for at, item in enumerate(memory) if "node-1" in item.get("nodeNames", ())] == [
        bucket
    ]


async def test_w_08_without_a_partition_it_is_null_and_the_old_name_has_gone():
    """docs/rules/rest.md#routes: "old `/node-utilization` redirect removed in 1.9"."""
    system = System()
    system.model.partition = None
    response = await system.get("/ws/v1/scheduler/node-utilizations")
    assert (response.status_code, response.text) == (200, "null\n")
    gone = await system.get("/ws/v1/scheduler/node-utilization")
    assert (gone.status_code, gone.text) == (404, "404 page not found\n")


# --- W-13 ---------------------------------------------------------------------------------------

CHECKS = [
    "Scheduling errors", "Failed nodes", "Negative resources", "Negative resources",
    "Consistency of data", "Consistency of data", "Reservation check",
    "Orphan allocation on node check", "Orphan allocation on app check",
]  # fmt: skip


async def test_w_13_before_there_is_anything_there_is_no_health():
    system = System()
    system.model.partition = None
    assert await refused(system, "/ws/v1/scheduler/healthcheck") == (
        404,
        "Health check is not available",
    )


async def test_w_13_a_healthy_scheduler_says_so_nine_times():
    system = with_two_nodes()
    system.update(allocations=(Allocation("k", "app", "node-1", {"memory": 1}),))
    told = await answered(system, "/ws/v1/scheduler/healthcheck")
    assert told["Healthy"] is True
    assert [check["Name"] for check in told["HealthChecks"]] == CHECKS
    for check in told["HealthChecks"]:
        assert list(check) == ["Name", "Succeeded", "Description", "DiagnosisMessage"]
        assert check["Succeeded"] is True


def _node(**values):
    def spoil(model):
        model.nodes["node-1"].state = replace(model.nodes["node-1"].state, **values)

    return spoil


def _partition(**values):
    def spoil(model):
        model.partition = replace(model.partition, **values)

    return spoil


SPOILT = [
    lambda model: model.attempts.update(error=2),
    _partition(failed_nodes=1),
    _partition(allocated={"memory": -1}),
    _node(available={"memory": -1}),
    _node(allocated={"memory": 1001}),
    _partition(capacity={"memory": 1}),
    _node(reservations=("a", "b", "c")),
    lambda model: model.applications["app"].allocations.clear(),
    lambda model: model.nodes["node-1"].allocations.clear(),
]


@pytest.mark.parametrize("what", range(9))
async def test_w_13_what_is_unhealthy_is_named_and_the_answer_is_200(what):
    system = with_two_nodes()
    system.update(allocations=(Allocation("k", "app", "node-1", {"memory": 1}),))
    SPOILT[what](system.model)
    told = await answered(system, "/ws/v1/scheduler/healthcheck")
    failed = [at for at, check in enumerate(told["HealthChecks"]) if not check["Succeeded"]]
    assert (told["Healthy"], failed) == (False, [what])


def test_a_node_that_is_refused_and_a_bind_that_fails_are_counted():
    system = with_two_nodes()
    twice = NodeInfo("node-1", NodeAction.CREATE, {}, {"memory": 1})
    system.update(nodes=(twice,))
    assert "There were 1 failed nodes" in json.dumps(health([system.model]))


# --- history ------------------------------------------------------------------------------------


def test_a_sample_a_minute_says_what_was_so_and_a_day_of_them_is_kept():
    system = with_two_nodes()
    history, model = History(), system.model
    history.pass_time([Model()], 5)
    assert not history.samples
    history.pass_time([model], 5)
    assert [(s.time_ns, s.applications, s.containers) for s in history.samples] == [(5, 0, 0)]
    history.pass_time([model], 5 + EVERY_NS - 1)
    assert len(history.samples) == 1
    system.update(allocations=(Allocation("k", "app", "node-1", {"memory": 1}),))
    history.pass_time([model], 5 + 2 * EVERY_NS)
    assert [s.time_ns for s in history.samples] == [5, 5 + EVERY_NS, 5 + 2 * EVERY_NS]
    assert [(s.applications, s.containers) for s in history.samples] == [(0, 0), (1, 1), (1, 1)]
    history.pass_time([model], 5 + 100 * HOUR_NS)  # nobody came by for days
    assert len(history.samples) == MAX_SAMPLES == 1440
    times = [s.time_ns for s in history.samples]
    assert times[-1] == 5 + 100 * HOUR_NS
    assert {b - a for a, b in zip(times, times[1:], strict=False)} == {EVERY_NS}


async def test_the_counts_of_a_history_are_texts():
    system = with_two_nodes()
    system.update(allocations=(Allocation("k", "app", "node-1", {"memory": 1}),))
    system.machine.partitions.history.samples.clear()
    system.machine.partitions.history.pass_time([system.model], 7)
    assert await answered(system, "/ws/v1/history/apps") == [
        {"timestamp": 7, "totalApplications": "1"}
    ]
    assert await answered(system, "/ws/v1/history/containers") == [
        {"timestamp": 7, "totalContainers": "1"}
    ]
    system.machine.partitions.history.samples.clear()
    assert await answered(system, "/ws/v1/history/apps") == []


# --- configuration ------------------------------------------------------------------------------

CONFIG = """\
partitions:
  - name: DEFAULT
    placementrules:
      - {name: tag, value: namespace, create: true, parent: {name: fixed, value: root.a}}
    nodesortpolicy: {type: binpacking, resourceweights: {Memory: 1.5}}
    preemption: {enabled: false}
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: a
            parent: true
            maxapplications: 10
            properties: {application.sort.policy: fair, MyOwn: '1'}
            childtemplate: {maxapplications: 1, resources: {max: {vcore: 1}}}
            limits: [{limit: l, users: [u], maxapplications: 2, maxresources: {vcore: 5m}}]
          - {name: b, resources: {guaranteed: {memory: 1Gi}, max: {memory: 2Gi}}}
"""


async def test_the_configuration_as_json_has_the_names_of_gos_fields():
    system = System(CONFIG)
    told = await answered(system, "/ws/v1/config", Accept="application/json")
    assert list(told) == [
        "Partitions", "Checksum", "Extra", "DeadlockDetectionEnabled", "DeadlockTimeoutSeconds",
    ]  # fmt: skip
    assert told["Checksum"] == checksum_of(CONFIG) == told["Checksum"].upper()
    (partition,) = told["Partitions"]
    assert partition["Name"] == "default"
    assert partition["Preemption"] == {"Enabled": False}
    assert partition["NodeSortPolicy"] == {"Type": "binpacking", "ResourceWeights": {"Memory": 1.5}}
    assert partition["UserGroupResolver"] == {}
    assert partition["PlacementRules"] == [
        {
            "Name": "tag", "Create": True, "Filter": {"Type": ""}, "Value": "namespace",
            "Parent": {"Name": "fixed", "Filter": {"Type": ""}, "Value": "root.a"},
        }
    ]  # fmt: skip
    (root,) = partition["Queues"]
    assert (root["Name"], root["Parent"], root["SubmitACL"]) == ("root", True, "*")
    a, b = root["Queues"]
    assert a == {
        "Name": "a", "Parent": True, "Resources": {}, "MaxApplications": 10,
        "Properties": {"MyOwn": "1", "application.sort.policy": "fair"},
        "ChildTemplate": {"MaxApplications": 1, "Resources": {"Max": {"vcore": "1"}}},
        "Limits": [{"Limit": "l", "Users": ["u"], "MaxResources": {"vcore": "5m"}, "MaxApplications": 2}],
    }  # fmt: skip
    assert b == {
        "Name": "b",
        "Resources": {"Guaranteed": {"memory": "1Gi"}, "Max": {"memory": "2Gi"}},
        "ChildTemplate": {"Resources": {}},
    }


async def test_a_whole_weight_is_told_without_a_point_as_go_writes_it():
    system = System(CONFIG.replace("1.5", "2.0"))
    told = await system.get("/ws/v1/config", Accept="application/json")
    assert '"ResourceWeights":{"Memory":2}' in told.text
    assert "Memory: 2\n" in (await system.get("/ws/v1/config")).text


@pytest.mark.parametrize("accept", ["", "*/*", "application/json, text/plain", "application/yaml"])
async def test_the_configuration_is_yaml_unless_json_is_asked_for_exactly(accept):
    system = System(CONFIG)
    response = await system.get("/ws/v1/config", Accept=accept)
    assert response.headers["content-type"] == "application/x-yaml; charset=UTF-8"
    told = yaml.safe_load(response.text)
    assert list(told) == [
        "partitions", "checksum", "extra", "deadlockdetectionenabled", "deadlocktimeoutseconds",
    ]  # fmt: skip
    (partition,) = told["partitions"]
    a, b = partition["queues"][0]["queues"]
    assert a["properties"] == {"MyOwn": "1", "application.sort.policy": "fair"}
    assert b == {
        "name": "b", "resources": {"guaranteed": {"memory": "1Gi"}, "max": {"memory": "2Gi"}}
    }  # fmt: skip
    assert partition["nodesortpolicy"] == {
        "type": "binpacking", "resourceweights": {"Memory": 1.5}
    }  # fmt: skip
    again = System(yaml.safe_dump({"partitions": told["partitions"]}))
    assert await answered(again, QUEUES) == await answered(system, QUEUES)


QUEUES = "/ws/v1/partition/default/queues"


async def test_the_configuration_that_holds_is_told_and_one_that_is_refused_is_not():
    system = System(config_of("{name: a}"))
    before = await answered(system, "/ws/v1/config", Accept="application/json")
    system.send(
        UpdateConfiguration("partitions: [{name: default, queues: [{name: root, nonsense: 1}]}]")
    )
    assert await answered(system, "/ws/v1/config", Accept="application/json") == before
    system.send(UpdateConfiguration(config_of("{name: b}")))
    after = await answered(system, "/ws/v1/config", Accept="application/json")
    assert after["Checksum"] != before["Checksum"]
    names = [queue["Name"] for queue in after["Partitions"][0]["Queues"][0]["Queues"]]
    assert names == ["b"]


async def test_what_was_configured_beside_the_queues_is_told():
    system = System(CONFIG, settings=(("policy", "yunikorn"), ("backfill", "enabled")))
    told = await answered(system, "/ws/v1/config", Accept="application/json")
    assert told["Extra"] == {"backfill": "enabled", "policy": "yunikorn"}


# --- the state dump -----------------------------------------------------------------------------


async def test_the_state_dump_has_the_configuration_the_histories_and_the_streams():
    system = with_two_nodes()
    system.machine.partitions.history.pass_time([system.model], 7)
    dump = await answered(system, "/debug/fullstatedump")
    assert dump["appHistory"]
    assert list(dump) == [
        "timestamp", "partitions", "applications", "appHistory", "nodes", "clusterInfo",
        "containerHistory", "queues", "rmDiagnostics", "logLevel", "config", "placementRules",
    ]  # fmt: skip
    assert dump["config"] == await answered(system, "/ws/v1/config", Accept="application/json")
    assert dump["appHistory"] == await answered(system, "/ws/v1/history/apps")
    assert dump["containerHistory"] == await answered(system, "/ws/v1/history/containers")
    assert "eventStreams" not in dump


# --- fields of asks and allocations -------------------------------------------------------------


async def test_an_ask_says_that_more_nodes_would_help_it():
    system = with_two_nodes()
    system.asks("app", ["big"], {"memory": 2000})
    (app,) = await answered(system, "/ws/v1/partition/default/applications/active")
    (ask,) = app["requests"]
    assert (ask["triggeredScaleUp"], ask["schedulingAttempted"]) == (True, True)
    assert "triggeredPreemption" not in ask


async def test_without_a_node_nothing_was_tried_and_the_reason_is_that_there_is_none():
    system = System(config_of("{name: a}"))
    system.application("app", "root.a")
    system.asks("app", ["any"], {"memory": 1})
    (app,) = await answered(system, "/ws/v1/partition/default/applications/active")
    (ask,) = app["requests"]
    assert "schedulingAttempted" not in ask
    assert "allocationLog" not in ask
    (view,) = system.model.applications.values()
    assert system.model.why(view, view.asks["any"]).reason == "NO_NODES"


async def test_those_trigger_a_scale_up_that_an_autoscaler_was_told_of_and_no_others():
    """docs/rules/rest.md#fields and docs/rules/scheduling.md#the-cycle: "asks that fit queue+user headroom", the cluster's size apart."""
    system = System(config_of("{name: a, resources: {max: {vcore: 10}}}"))
    system.application("app", "root.a")
    keys = [f"k{at}" for at in range(8)]
    system.asks("app", keys, {"vcore": 2000})
    path = "/ws/v1/partition/default/applications/active"

    async def triggered():
        (app,) = await answered(system, path)
        return [ask["allocationKey"] for ask in app["requests"] if ask.get("triggeredScaleUp")]

    assert await triggered() == []  # no attempt without a node
    system.node("node", vcore=4000)
    assert await triggered() == ["k2", "k3", "k4"]  # of 10 vcore 4 are used, 6 are left
    system.node("other", vcore=2000)
    assert await triggered() == ["k3", "k4"]


async def test_an_allocation_that_is_to_go_for_another_says_so():
    system = with_two_nodes()
    system.update(allocations=(Allocation("k", "app", "node-1", {"memory": 1}),))
    app = system.partition.applications["app"]
    system.partition.release(app, "k", TerminationType.PREEMPTED_BY_SCHEDULER, "test")
    system.asks("app", ["other"], {"memory": 1})
    (told,) = await answered(system, "/ws/v1/partition/default/applications/active")
    by_key = {item["allocationKey"]: item for item in told["allocations"]}
    assert by_key["k"]["preempted"] is True
    assert all("preempted" not in item for key, item in by_key.items() if key != "k")


async def test_the_time_of_the_cluster_is_its_start_and_no_reload_changes_it():
    system = with_two_nodes()
    (before,) = await answered(system, "/ws/v1/clusters")
    system.now_ns += 10**9
    system.send(UpdateConfiguration(config_of("{name: a}", "{name: b}")))
    assert (await answered(system, "/ws/v1/clusters")) == [before]
    (partition,) = await answered(system, "/ws/v1/partitions")
    assert partition["lastStateTransitionTime"] == before["startTime"]


def test_a_release_that_is_confirmed_counts_what_became_of_it():
    system = with_two_nodes()
    system.update(allocations=(Allocation("k", "app", "node-1", {"memory": 1}),))
    assert system.model.attempts == {"allocated": 1}
    system.update(releases=(AllocationRelease("app", "k", TerminationType.STOPPED_BY_RM),))
    assert system.model.attempts == {"allocated": 1, "released": 1}
    assert system.model.queue_attempts == {("root.a", "allocated"): 1, ("root.a", "released"): 1}
