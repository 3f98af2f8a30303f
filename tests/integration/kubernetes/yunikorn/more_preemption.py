"""What the specs of preemption have beside them: opt-outs, priorities, policies, delays, DaemonSets."""

from tests.integration.kubernetes.yunikorn.gangs import until_placeholders_run
from tests.integration.kubernetes.yunikorn.preemption import (
    FOREIGN_NODE,
    SIZE,
    begin,
    daemon,
    leaf,
    sleep,
    tree,
)
from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.stack import YUNIKORN, Stack, gang, pod_body, task_group

OPTED_OUT = {f"{YUNIKORN}allow-preemption": "false"}


async def _three(stack: Stack, queue: str = "one", **more: object) -> set[str]:
    names = [f"{queue}-{at}" for at in range(3)]
    for name in names:
        await sleep(stack, name, queue, **more)
    await stack.until_running(*names)
    return set(names)


async def _they_stay(stack: Stack, names: set[str], seconds: float = 40) -> None:
    async def as_before() -> bool:
        return await stack.running() == names

    await stack.stays(as_before, f"{sorted(names)} run", seconds)


async def _one_goes(stack: Stack, names: set[str], winner: str) -> None:
    await stack.until_running(winner)
    left = await stack.running()
    assert winner in left
    assert len(left & names) == len(names) - 1
    await _they_stay(stack, left, 20)


@spec
async def preemption_disabled_in_the_partition(stack: Stack) -> None:
    text = tree(leaf("one", "990M"), leaf("two", "990M"), preemption={"enabled": False})
    await stack.begin(text, {"w1": {"memory": "3G"}, "w2": FOREIGN_NODE})
    held = await _three(stack)
    await sleep(stack, "late", "two")
    await _they_stay(stack, held)


@spec
async def victims_leaf_is_disabled(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M", preemption_policy="disabled"), leaf("two", "990M"))
    held = await _three(stack)
    await sleep(stack, "late", "two")
    await _they_stay(stack, held)


@spec
async def victims_fence_does_not_protect(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M", preemption_policy="fence"), leaf("two", "990M"))
    held = await _three(stack)
    await sleep(stack, "late", "two")
    await _one_goes(stack, held, "late")


@spec
async def preemptor_that_never_preempts(stack: Stack) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"metadata": {"name": "never"}, "value": 100, "preemptionPolicy": "Never"}
    await stack.server.client.request("POST", path, body)
    try:
        await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
        held = await _three(stack)
        await sleep(stack, "late", "two", priorityClassName="never")
        await _they_stay(stack, held)
    finally:
        await stack.server.client.request("DELETE", f"{path}/never")


@spec
async def default_delay_of_thirty_seconds(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M"), leaf("two", "990M", preemption_delay="30s"))
    held = await _three(stack)
    await sleep(stack, "late", "two")
    await _they_stay(stack, held, 25)
    await _one_goes(stack, held, "late")


@spec
async def victims_of_higher_priority_stay(stack: Stack) -> None:
    await stack.priority_class("high", 100)
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    held = await _three(stack, priorityClassName="high")
    await sleep(stack, "late", "two")
    await _they_stay(stack, held)


@spec
async def higher_priority_in_the_same_leaf_does_not_preempt(stack: Stack) -> None:
    await stack.priority_class("high", 100)
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    held = await _three(stack)
    await sleep(stack, "late", "one", priorityClassName="high")
    await _they_stay(stack, held)


@spec
async def no_guarantee_no_preemption(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M"), leaf("two"))
    held = await _three(stack)
    await sleep(stack, "late", "two")
    await _they_stay(stack, held)


@spec
async def guarantee_of_the_parent_counts(stack: Stack) -> None:
    parents = [
        {
            "name": name,
            "resources": {"guaranteed": {"memory": "1980M"}},
            "queues": [leaf("leaf", "990M")],
        }
        for name in ("p1", "p2")
    ]
    await begin(stack, *parents)
    names = {f"a-{at}" for at in range(3)}
    for name in sorted(names):
        await sleep(stack, name, "p1.leaf")
    await stack.until_running(*names)
    await sleep(stack, "late", "p2.leaf")
    await _one_goes(stack, names, "late")


@spec
async def not_outside_a_parents_fence(stack: Stack) -> None:
    def parent(name: str, policy: str) -> dict[str, object]:
        return {"name": name, "properties": {"preemption.policy": policy},
                "queues": [leaf("x", "990M"), leaf("y", "990M")]}  # fmt: skip

    await begin(stack, parent("p1", "default"), parent("p2", "fence"))
    for at in range(2):
        await sleep(stack, f"a-{at}", "p1.x")
    await sleep(stack, "b", "p2.x")
    await stack.until_running("a-0", "a-1", "b")
    await sleep(stack, "late", "p2.y")
    await _they_stay(stack, {"a-0", "a-1", "b"})


@spec
async def within_a_parents_fence(stack: Stack) -> None:
    fenced = {"name": "p2", "properties": {"preemption.policy": "fence"},
              "queues": [leaf("x", "990M"), leaf("y", "990M")]}  # fmt: skip
    await begin(stack, leaf("one", "990M"), fenced)
    await sleep(stack, "a", "one")
    for at in range(2):
        await sleep(stack, f"b-{at}", "p2.x")
    await stack.until_running("a", "b-0", "b-1")
    await sleep(stack, "late", "p2.y")
    await _one_goes(stack, {"b-0", "b-1"}, "late")
    assert "a" in await stack.running()


@spec
async def all_opted_out_one_goes_all_the_same(stack: Stack) -> None:
    """To opt out of preemption is a preference: who did goes last, and goes."""
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    held = await _three(stack, annotations=OPTED_OUT)
    await sleep(stack, "late", "two")
    await _one_goes(stack, held, "late")


@spec
async def the_pods_own_word_comes_before_its_class(stack: Stack) -> None:
    await stack.priority_class("may-go", 0, allow_preemption="true")
    await stack.priority_class("stays", 0, allow_preemption="false")
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    allowed = {f"{YUNIKORN}allow-preemption": "true"}
    await sleep(stack, "a", "one", priorityClassName="may-go", annotations=OPTED_OUT)
    await sleep(stack, "b", "one", priorityClassName="stays", annotations=allowed)
    await sleep(stack, "c", "one", priorityClassName="stays")
    await stack.until_running("a", "b", "c")
    await sleep(stack, "late", "two")
    await stack.until_running("late")
    assert await stack.running() == {"a", "c", "late"}


@spec
async def originator_goes_last(stack: Stack) -> None:
    """Of one application's pods the first, its originator, stays though it is the oldest."""
    await begin(stack, leaf("one", "990M"), leaf("two", "1980M"))
    for name in ("a", "b", "c"):
        await stack.apply(pod_body(name, "app", queue="root.one", **SIZE))
    await stack.until_running("a", "b", "c")
    for at in range(2):
        await sleep(stack, f"late-{at}", "two")
        await stack.until_running(f"late-{at}")
    assert await stack.running() == {"a", "late-0", "late-1"}


@spec
async def events_of_a_victim_and_its_winner(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    held = await _three(stack)
    await sleep(stack, "late", "two")
    await _one_goes(stack, held, "late")
    (gone,) = held - await stack.running()
    await stack.until_told(gone, "Preempted by", "from application app-late in root.two")


@spec
async def events_of_a_pod_over_its_quota(stack: Stack) -> None:
    small = {"name": "small", "resources": {"max": {"memory": "1G"}}}
    await stack.begin(tree(small))
    for name in ("a", "b"):
        await sleep(stack, name, "small")
    uid = (await stack.pods())["b"]["metadata"]["uid"]
    text = f"Informational: Request '{uid}' does not fit in queue 'root.small' (requested map["
    await stack.until_told("b", text, "available map[memory:10000000")
    await stack.finish("a")
    await stack.until_running("b")
    await stack.until_told("b", f"Request '{uid}' has become schedulable in queue 'root.small'")


@spec
async def dynamic_queues_with_guarantees_of_namespaces(stack: Stack) -> None:
    rules = [{"name": "tag", "value": "namespace", "create": True}]
    template = {"properties": {"preemption.delay": "1s"}}
    root = {"name": "root", "submitacl": "*", "childtemplate": template}
    text = str({"partitions": [{"name": "default", "placementrules": rules, "queues": [root]}]})
    await stack.begin(text, {"w1": {"memory": "3G"}, "w2": FOREIGN_NODE})
    one = await stack.namespace("one", guaranteed='{"memory": "990M"}')
    two = await stack.namespace("two", guaranteed='{"memory": "990M"}')
    for at in range(3):
        await stack.apply(pod_body(f"p-{at}", f"app-{at}", **SIZE), namespace=one)
    await stack.until_running("p-0", "p-1", "p-2", namespace=one)
    await stack.apply(pod_body("late", "late", **SIZE), namespace=two)
    await stack.until_running("late", namespace=two)
    assert len(await stack.running(namespace=one)) == 2


@spec
async def a_gang_preempts(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M"), leaf("two", "1980M"))
    held = await _three(stack)
    own = gang([task_group("a", 2, minResource=SIZE)], "a")
    names = await stack.job("job", 2, "gang", annotations=own, queue="root.two", **SIZE)
    await stack.until_running(*names)
    assert len(await stack.running() & held) == 1


@spec
async def placeholders_are_preempted(stack: Stack) -> None:
    await begin(stack, leaf("one", "990M"), leaf("two", "990M"))
    groups = [
        task_group("a", 3, minResource=SIZE),
        task_group("b", 1, nodeSelector={"no": "where"}),
    ]
    await stack.job("job", 3, "gang", annotations=gang(groups, "a"), queue="root.one", **SIZE)
    await until_placeholders_run(stack, 3)
    await sleep(stack, "late", "two")
    await stack.until_running("late")
    assert len(await stack.running(placeholders=True)) == 2


# --- DaemonSets ---------------------------------------------------------------------------------


async def _full_nodes(stack: Stack, **more: object) -> None:
    nodes = {"w1": {"memory": "3G"}, "w2": {"memory": "3G"}, "w3": FOREIGN_NODE}
    await stack.begin(tree(leaf("one"), leaf("daemons")), nodes)
    for at in (1, 2):
        on = {"nodeSelector": {"kubernetes.io/hostname": f"w{at}"}}
        for part in range(3):
            await sleep(stack, f"w{at}-{part}", "one", memory="1000M", **on, **more)
    await stack.until_running(*(f"w{at}-{part}" for at in (1, 2) for part in range(3)))


@spec
async def daemons_on_every_node(stack: Stack) -> None:
    await _full_nodes(stack)
    await stack.apply(*(daemon(f"d-{at}", f"w{at}", memory="900M") for at in (1, 2)))
    await stack.until_running("d-1", "d-2")
    left = await stack.running()
    assert [sum(name.startswith(f"w{at}") for name in left) for at in (1, 2)] == [2, 2]


@spec
async def daemon_takes_two(stack: Stack) -> None:
    await _full_nodes(stack)
    await stack.apply(daemon("d", "w2", memory="1500M"))
    await stack.until_running("d")
    left = await stack.running()
    assert sum(name.startswith("w2") for name in left) == 1
    assert sum(name.startswith("w1") for name in left) == 3


@spec
async def daemon_takes_opted_out_when_all_are(stack: Stack) -> None:
    await _full_nodes(stack, annotations=OPTED_OUT)
    await stack.apply(daemon("d", "w1", memory="900M"))
    await stack.until_running("d")


@spec
async def daemon_takes_nobody_of_higher_priority(stack: Stack) -> None:
    await stack.priority_class("high", 100)
    await _full_nodes(stack, priorityClassName="high")
    await stack.apply(daemon("d", "w1", memory="900M"))

    async def it_waits() -> bool:
        return len(await stack.running()) == 6

    await stack.stays(it_waits, "the daemon waits", 40)
    logs = await stack.logs("app-d")
    assert "No fit on required node, preemption does not help" in logs["d"]


@spec
async def daemon_with_preemption_disabled_takes_its_place(stack: Stack) -> None:
    nodes = {"w1": {"memory": "3G"}, "w2": {"memory": "3G"}, "w3": FOREIGN_NODE}
    await stack.begin(tree(leaf("one"), leaf("daemons"), preemption={"enabled": False}), nodes)
    await sleep(
        stack, "filler", "one", memory="3000M", nodeSelector={"kubernetes.io/hostname": "w1"}
    )
    await stack.until_running("filler")
    await stack.apply(daemon("d", "w1", memory="900M"))
    await stack.until_running("d")
    assert await stack.running() == {"d"}


@spec
async def daemon_where_there_is_room(stack: Stack) -> None:
    await _full_nodes(stack)
    await stack.delete("w1-0")
    await stack.apply(daemon("d", "w1", memory="900M"))
    await stack.until_running("d")
    assert len(await stack.running()) == 6
