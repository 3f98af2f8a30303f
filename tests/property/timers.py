"""The timer service's part: what was ordered fires, late, twice, or though it stands no more."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from shared.messages.protocol import TimerFired, TimerFirings, TimerOrders
from tests.property.gangs import everything


class TimerService:
    """The timers of a core as its orders have made them, and every order there ever was."""

    def __init__(self, before=None):
        self.ordered = before.ordered if before else {}  # (timer id, generation) -> TimerSet
        self.standing = {}  # timer id -> TimerSet
        self.read = 0

    def hear(self, core):
        """Take in what the core has ordered since the last time."""
        for out in core.answers[self.read :]:
            if not isinstance(out.message, TimerOrders):
                continue
            if out.message.reset:
                self.standing.clear()
            for cancelled in out.message.cancelled:
                known = self.standing.get(cancelled.timer_id)
                if known is not None and known.generation == cancelled.generation:
                    del self.standing[cancelled.timer_id]
            for timer in out.message.armed:
                self.ordered[timer.timer_id, timer.generation] = timer
                self.standing[timer.timer_id] = timer
        self.read = len(core.answers)


def armed(core):
    """Return the timers that a core goes by: id to generation and moment."""
    found = dict(core.partition.timers)
    for app in core.partition.applications.values():
        found |= app.timers
    return found


class FiresTimers:
    """Rules for a machine with a ``core``; ``heard`` is given what a firing led to."""

    def heard(self, responses):
        """Take in what the core says."""

    @property
    def service(self):
        if getattr(self, "_service_of", None) is not self.core:
            self._service = TimerService(getattr(self, "_service", None))
            self._service_of = self.core
        self._service.hear(self.core)
        return self._service

    def fire(self, timer, times):
        self.core.now_ns = max(self.core.now_ns, timer.due_ns)
        fired = TimerFired(timer.timer_id, timer.kind, timer.application_id, timer.generation)
        self.heard(self.core.send(TimerFirings((fired,) * times)))

    @precondition(lambda self: self.service.standing)
    @rule(data=st.data(), times=st.integers(1, 2))
    def a_timer_fires(self, data, times):
        standing = self.service.standing
        self.fire(standing.pop(data.draw(st.sampled_from(sorted(standing)))), times)

    @precondition(lambda self: self.service.standing)
    @rule(data=st.data())
    def a_timer_fires_early(self, data):
        standing = self.service.standing
        timer = standing[data.draw(st.sampled_from(sorted(standing)))]
        if timer.due_ns <= self.core.now_ns:
            return
        before = everything(self.core)
        fired = TimerFired(timer.timer_id, timer.kind, timer.application_id, timer.generation)
        self.heard(self.core.send(TimerFirings((fired,))))
        assert everything(self.core) == before
        assert self.service.standing[timer.timer_id] == timer

    @precondition(lambda self: self.service.ordered.keys() - self.now_armed())
    @rule(data=st.data())
    def a_timer_fires_that_stands_no_more(self, data):
        service = self.service
        stale = sorted(service.ordered.keys() - self.now_armed())
        timer = service.ordered[data.draw(st.sampled_from(stale))]
        if timer.due_ns > self.core.now_ns:
            return
        before = everything(self.core)
        self.fire(timer, 1)
        assert everything(self.core) == before

    def now_armed(self):
        return {(name, generation) for name, (generation, _) in armed(self.core).items()}

    @invariant()
    def what_is_armed_was_ordered(self):
        if hasattr(self, "core"):
            standing = self.service.standing
            for name, (generation, due_ns) in armed(self.core).items():
                timer = standing.get(name)
                assert timer is not None, f"{name} is armed and was not ordered"
                assert (timer.generation, timer.due_ns) == (generation, due_ns), timer
