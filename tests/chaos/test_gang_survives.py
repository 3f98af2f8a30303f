"""A gang of 40 through one kill of each part; ``make gang-of-200`` has 200, and five moments of each."""

import pytest

from tests.chaos.gang_of_200 import MOMENTS, VICTIMS, Case, bench_of
from tests.integration.kubernetes.conftest import REAL

MEMBERS = 40
ONE_EACH = list(zip(VICTIMS, [*MOMENTS, "half bound"], strict=True))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["double", REAL])
async def test_a_gang_comes_to_run_whole_whatever_is_killed(kind, broker_to_break, tmp_path):
    """Services as processes, in one life: what one kill leaves behind the next gang meets."""
    is_real = kind == "real"
    cases = []
    broker = broker_to_break
    async with bench_of(
        tmp_path, MEMBERS, is_real=is_real, broker=broker, broker_url=broker.url
    ) as bench:
        for victim, moment in ONE_EACH:
            if bench.can_kill(victim):
                cases.append(Case(bench, victim, moment))
                await cases[-1].run()
    assert {f"{case.victim}, {case.moment}": case.wrong for case in cases if case.wrong} == {}
    assert len(cases) == len(ONE_EACH) or is_real
