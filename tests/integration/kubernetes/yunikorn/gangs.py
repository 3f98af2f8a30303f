"""Gangs: placeholders, their groups and styles, and what is left of them when something goes."""

from collections import Counter

from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.stack import (
    OPEN,
    Stack,
    gang,
    is_placeholder,
    pod_body,
    task_group,
)

APP = "gang-app"
NOWHERE = {"nodeSelector": {"kubernetes.io/hostname": "unsatisfiable_node"}}


async def placeholders(stack: Stack, namespace: str = "default") -> dict[str, str]:
    """Return the placeholders that there are, with their nodes."""
    return {
        name: pod["spec"].get("nodeName", "")
        for name, pod in (await stack.pods(namespace)).items()
        if is_placeholder(pod)
    }


async def until_no_placeholders(stack: Stack, within: float = 60.0) -> None:
    """Wait until every placeholder has gone."""

    async def are_gone() -> bool:
        return not await placeholders(stack)

    await stack.until(are_gone, "the placeholders are gone", within)


async def until_placeholders_run(stack: Stack, count: int, namespace: str = "default") -> None:
    """Wait until so many placeholders run."""

    async def run() -> bool:
        return len(await stack.running(namespace=namespace, placeholders=True)) == count

    await stack.until(run, f"{count} placeholders run")


@spec
async def annotation_taskgroup_def(stack: Stack) -> None:
    await stack.begin()
    await stack.apply(pod_body("definer", APP, annotations=gang([task_group("a", 5)])))
    await stack.until_running("definer")
    await stack.until_state(APP, "Running")
    assert await stack.groups(APP) == {"a": (5, 0, 0)}
    names = await stack.job("job", 5, APP, annotations=gang([], "a"))
    await stack.until_running(*names)
    await until_no_placeholders(stack)
    assert await stack.groups(APP) == {"a": (5, 5, 0)}


@spec
async def multiple_taskgroups_nodes(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group(name, size) for name, size in (("a", 3), ("b", 5), ("c", 7))]
    await stack.apply(pod_body("definer", APP, annotations=gang(groups)))
    await until_placeholders_run(stack, 15)
    held = {
        group["name"]: Counter(
            node
            for name, node in (await placeholders(stack)).items()
            if name.startswith(f"tg-{APP}-{group['name']}-")
        )
        for group in groups
    }
    for group in groups:
        name = group["name"]
        jobs = await stack.job(f"job-{name}", group["minMember"], APP, annotations=gang([], name))
        await stack.until_running(*jobs)
        found = await stack.pods()
        assert Counter(found[job]["spec"]["nodeName"] for job in jobs) == held[name]
    await until_no_placeholders(stack)


@spec
async def more_than_min_members(stack: Stack) -> None:
    await stack.begin()
    names = await stack.job("job", 6, APP, annotations=gang([task_group("a", 3)], "a"))
    await stack.until_running(*names)
    await until_no_placeholders(stack)
    assert await stack.groups(APP) == {"a": (3, 3, 0)}
    assert len((await stack.app(APP))["allocations"]) == 6


@spec
async def default_style_soft(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group("a", 3), task_group("b", 1, **NOWHERE)]
    policy = "placeholderTimeoutInSeconds=20"
    names = await stack.job("job", 3, APP, annotations=gang(groups, policy=policy))
    await until_placeholders_run(stack, 3)
    await stack.until_running(*names)
    await stack.until_state(APP, "Running")
    assert await stack.groups(APP) == {"a": (3, 0, 3), "b": (1, 0, 1)}
    held = (await stack.app(APP))["allocations"]
    assert [one for one in held if one.get("placeholder")] == []
    assert len(held) == 3


@spec
async def hard_style_failed(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group("a", 3, **NOWHERE), task_group("b", 3)]
    policy = "gangSchedulingStyle=Hard placeholderTimeoutInSeconds=20"
    await stack.job("job", 3, APP, annotations=gang(groups, "a", policy))
    await until_placeholders_run(stack, 3)
    await stack.until_state(APP, "Failed")
    over = await stack.ws("partition/default/applications/completed")
    assert [app["applicationID"] for app in over] == [APP]
    assert await stack.groups(APP) == {"a": (3, 0, 3), "b": (3, 0, 3)}


async def a_gang_between_two_pods(stack: Stack) -> tuple[str, list[str]]:
    """Have a gang of three come where two of it fit, and a pod after it; return where, and whom."""
    await stack.begin()
    space = await stack.namespace("gang-fifo", quota='{"cpu": "300m", "memory": "300M"}')
    size = {"cpu": "100m", "memory": "100M"}
    await stack.apply(pod_body("a", "app-a", **size), namespace=space)
    await stack.until_running("a", namespace=space)
    groups = [task_group("g", 3, minResource=size)]
    names = await stack.job("b", 3, "app-b", namespace=space, annotations=gang(groups, "g"), **size)
    await stack.passes(5)
    await stack.apply(pod_body("c", "app-c", **size), namespace=space)
    return space, names


@spec
async def fifo_order(stack: Stack) -> None:
    space, names = await a_gang_between_two_pods(stack)

    async def both_wait() -> bool:
        found = [await stack.state("app-b"), await stack.state("app-c")]
        held = len(await stack.running(namespace=space, placeholders=True))
        return (found, held) == (["Accepted", "Accepted"], 2)

    await stack.until(both_wait, "the gang waits, and who came after it")
    await stack.stays(both_wait, "the gang waits, and who came after it", 10)
    await stack.delete("a", namespace=space)
    await stack.until_state("app-b", "Running")
    await stack.until_running(*names, namespace=space)
    assert await stack.state("app-a") == "Completing"
    assert len((await stack.app("app-b"))["allocations"]) == 3
    waiting = await stack.app("app-c")
    assert (waiting["applicationState"], waiting.get("allocations") or []) == ("Accepted", [])


async def a_gang_that_loses_its_placeholders(stack: Stack) -> set[str]:
    """Have a gang reserve that is never whole, delete the placeholders that run; return them."""
    await stack.begin()
    on_one = {"nodeSelector": {"kubernetes.io/hostname": "w1"}}
    groups = [task_group("a", 3, **on_one), task_group("b", 1, **NOWHERE)]
    policy = "placeholderTimeoutInSeconds=60"
    await stack.job("job", 3, APP, annotations=gang(groups, "a", policy))
    await until_placeholders_run(stack, 3)
    held = [name for name, node in (await placeholders(stack)).items() if node == "w1"]
    assert len(held) == 3
    await stack.delete(*held)
    return set(held)


@spec
async def deleted_placeholders(stack: Stack) -> None:
    await a_gang_that_loses_its_placeholders(stack)

    async def is_empty() -> bool:
        nodes = await stack.ws("partition/default/nodes")
        queue = await stack.queue("root.default")
        return (
            not (await stack.app(APP)).get("allocations")
            and not any(node.get("allocations") for node in nodes)
            and not any((queue.get("allocatedResource") or {}).values())
        )

    await stack.until(is_empty, "nothing is held", 10)
    await stack.stays(is_empty, "nothing is held", 10)


@spec
async def completed_job_placeholders_cleanup(stack: Stack) -> None:
    await stack.begin()
    groups = [task_group("a", 3, **NOWHERE), task_group("b", 3)]
    names = await stack.job("job", 3, APP, annotations=gang(groups, "a"))
    await until_placeholders_run(stack, 3)
    await stack.delete(*names)
    await stack.until_state(APP, "Completing")
    await until_no_placeholders(stack, within=20)
    found = await stack.app(APP)
    assert (found["applicationState"], found.get("allocations") or []) == ("Completing", [])


async def _the_originator_goes(stack: Stack, owners: list[dict[str, str]]) -> None:
    await stack.begin()
    groups = [task_group("a", 3, **NOWHERE), task_group("b", 3)]
    await stack.apply(
        pod_body(
            "driver",
            APP,
            annotations=gang(groups),
            **({"ownerReferences": owners} if owners else {}),
        )
    )
    await until_placeholders_run(stack, 3)
    assert await stack.state(APP) == "Accepted"
    await stack.delete("driver")
    await until_no_placeholders(stack, within=30)
    found = await stack.app(APP)
    assert found
    assert (found.get("allocations") or []) == []


@spec
async def originator_deletion(stack: Stack) -> None:
    await _the_originator_goes(stack, [])


@spec
async def originator_deletion_with_an_owner(stack: Stack) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "1"}
    await _the_originator_goes(stack, [owner])


@spec
async def hugepages(stack: Stack) -> None:
    pages = {"hugepages-2Mi": "100Mi"}
    await stack.begin(OPEN, {"w1": {"hugepages-2Mi": "1Gi"}})
    size = {"cpu": "10m", "memory": "20M", **pages}
    groups = [task_group("a", 3, minResource=size)]
    names = await stack.job("job", 3, APP, annotations=gang(groups, "a"), resources=pages)
    await stack.until_running(*names)
    await until_no_placeholders(stack)
    assert (await stack.app(APP))["usedResource"]["hugepages-2Mi"] == 314_572_800


@spec
async def restart_with_two_gangs(stack: Stack) -> None:
    await stack.begin()
    for app in ("app-1", "app-2"):
        own = gang([task_group("a", 2), task_group("b", 1, **NOWHERE)])
        await stack.apply(pod_body(f"{app}-driver", app, annotations=own))
    await until_placeholders_run(stack, 4)
    before = await _originators(stack)
    assert before == {app: {f"{app}-driver"} for app in ("app-1", "app-2")}
    await stack.restart()
    assert len(await placeholders(stack)) == 6
    await stack.node("late", labels={"kubernetes.io/hostname": "unsatisfiable_node"})
    await stack.until_running("app-1-driver", "app-2-driver")
    await until_placeholders_run(stack, 6)
    for app in ("app-1", "app-2"):
        await stack.until_state(app, "Running")
        (own,) = [one for one in (await stack.app(app))["allocations"] if one.get("originator")]
        assert own["allocationTags"]["kubernetes.io/meta/podName"] == f"{app}-driver"
    assert await _originators(stack) == before


async def _originators(stack: Stack) -> dict[str, set[str]]:
    """Return the pods that own the placeholders, by application."""
    owners: dict[str, set[str]] = {}
    for pod in (await stack.pods()).values():
        if is_placeholder(pod):
            app = pod["metadata"]["labels"]["yunikorn.apache.org/app-id"]
            owners.setdefault(app, set()).update(
                owner["name"] for owner in pod["metadata"]["ownerReferences"]
            )
    return owners
