"""Timings of parts of a cycle: stopwatches that are passed in, and change nothing.

The pure part reads no clock; a stopwatch is a context manager entered around each part.
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
    """A stopwatch for every measured part. None of them is entered twice at once."""

    latency: Stopwatch = NOBODY  # everything for a batch
    cycle: Stopwatch = NOBODY  # the decisions of a batch
    queue_order: Stopwatch = NOBODY  # which queue is next
    application_order: Stopwatch = NOBODY  # which application of it
    node_search: Stopwatch = NOBODY  # the first node that fits an ask
    node_evaluation: Stopwatch = NOBODY  # why no node fits it
    preemption: Stopwatch = NOBODY  # the choice of victims for it


PARTS = tuple(item.name for item in fields(Timings))
UNTIMED = Timings()
