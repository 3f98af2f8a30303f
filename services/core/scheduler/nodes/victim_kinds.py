"""Who could be evicted, as victims are counted: by leaf, priority and amount."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shared.messages.interface import Allocation, DisruptionState
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Queue

KindKey = tuple["Queue", int, tuple[tuple[str, int], ...]]


RANKS = 4
Disruptions = Mapping[str, DisruptionState]  # of those that are not FREE, by key


def rank_of(allocation: Allocation, disruptions: Disruptions) -> int:
    """Return 0 for an ordinary pod, 1 for an originator, 2 for one that opted out, 3 for both.

    The lowest rank goes first. Opting out weighs more than being the originator: every application
    of one pod is an originator, and would have no say otherwise. Pods under a disruption budget go
    after all others, in the same order.
    """
    budgeted = RANKS if allocation.allocation_key in disruptions else 0
    return budgeted + 2 * (not allocation.allow_preempt_self) + allocation.originator


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
