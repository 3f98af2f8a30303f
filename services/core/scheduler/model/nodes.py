"""A node: what it can hold, and the sums of what is on it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.core.scheduler.model.shapes import Shape
from shared.messages.constraints import Constraints, Taint
from shared.messages.interface import Allocation
from shared.messages.selectors import is_tolerated, selects
from shared.model.resources import Resource, fits_room

if TYPE_CHECKING:
    from services.core.scheduler.model.reservations import Reservation


@dataclass(slots=True, eq=False)
class Node:
    """One node. ``allocated`` is the sum of ``allocations``, ``occupied`` that of ``foreign``."""

    node_id: str
    row: int
    capacity: Resource
    attributes: dict[str, str]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    schedulable: bool
    allocated: Resource = field(default_factory=dict)
    occupied: Resource = field(default_factory=dict)
    available: Resource = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    foreign: dict[str, Allocation] = field(default_factory=dict)
    reservations: dict[str, "Reservation"] = field(default_factory=dict)  # by ask, oldest first
    kept: Resource = field(default_factory=dict)  # for asks whose placeholders go (covers.py)
    expected: Resource = field(default_factory=dict)  # by the open statement: coming, less taken
    score: float = 0.0  # its place in the order: smaller is better
    changed: int = -1  # when its row changed last, by the index's log


def matches(constraints: Constraints, node: Node) -> bool:
    """Return whether a node is one that the constraints select, with no taint in the way."""
    return selects(constraints, node.node_id, node.labels) and is_tolerated(
        constraints, node.taints
    )


def could_hold(node: Node, shape: Shape) -> bool:
    """Return whether a node may be used for a shape and would have the room if it were empty."""
    return (
        node.schedulable
        and fits_room(node.capacity, shape.resource)
        and matches(shape.constraints, node)
    )
