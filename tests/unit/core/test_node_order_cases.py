"""Which node an ask goes to: policies, weights, what is used, reserved, closed or taken by others."""

from shared.messages.interface import Allocation, NodeAction, NodeInfo
from tests.builders import Core, config_of, section
from tests.table import each_row
from tests.unit.core.test_reservations import grow_old


def chosen(sort, nodes, ask, count=1):
    """Return the nodes that like asks go to, one after the other; ``nodes``: total, used, foreign."""
    core = Core(
        f"partitions: [{{name: default, nodesortpolicy: {sort}, queues: "
        "[{name: root, submitacl: '*', queues: [{name: a}, {name: u}]}]}]"
    )
    core.application("used", "root.u")
    core.application("app", "root.a")
    for name, (total, used, foreign) in nodes.items():
        core.update(nodes=(NodeInfo(name, NodeAction.CREATE, total),))
        if used:
            core.update(allocations=(Allocation(f"u-{name}", "used", name, used),))
        if foreign:
            tags = {"foreign": "default"}
            core.update(
                allocations=(Allocation(f"f-{name}", "", name, foreign, allocation_tags=tags),)
            )
    found = []
    for at in range(count):
        said = core.asks("app", [f"k{at}"], ask)
        found += [new.node_id for new in section(said, "new_allocations")]
    core.check()
    return found


def v(vcore=0, memory=0, **more):
    return {name: n for name, n in {"vcore": vcore, "memory": memory, **more}.items() if n}


TEN = v(10, 10)
ASK = v(1, 1)
CASES = {
    "fair: the emptiest": ("{type: fair}", {"a": (TEN, v(4, 4), None), "b": (TEN, v(2, 2), None)}, ASK, ["b"]),
    "binpacking: the fullest that fits": ("{type: binpacking}", {"a": (TEN, v(4, 4), None), "b": (TEN, v(2, 2), None), "c": (TEN, v(10, 9), None)}, ASK, ["a"]),
    "no type is fair": ("{}", {"a": (TEN, v(4, 4), None), "b": (TEN, v(2, 2), None)}, ASK, ["b"]),
    "equal ones by their id": ("{type: fair}", {"n2": (TEN, None, None), "n10": (TEN, None, None), "n1": (TEN, None, None)}, ASK, ["n1", "n10", "n2", "n1"]),
    "equal ones by their id, packed": ("{type: binpacking}", {"n2": (TEN, None, None), "n10": (TEN, None, None)}, ASK, ["n10", "n10"]),
    "both types count as much": ("{type: fair}", {"a": (TEN, v(6, 1), None), "b": (TEN, v(3, 3), None)}, ASK, ["b"]),
    "a weight of three for vcore": ("{type: fair, resourceweights: {vcore: 3, memory: 1}}", {"a": (TEN, v(2, 8), None), "b": (TEN, v(4, 1), None)}, ASK, ["b"]),
    "and of thirty": ("{type: fair, resourceweights: {vcore: 30, memory: 1}}", {"a": (TEN, v(2, 8), None), "b": (TEN, v(4, 1), None)}, ASK, ["a"]),
    "a type without a weight is not respected": ("{type: fair, resourceweights: {vcore: 1}}", {"a": (TEN, v(2, 9), None), "b": (TEN, v(3, 0), None)}, ASK, ["a"]),
    "nor one with a weight of nothing": ("{type: fair, resourceweights: {vcore: 1, memory: 0}}", {"a": (TEN, v(2, 9), None), "b": (TEN, v(3, 0), None)}, ASK, ["a"]),
    "a type that a node lacks does not count there": ("{type: fair, resourceweights: {vcore: 1, gpu: 9}}", {"a": (v(10, 10, gpu=4), v(1, gpu=2), None), "b": (TEN, v(4), None)}, ASK, ["b"]),
    "no weight at all on a node is nothing used": ("{type: fair, resourceweights: {gpu: 1}}", {"a": (v(10, 10, gpu=4), v(gpu=1), None), "b": (TEN, v(9, 9), None)}, ASK, ["b"]),
    "and packed it is the emptiest": ("{type: binpacking, resourceweights: {gpu: 1}}", {"a": (v(10, 10, gpu=4), v(gpu=1), None), "b": (TEN, v(9, 9), None)}, ASK, ["a"]),
    "an empty map is the default": ("{type: fair, resourceweights: {}}", {"a": (TEN, v(2, 9), None), "b": (TEN, v(3, 0), None)}, ASK, ["b"]),
    "shares of unlike nodes": ("{type: fair}", {"a": (v(100, 100), v(40, 40), None), "b": (v(4, 4), v(1, 1), None)}, ASK, ["b"]),
    "others' pods take room": ("{type: fair}", {"a": (TEN, None, v(5, 5)), "b": (TEN, v(2, 2), None)}, ASK, ["b"]),
    "packed, others' pods count as used": ("{type: binpacking}", {"a": (TEN, None, v(5, 5)), "b": (TEN, v(2, 2), None)}, ASK, ["a"]),
    "a fractional weight": ("{type: fair, resourceweights: {vcore: 0.5, memory: 2.5}}", {"a": (TEN, v(8, 2), None), "b": (TEN, v(1, 4), None)}, ASK, ["a"]),
    "a node without the type takes nobody who asks for it": ("{type: fair}", {"a": (TEN, None, None), "b": (v(10, 10, gpu=1), v(9, 9), None)}, v(1, 1, gpu=1), ["b"]),
    "who asks for nothing of it may go there": ("{type: fair}", {"a": (v(10), None, None)}, v(1), ["a"]),
    "a zero of a type is none": ("{type: fair}", {"a": (v(10), None, None)}, {"vcore": 1, "gpu": 0}, ["a"]),
    "spread one by one": ("{type: fair}", {"a": (TEN, v(2, 2), None), "b": (TEN, None, None)}, ASK, ["b", "b", "a", "b"]),
    "packed until it is full": ("{type: binpacking}", {"a": (TEN, v(8, 8), None), "b": (TEN, v(1, 1), None)}, ASK, ["a", "a", "b"]),
}  # fmt: skip


@each_row("name", CASES)
def test_which_node_is_chosen(name):
    sort, nodes, ask, wanted = CASES[name]
    assert chosen(sort, nodes, ask, len(wanted)) == wanted


RESERVED = {
    "the tightest": ({"a": (TEN, v(6)), "b": (TEN, v(6, 5))}, v(5, 5), ["b"]),
    "types that are not asked for are room": ({"a": (v(10, 10, gpu=1), v(6, 5)), "b": (TEN, v(6, 4))}, v(5, 5), ["b"]),
    "equal ones by their id": ({"b": (TEN, v(6, 6)), "a": (TEN, v(7, 7))}, v(5, 5), ["a"]),
    "none that could never hold it": ({"a": (v(4, 4), v(1, 1)), "b": (v(4, 4), v(1, 1))}, v(5, 5), []),
    "none where the root has no room": ({"a": (TEN, TEN), "b": (TEN, v(6, 2))}, v(5, 5), []),
}  # fmt: skip


@each_row("name", RESERVED)
def test_which_node_is_reserved(name):
    nodes, ask, wanted = RESERVED[name]
    core = Core(config_of("{name: a}", "{name: u}"), settings=(("preset", "yunikorn"),))
    core.application("used", "root.u")
    core.application("app", "root.a")
    for node, (total, used) in nodes.items():
        core.update(nodes=(NodeInfo(node, NodeAction.CREATE, total),))
        core.update(allocations=(Allocation(f"u-{node}", "used", node, used),))
    core.asks("app", ["k"], ask, create_time_ns=core.now_ns)
    grow_old(core)
    found = [node.node_id for node in core.partition.nodes.nodes.values() if node.reservations]
    assert found == wanted
