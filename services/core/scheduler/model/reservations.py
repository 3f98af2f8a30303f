"""The reserved nodes, and the rank of asks for them (``actions/reservations.py``)."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from services.core.scheduler.model.rows import Application, Claim, Purpose, Queue, Rank
from services.core.scheduler.model.shapes import Ask, Shape


@dataclass(slots=True)
class ReservedNodes:
    """The reservations by rank and by shape; those of required nodes are not counted."""

    by_age: list[tuple[Rank, Claim]] = field(default_factory=list)  # sorted by rank
    by_shape: dict[Shape, dict[Claim, None]] = field(default_factory=dict)
    after_preemption: dict[str, int] = field(default_factory=dict)  # node -> preemptors there

    def __len__(self) -> int:
        return len(self.by_age) + len(self.after_preemption)

    @property
    def last(self) -> Claim | None:
        """Return the reservation that would be replaced first: lowest priority, youngest."""
        return self.by_age[-1][1] if self.by_age else None

    def of_shape(self, shape: Shape) -> list[Claim]:
        """Return the reservations of a shape's asks, oldest first."""
        return list(self.by_shape.get(shape, ()))

    def add(self, reservation: Claim) -> None:
        """Add a reservation."""
        self.by_shape.setdefault(reservation.ask.shape, {})[reservation] = None
        if reservation.is_ordinary:
            insort(self.by_age, (reservation.rank, reservation))
        elif reservation.purpose is Purpose.PREEMPTOR:
            name = reservation.node.node_id
            self.after_preemption[name] = self.after_preemption.get(name, 0) + 1

    def remove(self, reservation: Claim) -> None:
        """Remove a reservation."""
        shape = reservation.ask.shape
        del self.by_shape[shape][reservation]
        if not self.by_shape[shape]:
            del self.by_shape[shape]
        if reservation.is_ordinary:
            at = bisect_left(self.by_age, reservation.rank, key=lambda entry: entry[0])
            assert self.by_age[at][1] is reservation
            del self.by_age[at]
        elif reservation.purpose is Purpose.PREEMPTOR:
            name = reservation.node.node_id
            self.after_preemption[name] -= 1
            if not self.after_preemption[name]:
                del self.after_preemption[name]


def rank_of(leaf: Queue, ask: Ask) -> Rank:
    """Return an ask's rank: its priority as shown at the root, creation, arrival."""
    return (-priority_of(leaf, ask.request.priority), ask.created_ns, ask.sequence)


def priority_of(leaf: Queue, priority: int) -> int:
    """Return how a priority in a leaf appears at the root."""
    for queue in leaf.lineage():
        if queue.parent is not None:
            priority = queue.shown(priority)
    return priority


def rank_of_gang(application: Application) -> Rank:
    """Return the best rank of a gang's waiting asks; there is at least one."""
    if len(application.ask_priorities) > 1:
        return min(rank_of(application.queue, ask) for ask in application.asks())
    heads = (group.head() for group in application.groups.values())
    return min(rank_of(application.queue, head) for head in heads if head is not None)
