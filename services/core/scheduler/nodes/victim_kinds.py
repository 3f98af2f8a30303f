"""Kinds of victims: by leaf, priority and amount; and the order of victims."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shared.messages.interface import Allocation, DisruptionState
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Queue

KindKey = tuple["Queue", int, tuple[tuple[str, int], ...]]


RANKS = 4
Disruptions = Mapping[str, DisruptionState]  # by key, without FREE


def rank_of(allocation: Allocation, disruptions: Disruptions) -> int:
    """Return 0 for an ordinary pod, 1 for an originator, 2 for one that opted out, 3 for both.

    The lowest rank is evicted first. Opting out counts more than being the originator, because
    every application of one pod is an originator. Pods under a disruption budget come after all
    others, in the same order.
    """
    budgeted = RANKS if allocation.allocation_key in disruptions else 0
    return budgeted + 2 * (not allocation.allow_preempt_self) + allocation.originator


@dataclass(slots=True, eq=False)
class Kind:
    """Victims of one leaf, priority and amount, and their number."""

    key: KindKey
    leaf: "Queue"
    priority: int
    amount: ResourceView
    count: int = 0


class Victim(NamedTuple):
    """A possible victim. The tuple's order is the order of eviction."""

    rank: int
    newest: int  # negated creation time
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
