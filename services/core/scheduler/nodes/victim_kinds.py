"""Who could be evicted, as victims are counted: by leaf, priority and amount."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shared.messages.interface import Allocation
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Queue

KindKey = tuple["Queue", int, tuple[tuple[str, int], ...]]


def rank_of(allocation: Allocation) -> int:
    """Return 0 for an ordinary one, 1 for one that opted out, 2 for an originator: 0 goes first."""
    if allocation.originator:
        return 2
    return 0 if allocation.allow_preempt_self else 1


@dataclass(slots=True, eq=False)
class Kind:
    """Victims of one leaf, priority and amount, and how many there are."""

    key: KindKey
    leaf: "Queue"
    priority: int
    amount: ResourceView
    count: int = 0


class Victim(NamedTuple):
    """An allocation that could be evicted. As a tuple it is what orders victims."""

    rank: int
    newest: int  # when it was created, negated
    key: str
    allocation: Allocation
    kind: Kind


@dataclass(slots=True, eq=False)
class NodeVictims:
    """The victims of one node in order, and by kind; and what is being released there."""

    order: list[Victim] = field(default_factory=list)
    kinds: dict[Kind, int] = field(default_factory=dict)
    releasing: dict[str, Allocation] = field(default_factory=dict)


NOBODY = NodeVictims()
