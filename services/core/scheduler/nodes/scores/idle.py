"""A score by idle capacity: nodes that fit now come before those with capacity being released."""

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.filters.combined import Filters


class IdleFirst:
    """The score by idle capacity; less is better."""

    def __init__(self, has_room: Filters) -> None:
        self._has_room = has_room

    def matters(self, _: Shape) -> bool:
        """Return True: nodes score differently."""
        return True

    def of_rows(self, rows: Amounts, shape: Shape) -> NDArray[np.bool_]:
        """Return which of some rows do not fit now."""
        return ~self._has_room.mask(shape, among=rows)
