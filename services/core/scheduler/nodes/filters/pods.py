"""The filter of other pods: affinity, anti-affinity, topology spread, host ports."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import At, Mask, NodeColumns, When
from services.core.scheduler.nodes.filters.base import After, Filter, Moment, failing
from services.core.scheduler.nodes.node_classes import Failing
from services.core.scheduler.nodes.node_view import ELIGIBLE, ROOM, SELECTED, NodeViews, Stage
from services.core.scheduler.nodes.pod_topology import Pod, PodIndex, PodLimits
from shared.messages.constraints import NO_CONSTRAINTS
from shared.model.reasons import OTHER_PODS, Fact, Kind, Reason


class OtherPods(Filter):
    """Constraints between pods, with the present counts."""

    on = OTHER_PODS
    is_costly = True

    def __init__(
        self, columns: NodeColumns, views: NodeViews, pods: PodIndex, nodes: Mapping[str, Node]
    ) -> None:
        super().__init__(columns)
        self._views, self._pods, self._nodes = views, pods, nodes

    def matters(self, shape: Shape) -> bool:
        return self._pods.concern(shape)

    def limits(self, shape: Shape) -> PodLimits:
        """Return the nodes that pods allow for a shape; valid until a pod changes."""
        first = self._views.of(shape).first
        return self._pods.limits(shape, first[ELIGIBLE], first[SELECTED])

    def rows(self, shape: Shape, when: When, at: At) -> Mask | None:
        if not self.matters(shape):
            return None
        if when is When.EMPTY:
            return self._pods.mask_when_empty(shape)[at]
        return self.limits(shape).open_rows(len(self._columns.rows))[at]

    def holds(self, node: Node, shape: Shape, when: Moment) -> bool:
        if shape.constraints is NO_CONSTRAINTS and not shape.labels:
            return True
        if isinstance(when, After):
            if not (self.matters(shape) or (when.coming and shape.labels)):
                return True
            with pods_as_of(self._pods, self._nodes, node, when):
                return self._is_open(node, shape)
        if when is When.EMPTY:
            return bool(self._pods.mask_when_empty(shape)[node.row])
        return self._is_open(node, shape)

    def _is_open(self, node: Node, shape: Shape) -> bool:
        return not self.matters(shape) or self.limits(shape).leaves_open(node)

    def why(self, shape: Shape, left: Mask) -> list[Failing]:
        """Return each refused row with the first rule that refuses it, in Kubernetes' order."""
        found: list[Failing] = []
        first = self._views.of(shape).first
        eligible, selected = first[ELIGIBLE], first[SELECTED]
        for cause, closed in self._pods.closed_by(shape, eligible, selected):
            found += failing(OTHER_PODS, left & closed, cause.value)
            left = left & ~closed
        return found

    def reason(self, shape: Shape, before: Stage) -> tuple[Reason, Fact]:
        return Reason.OTHER_PODS, Fact(Kind.NODES, count=before.passed[ROOM])


@contextmanager
def pods_as_of(
    pods: PodIndex, nodes: Mapping[str, Node], node: Node, when: Moment
) -> Iterator[None]:
    """Count pods as of a later state: ended ones removed, started ones on this node."""
    if not isinstance(when, After):
        yield
        return
    pods.be_counted()
    moves: list[tuple[Node, Pod, int]] = [
        (nodes[pod.node_id], pod, -1) for pod in when.gone if pod.node_id in nodes
    ]
    moves += [(node, pod, 1) for pod in when.coming]
    for at, pod, change in moves:
        pods.count(at, pod, change)
    yield
    for at, pod, change in reversed(moves):
        pods.count(at, pod, -change)
