"""Applications that evict each other by turns are noticed, held, and told of."""

from services.core.scheduler.model.evictions import HOLD_NS, MAX_PAIRS, WINDOW_NS, EvictionWatch
from tests.unit.core.test_preemption import Cluster, guaranteed


def test_a_cycle_holds_the_pair_for_a_while():
    watch = EvictionWatch()
    assert not watch.evicted("a", "b", 0)
    assert watch.may_evict("b", "a", 1)
    assert watch.evicted("b", "a", 10)
    assert watch.cycles == 1
    assert not watch.may_evict("a", "b", 11)
    assert not watch.may_evict("b", "a", 11)
    assert watch.may_evict("a", "c", 11)
    assert watch.may_evict("a", "b", 10 + HOLD_NS)


def test_what_was_long_ago_is_no_cycle():
    watch = EvictionWatch()
    watch.evicted("a", "b", 0)
    assert not watch.evicted("b", "a", WINDOW_NS + 1)


def test_the_memory_has_a_limit():
    watch = EvictionWatch()
    for at in range(MAX_PAIRS + 10):
        watch.evicted(f"a{at}", "b", 0)
    assert not watch.evicted("b", "a0", 1)  # forgotten
    assert watch.evicted("b", f"a{MAX_PAIRS}", 1)


def test_a_held_pair_takes_nothing_from_each_other():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    core.partition.evictions.evicted("leaf2", "leaf1", core.now_ns)
    core.partition.evictions.evicted("leaf1", "leaf2", core.now_ns)
    assert core.look() == []
    core.now_ns += HOLD_NS
    assert core.look() == ["v2"]


def test_a_closed_cycle_is_an_event_of_both():
    core = Cluster("{name: leaf1}", guaranteed("leaf2", 5), nodes={"n1": 10})
    core.run("leaf1", "v1", 5)
    core.run("leaf1", "v2", 5)
    core.run("leaf2", "wants", 5)
    core.partition.evictions.evicted("leaf2", "leaf1", core.now_ns)
    before = len(core.answers)
    assert core.look() == ["v2"]
    events = [
        event
        for item in core.answers[before:]
        for event in getattr(item.message, "events", ())
        if "evicted each other in turn" in event.message
    ]
    assert [event.object_id for event in events] == ["leaf1", "leaf2"]
    told = [p for a in core.answers[before:] for p in getattr(a.message, "partitions", ())]
    assert told[-1].eviction_cycles == 1
