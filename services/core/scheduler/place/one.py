"""Where one ask goes: the only questions by which anybody outside the nodes chooses one."""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.node_table import NodeTable


def node_for(
    nodes: NodeTable, shape: Shape, *, own: Node | None = None, backfill: bool = False
) -> Node | None:
    """Return the node for an ask now: its own if that takes it, else the first in order, or None.

    ``own`` is one that is kept for it, as its reservation's or its placeholder's. An ask that
    requires its node goes there or nowhere, and not where others have a claim. With ``backfill`` it
    may take room of a claimed node that the claims do not lack.
    """
    if own is not None and nodes.filters.takes.holds(own, shape):
        return own
    required = shape.constraints.required_node
    if not required:
        return nodes.order.best(shape, backfill=backfill)
    node = nodes.nodes.get(required)
    return node if node is not None and nodes.filters.open.holds(node, shape) else None


def held_node_for(nodes: NodeTable, shape: Shape) -> Node | None:
    """Return the first of the nodes that are held for the lane's gang that takes an ask."""
    return nodes.order.best_held(shape)
