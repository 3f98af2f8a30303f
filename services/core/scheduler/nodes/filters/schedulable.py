"""The filter of schedulable nodes: not cordoned, not draining, ready."""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, When
from services.core.scheduler.nodes.filters.base import Filter, Moment
from services.core.scheduler.nodes.node_view import Stage
from shared.model.reasons import UNSCHEDULABLE, Fact, Kind, Reason


class Schedulable(Filter):
    """The node is schedulable, or the ask requires it (a DaemonSet's)."""

    on = UNSCHEDULABLE

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        return None if shape.constraints.required_node else self._columns.schedulable[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        return node.schedulable or bool(shape.constraints.required_node)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return Reason.NO_NODES, Fact(Kind.NODES, total=before.number)
