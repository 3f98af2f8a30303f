"""Pieces of the model by themselves: what a queue has room for, whose turn it is to preempt."""

from services.core.scheduler.model.preemptors import CHECK_AGAIN_NS, Preemptors
from services.core.scheduler.model.shapes import Ask, Shape
from shared.messages.constraints import Constraints
from shared.messages.interface import AllocationAsk
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
    turns.follow(now_ns, rooms_lost=0)
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
        turns.follow(now_ns, rooms_lost=0)
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
    turns.follow(50, rooms_lost=0)
    assert turns.take(50, most=1) == []
    turns.follow(50, rooms_lost=1)
    assert turns.take(50, most=1) == [one]
