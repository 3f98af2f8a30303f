"""What the specs of gangs have beside them: other numbers, styles, ends, restarts."""

from tests.integration.kubernetes.yunikorn.gangs import (
    APP,
    NOWHERE,
    placeholders,
    until_no_placeholders,
    until_placeholders_run,
)
from tests.integration.kubernetes.yunikorn.preemption import leaf, tree
from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.stack import OPEN, Stack, gang, is_placeholder, pod_body, task_group
from tests.patience import until


@spec
async def soft_in_their_groups(stack: Stack) -> None:
    """Two groups, one of which is placed; after the timeout the job's pods run where they can."""
    await stack.begin()
    groups = [task_group("a", 2), task_group("b", 2, **NOWHERE)]
    policy = "placeholderTimeoutInSeconds=30 gangSchedulingStyle=Soft"
    first = await stack.job("a", 2, APP, annotations=gang(groups, "a", policy))
    second = await stack.job("b", 2, APP, annotations=gang(groups, "b", policy))
    await until_placeholders_run(stack, 2)
    await stack.passes(15)
    assert await stack.running() == set()
    await stack.until_running(*first, *second)
    await stack.until_state(APP, "Running")
    assert await stack.groups(APP) == {"a": (2, 0, 2), "b": (2, 0, 2)}
    assert await placeholders(stack) == {}


@spec
async def default_timeout_of_fifteen_minutes(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group("a", 2), task_group("b", 1, **NOWHERE)]
    names = await stack.job("job", 2, APP, annotations=gang(groups, "a"))
    await until_placeholders_run(stack, 2)
    await stack.passes(880)
    assert await stack.state(APP) == "Accepted"
    assert await stack.running() == set()
    await stack.until_running(*names, within=40)
    assert await stack.groups(APP) == {"a": (2, 0, 2), "b": (1, 0, 1)}


@spec
async def hard_fails_its_pods(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group("a", 2), task_group("b", 1, **NOWHERE)]
    policy = "gangSchedulingStyle=Hard placeholderTimeoutInSeconds=20"
    names = await stack.job("job", 2, APP, annotations=gang(groups, "a", policy))
    await stack.until_state(APP, "Failed")
    pods = await stack.pods()
    assert set(pods) == set(names)
    for name in names:
        assert pods[name]["status"]["phase"] == "Failed"
        assert pods[name]["status"]["reason"] == "ResourceReservationTimeout"
        if name == names[0] or stack.preset == "yunikorn":
            text = f"ApplicationFailed: Application {APP} scheduling failed, reason: "
            await stack.until_told(name, text)
    again = await stack.job("again", 2, APP, annotations=gang([task_group("a", 2)], "a"))
    await stack.until_running(*again)


@spec
async def hard_that_is_placed_runs(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group("a", 2), task_group("b", 1)]
    policy = "gangSchedulingStyle=Hard placeholderTimeoutInSeconds=20"
    names = await stack.job("job", 2, APP, annotations=gang(groups, "a", policy))
    await stack.until_running(*names)
    await until_placeholders_run(stack, 1)
    await until_no_placeholders(stack, within=30)
    assert await stack.state(APP) == "Running"
    assert await stack.groups(APP) == {"a": (2, 2, 0), "b": (1, 0, 1)}
    assert await stack.running() == set(names)


@spec
async def larger_than_its_queue_is_rejected(stack: Stack) -> None:
    small = {"name": "small", "resources": {"max": {"vcore": "40m"}}}
    await stack.begin(tree(small))
    own = gang([task_group("a", 5)], "a")
    names = await stack.job("job", 5, APP, annotations=own, queue="root.small")
    await stack.until_state(APP, "Rejected")
    found = await stack.app(APP)
    assert "task group request" in found["rejectedMessage"]
    assert "larger than max queue allocation" in found["rejectedMessage"]

    async def all_failed() -> bool:
        pods = await stack.pods()
        found = {(pod["status"]["phase"], pod["status"].get("reason")) for pod in pods.values()}
        return set(pods) == set(names) and found == {("Failed", "ApplicationRejected")}

    await until(all_failed, "its pods are failed, and it has no placeholders")


@spec
async def fair_leaf_rejects_a_gang(stack: Stack) -> None:
    await stack.begin(tree(leaf("fair", application_sort_policy="fair")))
    await stack.job("job", 2, APP, annotations=gang([task_group("a", 2)], "a"), queue="root.fair")
    await stack.until_state(APP, "Rejected")
    assert "unsupported sort type" in (await stack.app(APP))["rejectedMessage"]


@spec
async def malformed_groups_run_without_a_gang(stack: Stack) -> None:
    await stack.begin()
    broken = {"yunikorn.apache.org/task-groups": '[{"name": "a", "minMember": -1}]',
              "yunikorn.apache.org/task-group-name": "a"}  # fmt: skip
    names = await stack.job("job", 2, APP, annotations=broken)
    await stack.until_running(*names)
    assert await placeholders(stack) == {}
    await stack.until_told("job-0", "TaskGroupsError")


@spec
async def two_gangs_of_a_queue_one_after_the_other(stack: Stack) -> None:
    one = {"name": "one", "resources": {"max": {"vcore": "30m"}}}
    await stack.begin(tree(one))
    own = gang([task_group("a", 3)], "a")
    first = await stack.job("first", 3, "app-1", annotations=own, queue="root.one")
    await stack.until_running(*first)
    second = await stack.job("second", 3, "app-2", annotations=own, queue="root.one")
    await stack.passes(10)
    assert await stack.state("app-2") == "Accepted"
    await stack.finish(*first)
    await stack.until_running(*second)
    await stack.until_state("app-1", "Completing", "Completed")
    assert await stack.groups("app-2") == {"a": (3, 3, 0)}


@spec
async def tolerations_and_selectors_of_groups(stack: Stack) -> None:
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    toleration = {"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    await stack.begin(OPEN, {"w1": {}, "w2": {"taints": [taint], "labels": {"kind": "gpu"}}})
    on = {"nodeSelector": {"kind": "gpu"}, "tolerations": [toleration]}
    groups = [task_group("a", 2, **on), task_group("b", 2)]
    first = await stack.job("a", 2, APP, annotations=gang(groups, "a"), **on)
    second = await stack.job("b", 2, APP, annotations=gang(groups, "b"))
    await stack.until_running(*first, *second)
    nodes = {name: pod["spec"]["nodeName"] for name, pod in (await stack.pods()).items()}
    assert {nodes[name] for name in first} == {"w2"}
    assert {nodes[name] for name in second} == {"w1"}


@spec
async def anti_affinity_of_a_group(stack: Stack) -> None:
    await stack.begin()
    term = {
        "labelSelector": {"matchLabels": {"spread": "x"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    groups = [task_group("a", 3, labels={"spread": "x"}, affinity=affinity)]
    names = await stack.job("job", 3, APP, annotations=gang(groups, "a"), labels={"spread": "x"})
    await stack.until_running(*names)
    await until_no_placeholders(stack)
    nodes = [pod["spec"]["nodeName"] for pod in (await stack.pods()).values()]
    assert sorted(nodes) == ["w1", "w2", "w3"]


@spec
async def an_unknown_group_runs_beside(stack: Stack) -> None:
    await stack.begin()
    names = await stack.job("job", 2, APP, annotations=gang([task_group("a", 2)], "a"))
    await stack.until_running(*names)
    await stack.apply(pod_body("other", APP, annotations=gang([], "other")))
    await stack.apply(pod_body("none", APP))
    await stack.until_running("other", "none", *names)
    assert await stack.groups(APP) == {"a": (2, 2, 0)}


@spec
async def an_ended_gang_completes(stack: Stack) -> None:
    await stack.begin()
    names = await stack.job("job", 3, APP, annotations=gang([task_group("a", 3)], "a"))
    await stack.until_running(*names)
    await stack.finish(*names)
    await stack.until_state(APP, "Completing")
    await stack.passes(20)
    assert await stack.state(APP) == "Completing"
    await stack.until_state(APP, "Completed", within=20)
    over = await stack.app(APP)
    assert [entry["applicationState"] for entry in over["stateLog"]] == [
        "Accepted", "Running", "Completing", "Completed"
    ]  # fmt: skip
    queue = await stack.queue("root.default")
    assert not any((queue.get("allocatedResource") or {}).values())


@spec
async def a_driver_that_ends_before_its_executors(stack: Stack) -> None:
    """A driver without a group announces executors that never come: they time out, all ends."""
    await stack.begin()
    policy = "placeholderTimeoutInSeconds=30"
    own = gang([task_group("executor", 3)], policy=policy)
    await stack.apply(pod_body("driver", APP, annotations=own))
    await stack.until_running("driver")
    await until_placeholders_run(stack, 3)
    await until_no_placeholders(stack, within=40)
    assert await stack.groups(APP) == {"executor": (3, 0, 3)}
    await stack.finish("driver")
    await stack.until_state(APP, "Completing", "Completed")


@spec
async def some_executors_come(stack: Stack) -> None:
    await stack.begin()
    own = gang([task_group("executor", 3)], policy="placeholderTimeoutInSeconds=30")
    await stack.apply(pod_body("driver", APP, annotations=own))
    await until_placeholders_run(stack, 3)
    names = await stack.job("executor", 2, APP, annotations=gang([], "executor"))
    await stack.until_running("driver", *names)
    await until_no_placeholders(stack, within=40)
    assert await stack.groups(APP) == {"executor": (3, 2, 1)}
    assert await stack.state(APP) == "Running"


@spec
async def restart_while_soft_waits(stack: Stack) -> None:
    """The clock of the timeout goes on over a restart."""
    await stack.begin()
    groups = [task_group("a", 2), task_group("b", 1, **NOWHERE)]
    own = gang(groups, "a", "placeholderTimeoutInSeconds=60")
    names = await stack.job("job", 2, APP, annotations=own)
    await until_placeholders_run(stack, 2)
    await stack.passes(40)
    await stack.restart()
    assert len(await placeholders(stack)) == 3
    await stack.apply(pod_body("plain", "plain"))
    await stack.until_running("plain")
    await stack.until_running(*names, within=40)
    await until_no_placeholders(stack)


@spec
async def restart_with_a_gang_that_runs(stack: Stack) -> None:
    await stack.begin()
    names = await stack.job("job", 3, APP, annotations=gang([task_group("a", 3)], "a"))
    await stack.until_running(*names)
    await until_no_placeholders(stack)
    before = await stack.app(APP)
    await stack.restart()
    after = await stack.app(APP)
    assert after["applicationState"] == "Running"
    assert after["usedResource"] == before["usedResource"]
    keys = [sorted(one["allocationKey"] for one in app["allocations"]) for app in (before, after)]
    assert keys[0] == keys[1]
    assert await stack.running() == set(names)
    assert not any(is_placeholder(pod) for pod in (await stack.pods()).values())
    assert not [one for one in after["allocations"] if one.get("placeholder")]


@spec
async def a_gang_within_a_users_limit(stack: Stack) -> None:
    """Placeholders count: of two gangs of a user the second waits for the first."""
    limits = [{"limit": "", "users": ["nobody"], "maxresources": {"vcore": "30m"}}]
    await stack.begin(tree({"name": "one", "limits": limits}))
    own = gang([task_group("a", 3)], "a")
    first = await stack.job("first", 3, "app-1", annotations=own, queue="root.one")
    await stack.until_running(*first)
    second = await stack.job("second", 3, "app-2", annotations=own, queue="root.one")
    await stack.passes(10)
    assert await placeholders(stack) != {}
    assert await stack.running(placeholders=True) == set()
    await stack.finish(*first)
    await stack.until_running(*second)
