"""The max of a leaf is lowered below what it uses: when pods go, how many, and when none does.

The leaf has three pods of 100m and 100Mi, guaranteed 200 of each, and a max of 300. It is a table:
what is said anew, when, and how many pods run for how long before how many are left.
"""

from dataclasses import dataclass

from tests.integration.kubernetes.yunikorn.preemption import tree
from tests.integration.kubernetes.yunikorn.rows import SPECS
from tests.kubernetes.stack import Object, Stack, pod_body

APP = "quota-app"
SIZE = {"cpu": "100m", "memory": "100Mi"}


@dataclass(frozen=True)
class Change:
    """A change of the leaf: its max, its delay (``""``: none), and how long it is before the next."""

    most: int
    delay: str = ""
    parents: str = ""  # the delay of the queue above
    guaranteed: int = 200
    lasts: float = 0.0


@dataclass(frozen=True)
class Row:
    """What is said, and what comes of it: ``left`` pods run, after all did for ``kept`` seconds."""

    changes: tuple[Change, ...]
    left: int
    kept: float = 0.0
    within: float = 10.0
    pods: int = 3
    is_enabled: bool = True


def amounts(number: int) -> dict[str, str]:
    """Return so many milli-cores and MiB."""
    return {"vcore": f"{number}m", "memory": f"{number}Mi"}


def configured(change: Change, *, is_enabled: bool) -> str:
    """Return the configuration after a change."""

    def properties(delay: str) -> Object:
        return {"properties": {"quota.preemption.delay": delay}} if delay else {}

    own = {"guaranteed": amounts(change.guaranteed), "max": amounts(change.most)}
    leaf = {"name": "leaf", "resources": own, **properties(change.delay)}
    parent = {"name": "parent", "queues": [leaf], **properties(change.parents)}
    return tree(parent, preemption={"enabled": True, "quotapreemptionenabled": is_enabled})


async def fill(stack: Stack, row: Row) -> None:
    """Have the pods run in the leaf, under the max that it had."""
    await stack.begin(configured(Change(300), is_enabled=row.is_enabled))
    names = [f"p-{at}" for at in range(row.pods)]
    for name in names:
        await stack.apply(pod_body(name, APP, queue="root.parent.leaf", **SIZE))
    await stack.until_running(*names)


async def change_all(stack: Stack, row: Row) -> None:
    """Say everything that is said anew, each at its time."""
    for change in row.changes:
        await stack.configure(configured(change, is_enabled=row.is_enabled))
        await stack.passes(change.lasts)


ROWS = {
    "quota_basic": Row((Change(200, "1s"),), left=2),
    "not_on_increase": Row((Change(400, "1s"),), left=3),
    "with_delay": Row((Change(200, "20s"),), left=2, kept=19, within=10),
    "delay_inherited": Row((Change(200, parents="20s"),), left=2, kept=19, within=10),
    "zero_delay": Row((Change(200, "0s"),), left=3),
    "disabled": Row((Change(200, "1s"),), left=3, is_enabled=False),
    "not_when_new_quota_above_usage": Row((Change(250, "1s"),), left=2, pods=2),
    "timer_reset_on_delay_update": Row(
        (Change(200, "5s", lasts=1.5), Change(200, "15s")), left=2, kept=5, within=15
    ),
    "timer_reset_on_quota_re_reduction": Row(
        (Change(200, "5s", guaranteed=100, lasts=2), Change(100, "10s", guaranteed=100)),
        left=1, kept=6, within=15,
    ),
}  # fmt: skip


async def _run(stack: Stack, row: Row) -> None:
    await fill(stack, row)
    await change_all(stack, row)

    async def run(count: int) -> bool:
        return len(await stack.running()) == count

    await stack.stays(lambda: run(row.pods), "all of them run", row.kept)
    await stack.until(lambda: run(row.left), f"{row.left} are left", row.within)
    await stack.stays(lambda: run(row.left), f"{row.left} are left", 30)


def _keep(name: str, row: Row) -> None:
    async def of_the_table(stack: Stack) -> None:
        await _run(stack, row)

    SPECS[name] = of_the_table


for _name, _row in ROWS.items():
    _keep(_name, _row)


async def no_new_allocations_while_over(stack: Stack) -> None:
    row = Row((Change(250, "30s"),), left=3)
    await fill(stack, row)
    await change_all(stack, row)
    late = pod_body("late", "late", queue="root.parent.leaf", cpu="50m", memory="50Mi")
    await stack.apply(late)

    async def it_waits() -> bool:
        return await stack.running() == {"p-0", "p-1", "p-2"}

    await stack.stays(it_waits, "it waits while the three run", 25)
    await stack.until_running("late", within=20)
    assert len(await stack.running()) == 3


SPECS["no_new_allocations_while_over"] = no_new_allocations_while_over
