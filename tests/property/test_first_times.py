"""What runs keeps its first time, and whoever waits for its end is tried within a second of it."""

from hypothesis import given
from hypothesis import strategies as st

from shared.messages.interface import AllocationRelease, TerminationType
from shared.messages.protocol import Heartbeat
from shared.model.units import seconds
from tests.builders import Core, config_of, section

KAI = (("policy", "kai"),)
ONE = {"vcore": 1}
QUEUES = (
    "{name: a, properties: {deserved.vcore: '0', %s.min.runtime: %ss}}",
    "{name: b, properties: {deserved.vcore: unlimited}}",
)


@given(
    st.sampled_from(["reclaim", "preempt"]),
    st.integers(0, 40),
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
    st.lists(st.integers(0, 90), min_size=1, max_size=6),
)
def test_nothing_goes_in_its_first_time_and_waits_no_longer_than_a_second_after(
    law, window_s, starts, wants
):
    core = Core(config_of(QUEUES[0] % (law, window_s), QUEUES[1]), settings=KAI)
    core.node("n", vcore=len(starts))
    start_ns, began, went = core.now_ns, {}, []
    wants = sorted(max(want, *starts, 0) for want in wants)
    for second in range(140):
        now_ns = start_ns + seconds(second)
        released = []
        while core.partition.timers.get("preemption", ("", now_ns + 1))[1] <= now_ns:
            released += section(core.fire_own("preemption"), "released_allocations")
        core.now_ns = now_ns
        core.send(Heartbeat("t"))
        for item in released:
            assert second >= began.pop(item.application_id) + window_s
            went.append(second)
            why = TerminationType.PREEMPTED_BY_SCHEDULER
            core.update(
                releases=(AllocationRelease(item.application_id, item.allocation_key, why),)
            )
        for at, each in enumerate(starts):
            if each == second:
                core.application(f"a{at}", "root.a")
                core.asks(f"a{at}", [f"a{at}"], ONE)
                began[f"a{at}"] = second
        for at, each in enumerate(wants):
            if each == second:
                leaf = "b" if law == "reclaim" else "a"
                core.application(f"b{at}", f"root.{leaf}")
                core.asks(f"b{at}", [f"b{at}"], ONE, priority=5 if leaf == "a" else 0)
        over = sorted(each + window_s for each in starts)
        possible = sum(
            max(free, want) + 2 <= second for free, want in zip(over, wants, strict=False)
        )
        assert len(went) >= possible, (second, went)
    core.check()
