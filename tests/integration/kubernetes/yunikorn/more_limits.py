"""What the specs of limits have beside them: groups, wildcards, levels, applications, namespaces."""

from tests.integration.kubernetes.yunikorn.gangs import until_placeholders_run
from tests.integration.kubernetes.yunikorn.limits import (
    limited,
    of_group,
    of_user,
    submit,
    waits,
)
from tests.integration.kubernetes.yunikorn.preemption import leaf, tree
from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.stack import YUNIKORN, Stack, pod_body

BY_NAMESPACE = [{"name": "tag", "value": "namespace", "create": True}]


async def usage(stack: Stack, kind: str, name: str) -> dict[str, int]:
    """Return what a user or group uses in all, 0 of a type that is not named."""
    found = await stack.ws(f"partition/default/usage/{kind}/{name}")
    return dict(found["queues"].get("resourceUsage") or {})


@spec
async def a_users_memory(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_user("user1", memory="50M")), leaf("two")))
    await submit(stack, "a", "one", "user1")
    await submit(stack, "b", "one", "user1")
    await stack.until_running("a")
    await waits(stack, "b")
    for name in ("c", "d"):
        await submit(stack, name, "two", "user1")
        await submit(stack, f"{name}2", "one", "user2")
    await stack.until_running("c", "d", "c2", "d2")
    assert (await usage(stack, "user", "user1"))["memory"] == 90_000_000
    assert (await usage(stack, "user", "user2"))["memory"] == 60_000_000
    assert "Not enough user quota" in (await stack.logs("app-b"))["b"]
    await stack.finish("a")
    await stack.until_running("b")


@spec
async def a_users_applications(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_user("user1", applications=1)), leaf("two")))
    await submit(stack, "a", "one", "user1")
    await submit(stack, "b", "one", "user1")
    await stack.until_running("a")
    await waits(stack, "b")
    assert await stack.state("app-b") == "Accepted"
    await submit(stack, "c", "two", "user1")
    await submit(stack, "d", "one", "user2")
    await stack.until_running("c", "d")
    await stack.finish("a")
    await stack.until_running("b")


@spec
async def a_groups_memory(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_group("group1", memory="50M")), leaf("two")))
    await submit(stack, "a", "one", "user1", "group1")
    await stack.until_running("a")
    await submit(stack, "b", "one", "user2", "group1")
    await waits(stack, "b")
    await submit(stack, "c", "one", "user2", "group2")
    await submit(stack, "d", "two", "user1", "group1")
    await stack.until_running("c", "d")
    assert (await usage(stack, "group", "group1"))["memory"] >= 30_000_000


@spec
async def a_groups_applications(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_group("group1", applications=1))))
    await submit(stack, "a", "one", "user1", "group1")
    await stack.until_running("a")
    await submit(stack, "b", "one", "user2", "group1")
    await waits(stack, "b")
    await submit(stack, "c", "one", "user2", "group2")
    await stack.until_running("c")


@spec
async def group_lower_than_user(stack: Stack) -> None:
    limits = (of_user("user1", memory="100M"), of_group("group1", memory="50M"))
    await stack.begin(tree(limited("one", *limits)))
    await submit(stack, "a", "one", "user1", "group1")
    await stack.until_running("a")
    await submit(stack, "b", "one", "user1", "group1")
    await waits(stack, "b")


@spec
async def wildcard_group_is_shared(stack: Stack) -> None:
    limits = (of_group("group1", memory="30M"), of_group("*", memory="60M"))
    await stack.begin(tree(limited("one", *limits)))
    await submit(stack, "a", "one", "user2", "group2")
    await submit(stack, "b", "one", "user3", "group3")
    await stack.until_running("a", "b")
    await submit(stack, "c", "one", "user4", "group4")
    await waits(stack, "c")
    await submit(stack, "d", "one", "user1", "group1")
    await stack.until_running("d")


@spec
async def wildcard_user_is_each_ones(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_user("*", memory="50M"))))
    for user in ("user1", "user2"):
        for at in range(2):
            await submit(stack, f"{user}-{at}", "one", user)
    await stack.until_running("user1-0", "user2-0")
    await waits(stack, "user1-1", "user2-1")


@spec
async def limit_of_the_parent(stack: Stack) -> None:
    parent = {**limited("p", of_user("user1", memory="50M")), "queues": [leaf("a"), leaf("b")]}
    await stack.begin(tree(parent))
    await submit(stack, "a", "p.a", "user1")
    await stack.until_running("a")
    await submit(stack, "b", "p.b", "user1")
    await waits(stack, "b")
    await stack.finish("a")
    await stack.until_running("b")


@spec
async def a_limit_is_lowered_and_taken_away(stack: Stack) -> None:
    def text(*limits: object) -> str:
        return tree(limited("one", *limits) if limits else leaf("one"))

    await stack.begin(text(of_user("user1", memory="100M")))
    for name in ("a", "b"):
        await submit(stack, name, "one", "user1")
    await stack.until_running("a", "b")
    await stack.configure(text(of_user("user1", memory="50M")))
    await submit(stack, "c", "one", "user1")
    await waits(stack, "c")
    assert await stack.running() == {"a", "b"}
    await stack.finish("a")
    await waits(stack, "c")
    await stack.configure(text())
    await stack.until_running("c")


@spec
async def a_limit_with_wildcard_after_it_is_taken_away(stack: Stack) -> None:
    def text(*limits: object) -> str:
        return tree(limited("one", *limits))

    await stack.begin(text(of_user("user1", memory="100M"), of_user("*", memory="30M")))
    for name in ("a", "b"):
        await submit(stack, name, "one", "user1")
    await stack.until_running("a", "b")
    await stack.configure(text(of_user("*", memory="30M")))
    await submit(stack, "c", "one", "user1")
    await waits(stack, "c")


@spec
async def a_namespaces_quota(stack: Stack) -> None:
    await stack.begin()
    space = await stack.namespace("quota", quota='{"cpu": "300m", "memory": "300M"}')
    size = {"cpu": "100m", "memory": "100M"}
    for at in range(4):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}", **size), namespace=space)
    await stack.until_running("p-0", "p-1", "p-2", namespace=space)
    queue = await stack.queue("root.quota")
    assert queue["maxResource"] == {"vcore": 300, "memory": 300_000_000}
    assert queue["allocatedResource"] == {"vcore": 300, "memory": 300_000_000, "pods": 3}
    assert queue["absUsedCapacity"] == {"vcore": 100, "memory": 100}
    assert queue["isManaged"] is False
    assert await stack.state("app-3") == "Accepted"
    await stack.finish("p-0", namespace=space)
    await stack.until_running("p-3", namespace=space)


@spec
async def a_namespaces_quota_grows(stack: Stack) -> None:
    await stack.begin()
    space = await stack.namespace("quota", quota='{"cpu": "100m"}')
    for at in range(2):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}", cpu="100m"), namespace=space)
    await stack.until_running("p-0", namespace=space)
    note = {"metadata": {"annotations": {f"{YUNIKORN}namespace.quota": '{"cpu": "200m"}'}}}
    await stack.kubectl.patch(f"/api/v1/namespaces/{space}", note)
    await stack.passes(2)
    await stack.apply(pod_body("p-2", "app-2", cpu="100m"), namespace=space)
    await stack.until_running("p-0", "p-1", namespace=space)
    assert (await stack.queue("root.quota"))["maxResource"] == {"vcore": 200}


@spec
async def a_namespaces_deprecated_quota(stack: Stack) -> None:
    await stack.begin()
    space = await stack.namespace("old", max_cpu="100m", max_memory="100M")
    for at in range(2):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}", cpu="100m"), namespace=space)
    await stack.until_running("p-0", namespace=space)
    assert (await stack.queue("root.old"))["maxResource"] == {"vcore": 100, "memory": 100_000_000}
    assert await stack.running(namespace=space) == {"p-0"}


@spec
async def a_namespaces_applications(stack: Stack) -> None:
    await stack.begin()
    space = await stack.namespace("apps", maxApps="1")
    for at in range(2):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}"), namespace=space)
    await stack.until_running("p-0", namespace=space)
    await stack.passes(10)
    assert await stack.running(namespace=space) == {"p-0"}
    assert (await stack.queue("root.apps"))["maxRunningApps"] == 1
    await stack.finish("p-0", namespace=space)
    await stack.until_running("p-1", namespace=space)


@spec
async def a_namespaces_parent_queue(stack: Stack) -> None:
    rules = [{"name": "tag", "value": "namespace", "create": True,
              "parent": {"name": "tag", "value": "namespace.parentqueue", "create": True}}]  # fmt: skip
    await stack.begin(tree({"name": "teams", "parent": True}, placementrules=rules))
    annotations = {f"{YUNIKORN}parentqueue": "root.teams"}
    body = {"metadata": {"name": "team-a", "annotations": annotations}}
    await stack.server.client.request("POST", "/api/v1/namespaces", body)
    stack._namespaces.append("team-a")
    await stack.apply(pod_body("p", "app"), namespace="team-a")
    await stack.until_running("p", namespace="team-a")
    assert (await stack.app("app"))["queueName"] == "root.teams.team-a"


@spec
async def max_applications_of_a_queue(stack: Stack) -> None:
    await stack.begin(tree({"name": "one", "maxapplications": 1}))
    for name in ("a", "b"):
        await stack.apply(pod_body(name, f"app-{name}", queue="root.one"))
    await stack.until_running("a")
    await waits(stack, "b")
    assert await stack.state("app-b") == "Accepted"
    await stack.apply(pod_body("a2", "app-a", queue="root.one"))
    await stack.until_running("a", "a2")
    await stack.finish("a", "a2")
    await stack.until_running("b")


@spec
async def a_queue_that_does_not_admit(stack: Stack) -> None:
    closed = {"name": "closed", "submitacl": "alice"}
    text = str(
        {"partitions": [{"name": "default", "queues": [{"name": "root", "queues": [closed]}]}]}
    )
    await stack.begin(text)
    await submit(stack, "a", "closed", "alice")
    await submit(stack, "b", "closed", "bob")
    await stack.until_running("a")
    await stack.until_state("app-b", "Rejected")
    pod = (await stack.pods())["b"]["status"]
    assert (pod["phase"], pod["reason"]) == ("Failed", "ApplicationRejected")


@spec
async def a_queue_that_does_not_exist(stack: Stack) -> None:
    await stack.begin(tree(leaf("one")))
    await stack.apply(pod_body("a", "app", queue="root.other"))
    await stack.until_state("app", "Rejected")
    assert "no placement rule matched" in (await stack.app("app"))["rejectedMessage"]


@spec
async def a_queue_is_removed_and_comes_back(stack: Stack) -> None:
    await stack.begin(tree(leaf("one"), leaf("two")))
    await stack.apply(pod_body("a", "app-a", queue="root.one"))
    await stack.until_running("a")
    await stack.configure(tree(leaf("two")))
    await stack.passes(15)
    assert (await stack.queue("root.one"))["status"] == "Draining"
    await stack.apply(pod_body("b", "app-b", queue="root.one"))
    await stack.until_state("app-b", "Rejected")
    await stack.configure(tree(leaf("one"), leaf("two")))
    await stack.apply(pod_body("c", "app-c", queue="root.one"))
    await stack.until_running("a", "c")
    assert (await stack.queue("root.one"))["status"] == "Active"


@spec
async def a_dynamic_queue_goes(stack: Stack) -> None:
    await stack.begin()
    space = await stack.namespace("short")
    await stack.apply(pod_body("p", "app"), namespace=space)
    await stack.until_running("p", namespace=space)
    await stack.finish("p", namespace=space)
    await stack.until_state("app", "Completed")

    async def is_gone() -> bool:
        tree_ = await stack.ws("partition/default/queues")
        return not tree_.get("children")

    await stack.until(is_gone, "the queue is gone", 30)


@spec
async def usage_of_users_and_groups(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_group("group1", memory="500M")), leaf("two")))
    await submit(stack, "a", "one", "user1", "group1")
    await submit(stack, "b", "two", "user1", "group2")
    await stack.until_running("a", "b")
    found = await stack.ws("partition/default/usage/user/user1")
    assert found["userName"] == "user1"
    assert found["queues"]["resourceUsage"] == {"vcore": 20, "memory": 60_000_000, "pods": 2}
    assert sorted(found["queues"]["runningApplications"]) == ["app-a", "app-b"]
    below = {
        child["queuePath"]: child["resourceUsage"]["memory"]
        for child in found["queues"]["children"]
    }
    assert below == {"root.one": 30_000_000, "root.two": 30_000_000}
    groups = await stack.ws("partition/default/usage/groups")
    (group,) = [one for one in groups if one["groupName"] == "group1"]
    assert group["applications"] == ["app-a"]
    await stack.finish("a", "b")
    await stack.until_state("app-a", "Completed")
    await stack.until_state("app-b", "Completed")
    users = await stack.ws("partition/default/usage/users")
    assert not any((user["queues"].get("resourceUsage") or {}).get("memory") for user in users)


@spec
async def placeholders_count_for_users(stack: Stack) -> None:
    from tests.kubernetes.stack import gang, task_group, user_info

    await stack.begin(tree(leaf("one")))
    own = gang([task_group("a", 3), task_group("b", 1, nodeSelector={"no": "where"})]) | user_info(
        "user1"
    )
    await stack.apply(pod_body("driver", "app", queue="root.one", annotations=own))
    await until_placeholders_run(stack, 3)
    assert (await usage(stack, "user", "user1"))["memory"] == 60_000_000
