"""The filter of capacity: whether a node could fit a shape if it were empty."""

from functools import reduce

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.filters.base import Filter, Moment, failing
from services.core.scheduler.nodes.filters.devices import FreeDevices
from services.core.scheduler.nodes.filters.room import Room
from services.core.scheduler.nodes.node_classes import Failing, split
from services.core.scheduler.nodes.node_view import USABLE, Stage
from shared.model.gpus import GPU
from shared.model.reasons import TOO_SMALL, Fact, Kind, Reason

MAX_LACKING = 128  # sets of types that empty nodes lack; more types are omitted


class Size(Filter):
    """The node's capacity and devices are enough when it is empty."""

    on = TOO_SMALL

    def __init__(self, columns: NodeColumns, room: Room, free_devices: FreeDevices) -> None:
        super().__init__(columns)
        self._parts = (room, free_devices)

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        amounts = None if self._lacked(shape) == () else self._parts[0].rows(shape, When.EMPTY, at)
        of_devices = self._parts[1].rows(shape, When.EMPTY, at)
        found = [mask for mask in (amounts, of_devices) if mask is not None]
        return reduce(np.logical_and, found) if found else None

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return all(part.holds(node, shape, When.EMPTY) for part in self._parts)

    def _lacked(self, shape: Shape) -> tuple[str, ...]:
        """Return the types that a node may lack when empty."""
        numbers, least = self._columns.numbers, self._columns.least_capacities()
        lacked = [
            name
            for name, value in shape.wanted.items()
            if name not in numbers or least[numbers[name]] < value
        ]
        return tuple(lacked)

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        """Return the refused rows by the types that they lack."""
        lacked = self._lacked(shape)
        if not lacked and shape.on_devices is None:
            return []
        if len(lacked) == 1 and shape.on_devices is None:
            return failing(TOO_SMALL, left & self._lacks(lacked[0], shape, left), lacked[0])
        passing = self.rows(shape, When.EMPTY, self._columns.all)
        rows = left & ~passing if passing is not None else np.zeros_like(left)
        codes = np.zeros(rows.size, dtype=np.int64)
        texts = [GPU if shape.on_devices is not None else ""]
        for name in lacked:
            if len(texts) <= MAX_LACKING:
                codes += self._lacks(name, shape, rows) * len(texts)
                texts += [f"{text},{name}" if at else name for at, text in enumerate(texts)]
        return split(TOO_SMALL, rows, codes, texts)

    def _lacks(self, name: str, shape: Shape, rows: Mask) -> Mask:
        """Return which rows' capacity lacks a type; ``rows`` if no node has the type."""
        amounts = self._columns.amounts(name, When.EMPTY, self._columns.all)
        return rows if amounts is None else amounts < shape.resource[name]

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        total = before.passed[USABLE]
        return Reason.NODE_TOO_SMALL, Fact(Kind.NODES, total=total, amount=shape.resource)
