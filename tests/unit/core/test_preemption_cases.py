"""YuniKorn's preemption in other numbers than its own cases have: trees, nodes, pods, who goes."""

from dataclasses import dataclass, field

from shared.messages.constraints import Constraints
from shared.messages.interface import Allocation, NodeAction, NodeInfo
from tests.builders import Core, config_of, section
from tests.table import each_row

SECOND_NS = 1_000_000_000
GUARANTEES = "Preemption queue guarantees check failed"
NO_HELP = "Preemption does not help"
SHORTFALL = "Preemption helped but short of resources"


def leaf(name, guaranteed="", most="", below=(), **properties):
    """Return a queue: amounts as of a flow map without its braces, properties with ``_`` for ``.``."""
    parts = [f"name: {name}"]
    amounts = [("guaranteed", guaranteed), ("max", most)]
    amounts = ", ".join(f"{kind}: {{{text}}}" for kind, text in amounts if text)
    if amounts:
        parts.append(f"resources: {{{amounts}}}")
    if properties:
        named = (f"{key.replace('_', '.')}: '{value}'" for key, value in properties.items())
        parts.append(f"properties: {{{', '.join(named)}}}")
    if below:
        parts.append(f"queues: [{', '.join(below)}]")
    return f"{{{', '.join(parts)}}}"


def amount(text):
    """Return ``2v 3m`` as a resource: v of vcore in milli, m of memory, g of GPUs."""
    names = {"v": "vcore", "m": "memory", "g": "nvidia.com/gpu", "p": "pods"}
    return {names[part[-1]]: int(part[:-1]) for part in text.split()}


@dataclass(frozen=True)
class Case:
    """Queues, nodes, the pods that run (``queue key amount node``, the oldest first), the ask."""

    queues: list
    nodes: dict
    pods: list
    ask: tuple
    victims: list
    options: dict = field(default_factory=dict)  # of pods, by key, and of the ask
    wait: int = 31
    says: str | None = None  # the line that the ask's log has, "" for none about preemption


def victims_of(case):
    core = Core(config_of(*case.queues))
    assert not core.partition.config_error
    for name, size in case.nodes.items():
        core.update(nodes=(NodeInfo(name, NodeAction.CREATE, amount(size)),))
    known = set()
    for pod in case.pods:
        core.now_ns += SECOND_NS
        queue, key, size, node = pod.split("/")
        if queue not in known:
            core.application(queue, f"root.{queue}")
            known.add(queue)
        more = {"create_time_ns": core.now_ns, **case.options.get(key, {})}
        core.update(allocations=(Allocation(key, queue, node, amount(size), **more),))
    queue, size = case.ask
    core.application("asking", f"root.{queue}")
    core.now_ns += SECOND_NS
    options = case.options.get("ask", {})
    said = core.asks("asking", ["ask"], amount(size), create_time_ns=core.now_ns, **options)
    gone = [item.allocation_key for item in section(said, "released_allocations")]
    until_ns = core.now_ns + case.wait * SECOND_NS
    while "preemption" in core.partition.timers:
        if core.partition.timers["preemption"][1] > until_ns:
            break
        core.now_ns = max(core.now_ns, core.partition.timers["preemption"][1])
        said = core.fire_own("preemption")
        gone += [item.allocation_key for item in section(said, "released_allocations")]
    core.check()
    log = {
        line.message
        for item in core.answers
        for told in getattr(item.message, "asks", ())
        if getattr(told, "allocation_key", "") == "ask" and getattr(told, "log", None)
        for line in told.log
    }
    return sorted(gone), log


def pods(queue, name, count, size, node="n1"):
    return [f"{queue}/{name}{at}/{size}/{node}" for at in range(count)]


TWO = [
    leaf("p", "vcore: 6m", below=[leaf("a", "vcore: 4m"), leaf("b")]),
    leaf("q", below=[leaf("c")]),
]
OWED = leaf("a", "vcore: 4m")
CASES = {
    "a parent's guarantee is its children's": Case(
        [leaf("p", "vcore: 10m", below=[leaf("a")]), leaf("q", below=[leaf("c")])],
        {"n1": "10v"}, pods("q.c", "c", 2, "5v"), ("p.a", "5v"), ["c1"]),
    "two levels up too": Case(
        [leaf("o", "vcore: 10m", below=[leaf("p", below=[leaf("a")])]), leaf("c")],
        {"n1": "10v"}, pods("c", "c", 2, "5v"), ("o.p.a", "5v"), ["c1"]),
    "the own guarantee is what counts below the parent's": Case(
        [leaf("p", "vcore: 6m", below=[leaf("a", "vcore: 2m"), leaf("b")]), leaf("c")],
        {"n1": "6v"}, pods("c", "c", 6, "1v"), ("p.a", "3v"), [], says=GUARANTEES),
    "and within it victims go": Case(
        [leaf("p", "vcore: 6m", below=[leaf("a", "vcore: 2m"), leaf("b")]), leaf("c")],
        {"n1": "6v"}, pods("c", "c", 6, "1v"), ("p.a", "2v"), ["c4", "c5"]),
    "the sibling has the parent's": Case(
        [leaf("p", "vcore: 6m", below=[leaf("a", "vcore: 2m"), leaf("b")]), leaf("c")],
        {"n1": "6v"}, pods("c", "c", 6, "1v"), ("p.b", "3v"), ["c3", "c4", "c5"]),
    "the own guarantee counts though the parent is over its own": Case(
        TWO, {"n1": "10v"}, pods("p.b", "b", 6, "1v") + pods("q.c", "c", 4, "1v"),
        ("p.a", "4v"), ["c0", "c1", "c2", "c3"]),
    "the newest wherever they are": Case(
        TWO, {"n1": "10v"}, pods("q.c", "c", 4, "1v") + pods("p.b", "b", 6, "1v"),
        ("p.a", "4v"), ["b2", "b3", "b4", "b5"]),
    "a parent below its guarantee takes from outside, newest first": Case(
        TWO, {"n1": "10v"}, pods("p.b", "b", 2, "1v") + pods("q.c", "c", 8, "1v"),
        ("p.a", "4v"), ["c4", "c5", "c6", "c7"]),
    "a fence keeps them inside": Case(
        [leaf("p", "vcore: 6m", below=[leaf("a", "vcore: 4m"), leaf("b")],
              preemption_policy="fence"), leaf("c")],
        {"n1": "10v"}, pods("p.b", "b", 2, "1v") + pods("c", "c", 8, "1v"),
        ("p.a", "2v"), ["b0", "b1"]),
    "a fence further up lets the ones below it in": Case(
        [leaf("o", below=[leaf("p", below=[OWED]), leaf("b")], preemption_policy="fence"),
         leaf("c")],
        {"n1": "10v"}, pods("o.b", "b", 2, "1v") + pods("c", "c", 8, "1v"),
        ("o.p.a", "3v"), []),
    "a fence is not inherited": Case(
        [leaf("o", below=[leaf("p", below=[OWED, leaf("b")]), leaf("d")],
              preemption_policy="fence")],
        {"n1": "10v"}, pods("o.p.b", "b", 2, "1v") + pods("o.d", "d", 8, "1v"),
        ("o.p.a", "3v"), ["d5", "d6", "d7"]),
    "what is disabled above is disabled below": Case(
        [OWED, leaf("q", below=[leaf("c")], preemption_policy="disabled"), leaf("d")],
        {"n1": "10v"}, pods("d", "d", 4, "1v") + pods("q.c", "c", 6, "1v"),
        ("a", "2v"), ["d2", "d3"]),
    "a parent that is full is a fence": Case(
        [leaf("p", most="vcore: 6m", below=[OWED, leaf("b")]), leaf("c")],
        {"n1": "20v"}, pods("p.b", "b", 6, "1v") + pods("c", "c", 14, "1v"),
        ("p.a", "2v"), ["b4", "b5"]),
    "one that just holds the ask is none": Case(
        [leaf("p", most="vcore: 6m", below=[OWED, leaf("b")]), leaf("c")],
        {"n1": "20v"}, pods("p.b", "b", 4, "1v") + pods("c", "c", 16, "1v"),
        ("p.a", "2v"), ["c14", "c15"]),
    "a leaf at its own max preempts nobody": Case(
        [leaf("a", "vcore: 4m", "vcore: 4m"), leaf("c")],
        {"n1": "10v"}, pods("a", "a", 4, "1v") + pods("c", "c", 6, "1v"), ("a", "1v"), []),
    "nobody of the own leaf goes": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v"}, pods("a", "a", 2, "1v") + pods("c", "c", 2, "1v"), ("a", "2v"),
        ["c0", "c1"]),
    "a sibling's offset counts for its pods": Case(
        [OWED, leaf("q", below=[leaf("c")], priority_offset="-5")],
        {"n1": "2v"}, pods("q.c", "c", 2, "1v"), ("a", "1v"), ["c0"],
        options={"c0": {"priority": 5}, "c1": {"priority": 6}}),
    "the own offset lifts the ask": Case(
        [leaf("p", below=[OWED], priority_offset="3"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("p.a", "1v"), ["c0"],
        options={"c0": {"priority": 3}, "c1": {"priority": 4}}),
    "offsets add up on the way": Case(
        [leaf("p", below=[leaf("a", "vcore: 4m", priority_offset="4")], priority_offset="3"),
         leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("p.a", "1v"), ["c0"],
        options={"c0": {"priority": 7}, "c1": {"priority": 8}}),
    "a priority fence makes the ask its offset": Case(
        [leaf("p", below=[OWED], priority_offset="2", priority_policy="fence"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("p.a", "1v"), ["c0"],
        options={"c0": {"priority": 2}, "c1": {"priority": 3}, "ask": {"priority": 100}}),
    "offsets above both count for neither": Case(
        [leaf("p", below=[OWED, leaf("b")], priority_offset="50")],
        {"n1": "2v"}, pods("p.b", "b", 2, "1v"), ("p.a", "1v"), ["b0"],
        options={"b0": {"priority": 0}, "b1": {"priority": 1}}),
    "an offset is int32 and clamps": Case(
        [leaf("p", below=[leaf("a", "vcore: 4m", priority_offset="2147483647")],
              priority_offset="2147483647"), leaf("c")],
        {"n1": "1v"}, pods("c", "c", 1, "1v"), ("p.a", "1v"), ["c0"],
        options={"c0": {"priority": 2147483647}, "ask": {"priority": 2147483647}}),
    "a fenced sibling hides its pods' priorities": Case(
        [OWED, leaf("q", below=[leaf("c")], priority_policy="fence")],
        {"n1": "2v"}, pods("q.c", "c", 2, "1v"), ("a", "1v"), ["c1"],
        options={"c0": {"priority": 1000}, "c1": {"priority": 2000}}),
    "before the delay nobody goes": Case(
        [OWED, leaf("c")], {"n1": "2v"}, pods("c", "c", 2, "1v"), ("a", "1v"), [], wait=29),
    "a delay is inherited": Case(
        [leaf("p", below=[OWED], preemption_delay="1m"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("p.a", "1v"), [], wait=59),
    "and ends": Case(
        [leaf("p", below=[OWED], preemption_delay="1m"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("p.a", "1v"), ["c1"], wait=60),
    "a delay that is no duration is the default": Case(
        [leaf("a", "vcore: 4m", preemption_delay="5"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("a", "1v"), [], wait=29),
    "so is one of nothing": Case(
        [leaf("a", "vcore: 4m", preemption_delay="0s"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("a", "1v"), [], wait=29),
    "so is a negative one": Case(
        [leaf("a", "vcore: 4m", preemption_delay="-1s"), leaf("c")],
        {"n1": "2v"}, pods("c", "c", 2, "1v"), ("a", "1v"), ["c1"], wait=30),
    "a victim's queue keeps its guarantee": Case(
        [leaf("a", "vcore: 4m"), leaf("c", "vcore: 3m")],
        {"n1": "5v"}, pods("c", "c", 5, "1v"), ("a", "2v"), ["c3", "c4"]),
    "and gives nothing below it": Case(
        [leaf("a", "vcore: 4m"), leaf("c", "vcore: 4m")],
        {"n1": "5v"}, pods("c", "c", 5, "1v"), ("a", "2v"), []),
    "a parent of victims keeps its guarantee": Case(
        [leaf("a", "vcore: 4m"), leaf("q", "vcore: 4m", below=[leaf("c"), leaf("d")])],
        {"n1": "6v"}, pods("q.c", "c", 3, "1v") + pods("q.d", "d", 3, "1v"), ("a", "2v"),
        ["d1", "d2"]),
    "a parent of victims gives nothing below it": Case(
        [leaf("a", "vcore: 4m"), leaf("q", "vcore: 5m", below=[leaf("c"), leaf("d")])],
        {"n1": "6v"}, pods("q.c", "c", 3, "1v") + pods("q.d", "d", 3, "1v"), ("a", "2v"), []),
    "a sibling's guarantee protects only itself": Case(
        [leaf("a", "vcore: 4m"),
         leaf("q", "vcore: 2m", below=[leaf("c", "vcore: 2m"), leaf("d")])],
        {"n1": "6v"}, pods("q.d", "d", 4, "1v") + pods("q.c", "c", 2, "1v"), ("a", "2v"),
        ["d2", "d3"]),
    "a leaf at its guarantee gives nothing though its parent is over": Case(
        [leaf("a", "vcore: 4m"),
         leaf("q", "vcore: 2m", below=[leaf("c", "vcore: 2m"), leaf("d", "vcore: 0m")])],
        {"n1": "3v"}, pods("q.d", "d", 1, "1v") + pods("q.c", "c", 2, "1v"), ("a", "2v"), []),
    "a leaf over its guarantee gives nothing where its parent is at its own": Case(
        [leaf("a", "vcore: 4m"),
         leaf("q", "vcore: 5m", below=[leaf("c", "vcore: 2m"), leaf("d")])],
        {"n1": "5v"}, pods("q.d", "d", 1, "1v") + pods("q.c", "c", 4, "1v"), ("a", "1v"), []),
    "of a leaf and its parent the one with less over bounds": Case(
        [leaf("a", "vcore: 4m"),
         leaf("q", "vcore: 3m", below=[leaf("c", "vcore: 1m"), leaf("d")])],
        {"n1": "6v"}, pods("q.d", "d", 1, "1v") + pods("q.c", "c", 5, "1v"), ("a", "3v"),
        ["c2", "c3", "c4"]),
    "and not more than it has": Case(
        [leaf("a", "vcore: 4m"),
         leaf("q", "vcore: 4m", below=[leaf("c", "vcore: 1m"), leaf("d")])],
        {"n1": "6v"}, pods("q.d", "d", 1, "1v") + pods("q.c", "c", 5, "1v"), ("a", "3v"), []),
    "victims share a type with the ask": Case(
        [OWED, leaf("c")], {"n1": "4v 10m"},
        ["c/c0/4v/n1", "c/c1/5m/n1"], ("a", "2v"), ["c0"]),
    "a guarantee of one type speaks for that type": Case(
        [OWED, leaf("c")], {"n1": "4v 10m"}, pods("c", "c", 2, "2v 5m"), ("a", "2v 5m"), ["c1"]),
    "a type that is used over its guarantee stops": Case(
        [leaf("a", "vcore: 4m, memory: 3"), leaf("c")],
        {"n1": "4v 10m"}, pods("c", "c", 2, "2v 5m"), ("a", "2v 5m"), [], says=GUARANTEES),
    "two types from two victims": Case(
        [leaf("a", "vcore: 4m, memory: 8"), leaf("c")],
        {"n1": "4v 8m"}, ["c/c0/4v/n1", "c/c1/8m/n1"], ("a", "4v 8m"), ["c0", "c1"]),
    "nobody on another node": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v", "n2": "4v"}, pods("c", "c", 2, "2v") + pods("c", "d", 2, "2v", "n2"),
        ("a", "4v"), ["d0", "d1"]),
    "the node with the fewest victims": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v", "n2": "4v"}, pods("c", "c", 4, "1v") + pods("c", "d", 1, "4v", "n2"),
        ("a", "4v"), ["d0"]),
    "the node without an originator though more go": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v", "n2": "4v"}, pods("c", "c", 2, "2v") + pods("c", "d", 1, "4v", "n2"),
        ("a", "4v"), ["c0", "c1"], options={"d0": {"originator": True}}),
    "an originator before who opted out": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v", "n2": "4v"}, pods("c", "c", 1, "4v") + pods("c", "d", 1, "4v", "n2"),
        ("a", "4v"), ["d0"],
        options={"c0": {"allow_preempt_self": False}, "d0": {"originator": True}}),
    "who opted out goes where nobody else helps": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v"}, pods("c", "c", 2, "2v"), ("a", "4v"), ["c0", "c1"],
        options={"c1": {"allow_preempt_self": False}}),
    "who opted out stays where others do": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v"}, pods("c", "c", 2, "2v"), ("a", "2v"), ["c0"],
        options={"c1": {"allow_preempt_self": False}}),
    "who needs its node stays": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v"}, pods("c", "c", 2, "2v"), ("a", "4v"), [],
        options={"c1": {"constraints": Constraints(required_node="n1")}}),
    "an ask that may not preempt": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v"}, pods("c", "c", 2, "2v"), ("a", "2v"), [],
        options={"ask": {"allow_preempt_other": False}}),
    "a lower ask takes nobody": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "4v"}, pods("c", "c", 2, "2v"), ("a", "2v"), [],
        options={"ask": {"priority": -1}}),
    "of one node the free room counts": Case(
        [leaf("a", "vcore: 4m"), leaf("c")],
        {"n1": "5v", "n2": "5v"}, pods("c", "c", 2, "2v") + pods("c", "d", 4, "1v", "n2"),
        ("a", "3v"), ["c1"]),
    "a queue's room and a node's room from one victim": Case(
        [leaf("p", most="vcore: 6m", below=[OWED, leaf("b")]), leaf("c")],
        {"n1": "4v", "n2": "4v"},
        pods("p.b", "b", 2, "2v") + pods("p.b", "d", 1, "2v", "n2") + pods("c", "e", 1, "2v", "n2"),
        ("p.a", "2v"), ["d0"]),
    "room of a queue where a node has it": Case(
        [leaf("p", most="vcore: 4m", below=[OWED, leaf("b")]), leaf("c")],
        {"n1": "4v", "n2": "4v"}, pods("p.b", "b", 2, "2v"), ("p.a", "2v"), ["b1"]),
    "a required node takes of its own leaf and of equals": Case(
        [leaf("a"), leaf("c")],
        {"n1": "4v", "n2": "4v"}, pods("a", "c", 2, "2v"), ("a", "2v"), ["c1"], wait=0,
        options={"ask": {"constraints": Constraints(required_node="n1")}}),
    "of three types one is short": Case([leaf("a", "vcore: 4m, memory: 9"), leaf("c")], {"n1": "4v 20m 2g"}, ["c/c0/4v 1m/n1", "c/c1/1m/n1"], ("a", "2v 3m 1g"), ["c0"]),
    "two types are short: one victim for each": Case([leaf("a", "vcore: 4m, memory: 9"), leaf("c")], {"n1": "4v 8m"}, ["c/c0/4v/n1", "c/c1/4m/n1", "c/c2/4m/n1"], ("a", "2v 3m"), ["c0", "c2"]),
    "one victim with both goes rather than two": Case([leaf("a", "vcore: 4m, memory: 9"), leaf("c")], {"n1": "6v 8m"}, ["c/c3/3v 4m/n1", "c/c0/3v/n1", "c/c1/4m/n1"], ("a", "2v 3m"), ["c3"]),
    "the max of a queue further up": Case([leaf("o", most="vcore: 6m", below=[leaf("p", below=[OWED]), leaf("b")]), leaf("c")], {"n1": "20v"}, pods("o.b", "b",6, "1v")+pods("c", "c",4, "1v"), ("o.p.a", "2v"), ["b4", "b5"]),
    "two maxima on the path: one victim gives to both": Case([leaf("o", most="vcore: 6m", below=[leaf("p", most="vcore: 3m", below=[leaf("a", "vcore: 2m"), leaf("d")]), leaf("b")])], {"n1": "20v"}, pods("o.p.d", "d",3, "1v")+pods("o.b", "b",3, "1v"), ("o.p.a", "2v"), ["d1", "d2"]),
    "an ask that no node could hold": Case([OWED, leaf("c")], {"n1": "2v"}, pods("c", "c",2, "1v"), ("a", "3v"), []),
    "a delay of its own": Case([leaf("a", "vcore: 4m", preemption_delay="5s"), leaf("c")], {"n1": "2v"}, pods("c", "c",2, "1v"), ("a", "1v"), ["c1"], wait=5),
    "an equal priority may go": Case([OWED, leaf("c")], {"n1": "2v"}, pods("c", "c",2, "1v"), ("a", "1v"), ["c1"], options={"c1": {"priority":5}, "ask": {"priority":5}}),
    "the newest goes, not the lowest priority": Case([OWED, leaf("c")], {"n1": "2v"}, pods("c", "c",2, "1v"), ("a", "1v"), ["c1"], options={"c0": {"priority":-5}, "c1": {"priority":0}}),
    "a fence around victims keeps nobody": Case([OWED, leaf("q", below=[leaf("c")], preemption_policy="fence")], {"n1": "2v"}, pods("q.c", "c",2, "1v"), ("a", "1v"), ["c1"]),
    "a fence around the own leaf leaves nobody": Case([leaf("a", "vcore: 4m", preemption_policy="fence"), leaf("c")], {"n1": "2v"}, pods("c", "c",2, "1v"), ("a", "1v"), []),
    "who gives nobody may take": Case([leaf("a", "vcore: 4m", preemption_policy="disabled"), leaf("c")], {"n1": "2v"}, pods("c", "c",2, "1v"), ("a", "1v"), ["c1"]),
    "a guarantee of nothing is none": Case([leaf("a", "vcore: 0, memory: 4"), leaf("c")], {"n1": "2v 4m"}, pods("c", "c",2, "1v 2m"), ("a", "1v 1m"), [], says=GUARANTEES),
    "a guarantee of another type is none": Case([leaf("a", "memory: 4"), leaf("c")], {"n1": "2v 4m"}, pods("c", "c",2, "1v"), ("a", "1v"), [], says=GUARANTEES),
}  # fmt: skip


@each_row("name", CASES)
def test_who_goes(name):
    case = CASES[name]
    gone, said = victims_of(case)
    assert gone == case.victims
    if case.says:
        assert case.says in said
