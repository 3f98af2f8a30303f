"""Usage over time under kai, by messages: what queues have used decides what they get next."""

from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
)
from shared.model.units import seconds
from tests.builders import Core, config_of
from tests.table import each_row

HOUR = seconds(3_600)
ONE = {"vcore": 1}
LEAF = "{name: %s, properties: {deserved.vcore: '0'}}"  # else all is everybody's quota
WINDOW = ("usageWindow", "168h")


def core_with(*leaves: str, settings=(WINDOW,), vcore: int) -> Core:
    core = Core(config_of(*leaves), settings=(("policy", "kai"), *settings))
    core.node("n", vcore=vcore)
    return core


def use(core: Core, leaf: str, pods: int, hours: float) -> None:
    """Let a leaf run some pods for a time, and no longer."""
    name = f"before-{leaf}-{core.now_ns}"
    if pods:
        core.application(name, f"root.{leaf}")
        core.asks(name, [f"{name}-{at}" for at in range(pods)], ONE)
    core.now_ns += int(hours * HOUR)
    stopped = TerminationType.STOPPED_BY_RM
    core.update(
        releases=tuple(AllocationRelease(name, f"{name}-{at}", stopped) for at in range(pods))
    )


def want(core: Core, **pods: int) -> dict[str, int]:
    """Let leaves want pods at the same time; return what they get."""
    core.update(
        new_applications=tuple(AddApplicationRequest(leaf, f"root.{leaf}") for leaf in pods),
        asks=tuple(
            AllocationAsk(f"{leaf}-{at}", leaf, ONE) for leaf in pods for at in range(pods[leaf])
        ),
    )
    return {leaf: core.partition.queues[f"root.{leaf}"].allocated.get("vcore", 0) for leaf in pods}


K = "kValue"


@each_row(
    ("k", "before", "expected"),
    [
        ("0", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 8, "b": 8}),
        ("1", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 5, "b": 11}),
        ("", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 5, "b": 11}),
        ("0.5", [("a", 16, 6), ("b", 16, 1), ("b", 0, 3)], {"a": 6, "b": 10}),
        ("2", [("a", 16, 9), ("b", 16, 1)], {"a": 0, "b": 16}),
    ],
)
def test_what_they_have_used_decides_what_two_queues_get(k, before, expected):
    core = core_with(LEAF % "a", LEAF % "b", settings=(WINDOW, (K, k)), vcore=16)
    for leaf, pods, hours in before:
        use(core, leaf, pods, hours)
    assert want(core, a=16, b=16) == expected
    core.check()
