"""Quotas that are lowered below what is used: who goes, when, and whom a guarantee keeps."""

from shared.messages.constraints import Constraints
from shared.messages.interface import Allocation, UpdateConfiguration
from tests.builders import START_NS, Core, section
from tests.table import each_row

HOUR = 3600
DELAY = "quota.preemption.delay: 10s"
NODE = {"vcore": 100, "memory": 100}


def file(queues, switch="quotapreemptionenabled: true"):
    return (
        f"partitions: [{{name: default, preemption: {{{switch}}}, queues: [{{name: root, "
        f"submitacl: '*', queues: [{queues}]}}]}}]"
    )


def q(name, most="", guaranteed="", below="", properties=DELAY):
    amounts = [
        f"{kind}: {{{text}}}" for kind, text in (("max", most), ("guaranteed", guaranteed)) if text
    ]
    parts = [f"name: {name}"]
    parts += [f"resources: {{{', '.join(amounts)}}}"] if amounts else []
    parts += [f"properties: {{{properties}}}"] if properties else []
    parts += [f"queues: [{below}]"] if below else []
    return f"{{{', '.join(parts)}}}"


def pod(queue, vcore=0, memory=0, priority=0, at=0, **more):
    amount = {name: n for name, n in (("vcore", vcore), ("memory", memory)) if n}
    return queue, amount, {"priority": priority, "create_time_ns": START_NS + at * 10**9, **more}


def gone(before, after, pods, wait=11, between=(), switch="quotapreemptionenabled: true"):
    """Return who is released within a time after the file changes, by number of the pod."""
    core = Core(file(before, switch))
    core.now_ns += 5 * HOUR * 10**9
    core.node("n", **NODE)
    for at, (queue, amount, more) in enumerate(pods):
        if queue not in core.partition.applications:
            core.application(queue, f"root.{queue}")
        core.update(allocations=(Allocation(f"{at}", queue, "n", amount, **more),))
    found = []
    until_ns = core.now_ns + wait * 10**9
    core.send(UpdateConfiguration(file(after, switch)))
    for later, text in between:
        core.now_ns += later * 10**9
        core.send(UpdateConfiguration(file(text, switch)))
    while "quota" in core.partition.timers and core.partition.timers["quota"][1] <= until_ns:
        said = core.fire_own("quota")
        found += [int(item.allocation_key) for item in section(said, "released_allocations")]
    core.check()
    return sorted(found)


FIVE = [pod("a", 2, at=at) for at in range(5)]
CASES = {
    "the newest": (q("a"), q("a", "vcore: 6m"), FIVE, [3, 4]),
    "never more than is over": (q("a"), q("a", "vcore: 7m"), FIVE, [4]),
    "less than a pod over takes nobody": (q("a"), q("a", "vcore: 9m"), FIVE, []),
    "not before the delay": (q("a"), q("a", "vcore: 6m"), FIVE, [], 9),
    "a delay of nothing is never": (q("a", properties=""), q("a", "vcore: 6m", properties="quota.preemption.delay: 0s"), FIVE, [], 999),
    "no delay is never": (q("a", properties=""), q("a", "vcore: 6m", properties=""), FIVE, [], 999),
    "what is no duration is never": (q("a", properties=""), q("a", "vcore: 6m", properties="quota.preemption.delay: '10'"), FIVE, [], 999),
    "at the max nobody goes": (q("a"), q("a", "vcore: 10m"), FIVE, []),
    "another type's max": (q("a"), q("a", "memory: 10"), FIVE, []),
    "the guarantee stays": (q("a"), q("a", "vcore: 4m", "vcore: 4m"), FIVE, [2, 3, 4]),
    "a parent's guarantee stays": (q("p", below=q("x")), q("p", guaranteed="vcore: 8m", below=q("x", "vcore: 2m")), [pod("p.x", 2, at=at) for at in range(5)], [4]),
    "lower priorities first": (q("a"), q("a", "vcore: 6m"), [pod("a", 2, priority=5 - at, at=at) for at in range(5)], [3, 4]),
    "lower priorities before newer ones": (q("a"), q("a", "vcore: 6m"), [pod("a", 2, priority=at, at=at) for at in range(5)], [0, 1]),
    "an hour newer before smaller": (q("a"), q("a", "vcore: 6m"), [pod("a", 4, at=2 * HOUR), pod("a", 2), pod("a", 2), pod("a", 2)], [0]),
    "smaller ones of an hour": (q("a"), q("a", "vcore: 6m"), [pod("a", 4, at=9), pod("a", 2), pod("a", 2, at=5), pod("a", 2, at=7)], [2, 3]),
    "who needs its node stays": (q("a"), q("a", "vcore: 6m"), [*FIVE[:4], pod("a", 2, at=9, constraints=Constraints(required_node="n"))], [2, 3]),
    "who opted out goes last": (q("a"), q("a", "vcore: 6m"), [*FIVE[:4], pod("a", 2, at=9, allow_preempt_self=False)], [2, 3]),
    "an originator goes after ordinary ones": (q("a"), q("a", "vcore: 6m"), [*FIVE[:4], pod("a", 2, at=9, originator=True)], [2, 3]),
    "those with more of the types first": (q("a"), q("a", "vcore: 2m, memory: 2"), [pod("a", 2, 2), pod("a", 2, at=9), pod("a", memory=2, at=9)], [0]),
    "only those with the type": (q("a"), q("a", "memory: 2"), [pod("a", 2, at=9), pod("a", memory=2), pod("a", memory=2, at=5)], [2]),
    "a parent's is divided by what its children have": (q("p", below=q("x") + ", " + q("y")), q("p", "vcore: 6m", below=q("x") + ", " + q("y")), [pod("p.x", 1, at=at) for at in range(8)] + [pod("p.y", 1, at=at) for at in range(4)], [4, 5, 6, 7, 10, 11]),
    "children's guarantees stay": (q("p", below=q("x", guaranteed="vcore: 4m") + ", " + q("y")), q("p", "vcore: 6m", below=q("x", guaranteed="vcore: 4m") + ", " + q("y")), [pod("p.x", 1, at=at) for at in range(4)] + [pod("p.y", 1, at=at) for at in range(6)], [6, 7, 8, 9]),
    "the same max again does not begin anew": (q("a"), q("a", "vcore: 6m"), FIVE, [3, 4], 11, [(6, q("a", "vcore: 6m") + ", " + q("b"))]),
    "nor does a lower one": (q("a"), q("a", "vcore: 6m"), FIVE, [2, 3, 4], 11, [(6, q("a", "vcore: 4m"))]),
    "a max that is raised in time saves all": (q("a"), q("a", "vcore: 6m"), FIVE, [], 99, [(6, q("a", "vcore: 10m"))]),
    "one that is taken out too": (q("a"), q("a", "vcore: 6m"), FIVE, [], 99, [(6, q("a"))]),
    "a longer delay counts from the start": (q("a"), q("a", "vcore: 6m"), FIVE, [], 29, [(6, q("a", "vcore: 6m", properties="quota.preemption.delay: 30s"))]),
    "and ends": (q("a"), q("a", "vcore: 6m"), FIVE, [3, 4], 30, [(6, q("a", "vcore: 6m", properties="quota.preemption.delay: 30s"))]),
    "a shorter one is over at once": (q("a", properties="quota.preemption.delay: 1h"), q("a", "vcore: 6m", properties="quota.preemption.delay: 1h"), FIVE, [3, 4], 7, [(6, q("a", "vcore: 6m", properties="quota.preemption.delay: 5s"))]),
    "a delay is inherited": (q("p", below=q("x", properties="")), q("p", below=q("x", "vcore: 6m", properties="")), [pod("p.x", 2, at=at) for at in range(5)], [3, 4]),
}  # fmt: skip


@each_row("name", CASES)
def test_who_goes_for_a_lower_quota(name):
    before, after, pods, wanted, *more = CASES[name]
    assert gone(before, after, pods, *more) == wanted


def test_nobody_where_it_is_switched_off():
    assert gone(q("a"), q("a", "vcore: 6m"), FIVE, switch="enabled: true") == []


def test_the_switch_of_other_preemption_is_another():
    switch = "enabled: false, quotapreemptionenabled: true"
    assert gone(q("a"), q("a", "vcore: 6m"), FIVE, switch=switch) == [3, 4]
