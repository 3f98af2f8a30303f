"""The model of lanes, of which docs/schedule.md has figures, beside the replay."""

import pytest

from tests.property.lanes import Model
from tests.property.wide import S, micro, micro_row


def gangs(lanes: int) -> list[float]:
    tasks = Model(micro(0, with_gangs=True), 75, lanes, 0).run().tasks
    return [(task.started_ns - task.submitted_ns) / S for task in tasks if task.size > 8]


@pytest.mark.parametrize("lanes", [pytest.param(0, marks=pytest.mark.long), 1])
def test_wide_gangs_wait_in_the_model_as_they_do_in_the_replay(lanes):
    """Minutes with a lane and hours without one; not to the second, as predictions are rounded."""
    preset = {"preset": "muster", "reservations": "gang" if lanes else "heads"}
    replayed, _ = micro_row(0, preset)
    for waits in (gangs(lanes), replayed):
        assert max(waits) <= 600 if lanes else min(waits) > 20_000


def test_a_lane_for_jobs_of_one_node_starts_the_oldest_and_nothing_is_used_twice():
    model = Model(micro(0, with_gangs=True), 75, 1, 1).run()
    assert all(task.started_ns >= task.submitted_ns for task in model.tasks)
    assert model.free == [8] * 75
    assert not any(model.used.values())
