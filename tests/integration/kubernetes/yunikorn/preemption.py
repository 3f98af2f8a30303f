"""Preemption between queues, and of what is on the node that a DaemonSet's pod must have."""

from typing import Any

from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.stack import YUNIKORN, Object, Stack, pod_body

SIZE = {"cpu": "100m", "memory": "990M"}
FOREIGN_NODE = {"taints": [{"key": "test", "value": "x", "effect": "NoSchedule"}]}


def leaf(name: str, guaranteed: str = "", most: str = "", **properties: Any) -> Object:
    """Return a leaf with amounts of memory and properties, ``_`` for a dot."""
    resources = {"guaranteed": guaranteed, "max": most}
    found = {kind: {"memory": amount} for kind, amount in resources.items() if amount}
    texts = {key.replace("_", "."): str(text) for key, text in properties.items()}
    texts.setdefault("preemption.delay", "1s")
    return {"name": name, "resources": found, "properties": texts}


def tree(*queues: Object, **more: Any) -> str:
    """Return a configuration of queues below the root."""
    root = {"name": "root", "submitacl": "*", "queues": list(queues)}
    return str({"partitions": [{"name": "default", "queues": [root], **more}]})


async def begin(stack: Stack, *queues: Object, memory: str = "3G") -> None:
    """Start with one node of a size, and one that no pod of the spec tolerates."""
    nodes = {"w1": {"memory": memory}, "w2": FOREIGN_NODE}
    await stack.begin(tree(*queues), nodes)


async def sleep(stack: Stack, name: str, queue: str, **more: Any) -> None:
    """Make a pod of an application of its own."""
    await stack.apply(pod_body(name, f"app-{name}", queue=f"root.{queue}", **(SIZE | more)))


async def _three_and_a_fourth(stack: Stack) -> None:
    for at in range(3):
        await sleep(stack, f"one-{at}", "one")
    await stack.until_running("one-0", "one-1", "one-2")
    await sleep(stack, "two", "two")


async def reason_of(stack: Stack, name: str) -> str:
    """Return the reason of a pod's condition PodScheduled."""
    conditions = (await stack.pods())[name]["status"].get("conditions") or ()
    return next((c.get("reason", "") for c in conditions if c["type"] == "PodScheduled"), "")


async def _nobody_goes(stack: Stack, fence: str = "default", guaranteed: str = "3000M") -> None:
    await begin(stack, leaf("one", guaranteed), leaf("two", guaranteed, preemption_policy=fence))
    await _three_and_a_fourth(stack)

    async def is_unschedulable() -> bool:
        return await reason_of(stack, "two") == "Unschedulable"

    async def all_run() -> bool:
        return await stack.running() == {"one-0", "one-1", "one-2"}

    await stack.until(is_unschedulable, "the fourth is unschedulable")
    await stack.stays(all_run, "the three run", 20)
    await stack.finish("one-0", "one-1", "one-2")
    pods = await stack.pods()
    assert {pods[f"one-{at}"]["status"]["phase"] for at in range(3)} == {"Succeeded"}
    await stack.until_running("two")


@spec
async def basic(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    await _three_and_a_fourth(stack)
    await stack.until_running("two")
    left = await stack.running() - {"two"}
    assert len(left) == 2

    async def as_before() -> bool:
        return await stack.running() == left | {"two"}

    await stack.stays(as_before, "two are left", 20)


@spec
async def not_below_guaranteed(stack: Stack) -> None:
    await _nobody_goes(stack)


@spec
async def not_outside_fence(stack: Stack) -> None:
    await _nobody_goes(stack, "fence", "990M")


@spec
async def priority_queue(stack: Stack) -> None:
    leaves = [
        leaf(name, "990M", priority_offset=offset)
        for name, offset in (("high", 100), ("normal", 0), ("low", -100))
    ]
    parent = {"name": "parent", "resources": {"max": {"memory": "2970M"}}, "queues": leaves}
    await begin(stack, parent, memory="10G")
    for at in range(3):
        await sleep(stack, f"normal-{at}", "parent.normal")
    await stack.until_running("normal-0", "normal-1", "normal-2")
    await sleep(stack, "low", "parent.low")

    async def low_waits() -> bool:
        logs = (await stack.logs("app-low")).get("low", [])
        return "Not enough queue quota" in logs and "low" not in await stack.running()

    await stack.until(low_waits, "low waits for quota")
    await stack.stays(low_waits, "low waits for quota", 10)
    assert len(await stack.running()) == 3
    await sleep(stack, "high", "parent.high")
    await stack.until_running("high")
    left = await stack.running()
    assert sum(name.startswith("normal") for name in left) == 2
    await stack.stays(low_waits, "low waits for quota", 10)


@spec
async def allow_preemption_tag(stack: Stack) -> None:
    await stack.priority_class("may-go", 0, allow_preemption="true")
    await stack.priority_class("stays", 0, allow_preemption="false")
    await begin(stack, *(leaf(name, "740M") for name in ("one", "two", "three")))
    size = {"memory": "740M"}
    for at in range(2):
        await sleep(stack, f"one-{at}", "one", priorityClassName="may-go", **size)
        await sleep(stack, f"two-{at}", "two", priorityClassName="stays", **size)
    await stack.until_running("one-0", "one-1", "two-0", "two-1")
    await sleep(stack, "three", "three", **size)
    await stack.until_running("three")
    left = await stack.running()
    assert {"two-0", "two-1"} < left
    assert len(left & {"one-0", "one-1"}) == 1


def daemon(name: str, node: str, **more: Any) -> Object:
    """Return a pod of a DaemonSet for a node, as its controller makes it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "daemon", "uid": "1"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return pod_body(name, f"app-{name}", queue="root.daemons", ownerReferences=[owner],
                    affinity={"nodeAffinity": required}, **more)  # fmt: skip


@spec
async def daemon_basic(stack: Stack) -> None:
    nodes = {"w1": {"memory": "3G"}, "w2": {"memory": "3G"}, "w3": FOREIGN_NODE}
    await stack.begin(tree(leaf("one"), leaf("daemons")), nodes)
    for at in (1, 2):
        on = {"nodeSelector": {"kubernetes.io/hostname": f"w{at}"}}
        await sleep(stack, f"filler-{at}", "one", memory="3000M", **on)
    await stack.until_running("filler-1", "filler-2")
    await stack.apply(daemon("daemon-2", "w2", memory="1000M"))
    await stack.until_running("daemon-2")
    assert await stack.running() == {"filler-1", "daemon-2"}


@spec
async def daemon_opted_out(stack: Stack) -> None:
    nodes = {"w1": {"memory": "3100M"}, "w2": {"memory": "3100M"}}
    await stack.begin(tree(leaf("one"), leaf("daemons")), nodes)
    on = {"nodeSelector": {"kubernetes.io/hostname": "w2"}}
    for at, allows in enumerate(("false", "true", "false")):
        tag = {f"{YUNIKORN}allow-preemption": allows}
        await sleep(stack, f"p-{at}", "one", memory="1000M", annotations=tag, **on)
    await stack.until_running("p-0", "p-1", "p-2")
    await stack.apply(daemon("daemon-2", "w2", memory="1000M"))
    await stack.until_running("daemon-2")
    assert await stack.running() == {"p-0", "p-2", "daemon-2"}
