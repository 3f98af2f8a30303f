"""The filter of claims, with a rule for which claims a shape may pass.

An ask's claim closes its node to all others. A claim of the head gang does too, except to asks that
end before the gang needs the node. With backfill a shape may use what all claims leave.
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


class BackfillWindow:
    """How long pods may run on the nodes claimed by the head gang, in ns."""

    def __init__(self) -> None:
        self.nodes = 0
        self.backfill_ns = 0
        self.predicted_ns = 0  # the same for predicted run times

    def may_backfill(self, shape: Shape) -> bool:
        """Whether a shape may use those nodes: it ends before they are needed."""
        if shape.run_ns:
            return self.goes_first(shape)
        return 0 < shape.expected_ns <= self.predicted_ns

    def goes_first(self, shape: Shape) -> bool:
        """Whether a shape uses those nodes first, leaving others to longer asks.

        Asks by a predicted run time use them last, because they may outlive it.
        """
        return 0 < shape.run_ns <= self.backfill_ns


class Rule(NamedTuple):
    """Which claims close a node to a shape: those of the flags ``counted``, of CLOSED.

    ``in_time``: the head gang's claims do not close it to shapes that end in time.
    ``leaves_enough``: no claim closes it to a shape that leaves enough for the claims.
    """

    counted: int = CLOSED
    in_time: bool = False
    leaves_enough: bool = False


NONE_PASSES = Rule()
PASSES_IN_TIME = Rule(in_time=True)
PASSES_ASKS = Rule(BY_HEAD_GANG, in_time=True)  # passes asks' claims, the head gang's in time
BACKFILLS = Rule(leaves_enough=True)


class Claims(Filter):
    """No claim closes the node to the shape, by a rule."""

    on = TAKEN

    def __init__(self, columns: NodeColumns, backfill_window: BackfillWindow, rule: Rule) -> None:
        super().__init__(columns)
        self._backfill_window, self._rule = backfill_window, rule
        self.is_costly = rule.leaves_enough

    def _bars(self, shape: Shape) -> int:
        """Return the flags of claims that close nodes to a shape."""
        counted, in_time, _ = self._rule
        if not self._backfill_window.nodes or (
            in_time and self._backfill_window.may_backfill(shape)
        ):
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
    """Whether a shape on a claimed node leaves enough for its claims.

    Of every type that it uses, at least the asks' claims must remain free now. On a node of the
    head gang it uses at most what the gang leaves.
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
