"""The filter of GPU devices: whether the requested devices are free on a node."""

import numpy as np

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, At, Mask, NodeColumns, When
from services.core.scheduler.nodes.device_rows import places_on
from services.core.scheduler.nodes.filters.base import After, Filter, Moment
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_devices import NodeDevices
from shared.model.gpus import GPU, GPU_SHARE, WHOLE


class FreeDevices(Filter):
    """Whole devices, or the same share of several, are free."""

    def __init__(self, columns: NodeColumns, of_nodes: NodeDevices) -> None:
        super().__init__(columns)
        self._of = of_nodes

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        need = self._of.need_of(shape)
        if need is None:
            return None
        if when is When.NOW:
            return self._of.rows.holding(need, at)
        count = len(self._columns.rows)
        if when is When.EMPTY:
            return self._of.rows.holding_when_empty(need, count)[at]
        return self._of.rows_expected(need, count)[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        need = shape.on_devices
        if need is None or not self._of.are_shared:
            return True
        if isinstance(when, After):
            return self._of.holds_after(node, need, when.gone, when.coming)
        if when is When.NOW or not node.devices:
            return places_on(node, need) > 0
        is_empty = when is When.EMPTY
        free = [WHOLE] * len(node.devices) if is_empty else self._of.expected(node)
        return devices.holds(free, need)

    def times(self, shape: Shape, when: When) -> Amounts | None:
        """Return for how many asks every row has the devices; None: no limit."""
        need = self._of.need_of(shape)
        if need is None:
            return None
        count = len(self._columns.rows)
        if when is When.EXPECTED:
            return self._of.places_expected(need, count)
        return self._of.rows.places(need, count, when_empty=when is When.EMPTY)

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        """Return nodes without the devices as lacking GPUs, or GPU shares."""
        passing = self.rows(shape, When.NOW, self._columns.all)
        name = next((name for name in (GPU, GPU_SHARE) if shape.resource.get(name, 0) > 0), GPU)
        mask = left & ~passing if passing is not None else np.zeros(left.size, dtype=np.bool_)
        number = int(np.count_nonzero(mask))
        return [Failing(name, mask, number)] if number else []
