"""What the specs of scheduling have beside them: order, predicates, nodes, restarts, answers."""

from typing import Any

from tests.integration.kubernetes.yunikorn.limits import PRIORITIES, waits
from tests.integration.kubernetes.yunikorn.preemption import leaf, reason_of, tree
from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.double import a_pod
from tests.kubernetes.stack import OPEN, YUNIKORN, Object, Stack, gang, pod_body, task_group

ON = "kubernetes.io/hostname"


async def nodes_of(stack: Stack, namespace: str = "default") -> dict[str, str]:
    """Return where pods are."""
    found = await stack.pods(namespace)
    return {name: pod["spec"].get("nodeName", "") for name, pod in found.items()}


def node_affinity(key: str, operator: str, *values: str, preferred: bool = False) -> Object:
    """Return an affinity to nodes."""
    expression: Object = {
        "key": key,
        "operator": operator,
        **({"values": list(values)} if values else {}),
    }
    term = {"matchExpressions": [expression]}
    if preferred:
        weighed = [{"weight": 100, "preference": term}]
        return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighed}}
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def pod_affinity(kind: str, labels: dict[str, str], topology: str = ON) -> Object:
    """Return a required affinity, or anti-affinity, to pods."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": topology}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# --- basic scheduling ---------------------------------------------------------------------------


@spec
async def one_pod(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("p", "app"))
    await stack.until_running("p")
    await stack.until_state("app", "Running")
    app = await stack.app("app")
    assert (app["queueName"], app["user"]) == ("root.default", "nobody")
    (held,) = app["allocations"]
    pod = (await stack.pods())["p"]
    assert held["allocationKey"] == pod["metadata"]["uid"]
    assert held["nodeId"] == pod["spec"]["nodeName"]
    assert held["applicationId"] == "app"
    assert held["resource"] == {"vcore": 10, "memory": 20_000_000, "pods": 1}
    assert held["priority"] == "0"
    tags = held["allocationTags"]
    assert tags["kubernetes.io/meta/namespace"] == "default"
    assert tags["kubernetes.io/meta/podName"] == "p"
    assert tags["kubernetes.io/label/app"] == "sleep"
    by_queue = await stack.ws("partition/default/queue/root.default/applications")
    assert [one["applicationID"] for one in by_queue] == ["app"]


@spec
async def a_pod_without_an_application_id(stack: Stack) -> None:
    await stack.begin()
    body = pod_body("p", "x")
    del body["metadata"]["labels"]["applicationId"]
    await stack.apply(body)
    await stack.until_running("p")
    assert await stack.state("yunikorn-default-autogen") == "Running"


@spec
async def application_ids_by_every_key(stack: Stack) -> None:
    await stack.begin()
    keys = ("yunikorn.apache.org/app-id", "applicationId", "spark-app-selector")
    for at, key in enumerate(keys):
        body = pod_body(f"p-{at}", "x")
        del body["metadata"]["labels"]["applicationId"]
        body["metadata"]["labels"][key] = f"app-{at}"
        await stack.apply(body)
    annotated = pod_body("p-a", "x", annotations={f"{YUNIKORN}app-id": "app-a"})
    await stack.apply(annotated)
    await stack.until_running("p-0", "p-1", "p-2", "p-a")
    for name in ("app-0", "app-1", "app-2", "app-a"):
        assert await stack.state(name) == "Running"


@spec
async def a_deployment_of_several(stack: Stack) -> None:
    await stack.begin()
    names = [f"p-{at}" for at in range(12)]
    await stack.apply(*(pod_body(name, "app") for name in names))
    await stack.until_running(*names)
    assert set((await nodes_of(stack)).values()) == {"w1", "w2", "w3"}


@spec
async def bin_packing(stack: Stack) -> None:
    text = tree(leaf("one"), nodesortpolicy={"type": "binpacking"})
    await stack.begin(text)
    await stack.apply(pod_body("first", "app", queue="root.one", cpu="1", nodeSelector={ON: "w2"}))
    await stack.until_running("first")
    names = [f"p-{at}" for at in range(4)]
    await stack.apply(*(pod_body(name, "app", queue="root.one") for name in names))
    await stack.until_running(*names)
    assert set((await nodes_of(stack)).values()) == {"w2"}


@spec
async def fair_apps_share_a_leaf(stack: Stack) -> None:
    fair = leaf("fair", application_sort_policy="fair")
    fair["resources"] = {"guaranteed": {"vcore": "1"}, "max": {"vcore": "1"}}
    await stack.begin(tree(fair))
    for app in ("a", "b"):
        await stack.apply(
            *(pod_body(f"{app}-{at}", app, queue="root.fair", cpu="100m") for at in range(10))
        )
    await stack.passes(5)
    held = await stack.running()
    assert len(held) == 10
    for name in sorted(held)[:6]:
        await stack.finish(name)
    await stack.passes(5)
    used = [(await stack.app(app))["usedResource"]["vcore"] for app in ("a", "b")]
    assert abs(used[0] - used[1]) <= 200


@spec
async def priorities_within_a_leaf(stack: Stack) -> None:
    small = {"name": "small", "resources": {"max": {"vcore": "1"}}}
    await stack.begin(tree(small))
    for name, value in PRIORITIES.items():
        await stack.priority_class(f"{name}-class", value)
    await stack.apply(pod_body("filler", "filler", queue="root.small", cpu="1"))
    await stack.until_running("filler")
    for name in ("low", "normal", "high"):
        body = pod_body(name, name, queue="root.small", cpu="1", priorityClassName=f"{name}-class")
        await stack.apply(body)
    await waits(stack, *PRIORITIES)
    last = "filler"
    for name in ("high", "normal", "low"):
        await stack.finish(last)
        await stack.until_running(name)
        assert await stack.running() == {name}
        last = name


@spec
async def priorities_of_gangs_of_one(stack: Stack) -> None:
    small = {"name": "small", "resources": {"max": {"vcore": "100m"}}}
    await stack.begin(tree(small))
    for name, value in PRIORITIES.items():
        await stack.priority_class(f"{name}-class", value)
    await stack.apply(pod_body("filler", "filler", queue="root.small", cpu="100m"))
    await stack.until_running("filler")
    group = task_group("g", 1, minResource={"cpu": "100m", "memory": "20M"})
    for name in ("low", "normal", "high"):
        body = pod_body(name, name, queue="root.small", cpu="100m", annotations=gang([group], "g"),
                        priorityClassName=f"{name}-class")  # fmt: skip
        await stack.apply(body)
    await waits(stack, *PRIORITIES)
    last = "filler"
    for name in ("high", "normal", "low"):
        await stack.finish(last)
        await stack.until_running(name)
        assert await stack.running() == {name}
        last = name


@spec
async def fenced_priorities(stack: Stack) -> None:
    """Priorities do not leave a fence: beside it the queue's offset counts."""

    def fenced(name: str, offset: int) -> Object:
        return {"name": name, "queues": [{"name": "leaf"}],
                "properties": {"priority.policy": "fence", "priority.offset": str(offset)}}  # fmt: skip

    parent = {"name": "parent", "resources": {"max": {"vcore": "1"}},
              "queues": [fenced("a", 0), fenced("b", 10), {"name": "filler"}]}  # fmt: skip
    await stack.begin(tree(parent))
    for name, value in PRIORITIES.items():
        await stack.priority_class(f"{name}-class", value)
    await stack.apply(pod_body("filler", "filler", queue="root.parent.filler", cpu="1"))
    await stack.until_running("filler")
    for name, queue in (("high", "a"), ("low", "b")):
        body = pod_body(name, name, queue=f"root.parent.{queue}.leaf", cpu="1",
                        priorityClassName=f"{name}-class")  # fmt: skip
        await stack.apply(body)
    await waits(stack, "high", "low")
    await stack.finish("filler")
    await stack.until_running("low")
    assert await stack.running() == {"low"}


# --- predicates ---------------------------------------------------------------------------------


@spec
async def node_selector_matches(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {}, "w2": {"labels": {"kind": "x"}}, "w3": {}})
    await stack.apply(pod_body("p", "app", nodeSelector={"kind": "x"}))
    await stack.until_running("p")
    assert await nodes_of(stack) == {"p": "w2"}


@spec
async def required_node_affinity(stack: Stack) -> None:
    await stack.begin(
        OPEN, {"w1": {"labels": {"kind": "a"}}, "w2": {"labels": {"kind": "b"}}, "w3": {}}
    )
    for name, affinity in {
        "in": node_affinity("kind", "In", "b", "c"),
        "exists-not": node_affinity("kind", "DoesNotExist"),
        "not-in": node_affinity("kind", "NotIn", "b"),
    }.items():
        await stack.apply(pod_body(name, "app", affinity=affinity))
    await stack.until_running("in", "exists-not", "not-in")
    found = await nodes_of(stack)
    assert (found["in"], found["exists-not"]) == ("w2", "w3")
    assert found["not-in"] in ("w1", "w3")
    await stack.apply(pod_body("nowhere", "app-n", affinity=node_affinity("kind", "In", "z")))
    await waits(stack, "nowhere")


@spec
async def tolerations_let_pods_on_tainted_nodes(stack: Stack) -> None:
    taint = {"key": "kind", "value": "x", "effect": "NoSchedule"}
    await stack.begin(
        OPEN, {"w1": {"taints": [taint]}, "w2": {"taints": [{**taint, "value": "y"}]}}
    )
    tolerated = {"key": "kind", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
    await stack.apply(pod_body("equal", "app", tolerations=[tolerated]))
    await stack.apply(pod_body("none", "app-n"))
    await stack.until_running("equal")
    await waits(stack, "none")
    assert (await nodes_of(stack))["equal"] == "w1"
    exists = {"key": "kind", "operator": "Exists"}
    await stack.apply(pod_body("any", "app", tolerations=[exists], nodeSelector={ON: "w2"}))
    await stack.until_running("any")


@spec
async def pods_beside_and_apart(stack: Stack) -> None:
    await stack.begin()
    own = {"group": "store"}
    await stack.apply(pod_body("first", "app", labels=own, nodeSelector={ON: "w2"}))
    await stack.until_running("first")
    beside = pod_affinity("podAffinity", own)
    apart = pod_affinity("podAntiAffinity", own)
    await stack.apply(pod_body("beside", "app", affinity=beside))
    await stack.apply(pod_body("apart", "app", affinity=apart))
    await stack.until_running("beside", "apart")
    found = await nodes_of(stack)
    assert found["beside"] == "w2"
    assert found["apart"] != "w2"


@spec
async def anti_affinity_keeps_a_pod_waiting(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {}})
    own = {"group": "store"}
    apart = pod_affinity("podAntiAffinity", own)
    await stack.apply(pod_body("first", "app", labels=own, affinity=apart))
    await stack.until_running("first")
    await stack.apply(pod_body("second", "app-2", labels=own, affinity=apart))
    await waits(stack, "second")
    await stack.finish("first")
    await stack.until_running("second")


@spec
async def host_ports(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {}})
    for name in ("first", "second"):
        body = pod_body(name, f"app-{name}")
        body["spec"]["containers"][0]["ports"] = [
            {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}
        ]
        await stack.apply(body)
    await stack.until_running("first")
    await waits(stack, "second")
    await stack.finish("first")
    await stack.until_running("second")


@spec
async def more_than_any_node_has(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {"cpu": "2"}, "w2": {"cpu": "2"}})
    await stack.apply(pod_body("p", "app", cpu="3"))

    async def is_unschedulable() -> bool:
        return await reason_of(stack, "p") == "Unschedulable"

    await stack.until(is_unschedulable, "the pod is unschedulable")
    await stack.node("w3", cpu="4")
    await stack.until_running("p")


@spec
async def a_cordoned_node(stack: Stack) -> None:
    await stack.begin()
    for name in ("w1", "w2"):
        await stack.kubectl.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    await stack.settle()
    names = [f"p-{at}" for at in range(4)]
    await stack.apply(*(pod_body(name, "app") for name in names))
    await stack.until_running(*names)
    assert set((await nodes_of(stack)).values()) == {"w3"}
    shown = {
        node["nodeID"]: node["schedulable"] for node in await stack.ws("partition/default/nodes")
    }
    assert shown == {"w1": False, "w2": False, "w3": True}


# --- nodes, foreign pods ------------------------------------------------------------------------


@spec
async def nodes_as_they_are(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {"cpu": "4", "memory": "8Gi", "pods": "50"}})
    await stack.kubectl.pod(
        a_pod("theirs", scheduler="default-scheduler", cpu="500m", nodeName="w1")
    )
    await stack.passes(2)
    await stack.apply(pod_body("p", "app", cpu="1", memory="1Gi"))
    await stack.until_running("p")
    (node,) = await stack.ws("partition/default/nodes")
    gib = 1 << 30
    assert node["capacity"] == {"vcore": 4000, "memory": 8 * gib, "pods": 50}
    assert node["allocated"] == {"vcore": 1000, "memory": gib, "pods": 1}
    assert node["occupied"] == {"vcore": 500, "pods": 1}
    assert node["available"] == {"vcore": 2500, "memory": 7 * gib, "pods": 48}
    assert node["utilized"] == {"vcore": 25, "memory": 12, "pods": 2}
    (foreign,) = node["foreignAllocations"]
    assert foreign["nodeId"] == "w1"
    assert foreign["preemptable"] is True
    await stack.kubectl.delete("theirs", gracePeriodSeconds=0)
    await stack.passes(2)
    (node,) = await stack.ws("partition/default/nodes")
    assert not (node.get("occupied") or {}).get("vcore")


@spec
async def a_pod_that_names_its_node_is_counted_whatever_its_queue(stack: Stack) -> None:
    """Its application is forced (2.7): where no rule places it, it is in the recovery queue."""
    await stack.begin(tree(leaf("one")))
    for name, queue in (("known", "root.one"), ("unknown", "root.gone")):
        await stack.apply(pod_body(name, f"app-{name}", queue=queue, nodeName="w1"))
    for name, queue in (("known", "root.one"), ("unknown", "root.@recovery@")):
        await stack.until_state(f"app-{name}", "Running")
        assert (await stack.app(f"app-{name}"))["queueName"] == queue
    (node,) = [one for one in await stack.ws("partition/default/nodes") if one["nodeID"] == "w1"]
    assert node["allocated"]["vcore"] == 20
    await stack.apply(pod_body("waits", "app-waits", queue="root.gone"))
    await stack.until_state("app-waits", "Rejected")


@spec
async def a_node_grows(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {"cpu": "1"}})
    for at in range(2):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}", cpu="1"))
    await stack.until_running("p-0")
    await waits(stack, "p-1")
    amounts = {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}}
    path = "/api/v1/nodes/w1/status"
    from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH

    node = await stack.kubectl.get("/api/v1/nodes/w1")
    for kind, amount in amounts.items():
        node["status"][kind] |= amount
    status = {"status": {kind: node["status"][kind] for kind in amounts}}
    await stack.server.client.request("PATCH", path, status, content_type=STRATEGIC_PATCH)
    await stack.until_running("p-0", "p-1")


# --- restarts -----------------------------------------------------------------------------------


@spec
async def restart_keeps_what_runs(stack: Stack) -> None:
    await stack.begin()
    await stack.kubectl.pod(
        a_pod("theirs", scheduler="default-scheduler", cpu="500m", nodeName="w1")
    )
    names = await stack.job("p", 4, "app")
    await stack.until_running(*names)
    before = (await stack.app("app"), await stack.queue("root.default"), await _nodes(stack))
    await stack.restart()
    after = (await stack.app("app"), await stack.queue("root.default"), await _nodes(stack))
    for key in ("applicationState", "usedResource", "queueName", "user", "submissionTime"):
        assert before[0][key] == after[0][key], key
    assert before[1]["allocatedResource"] == after[1]["allocatedResource"]
    assert before[2] == after[2]
    await stack.apply(pod_body("late", "app"))
    await stack.until_running(*names, "late")


async def _nodes(stack: Stack) -> dict[str, Any]:
    kinds = ("capacity", "allocated", "occupied", "available")
    return {
        node["nodeID"]: [node.get(kind) for kind in kinds]
        + [sorted(one["allocationKey"] for one in node.get("allocations") or ())]
        + [len(node.get("foreignAllocations") or ())]
        for node in await stack.ws("partition/default/nodes")
    }


@spec
async def restart_with_what_waits(stack: Stack) -> None:
    small = {"name": "small", "resources": {"max": {"vcore": "100m"}}}
    await stack.begin(tree(small))
    for at in range(3):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}", queue="root.small", cpu="100m"))
    await stack.until_running("p-0")
    await stack.restart()
    assert await stack.running() == {"p-0"}
    for at in (0, 1):
        await stack.finish(f"p-{at}")
        await stack.until_running(f"p-{at + 1}")
    assert await stack.running() == {"p-2"}


@spec
async def restart_under_another_configuration(stack: Stack) -> None:
    """The queue of what runs is gone: it is kept, and what comes goes where the rules say."""
    await stack.begin(tree(leaf("one")))
    await stack.apply(pod_body("a", "app-a", queue="root.one"))
    await stack.until_running("a")
    await stack.configure(tree(leaf("two")))
    await stack.restart()
    assert await stack.running() == {"a"}
    assert (await stack.app("app-a"))["queueName"] == "root.@recovery@"
    await stack.apply(pod_body("b", "app-b", queue="root.two"))
    await stack.until_running("a", "b")
    await stack.finish("a")
    await stack.until_state("app-a", "Completing", "Completed")


@spec
async def a_broken_configuration_changes_nothing(stack: Stack) -> None:
    await stack.begin(tree(leaf("one")))
    before = (await stack.http.get("/ws/v1/config")).text
    await stack.configure("partitions: [{name: default, queues: [{name: root, nonsense: 1}]}]")
    await stack.apply(pod_body("a", "app", queue="root.one"))
    await stack.until_running("a")
    assert (await stack.http.get("/ws/v1/config")).text == before


# --- answers ------------------------------------------------------------------------------------


@spec
async def partitions_and_health(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("a", "app-a"))
    await stack.until_running("a")
    (partition,) = await stack.ws("partitions")
    assert (partition["name"], partition["state"]) == ("default", "Active")
    assert partition["clusterId"] == "mycluster"
    assert partition["totalNodes"] == 3
    assert partition["totalContainers"] == 1
    assert partition["applications"] == {"Running": 1, "total": 1}
    assert partition["nodeSortingPolicy"]["type"] == "fair"
    assert partition["capacity"]["capacity"]["vcore"] == 48_000
    health = await stack.ws("scheduler/healthcheck")
    assert health["Healthy"] is True
    assert len(health["HealthChecks"]) == 9
    rules = await stack.ws("partition/default/placementrules")
    assert [rule["name"] for rule in rules] == ["tag", "recovery"]
    assert rules[0]["parameters"] == {"tagName": "namespace", "create": "true"}


@spec
async def the_queue_tree(stack: Stack) -> None:
    one = {"name": "One", "resources": {"guaranteed": {"vcore": 1}, "max": {"vcore": 2}}}
    await stack.begin(tree(one, {"name": "p", "parent": True, "maxapplications": 3}))
    found = await stack.ws("partition/default/queues")
    assert (found["queuename"], found["partition"], found["isLeaf"]) == ("root", "default", False)
    children = {child["queuename"]: child for child in found["children"]}
    assert sorted(children) == ["root.one", "root.p"]
    assert children["root.one"]["guaranteedResource"] == {"vcore": 1000}
    assert children["root.one"]["maxResource"] == {"vcore": 2000}
    assert children["root.one"]["headroom"]["vcore"] == 2000
    assert children["root.p"]["maxRunningApps"] == 3
    assert children["root.p"]["isLeaf"] is False
    lone = await stack.queue("root.p")
    assert not lone.get("children")


@spec
async def events_of_an_application(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("a", "app-a"))
    await stack.until_running("a")
    await stack.finish("a")
    await stack.until_state("app-a", "Completed")
    events = await stack.ws("events/batch")
    mine = [
        (event.get("eventChangeType", 0), event.get("eventChangeDetail", 0))
        for event in events["EventRecords"]
        if event["type"] == 2 and event["objectID"] == "app-a"
    ]
    for wanted in ((2, 203), (1, 204), (1, 206), (2, 200), (2, 201), (3, 500), (1, 207), (1, 208)):
        assert wanted in mine, wanted
    queues = [e["objectID"] for e in events["EventRecords"] if e["type"] == 4]
    assert "root.default" in queues
    few = await stack.ws("events/batch", count="2", start="3")
    assert [event["timestampNano"] for event in few["EventRecords"]] == [
        event["timestampNano"] for event in events["EventRecords"][3:5]
    ]


@spec
async def the_state_dump(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("a", "app-a"))
    await stack.until_running("a")
    dump = (await stack.http.get("/debug/fullstatedump")).json()
    assert [app["applicationID"] for app in dump["applications"]] == ["app-a"]
    assert {node["nodeID"] for node in dump["nodes"][0]["nodesInfo"]} == {"w1", "w2", "w3"}
    assert dump["queues"][0]["queuename"] == "root"
    moved = await stack.http.get("/ws/v1/fullstatedump")
    assert (moved.status_code, moved.headers["location"]) == (301, "/debug/fullstatedump")


@spec
async def configurations_are_validated(stack: Stack) -> None:
    await stack.begin()
    good = await stack.http.post("/ws/v1/validate-conf", content=tree(leaf("one")))
    assert good.json()["allowed"] is True
    bad = tree({"name": "a b"})
    found = (await stack.http.post("/ws/v1/validate-conf", content=bad)).json()
    assert found["allowed"] is False
    assert "invalid queue name" in found["reason"]


@spec
async def the_configuration_is_shown(stack: Stack) -> None:
    await stack.begin(tree(leaf("first")))
    config = (await stack.http.get("/ws/v1/config")).text
    assert "first" in config
    await stack.configure(tree(leaf("first"), leaf("second")))
    await stack.passes(2)
    answer = await stack.http.get("/ws/v1/config", headers={"Accept": "application/json"})
    names = [queue["Name"] for queue in answer.json()["Partitions"][0]["Queues"][0]["Queues"]]
    assert names == ["first", "second"]


@spec
async def node_utilizations(stack: Stack) -> None:
    await stack.begin(OPEN, {"w1": {"cpu": "1"}})
    await stack.apply(pod_body("a", "app", cpu="450m"))
    await stack.until_running("a")
    (found,) = await stack.ws("scheduler/node-utilizations")
    by_type = {one["type"]: one["utilization"] for one in found["utilizations"]}
    assert by_type["vcore"][4]["numOfNodes"] == 1
    assert by_type["vcore"][4]["nodeNames"] == ["w1"]


@spec
async def events_at_pods(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("a", "app"))
    await stack.until_running("a")

    await stack.until_told("a", "Scheduling: default/a is queued and waiting for allocation")
    node = (await nodes_of(stack))["a"]
    await stack.until_told("a", f"Scheduled: Successfully assigned default/a to node {node}")
    if stack.preset == "yunikorn":
        text = f"PodBindSuccessful: Pod default/a is successfully bound to node {node}"
        await stack.until_told("a", text)
        await stack.finish("a")
        await stack.until_told("a", "TaskCompleted: Task default/a is completed")


@spec
async def an_application_ends_and_its_id_comes_again(stack: Stack) -> None:
    await stack.begin()
    for turn in range(2):
        await stack.apply(pod_body(f"p-{turn}", "app"))
        await stack.until_running(f"p-{turn}")
        await stack.finish(f"p-{turn}")
        await stack.until_state("app", "Completing")
        await stack.until_state("app", "Completed", within=40)
    over = await stack.ws("partition/default/applications/completed")
    assert [app["applicationID"] for app in over] == ["app", "app"]


@spec
async def a_pod_comes_while_its_application_completes(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("p-0", "app"))
    await stack.until_running("p-0")
    await stack.delete("p-0")
    await stack.until_state("app", "Completing")
    await stack.passes(10)
    await stack.apply(pod_body("p-1", "app"))
    await stack.until_running("p-1")
    await stack.passes(40)
    assert await stack.state("app") == "Running"


@spec
async def sidecars_and_init_containers_count(stack: Stack) -> None:
    await stack.begin()
    body = pod_body("p", "app", cpu="100m", memory="10M")

    def init(name: str, cpu: str, **more: str) -> Object:
        return {"name": name, "image": "x", "resources": {"requests": {"cpu": cpu}}, **more}

    body["spec"]["initContainers"] = [
        init("side", "50m", restartPolicy="Always"),
        init("once", "500m"),
    ]
    body["spec"]["overhead"] = {"cpu": "7m"}
    await stack.apply(body)
    await stack.until_running("p")
    assert (await stack.app("app"))["usedResource"]["vcore"] == 557


@spec
async def scheduling_gates(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("p", "app", schedulingGates=[{"name": "example.com/a"}]))
    await waits(stack, "p")
    await stack.kubectl.patch(
        "/api/v1/namespaces/default/pods/p", {"spec": {"schedulingGates": None}}
    )
    await stack.until_running("p")
