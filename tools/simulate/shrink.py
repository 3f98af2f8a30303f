"""Fewer faults for the same end: delta debugging over the faults of a seed (Zeller, ddmin).

Left out, a fault changes nothing about when the others are armed; what is left is tried again
until no part of it can be left out, or MAX_RUNS have been run.
"""

from tools.simulate.run import Outcome, run

MAX_RUNS = 120  # runs to reduce the faults of a seed; then the smallest set so far is reported


def shrunk(outcome: Outcome) -> Outcome:
    """Return a run of the same seed that does not hold either, with as few faults as can be."""
    best, parts, runs = outcome, 2, 0
    while runs < MAX_RUNS and best.faults:
        indices = sorted(fault.index for fault in best.faults)
        parts = min(parts, len(indices))
        size = -(-len(indices) // parts)
        for at in range(0, len(indices), size):
            runs += 1
            tried = run(
                best.seed,
                set(indices[:at] + indices[at + size :]),
                best.partitions,
                racks=best.racks,
            )
            if not tried.holds:
                best, parts = tried, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return best
