"""The filter of volumes: limits of attached volumes, and exclusive claims."""

from collections.abc import Mapping
from dataclasses import replace

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.filters.base import Filter, Moment, failing
from services.core.scheduler.nodes.filters.pods import pods_as_of
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import ROOM, Stage
from services.core.scheduler.nodes.pod_topology import PodIndex
from shared.model.reasons import IN_USE, VOLUMES, Fact, Reason


class Volumes(Filter):
    """The node's volume limits allow the volumes, and no exclusive claim is in use."""

    on = VOLUMES
    is_costly = True

    def __init__(self, columns: NodeColumns, pods: PodIndex, nodes: Mapping[str, Node]) -> None:
        super().__init__(columns)
        self._pods, self._nodes = pods, nodes

    def matters(self, shape: Shape) -> bool:
        return bool(shape.constraints.volumes)

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        wanted = shape.constraints.volumes
        if not wanted:
            return None
        self._pods.be_counted()
        open_rows = self._pods.volumes.open_rows
        if when is When.EMPTY:
            open_rows = self._pods.volumes.open_when_empty
        return open_rows(wanted, self._columns.rows)[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        wanted = shape.constraints.volumes
        if not wanted:
            return True
        if when is When.EMPTY:
            return bool(self._pods.volumes.open_when_empty(wanted, [node])[0])
        self._pods.be_counted()
        with pods_as_of(self._pods, self._nodes, node, when):
            return bool(self._pods.volumes.open_rows(wanted, self._columns.rows)[node.row])

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        rows = self.rows(shape, When.NOW, self._columns.all)
        if rows is None:
            return []
        in_use = IN_USE if self._pods.volumes.is_in_use(shape.constraints.volumes) else ""
        return failing(VOLUMES, left & ~rows, in_use)

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        fact = self._pods.volumes.why_none(shape.constraints.volumes, self._columns.rows)
        return Reason.VOLUMES, replace(fact, with_room=before.passed[ROOM])
