"""Freed nodes: what no node took is tried when its turn comes, if there still is room for it."""

from shared.messages.interface import AllocationAsk, AllocationRelease, TerminationType
from tests.builders import Core, section

SIZES = (6, 7, 8, 9)  # of what waits, each a shape of its own; 10 is a whole node


def crowded(nodes: int = 1) -> Core:
    """Return a core where asks of four shapes wait: nodes are full, and others too small."""
    core = Core()
    for at in range(nodes):
        core.node(f"n{at}", vcore=10)
    core.application("runs")
    core.application("waits")
    core.asks("runs", [f"r{at}" for at in range(nodes)], {"vcore": 10})
    for at in range(3):
        core.node(f"small{at}", vcore=5)
    for size in SIZES:
        core.asks("waits", [f"w{size}"], {"vcore": size})
    return core


def end(core: Core, key: str, *new: AllocationAsk) -> list[str]:
    """End a pod, have others come in the same message; return what was placed."""
    gone = AllocationRelease("runs", key, TerminationType.STOPPED_BY_RM)
    out = core.update(releases=(gone,), asks=new)
    core.check()
    return [item.allocation_key for item in section(out, "new_allocations")]


def refused_since(core: Core) -> dict[str, int]:
    buckets = [b for queue in core.partition.queues.values() for b in queue.buckets.values()]
    return {str(dict(b.shape.resource)): b.refused_since_ns for b in buckets if b.refusal}


def test_what_would_fit_keeps_its_refusal_where_others_take_the_room_first():
    core = crowded()
    before = refused_since(core)
    assert len(before) == len(SIZES)
    core.now_ns += 10**9
    first = AllocationAsk("first", "runs", {"vcore": 10}, priority=1)
    assert end(core, "r0", first) == ["first"]
    assert refused_since(core) == before


def test_it_is_placed_in_its_turn_where_the_room_is_left():
    core = crowded()
    assert end(core, "r0") == ["w6"]  # which came first; nothing else fits beside it
    gone = AllocationRelease("waits", "w6", TerminationType.STOPPED_BY_RM)
    out = core.update(releases=(gone,))
    assert [item.allocation_key for item in section(out, "new_allocations")] == ["w7"]
    core.check()


def test_what_comes_beside_it_goes_by_the_order_of_both():
    core = crowded(nodes=2)
    later = AllocationAsk("later", "runs", {"vcore": 10}, priority=-1)
    assert end(core, "r0", later) == ["w6"]
    assert end(core, "r1") == ["w7"]


def test_on_many_freed_nodes_each_that_fits_is_placed():
    core = crowded(nodes=12)
    gone = tuple(
        AllocationRelease("runs", f"r{at}", TerminationType.STOPPED_BY_RM) for at in range(12)
    )
    out = core.update(releases=gone)
    core.check()
    placed = {item.allocation_key for item in section(out, "new_allocations")}
    assert placed == {f"w{size}" for size in SIZES}
