"""Pieces of the model by themselves: what a queue has room for, whose turn it is to preempt."""

import numpy as np
import pytest

from services.core.scheduler.model.preemptors import CHECK_AGAIN_NS, Preemptors
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.model.shapes import Ask, Shape
from shared.messages.constraints import Constraints
from shared.messages.interface import AllocationAsk, NodeAction, NodeInfo
from tests.builders import Core, config_of


def test_a_type_that_a_queue_does_not_limit_or_nobody_asks_for_leaves_the_others_to_decide():
    core = Core(config_of("{name: a, resources: {max: {memory: 4}}}"))
    core.node("n", vcore=100, memory=100, gpu=1)
    leaf = core.partition.queues["root.a"]
    assert leaf.room_for({"vcore": 3, "memory": 1}) == 4
    assert leaf.room_for({"gpu": 0, "vcore": 30}) == 3  # of the root
    core.application("a", "root.a")
    core.asks("a", ["k"], {"vcore": 1, "memory": 3})
    assert leaf.room_for({"vcore": 3, "memory": 1}) == 1
    assert leaf.room_for({"vcore": 3, "memory": 2}) == 0
    assert leaf.room_for({"elsewhere": 1}) == 0  # no node has it


@pytest.mark.parametrize(
    ("among", "short_of", "name", "lacks"),
    [
        ("abc", ("vcore",), "b", {"vcore": 2, "memory": 6}),
        ("ac", ("vcore",), "c", {"vcore": 3, "memory": 2}),
        ("abc", ("vcore", "memory"), "c", {"vcore": 3, "memory": 2}),  # by the sum of shares
        ("ab", ("vcore", "memory"), "a", {"vcore": 4, "memory": 2}),
        ("abc", ("memory",), "a", {"vcore": 4, "memory": 2}),  # of equal ones the first in order
    ],
)
def test_the_nearest_node_lacks_the_least_of_what_all_are_short_of(among, short_of, name, lacks):
    core = Core()
    for node, vcore, memory in (("a", 4, 8), ("b", 6, 4), ("c", 5, 8)):
        core.node(node, vcore=vcore, memory=memory)
    shape = Shape("s", {"vcore": 8, "memory": 10, "pods": 0}, Constraints(), ())
    mask = np.array([node in among for node in "abc"])
    node, missing = core.partition.nodes.room.nearest(shape, mask, short_of)
    assert node.node_id == name
    assert missing == lacks


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_when_a_node_goes_the_others_take_what_they_took_before(gone):
    core = Core()
    core.application("a")
    for name in "abc":
        only = NodeInfo(name, NodeAction.CREATE, {"vcore": 9}, labels={"zone": name})
        core.update(nodes=(only,))

    def places(prefix):
        for name in "abc":
            wish = Constraints(node_selector=(("zone", name),))
            core.asks("a", [f"{prefix}{name}"], {"vcore": 1}, constraints=wish)
        held = core.partition.applications["a"].allocations
        return [held[key].node_id for name in "abc" if (key := f"{prefix}{name}") in held]

    assert places("before-") == ["a", "b", "c"]
    core.update(nodes=(NodeInfo(gone, NodeAction.DECOMISSION),))
    assert places("after-") == [name for name in "abc" if name != gone]
    core.check()


@pytest.mark.parametrize(("text", "filters"), [("", False), ("fifo", False), ("filtered", True)])
def test_a_leaf_is_state_aware_only_where_that_is_asked_for(text, filters):
    assert settings_from([("stateAware", text)]).filters_state_aware is filters


def test_a_queue_without_a_max_has_the_room_that_those_above_it_leave():
    core = Core(config_of("{name: p, resources: {max: {memory: 4}}, queues: [{name: a}]}"))
    core.node("n", vcore=100, memory=100)
    assert core.partition.queues["root.p.a"].room_for({"vcore": 1, "memory": 2}) == 2


DELAY_NS = 10
SHAPE = Shape("s", {"vcore": 1}, Constraints(), ())


def ask(key, at, created_ns, priority=0):
    request = AllocationAsk(
        key, "a", {"vcore": 1}, priority=priority, allow_preempt_other=True, create_time_ns=1
    )
    return Ask(request, SHAPE, at, created_ns)


def turns_of(*asks, now_ns=0):
    waiting = {one.key: one for one in asks}
    turns = Preemptors(waiting, DELAY_NS)
    turns.follow(now_ns)
    return waiting, turns


def test_the_next_moment_is_of_an_ask_that_waits_and_has_not_preempted():
    first, second, third = (ask(key, at, 100 * at) for at, key in enumerate("abc", start=1))
    waiting, turns = turns_of(first, second, third)
    assert turns.next_ns == 110
    del waiting["a"]
    assert turns.next_ns == 210
    second.has_preempted = True
    assert turns.next_ns == 310
    del waiting["c"]
    assert turns.next_ns is None


def test_an_ask_has_its_turn_when_it_is_old_enough_and_again_some_time_after_it_tried():
    one = ask("a", 1, 100)
    _, turns = turns_of(one)
    for now_ns, taken in ((109, []), (110, [one])):
        turns.follow(now_ns)
        assert turns.take(now_ns, most=9) == taken
    one.preemption_checked_ns = 110
    turns.put_back([one], 110)
    assert turns.take(110, most=9) == []
    assert turns.next_ns == 110 + CHECK_AGAIN_NS


def test_as_many_as_may_have_their_turn_in_the_order_of_the_application():
    low, high, late = ask("a", 1, 1), ask("b", 2, 1, priority=5), ask("c", 3, 1)
    _, turns = turns_of(low, high, late, now_ns=50)
    assert turns.take(50, most=2) == [high, low]
    assert turns.take(50, most=2) == [late]
    assert turns.take(50, most=2) == []


def test_one_that_has_preempted_has_a_turn_again_when_its_room_was_lost():
    one = ask("a", 1, 1)
    _, turns = turns_of(one, now_ns=50)
    one.has_preempted = True
    assert turns.take(50, most=1) == []
    one.has_preempted = False
    turns.follow(50)
    assert turns.take(50, most=1) == []
    turns.has_lost_room(one.key)
    turns.follow(50)
    assert turns.take(50, most=1) == [one]


def test_an_ask_is_as_old_as_it_says_else_it_is_new():
    core = Core()
    core.application("a")
    core.asks("a", ["old"], {"vcore": 1}, create_time_ns=7)
    core.asks("a", ["new"], {"vcore": 1})
    groups = core.partition.applications["a"].group_of
    created = {key: groups[key].asks[key].created_ns for key in ("old", "new")}
    assert created == {"old": 7, "new": core.now_ns}
