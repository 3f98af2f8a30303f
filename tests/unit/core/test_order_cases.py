"""In which order queues, applications and asks are served: one place comes free after the other."""

from shared.messages.interface import Allocation, AllocationRelease, TerminationType
from tests.builders import Core, section
from tests.table import each_row

ONE = {"vcore": 1}
PRIO_OFF = "application.sort.priority: disabled"


def tree(*queues, root=""):
    top = f"{{name: root, submitacl: '*', {root} queues: [{{name: fill}}, {', '.join(queues)}]}}"
    return f"partitions: [{{name: default, queues: [{top}]}}]"


def q(name, properties="", below="", resources=""):
    parts = [f"name: {name}"]
    if properties:
        parts.append(f"properties: {{{properties}}}")
    if resources:
        parts.append(f"resources: {{{resources}}}")
    if below:
        parts.append(f"queues: [{below}]")
    return f"{{{', '.join(parts)}}}"


def served(config, asks, used=(), places=None):
    """Return the keys in the order in which they get a place.

    ``asks``: ``queue/application/key[/priority[/created]]``; ``used``: ``queue/application/vcore``.
    """
    core = Core(config)
    places = places or len(asks)
    spent = sum(int(item.split("/")[2]) for item in used)
    core.node("n", vcore=places + spent)
    core.application("filler", "root.fill")
    core.asks("filler", [f"f{at}" for at in range(places)], ONE)
    known = set()
    for item in used:
        queue, application, amount = item.split("/")
        known.add(application)
        core.application(application, f"root.{queue}")
        core.update(
            allocations=(
                Allocation(
                    f"u-{application}",
                    application,
                    "n",
                    {"vcore": int(amount)},
                    create_time_ns=core.now_ns,
                ),
            )
        )
        core.now_ns += 1
    for item in asks:
        queue, application, key, *rest = item.split("/")
        if application not in known:
            core.application(application, f"root.{queue}")
            known.add(application)
        priority = int(rest[0]) if rest else 0
        created = core.now_ns + (int(rest[1]) if len(rest) > 1 else 0)
        core.asks(application, [key], ONE, priority=priority, create_time_ns=created)
        core.now_ns += 1
    order = []
    for at in range(places):
        said = core.update(
            releases=(AllocationRelease("filler", f"f{at}", TerminationType.STOPPED_BY_RM),)
        )
        order += [new.allocation_key for new in section(said, "new_allocations")]
    core.check()
    return order


CASES = {
    "an offset lifts a queue": (
        tree(q("a", "priority.offset: '10'"), q("b")),
        ["b/b/b0/5", "a/a/a0/0"],
        "a0 b0",
    ),
    "a fence hides what is inside": (
        tree(q("a", "priority.policy: fence"), q("b")),
        ["a/a/a0/100", "b/b/b0/1"],
        "b0 a0",
    ),
    "a fence shows its offset": (
        tree(q("a", "priority.policy: fence, priority.offset: '-5'"), q("b")),
        ["b/b/b0/-6", "a/a/a0/-100"],
        "a0 b0",
    ),
    "a parent's offset counts": (
        tree(q("p", "priority.offset: '5'", q("x")), q("b")),
        ["b/b/b0/4", "p.x/x/x0/0"],
        "x0 b0",
    ),
    "offsets of parent and leaf add up": (
        tree(q("p", "priority.offset: '5'", q("x", "priority.offset: '-2'")), q("b")),
        ["b/b/b0/4", "p.x/x/x0/0"],
        "b0 x0",
    ),
    "an offset is not inherited": (
        tree(q("p", "priority.offset: '5'", q("x") + ", " + q("y", "priority.offset: '1'"))),
        ["p.x/x/x0/0", "p.y/y/y0/0"],
        "y0 x0",
    ),
    "without priority queues take turns by share": (
        tree(q("a"), q("b"), root=f"properties: {{{PRIO_OFF}}},"),
        ["a/a/a0/9", "a/a/a1/9", "b/b/b0/0", "b/b/b1/0"],
        "a0 b0 a1 b1",
    ),
    "with it the higher goes first": (
        tree(q("a"), q("b")),
        ["b/b/b0/0", "b/b/b1/0", "a/a/a0/9", "a/a/a1/9"],
        "a0 a1 b0 b1",
    ),
    "a sum of int32 stays at its maximum": (
        tree(q("a", "priority.offset: '2147483647'"), q("b")),
        ["a/a/a0/5", "a/a/a1/5", "b/b/b0/2147483647", "b/b/b1/2147483647"],
        "a0 b0 a1 b1",
    ),
    "and at its minimum": (
        tree(q("a", "priority.offset: '-2147483648'"), q("b")),
        ["a/a/a0/-5", "b/b/b0/-2147483647"],
        "b0 a0",
    ),
    "fifo by submission where priorities are off": (
        tree(q("a", PRIO_OFF)),
        ["a/one/k0/0", "a/two/k1/9"],
        "k0 k1",
    ),
    "fifo by priority where they are on": (tree(q("a")), ["a/one/k0/0", "a/two/k1/9"], "k1 k0"),
    "within an application by priority": (
        tree(q("a", PRIO_OFF)),
        ["a/one/k0/0", "a/one/k1/9", "a/one/k2/5"],
        "k1 k2 k0",
    ),
    "within an application by age": (
        tree(q("a")),
        ["a/one/k0/0/100", "a/one/k1/0/50", "a/one/k2/0/75"],
        "k1 k2 k0",
    ),
    "an older ask makes its application older": (
        tree(q("a")),
        ["a/one/k0", "a/two/k1/0/-1000"],
        "k1 k0",
    ),
    "fair: who has less goes first": (
        tree(q("a", "application.sort.policy: fair")),
        ["a/one/k0", "a/one/k1", "a/two/k2", "a/two/k3"],
        "k0 k2 k1 k3",
    ),
    "fair: what is used counts": (
        tree(q("a", "application.sort.policy: fair")),
        ["a/one/k0", "a/two/k1", "a/two/k2"],
        "k1 k2 k0",
        ["a/one/3", "a/two/1"],
    ),
    "fair: priority before share": (
        tree(q("a", "application.sort.policy: fair")),
        ["a/one/k0/1", "a/two/k1/0"],
        "k0 k1",
        ["a/one/3", "a/two/1"],
    ),
    "fair: share before priority where it is off": (
        tree(q("a", f"application.sort.policy: fair, {PRIO_OFF}")),
        ["a/one/k0/1", "a/two/k1/0"],
        "k1 k0",
        ["a/one/3", "a/two/1"],
    ),
    "stateaware is fifo": (
        tree(q("a", "application.sort.policy: stateaware")),
        ["a/one/k0", "a/two/k1", "a/one/k2"],
        "k0 k2 k1",
    ),
    "an unknown policy is fifo": (
        tree(q("a", "application.sort.policy: newest")),
        ["a/one/k0", "a/two/k1", "a/one/k2"],
        "k0 k2 k1",
    ),
    "a parent sorts fair whatever it says": (
        tree(q("p", "application.sort.policy: fifo", q("x") + ", " + q("y"))),
        ["p.x/x/x0", "p.x/x/x1", "p.y/y/y0", "p.y/y/y1"],
        "x0 y0 x1 y1",
    ),
    "a leaf inherits fair": (
        tree(q("p", "application.sort.policy: fair", q("x"))),
        ["p.x/one/k0", "p.x/one/k1", "p.x/two/k2", "p.x/two/k3"],
        "k0 k2 k1 k3",
    ),
    "a leaf inherits that priorities are off": (
        tree(q("p", PRIO_OFF, q("x"))),
        ["p.x/one/k0/0", "p.x/two/k1/9"],
        "k0 k1",
    ),
    "and may have them on": (
        tree(q("p", PRIO_OFF, q("x", "application.sort.priority: enabled"))),
        ["p.x/one/k0/0", "p.x/two/k1/9"],
        "k1 k0",
    ),
    "disabled in capitals": (
        tree(q("a", "application.sort.priority: DISABLED")),
        ["a/one/k0/0", "a/two/k1/9"],
        "k0 k1",
    ),
    "by share of the guarantee": (
        tree(
            q("a", resources="guaranteed: {vcore: 10m}"),
            q("b", resources="guaranteed: {vcore: 2m}"),
        ),
        ["a/a/a0", "b/b/b0"],
        "a0 b0",
        ["a/a/3", "b/b/1"],
    ),
    "a guarantee of nothing is a full share": (
        tree(
            q("a", resources="guaranteed: {vcore: 0, memory: 5}"),
            q("b", resources="guaranteed: {vcore: 4m}"),
        ),
        ["a/a/a0", "b/b/b0"],
        "b0 a0",
        ["a/a/1", "b/b/3"],
    ),
    "without a guarantee by share of the max": (
        tree(q("a", resources="max: {vcore: 20m}"), q("b", resources="max: {vcore: 5m}")),
        ["a/a/a0", "b/b/b0"],
        "a0 b0",
        ["a/a/3", "b/b/1"],
    ),
    "of two alike the one with more that waits": (
        tree(q("a"), q("b")),
        ["a/a/a0", "b/b/b0", "b/b/b1"],
        "b0 a0 b1",
    ),
    "a child's max goes before its parent's": (
        tree(
            q(
                "p",
                resources="max: {vcore: 30m}",
                below=q("x", resources="max: {vcore: 10m}") + ", " + q("y"),
            )
        ),
        ["p.x/x/x0", "p.y/y/y0"],
        "y0 x0",
        ["p.x/x/2", "p.y/y/5"],
    ),
}


@each_row("name", CASES)
def test_the_order_in_which_they_are_served(name):
    config, asks, wanted, *used = CASES[name]
    assert served(config, asks, *used) == wanted.split()
