"""What a queue still has coming of what it is guaranteed, as preemption sees it.

Rule 1: a queue has left what it is guaranteed less what it uses and is not already giving back; the
        smallest on the way from the root counts, type by type.
Rule 2: for the queue that asks its own guarantee counts before those above.
Rule 3: a queue above the one that asks passes nothing down to the others while that one has a
        guarantee of its own left: its siblings are judged by what they themselves are guaranteed.
Source: contract section 6.9; cases X-02, X-10, X-11.

What is judged is what the ledgers hold; who asks what would be if others went has them go first,
on a trial (``statement/queue_trial.py``).
"""

from services.core.scheduler.model.rows import Queue
from shared.model.resources import Resource, ResourceView, smaller_of


def used(queue: Queue, name: str) -> int:
    """Return what a queue uses of a type: not what it gives back, but what is kept for its asks."""
    return queue.allocated.get(name, 0) - queue.preempting.get(name, 0) + queue.kept.get(name, 0)


def own_left(queue: Queue) -> Resource:
    """Return what a queue itself has left of its guarantee; what it is over is negative."""
    guaranteed = queue.guaranteed_resource or {}
    return {name: value - used(queue, name) for name, value in guaranteed.items()}


def left(queue: Queue | None, asking: Queue) -> Resource | None:
    """Return what a queue has left of its guarantees and those above; None where there are none."""
    if queue is None:
        return None
    above = left(queue.parent, asking)
    if not queue.guaranteed_resource:
        return above
    if queue is asking:
        return {**(above or {}), **own_left(queue)}
    if queue in asking.lineage() and any(own_left(asking).values()):
        return None
    return smaller_of(own_left(queue), above or {})


def is_within(leaf: Queue, amount: ResourceView) -> bool:
    """Return whether a leaf, as it is, keeps to what it is guaranteed of the types of an amount."""
    remaining = left(leaf, leaf)
    if remaining is None:
        return False
    asked = [name for name in remaining if amount.get(name, 0) > 0]
    return bool(asked) and all(remaining[name] >= 0 for name in asked)


def falls_short(leaf: Queue, asking: Queue, taken: ResourceView) -> bool:
    """Return whether a leaf that has lost something has less than it is guaranteed of it now."""
    remaining = left(leaf, asking) or {}
    return any(remaining.get(name, 0) > 0 for name, value in taken.items() if value > 0)
