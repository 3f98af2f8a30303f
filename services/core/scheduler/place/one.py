"""Which node one ask gets, now or later: the only questions to the nodes for a node.

An ask gets a node now (``node_for``), beside the asks of its gang in a domain (``InDomain``), or
has one reserved until it has the room (``node_to_reserve``, ``first_to_have_room``).
"""

from collections.abc import Callable

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, When
from services.core.scheduler.nodes.filters.combined import Filters
from services.core.scheduler.nodes.node_order import AS_CONFIGURED, Order
from services.core.scheduler.nodes.node_table import NodeTable


def node_for(
    nodes: NodeTable, shape: Shape, *, own: Node | None = None, backfill: bool = False
) -> Node | None:
    """Return the node for an ask now: its own if that takes it, else the first in order, or None.

    ``own`` is the node that is claimed for it, by its reservation or its placeholder. An ask that
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
    """Return the first of the nodes reserved for the head gang that takes an ask."""
    return nodes.order.best_held(shape)


class InDomain:
    """Nodes of a domain for one ask after another, each beside those placed before it.

    ``rows`` are those of the domain (None: of all nodes), ``takes`` the filters at a moment. With
    ``stays`` all asks are of one shape and only the node chosen last changes between two of them:
    these filters check that node, and the others are not checked again.
    """

    __slots__ = ("_among", "_last", "_left", "_nodes", "_order", "_stays", "_takes", "_when")

    def __init__(
        self,
        nodes: NodeTable,
        takes: Filters,
        rows: Mask | None,
        *,
        when: When = When.NOW,
        order: Order = AS_CONFIGURED,
        stays: Filters | None = None,
    ) -> None:
        self._nodes, self._takes, self._stays = nodes, takes, stays
        self._when, self._order = when, order
        self._among = None if rows is None else np.flatnonzero(rows)
        self._left: Amounts | None = None
        self._last: Node | None = None

    def node_for(self, shape: Shape) -> Node | None:
        """Return the first node of the domain that takes an ask, in order, or None."""
        left, last, stays = self._left, self._last, self._stays
        if left is None or last is None or stays is None:
            mask = self._takes.mask(shape, self._when, self._among)
            left = np.flatnonzero(mask) if self._among is None else self._among[mask]
        elif not stays.holds(last, shape):
            left = left[left != last.row]
        self._left = left
        self._last = last = self._nodes.order.first(left, shape, self._order)
        return last


# --- which node to reserve ----------------------------------------------------------------------


def node_to_reserve(nodes: NodeTable, shape: Shape) -> Node | None:
    """Return the unclaimed node that could hold an ask and whose room is the tightest, or None."""
    return nodes.room.tightest(shape)


def first_to_have_room(
    nodes: NodeTable, shape: Shape, most: int, expected_ns: Callable[[Node], int]
) -> tuple[Node | None, int, Node | None]:
    """Return the node expected to have room for an ask first, and when.

    Of unclaimed nodes the ``most`` that lack least are checked. The third is the first of which
    nothing is expected (0); where nothing is expected of any, it is the tightest.
    """
    expected = [(expected_ns(node), node) for node in nodes.room.nearest_to_hold(shape, most)]
    known = [entry for entry in expected if entry[0]]
    if not known:
        return None, 0, node_to_reserve(nodes, shape)
    at_ns, soonest = min(known, key=lambda entry: entry[0])
    return soonest, at_ns, next((node for known_ns, node in expected if not known_ns), None)
