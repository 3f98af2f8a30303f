"""The HTTP answers, over a whole system in one process on the in-memory bus."""

import json

import httpx
import pytest

from services.api.machine import UnsendableError
from services.api.replica import Replica
from services.api.web.documents import DocumentsError, read_documents
from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.commands import DeleteApplication, PlaceForeignPods, PodSpec
from shared.runtime.clock import SystemClock
from tests import patience
from tests.apps import app_of
from tests.builders import config_of

GANG = """
kind: Job
apiVersion: batch/v1
metadata: {name: gang}
spec:
  completions: 3
  template:
    metadata:
      labels: {applicationId: gang, queue: root.a}
      annotations:
        yunikorn.apache.org/task-group-name: tg
        yunikorn.apache.org/task-groups: '[{"name": "tg", "minMember": 3, "minResource": {"cpu": "1"}}]'
    spec:
      schedulerName: yunikorn
      containers: [{name: c, resources: {requests: {cpu: "1"}}}]
"""


@pytest.fixture
async def system():
    broker = MemoryBroker()
    options = ShimOptions(
        config=config_of("{name: a, resources: {max: {vcore: 8}}}"),
        nodes=2,
        node_capacity={"vcore": 4000, "memory": 2**30, "pods": 9},
        default_run_ns=0,
    )
    cluster = LocalCluster(lambda: MemoryBus(broker), SystemClock(), options)
    await cluster.start()
    host_of = lambda: cluster.running["api"].host  # noqa: E731
    with app_of(Replica(host_of, lambda: cluster.api, beats=True)) as app:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://muster")

        async def is_ready():
            return (await client.get("/health/ready")).status_code == 200

        await patience.until(is_ready, "the first snapshot")
        client.broker = broker
        client.cluster = cluster
        yield client
        await client.aclose()
    await cluster.stop()


async def until(client, path, holds):
    """Wait until the answer of a path is as it is to be, and return it."""

    async def as_wanted():
        value = (await client.get(path)).json()
        return [value] if holds(value) else None

    (value,) = await patience.until(as_wanted, path)
    return value


async def test_a_gang_that_is_submitted_shows_in_every_answer(system):
    answer = await system.post("/v1/manifests?source=gang.yaml", content=GANG)
    assert answer.json()["accepted"] == [
        {
            "source": "gang.yaml",
            "document": 1,
            "kind": "Job",
            "name": "gang",
            "applicationID": "gang",
            "pods": 3,
        }
    ]
    base = "/ws/v1/partition/default"
    app = await until(
        system,
        f"{base}/application/gang",
        lambda a: a.get("placeholderData", [{}])[0].get("replaced") == 3,
    )
    assert app["applicationState"] == "Running"
    assert app["usedResource"] == {"vcore": 3000, "pods": 3}
    assert app["queueName"] == "root.a"
    assert app["placeholderData"] == [
        {
            "taskGroupName": "tg",
            "count": 3,
            "replaced": 3,
            "minResource": {"vcore": 1000, "pods": 1},
        }
    ]
    assert [change["applicationState"] for change in app["stateLog"]] == ["Accepted", "Running"]
    assert all(item["placeholderUsed"] and item["nodeId"] for item in app["allocations"])
    assert isinstance(app["allocations"][0]["priority"], str)
    nodes = (await system.get(f"{base}/nodes")).json()
    assert {node["nodeID"] for node in nodes} == {"node-0000", "node-0001"}
    assert sum(node.get("allocated", {}).get("vcore", 0) for node in nodes) == 3000
    root = (await system.get(f"{base}/queues")).json()
    assert (root["queuename"], root["partition"], root["isLeaf"]) == ("root", "default", False)
    (leaf,) = root["children"]
    assert (leaf["queuename"], leaf["partition"], leaf["allocatedResource"]) == (
        "root.a",
        "",
        {"vcore": 3000, "pods": 3},
    )
    assert leaf["headroom"] == {"memory": 2**31, "vcore": 5000, "pods": 15}
    assert leaf["absUsedCapacity"] == {"vcore": 37}
    (partition,) = (await system.get("/ws/v1/partitions")).json()
    assert partition["applications"] == {"Running": 1, "total": 1}
    assert partition["capacity"]["utilization"]["vcore"] == 37
    for path in (
        "queue/root.a/applications",
        "queue/root.a/applications/active",
        "applications/active?status=running",
    ):
        assert [a["applicationID"] for a in (await system.get(f"{base}/{path}")).json()] == ["gang"]
    assert (await system.get(f"{base}/queue/root.a/application/gang")).json()[
        "applicationID"
    ] == "gang"
    assert (await system.get("/ws/v1/clusters")).json()[0]["clusterName"] == "kubernetes"


async def test_the_trace_tells_every_message_in_order_with_its_decision(system):
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications/gang", lambda a: a.get("running") == 3)
    story = await until(
        system, "/v1/trace/gang", lambda s: any("new allocations" in e["contents"] for e in s)
    )
    times = [entry["time"] for entry in story]
    assert times == sorted(times)
    asked = [
        e
        for e in story
        if e["message"] == "UpdateRequest" and "asks (placeholder)" in e["contents"]
    ]
    assert asked
    assert {
        "from",
        "to",
        "queuedMs",
        "handledMs",
        "messageID",
        "causeID",
        "correlationID",
        "traceparent",
    } <= set(asked[0])
    decided = [e for e in story if "PLACEHOLDER_REPLACED" in e["decision"] and e["from"] == "core"]
    assert decided
    ids = {e["messageID"] for e in story}
    assert sum(e["causeID"] in ids for e in story) > len(story) / 2
    assert len({e["traceparent"].split("-")[1] for e in asked}) == 1


async def test_an_application_can_be_deleted(system):
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications/gang", lambda a: a.get("running") == 3)
    assert (await system.delete("/v1/applications/gang")).json() == {
        "deleted": "gang",
        "hadEnded": False,
    }
    await until(
        system, "/v1/applications/gang", lambda a: a["state"] == "Completing" and a["running"] == 0
    )
    gone = await system.delete("/v1/applications/nobody")
    assert (gone.status_code, gone.json()["message"]) == (404, "Application nobody not found")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/ws/v1/partition/gpu/queues", 404, "Partition not found"),
        ("/ws/v1/partition/default/queue/root.none", 404, "Queue not found"),
        ("/ws/v1/partition/default/queue/root.none!", 400, "invalid queue name"),
        ("/ws/v1/partition/default/node/none", 404, "Node not found"),
        ("/ws/v1/partition/default/application/none", 404, "Application not found"),
        (
            "/ws/v1/partition/default/applications/accepted",
            400,
            "Only following application states are allowed: active, rejected, completed",
        ),
        (
            "/ws/v1/partition/default/applications/active?status=x",
            400,
            "Only following active statuses are allowed",
        ),
        ("/v1/trace/none", 404, "no trace of application none"),
    ],
)
async def test_what_is_not_there_is_answered_in_yunikorn_s_form(system, path, status, message):
    answer = await system.get(path)
    assert answer.status_code == status
    assert answer.json()["status_code"] == status
    assert message in answer.json()["message"]
    assert answer.json()["message"] == answer.json()["description"]


async def test_answers_look_as_go_writes_them(system):
    answer = await system.get("/ws/v1/partitions")
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.text.endswith("}]\n")
    missing = await system.get("/ws/v1/nothing")
    assert (missing.status_code, missing.text) == (404, "404 page not found\n")
    assert (await system.put("/ws/v1/partitions")).status_code == 405
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications/gang", lambda a: a.get("running") == 3)
    plain = await system.get(
        "/ws/v1/partition/default/application/gang", headers={"Accept-Encoding": "gzip;q=0"}
    )
    assert "content-encoding" not in plain.headers
    packed = await system.get(
        "/ws/v1/partition/default/application/gang", headers={"Accept-Encoding": "gzip"}
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert len(plain.content) >= 1400
    assert packed.content == plain.content


async def test_what_has_no_effect_of_a_manifest_is_said_with_its_acceptance(system):
    claiming = GANG + "      volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n"
    (taken,) = (await system.post("/v1/manifests", content=claiming)).json()["accepted"]
    assert taken["warnings"] == [
        (
            "spec.template.spec.volumes[0].persistentVolumeClaim: the simulated cluster has no volumes: "
            "pods are placed as if they claimed none"
        )
    ]


async def test_openapi_names_every_route(system):
    paths = (await system.get("/openapi.json")).json()["paths"]
    assert {
        "/v1/manifests",
        "/v1/trace/{application}",
        "/ws/v1/partition/{partition}/nodes",
    } <= set(paths)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"x" * (10 * 1024 * 1024), 413, "larger than"),
        (BOMB.encode(), 400, "once its aliases are written out"),
        (b"a: [1", 400, "not YAML: line"),
        (b"\xff\xfe\x00", 400, "not UTF-8"),
        (b"- 1", 400, "a map was expected, found list"),
        (b"", 400, "bad.yaml: no document in it"),
        (b"---\n---\n", 400, "no document in it"),
        (b"a: " + b"[" * 500 + b"]" * 500, 400, "nested deeper"),
        (b"kind: Pod\nmetadata: {name: p}\nspec: {schedulerName: yunikorn, x: .inf}", 400, "JSON"),
        (
            b"kind: Pod\nmetadata: {name: p}\nspec: {schedulerName: yunikorn, containers: [{resources: {requests: {cpu: -1}}}]}",
            422,
            "cannot be negative",
        ),
    ],
    ids=[
        "ten-megabytes",
        "bomb",
        "broken",
        "binary",
        "list",
        "empty",
        "separators",
        "deep",
        "infinity",
        "negative",
    ],
)
async def test_a_bad_body_is_answered_with_a_sentence_and_nothing_goes_down(
    system, body, status, message
):
    answer = await system.post("/v1/manifests?source=bad.yaml", content=body)
    assert answer.status_code == status
    assert message in answer.text
    good = await system.post("/v1/manifests", content=GANG)
    assert good.status_code == 200
    again = await system.post("/v1/manifests", content=GANG)
    assert again.status_code == 422
    assert "already exists" in again.json()["refused"][0]["message"]
    await until(system, "/v1/applications/gang", lambda a: a.get("running") == 3)


async def test_a_stranger_s_message_is_put_aside_and_nothing_goes_down(system):
    from shared.messages.envelope import CORE, SHIM_ADAPTER, TIMERS

    for inbox in (CORE, SHIM_ADAPTER, TIMERS):
        system.broker.put_raw(inbox, "UpdateRequest", b"\xc1garbage", f"raw-{inbox.service}")
        system.broker.put_raw(inbox, "Nonsense", b"\x80", f"raw2-{inbox.service}")
    await system.post("/v1/manifests", content=GANG)
    await until(system, "/v1/applications/gang", lambda a: a.get("running") == 3)
    assert len(system.broker.dead_letters) == 6


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("partitions: [{name: default, queues: [{name: root}]}]", {"allowed": True}),
        (
            "partitions: [{name: default, queues: [{name: root}], nodesortpolicy: {type: invalid}}]",
            {"allowed": False, "reason": "undefined policy: invalid"},
        ),
        (
            "partitions: [{name: default, queues: [{name: root, limits: [{users: [u], maxresources: {cpu: '0'}}]}]}]",
            {"allowed": False, "reason": "MaxResources should be greater than zero in '' limit"},
        ),
        (
            "partitions: [{name: default, queues: [{name: root, limits: [{users: [u]}]}]}]",
            {
                "allowed": False,
                "reason": "invalid resource combination for limit  all resource limits are null",
            },
        ),
    ],
)
async def test_c07_c08_a_configuration_is_judged_and_the_status_is_always_200(
    system, body, expected
):
    answer = await system.post("/ws/v1/validate-conf", content=body)
    assert answer.status_code == 200
    assert answer.json() == expected


def test_a_text_repeated_by_aliases_does_not_grow_without_bound():
    body = "a: &a " + "x" * 100_000 + "\nb: [" + ",".join(["*a"] * 2000) + "]\n"
    with pytest.raises(DocumentsError, match="aliases"):
        read_documents(body.encode(), "s")


def test_a_list_is_its_items():
    body = json.dumps({"kind": "List", "items": [{"kind": "Pod"}, {"kind": "Job"}]})
    assert [json.loads(d.body)["kind"] for d in read_documents(body.encode(), "s")] == [
        "Pod",
        "Job",
    ]


async def test_the_state_dump_has_everything_the_foreign_pods_among_it(system):
    pod = PodSpec("web", "", {"vcore": 100, "pods": 1}, namespace="kube-system", foreign="default")
    await system.cluster.ask(PlaceForeignPods("node-0001", (pod,)))
    await system.post("/v1/manifests", content=GANG.encode())
    path = "/ws/v1/partition/default/node/node-0001"
    await until(system, path, lambda value: value.get("foreignAllocations"))
    await until(system, "/ws/v1/partition/default/applications/active", bool)
    response = await system.get("/debug/fullstatedump")
    assert response.text.startswith('{\n  "timestamp": ')
    dump = response.json()
    (nodes,) = dump["nodes"]
    assert nodes["partitionName"] == "default"
    foreign = {n["nodeID"]: n.get("foreignAllocations", []) for n in nodes["nodesInfo"]}
    assert [len(items) for items in foreign.values()] == [0, 1]
    (node,) = [n for n in nodes["nodesInfo"] if n["nodeID"] == "node-0001"]
    assert node["occupied"] == {"vcore": 100, "pods": 1}
    assert node["available"]["pods"] == 8 - len(node.get("allocations", []))
    assert [a["applicationID"] for a in dump["applications"]] == ["gang"]
    assert dump["queues"][0]["queuename"] == "root"
    assert dump["partitions"][0]["totalNodes"] == 2
    moved = await system.get("/ws/v1/fullstatedump")
    assert (moved.status_code, moved.headers["location"]) == (301, "/debug/fullstatedump")


async def test_the_stacks_of_threads_and_tasks_are_text(system):
    """docs/rules/rest.md#routes: `/ws/v1/stack` is moved to `/debug/stack`, a text."""
    moved = await system.get("/ws/v1/stack")
    assert (moved.status_code, moved.headers["location"]) == (301, "/debug/stack")
    response = await system.get("/debug/stack")
    assert (response.status_code, response.headers["content-type"]) == (
        200,
        "text/plain; charset=UTF-8",
    )
    assert "thread MainThread:" in response.text
    assert "task Task-" in response.text


POD = """
kind: Pod
metadata: {name: p, labels: {applicationId: app, queue: root.a}%s}
spec: {schedulerName: yunikorn, containers: [{}]%s}
"""


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (POD % ("", ", priority: 2147483648"), 422, "a 32-bit whole number, found 2147483648"),
        (POD % ("", ", priority: " + "9" * 5000), 422, "a 32-bit whole number"),
        (POD % ("", ", priority: 1:30"), 422, "a 32-bit whole number, found '1:30'"),
        (POD % ("", ", priority: !!int x"), 400, "a value cannot be read: 'x' is no value of the tag"),
        (POD % (', note: "\\ud800"', ""), 400, "invalid Unicode character"),
        (POD % (', annotations: {muster.io/run-seconds: "%s"}' % ("9" * 30), ""), 422, "up to"),
        (POD % (', annotations: {muster.io/run-seconds: "10000000000"}', ""), 422, "up to"),
        (json.dumps({"kind": "PriorityClass", "metadata": {"name": "c"}, "value": 2**31}), 422, "32-bit"),
    ],
)  # fmt: skip
async def test_what_no_message_holds_is_answered_with_a_sentence(system, body, status, message):
    answer = await system.post("/v1/manifests", content=body.encode())
    assert (answer.status_code, message in answer.text) == (status, True), answer.text
    assert (await system.post("/v1/manifests", content=GANG.encode())).status_code == 200


@pytest.mark.parametrize("length", [256, 4_000, 20_000])
async def test_a_name_longer_than_a_message_s_property_is_no_trouble(system, length):
    answer = await system.delete("/v1/applications/" + "n" * length)
    assert answer.status_code == 404
    assert (await system.post("/v1/manifests", content=GANG.encode())).status_code == 200


async def test_a_request_that_cannot_be_sent_is_answered_at_once(system):
    with pytest.raises(UnsendableError, match="surrogates not allowed"):
        await system.cluster.ask(DeleteApplication("\ud800"))
    assert (await system.post("/v1/manifests", content=GANG.encode())).status_code == 200


async def test_sums_beyond_int64_freeze_no_answer(system):
    pod = POD.replace("name: p", "name: p%d").replace(
        "{}]", "{resources: {requests: {memory: 4Ei}}}]"
    )
    for at in range(6):
        body = (pod % (at, "", "")).encode()
        assert (await system.post("/v1/manifests", content=body)).status_code == 200
    path = "/ws/v1/partition/default/queue/root.a"
    info = await until(
        system, path, lambda value: value.get("pendingResource", {}).get("pods") == 6
    )
    assert info["pendingResource"]["memory"] == 2**63 - 1
    assert not system.broker.dead_letters


async def test_the_items_of_a_list_are_pods_of_their_own(system):
    pods = [{"kind": "Pod", "metadata": {"name": f"p{at}", "labels": {"applicationId": "app", "queue": "root.a"}},
             "spec": {"schedulerName": "yunikorn", "containers": [{}]}} for at in range(3)]  # fmt: skip
    body = json.dumps({"kind": "List", "items": pods}).encode()
    assert len((await system.post("/v1/manifests", content=body)).json()["accepted"]) == 3
    await until(system, "/v1/applications/app", lambda value: value.get("running") == 3)
