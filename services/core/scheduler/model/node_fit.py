"""Which nodes could hold a shape, whatever is on them now."""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from shared.messages.constraints import Constraints
from shared.messages.selectors import is_tolerated, selects
from shared.model.resources import fits_room


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
