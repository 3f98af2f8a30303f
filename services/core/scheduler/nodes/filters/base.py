"""What a filter is: one fact about whether a node takes asks of a shape.

A filter is a class in a file of its own and a line in ``NodeFilters``. It answers for one node
(``holds``); where that is not enough it answers for many rows in one step (``rows``), and says what
nodes fail on (``why``, ``reason``). One that looks at nothing but what the node is, as its labels
and annotations, is a ``NodeFilter``: its answers are remembered by row until the node is another.
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
    """Once some allocations have gone from the nodes where they are, and pods come to the node.

    That is beside what the open statement expects. Of the amounts and devices of ``gone`` those on
    the node count, of ``coming`` all.
    """

    gone: Sequence[Allocation] = ()
    coming: Sequence[Allocation | AllocationAsk] = ()


Moment: TypeAlias = When | After


class Filter:
    """One fact. ``on`` is the word under which nodes that fail on it are reported."""

    on = ""
    is_costly = False  # it is asked last, of the rows alone that are left

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns

    def matters(self, shape: Shape) -> bool:
        """Return whether it may not hold for some node."""
        return True

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        """Return which of some rows it holds for; None: for all of them."""
        nodes = self._columns.rows
        among = range(*at.indices(len(nodes))) if isinstance(at, slice) else at.tolist()
        return np.array([self.holds(nodes[row], shape, when) for row in among], dtype=np.bool_)

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        """Return whether it holds for one node."""
        raise NotImplementedError

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        """Return which of the rows that are left it does not hold for now, and on what they fail.

        A row may fail on several things.
        """
        passing = self.rows(shape, When.NOW, self._columns.all)
        return [] if passing is None else failing(self.on, left & ~passing)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        """Return why no node takes a shape where all that were left before fail on this."""
        return Reason.CONSTRAINTS, Fact(Kind.FILTER, self.on, count=before.number)


class NodeFilter(Filter):
    """A fact that looks at nothing but what the node is: a subclass says ``admits``."""

    is_of_labels = False  # whether it looks at nothing but taints, and labels that a shape names
    depends_on_amounts = False  # whether shapes that differ in amounts only may have other answers

    def __init__(self, columns: NodeColumns, views: NodeViews) -> None:
        super().__init__(columns)
        self._views = views
        self.place = 0  # among the facts that views remember

    def admits(self, node: Node, shape: Shape) -> bool:
        """Return whether a node may take a shape."""
        raise NotImplementedError

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        """Return which of some rows this holds for, and what was remembered before it."""
        return self._views.of(shape).first[self.place][at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        """Return whether it holds for a node."""
        return self.admits(node, shape)


def failing(on: str, rows: Mask, detail: str = "") -> list[Failing]:
    """Return that some rows fail on something; nothing where there are none."""
    number = int(np.count_nonzero(rows))
    return [Failing(on, rows, number, detail)] if number else []
