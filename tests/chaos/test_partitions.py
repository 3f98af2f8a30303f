"""Each partition of a core that dies, or stands still, is decided for again in time."""

import pytest

from tests.chaos.partitions import failovers

pytestmark = [pytest.mark.xdist_group("restarts"), pytest.mark.long]


def test_every_partition_of_a_killed_and_of_a_stopped_core_is_taken_over_in_time(
    broker_url, tmp_path
):
    for after, failover in failovers(broker_url, tmp_path).items():
        told = [f"{took:.1f} s at {slow:.1f}" for took, slow in
                zip(failover.seconds, failover.slower, strict=True)]  # fmt: skip
        print(f"after {after}: {', '.join(told)}, bound {failover.bound:g} s")
        assert len(failover.seconds) == 2, after
        assert failover.late == [], after
