"""What happens by default where that is not what a spec of YuniKorn's expects.

One of each is under the spec's name, here and in docs/from-yunikorn.md.
"""

from tests.integration.kubernetes.yunikorn.gangs import (
    APP,
    a_gang_between_two_pods,
    a_gang_that_loses_its_placeholders,
    placeholders,
    until_placeholders_run,
)
from tests.integration.kubernetes.yunikorn.rows import Spec
from tests.kubernetes.stack import Stack

OTHERWISE: dict[str, Spec] = {}


def otherwise(given: Spec) -> Spec:
    """Keep what happens instead under the name of its function, which is the spec's."""
    OTHERWISE[given.__name__] = given
    return given


@otherwise
async def fifo_order(stack: Stack) -> None:
    """The gang takes nothing until all of it fits; meanwhile who comes later passes it."""
    space, names = await a_gang_between_two_pods(stack)
    await stack.until_running("c", namespace=space)
    await stack.passes(60)
    assert await stack.running(namespace=space, placeholders=True) == set()
    assert await stack.running(namespace=space) == {"a", "c"}
    await stack.delete("a", "c", namespace=space)
    await stack.until_running(*names, namespace=space)
    assert await stack.groups("app-b") == {"g": (3, 3, 0)}


@otherwise
async def deleted_placeholders(stack: Stack) -> None:
    """What is lost while a gang reserves is made again."""
    held = await a_gang_that_loses_its_placeholders(stack)
    await until_placeholders_run(stack, 3)
    assert not held & set(await placeholders(stack))
    assert await stack.state(APP) == "Accepted"
