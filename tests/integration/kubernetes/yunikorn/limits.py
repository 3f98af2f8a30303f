"""Limits of users and groups, names with unusual characters, the order of queues, predicates."""

from typing import Any
from urllib.parse import quote, quote_plus

from tests.integration.kubernetes.yunikorn.preemption import leaf, reason_of, tree
from tests.integration.kubernetes.yunikorn.rows import SPECS, spec
from tests.kubernetes.stack import Object, Stack, pod_body, user_info

ODD_USER = "user_Test-a_b_#_c_#_d_/_e@dom:ain.com"
ODD_QUEUE = "queue_Test-a_b_#_c_#_d_/_e@dom:ain"


def limited(name: str, *limits: Object) -> Object:
    """Return a leaf with limits."""
    return {"name": name, "limits": [{"limit": "test", **limit} for limit in limits]}


def of_user(*users: str, memory: str = "", applications: int = 0) -> Object:
    """Return a limit of users."""
    return _of("users", users, memory, applications)


def of_group(*groups: str, memory: str = "", applications: int = 0) -> Object:
    """Return a limit of groups."""
    return _of("groups", groups, memory, applications)


def _of(kind: str, names: tuple[str, ...], memory: str, applications: int) -> Object:
    most = {"maxresources": {"memory": memory}} if memory else {}
    return {
        kind: list(names),
        **most,
        **({"maxapplications": applications} if applications else {}),
    }


async def submit(stack: Stack, name: str, queue: str, user: str, *groups: str, **more: Any) -> None:
    """Make a pod of 30M, of an application of its own, for a user."""
    whose = user_info(user, *groups)
    size = {"memory": "30M", **more}
    await stack.apply(
        pod_body(name, f"app-{name}", queue=f"root.{queue}", annotations=whose, **size)
    )


async def waits(stack: Stack, *names: str) -> None:
    """Hold that pods wait, and go on waiting."""

    async def do() -> bool:
        return not set(names) & await stack.running()

    await stack.stays(do, f"{', '.join(names)} wait", 10)


@spec
async def user_lower_than_group(stack: Stack) -> None:
    limits = (of_user("user1", memory="50M"), of_group("group1", memory="100M"))
    await stack.begin(tree(limited("one", *limits), leaf("two")))
    await submit(stack, "a", "one", "user1", "group1")
    await stack.until_running("a")
    await submit(stack, "b", "one", "user1", "group1")
    await waits(stack, "b")
    for name in ("c", "d"):
        await submit(stack, name, "two", "user1", "group1")
    await stack.until_running("a", "c", "d")


@spec
async def maxapplications_wildcard_user(stack: Stack) -> None:
    limits = (of_user("user1", applications=2), of_user("*", applications=1))
    await stack.begin(tree(limited("one", *limits)))
    for user in ("user1", "user2", "user3"):
        for at in range(3):
            await submit(stack, f"{user}-{at}", "one", user)
    allowed = {"user1-0", "user1-1", "user2-0", "user3-0"}
    await stack.until_running(*allowed)

    async def no_others() -> bool:
        return await stack.running() == allowed

    await stack.stays(no_others, "no others run", 10)
    await stack.finish("user2-0")
    await stack.until_running("user2-1")
    assert await stack.state("app-user3-1") == "Accepted"


@spec
async def valid_user_name(stack: Stack) -> None:
    await stack.begin(tree(limited("one", of_user(ODD_USER, memory="50M"))))
    await submit(stack, "a", "one", ODD_USER)
    await stack.until_running("a")
    for escaped in (quote(ODD_USER, safe=""), quote_plus(ODD_USER)):
        found = await stack.ws(f"partition/default/usage/user/{escaped}")
        assert found["userName"] == ODD_USER
        assert found["queues"]["resourceUsage"]["memory"] == 30_000_000


@spec
async def queue_name_special_characters(stack: Stack) -> None:
    await stack.begin(tree(leaf(ODD_QUEUE)))
    await stack.apply(
        pod_body("a", "app", annotations={"yunikorn.apache.org/queue": f"root.{ODD_QUEUE}"})
    )
    await stack.until_running("a")
    path = f"root.{ODD_QUEUE.lower()}"
    for name in (path, f"root.{ODD_QUEUE}"):
        found = await stack.ws(f"partition/default/queue/{quote(name, safe='')}")
        assert found["queuename"] == path
        assert found["allocatedResource"]["memory"] == 20_000_000
    (app,) = await stack.ws(f"partition/default/queue/{quote(path, safe='')}/applications")
    assert app["applicationID"] == "app"


@spec
async def user_and_wildcard_grow(stack: Stack) -> None:
    def limits(own: int, others: int) -> str:
        return tree(
            limited("one", of_user("user1", memory=f"{own}M"), of_user("*", memory=f"{others}M"))
        )

    await stack.begin(limits(50, 50))
    for user in ("user1", "user2"):
        for at in range(2):
            await submit(stack, f"{user}-{at}", "one", user)
    await stack.until_running("user1-0", "user2-0")
    await waits(stack, "user1-1", "user2-1")
    await stack.configure(limits(100, 50))
    await stack.until_running("user1-1")
    await waits(stack, "user2-1")
    await stack.configure(limits(100, 100))
    await stack.until_running("user2-1")


# --- order --------------------------------------------------------------------------------------

PRIORITIES = {"low": -100, "normal": 0, "high": 100}


async def _one_after_the_other(
    stack: Stack, queues: dict[str, str], order: list[str], **more: Any
) -> None:
    """Have the place of one pod be filled, three wait for it, and see who has it in which order."""
    for name, value in PRIORITIES.items():
        await stack.priority_class(f"{name}-class", value)
    size = {"cpu": "1", "memory": "50M"}
    await stack.apply(pod_body("filler", "filler", queue="root.parent.filler", **size, **more))
    await stack.until_running("filler")
    for name in ("low", "normal", "high"):
        await stack.apply(
            pod_body(
                name, name, queue=queues[name], priorityClassName=f"{name}-class", **size, **more
            )
        )
    await waits(stack, "low", "normal", "high")
    last = "filler"
    for name in order:
        await stack.finish(last)
        await stack.until_running(name)
        assert await stack.running() == {name}
        last = name


def _parent(*leaves: Object) -> str:
    most = {"vcore": 1, "memory": "50M"}
    queues = [{"name": "filler"}, *leaves]
    parent = {"name": "parent", "parent": True, "resources": {"max": most}, "queues": queues}
    return tree({**parent, "properties": {"preemption.policy": "disabled"}})


@spec
async def static_queue_order(stack: Stack) -> None:
    await stack.begin(_parent(*({"name": name} for name in PRIORITIES)))
    queues = {name: f"root.parent.{name}" for name in PRIORITIES}
    await _one_after_the_other(stack, queues, ["high", "normal", "low"])


@spec
async def priority_offset_order(stack: Stack) -> None:
    offsets = {"low": 1000, "normal": 0, "high": -1000}
    leaves = (
        {"name": name, "properties": {"priority.offset": str(offset)}}
        for name, offset in offsets.items()
    )
    await stack.begin(_parent(*leaves))
    queues = {name: f"root.parent.{name}" for name in PRIORITIES}
    await _one_after_the_other(stack, queues, ["low", "normal", "high"])


@spec
async def dynamic_queue_order(stack: Stack) -> None:
    rules = [{"name": "tag", "value": "namespace", "create": True}]
    await stack.begin(tree(placementrules=rules))
    space = await stack.namespace("priority", quota='{"cpu": "1", "memory": "50M"}')
    for name, value in PRIORITIES.items():
        await stack.priority_class(f"{name}-class", value)
    size = {"cpu": "1", "memory": "50M"}
    await stack.apply(pod_body("filler", "filler", **size), namespace=space)
    await stack.until_running("filler", namespace=space)
    for name in PRIORITIES:
        body = pod_body(name, name, priorityClassName=f"{name}-class", **size)
        await stack.apply(body, namespace=space)
    last = "filler"
    for name in ("high", "normal", "low"):
        assert await stack.running(namespace=space) == {last}
        await stack.finish(last, namespace=space)
        await stack.until_running(name, namespace=space)
        last = name


# --- predicates ---------------------------------------------------------------------------------

SELECTED = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint {gpu: true}"
TAINT = {"taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]}


async def _until_logged(stack: Stack, causes: dict[str, int]) -> None:
    """Wait until the log has a line for each cause, which counts as many nodes at least."""

    async def are_logged() -> bool:
        asks = (await stack.app("app")).get("requests") or ()
        lines = {line["message"]: line["count"] for ask in asks for line in ask["allocationLog"]}
        return all(lines.get(text, 0) >= nodes for text, nodes in causes.items())

    await stack.until(are_logged, f"the log says {causes}")


async def _message(stack: Stack) -> str:
    conditions = (await stack.pods())["p"]["status"]["conditions"]
    return next(str(c["message"]) for c in conditions if c["type"] == "PodScheduled")


PREDICATES: dict[str, tuple[dict[str, Object], Object, dict[str, int]]] = {
    "non_matching_node_selector": (
        {"w1": {}, "w2": {}}, {"nodeSelector": {"label": "nonempty"}}, {SELECTED: 2}
    ),
    "non_matching_taints": ({"w1": TAINT, "w2": TAINT}, {}, {TAINTED: 2}),
    "two_causes": (
        {"w1": TAINT, "w2": {}, "w3": {"labels": {"kind": "b"}, **TAINT}},
        {"nodeSelector": {"kind": "b"}},
        {SELECTED: 1, TAINTED: 1},
    ),
}  # fmt: skip


def _keep(name: str, nodes: dict[str, Object], pod: Object, causes: dict[str, int]) -> None:
    async def of_the_table(stack: Stack) -> None:
        await stack.begin(tree(leaf("one")), nodes)
        await stack.apply(pod_body("p", "app", queue="root.one", **pod))
        await _until_logged(stack, causes)
        assert await reason_of(stack, "p") == "Unschedulable"
        message = await _message(stack)
        assert message.startswith(f"0/{len(nodes)} nodes are available")
        assert all(text in message for text in causes)
        await stack.node("right", labels={"label": "nonempty", "kind": "b"})
        await stack.until_running("p")

    SPECS[name] = of_the_table


for _name, _row in PREDICATES.items():
    _keep(_name, *_row)
