"""The clock of the services: what is set on the wall moves nothing."""

import time

import pytest

from shared.runtime.clock import SystemClock

DAY_NS = 24 * 3600 * 1_000_000_000


@pytest.mark.parametrize("jump_ns", [DAY_NS, -DAY_NS])
async def test_a_wall_clock_that_is_set_moves_nothing(jump_ns):
    set_by_ns = 0
    clock = SystemClock(lambda: time.time_ns() + set_by_ns)
    before_ns = clock.now_ns()
    assert abs(before_ns - time.time_ns()) < DAY_NS
    set_by_ns = jump_ns
    assert 0 <= clock.now_ns() - before_ns < DAY_NS // 2
    await clock.sleep_until(clock.now_ns() + 1_000_000)  # neither for a day, nor not at all
    assert clock.now_ns() - before_ns >= 1_000_000
