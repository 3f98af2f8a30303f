"""Tentative: whatever is done to a partition meanwhile is undone whole.

Rule 1: what is done is what the scheduler does otherwise, whole cycles among it: no second
        implementation of it. What is recorded of it can be read until it is undone.
Rule 2: at the end the partition is as it was, also where an error is raised. One may be inside of
        another.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from services.core.scheduler.model.timings import UNTIMED
from services.core.scheduler.statement.checkpoint import Checkpoint
from services.core.scheduler.statement.partition import Partition


@contextmanager
def tentative(partition: Partition) -> Iterator[None]:
    """Try anything on a partition, and undo it. Nothing of it is timed."""
    before = Checkpoint(partition)
    partition.timings = UNTIMED
    try:
        yield
    finally:
        before.restore()
