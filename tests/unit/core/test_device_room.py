"""Room on GPU devices that is taken from others, kept for somebody, or supposed: by device."""

import pytest

from services.core.scheduler.model.devices import left_over
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.nodes.filters.room import free_of
from services.core.scheduler.statement.statement import Statement
from shared.messages.constraints import Constraints
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    AllocationRelease,
    Disruption,
    DisruptionState,
    TerminationType,
)
from shared.model.gpus import GPU, GPU_SHARE, WHOLE
from shared.model.sentences import text_of
from tests.builders import Core, config_of, section
from tests.table import each_row
from tools.invariants import over_capacity

KAI = (("policy", "kai"),)
PREEMPTED = TerminationType.PREEMPTED_BY_SCHEDULER
HALVES = config_of(
    f"{{name: one, resources: {{guaranteed: {{{GPU_SHARE}: 1000, {GPU}: 1}}}}}}",
    f"{{name: two, resources: {{guaranteed: {{{GPU_SHARE}: 1000, {GPU}: 1}}}}}}",
)


def share(size, devices=1):
    return {"vcore": 1, GPU_SHARE: size * devices}


def cluster(*gpus, config=HALVES, settings=KAI):
    core = Core(config, settings=settings)
    for at, number in enumerate(gpus):
        core.node(f"n{at}", vcore=100, pods=100, **{GPU: number})
    core.application("one", "root.one")
    core.application("two", "root.two")
    return core


def runs(core, key, resource, devices, application="one", node="n0", **more):
    """Have a pod run on devices already."""
    allocation = Allocation(
        key, application, node, resource, devices=devices,
        constraints=Constraints(gpu_devices=len(devices)) if GPU_SHARE in resource else Constraints(),
        **more,
    )  # fmt: skip
    core.update(allocations=(allocation,))
    core.check()


def look(core):
    """Let the actions look once; return whom they evict."""
    if "preemption" not in core.partition.timers:
        return []
    responses = core.fire_own("preemption")
    core.check()
    return [item.allocation_key for item in section(responses, "released_allocations")]


def go(core, *keys, application="one"):
    gone = tuple(AllocationRelease(application, key, PREEMPTED) for key in keys)
    told = core.update(releases=gone)
    core.check()
    assert over_capacity(core.partition) == []
    return {item.allocation_key: item.devices for item in section(told, "new_allocations")}


# --- the actions ----------------------------------------------------------------------------------


def test_a_share_moves_to_another_device_of_its_node_so_that_a_whole_one_is_free():
    core = cluster(2, settings=(*KAI, ("actions", "consolidation")))
    runs(core, "a", share(400), ((0, 400),))
    runs(core, "b", share(400), ((1, 400),))
    core.application("high", "root.one")
    core.asks("high", ["w"], {"vcore": 1, GPU: 1}, priority=10)
    (moved,) = look(core)
    assert moved in ("a", "b")
    assert look(core) == []
    own = 0 if moved == "a" else 1
    assert go(core, moved) == {"w": ((own, WHOLE),)}
    again = core.asks("one", ["c"], share(400))
    assert [item.devices for item in section(again, "new_allocations")] == [((1 - own, 400),)]
    core.check()


def test_nobody_is_moved_where_no_arrangement_of_the_devices_helps():
    core = cluster(2, settings=(*KAI, ("actions", "consolidation")))
    runs(core, "a", share(600), ((0, 600),))
    runs(core, "b", share(600), ((1, 600),))
    core.asks("two", ["w"], {"vcore": 1, GPU: 1})
    core.asks("two", ["s"], share(700))
    for _ in range(3):
        assert look(core) == []


def test_shares_are_reclaimed_on_one_device_and_not_on_two():
    core = cluster(2)
    for at in range(4):
        runs(core, f"a{at}", share(500), ((at % 2, 500),))
    core.asks("two", ["s"], share(900))
    victims = look(core)
    assert sorted(victims) in (["a0", "a2"], ["a1", "a3"])
    assert look(core) == []
    assert go(core, victims[0]) == {}
    assert list(go(core, victims[1])) == ["s"]


def test_shares_make_way_for_a_whole_one_of_a_higher_priority():
    core = cluster(2)
    for at in range(4):
        runs(core, f"a{at}", share(500), ((at % 2, 500),), priority=0)
    core.application("high", "root.one")
    core.asks("high", ["w"], {"vcore": 1, GPU: 1}, priority=10)
    victims = look(core)
    assert sorted(victims) in (["a0", "a2"], ["a1", "a3"])
    assert go(core, victims[0]) == {}
    assert list(go(core, victims[1])) == ["w"]


def test_a_whole_one_makes_way_for_a_share_of_a_higher_priority():
    core = cluster(2)
    runs(core, "a0", {"vcore": 1, GPU: 1}, ((0, WHOLE),), priority=0)
    runs(core, "a1", {"vcore": 1, GPU: 1}, ((1, WHOLE),), priority=0)
    core.application("high", "root.one")
    core.asks("high", ["s"], share(300), priority=10)
    (victim,) = look(core)
    assert go(core, victim) == {"s": ((int(victim[1]), 300),)}


def test_a_higher_priority_takes_shares_of_its_own_queue():
    core = cluster(1)
    runs(core, "a", share(600), ((0, 600),), priority=0)
    core.application("high", "root.one")
    core.asks("high", ["s"], share(500), priority=10)
    assert look(core) == ["a"]
    assert go(core, "a") == {"s": ((0, 500),)}


def test_by_yunikorns_laws_a_share_takes_the_one_that_is_on_its_device_alone():
    guaranteed = (
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: ["
        "{name: one}, {name: two, properties: {preemption.delay: 1s}, "
        f"resources: {{guaranteed: {{{GPU_SHARE}: 1000}}}}}}]}}]}}]"
    )
    core = cluster(2, config=guaranteed, settings=())
    runs(core, "a", share(300), ((0, 300),))
    runs(core, "b", share(600), ((0, 600),))
    runs(core, "c", share(500), ((1, 500),))
    core.now_ns += 10**9
    core.asks("two", ["s"], share(600), create_time_ns=core.now_ns - 5 * 10**9)
    assert look(core) in (["b"], ["c"])  # "a" alone would leave 400 of its device
    key = next(iter(core.partition.releasing))
    assert list(go(core, key)) == ["s"]


def test_a_required_node_gives_back_the_devices_that_help():
    core = cluster(2, settings=())
    runs(core, "a", share(300), ((0, 300),))
    runs(core, "b", share(600), ((1, 600),))
    constraints = Constraints(required_node="n0")
    responses = core.asks(
        "two", ["s"], {"vcore": 1, GPU_SHARE: 900}, constraints=constraints, priority=9
    )
    (victim,) = [item.allocation_key for item in section(responses, "released_allocations")]
    core.check()
    assert list(go(core, victim)) == ["s"]


# --- statements -----------------------------------------------------------------------------------


def shape_of(core, key, resource, devices=1, application="two"):
    core.asks(application, [key], resource, constraints=Constraints(gpu_devices=devices))
    group = core.partition.applications[application].group_of[key]
    return group.asks[key]


def test_room_that_comes_on_one_device_is_no_room_on_two():
    core = cluster(2)
    runs(core, "a", share(600), ((0, 600),))
    runs(core, "b", share(600), ((1, 600),))
    runs(core, "c", share(300), ((1, 300),))
    wide = shape_of(core, "w", share(500, 2), 2)
    partition = core.partition
    table, node, app = partition.nodes, partition.nodes.nodes["n0"], partition.applications["one"]
    statement = Statement(partition)
    statement.evict(app, app.allocations["a"], "r")
    statement.evict(app, app.allocations["c"], "r")
    assert free_of(node, [GPU_SHARE]) == [1400]
    assert not table.filters.takes.holds(node, wide.shape, When.EXPECTED)
    assert not table.filters.takes.mask(wide.shape, When.EXPECTED).any()
    checkpoint = statement.checkpoint()
    statement.evict(app, app.allocations["b"], "r")
    assert table.filters.takes.holds(node, wide.shape, When.EXPECTED)
    statement.pipeline(partition.applications["two"], wide, node)
    assert not table.devices.may_stay(node, "b") or not table.devices.may_stay(node, "a")
    statement.rollback(checkpoint)
    assert not table.filters.takes.holds(node, wide.shape, When.EXPECTED)
    statement.discard()
    assert table.expects_nothing()
    core.check()


def test_an_ask_that_a_statement_places_and_ends_again_leaves_no_trace():
    core = cluster(1, 1)
    runs(core, "a", share(600), ((0, 600),))
    runs(core, "b", share(600), ((0, 600),), node="n1")
    ask = shape_of(core, "s", share(700))
    partition = core.partition
    app, node = partition.applications["one"], partition.nodes.nodes["n0"]
    statement = Statement(partition)
    two = partition.applications["two"]
    core.update()
    statement.evict(app, app.allocations["a"], "r")
    statement.pipeline(two, ask, node)
    statement.withdraw(two, ask)
    small = shape_of_small(core, two)
    statement.allocate(two, small, node)
    assert node.devices == [300]
    statement.evict(two, small, "r")
    assert partition.nodes.filters.takes.holds(node, ask.shape, When.EXPECTED)
    statement.discard()
    assert node.devices == [400]
    assert partition.nodes.expects_nothing()


def shape_of_small(core, application):
    """Return an ask for a tenth that nobody has placed: it is supposed."""
    request = AllocationAsk("small", application.id, share(100))
    shape = Shape("small", share(100), request.constraints)
    return Ask(request, shape, 10**9)


# --- what is kept ---------------------------------------------------------------------------------


@each_row(
    ("free", "kept", "left"),
    [
        ([1000, 1000, 400], {GPU: 1}, [1000, 0, 400]),
        ([600, 1000], {GPU: 2}, [600, 0]),
        ([600, 1000], {GPU_SHARE: 400}, [200, 1000]),
        ([600, 500], {GPU_SHARE: 800}, [0, 300]),
        ([-200, 300], {GPU_SHARE: 800}, [-200, 0]),
        ([600, 500], {}, [600, 500]),
        ([1000, 1000], {GPU: 1, GPU_SHARE: 100}, [900, 0]),
    ],
)
def test_what_is_kept_is_taken_where_it_may_come(free, kept, left):
    assert left_over(free, kept) == left


# --- a share waits for its part of a shared device --------------------------------------------------


def waits_for_its_part(settings=KAI, goes=500):
    """A share of 500 is asked for where one of a shared device is being released, beside a free one."""
    core = cluster(2, settings=settings)
    if goes + 500 <= WHOLE:
        runs(core, "stays", share(500), ((0, 500),))
    runs(core, "goes", share(goes), ((0, goes),), released=True)
    return core, core.asks("two", ["asks"], share(500))


def devices_of(responses):
    return {item.allocation_key: item.devices for item in section(responses, "new_allocations")}


@pytest.mark.parametrize("goes", [500, 700])
def test_a_share_waits_for_its_part_of_a_shared_device_and_opens_no_other(goes):
    core, told = waits_for_its_part(goes=goes)
    assert section(told, "new_allocations") == []
    (state,) = section(told, "scheduling_states")[-1:]
    assert (state.allocation_key, state.state, state.node_id) == ("asks", "RESERVED", "n0")
    (bucket,) = core.partition.queues["root.two"].buckets.values()
    assert text_of(bucket.refusal).endswith("its part of a shared GPU of node n0 is being released")
    core.check()
    assert devices_of(core.asks("one", ["whole"], {"vcore": 1, GPU: 1})) == {"whole": ((1, 1000),)}
    core.check()
    assert go(core, "goes") == {"asks": ((0, 500),)}


def test_those_like_it_wait_with_it_and_then_open_the_other_device():
    core, _ = waits_for_its_part()
    assert devices_of(core.asks("two", ["next"], share(500))) == {}
    core.check()
    assert go(core, "goes") == {"asks": ((0, 500),), "next": ((1, 500),)}


def test_under_yunikorn_it_opens_the_other_device():
    _, told = waits_for_its_part(settings=())
    assert devices_of(told) == {"asks": ((1, 500),)}


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        ((("stays", 800), ("goes", 200)), 500),  # the device will not hold it
        ((("other", 500), ("goes", 600)), 500),  # a shared one has the room now
    ],
)
def test_a_share_that_would_wait_in_vain_or_for_nothing_does_not(held, asked):
    core = cluster(3)
    device = 1 if held[0][0] == "other" else 0
    runs(core, held[0][0], share(held[0][1]), ((device, held[0][1]),))
    runs(core, "goes", share(held[1][1]), ((0, held[1][1]),), released=True)
    (devices,) = devices_of(core.asks("two", ["asks"], share(asked))).values()
    assert devices == ((1, asked),)
    core.check()


def test_when_what_was_to_go_stays_the_share_opens_another():
    core, _ = waits_for_its_part()
    stays = Disruption("goes", "one", DisruptionState.BARRED, is_refused=True)
    assert devices_of(core.update(disruptions=(stays,))) == {"asks": ((1, 500),)}
    core.check()


def test_an_ask_that_waits_for_its_part_and_goes_leaves_it_to_others():
    core, _ = waits_for_its_part()
    gone = AllocationAskRelease("two", "asks", TerminationType.STOPPED_BY_RM)
    core.update(ask_releases=(gone,))
    core.check()
    assert core.partition.root.reserved == {}
    assert devices_of(core.asks("two", ["next"], share(500))) == {}
    assert go(core, "goes") == {"next": ((0, 500),)}
