"""How long parts of a cycle take: stopwatches that are handed in, and change nothing.

The pure part reads no clock; what measures is entered and left where a part begins and ends.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, fields


class _NoStopwatch:
    """A stopwatch that measures nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


Stopwatch = AbstractContextManager[object]
NOBODY: Stopwatch = _NoStopwatch()


@dataclass(frozen=True, slots=True)
class Timings:
    """A stopwatch for every part that is measured. None of them is entered twice at once."""

    latency: Stopwatch = NOBODY  # all that a batch leads to
    cycle: Stopwatch = NOBODY  # the decisions of a batch
    queue_order: Stopwatch = NOBODY  # which queue is next
    application_order: Stopwatch = NOBODY  # which application of it
    node_search: Stopwatch = NOBODY  # the first node that takes an ask
    node_evaluation: Stopwatch = NOBODY  # why no node takes it
    preemption: Stopwatch = NOBODY  # who would have to go for it


PARTS = tuple(item.name for item in fields(Timings))
UNTIMED = Timings()
