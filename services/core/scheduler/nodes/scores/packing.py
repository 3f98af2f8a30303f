"""Packing and spreading of the policy kai: by the room of what is asked for, coming room included.

``kai`` of a ``nodesortpolicy`` is the same packing for idle room: one index for each shape follows
it.

Order when packing: nodes without accelerators for asks without (resource type), then the least of
accelerators, else of processors, else of the first type by name, that is left or being released.
Amounts, not shares: of two empty nodes the smaller one. When spreading: the resource type, too, and
then the largest share that is left. Source: docs/rules/kai.md#scores-and-domains.
"""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask, NodeColumns, When
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.nodes.scores.base import NodeScore, Scored
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.resources import VCORE

_TYPE_MARKS, _PLACE_MARKS = 10.0, 9.0
_WRONG_TYPE = 1 << 62  # above any amount that counts: a node with accelerators that none asks for
_MOST = _WRONG_TYPE - 1


def _accelerators(shape: Shape) -> str:
    """Return which accelerators a shape asks for, whole ones or shares of them; "": none."""
    return next((name for name in (GPU, GPU_SHARE) if shape.resource.get(name, 0) > 0), "")


def _wrong(columns: NodeColumns, shape: Shape, rows: Amounts) -> Mask | None:
    """Return which rows have accelerators of which a shape asks for none; None: no matter."""
    if _accelerators(shape):
        return None
    gpus = columns.amounts(GPU, When.EMPTY, rows)
    return None if gpus is None else gpus > 0


class Packing:
    """What nodes score in searches; no index follows it."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[np.float64]:
        """Return what some rows score for a shape; less is better."""
        known, wrong = self._columns.numbers, _wrong(self._columns, shape, rows)
        marks = np.zeros(rows.size, dtype=np.float64)
        if wrong is not None:
            marks -= ~wrong * _TYPE_MARKS
        name = _accelerators(shape) or (VCORE if VCORE in known else min(known, default=VCORE))
        return marks - self._place(rows, name) * _PLACE_MARKS

    def _place(self, rows: Amounts, name: str) -> NDArray[np.float64]:
        """Return from 0 to 1 how good rows are by what they will have of a type."""
        room = self._columns.amounts(name, When.EXPECTED, rows)
        low, high = (0, 0) if room is None else (room.min(), room.max())
        if room is None or low == high:
            return np.ones(rows.size, dtype=np.float64)
        left = room.astype(np.float64) - float(low)
        place: NDArray[np.float64] = 1.0 - np.divide(left, float(high) - float(low))
        return place


class Spreading(Packing):
    """The other way round: the node with the largest share that is left."""

    def _place(self, rows: Amounts, name: str) -> NDArray[np.float64]:
        room = self._columns.amounts(name, When.EXPECTED, rows)
        total = self._columns.amounts(name, When.EMPTY, rows)
        if room is None or total is None:
            return np.zeros(rows.size, dtype=np.float64)
        return room / np.maximum(total, 1)


class AsKai(NodeScore):
    """``kai``: nodes without accelerators for asks without, then the least that is left.

    Of accelerators whole ones are counted, and parts of devices once anybody asks for shares.
    """

    looks_at_ask = True

    def __init__(self, scored: Scored) -> None:
        super().__init__(scored)
        self._devices = scored.devices

    def of_node(self, node: Node, shape: Shape) -> int:
        """Return what a node has left of accelerators, or of processors for an ask without any."""
        if _accelerators(shape):
            if self._devices.are_shared:
                return sum(max(left, 0) for left in open_devices(node))
            return min(node.available.get(GPU, 0), _MOST)
        is_wrong = node.capacity.get(GPU, 0) > 0
        return min(node.available.get(VCORE, 0), _MOST) + (_WRONG_TYPE if is_wrong else 0)

    def of_rows(self, rows: Amounts, shape: Shape) -> Amounts:
        """Return the same of some rows."""
        wanted = _accelerators(shape)
        if wanted and self._devices.are_shared:
            free, _ = self._devices.rows.open(rows)
            left_of_all: Amounts = np.maximum(free, 0).sum(axis=1, dtype=np.int64)
            return left_of_all
        left = self._columns.amounts(GPU if wanted else VCORE, When.NOW, rows)
        marks = np.zeros(rows.size, dtype=np.int64) if left is None else np.minimum(left, _MOST)
        wrong = _wrong(self._columns, shape, rows)
        return marks if wrong is None else marks + wrong * _WRONG_TYPE
