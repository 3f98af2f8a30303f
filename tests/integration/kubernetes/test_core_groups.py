"""Kubernetes' own groups: what a PodGroup says beside its minimum, and groups of groups."""

import pytest

from services.shim_adapter.backends.kubernetes import discovery, pod_groups
from tests.integration.kubernetes.test_backend import QUEUES
from tests.kubernetes import groups
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until

GROUPS = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/podgroups"
COMPOSITES = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups"
PRIORITY = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUE = {"queue": "root.a"}


@pytest.fixture
async def muster(double, server, monkeypatch):
    monkeypatch.setattr(discovery, "DISCOVERY_SECONDS", 0.1)
    monkeypatch.setattr(pod_groups, "TELL_SECONDS", 0)
    double.serve(*groups.ALPHA_OF_1_37)
    double.serve(*groups.COMPOSITE)
    await server.kubectl.config(QUEUES)
    async with muster_over(server.access, server.kubectl) as running:
        yield running


async def nodes(muster, racks, cpu="1"):
    for name, rack in racks.items():
        await muster.kubectl.node(name, {"rack": rack}, cpu=cpu, memory="8Gi", pods="40")


async def make(muster, path, name, least=None, parent="", **spec):
    key = "minGroupCount" if path == COMPOSITES else "minCount"
    spec["schedulingPolicy"] = {"basic": {}} if least is None else {"gang": {key: least}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    spec.setdefault("workloadRef", {"workloadName": "w", "templateName": name})
    kind = "CompositePodGroup" if path == COMPOSITES else "PodGroup"
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": kind, "spec": spec}
    await muster.kubectl.client.request("POST", path, {**body, "metadata": {"name": name}})


async def pods(muster, group, *names, cpu="800m", **spec):
    for name in names:
        pod = a_pod(name, cpu=cpu, labels=QUEUE, **spec)
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
        await muster.kubectl.pod(pod)


async def until_running(muster, *names):
    await until(lambda: all(name in muster.kubelets.ran for name in names), f"{names} run")


async def until_waits(muster, name, words):
    async def says():
        pod = (await muster.kubectl.pods())[name]
        found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
        return bool(found) and words in found[0]["message"]

    await until(says, f"{name} says {words!r}")


async def until_condition(muster, path, name, *wanted):
    async def says():
        found = (await muster.kubectl.get(f"{path}/{name}")).get("status") or {}
        rows = [(c["type"], c["status"], c["reason"]) for c in found.get("conditions") or ()]
        return wanted in rows

    await until(says, f"{name}: {wanted}")


async def settled(muster):
    """Wait until a pod of its own was scheduled: all before it was judged."""
    name = f"settled-{len(muster.kubelets.ran)}"
    await muster.kubectl.pod(a_pod(name, cpu="1m", labels={"applicationId": name, **QUEUE}))
    await until_running(muster, name)


DONE = ("True", "Scheduled")
LACKS = ("False", "Unschedulable")


async def test_two_groups_in_one_group_start_together_in_one_block_or_not_at_all(muster):
    await nodes(muster, {"a1": "a", "b1": "b", "b2": "b", "b3": "b"})
    level = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    await make(muster, COMPOSITES, "root", 2, **level)
    await make(muster, GROUPS, "leader", 1, "root")
    await make(muster, GROUPS, "workers", 2, "root")
    await pods(muster, "leader", "l0")
    await until_waits(muster, "l0", "must start together")
    await pods(muster, "workers", "w0", "w1")
    await until_running(muster, "l0", "w0", "w1")
    assert {muster.kubelets.ran[name] for name in ("l0", "w0", "w1")} == {"b1", "b2", "b3"}
    await until_condition(muster, COMPOSITES, "root", "CompositePodGroupInitiallyScheduled", *DONE)
    for name in ("leader", "workers"):
        await until_condition(muster, GROUPS, name, "PodGroupInitiallyScheduled", *DONE)


async def first_of_two_groups_runs(muster):
    """Have a tree that needs one of its two groups; of the second the pods come when one runs."""
    await nodes(muster, {"a1": "a", "a2": "a", "a3": "a"})
    await make(muster, COMPOSITES, "root", 1)
    await make(muster, GROUPS, "one", 2, "root")
    await make(muster, GROUPS, "two", 2, "root")
    await pods(muster, "one", "o0", "o1")
    await until_running(muster, "o0", "o1")
    await pods(muster, "two", "t0", "t1")


async def test_nothing_of_a_tree_starts_before_its_root_is_known(muster):
    await nodes(muster, {"a1": "a"}, cpu="4")
    await make(muster, GROUPS, "g", 1, "middle")
    await pods(muster, "g", "p0")
    await until_waits(muster, "p0", "CompositePodGroup.scheduling.k8s.io default/middle is not")
    await make(muster, COMPOSITES, "middle", 1, "root")
    await until_waits(muster, "p0", "CompositePodGroup.scheduling.k8s.io default/root is not")
    await make(muster, COMPOSITES, "root", 1)
    await until_running(muster, "p0")


async def test_as_many_groups_as_are_needed_start_and_the_others_when_they_have_room(muster):
    await first_of_two_groups_runs(muster)
    await settled(muster)
    assert not {"t0", "t1"} & {*muster.kubelets.ran}
    await muster.kubectl.node("a4", {"rack": "a"}, cpu="1", memory="8Gi", pods="40")
    await until_running(muster, "t0", "t1")


async def test_a_group_that_is_added_to_a_tree_that_runs_starts_as_a_whole(muster):
    await nodes(muster, {"a1": "a"}, cpu="4")
    await make(muster, COMPOSITES, "root", 1)
    await make(muster, GROUPS, "first", 1, "root")
    await pods(muster, "first", "p0")
    await until_running(muster, "p0")
    await make(muster, GROUPS, "later", 2, "root")
    await pods(muster, "later", "q0")
    await settled(muster)
    assert "q0" not in muster.kubelets.ran
    await pods(muster, "later", "q1")
    await until_running(muster, "q0", "q1")


async def test_four_groups_deep_are_a_gang_and_five_are_invalid(muster):
    await nodes(muster, {"a1": "a"}, cpu="4")
    for name, parent in (("c1", ""), ("c2", "c1"), ("c3", "c2")):
        await make(muster, COMPOSITES, name, 1, parent)
    await make(muster, GROUPS, "g", 1, "c3")
    await pods(muster, "g", "p0")
    await until_running(muster, "p0")
    for name, parent in (("d1", ""), ("d2", "d1"), ("d3", "d2"), ("d4", "d3")):
        await make(muster, COMPOSITES, name, 1, parent)
    await make(muster, GROUPS, "h", 1, "d4")
    await pods(muster, "h", "q0")
    await until_waits(muster, "q0", "5 groups deep, at most 4")
    kind = "CompositePodGroupInitiallyScheduled"
    await until_condition(muster, COMPOSITES, "d1", kind, "False", "Invalid")


async def test_a_circle_and_several_workloads_are_invalid(muster):
    await nodes(muster, {"a1": "a"}, cpu="4")
    await make(muster, COMPOSITES, "c1", 1, "c2")
    await make(muster, COMPOSITES, "c2", 1, "c1")
    await make(muster, GROUPS, "g", 1, "c1")
    await pods(muster, "g", "p0")
    await until_waits(muster, "p0", "its parents go in a circle")
    kind = "CompositePodGroupInitiallyScheduled"
    await until_condition(muster, COMPOSITES, "c1", kind, "False", "Invalid")
    await make(muster, COMPOSITES, "d1", 1)
    other = {"workloadRef": {"workloadName": "other", "templateName": "t"}}
    await make(muster, GROUPS, "h", 1, "d1", **other)
    await pods(muster, "h", "q0")
    await until_waits(muster, "q0", "several Workloads: other, w")
    await until_condition(muster, COMPOSITES, "d1", kind, "False", "Invalid")


async def test_a_minimum_that_changes_counts_for_who_waits_also_in_the_queue(muster):
    await nodes(muster, {"a1": "a", "a2": "a"})
    await make(muster, GROUPS, "g", 3)
    await pods(muster, "g", "p0", "p1", "p2")
    await until(lambda: muster.model.application("default-podgroup-g"), "it waits for room")
    await settled(muster)
    assert not {"p0", "p1", "p2"} & {*muster.kubelets.ran}
    path, policy = f"{GROUPS}/g", {"schedulingPolicy": {"gang": {"minCount": 2}}}
    await muster.kubectl.patch(path, {"spec": policy})
    await until(lambda: len({"p0", "p1", "p2"} & {*muster.kubelets.ran}) == 2, "two of them run")
    kind = "PodGroupInitiallyScheduled"
    await until_condition(muster, GROUPS, "g", kind, *DONE)
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    await muster.kubectl.patch(path, {"spec": policy})
    await settled(muster)
    await until_condition(muster, GROUPS, "g", kind, *DONE)
    assert {"p0", "p1", "p2"} <= {*await muster.kubectl.pods()}


async def test_a_minimum_that_is_raised_counts_for_who_comes_to_a_group_that_runs(muster):
    await nodes(muster, {"a1": "a", "a2": "a"}, cpu="2")
    await make(muster, GROUPS, "g", 2)
    await pods(muster, "g", "p0", "p1")
    await until_running(muster, "p0", "p1")
    policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    await muster.kubectl.patch(f"{GROUPS}/g", {"spec": policy})
    await settled(muster)
    await pods(muster, "g", "p2")
    await until_waits(muster, "p2", "4 pods must start together, and some do not exist yet")
    await settled(muster)
    assert "p2" not in muster.kubelets.ran
    await pods(muster, "g", "p3")
    await until_running(muster, "p2", "p3")


async def test_pods_of_one_group_have_one_scheduler_or_none_of_ours_starts(muster):
    await nodes(muster, {"a1": "a"}, cpu="4")
    await make(muster, GROUPS, "g", 2)
    other = a_pod("other", cpu="1", labels=QUEUE, schedulerName="default-scheduler")
    other["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    await muster.kubectl.pod(other)
    await pods(muster, "g", "p0", "p1")
    await until_waits(muster, "p0", "name several schedulers")
    await settled(muster)
    assert not {"p0", "p1"} & {*muster.kubelets.ran}
    await muster.kubectl.delete("other")
    await until_running(muster, "p0", "p1")


async def test_the_priority_of_a_group_comes_before_that_of_its_pods(muster):
    await muster.kubectl.client.request(
        "POST", PRIORITY, {"metadata": {"name": "high"}, "value": 1000}
    )
    await nodes(muster, {"a1": "a"}, cpu="4")
    await make(muster, GROUPS, "g", 2, priorityClassName="high", priority=1000)
    await make(muster, GROUPS, "n", 1, priority=-7, preemptionPolicy="Never")
    await pods(muster, "g", "p0", "p1")
    await pods(muster, "n", "q0")
    await until_running(muster, "p0", "p1", "q0")
    found = {pod.spec.name: pod.spec for pod in muster.world.all_pods()}
    assert [found[name].priority for name in ("p0", "p1", "q0")] == [1000, 1000, -7]
    assert [found[name].allow_preempt_other for name in ("p0", "q0")] == [True, False]


async def test_under_the_basic_policy_the_first_pod_chooses_the_domain_of_all(muster):
    await nodes(muster, {"a1": "a", "b1": "b", "b2": "b"})
    level = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    await make(muster, GROUPS, "g", None, **level)
    await pods(muster, "g", "p0")
    await until_running(muster, "p0")
    await pods(muster, "g", "p1", "p2")
    await settled(muster)
    placed = {name: muster.kubelets.ran[name][0] for name in ("p0", "p1", "p2")
              if name in muster.kubelets.ran}  # fmt: skip
    assert len({*placed.values()}) == 1
    assert len(placed) == {"a": 1, "b": 2}[placed["p0"]]


async def test_a_group_that_cannot_be_read_has_the_reason_scheduler_error(muster):
    level = {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}
    await make(muster, GROUPS, "g", 1, **level)
    await pods(muster, "g", "p0")
    kind = "PodGroupInitiallyScheduled"
    await until_condition(muster, GROUPS, "g", kind, "False", "SchedulerError")


async def test_less_than_the_minimum_holds_no_place_whatever_gang_admission_is(muster):
    await nodes(muster, {"a1": "a", "a2": "a", "a3": "a", "a4": "a"})
    for name in ("g", "h"):
        await make(muster, GROUPS, name, 3)
        await pods(muster, name, *(f"{name}{at}" for at in range(3)))
        if name == "g":
            await until_running(muster, "g0", "g1", "g2")
    await until(lambda: muster.model.application("default-podgroup-h"), "it waits for room")
    await settled(muster)
    placeholders = [pod for pod in muster.world.all_pods() if pod.spec.placeholder]
    assert len(placeholders) == 3
    assert not any(pod.node for pod in placeholders)
    await muster.kubectl.pod(a_pod("alone", cpu="800m", labels={"applicationId": "x", **QUEUE}))
    await until_running(muster, "alone")


async def test_a_tree_is_taken_up_where_it_stands_by_the_next_shim_adapter(muster):
    await first_of_two_groups_runs(muster)
    before = muster.world
    await muster.kill_shim()
    await until(lambda: muster.world is not before and muster.is_ready(), "the next turn")
    await settled(muster)
    assert not {"t0", "t1"} & {*muster.kubelets.ran}
    await muster.kubectl.node("a4", {"rack": "a"}, cpu="1", memory="8Gi", pods="40")
    await until_running(muster, "t0", "t1")
    names = {pod.spec.application_id for pod in muster.world.all_pods()}
    assert {name for name in names if not name.startswith("settled")} == {"default-composite-root"}
