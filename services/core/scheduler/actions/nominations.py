"""Capacity that other schedulers nominated pods for: reserved, except against higher priorities.

Rule 1: a pod that another scheduler nominated for a node counts there as running.
Rule 2: if no node fits an ask of higher priority, and one would without nominated pods of lower
        priority, these are not counted until they are reported again, as in kube-scheduler.
Cost: the nominated pods, at the end of a cycle; nothing if there are none.
Limit: MAX_GROUPS groups of a shape are checked for the highest priority.
"""

from itertools import islice

from services.core.scheduler.model.node_fit import matches
from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.statement import node_moves
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.resources import Resource, add_into, fits_room

MAX_GROUPS = 1_000  # groups of a shape checked for its highest priority; others are not


def give_way(partition: Partition) -> bool:
    """Remove a node's nominated pods for asks of higher priority; return whether any were."""
    for node_id in dict.fromkeys(partition.nominated.values()):
        node = partition.nodes.nodes[node_id]
        going = _blockers(partition, node) if node.schedulable else []
        for pod in going:
            node_moves.remove_foreign(partition, pod)
        if going:
            return True
    return False


def _blockers(partition: Partition, node: Node) -> list[Allocation]:
    """Return the nominated pods whose removal makes room for an ask of higher priority."""
    nominated = [pod for key, pod in node.foreign.items() if key in partition.nominated]
    for shape in partition.blocked_shapes.fitting(_without(node, nominated)):
        highest = _highest(partition, shape)
        lower = [pod for pod in nominated if highest is not None and pod.priority < highest]
        is_enough = bool(lower) and fits_room(_without(node, lower), shape.resource)
        if is_enough and matches(shape.constraints, node):
            return lower
    return []


def _without(node: Node, pods: list[Allocation]) -> Resource:
    room: Resource = dict(node.available)
    for pod in pods:
        add_into(room, pod.resource_per_alloc)
    return room


def _highest(partition: Partition, shape: Shape) -> int | None:
    """Return the highest priority of a shape's asks that wait for nodes, None if none do."""
    buckets = partition.root.blocked_buckets.get(shape, ())
    groups = islice((group for bucket in buckets for group in bucket.groups), MAX_GROUPS)
    heads = (group.head() for group in groups)
    return max((ask.request.priority for ask in heads if ask is not None), default=None)
