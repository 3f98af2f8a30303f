"""What a queue still has coming of what it is guaranteed, as preemption sees it.

Rule 1: a queue has left what it is guaranteed less what it uses and is not already giving back; the
        smallest on the way from the root counts, type by type.
Rule 2: for the queue that asks its own guarantee counts before those above.
Rule 3: a queue above the one that asks passes nothing down to the others while that one has a
        guarantee of its own left: its siblings are judged by what they themselves are guaranteed.
Source: contract section 6.9; cases X-02, X-10, X-11.
"""

from dataclasses import dataclass, field

from services.core.scheduler.model.queues import Queue
from shared.model.resources import Resource, ResourceView, add_into, smaller_of, subtract_into


@dataclass(slots=True)
class Ledger:
    """What queues would use after changes that are only thought of."""

    changes: dict[Queue, Resource] = field(default_factory=dict)

    def add(self, queue: Queue, amount: ResourceView) -> None:
        """Think of more use, from a queue to the root."""
        for level in queue.lineage():
            add_into(self.changes.setdefault(level, {}), amount)

    def remove(self, queue: Queue, amount: ResourceView) -> None:
        """Think of less use, from a queue to the root."""
        for level in queue.lineage():
            subtract_into(self.changes.setdefault(level, {}), amount)

    def used(self, queue: Queue) -> Resource:
        """Return what a queue would use: not what it gives back, but what is kept for its asks."""
        used = dict(queue.allocated)
        subtract_into(used, queue.preempting)
        add_into(used, queue.kept)
        add_into(used, self.changes.get(queue, {}))
        return used

    def copy(self) -> "Ledger":
        """Return a ledger to think further with."""
        return Ledger({queue: dict(amount) for queue, amount in self.changes.items()})


def own_left(queue: Queue, ledger: Ledger) -> Resource:
    """Return what a queue itself has left of its guarantee; what it is over is negative."""
    used = ledger.used(queue)
    guaranteed = queue.guaranteed_resource or {}
    return {name: value - used.get(name, 0) for name, value in guaranteed.items()}


def left(queue: Queue | None, asking: Queue, ledger: Ledger) -> Resource | None:
    """Return what a queue has left of its guarantees and those above; None where there are none."""
    if queue is None:
        return None
    above = left(queue.parent, asking, ledger)
    own = own_left(queue, ledger)
    if not own and above is None:
        return None
    if queue is asking and own:
        return {**(above or {}), **own}
    if own and queue is not asking and queue in asking.lineage():
        asking_left = own_left(asking, ledger)
        if any(asking_left.values()):
            return None
    return smaller_of(own, above or {})
