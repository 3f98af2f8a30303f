"""What remains of a queue's guarantee, as preemption counts it.

Rule 1: the remainder is the guarantee less the usage that is not being preempted; on the path from
        the root the smallest counts, type by type.
Rule 2: for the asking queue its own guarantee takes precedence over those above.
Rule 3: a queue above the asking one does not limit others while the asking queue has a guarantee of
        its own left: its siblings are judged by their own guarantees.
Source: docs/rules/preemption.md; cases X-02, X-10, X-11.

All functions read the ledgers; for a hypothetical eviction the caller first makes it tentatively
(``statement/tentative.py``).
"""

from collections.abc import Iterator

from services.core.scheduler.model.rows import Queue
from shared.model.resources import Resource, ResourceView, smaller_of


def used(queue: Queue, name: str) -> int:
    """Return a queue's usage of a type: without what is being preempted, with its claims."""
    return (
        queue.allocated.get(name, 0) - queue.preempting.get(name, 0) + queue.reserved.get(name, 0)
    )


def own_left(queue: Queue) -> Resource:
    """Return what remains of a queue's own guarantee; negative if it is exceeded."""
    guaranteed = queue.guaranteed_resource or {}
    return {name: value - used(queue, name) for name, value in guaranteed.items()}


def guaranteeing(queue: Queue | None, asking: Queue) -> Iterator[Queue]:
    """Yield the queues whose guarantees apply to a queue, from it upwards."""
    for level in queue.lineage() if queue is not None else ():
        if not level.guaranteed_resource:
            continue
        is_above = level is not asking and level in asking.lineage()
        if is_above and any(own_left(asking).values()):
            return
        yield level


def left(queue: Queue | None, asking: Queue) -> Resource | None:
    """Return what remains of a queue's guarantees and those above; None without any."""
    found: Resource | None = None
    for level in reversed([*guaranteeing(queue, asking)]):
        own = own_left(level)
        found = {**(found or {}), **own} if level is asking else smaller_of(own, found or {})
    return found


def is_within(leaf: Queue, amount: ResourceView) -> bool:
    """Whether a leaf is within its guarantees for the types of an amount."""
    remaining = left(leaf, leaf)
    if remaining is None:
        return False
    asked = [name for name in remaining if amount.get(name, 0) > 0]
    return bool(asked) and all(remaining[name] >= 0 for name in asked)


def spare(leaf: Queue, asking: Queue) -> dict[tuple[Queue, str], int]:
    """Return how much of each type may be evicted below which queue.

    Each queue keeps its guarantee; types without a guarantee are unlimited.
    """
    return {
        (level, name): used(level, name) - guaranteed
        for level in guaranteeing(leaf, asking)
        for name, guaranteed in (level.guaranteed_resource or {}).items()
    }
