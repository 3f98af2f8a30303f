"""The timer wheel."""

from services.timers.wheel import ASK_AGAIN_NS, TimerWheel
from shared.messages.envelope import TIMERS, Envelope
from shared.messages.protocol import (
    Heartbeat,
    Tick,
    TimerCancel,
    TimerFirings,
    TimerOrders,
    TimerSet,
    TimerSyncRequest,
)


def send(wheel, message, now=0, epoch=1):
    out = wheel.handle(Envelope("m", "k", message, TIMERS, "t", epoch=epoch), now)
    return [item.message for item in out]


def timer(name, due, generation="1"):
    return TimerSet(name, "placeholder", "app", generation, due)


def fired(messages):
    return [f.timer_id for m in messages if isinstance(m, TimerFirings) for f in m.fired]


def test_a_wheel_that_starts_asks_for_every_timer_once():
    wheel = TimerWheel("w")
    assert [type(m) for m in send(wheel, Heartbeat("h"))] == [TimerSyncRequest]
    assert send(wheel, Heartbeat("h")) == []


def test_a_wheel_asks_again_until_it_was_given_every_timer():
    wheel = TimerWheel("w")
    send(wheel, Heartbeat("h"), 5)
    assert send(wheel, Heartbeat("h"), 4 + ASK_AGAIN_NS) == []
    assert [type(m) for m in send(wheel, Heartbeat("h"), 5 + ASK_AGAIN_NS)] == [TimerSyncRequest]
    send(wheel, TimerOrders(reset=True), 6 + ASK_AGAIN_NS)
    assert send(wheel, Heartbeat("h"), 9 * ASK_AGAIN_NS) == []


def test_timers_fire_in_order_when_they_are_due_and_never_earlier():
    wheel = TimerWheel("w")
    send(wheel, TimerOrders(armed=(timer("b", 20), timer("a", 10), timer("c", 30))))
    assert wheel.next_due_ns() == 10
    assert fired(send(wheel, Tick(), 9)) == []
    assert fired(send(wheel, Tick(), 20)) == ["a", "b"]
    assert wheel.next_due_ns() == 30


def test_orders_are_idempotent_and_a_stale_cancel_changes_nothing():
    wheel = TimerWheel("w")
    for _ in range(2):
        send(wheel, TimerOrders(armed=(timer("a", 10),)))
    send(wheel, TimerOrders(armed=(timer("a", 50, "2"),)))
    send(wheel, TimerOrders(cancelled=(TimerCancel("a", "1"),)))
    assert fired(send(wheel, Tick(), 49)) == []
    assert fired(send(wheel, Tick(), 50)) == ["a"]


def test_a_cancelled_timer_does_not_fire():
    wheel = TimerWheel("w")
    send(wheel, TimerOrders(armed=(timer("a", 10),)))
    send(wheel, TimerOrders(cancelled=(TimerCancel("a", "1"),)))
    assert fired(send(wheel, Tick(), 99)) == []
    assert wheel.next_due_ns() is None


def test_a_reset_leaves_only_what_it_says_and_lower_epochs_are_refused():
    wheel = TimerWheel("w")
    send(wheel, TimerOrders(armed=(timer("a", 10), timer("b", 10))))
    send(wheel, TimerOrders(reset=True, armed=(timer("b", 30),)), epoch=2)
    send(wheel, TimerOrders(armed=(timer("late", 1),)), epoch=1)
    assert fired(send(wheel, Tick(), 99)) == ["b"]


def test_a_timer_that_a_reset_puts_off_does_not_fire_when_it_was_due_before():
    wheel = TimerWheel("w")
    send(wheel, TimerOrders(armed=(timer("a", 10), timer("b", 10))))
    send(wheel, TimerOrders(reset=True, armed=(timer("b", 30),)), epoch=2)
    assert (wheel.armed(), wheel.next_due_ns()) == (1, 30)
    assert fired(send(wheel, Tick(), 29)) == []
    assert fired(send(wheel, Tick(), 30)) == ["b"]


def test_a_reset_without_timers_leaves_none():
    wheel = TimerWheel("w")
    send(wheel, TimerOrders(armed=(timer("a", 10), timer("b", 20))))
    send(wheel, TimerOrders(reset=True), epoch=2)
    assert (wheel.armed(), wheel.next_due_ns()) == (0, None)
    assert fired(send(wheel, Tick(), 99)) == []


def test_timers_that_do_not_fit_are_counted_and_asked_for_again(monkeypatch):
    monkeypatch.setattr("services.timers.wheel.MAX_TIMERS", 4)
    wheel = TimerWheel("w")
    send(wheel, TimerOrders(armed=tuple(timer(str(n), n) for n in range(6))))
    assert wheel.left_out == 2
    assert any(isinstance(m, TimerSyncRequest) for m in send(wheel, Tick(), 4))
    assert wheel.left_out == 0
    assert send(wheel, Tick(), 4) == []


def test_the_heap_does_not_grow_with_timers_that_no_longer_stand():
    wheel = TimerWheel("w")
    for n in range(1000):
        send(wheel, TimerOrders(armed=(timer("a", n, str(n)),)))
    assert len(wheel._due) < 200
    assert wheel.armed() == 1


def test_what_counts_is_how_long_after_the_order_a_timer_is_due_not_whose_clock_is_ahead():
    for ahead in (-7_000, 0, 7_000):  # of the timers' clock, before the core's
        wheel = TimerWheel("w")
        orders = TimerOrders(reset=True, armed=(timer("t", 10_100),))
        envelope = Envelope("m", "k", orders, TIMERS, "core", epoch=1, published_ns=10_000)
        assert not fired([item.message for item in wheel.handle(envelope, 10_000 + ahead)])
        assert not fired(send(wheel, Tick(), now=10_099 + ahead))
        assert fired(send(wheel, Tick(), now=10_100 + ahead)) == ["t"]


def test_what_has_fired_is_counted_from_none_on():
    wheel = TimerWheel("w")
    assert wheel.figures()["timers_fired_total"] == 0
    send(wheel, TimerOrders(armed=(timer("a", 10), timer("b", 20))))
    send(wheel, Tick(), 10)
    assert wheel.figures()["timers_fired_total"] == 1
    assert wheel.figures()["timers_armed"] == 1
