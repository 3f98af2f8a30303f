"""The base of filters: one condition whether a node fits asks of a shape.

A filter is a class in a file of its own and a line in ``NodeFilters``. It answers for one node
(``holds``); where that is too slow also for many rows at once (``rows``); and it explains refusals
(``why``, ``reason``). A filter that reads only node properties, such as labels and annotations, is
a ``NodeFilter``: its answers are cached by row.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import NodeViews, Stage
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.reasons import Fact, Kind, Reason


class After(NamedTuple):
    """A state after some allocations ended, on any nodes, and others started on the node.

    In addition to what the open statement expects. Of ``gone`` the amounts and devices on the node
    count, of ``coming`` all.
    """

    gone: Sequence[Allocation] = ()
    coming: Sequence[Allocation | AllocationAsk] = ()


Moment: TypeAlias = When | After


class Filter:
    """One condition. ``on`` is the word for it in reports of refusing nodes."""

    on = ""
    is_costly = False  # evaluated last, for the remaining rows only

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns

    def matters(self, shape: Shape) -> bool:
        """Whether it may refuse a node."""
        return True

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        """Return which of some rows it accepts; None: all."""
        nodes = self._columns.rows
        among = range(*at.indices(len(nodes))) if isinstance(at, slice) else at.tolist()
        return np.array([self.holds(nodes[row], shape, when) for row in among], dtype=np.bool_)

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        """Whether it accepts one node."""
        raise NotImplementedError

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        """Return which of the remaining rows it refuses now, and why.

        A row may be refused for several reasons.
        """
        passing = self.rows(shape, When.NOW, self._columns.all)
        return [] if passing is None else failing(self.on, left & ~passing)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        """Return the reason if it refuses all remaining rows."""
        return Reason.CONSTRAINTS, Fact(Kind.FILTER, self.on, count=before.number)


class NodeFilter(Filter):
    """A filter by node properties only; a subclass defines ``admits``."""

    is_of_labels = False  # whether it reads only taints, and labels named by the shape
    depends_on_amounts = False  # whether answers depend on the shape's amounts

    def __init__(self, columns: NodeColumns, views: NodeViews) -> None:
        super().__init__(columns)
        self._views = views
        self.place = 0  # its index among the cached facts

    def admits(self, node: Node, shape: Shape) -> bool:
        """Whether a node accepts a shape."""
        raise NotImplementedError

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        """Return which of some rows this and all earlier cached filters accept."""
        return self._views.of(shape).first[self.place][at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        """Whether it accepts a node."""
        return self.admits(node, shape)


def failing(on: str, rows: Mask, detail: str = "") -> list[Failing]:
    """Return some rows as refused for one reason; [] without rows."""
    number = int(np.count_nonzero(rows))
    return [Failing(on, rows, number, detail)] if number else []
