"""Packing and spreading of the policy kai: by the requested type's capacity, expected included.

``kai`` of a ``nodesortpolicy`` is the same packing for idle capacity, with an index for each shape.

Packing: nodes without accelerators first for asks without them, then the least remaining
accelerators, else vcore, else the first type by name; amounts, not ratios: of two empty nodes the
smaller one. Spreading: accelerators likewise, then the largest remaining ratio.
Source: docs/rules/kai.md#scores-and-domains.
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
_WRONG_TYPE = 1 << 62  # above any amount: a node with accelerators that are not requested
_MOST = _WRONG_TYPE - 1


def _accelerators(shape: Shape) -> str:
    """Return the accelerator type of a shape, whole or shares; "": none."""
    return next((name for name in (GPU, GPU_SHARE) if shape.resource.get(name, 0) > 0), "")


def _wrong(columns: NodeColumns, shape: Shape, rows: Amounts) -> Mask | None:
    """Return the rows with accelerators that a shape does not request; None: irrelevant."""
    if _accelerators(shape):
        return None
    gpus = columns.amounts(GPU, When.EMPTY, rows)
    return None if gpus is None else gpus > 0


class Packing:
    """The packing score in searches; no index covers it."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[np.float64]:
        """Return the scores of some rows; less is better."""
        known, wrong = self._columns.numbers, _wrong(self._columns, shape, rows)
        marks = np.zeros(rows.size, dtype=np.float64)
        if wrong is not None:
            marks -= ~wrong * _TYPE_MARKS
        name = _accelerators(shape) or (VCORE if VCORE in known else min(known, default=VCORE))
        return marks - self._place(rows, name) * _PLACE_MARKS

    def _place(self, rows: Amounts, name: str) -> NDArray[np.float64]:
        """Return values from 0 to 1 by the expected amounts of a type; 1 is best."""
        room = self._columns.amounts(name, When.EXPECTED, rows)
        low, high = (0, 0) if room is None else (room.min(), room.max())
        if room is None or low == high:
            return np.ones(rows.size, dtype=np.float64)
        left = room.astype(np.float64) - float(low)
        place: NDArray[np.float64] = 1.0 - np.divide(left, float(high) - float(low))
        return place


class Spreading(Packing):
    """The spreading score: the node with the largest remaining ratio first."""

    def _place(self, rows: Amounts, name: str) -> NDArray[np.float64]:
        room = self._columns.amounts(name, When.EXPECTED, rows)
        total = self._columns.amounts(name, When.EMPTY, rows)
        if room is None or total is None:
            return np.zeros(rows.size, dtype=np.float64)
        return room / np.maximum(total, 1)


class AsKai(NodeScore):
    """``kai``: nodes without accelerators for asks without, then the least remaining amount.

    Whole accelerators are counted, and parts of devices once shares are in use.
    """

    looks_at_ask = True

    def __init__(self, scored: Scored) -> None:
        super().__init__(scored)
        self._devices = scored.devices

    def of_node(self, node: Node, shape: Shape) -> int:
        """Return a node's remaining accelerators, or vcore for an ask without any."""
        if _accelerators(shape):
            if self._devices.are_shared:
                return sum(max(left, 0) for left in open_devices(node))
            return min(node.available.get(GPU, 0), _MOST)
        is_wrong = node.capacity.get(GPU, 0) > 0
        return min(node.available.get(VCORE, 0), _MOST) + (_WRONG_TYPE if is_wrong else 0)

    def of_rows(self, rows: Amounts, shape: Shape) -> Amounts:
        """Return the same for some rows."""
        wanted = _accelerators(shape)
        if wanted and self._devices.are_shared:
            free, _ = self._devices.rows.open(rows)
            left_of_all: Amounts = np.maximum(free, 0).sum(axis=1, dtype=np.int64)
            return left_of_all
        left = self._columns.amounts(GPU if wanted else VCORE, When.NOW, rows)
        marks = np.zeros(rows.size, dtype=np.int64) if left is None else np.minimum(left, _MOST)
        wrong = _wrong(self._columns, shape, rows)
        return marks if wrong is None else marks + wrong * _WRONG_TYPE
