"""What a service's process is set to."""

import gc
from itertools import pairwise

from shared.runtime.service import spare_the_collector

MOST_AT_ONCE = 30_000  # objects that a look takes, at a microsecond each: 30 ms


def test_the_collector_looks_at_few_objects_at_a_time_and_not_at_all_of_them():
    before, looks, kept = gc.get_threshold(), [], []

    def note(phase, info):
        if phase == "start":
            looks.append((info["generation"], len(kept)))

    spare_the_collector()
    gc.callbacks.append(note)
    try:
        for at in range(200_000):
            kept.append([at])
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    older = [look for look in looks if look[0]]
    for rows in (looks, older):
        ends = [0, *(there for _, there in rows), len(kept)]
        assert max(after - at for at, after in pairwise(ends)) <= MOST_AT_ONCE
    assert 2 not in [generation for generation, _ in looks]
