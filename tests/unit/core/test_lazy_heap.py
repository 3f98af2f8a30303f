"""A heap whose entries lapse, and what an order by run time costs."""

from random import Random

import pytest

from services.core.scheduler.model import rows
from services.core.scheduler.model.lazy_heap import SMALL_HEAP, LazyHeap
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
)
from shared.model.names import RUN_SECONDS
from shared.model.units import seconds
from tests.builders import Core, config_of
from tests.unit.core.test_head_gang import SHORTEST


@pytest.mark.parametrize("seed", range(3))
def test_the_first_is_the_least_that_has_not_lapsed_and_the_others_take_no_room(seed):
    random = Random(seed)
    stamps, keys = dict.fromkeys(range(20), 0), {}
    heap: LazyHeap[int] = LazyHeap(stamps.__getitem__)
    for _ in range(3_000):
        item = random.randrange(20)
        stamps[item] += 1
        keys.pop(item, None)
        if random.random() < 0.7:
            keys[item] = (random.randrange(8), random.randrange(8))
            heap.push(keys[item], stamps[item], item)
        first = heap.first()
        if first is None:
            assert not keys
        else:
            assert first[0] == keys[first[1]] == min(keys.values())
        assert len(heap) <= SMALL_HEAP + 1


def looks(monkeypatch, waiting: int, *, as_gangs: bool) -> int:
    """Return how many run times are looked at for one pod that ends, with so many waiting."""
    core = Core(config_of("{name: a}", "{name: b}"), settings=SHORTEST)
    for at in range(4):
        core.node(f"n{at}", gpu=8)
    core.application("full", "root.a")
    state = {RUN_SECONDS: "99999"}
    keys = [f"full-{at}" for at in range(4)]
    core.asks("full", keys, {"gpu": 8}, allocation_tags=state)
    core.gang("wide", 4, {"gpu": 8}, queue="root.a")
    more = {"placeholder": True, "task_group_name": "tg"} if as_gangs else {}
    whole = {"placeholder_ask": {"gpu": 8}} if as_gangs else {}
    names = [f"job-{at}" for at in range(waiting)]
    core.update(new_applications=[AddApplicationRequest(n, "root.b", **whole) for n in names])
    core.update(
        asks=[
            AllocationAsk(
                name, name, {"gpu": 8}, allocation_tags={RUN_SECONDS: str(10 + at % 8)}, **more
            )
            for at, name in enumerate(names)
        ]
    )
    made = []
    real = rows.run_time_key
    for key in keys[:2]:  # the first builds the index
        made.clear()
        monkeypatch.setattr(rows, "run_time_key", lambda *of: made.append(of) or real(*of))
        core.now_ns += seconds(1)
        core.update(releases=(AllocationRelease("full", key, TerminationType.STOPPED_BY_RM),))
        monkeypatch.setattr(rows, "run_time_key", real)
    assert sum(core.partition.applications[name].allocations != {} for name in names) == 2
    return len(made)


@pytest.mark.parametrize("as_gangs", [False, True])
def test_a_decision_looks_at_as_many_run_times_whatever_the_number_of_those_that_wait(
    as_gangs, monkeypatch
):
    few, many = (looks(monkeypatch, waiting, as_gangs=as_gangs) for waiting in (40, 1_000))
    assert 0 < many <= few
