"""Reservations: a node that is kept for an ask. Who gets one is in ``actions/reservations.py``."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.core.scheduler.model.gates import Gate
from services.core.scheduler.model.nodes import Node
from services.core.scheduler.model.queues import Queue
from services.core.scheduler.model.shapes import Ask

if TYPE_CHECKING:
    from services.core.scheduler.model.application import Application

# What orders those who want a node: priority at the root, creation, arrival. No two are alike.
Rank = tuple[int, int, int]


@dataclass(slots=True, eq=False, repr=False)
class Reservation:
    """A node that is kept for an ask. ``waits_at`` is the gate that refused it last.

    ``rank`` is the ask's when it was made.
    """

    to_try: dict["Reservation", None]  # those that the next cycle tries
    application: "Application"
    ask: Ask
    node: Node
    since_ns: int
    is_required: bool = False
    has_preempted: bool = False
    told_ns: int = 0  # when people were told that nobody can be preempted for it
    waits_at: Gate | None = None
    rank: Rank = (0, 0, 0)

    @property
    def is_ordinary(self) -> bool:
        """Return whether it was made for age alone: not by need of the node, nor by preemption."""
        return not (self.is_required or self.has_preempted)

    def wait_at(self, gate: Gate) -> None:
        """Wait until a gate opens."""
        self.waits_at = gate
        gate.reservations[self] = None

    def retry(self) -> None:
        """Have the reservation tried in the next cycle; it waits at no gate any more."""
        if self.waits_at is not None:
            self.waits_at.reservations.pop(self, None)
            self.waits_at = None
        self.to_try[self] = None


@dataclass(slots=True)
class ReservedNodes:
    """Which nodes are reserved, those of asks that require theirs apart."""

    by_age: list[tuple[Rank, Reservation]] = field(default_factory=list)  # in the order of ranks
    after_preemption: dict[str, int] = field(default_factory=dict)  # node -> reservations there

    def __len__(self) -> int:
        return len(self.by_age) + len(self.after_preemption)

    @property
    def last(self) -> Reservation | None:
        """Return the first that would have to make way: of the lowest priority, the youngest."""
        return self.by_age[-1][1] if self.by_age else None

    def add(self, reservation: Reservation) -> None:
        """Count a reservation in."""
        if reservation.is_ordinary:
            insort(self.by_age, (reservation.rank, reservation))
        elif not reservation.is_required:
            name = reservation.node.node_id
            self.after_preemption[name] = self.after_preemption.get(name, 0) + 1

    def remove(self, reservation: Reservation) -> None:
        """Count a reservation out."""
        if reservation.is_ordinary:
            at = bisect_left(self.by_age, reservation.rank, key=lambda entry: entry[0])
            assert self.by_age[at][1] is reservation
            del self.by_age[at]
        elif not reservation.is_required:
            name = reservation.node.node_id
            self.after_preemption[name] -= 1
            if not self.after_preemption[name]:
                del self.after_preemption[name]


def rank_of(leaf: Queue, ask: Ask) -> Rank:
    """Return an ask's rank. Its priority is what the queues below the root make of it (6.4)."""
    priority = ask.request.priority
    for queue in leaf.lineage():
        if queue.parent is not None:
            priority = queue.shown(priority)
    return (-priority, ask.created_ns, ask.sequence)
