"""The kubernetes backend, with all four services, as people see it through the API server."""

import json

import pytest

from services.api.yunikorn.answers import node_info
from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH
from shared.model.quantity import parse_pod_quantity
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.kubernetes.versions import IN_PLACE_RESIZE
from tests.patience import until

TASK_GROUPS = "yunikorn.apache.org/task-groups"
GROUP = "yunikorn.apache.org/task-group-name"
POLICY = "yunikorn.apache.org/schedulingPolicyParameters"
PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
QUEUES = """
partitions:
  - name: default
    queues: [{name: root, submitacl: '*', queues: [{name: a}, {name: small, resources: {max: {vcore: 1}}}]}]
"""


def member(name, app, *, members=3, group="tg", cpu="1", policy="", own=None, **more):
    groups = [{"name": group, "minMember": members, "minResource": {"cpu": cpu}, **(own or {})}]
    annotations = {TASK_GROUPS: json.dumps(groups), GROUP: group}
    if policy:
        annotations[POLICY] = policy
    labels = {"applicationId": app, "queue": "root.a"}
    annotations |= more.pop("annotations", {})
    return a_pod(name, cpu=cpu, labels=labels, annotations=annotations, **more)


@pytest.fixture
async def muster(server):
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="20")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


async def condition_of(kubectl, name):
    pod = (await kubectl.pods())[name]
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return (found[0]["status"], found[0].get("reason", "")) if found else ("", "")


async def until_condition(kubectl, name, wanted, case=""):
    async def as_wanted():
        return await condition_of(kubectl, name) == wanted

    await until(as_wanted, f"{case and case + ': '}the condition of {name} is {wanted}")


async def until_told(kubectl, reason, times=1):
    """Wait for so many events of a reason; return them. Events are written after all else."""

    async def told():
        found = [event for event in await kubectl.events() if event["reason"] == reason]
        return (found,) if len(found) >= times else None

    return (await until(told, f"{times} events {reason}"))[0]


async def until_only(kubectl, names):
    """Wait until these pods are all that there are."""

    async def are_only_they_there():
        return set(await kubectl.pods()) == set(names)

    await until(are_only_they_there, f"only {sorted(names)} are there")


async def test_a_pod_of_ours_is_bound_and_one_of_another_scheduler_is_left_alone(muster):
    await muster.kubectl.pod(a_pod("other", scheduler="someone-else"))
    await muster.kubectl.pod(a_pod("mine", labels={"applicationId": "app", "queue": "root.a"}))
    await until(lambda: muster.kubelets.ran.get("mine") == "n1", "the pod runs")
    assert "other" not in muster.kubelets.ran
    await until(lambda: muster.model.application("app").summary.state == "Running", "it is told")
    await muster.kubectl.delete("mine")
    await until(lambda: muster.model.application("app").summary.state == "Completing", "its end")


async def test_a_gang_reserves_and_then_every_real_pod_takes_a_placeholders_place(muster):
    for at in range(3):
        await muster.kubectl.pod(member(f"m{at}", "gang"))
    await until(lambda: all(f"m{at}" in muster.kubelets.ran for at in range(3)), "the gang runs")
    await until(lambda: not [p for p in muster.world.all_pods() if p.spec.placeholder], "no more")
    assert all(len(nodes) == 1 for nodes in muster.kubelets.nodes_of.values())
    summary = lambda: muster.model.application("gang").summary  # noqa: E731
    await until(lambda: summary().allocated["vcore"] == 3000, "it is counted")


async def test_k_02_k_04_k_05_the_placeholder_pods_are_exactly_as_the_contract_has_them(
    server, muster
):
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = {"metadata": {"name": "test-priority-class"}, "value": 7}
    await muster.kubectl.node("n2", cpu="500m", memory="8Gi", pods="20")
    await until(
        lambda: "n2" in muster.model.nodes, "no room for all: no placeholder is replaced meanwhile"
    )
    await muster.kubectl.client.request("POST", classes, name)
    policy = "placeholderTimeoutInSeconds=600 gangSchedulingStyle=Hard"
    try:
        real = await muster.kubectl.pod(
            member(
                "first", "app01", members=10, group="test-group-1", cpu="500m", policy=policy,
                own={
                    "minResource": {"cpu": "500m", "memory": "1024M"},
                    "labels": {"labelKey1": "labelKeyValue1", "labelKey2": "labelKeyValue2"},
                    "annotations": {f"annotationKey{n}": f"value{n}" for n in (1, 2, 3)},
                },
                priorityClassName="test-priority-class",
                imagePullSecrets=[{"name": "secret1"}, {"name": "secret2"}],
                annotations={"mine": "stays here"},
            )
        )  # fmt: skip
        await until(
            lambda: sum(p.spec.placeholder for p in muster.world.all_pods()) == 10, "ten of them"
        )
        pods = await muster.kubectl.pods()
    finally:
        await muster.kubectl.client.request("DELETE", f"{classes}/test-priority-class")
    made = [pod for key, pod in pods.items() if key.startswith("tg-app01-test-group-1-")]
    assert len(made) == 10
    assert all(len(pod["metadata"]["name"].rsplit("-", 1)[1]) == 10 for pod in made)
    metadata, spec = made[0]["metadata"], made[0]["spec"]
    if server.double is None:  # before 1.27 an API server copies the field that we set into it
        metadata["annotations"].pop("seccomp.security.alpha.kubernetes.io/pod", None)
    assert metadata["labels"] == {
        "labelKey1": "labelKeyValue1",
        "labelKey2": "labelKeyValue2",
        "yunikorn.apache.org/app-id": "app01",
        "yunikorn.apache.org/queue": "root.a",
    }
    assert metadata["annotations"] == {
        "annotationKey1": "value1",
        "annotationKey2": "value2",
        "annotationKey3": "value3",
        PLACEHOLDER: "true",
        GROUP: "test-group-1",
        TASK_GROUPS: real["metadata"]["annotations"][TASK_GROUPS],
        POLICY: policy,
    }
    (owner,) = metadata["ownerReferences"]
    assert owner == {
        "apiVersion": "v1", "kind": "Pod", "name": "first", "uid": real["metadata"]["uid"],
        "controller": False, "blockOwnerDeletion": True,
    }  # fmt: skip
    assert all(pod["spec"]["priorityClassName"] == "test-priority-class" for pod in made)
    assert spec["imagePullSecrets"] == [{"name": "secret1"}, {"name": "secret2"}]
    assert (spec["restartPolicy"], spec["schedulerName"]) == ("Never", "yunikorn")
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = spec["containers"]
    assert (container["name"], container["image"]) == ("pause", "registry.k8s.io/pause:3.7")
    amounts = {
        name: parse_pod_quantity(name, text)
        for name, text in container["resources"]["requests"].items()
    }
    assert amounts == {"cpu": 500, "memory": 1_024_000_000}
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["securityContext"] == {
        "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


async def test_k_04_without_a_priority_class_the_placeholders_have_none(muster):
    of_no_group = {GROUP: "another"}  # so that it takes no placeholder's place meanwhile
    await muster.kubectl.pod(member("first", "plain", members=2, annotations=of_no_group))
    await until(lambda: sum(p.spec.placeholder for p in muster.world.all_pods()) == 2, "both")
    made = [pod for key, pod in (await muster.kubectl.pods()).items() if key.startswith("tg-")]
    assert [pod["spec"].get("priorityClassName", "") for pod in made] == ["", ""]


async def others_pods(muster):
    """Return the nodes of the pods that are not ours, by uid."""
    everything = (await muster.kubectl.get("/api/v1/pods"))["items"]
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"]
        for pod in everything
        if pod["spec"].get("nodeName")
        and pod["spec"]["schedulerName"] != "yunikorn"
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    }


def foreign_of(muster):
    """Return the nodes of the foreign allocations that the API shows, by their keys."""
    return {
        item["allocationKey"]: node["nodeID"]
        for node in map(node_info, muster.model.nodes.values())
        for item in node.get("foreignAllocations", ())
    }


async def test_f_05_every_pod_of_others_is_under_its_node(server, muster):
    static = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "x"}
    await muster.kubectl.pod(a_pod("web", scheduler="someone-else", cpu="250m", nodeName="n1"))
    body = a_pod("mirror", scheduler="someone-else", cpu="100m", nodeName="n1")
    if server.double is not None:  # a real server lets nobody but kubelets make such pods
        body["metadata"]["ownerReferences"] = [static]
    await muster.kubectl.pod(body)

    def occupied():
        node = muster.model.nodes.get("n1")
        return node is not None and node.state.occupied.get("vcore", 0) == 350

    await until(occupied, "both are counted")

    async def all_shown():  # a real cluster's own pods may still be coming up
        theirs, shown = await others_pods(muster), foreign_of(muster)
        return shown if shown == theirs else None

    assert len(await until(all_shown, "every pod of others is shown")) >= 2
    if server.double is not None:
        tags = {
            item["allocationTags"]["kubernetes.io/meta/podName"]: item["allocationTags"]["foreign"]
            for node in map(node_info, muster.model.nodes.values())
            for item in node["foreignAllocations"]
        }
        assert tags == {"web": "default", "mirror": "static"}
    await muster.kubectl.delete("web", gracePeriodSeconds=0)
    await until(lambda: muster.model.nodes["n1"].state.occupied["vcore"] == 100, "its release")


async def test_a_gated_pod_waits_for_its_gates(server, muster):
    await server.needs(27, "scheduling gates")
    gates = [{"name": "example.com/wait"}]
    labels = {"applicationId": "app", "queue": "root.a"}
    await muster.kubectl.pod(a_pod("gated", labels=labels, schedulingGates=gates))
    await until(lambda: any(p.spec.name == "gated" for p in muster.world.all_pods()), "is seen")
    await muster.kubectl.pod(a_pod("open", labels=labels))
    await until(lambda: "open" in muster.kubelets.ran, "the other runs")
    assert "gated" not in muster.kubelets.ran
    await muster.kubectl.node("n2", labels={"only": "here"}, cpu="4", memory="8Gi", pods="20")
    path = "/api/v1/namespaces/default/pods/gated"
    await muster.kubectl.patch(path, {"spec": {"nodeSelector": {"only": "here"}}})
    await muster.kubectl.patch(path, {"spec": {"schedulingGates": None}})
    await until(lambda: "gated" in muster.kubelets.ran, "it runs")
    assert muster.kubelets.ran["gated"] == "n2"  # where it was told to while it was gated


async def test_a_pod_that_is_resized_in_its_place_is_counted_anew(server, muster):
    await server.needs(IN_PLACE_RESIZE, "resizing in place")
    await muster.kubectl.pod(a_pod("p", labels={"applicationId": "app", "queue": "root.a"}))
    await until(lambda: "p" in muster.kubelets.ran, "it runs")
    held = [{"name": "c", "allocatedResources": {"cpu": "1500m"}}]
    extra = {"image": "pause", "imageID": "", "ready": True, "restartCount": 0}
    status = {"status": {"containerStatuses": [{**held[0], **extra}]}}
    await muster.kubectl.client.request(
        "PATCH", "/api/v1/namespaces/default/pods/p/status", status, content_type=STRATEGIC_PATCH
    )
    await until(
        lambda: muster.model.queues["root.a"].allocated["vcore"] == 1500, "the ledger follows"
    )


@pytest.mark.parametrize("scheduler", ["yunikorn", "default-scheduler"])
async def test_a_resize_that_is_infeasible_counts_with_what_is_allocated(server, muster, scheduler):
    """A kubelet refuses a wish for more than its node has: what the pod does not get is there."""
    await server.needs(IN_PLACE_RESIZE, "resizing in place")
    path = "/api/v1/namespaces/default/pods/p"
    ask = muster.kubectl.client.request
    body = a_pod("p", scheduler=scheduler, labels={"applicationId": "app", "queue": "root.a"})
    if scheduler != "yunikorn":
        body["spec"]["nodeName"] = "n1"
    await muster.kubectl.pod(body)
    await until(lambda: "p" in muster.kubelets.ran, "it runs")
    container = {**body["spec"]["containers"][0], "resources": {"requests": {"cpu": "4"}}}
    held = {
        "name": "c",
        "allocatedResources": {"cpu": "1"},
        "resources": {"requests": {"cpu": "1"}},
    }
    extra = {"image": "pause", "imageID": "", "ready": True, "restartCount": 0}
    refused = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    status = {"containerStatuses": [{**held, **extra}], "conditions": [refused]}
    patches = {"resize": {"spec": {"containers": [container]}}, "status": {"status": status}}
    for sub, patch in patches.items():
        await ask("PATCH", f"{path}/{sub}", patch, content_type=STRATEGIC_PATCH)
    labels = {"applicationId": "other", "queue": "root.a"}
    await muster.kubectl.pod(a_pod("fits", cpu="3", labels=labels))
    await until(lambda: muster.kubelets.ran.get("fits") == "n1", "the room is had")


async def test_only_what_more_nodes_would_help_is_called_unschedulable(muster):
    await muster.kubectl.pod(
        a_pod("big", cpu="64", labels={"applicationId": "b", "queue": "root.a"})
    )
    for name in ("first", "second"):
        labels = {"applicationId": "q", "queue": "root.small"}
        await muster.kubectl.pod(a_pod(name, labels=labels))
    await until(lambda: "first" in muster.kubelets.ran or "second" in muster.kubelets.ran, "one")
    await until_condition(muster.kubectl, "big", ("False", "Unschedulable"))
    waits = next(name for name in ("first", "second") if name not in muster.kubelets.ran)
    assert (await condition_of(muster.kubectl, waits))[1] != "Unschedulable"
    await muster.kubectl.node("large", cpu="128", memory="8Gi", pods="20")
    await until(lambda: muster.kubelets.ran.get("big") == "large", "more nodes did help")


async def test_a_pod_larger_than_its_placeholder_is_told_and_starts_where_they_were(muster):
    driver = member("driver", "gang", members=3)
    driver["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    await muster.kubectl.pod(driver)
    await until(lambda: muster.kubelets.ran.get("driver") == "n1", "it runs")
    (event,) = await until_told(muster.kubectl, "Informational")
    assert event["note"].startswith(
        "Task group 'tg' in application 'gang': allocation resources 'map["
    )
    group = lambda: muster.model.application("gang").summary.placeholders[0]  # noqa: E731
    await until(lambda: group().timedout == 3, "its placeholders are told of")


async def test_what_a_pod_waits_for_is_said_at_the_pod(muster):
    """An API server that knows no claims drops them: there is nothing to be respected then."""
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    labels = {"applicationId": "app", "queue": "root.a"}
    made = await muster.kubectl.pod(a_pod("p", labels=labels, resourceClaims=claims))
    if not made["spec"].get("resourceClaims"):
        await until(lambda: "p" in muster.kubelets.ran, "it runs")
        return
    await until_condition(muster.kubectl, "p", ("False", "SchedulerError"))
    pod = (await muster.kubectl.pods())["p"]
    (condition,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert "ResourceClaim gpu is not there" in condition["message"]
    await muster.kubectl.pod(a_pod("other", labels=labels))
    await until(lambda: "other" in muster.kubelets.ran, "others of its application run")
    assert "p" not in muster.kubelets.ran


async def test_a_hard_gang_that_does_not_come_about_fails_its_pods(muster):
    policy = "placeholderTimeoutInSeconds=1 gangSchedulingStyle=Hard"
    full = a_pod("full", cpu="3", labels={"applicationId": "full", "queue": "root.a"})
    await muster.kubectl.pod(full)
    await until(lambda: "full" in muster.kubelets.ran, "the node is taken")
    await muster.kubectl.node("n2", cpu="2", memory="8Gi", pods="20", labels={})
    other = a_pod("other", scheduler="someone-else", cpu="2", nodeName="n2")
    await muster.kubectl.pod(other)
    await until(
        lambda: muster.model.nodes["n2"].state.occupied.get("vcore") == 2000, "others take the rest"
    )
    await muster.kubectl.pod(member("m0", "gang", members=2, policy=policy))
    await until(lambda: muster.model.application("gang") is not None, "the gang")
    await until(lambda: muster.model.application("gang").summary.state == "Failed", "the timeout")

    async def failed():
        status = (await muster.kubectl.pods())["m0"]["status"]
        return status if status["phase"] == "Failed" else None

    assert (await until(failed, "its pod fails"))["reason"] == "ResourceReservationTimeout"
    await until_only(muster.kubectl, {"full", "other", "m0"})


async def test_k_05_a_placeholder_that_cannot_be_made_lets_the_gang_go_on_without(muster, double):
    double.fault(method="POST", path="namespaces/default/pods$", code=403, times=1, skip=1)
    await muster.kubectl.pod(member("m0", "gang", policy="gangSchedulingStyle=Hard"))
    await until(lambda: "m0" in muster.kubelets.ran, "the real pod runs alone")
    await until(lambda: not [p for p in muster.world.all_pods() if p.spec.placeholder], "no more")
    await until_told(muster.kubectl, "PlaceholderCreateFailed")


async def test_a_victim_is_evicted_once_its_budget_allows_it_and_not_asked_before(muster, double):
    labels = {"applicationId": "low", "queue": "root.a"}
    await muster.kubectl.pod(a_pod("low", cpu="4", labels=labels))
    await until(lambda: "low" in muster.kubelets.ran, "the victim runs")
    await muster.kubectl.node("n2", cpu="2", memory="8Gi", pods="20")
    await until(lambda: "n2" in muster.model.nodes, "headroom, but not on the daemon's node")
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await muster.kubectl.client.request("POST", budgets, budget)
    daemon = a_pod(
        "daemon", cpu="1", labels={"applicationId": "d", "queue": "root.a"}, priority=100
    )
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}
    ]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    daemon["spec"]["affinity"] = {"nodeAffinity": required}
    await muster.kubectl.pod(daemon)
    applications = muster.cluster.core.partition.applications
    await until(lambda: "d" in applications and applications["d"].reservations, "it waits there")
    (held,) = applications["d"].reservations.values()
    await until(lambda: held.reported_ns, "victims were looked for, and there are none")
    assert not held.has_preempted
    assert "daemon" not in muster.kubelets.ran
    assert double.requests.get("POST pods/eviction", 0) == 0
    await muster.kubectl.client.request("DELETE", f"{budgets}/b")
    await until(lambda: "daemon" in muster.kubelets.ran, "the room is free")
    await until_told(muster.kubectl, "Preempted")
    await until_told(muster.kubectl, "Scheduled")


async def test_a_node_is_cordoned_and_goes(muster):
    await muster.kubectl.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    await until(lambda: not muster.model.nodes["n1"].state.schedulable, "the cordon")
    await muster.kubectl.pod(a_pod("p", labels={"applicationId": "app", "queue": "root.a"}))
    await until(lambda: muster.model.application("app") is not None, "the pod waits")
    assert "p" not in muster.kubelets.ran
    await muster.kubectl.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
    await until(lambda: "p" in muster.kubelets.ran, "the pod runs")
    await muster.kubectl.client.request("DELETE", "/api/v1/nodes/n1")
    await until(lambda: "n1" not in muster.model.nodes, "the node's end")


async def test_a_changed_config_map_takes_effect(muster):
    await muster.kubectl.config(QUEUES.replace("{name: a}", "{name: a}, {name: fresh}"))
    await until(lambda: "root.fresh" in muster.model.queues, "the new queue")


async def test_scheduler_settings_take_effect_by_themselves_and_can_be_cleared(muster):
    """Pods that run stay; a value that does not hold is said where the queues' errors are."""
    await muster.kubectl.pod(a_pod("p", labels={"applicationId": "app", "queue": "root.a"}))
    await until(lambda: "p" in muster.kubelets.ran, "the pod runs")

    def settings():
        return muster.cluster.core.partition.settings if muster.is_ready() else None

    key = "muster.scheduler.policy"
    odd = {"starvationGuard": "soon", "gangPatiense": "5m", "event": "a name of our own log"}
    odd = {f"muster.scheduler.{name}": text for name, text in odd.items()}
    await muster.kubectl.config(QUEUES, **{key: "kai"}, **odd)
    await until(lambda: settings() and settings().policy == "kai", "the policy")
    told = await until(lambda: muster.model.partition.config_warnings, "what does not hold")
    assert [text.split(";")[0] for text in sorted(told)] == [
        "starvationGuard: a duration like 90s, found 'soon'",
        "there is no setting 'event'",
        "there is no setting 'gangPatiense'",
    ]
    await muster.kubectl.config(QUEUES)
    await until(lambda: settings() and settings().policy == "yunikorn", "the default again")
    await until(lambda: not muster.model.partition.config_warnings, "nothing is wrong")
    await until(lambda: len(held(muster)) == 1, "it is counted")
    assert len(muster.kubelets.nodes_of) == 1


def held(muster):
    application = muster.cluster.core.partition.applications.get("app")
    return list(application.allocations) if application is not None else []


async def test_a_namespace_says_what_its_queue_may_have(server, muster):
    rules = "placementrules: [{name: tag, value: namespace, create: true}]"
    await muster.kubectl.config(
        f"partitions: [{{name: default, {rules}, queues: [{{name: root, submitacl: '*'}}]}}]"
    )
    annotation = {"yunikorn.apache.org/namespace.quota": '{"cpu": "1"}'}
    path = "/api/v1/namespaces"
    body = {"metadata": {"name": "muster-quota", "annotations": annotation}}
    await server.client.request("POST", path, body)
    try:
        await until(lambda: "muster-quota" in muster.world.namespace_tags, "the namespace")
        await until(lambda: muster.model.queues["root.a"].status == "Draining", "the rules")
        if server.double is not None:
            await muster.kubectl.pod(a_pod("p", labels={"applicationId": "ns"}), "muster-quota")
            await until(lambda: "p" in muster.kubelets.ran, "its pod runs")
            queue = muster.model.queues["root.muster-quota"]
            assert queue.max_resource == {"vcore": 1000}
    finally:
        await server.client.request("DELETE", f"{path}/muster-quota")
