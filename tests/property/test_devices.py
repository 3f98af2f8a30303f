"""GPU devices: whatever comes and goes, none is over or below, and what fits is what a set holds."""

from itertools import combinations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.node_table import NodeTable
from shared.messages.constraints import NO_CONSTRAINTS, Constraints
from shared.messages.interface import Allocation, AllocationAsk, AllocationRelease, TerminationType
from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.resources import multiply
from tests.builders import Core, section
from tools.invariants import over_capacity

SIZES = st.sampled_from([1, 100, 250, 333, 400, 500, 600, 999])
NEEDS = st.one_of(st.tuples(st.just(WHOLE), st.integers(1, 4)), st.tuples(SIZES, st.integers(1, 3)))
FREE = st.lists(st.sampled_from([-200, 0, 100, 333, 400, 500, 700, 800, 1000]), max_size=5)


def resource_of(need):
    size, count = need
    return {GPU: count} if size == WHOLE else {GPU_SHARE: size * count}


def constraints_of(need):
    return Constraints(gpu_devices=need[1]) if need[0] < WHOLE else NO_CONSTRAINTS


def sets(free, need):
    """Return every set of devices that holds a pod."""
    size, count = need
    return [
        chosen
        for chosen in combinations(range(len(free)), count)
        if all(free[at] >= size for at in chosen)
    ]


def most(free, need, limit=6):
    """Return how many like pods find a place, ``limit`` at most: every way is tried."""
    ways = {tuple(free)}
    for number in range(limit):
        ways = {
            tuple(left - need[0] * (at in chosen) for at, left in enumerate(way))
            for way in ways
            for chosen in sets(way, need)
        }
        ways = {tuple(sorted(way)) for way in ways}  # devices are alike
        if not ways:
            return number
    return limit


@given(FREE, NEEDS)
def test_a_pod_fits_where_a_set_of_devices_holds_it_and_is_given_one(free, need):
    chosen = devices.choose(free, need)
    assert devices.holds(free, need) is bool(sets(free, need)) is bool(chosen)
    if chosen:
        assert tuple(at for at, _ in chosen) in sets(free, need)
        assert {amount for _, amount in chosen} == {need[0]}
        assert devices.lacking(free, need) == 0
    else:
        assert devices.lacking(free, need) > 0


@given(FREE, NEEDS)
def test_as_many_like_pods_are_counted_as_there_are_places_for(free, need):
    counted = devices.places(free, need)
    assert min(counted, 6) == most(free, need)


@given(FREE, NEEDS)
def test_no_more_than_one_place_of_pods_like_it_goes_with_a_pod(free, need):
    chosen = devices.choose(free, need)
    if chosen:
        left = list(free)
        devices.change(left, chosen, -1)
        assert devices.places(left, need) == devices.places(free, need) - 1


@given(FREE, NEEDS)
def test_the_fullest_device_is_taken(free, need):
    size, count = need
    chosen = [at for at, _ in devices.choose(free, need)]
    if chosen and size < WHOLE and count == 1:
        left = [free[at] for at in range(len(free)) if at not in chosen and free[at] >= size]
        assert max(free[at] for at in chosen) <= min(left, default=WHOLE)


def node_of(name, number):
    capacity = {"vcore": 1000, **({GPU: number} if number else {})}
    return Node(name, 0, capacity, {}, {}, (), schedulable=True)


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2), NEEDS, st.booleans()), max_size=40
)


@given(st.lists(st.integers(0, 4), min_size=3, max_size=3), OPERATIONS, NEEDS)
@settings(max_examples=150)
def test_every_row_says_what_the_devices_of_its_node_say(numbers, operations, asked):
    """Pods come and go, in any order; at the end all go, and all is as it was."""
    table = NodeTable()
    for at, number in enumerate(numbers):
        table.add(node_of(f"n{at}", number))
    table.share_devices()
    shape = Shape("s", resource_of(asked), constraints_of(asked))
    on = {}
    for key, at, need, is_in in operations:
        name, node = f"p{key}", table.nodes[f"n{at}"]
        if name in on:
            table.free(on.pop(name), name)
        elif is_in and table.filters.fits.holds(
            node, Shape("x", resource_of(need), constraints_of(need))
        ):
            assert sets(node.devices, need)
            allocation = Allocation(
                name, "a", node.node_id, resource_of(need), constraints=constraints_of(need)
            )
            table.place(node, allocation)
            on[name] = node
        agree(table, shape, asked, on)
    for name, node in on.items():
        table.free(node, name)
    assert [node.devices for node in table.rows] == [[WHOLE] * number for number in numbers]
    assert not any(node.held_devices for node in table.rows)


def agree(table, shape, need, on):
    best = table.order.best(shape)
    fitting = [node for node in table.rows if sets(node.devices, need)]
    assert (best in fitting) if fitting else best is None
    rows = np.zeros(len(table.rows), dtype=bool)
    rows[table.order.free_rows(shape)] = True
    will = table.filters.takes.mask(shape, When.EXPECTED)
    now = table.filters.has_room.mask(shape) & will
    for node in table.rows:
        row = node.row
        assert (
            rows[row]
            == table.filters.fits.holds(node, shape)
            == will[row]
            == now[row]
            == (node in fitting)
        )
        number = table.room.places(shape)[row]
        assert min(number, 6) == most(node.devices, need)
        empty = table.room.places(shape, when=When.EMPTY)[row]
        assert min(empty, 6) == most([WHOLE] * len(node.devices), need)
        assert table.filters.could_hold.mask(shape)[row] == bool(
            sets([WHOLE] * len(node.devices), need)
        )
        assert all(0 <= left <= WHOLE for left in node.devices)
        own = [name for name, where in on.items() if where is node]
        used = sum(amount for name in own for _, amount in table.devices.of(node, name))
        assert used == WHOLE * len(node.devices) - sum(node.devices)
        assert used == WHOLE * node.allocated.get(GPU, 0) + node.allocated.get(GPU_SHARE, 0)
    if not fitting:
        table.room.refusal(shape)


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "many", "end", "gang"]), NEEDS, st.integers(0, 30)),
    max_size=25,
)
WAYS = [dict(pair) for pair in product(
    [("gangAdmission", "cluster"), ("gangAdmission", "queue")],
    [("policy", "yunikorn"), ("policy", "kai")],
)]  # fmt: skip


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sampled_from(WAYS), STEPS)
@settings(max_examples=60, deadline=None)
def test_no_device_is_over_whatever_is_asked_for_and_ends(gpus, way, steps):
    core = Core(settings=tuple(way.items()))
    for at, number in enumerate(gpus):
        core.node(f"n{at}", vcore=1000, **{GPU: number})
    core.application("app")
    running = {}
    for at, (what, need, number) in enumerate(steps):
        resource, constraints = {"vcore": 1, **resource_of(need)}, constraints_of(need)
        if what in ("ask", "many"):
            keys = [f"{at}-{each}" for each in range(1 if what == "ask" else 6)]
            told = core.asks("app", keys, resource, constraints=constraints)
        elif what == "gang":
            core.application(f"g{at}", placeholder_ask=multiply(resource, 3))
            told = core.asks(
                f"g{at}", [f"{at}-{each}" for each in range(3)], resource,
                constraints=constraints, placeholder=True, task_group_name="tg",
            )  # fmt: skip
        elif running:
            key = sorted(running)[number % len(running)]
            release = AllocationRelease(running.pop(key), key, TerminationType.STOPPED_BY_RM)
            told = core.update(releases=(release,))
        else:
            continue
        for item in section(told, "new_allocations"):
            running[item.allocation_key] = item.application_id
            held = dict(item.devices)
            assert sum(held.values()) == (
                item.resource_per_alloc.get(GPU, 0) * WHOLE
                + item.resource_per_alloc.get(GPU_SHARE, 0)
            )
        assert over_capacity(core.partition) == []
        core.check()


def test_an_ask_that_was_asked_again_with_another_share_is_another():
    core = Core()
    core.node("n0", vcore=10, **{GPU: 1})
    core.application("app")
    core.update(asks=(AllocationAsk("a", "app", {GPU_SHARE: 600}),))
    core.update(asks=(AllocationAsk("b", "app", {GPU_SHARE: 600}),))
    told = core.update(asks=(AllocationAsk("b", "app", {GPU_SHARE: 400}),))
    assert [item.devices for item in section(told, "new_allocations")] == [((0, 400),)]
    core.check()
