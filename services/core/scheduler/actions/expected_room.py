"""When a node is expected to have capacity: by its pods' expected ends (``model/run_times.py``)."""

from collections.abc import Iterator, Mapping, Sequence

from services.core.scheduler.model import devices
from services.core.scheduler.model.rows import Application, Claim, Node
from services.core.scheduler.model.run_times import NEVER_NS, end_ns, stated_ns
from services.core.scheduler.model.settings import KAI
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.device_rows import open_devices
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.gpus import WHOLE
from shared.model.resources import Resource, add_into

End = tuple[int, Allocation]


def ends(partition: Partition, node: Node) -> Iterator[End]:
    """Yield the pods of a node, each with its expected end in ns."""
    for key, allocation in node.allocations.items():
        application = partition.applications.get(allocation.application_id)
        if application is None:
            continue
        is_going = key in application.released and key not in application.replacing
        at_ns = partition.now_ns + 1
        if not is_going or key in application.covering or application.moved(key) is not None:
            times, guesses = partition.run_times, partition.settings.reserves_for_gang
            at_ns = end_ns(times, application, allocation, partition.now_ns, guesses=guesses)
        yield at_ns, allocation


def opens_in_vain(partition: Partition, node: Node, shape: Shape, own: Claim | None = None) -> bool:
    """Whether a GPU share would open a device although part of a shared one is being released.

    Only under kai. A shared device with room now comes before both. Claims made before the ask's
    ``own`` take from the releasing capacity first.
    """
    need = partition.nodes.devices.need_of(shape)
    if need is None or need[0] == WHOLE or partition.settings.policy != KAI:
        return False
    size, count = need
    free = open_devices(node)
    if sum(size <= left < WHOLE for left in free) >= count:
        return False
    then = [*free]
    for key, pod in node.allocations.items():
        application = partition.releasing.get(key)
        if application is not None and not _is_released_for_its_own(application, key):
            devices.change(then, pod.devices, 1)
    for claim in node.reservations.values():
        other = claim.ask.shape.on_devices if claim.has_preempted else None
        if claim is own:
            break
        if other is not None:
            devices.change(then, devices.choose(then, other), -1)
    holders = node.held_devices.values()
    shared = dict.fromkeys(at for held in holders for at, amount in held if amount < WHOLE)
    return any(at < len(then) and free[at] < size <= then[at] for at in shared)


def _is_released_for_its_own(application: Application, key: str) -> bool:
    """Whether a released allocation frees capacity for its own gang or replacement."""
    return key in application.covering or key in application.replacing


def is_stated(partition: Partition, allocation: Allocation) -> bool:
    """Whether the end of a pod is stated, and not only predicted."""
    application = partition.applications.get(allocation.application_id)
    if application is None or allocation.allocation_key in application.released:
        return True
    tags, timeout_ms = allocation.allocation_tags, allocation.exec_timeout_milli_seconds
    return stated_ns(application, tags, timeout_ms, partition.now_ns) > 0


def rooms(
    partition: Partition, node: Node, going: Sequence[End]
) -> Iterator[tuple[int, Resource, list[int]]]:
    """Yield a node's free capacity and devices now (0) and after each end, with the time in ns.

    ``going`` are its ends in order. The yielded objects are modified for the next.
    """
    room, free = dict(node.available), list(open_devices(node))
    yield 0, room, free
    for at_ns, ended in going:
        add_into(room, ended.resource_per_alloc)
        devices.change(free, partition.nodes.devices.of(node, ended.allocation_key), 1)
        yield at_ns, room, free


def fits_times(room: Mapping[str, int], free: Sequence[int], shape: Shape) -> int:
    """Return how many pods of a shape fit in such capacity and devices."""
    wanted = shape.wanted.items()
    times = max(0, min((room.get(name, 0) // value for name, value in wanted), default=0))
    if times and free and shape.on_devices is not None:
        times = min(times, devices.places(free, shape.on_devices))
    return times


def room_ns(partition: Partition, node: Node, shape: Shape) -> int:
    """Return when a node is expected to fit a shape; 0: now, NEVER_NS: unknown."""
    going = sorted(ends(partition, node), key=lambda end: end[0])
    for at_ns, room, free in rooms(partition, node, going):
        if fits_times(room, free, shape):
            return at_ns
    return NEVER_NS
