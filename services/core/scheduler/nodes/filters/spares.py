"""The filter of spare nodes (``nodes/spares.py``)."""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.filters.base import Filter, Moment
from services.core.scheduler.nodes.node_view import ROOM, Stage
from services.core.scheduler.nodes.spares import Spares
from shared.model.reasons import TAKEN, Fact, Kind, Reason


class Spare(Filter):
    """Only short pods, and replacements in a gang, may use spare nodes."""

    on = TAKEN

    def __init__(self, columns: NodeColumns, spares: Spares, *, none_passes: bool = False) -> None:
        """Create the filter; ``none_passes``: it refuses all, for an index shared by run times."""
        super().__init__(columns)
        self._spares, self._none_passes = spares, none_passes

    def matters(self, shape: Shape) -> bool:
        spares = self._spares
        return bool(spares.nodes) and (self._none_passes or not spares.may_use_all(shape))

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        if not self.matters(shape):
            return None
        return ~self._spares.mask(None if self._none_passes else shape)[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        if node not in self._spares.nodes:
            return True
        return not self._none_passes and self._spares.may_use(shape, node)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return Reason.RESERVED, Fact(Kind.NODES, count=before.passed.get(ROOM, before.number))
