"""A rolling restart under load loses nothing, and nothing is there twice."""

import pytest

from tests.chaos.rolling import rolled

pytestmark = [pytest.mark.xdist_group("restarts"), pytest.mark.long]


@pytest.mark.limit(360, "seven processes end and start again one by one, and all comes to rest")
def test_every_service_is_restarted_in_turn_under_load_and_nothing_is_lost(broker_url, tmp_path):
    assert rolled(broker_url, tmp_path, seed=1, rate=1.0) == []
