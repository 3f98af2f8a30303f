"""A rolling restart under load loses nothing, and nothing is there twice."""

from tests.chaos.rolling import rolled


def test_every_service_is_restarted_in_turn_under_load_and_nothing_is_lost(broker_url, tmp_path):
    assert rolled(broker_url, tmp_path, seed=1) == []
