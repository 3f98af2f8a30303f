"""What a queue still has coming of what it is guaranteed, as preemption sees it.

Rule 1: a queue has left what it is guaranteed less what it uses and is not already giving back; the
        smallest on the way from the root counts, type by type.
Rule 2: for the queue that asks its own guarantee counts before those above.
Rule 3: a queue above the one that asks passes nothing down to the others while that one has a
        guarantee of its own left: its siblings are judged by what they themselves are guaranteed.
Source: docs/rules/preemption.md; cases X-02, X-10, X-11.

What is judged is what the ledgers hold; who asks what would be if others went has them go first,
tentatively (``statement/tentative.py``).
"""

from collections.abc import Iterator

from services.core.scheduler.model.rows import Queue
from shared.model.resources import Resource, ResourceView, smaller_of


def used(queue: Queue, name: str) -> int:
    """Return what a queue uses of a type: not what it gives back, but what is kept for its asks."""
    return queue.allocated.get(name, 0) - queue.preempting.get(name, 0) + queue.kept.get(name, 0)


def own_left(queue: Queue) -> Resource:
    """Return what a queue itself has left of its guarantee; what it is over is negative."""
    guaranteed = queue.guaranteed_resource or {}
    return {name: value - used(queue, name) for name, value in guaranteed.items()}


def guaranteeing(queue: Queue | None, asking: Queue) -> Iterator[Queue]:
    """Yield the queues whose guarantees count for a queue, from it upwards."""
    for level in queue.lineage() if queue is not None else ():
        if not level.guaranteed_resource:
            continue
        is_above = level is not asking and level in asking.lineage()
        if is_above and any(own_left(asking).values()):
            return
        yield level


def left(queue: Queue | None, asking: Queue) -> Resource | None:
    """Return what a queue has left of its guarantees and those above; None where there are none."""
    found: Resource | None = None
    for level in reversed([*guaranteeing(queue, asking)]):
        own = own_left(level)
        found = {**(found or {}), **own} if level is asking else smaller_of(own, found or {})
    return found


def is_within(leaf: Queue, amount: ResourceView) -> bool:
    """Return whether a leaf, as it is, keeps to what it is guaranteed of the types of an amount."""
    remaining = left(leaf, leaf)
    if remaining is None:
        return False
    asked = [name for name in remaining if amount.get(name, 0) > 0]
    return bool(asked) and all(remaining[name] >= 0 for name in asked)


def spare(leaf: Queue, asking: Queue) -> dict[tuple[Queue, str], int]:
    """Return how much of each type may be taken below which queue before it falls short.

    Each of them keeps what it is guaranteed; of what none names anything may be taken.
    """
    return {
        (level, name): used(level, name) - guaranteed
        for level in guaranteeing(leaf, asking)
        for name, guaranteed in (level.guaranteed_resource or {}).items()
    }
