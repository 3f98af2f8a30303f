"""Moves of queues: added, removed."""

from services.core.scheduler.model.rows import Queue
from services.core.scheduler.statement.journal import RowSet
from services.core.scheduler.statement.partition import Partition


def add(partition: Partition, queue: Queue) -> None:
    """Add a queue below its parent."""
    assert queue.parent is not None
    queue.parent.children[queue.name] = queue
    partition.queues[queue.path] = queue
    values = {
        "max_resource": queue.max_resource,
        "guaranteed_resource": queue.guaranteed_resource,
    }
    partition.journal.record(RowSet(queue, values))


def remove(partition: Partition, queue: Queue) -> None:
    """Remove an empty queue from the tree."""
    assert queue.parent is not None
    queue.deactivate()
    del queue.parent.children[queue.name]
    queue.forget_turns()
    partition.queues.pop(queue.path, None)
