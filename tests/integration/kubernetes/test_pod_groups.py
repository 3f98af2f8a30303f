"""Gangs of operators: PodGroups and Workloads that an API server serves, and the pods that name them."""

import pytest

from services.api.why.standing import why
from services.shim_adapter.backends.kubernetes import discovery, pod_groups
from services.shim_adapter.backends.kubernetes.client import STRATEGIC_PATCH, ApiServerError
from tests.integration.kubernetes.test_backend import QUEUES
from tests.kubernetes import groups
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.kubernetes.rights import granted
from tests.patience import until

COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
LABEL = "scheduling.x-k8s.io/pod-group"
QUEUE = {"queue": "root.a"}


def member(name, group="g", *, cpu="1", **more):
    labels = {LABEL: group, **QUEUE, **more.pop("labels", {})}
    return a_pod(name, cpu=cpu, labels=labels, **more)


async def make(kubectl, path, name, **spec):
    version = "/".join(path.split("/")[2:4])
    kind = "Workload" if path.endswith("workloads") else "PodGroup"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return await kubectl.client.request("POST", path, body)


class Kinds:
    """The kinds that the API server serves beside its own: on a real one definitions of ours."""

    def __init__(self, server):
        self._server = server
        self._made = []

    async def serve(self, path, plural, kind):
        if self._server.double is not None:
            self._server.double.serve(path, plural, kind)
            return
        client = self._server.client
        if not path.startswith("scheduling.k8s.io/"):
            await client.request("POST", groups.DEFINITIONS, groups.definition(path, plural, kind))
            self._made.append((path, plural, kind))
        elif not await self._is_served(path, plural):
            pytest.skip(f"this API server does not serve {plural} of {path}")
        await until(lambda: self._is_served(path, plural), f"{plural} of {path}")

    async def serve_no_more(self, path, plural, kind):
        if self._server.double is not None:
            self._server.double.serve_no_more(path)
            return
        name = f"{groups.DEFINITIONS}/{plural}.{path.partition('/')[0]}"
        await self._server.client.request("DELETE", name)
        self._made.remove((path, plural, kind))

        async def has_gone():
            return not (await self._is_there(name) or await self._is_served(path, plural))

        await until(has_gone, f"no {plural} of {path} any more")

    async def _is_served(self, path, plural):
        return await self._is_there(f"/apis/{path}/{plural}")

    async def _is_there(self, path):
        try:
            await self._server.client.request("GET", path)
        except ApiServerError as error:
            if error.code != 404:
                raise
            return False
        return True

    async def forget(self):
        for kind in list(self._made):
            await self.serve_no_more(*kind)


@pytest.fixture
async def kinds(server):
    made = Kinds(server)
    yield made
    await made.forget()


@pytest.fixture
async def muster(server, kinds, monkeypatch):
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.1)
    monkeypatch.setattr(pod_groups, "TELL_SECONDS", 0)
    await kinds.serve(*groups.COSCHEDULING)
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="40")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


async def waits(kubectl, name):
    """Return why a pod says that it waits."""
    pod = (await kubectl.pods())[name]
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return found[0]["message"] if found and not pod["spec"].get("nodeName") else ""


async def until_one_waits(kubectl, words):
    async def says():
        pods = (await kubectl.get("/api/v1/namespaces/default/pods"))["items"]
        conditions = [item for pod in pods for item in pod["status"].get("conditions", ())]
        return any(words in item.get("message", "") for item in conditions)

    await until(says, f"a pod says {words!r}")


async def until_waits(kubectl, name, words):
    async def says():
        return words in await waits(kubectl, name)

    await until(says, f"{name} says {words!r}")


async def until_running(muster, *names):
    await until(lambda: all(name in muster.kubelets.ran for name in names), f"{names} run")


async def test_pods_of_a_pod_group_wait_for_one_another_and_start_as_a_gang(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    for at in range(2):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_waits(muster.kubectl, "m1", "3 pods must start together")

    def held():
        answer = why(muster.model, "default-podgroup-g")
        return answer and [(row.reason, row.pods) for row in answer.waits]

    await until(lambda: held() == [("POD_GROUP", ["m0", "m1"])], "the API knows why")
    assert muster.kubelets.ran == {}
    await muster.kubectl.pod(member("m2"))
    await until_running(muster, "m0", "m1", "m2")
    await until(lambda: not [p for p in muster.world.all_pods() if p.spec.placeholder], "no more")
    summary = lambda: muster.model.application("default-podgroup-g").summary  # noqa: E731
    await until(lambda: summary().allocated["vcore"] == 3000, "it is counted")
    assert summary().queue_name == "root.a"


async def placeholders(kubectl):
    return {name: pod for name, pod in (await kubectl.pods()).items() if name.startswith("tg-")}


async def until_no_placeholders(kubectl):
    async def gone():
        return not await placeholders(kubectl)

    await until(gone, "no placeholder is left")


async def test_a_gang_that_has_no_room_starts_none_of_its_pods_until_it_has_room_for_all(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=6)
    for at in range(6):
        await muster.kubectl.pod(member(f"m{at}"))
    await until(lambda: muster.model.application("default-podgroup-g"), "the gang is there")
    await muster.kubectl.pod(a_pod("last", cpu="100m", labels={"applicationId": "x", **QUEUE}))
    await until(lambda: muster.model.application("x"), "everything was looked at")
    assert not [name for name in muster.kubelets.ran if name.startswith("m")]
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="40")
    await until_running(muster, *(f"m{at}" for at in range(6)))
    await until_no_placeholders(muster.kubectl)


async def test_pods_come_before_their_pod_group_and_before_its_kind_is_served(muster, kinds):
    await kinds.serve_no_more(*groups.COSCHEDULING)
    for at in range(2):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_waits(muster.kubectl, "m1", "PodGroup.scheduling.x-k8s.io default/g is not there")
    await muster.kubectl.pod(a_pod("other", labels={"applicationId": "o", **QUEUE}))
    await until_running(muster, "other")
    await kinds.serve(*groups.COSCHEDULING)
    await make(muster.kubectl, COSCHEDULING, "g", minMember=2)
    await until_running(muster, "m0", "m1")


async def test_without_the_right_to_watch_them_pod_groups_hold_up_nobody_else(
    double, server, monkeypatch
):
    monkeypatch.setattr(discovery, "LIST_SECONDS", 0.1)
    double.serve(*groups.COSCHEDULING)
    double.rights["muster"] = {right for right in granted() if right[2] != "podgroups"}
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="40")
    await make(server.kubectl, COSCHEDULING, "g", minMember=1)
    async with muster_over(server.access, server.kubectl) as running:
        await running.kubectl.pod(member("m0"))
        await running.kubectl.pod(a_pod("other", labels={"applicationId": "o", **QUEUE}))
        await until_running(running, "other")
        assert "m0" not in running.kubelets.ran
        double.rights["muster"] = granted()
        await until_running(running, "m0")


@pytest.mark.parametrize("code", [404, 503])
async def test_a_server_that_does_not_say_which_kinds_there_are_holds_up_nobody(
    double, server, monkeypatch, code
):
    monkeypatch.setattr(discovery, "_RETRY_SECONDS", 0.01)
    double.fault(method="GET", path="^/apis$", code=code, times=10**6)
    await server.kubectl.config(QUEUES)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="40")
    async with muster_over(server.access, server.kubectl) as running:
        await running.kubectl.pod(a_pod("other", labels={"applicationId": "o", **QUEUE}))
        await until_running(running, "other")


async def test_when_a_kind_is_served_no_more_its_pods_wait_and_what_runs_stays(muster, kinds):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=1)
    await muster.kubectl.pod(member("m0"))
    await until_running(muster, "m0")
    await kinds.serve_no_more(*groups.COSCHEDULING)
    await muster.kubectl.pod(member("m1", "h"))
    await until_waits(muster.kubectl, "m1", "is not there")
    await kinds.serve(*groups.COSCHEDULING)
    await make(muster.kubectl, COSCHEDULING, "h", minMember=1)
    await until_running(muster, "m1")
    assert "m0" in await muster.kubectl.pods()


async def test_a_kind_that_goes_without_a_word_has_no_objects_any_more(muster, double):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=1)
    await muster.kubectl.pod(member("m0"))
    await until_running(muster, "m0")
    del double.served[groups.COSCHEDULING[0]]
    double.store.objects.pop("podgroups.scheduling.x-k8s.io")
    session = muster.kubernetes.session
    await until(lambda: not session.cluster.groups.objects.by_name, "it is known to have gone")
    await muster.kubectl.pod(member("m1"))
    await until_waits(muster.kubectl, "m1", "is not there")


async def test_a_group_goes_on_in_the_next_version_of_its_kind(muster, double):
    double.serve(*groups.OF_1_36)
    path = CORE.format("v1alpha2", "podgroups")
    await make(muster.kubectl, path, "g", schedulingPolicy={"gang": {"minCount": 2}})
    await muster.kubectl.pod(of_core("p0", "g"))
    await until_waits(muster.kubectl, "p0", "2 pods must start together")
    double.serve(*groups.OF_1_37)
    lists = "GET podgroups.scheduling.k8s.io"
    before = double.requests[lists]
    await until(lambda: double.requests[lists] >= before + 2, "it is listed anew, and watched")
    await muster.kubectl.pod(of_core("p1", "g"))
    await until_running(muster, "p0", "p1")


async def test_a_smaller_minimum_lets_go_who_waits_and_a_deleted_group_lets_nobody_go(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    for at in range(2):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_waits(muster.kubectl, "m0", "3 pods must start together")
    await muster.kubectl.client.request("DELETE", f"{COSCHEDULING}/g")
    await until_waits(muster.kubectl, "m0", "default/g is not there")
    await muster.kubectl.pod(member("m2"))
    await until_waits(muster.kubectl, "m2", "default/g is not there")
    assert muster.kubelets.ran == {}
    await muster.kubectl.delete("m2")
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    await until_waits(muster.kubectl, "m0", "3 pods must start together")
    await muster.kubectl.patch(f"{COSCHEDULING}/g", {"spec": {"minMember": 2}})
    await until_running(muster, "m0", "m1")
    await muster.kubectl.client.request("DELETE", f"{COSCHEDULING}/g")
    assert {"m0", "m1"} <= set(await muster.kubectl.pods())


async def test_who_is_beyond_the_minimum_joins_one_by_one(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=2)
    for at in range(3):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_running(muster, "m0", "m1", "m2")
    await until_no_placeholders(muster.kubectl)
    await muster.kubectl.pod(member("m3"))
    await until_running(muster, "m3")
    summary = lambda: muster.model.application("default-podgroup-g").summary  # noqa: E731
    await until(lambda: summary().allocated["vcore"] == 4000, "it is counted")


async def test_a_gang_whose_pods_are_all_made_anew_starts_as_a_whole_again(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    for at in range(3):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_running(muster, "m0", "m1", "m2")
    await until_no_placeholders(muster.kubectl)
    for at in range(3):
        await muster.kubectl.delete(f"m{at}", gracePeriodSeconds=0)
    await muster.kubectl.pod(a_pod("in-the-way", cpu="2", labels={"applicationId": "x", **QUEUE}))
    await until_running(muster, "in-the-way")
    for at in range(3):
        await muster.kubectl.pod(member(f"n{at}"))
    await until(lambda: muster.model.application("default-podgroup-g-2"), "its next try")
    await muster.kubectl.pod(a_pod("last", cpu="100m", labels={"applicationId": "y", **QUEUE}))
    await until(lambda: muster.model.application("y"), "everything was looked at")
    assert not [name for name in muster.kubelets.ran if name.startswith("n")]
    await muster.kubectl.delete("in-the-way", gracePeriodSeconds=0)
    await until_running(muster, "n0", "n1", "n2")


@pytest.mark.parametrize("when", ["waiting", "reserving", "running"])
async def test_a_gang_is_taken_up_where_it_stands_by_the_next_shim_adapter(muster, when):
    least = {"waiting": 4, "reserving": 6, "running": 3}[when]
    await make(muster.kubectl, COSCHEDULING, "g", minMember=least)
    made = 3 if when != "reserving" else 6
    for at in range(made):
        await muster.kubectl.pod(member(f"m{at}"))
    if when == "waiting":
        await until_waits(muster.kubectl, "m2", "4 pods must start together")
    elif when == "reserving":
        await until(lambda: sum(p.spec.placeholder for p in muster.world.all_pods()) == 6, "six")
    else:
        await until_running(muster, "m0", "m1", "m2")
    before = muster.world
    await muster.kill_shim()
    await until(lambda: muster.world is not before and muster.is_ready(), "the next turn")
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="40")
    if when == "waiting":
        assert muster.kubelets.ran == {}
        await muster.kubectl.pod(member("m3"))
    await until_running(muster, *(f"m{at}" for at in range(max(made, least))))
    await until_no_placeholders(muster.kubectl)
    names = {pod.spec.application_id for pod in muster.world.all_pods()}
    assert names == {"default-podgroup-g"}


# --- gangs that are not to be had ---------------------------------------------------------------


async def test_a_gang_without_room_in_time_waits_again_as_a_whole_and_no_pod_fails(
    muster, monkeypatch
):
    monkeypatch.setattr(pod_groups, "MIN_TIMEOUT_SECONDS", 1)
    monkeypatch.setattr(pod_groups, "RETRY_SECONDS", 1)
    await make(muster.kubectl, COSCHEDULING, "g", minMember=6, scheduleTimeoutSeconds=1)
    for at in range(6):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_waits(muster.kubectl, "m5", "has had no places")
    await until(lambda: muster.world.submissions > 1, "its next try")
    assert not [name for name in muster.kubelets.ran if name.startswith("m")]
    await muster.kubectl.node("n2", cpu="4", memory="8Gi", pods="40")
    await until_running(muster, *(f"m{at}" for at in range(6)))
    await until_no_placeholders(muster.kubectl)

    async def all_are_running():
        phases = {pod["status"]["phase"] for pod in (await muster.kubectl.pods()).values()}
        assert phases <= {"Pending", "Running"}
        return phases == {"Running"}

    await until(all_are_running, "its kubelets have said so")


async def test_a_gang_whose_placeholders_a_quota_refuses_does_not_go_on_pod_by_pod(
    muster, monkeypatch
):
    monkeypatch.setattr(pod_groups, "RETRY_SECONDS", 1)
    await muster.kubectl.quota("pods", pods=5)
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    for at in range(3):
        await muster.kubectl.pod(member(f"m{at}"))
    await until_waits(muster.kubectl, "m2", "has had no places")
    await until_no_placeholders(muster.kubectl)
    assert muster.kubelets.ran.keys() & {"m0", "m1", "m2"} == set()
    path = "/api/v1/namespaces/default/resourcequotas/pods"
    await muster.kubectl.client.request("DELETE", path)
    await until_running(muster, "m0", "m1", "m2")


# --- what its pods ask for ----------------------------------------------------------------------


async def test_pods_that_ask_for_different_things_are_one_gang_of_several_task_groups(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=3)
    await muster.kubectl.pod(member("a-leader", cpu="3"))
    for at in range(2):
        await muster.kubectl.pod(member(f"b{at}", cpu="1"))
    await until(lambda: muster.model.application("default-podgroup-g"), "the gang is there")
    await until(lambda: sum(p.spec.placeholder for p in muster.world.all_pods()) == 3, "three")
    assert muster.kubelets.ran.keys() & {"a-leader", "b0", "b1"} == set()
    await muster.kubectl.node("n2", cpu="1", memory="8Gi", pods="40")
    await until_running(muster, "a-leader", "b0", "b1")
    assert muster.kubelets.ran["a-leader"] == "n1"
    await until_no_placeholders(muster.kubectl)


async def test_placeholders_keep_apart_as_their_pods_do_and_wear_none_of_their_labels(muster):
    apart = {
        "labelSelector": {"matchLabels": {"role": "w"}}, "topologyKey": "kubernetes.io/hostname",
    }  # fmt: skip
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    await make(muster.kubectl, COSCHEDULING, "g", minMember=2)
    for at in range(2):
        body = member(f"m{at}", labels={"role": "w"}, affinity=affinity, nodeSelector={"z": "1"})
        await muster.kubectl.pod(body)
    await muster.kubectl.node("n2", {"z": "1"}, cpu="4", memory="8Gi", pods="40")

    async def made():
        found = await placeholders(muster.kubectl)
        return found if len(found) == 2 else None

    found = await until(made, "both placeholders")
    assert {"role", "app", LABEL} & {
        key for p in found.values() for key in p["metadata"]["labels"]
    } == set()
    await until(lambda: len(muster.world.on_nodes.of("n2")) == 1, "one fits: the other keeps apart")
    assert muster.kubelets.ran.keys() & {"m0", "m1"} == set()
    await muster.kubectl.node("n3", {"z": "1"}, cpu="4", memory="8Gi", pods="40")
    await until_running(muster, "m0", "m1")
    assert {muster.kubelets.ran["m0"], muster.kubelets.ran["m1"]} == {"n2", "n3"}


# --- KAI ----------------------------------------------------------------------------------------

KAI = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"


def of_kai(name, group="k", *, subgroup="", **more):
    labels = {"kai.scheduler/subgroup-name": subgroup} if subgroup else {}
    labels |= more.pop("labels", {})
    return a_pod(name, annotations={"pod-group-name": group}, labels=labels, **more)


async def test_kai_a_pod_group_says_the_queue_the_priority_and_the_least_of_every_subgroup(
    muster, kinds
):
    await kinds.serve(*groups.KAI)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await muster.kubectl.client.request(
        "POST", classes, {"metadata": {"name": "train"}, "value": 50}
    )
    await make(
        muster.kubectl, KAI, "k", minMember=3, queue="root.a", priorityClassName="train",
        preemptibility="non-preemptible",
        subGroups=[{"name": "lead", "minMember": 1}, {"name": "work", "minMember": 2}],
    )  # fmt: skip
    for at in range(3):
        await muster.kubectl.pod(of_kai(f"w{at}", subgroup="work"))
    await until_waits(muster.kubectl, "w2", "1 of lead, 2 of work must start together")
    await muster.kubectl.pod(of_kai("lead", subgroup="lead"))
    await until_running(muster, "lead", "w0", "w1", "w2")
    await muster.kubectl.client.request("DELETE", f"{classes}/train")
    summary = muster.model.application("default-podgroup-k").summary
    assert summary.queue_name == "root.a"
    specs = [pod.spec for pod in muster.world.all_pods() if not pod.spec.placeholder]
    assert {(s.priority, s.priority_class, s.allow_preempt_self) for s in specs} == {
        (50, "train", False)
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"subGroups": [{"name": "a", "parent": "b"}]}, "spec.subGroups[a].parent"),
        ({"minMember": -1}, "spec.minMember"),
        ({"preemptionDelay": "soon"}, "spec.preemptionDelay"),
        ({"stalenessGracePeriod": "60"}, "spec.stalenessGracePeriod"),
    ],
)
async def test_kai_what_is_not_supported_has_the_pods_wait_and_say_so(muster, kinds, spec, words):
    await kinds.serve(*groups.KAI)
    await make(muster.kubectl, KAI, "k", **spec)
    await muster.kubectl.pod(of_kai("w0"))
    await until_waits(muster.kubectl, "w0", words)


async def test_kai_a_gang_starts_with_one_of_two_subgroups_and_has_no_placeholders(muster, kinds):
    await kinds.serve(*groups.KAI)
    subgroups = [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}]
    times = {"preemptionDelay": "5m", "stalenessGracePeriod": "-1s"}
    await make(
        muster.kubectl, KAI, "k", queue="root.a", minSubGroup=1, subGroups=subgroups, **times
    )
    await muster.kubectl.pod(of_kai("a0", subgroup="a"))
    await muster.kubectl.pod(of_kai("b0", subgroup="b"))
    await until_waits(muster.kubectl, "b0", "2 of a, 2 of b must start together")
    await muster.kubectl.pod(of_kai("b1", subgroup="b"))
    await until_running(muster, "b0", "b1")
    assert "a0" not in muster.kubelets.ran
    application = muster.world.applications["default-podgroup-k"]
    assert application.gang.preemption_delay_ns == 300 * 10**9
    assert application.gang.staleness_grace_ns == -1
    assert not any(pod.spec.placeholder for pod in muster.world.all_pods())
    await muster.kubectl.pod(of_kai("a1", subgroup="a"))
    await until_running(muster, "a0", "a1")


async def test_kai_a_gang_that_is_restarted_as_a_whole_has_its_room_and_others_do_not_get_it(
    muster, kinds
):
    await kinds.serve(*groups.KAI)
    await make(muster.kubectl, KAI, "k", queue="root.a", minMember=3)
    for at in range(3):
        await muster.kubectl.pod(of_kai(f"m{at}"))
    await until_running(muster, "m0", "m1", "m2")
    await muster.kubectl.pod(a_pod("other", cpu="2", labels={"applicationId": "x", **QUEUE}))
    await until(lambda: muster.model.application("x"), "it is known")
    for at in range(3):
        await muster.kubectl.delete(f"m{at}", gracePeriodSeconds=0)
    await muster.kubectl.pod(a_pod("last", cpu="100m", labels={"applicationId": "y", **QUEUE}))
    await until_running(muster, "last")
    assert "other" not in muster.kubelets.ran
    for at in range(3):
        await muster.kubectl.pod(of_kai(f"again{at}"))
    await until_running(muster, "again0", "again1", "again2")
    assert "other" not in muster.kubelets.ran


async def test_kai_a_minimum_that_changes_holds_for_what_runs(muster, kinds):
    await kinds.serve(*groups.KAI)
    await make(muster.kubectl, KAI, "k", queue="root.a", minMember=3)
    for at in range(3):
        await muster.kubectl.pod(of_kai(f"m{at}"))
    await until_running(muster, "m0", "m1", "m2")
    await muster.kubectl.patch(f"{KAI}/k", {"spec": {"minMember": 1}})
    known = lambda: muster.world.applications["default-podgroup-k"].gang  # noqa: E731
    await until(lambda: [each.minimum for each in known().subgroups] == [1], "it is known")


@pytest.mark.parametrize(
    ("preemptibility", "value", "may"),
    [("", 99, True), ("", 100, False), ("preemptible", 100, True), ("non-preemptible", 9, False)],
)
async def test_kai_the_priority_says_who_may_be_preempted_where_its_group_does_not(
    muster, kinds, preemptibility, value, may
):
    await kinds.serve(*groups.KAI)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"metadata": {"name": "build"}, "value": value}
    await muster.kubectl.client.request("POST", classes, body)
    said = {"preemptibility": preemptibility} if preemptibility else {}
    await make(muster.kubectl, KAI, "k", minMember=1, priorityClassName="build", **said)
    await muster.kubectl.pod(of_kai("w", labels=QUEUE))
    await until_running(muster, "w")
    await muster.kubectl.client.request("DELETE", f"{classes}/build")
    assert {pod.spec.allow_preempt_self for pod in muster.world.all_pods()} == {may}


# --- Volcano ------------------------------------------------------------------------------------

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def of_volcano(name, group="v", task="", **more):
    annotations = {"scheduling.k8s.io/group-name": group}
    if task:
        annotations["volcano.sh/task-spec"] = task
    return a_pod(name, annotations=annotations, labels=QUEUE, **more)


async def test_volcano_a_pod_group_is_a_gang_once_its_kind_is_served(muster, kinds):
    for name in ("m0", "m1"):
        await muster.kubectl.pod(of_volcano(name))
    await until_waits(muster.kubectl, "m1", "PodGroup.scheduling.volcano.sh default/v is not there")
    await kinds.serve(*groups.VOLCANO)
    group = await make(muster.kubectl, VOLCANO, "v", minMember=3)
    assert group["spec"]["queue"] == "default"  # Volcano's own, which nobody has named
    await until_waits(muster.kubectl, "m1", "3 pods must start together")
    assert muster.kubelets.ran == {}
    await muster.kubectl.pod(of_volcano("m2"))
    await until_running(muster, "m0", "m1", "m2")
    summary = muster.model.application("default-podgroup-v").summary
    assert summary.queue_name == "root.a"


async def test_volcano_so_many_of_every_task_start_at_once(muster, kinds):
    await kinds.serve(*groups.VOLCANO)
    least = {"ps": 1, "worker": 2}
    await make(muster.kubectl, VOLCANO, "v", minMember=3, queue="root.a", minTaskMember=least)
    for at in range(3):
        await muster.kubectl.pod(of_volcano(f"w{at}", task="worker"))
    await until_waits(muster.kubectl, "w2", "1 of ps, 2 of worker must start together")
    await muster.kubectl.pod(of_volcano("ps", task="ps"))
    await until_running(muster, "ps", "w0", "w1", "w2")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"networkTopology": {"highestTierAllowed": 1}}, "spec.networkTopology"),
        ({"minMember": 5, "minTaskMember": {"a": 1}}, "spec.minTaskMember"),
        ({"minMember": 1, "minTaskMember": {"a": "x"}}, "spec.minTaskMember"),
        ({"subGroupPolicy": [{"name": "a"}]}, "spec.subGroupPolicy[0].subGroupSize"),
        ({"subGroupPolicy": [{"name": "a/b", "subGroupSize": 1}]}, "spec.subGroupPolicy[0].name"),
        (
            {"subGroupPolicy": [{"name": "a", "subGroupSize": 1}], "minTaskMember": {"a": 1}},
            "spec.minTaskMember: not supported beside subGroupPolicy",
        ),
        (
            {"subGroupPolicy": [{"name": name, "subGroupSize": 1} for name in "ab"]},
            "spec.subGroupPolicy[0].minSubGroups",
        ),
    ],
)
async def test_volcano_what_is_not_supported_waits_and_says_so(muster, kinds, spec, words):
    await kinds.serve(*groups.VOLCANO)
    await make(muster.kubectl, VOLCANO, "v", **spec)
    await muster.kubectl.pod(of_volcano("w"))
    await until_waits(muster.kubectl, "w", words)


# --- core Kubernetes ----------------------------------------------------------------------------

CORE = "/apis/scheduling.k8s.io/{}/namespaces/default/{}"


def of_core(name, group, **more):
    return a_pod(name, labels=QUEUE, schedulingGroup={"podGroupName": group}, **more)


@pytest.mark.parametrize("kind", [groups.OF_1_36, groups.OF_1_37])
async def test_core_a_pod_group_of_1_36_and_later_is_a_gang(muster, kinds, kind):
    await kinds.serve(*kind)
    path = CORE.format(kind[0].partition("/")[2], "podgroups")
    await make(muster.kubectl, path, "g", schedulingPolicy={"gang": {"minCount": 2}})
    await muster.kubectl.pod(of_core("p0", "g"))
    await until_waits(muster.kubectl, "p0", "2 pods must start together")
    await muster.kubectl.pod(of_core("p1", "g"))
    await until_running(muster, "p0", "p1")


async def test_core_under_the_basic_policy_each_pod_is_for_itself_once_its_group_is_there(
    muster, kinds
):
    await kinds.serve(*groups.OF_1_36)
    await muster.kubectl.pod(of_core("p0", "g"))
    await until_waits(muster.kubectl, "p0", "PodGroup.scheduling.k8s.io default/g is not there")
    await make(
        muster.kubectl, CORE.format("v1alpha2", "podgroups"), "g", schedulingPolicy={"basic": {}}
    )
    await until_running(muster, "p0")
    assert not await placeholders(muster.kubectl)


async def test_core_the_replicas_of_a_workloads_part_are_gangs_each_in_1_35(muster, kinds):
    await kinds.serve(*groups.OF_1_35)
    part = {"name": "workers", "policy": {"gang": {"minCount": 2}}}
    await make(muster.kubectl, CORE.format("v1alpha1", "workloads"), "job", podGroups=[part])
    for name, key in (("a0", "0"), ("b0", "1"), ("a1", "0")):
        ref = {"name": "job", "podGroup": "workers", "podGroupReplicaKey": key}
        await muster.kubectl.pod(a_pod(name, labels=QUEUE, workloadRef=ref))
    await until_running(muster, "a0", "a1")
    await until_waits(muster.kubectl, "b0", "Workload.scheduling.k8s.io default/job/workers/1")
    ref = {"name": "job", "podGroup": "none"}
    await muster.kubectl.pod(a_pod("c0", labels=QUEUE, workloadRef=ref))
    await until_waits(muster.kubectl, "c0", "default/job/none is not there")
    assert "b0" not in muster.kubelets.ran


async def test_core_a_gang_with_a_level_is_in_one_rack_or_its_pods_are_told_what_lacks(
    muster, kinds
):
    await kinds.serve(*groups.OF_1_36)
    for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        await muster.kubectl.node(name, {"rack": rack}, cpu="1", memory="8Gi", pods="40")
    path, topology = CORE.format("v1alpha2", "podgroups"), {"topology": [{"key": "rack"}]}
    for name, count in (("two", 2), ("three", 3)):
        spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
        await make(muster.kubectl, path, name, **spec, schedulingConstraints=topology)
    for at in range(3):
        await muster.kubectl.pod(of_core(f"o{at}", "three", cpu="800m"))
    await until_one_waits(
        muster.kubectl, "of 2 domains of level rack the best, b, has places for 2 of 3 members"
    )
    for at in range(2):
        await muster.kubectl.pod(of_core(f"p{at}", "two", cpu="800m"))
    await until_running(muster, "p0", "p1")
    pods = [await muster.kubectl.get(f"/api/v1/namespaces/default/pods/p{at}") for at in range(2)]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"b1", "b2"}


async def test_core_without_the_feature_the_server_drops_the_field_and_the_pod_is_for_itself(
    muster,
):
    await muster.kubectl.pod(of_core("p0", "g"))
    await until_running(muster, "p0")


# --- beside other operators ---------------------------------------------------------------------


async def test_kueue_gated_pods_are_no_members_until_it_admits_them_and_go_where_it_says(
    server, muster
):
    await server.needs(27, "scheduling gates")
    gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    queue = {"kueue.x-k8s.io/queue-name": "users", "kueue.x-k8s.io/managed": "true"}
    await muster.kubectl.node("n2", {"flavor": "spot"}, cpu="4", memory="8Gi", pods="40")
    await make(muster.kubectl, COSCHEDULING, "g", minMember=2)
    for at in range(2):
        await muster.kubectl.pod(member(f"m{at}", labels=queue, **gate))
    await muster.kubectl.pod(a_pod("alone", labels={**queue, **QUEUE}, **gate))
    await muster.kubectl.pod(member("m2"))
    await until_waits(muster.kubectl, "m2", "2 pods must start together")
    admitted = {"spec": {"schedulingGates": None, "nodeSelector": {"flavor": "spot"}}}
    for name in ("m0", "m1", "alone"):
        await muster.kubectl.patch(f"/api/v1/namespaces/default/pods/{name}", admitted)
    await until_running(muster, "m0", "m1", "m2", "alone")
    assert [muster.kubelets.ran[name] for name in ("m0", "m1", "alone")] == ["n2"] * 3


async def test_kueue_pods_of_more_parallelism_are_no_asks_until_their_workload_is_admitted(
    server, muster
):
    await server.needs(27, "scheduling gates")
    own = {"applicationId": "slices", "kueue.x-k8s.io/queue-name": "users", **QUEUE}
    gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}
    for at in range(3):
        await muster.kubectl.pod(a_pod(f"s{at}", cpu="1", labels=own))
    await until_running(muster, "s0", "s1", "s2")
    for at in (3, 4):
        await muster.kubectl.pod(a_pod(f"s{at}", cpu="900m", labels=own, **gate))
    await muster.kubectl.pod(a_pod("last", cpu="100m", labels={"applicationId": "y", **QUEUE}))
    await until_running(muster, "last")
    assert not {"s3", "s4"} & set(muster.kubelets.ran)
    assert muster.model.application("slices").summary.allocated["vcore"] == 3000
    for at in (3, 4):
        path = f"/api/v1/namespaces/default/pods/s{at}"
        await muster.kubectl.patch(path, {"spec": {"schedulingGates": None}})
    await until(lambda: {"s3", "s4"} & set(muster.kubelets.ran), "one of them runs")
    summary = lambda: muster.model.application("slices").summary  # noqa: E731
    await until(lambda: summary().allocated["vcore"] == 3900, "it is counted, and no other")
    assert len({"s3", "s4"} & set(muster.kubelets.ran)) == 1


async def test_jobset_its_pods_are_a_gang_by_a_pod_group_and_again_when_it_restarts_them(muster):
    def of_jobset(job, attempt, at):
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": job,
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
            "batch.kubernetes.io/job-completion-index": str(at),
        }  # fmt: skip
        return member(f"train-{job}-0-{at}-{attempt}", "train", labels=labels)

    shape = [("leader", 0), ("workers", 0), ("workers", 1), ("workers", 2)]
    await make(muster.kubectl, COSCHEDULING, "train", minMember=4)
    for attempt in range(2):
        pods = [of_jobset(job, attempt, at) for job, at in shape]
        for pod in pods[:-1]:
            await muster.kubectl.pod(pod)
        names = [pod["metadata"]["name"] for pod in pods]
        await until_waits(muster.kubectl, names[2], "4 pods must start together")
        await muster.kubectl.pod(pods[-1])
        await until_running(muster, *names)
        await until_no_placeholders(muster.kubectl)
        for name in names:
            await muster.kubectl.delete(name, gracePeriodSeconds=0)


# --- what stands in their status ----------------------------------------------------------------


async def status(kubectl, path, name="g"):
    return (await kubectl.get(f"{path}/{name}")).get("status") or {}


async def test_a_pod_groups_phase_and_counts_follow_its_gang(muster):
    await make(muster.kubectl, COSCHEDULING, "g", minMember=2)
    await muster.kubectl.pod(member("m0"))

    async def stands(**wanted):
        found = await status(muster.kubectl, COSCHEDULING)
        return {name: found.get(name) for name in wanted} == wanted

    await until(lambda: stands(phase="Pending", scheduled=0), "it is pending")
    await muster.kubectl.pod(member("m1"))
    await until(lambda: stands(phase="Running", scheduled=2, running=2, succeeded=0), "it runs")
    for name in ("m0", "m1"):
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        await muster.kubectl.patch(path, {"status": {"phase": "Succeeded"}})
    await until(lambda: stands(phase="Finished", running=0, succeeded=2), "it has finished")
    group = await muster.kubectl.get(f"{COSCHEDULING}/g")
    assert group["spec"] == {"minMember": 2}


async def test_kai_a_pod_group_says_why_it_waits_until_it_does_no_more(muster, kinds):
    await kinds.serve(*groups.KAI)
    path = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
    await make(muster.kubectl, path, "g", minMember=2, queue="root.a")
    pods = [a_pod(f"m{at}", annotations={"pod-group-name": "g"}) for at in range(2)]
    await muster.kubectl.pod(pods[0])

    async def reasons():
        found = (await status(muster.kubectl, path)).get("schedulingConditions")
        return found and found[0]["reasons"][0]["message"]

    async def says():
        return "2 pods must start together" in (await reasons() or "")

    await until(says, "it says that one is missing")
    await muster.kubectl.pod(pods[1])
    await until_running(muster, "m0", "m1")

    async def is_clear():
        return (await status(muster.kubectl, path)).get("schedulingConditions") == []

    await until(is_clear, "it says so no more")


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        (groups.OF_1_36, "PodGroupScheduled"),
        (groups.OF_1_37, "PodGroupInitiallyScheduled"),
    ],
    ids=["1.36", "1.37"],
)
async def test_core_a_pod_group_has_the_condition_of_its_version(muster, kinds, kind, condition):
    await kinds.serve(*kind)
    path = f"/apis/{kind[0]}/namespaces/default/podgroups"
    await make(muster.kubectl, path, "g", schedulingPolicy={"gang": {"minCount": 2}})
    other = {"type": "DisruptionTarget", "status": "False", "reason": "None", "message": ""}
    other["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await muster.kubectl.client.request(
        "PATCH", f"{path}/g/status", {"status": {"conditions": [other]}},
        content_type=STRATEGIC_PATCH,
    )  # fmt: skip

    async def says(wanted):
        found = (await status(muster.kubectl, path)).get("conditions") or []
        return [
            (item["status"], item["reason"]) for item in found if item["type"] == condition
        ] == [wanted] and other in found

    for at, wanted in enumerate((("False", "Unschedulable"), ("True", "Scheduled"))):
        pod = a_pod(f"m{at}", labels=QUEUE)
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        await muster.kubectl.pod(pod)
        await until(lambda wanted=wanted: says(wanted), f"it is {wanted}")
