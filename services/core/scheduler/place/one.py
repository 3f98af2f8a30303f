"""Chooses the node for one ask: to allocate now, or to reserve.

An ask gets a node now (``node_for``), in a domain together with the asks of its gang
(``InDomain``), or a reservation (``node_to_reserve``, ``first_to_have_room``). The cycle and the
preemption actions call it.
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
    """Return the node for an ask now: its own if it fits, else the first in node order, or None.

    ``own`` is the node that is claimed for it, by its reservation or its placeholder. An ask with a
    required node gets that one or None, and not if others claim it. With ``backfill`` it may use
    capacity of a claimed node that the claims do not need.
    """
    if own is not None and nodes.filters.takes.holds(own, shape):
        return own
    required = shape.constraints.required_node
    if not required:
        return nodes.order.best(shape, backfill=backfill)
    node = nodes.nodes.get(required)
    return node if node is not None and nodes.filters.open.holds(node, shape) else None


def held_node_for(nodes: NodeTable, shape: Shape) -> Node | None:
    """Return the first node reserved for the head gang that fits an ask, or None."""
    return nodes.order.best_held(shape)


class InDomain:
    """Chooses nodes in one domain for asks that are placed one after another.

    ``rows`` are the domain's rows (None: all nodes), ``takes`` the filters. With ``stays`` all asks
    have one shape and only the node chosen last changes in between: ``stays`` filters that node,
    and the others are not filtered again.
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
        """Return the domain's first node in order that fits an ask, or None."""
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
    """Return the unclaimed node with the tightest capacity that could fit an ask, or None."""
    return nodes.room.tightest(shape)


def first_to_have_room(
    nodes: NodeTable, shape: Shape, most: int, expected_ns: Callable[[Node], int]
) -> tuple[Node | None, int, Node | None]:
    """Return the node that is expected to fit an ask first, the time in ns, and an alternative.

    At most ``most`` unclaimed nodes are checked, those that lack least. The alternative is the
    first node without an expected time; if no node has one, it is the tightest.
    """
    expected = [(expected_ns(node), node) for node in nodes.room.nearest_to_hold(shape, most)]
    known = [entry for entry in expected if entry[0]]
    if not known:
        return None, 0, node_to_reserve(nodes, shape)
    at_ns, soonest = min(known, key=lambda entry: entry[0])
    return soonest, at_ns, next((node for known_ns, node in expected if not known_ns), None)
