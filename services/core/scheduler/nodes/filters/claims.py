"""Whether a node is claimed by others: reserved for an ask, or held for the gang that has the lane.

A claim closes its node to everybody else, but to who may backfill it.
"""

import numpy as np

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.filters.base import Filter, Moment, failing
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import ROOM, Stage
from shared.model.reasons import TAKEN, Fact, Kind, Reason
from shared.model.resources import fits_room


class Unclaimed(Filter):
    """No claim at all: such nodes are indexed."""

    on = TAKEN

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        return ~(self._columns.reserved[at] | self._columns.held[at])

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return not (node.is_held or node.reservations)


class Lane:
    """For how long pods may run on nodes that are held: they end before the gang needs them."""

    def __init__(self) -> None:
        self.nodes_held = 0
        self.backfill_ns = 0

    def may_backfill(self, shape: Shape) -> bool:
        """Return whether a shape may go to nodes that are held: it ends before they are needed.

        There it goes first: what it leaves of the others is for those that run for longer.
        """
        return 0 < shape.run_ns <= self.backfill_ns


class OpenTo(Filter):
    """Not reserved; and not held, but where the shape ends before the node is needed."""

    on = TAKEN

    def __init__(self, columns: NodeColumns, lane: Lane) -> None:
        super().__init__(columns)
        self._lane = lane

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        return ~self._claimed(shape, at)

    def _claimed(self, shape: Shape, at: At) -> Mask:
        if not self._lane.nodes_held or self._lane.may_backfill(shape):
            return self._columns.reserved[at]
        return self._columns.reserved[at] | self._columns.held[at]

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        return failing(TAKEN, left & self._claimed(shape, self._columns.all))

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return not node.reservations and (not node.is_held or self._lane.may_backfill(shape))

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return Reason.RESERVED, Fact(Kind.NODES, count=before.passed[ROOM])


class Held(Filter):
    """Held for the lane's gang, and not reserved."""

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        return self._columns.held[at] & ~self._columns.reserved[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return node.is_held and not node.reservations


class NotHeld(OpenTo):
    """Not held, but where the shape ends before the node is needed; reserved or not."""

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        if not self._lane.nodes_held or self._lane.may_backfill(shape):
            return None
        return ~self._columns.held[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return not node.is_held or self._lane.may_backfill(shape)


class LeavesEnough(Filter):
    """What is claimed of the node is there when the shape has what it takes.

    Of every type that it takes there must be left at least what is reserved, now. On a node that is
    held for the lane's gang it takes no more than that gang leaves.
    """

    is_costly = True

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        nodes = self._columns.rows
        among = range(len(nodes))[at] if isinstance(at, slice) else at.tolist()
        return np.array([leaves_enough(nodes[row], shape) for row in among], dtype=np.bool_)

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return leaves_enough(node, shape)


def leaves_enough(node: Node, shape: Shape) -> bool:
    """Return whether a shape on a claimed node takes nothing that its claims lack."""
    if node.is_held and not fits_room(node.spare, shape.resource):
        return False
    if shape.on_devices is not None and node.devices:
        free = list(open_devices(node))
        devices.change(free, devices.choose(free, shape.on_devices), -1)
        wanted_too = (held.ask.shape.on_devices for held in node.reservations.values())
        if not all(need is None or devices.holds(free, need) for need in wanted_too):
            return False
    return all(
        taken <= 0 or node.available.get(name, 0) - taken >= wanted
        for reservation in node.reservations.values()
        for name, wanted in reservation.ask.shape.resource.items()
        for taken in (shape.resource.get(name, 0),)
    )
