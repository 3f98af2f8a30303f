"""Nodes that have the room now come before those where it is being released."""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.filters.combined import Filters


class IdleFirst:
    """What rows score for idle room: less is better."""

    def __init__(self, has_room: Filters) -> None:
        self._has_room = has_room

    def matters(self, _: Shape) -> bool:
        """Return that nodes score differently."""
        return True

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[np.bool_]:
        """Return which of some rows lack the room now."""
        return ~self._has_room.mask(shape, among=rows)
