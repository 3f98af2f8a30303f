"""Which nodes could fit a shape if they were empty."""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from shared.messages.constraints import Constraints
from shared.messages.selectors import is_tolerated, selects
from shared.model.resources import fits_room


def matches(constraints: Constraints, node: Node) -> bool:
    """Whether a node is selected by the constraints, and its taints are tolerated."""
    return selects(constraints, node.node_id, node.labels) and is_tolerated(
        constraints, node.taints
    )


def could_hold(node: Node, shape: Shape) -> bool:
    """Whether a node is schedulable, matches a shape, and would fit it if it were empty."""
    return (
        node.schedulable
        and fits_room(node.capacity, shape.resource)
        and matches(shape.constraints, node)
    )
