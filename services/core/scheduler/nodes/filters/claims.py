"""Whether claims leave a node open to a shape: one filter, with a rule for what may pass which.

A claim of an ask closes its node to every other. One of the head gang does so too, but to what ends
before the gang needs the node. By backfill a shape may have what all of them leave.
"""

from typing import NamedTuple

import numpy as np

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import BY_HEAD_GANG, CLOSED, Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.filters.base import Filter, Moment, failing
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import ROOM, Stage
from shared.model.reasons import TAKEN, Fact, Kind, Reason
from shared.model.resources import fits_room


class HeadGang:
    """For how long pods may run on the nodes that the head gang claims: it needs them then."""

    def __init__(self) -> None:
        self.nodes = 0
        self.backfill_ns = 0
        self.predicted_ns = 0  # the same by what is predicted of what states nothing

    def may_backfill(self, shape: Shape) -> bool:
        """Return whether a shape may go to those nodes: it ends before they are needed."""
        if shape.run_ns:
            return self.goes_first(shape)
        return 0 < shape.expected_ns <= self.predicted_ns

    def goes_first(self, shape: Shape) -> bool:
        """Return whether it goes there first: what it leaves is for those that run for longer.

        What may be there by a prediction alone goes there last: it may outlive it.
        """
        return 0 < shape.run_ns <= self.backfill_ns


class Rule(NamedTuple):
    """What may pass which claims: those that are ``counted``, of CLOSED, keep a shape away.

    ``in_time``: the head gang's keep nothing away that ends before it needs the node.
    ``leaves_enough``: none keeps a shape away that takes nothing which the claims lack.
    """

    counted: int = CLOSED
    in_time: bool = False
    leaves_enough: bool = False


NONE_PASSES = Rule()
PASSES_IN_TIME = Rule(in_time=True)
PASSES_ASKS = Rule(BY_HEAD_GANG, in_time=True)  # and the head gang's in time
BACKFILLS = Rule(leaves_enough=True)


class Claims(Filter):
    """No claim keeps a shape from a node, by a rule."""

    on = TAKEN

    def __init__(self, columns: NodeColumns, head_gang: HeadGang, rule: Rule) -> None:
        super().__init__(columns)
        self._head_gang, self._rule = head_gang, rule
        self.is_costly = rule.leaves_enough

    def _bars(self, shape: Shape) -> int:
        """Return what closes nodes to a shape."""
        counted, in_time, _ = self._rule
        if not self._head_gang.nodes or (in_time and self._head_gang.may_backfill(shape)):
            return counted & ~BY_HEAD_GANG
        return counted

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        bars = self._bars(shape)
        if not bars:
            return None
        found: Mask = (self._columns.claimed[at] & bars) == 0
        if self._rule.leaves_enough:
            nodes = self._columns.rows
            rows = np.arange(len(nodes))[at]
            for place in np.flatnonzero(~found).tolist():
                found[place] = leaves_enough(nodes[rows[place]], shape)
        return found

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        if not node.claimed or not node.claimed & self._bars(shape):
            return True
        return self._rule.leaves_enough and leaves_enough(node, shape)

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        passing = self.rows(shape, When.NOW, self._columns.all)
        return [] if passing is None else failing(TAKEN, left & ~passing)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return Reason.RESERVED, Fact(Kind.NODES, count=before.passed[ROOM])


def leaves_enough(node: Node, shape: Shape) -> bool:
    """Return whether a shape on a claimed node takes nothing that its claims lack.

    Of every type that it takes there must be left at least what asks claim, now. On a node of the
    head gang it takes no more than that gang leaves.
    """
    if node.head_claim is not None and not fits_room(node.head_claim.leaves, shape.resource):
        return False
    if shape.on_devices is not None and node.devices:
        free = list(open_devices(node))
        devices.change(free, devices.choose(free, shape.on_devices), -1)
        wanted_too = (
            claim.ask.shape.on_devices for claim in node.reservations.values() if claim.closes_node
        )
        if not all(need is None or devices.holds(free, need) for need in wanted_too):
            return False
    return all(
        taken <= 0 or node.available.get(name, 0) - taken >= wanted
        for claim in node.reservations.values()
        if claim.closes_node
        for name, wanted in claim.ask.shape.resource.items()
        for taken in (shape.resource.get(name, 0),)
    )
