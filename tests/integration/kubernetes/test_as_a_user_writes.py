"""Pods as people write them, over a small cluster that others use too: where each runs, or that it waits.

What holds is what kube-scheduler does with the same pod; the few exceptions are YuniKorn's.
"""

import pytest

from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH
from tests.integration.kubernetes.test_backend import QUEUES, member, until_condition, until_only
from tests.kubernetes.controller_manager import ControllerManager, path_of
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

LABELS = {"applicationId": "app", "queue": "root.a"}
PODS = "/api/v1/namespaces/default/pods"
WAITS = ""
NODES = {
    "n1": {"zone": "a", "disk": "ssd", "size": "10", "kubernetes.io/hostname": "n1"},
    "n2": {"zone": "b", "kubernetes.io/hostname": "n2"},
    "n3": {"zone": "c", "kubernetes.io/hostname": "n3"},
}


@pytest.fixture
async def muster(server):
    kubectl = server.kubectl
    await kubectl.config(QUEUES)
    for name, labels in NODES.items():
        await kubectl.node(name, labels, cpu="4", memory="8Gi", pods="20")
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    await kubectl.patch("/api/v1/nodes/n2", {"spec": {"taints": [taint]}})
    await kubectl.patch("/api/v1/nodes/n3", {"spec": {"unschedulable": True}})
    web = a_pod("web", scheduler="another", cpu="1", labels={"app": "web"}, nodeName="n1")
    web["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    web["spec"]["affinity"] = anti("hater")
    await kubectl.pod(web)
    async with muster_over(server.access, kubectl) as running:
        await until(lambda: "web" in running.kubelets.ran, "the other's pod runs")
        yield running


def where(*terms):
    chosen = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}}
    }


def one(key, operator, *values):
    found = {"key": key, "operator": operator}
    return {"matchExpressions": [{**found, "values": list(values)} if values else found]}


def _term(app, key):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def anti(app, key="kubernetes.io/hostname"):
    return {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}
    }


def near(app, key="kubernetes.io/hostname"):
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}}


def asks(*, limits=None, **requests):
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    return {"name": "c", "image": "pause", "resources": resources}


def port(number, **more):
    opened = [{"containerPort": 80, "hostPort": number, **more}]
    return {"containers": [{**asks(cpu="1"), "ports": opened}]}


def starts(*containers):
    return {"containers": [asks(cpu="1")], "initContainers": list(containers)}


SIDECAR = {**asks(cpu="2"), "name": "s", "restartPolicy": "Always"}
IN_B = {"zone": "b"}
CASES = {
    "anywhere": ({}, "n1"),
    "nothing asked for": ({"containers": [{"name": "c", "image": "pause"}]}, "n1"),
    "a taint": ({"nodeSelector": IN_B}, WAITS),
    "a taint, tolerated": (
        {"nodeSelector": IN_B, "tolerations": [{"key": "dedicated", "value": "x"}]}, "n2"),
    "a taint, tolerated by key": (
        {"nodeSelector": IN_B, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}, "n2"),
    "every taint tolerated": ({"nodeSelector": IN_B, "tolerations": [{"operator": "Exists"}]}, "n2"),
    "another value tolerated": (
        {"nodeSelector": IN_B, "tolerations": [{"key": "dedicated", "value": "y"}]}, WAITS),
    "another effect tolerated": (
        {"nodeSelector": IN_B,
         "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]}, WAITS),
    "greater than": (where(one("size", "Gt", "5")), "n1"),
    "not greater than": (where(one("size", "Gt", "10")), WAITS),
    "a label that is not there": (where(one("disk", "DoesNotExist")), WAITS),
    "not in, and not there at all": (where(one("none", "NotIn", "a")), "n1"),
    "one term of two": (where(one("zone", "In", "c"), one("disk", "In", "ssd")), "n1"),
    "an empty term is none": (where({}), WAITS),
    "by name": (
        where({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), "n1"),
    "by name, cordoned": (
        where({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}), WAITS),
    "preferred, and not there": (
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": one("zone", "In", "c")}]}}}, "n1"),
    "what is left of the node": ({"containers": [asks(cpu="3")]}, "n1"),
    "more than is left of the node": ({"containers": [asks(cpu="3001m")]}, WAITS),
    "a limit for want of a request": (
        {"containers": [{"name": "c", "image": "pause", "resources": {"limits": {"cpu": "4"}}}]}, WAITS),
    "a start that is larger": (starts({**asks(cpu="4"), "name": "i"}), WAITS),
    "a start that is not": (starts({**asks(cpu="3"), "name": "i"}), "n1"),
    "a sidecar beside": (starts(SIDECAR), "n1"),
    "two sidecars beside": (starts(SIDECAR, {**SIDECAR, "name": "t"}), WAITS),
    "a start after a sidecar": (starts(SIDECAR, {**asks(cpu="2"), "name": "i"}), WAITS),
    "a start before a sidecar": (starts({**asks(cpu="3"), "name": "i"}, SIDECAR), "n1"),
    "a resource that nobody has": ({"containers": [asks(**{"example.com/foo": "1"})]}, WAITS),
    "none of a resource that nobody has": (
        {"containers": [asks(cpu="1", **{"example.com/foo": "0"})]}, "n1"),
    "memory in many words": ({"containers": [asks(memory="1.5e9")]}, "n1"),
    "away from others": ({"affinity": anti("web")}, WAITS),
    "away from nobody": ({"affinity": anti("nobody")}, "n1"),
    "near others": ({"affinity": near("web")}, "n1"),
    "near others, by zone": ({"affinity": near("web", "zone")}, "n1"),
    "near nobody": ({"affinity": near("nobody")}, WAITS),
    "near its own, of which it is the first": ({"affinity": near("x")}, "n1"),
    "a port that is taken": (port(8080), WAITS),
    "a port that is taken at every address": (port(8080, hostIP="127.0.0.1"), WAITS),
    "the same port of another protocol": (port(8080, protocol="UDP"), "n1"),
    "another port": (port(8081), "n1"),
    "a deadline": ({"activeDeadlineSeconds": 3600}, "n1"),
}  # fmt: skip


async def test_a_pod_runs_where_kubernetes_would_have_it_run(muster):
    """One after the other. Those that wait come first: nothing else holds a place by then."""
    rows = sorted(CASES.items(), key=lambda row: row[1][1] != WAITS)
    for at, (case, (spec, node)) in enumerate(rows):
        name = f"p{at}"
        body = a_pod(name, labels={**LABELS, "applicationId": f"app{at}"})
        body["spec"] |= spec
        await muster.kubectl.pod(body)
        if node:
            await until(lambda name=name: muster.kubelets.ran.get(name), f"{case}: it runs")
            assert muster.kubelets.ran[name] == node, case
        else:
            await until_condition(muster.kubectl, name, ("False", "Unschedulable"), case)
            assert name not in muster.kubelets.ran, case
        await muster.kubectl.delete(name)
        await until_only(muster.kubectl, ["web"])


async def test_a_pod_whom_others_keep_away_waits_until_they_have_gone(muster):
    await muster.kubectl.pod(a_pod("p", labels={**LABELS, "app": "hater"}))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    await muster.kubectl.delete("web")
    await until(lambda: muster.kubelets.ran.get("p") == "n1", "it runs")


async def test_what_another_scheduler_ran_to_its_end_holds_nothing(muster):
    await muster.kubectl.pod(a_pod("p", cpu="4", labels=LABELS))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    status = {"status": {"phase": "Succeeded"}}
    await muster.kubectl.client.request(
        "PATCH", f"{PODS}/web/status", status, content_type=STRATEGIC_PATCH
    )
    await until(lambda: muster.kubelets.ran.get("p") == "n1", "it runs")


async def test_a_pod_of_the_same_name_is_another_one(muster):
    await muster.kubectl.pod(a_pod("p", cpu="3", labels=LABELS))
    await until(lambda: "p" in muster.kubelets.ran, "the first runs")
    await muster.kubectl.delete("p")
    await until_only(muster.kubectl, ["web"])
    uids = len(muster.kubelets.nodes_of)
    made = await muster.kubectl.pod(a_pod("p", cpu="3", labels=LABELS))
    await until(lambda: made["metadata"]["uid"] in muster.kubelets.nodes_of, "the second runs")
    assert len(muster.kubelets.nodes_of) == uids + 1


async def test_a_pod_that_names_its_node_itself_is_counted_there(muster):
    await muster.kubectl.pod(a_pod("own", cpu="3", labels=LABELS, nodeName="n1"))
    await until(lambda: muster.model.queues["root.a"].allocated.get("vcore") == 3000, "it counts")
    await muster.kubectl.pod(a_pod("p", cpu="1", labels=LABELS))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    await muster.kubectl.delete("own")
    await until(lambda: "p" in muster.kubelets.ran, "its room is had")


async def test_a_node_that_goes_and_comes_back_is_used_again(muster):
    await muster.kubectl.client.request("DELETE", "/api/v1/nodes/n1")
    await muster.kubectl.pod(a_pod("p", labels=LABELS))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    await muster.kubectl.node("n1", NODES["n1"], cpu="4", memory="8Gi", pods="20")
    await until(lambda: muster.kubelets.ran.get("p") == "n1", "it runs")


async def test_a_node_whose_taint_is_lifted_or_label_changes_is_used(muster):
    await muster.kubectl.pod(a_pod("p", labels=LABELS, nodeSelector={"zone": "d"}))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    await muster.kubectl.patch("/api/v1/nodes/n2", {"metadata": {"labels": {"zone": "d"}}})
    await muster.kubectl.patch("/api/v1/nodes/n2", {"spec": {"taints": None}})
    await until(lambda: muster.kubelets.ran.get("p") == "n2", "it runs")


def made_by(kind, name, spec, template):
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": version, "kind": kind, "metadata": {"name": name},
        "spec": {**spec, "template": template},
    }  # fmt: skip


def template_of(pod):
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {"metadata": metadata, "spec": pod["spec"]}


async def post(muster, body):
    path = path_of(body["kind"], "default")
    return await muster.kubectl.client.request("POST", path, body)


async def names_of(muster, start):
    return [name for name in await muster.kubectl.pods() if name.startswith(start)]


async def test_a_job_whose_template_has_task_groups_is_a_gang_and_starts_whole(
    server, muster, double
):
    """Its controller makes the pods; one that is lost is made again, and takes a place by itself."""
    async with ControllerManager(server.access) as manager:
        spec = {"parallelism": 3, "completions": 3}
        await post(muster, made_by("Job", "train", spec, template_of(member("m", "gang"))))
        ran = lambda: [name for name in muster.kubelets.ran if name.startswith("train-")]  # noqa: E731
        await until(lambda: len(ran()) == 3, "the gang runs")
        await muster.kubectl.delete(ran()[0])
        await until(lambda: len(ran()) == 4, "the lost one is made again, and runs")
        path = path_of("Job", "default", "train")
        await muster.kubectl.client.request("DELETE", path)
        await until_only(muster.kubectl, ["web"])
        assert not manager.failures


async def test_a_job_that_is_deleted_while_its_gang_reserves_leaves_nothing(server, muster, double):
    async with ControllerManager(server.access):
        gang = template_of(member("m", "gang", members=9))
        await post(muster, made_by("Job", "train", {"parallelism": 9, "completions": 9}, gang))

        async def reserves():
            return len(await names_of(muster, "tg-")) == 9

        await until(reserves, "placeholders are made")
        await muster.kubectl.client.request("DELETE", path_of("Job", "default", "train"))
        await until_only(muster.kubectl, ["web"])
        await until(
            lambda: not muster.model.queues["root.a"].allocated.get("vcore"), "nothing is held"
        )


async def test_a_deployment_is_scaled_to_nothing_and_back(server, muster, double):
    """Its application ends with its last pod, or is about to, and goes on with the next."""
    async with ControllerManager(server.access):
        template = template_of(a_pod("p", labels=LABELS))
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}}
        await post(muster, made_by("Deployment", "serve", spec, template))
        path = path_of("Deployment", "default", "serve")

        async def are_running(count):
            found = [pod for name, pod in (await muster.kubectl.pods()).items()
                     if name.startswith("serve-") and pod["status"]["phase"] == "Running"]  # fmt: skip
            return len(found) == count

        for replicas in (2, 0, 3, 1):
            await muster.kubectl.patch(path, {"spec": {"replicas": replicas}})
            await until(lambda replicas=replicas: are_running(replicas), f"{replicas} run")


async def test_a_stateful_sets_pods_keep_their_names_and_come_again(server, muster, double):
    async with ControllerManager(server.access):
        template = template_of(a_pod("p", labels=LABELS))
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}}
        await post(muster, made_by("StatefulSet", "db", spec, template))
        await until(lambda: {"db-0", "db-1"} <= set(muster.kubelets.ran), "both run")
        before = len(muster.kubelets.nodes_of)
        await muster.kubectl.delete("db-0")
        await until(lambda: len(muster.kubelets.nodes_of) == before + 1, "it runs anew")


async def test_a_daemon_sets_pods_run_on_their_nodes_also_on_one_that_is_cordoned(
    server, muster, double
):
    async with ControllerManager(server.access):
        template = template_of(a_pod("p", labels=LABELS, tolerations=[{"operator": "Exists"}]))
        spec = {"selector": {"matchLabels": {"app": "x"}}}
        await post(muster, made_by("DaemonSet", "log", spec, template))

        def nodes():
            return sorted(n for name, n in muster.kubelets.ran.items() if name.startswith("log-"))

        await until(lambda: nodes() == ["n1", "n2", "n3"], "one runs on every node")


async def test_a_deployment_that_no_queue_takes_is_no_storm_of_failed_pods(server, muster, double):
    """Its controller makes another pod for each that fails; the pods fail ever later."""
    async with ControllerManager(server.access):
        labels = {"applicationId": "lost", "queue": "root.nowhere"}
        template = template_of(a_pod("p", labels=labels))
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}}
        await post(muster, made_by("Deployment", "lost", spec, template))

        async def failed():
            found = await muster.kubectl.pods()
            return sum(pod["status"]["phase"] == "Failed" for pod in found.values())

        async def have_failed_twice():
            return await failed() >= 4

        await until(have_failed_twice, "two rounds have failed")
        patient = a_pod("other", labels=LABELS)
        await muster.kubectl.pod(patient)
        await until(lambda: "other" in muster.kubelets.ran, "others go on meanwhile")
        assert len(await names_of(muster, "lost-")) <= 12


async def test_a_toleration_that_is_added_to_a_pod_that_waits_is_heard(muster):
    """The one thing of where it may be that can be changed at a pod that is not gated."""
    await muster.kubectl.pod(a_pod("p", labels=LABELS, nodeSelector=IN_B))
    await until_condition(muster.kubectl, "p", ("False", "Unschedulable"))
    added = {"spec": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}
    await muster.kubectl.patch(f"{PODS}/p", added)
    await until(lambda: muster.kubelets.ran.get("p") == "n2", "it runs")
