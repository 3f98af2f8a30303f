"""When a node is expected to have room: by when its pods end (``model/run_times.py``)."""

from collections.abc import Iterator, Mapping

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.run_times import NEVER_NS, end_ns
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.statement.partition import Partition
from shared.model.resources import add_into


def ends(partition: Partition, node: Node) -> Iterator[tuple[int, Mapping[str, int]]]:
    """Yield when the pods of a node are expected to end, and what they hold."""
    for key, allocation in node.allocations.items():
        application = partition.applications.get(allocation.application_id)
        if application is None:
            continue
        is_going = key in application.released and key not in application.replacing
        at_ns = partition.now_ns + 1
        if not is_going or key in application.covering or application.moves(key):
            at_ns = end_ns(partition.run_times, application, allocation, partition.now_ns)
        yield at_ns, allocation.resource_per_alloc


def fits_times(room: Mapping[str, int], shape: Shape) -> int:
    """Return how often a shape goes into a room."""
    wanted = [(name, value) for name, value in shape.resource.items() if value > 0]
    return max(0, min((room.get(name, 0) // value for name, value in wanted), default=0))


def room_ns(partition: Partition, node: Node, shape: Shape) -> int:
    """Return when a node is expected to have the room for a shape, 0: now; NEVER_NS: not known."""
    room = dict(node.available)
    going = sorted(ends(partition, node), key=lambda end: end[0])
    for at_ns, more in [(0, {}), *going]:
        add_into(room, more)
        if fits_times(room, shape):
            return at_ns
    return NEVER_NS
