"""The filter of a gang's domain: the domain of existing members, for one more pod."""

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.domains import Domains
from services.core.scheduler.nodes.filters.base import Filter, Moment
from services.core.scheduler.nodes.node_view import Stage
from shared.model.reasons import DOMAIN, Fact, Kind, Reason


class InDomain(Filter):
    """The node is in the required domain and slices of the gang's present members."""

    on = DOMAIN
    is_costly = True

    def __init__(self, columns: NodeColumns, domains: Domains) -> None:
        super().__init__(columns)
        self._domains = domains

    def matters(self, shape: Shape) -> bool:
        return shape.gang_part is not None

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        if shape.gang_part is None:
            return None
        return self._domains.open_rows(*shape.gang_part)[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        if shape.gang_part is None:
            return True
        gang, part = shape.gang_part
        return self._domains.is_open(gang, part, node)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return Reason.TOPOLOGY, Fact(Kind.NODES, count=before.number)
