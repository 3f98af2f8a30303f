"""What a service's process is set to."""

import gc

from shared.runtime.service import spare_the_collector

MOST_AT_ONCE = 10_000  # objects, at a microsecond each: 10 ms


def test_the_collector_looks_at_few_objects_at_a_time_and_not_at_all_of_them():
    before, looks, kept = gc.get_threshold(), [], []

    def note(phase, info):
        if phase == "start":
            looks.append(info["generation"])

    spare_the_collector()
    gc.callbacks.append(note)
    try:
        kept += ([at] for at in range(200_000))
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert len(looks) >= len(kept) / MOST_AT_ONCE
    assert 2 not in looks
