"""What must hold after every message, recomputed the slow and obvious way.

Tests and the scenario runner call ``violations`` after each step; the service does not.
"""

from collections.abc import Iterator

from services.core.scheduler.application import Application
from services.core.scheduler.partition import Partition
from services.core.scheduler.queues import Queue, depth_first
from shared.model.resources import ResourceView, add, fits_room, subtract, total_of, without_zeros
from shared.model.states import ENDED


def violations(partition: Partition) -> list[str]:
    """Return a sentence for each invariant that does not hold; an empty list is good news."""
    found: list[str] = []
    for application in partition.applications.values():
        found += _application(application)
    for queue in depth_first(partition.root):
        found += _queue(queue)
    found += _nodes(partition)
    found += _keys(partition)
    return found


def _differs(what: str, ledger: ResourceView, truth: ResourceView) -> Iterator[str]:
    if without_zeros(ledger) != without_zeros(truth):
        yield f"{what} is {dict(ledger)}, the sum of its parts {dict(truth)}"


def _application(application: Application) -> Iterator[str]:
    name = f"application {application.id}"
    allocations = application.allocations.values()
    real = total_of(a.resource_per_alloc for a in allocations if not a.placeholder)
    held = total_of(a.resource_per_alloc for a in allocations if a.placeholder)
    asks = list(application.asks())
    yield from _differs(f"{name} allocated", application.allocated, real)
    yield from _differs(f"{name} allocatedPlaceholder", application.allocated_placeholder, held)
    yield from _differs(
        f"{name} pending",
        application.pending,
        total_of(ask.request.resource_per_alloc for ask in asks),
    )
    if application.pending_placeholders != sum(ask.request.placeholder for ask in asks):
        yield f"{name} counts {application.pending_placeholders} pending placeholders"
    yield from _gang(application)


def _gang(application: Application) -> Iterator[str]:
    name = f"application {application.id}"
    if application.state in ENDED:
        yield f"{name} has ended as {application.state} and is still in its queue"
    for group, counts in application.task_groups.items():
        if counts.replaced + counts.timedout > counts.count:
            yield f"{name} group {group}: more placeholders ended than there were: {counts}"
        free = application.allocations.keys() - application.released.keys()
        for key in counts.held.keys() - free:
            yield f"{name} group {group}: {key} is held but gone or released"
    for key, swap in application.replacing.items():
        if application.released.get(key) != "PLACEHOLDER_REPLACED":
            yield f"{name}: placeholder {key} is being replaced but not released for it"
        if swap.ask.key in application.allocations or swap.ask.key in application.group_of:
            yield f"{name}: ask {swap.ask.key} is being swapped in and elsewhere too"


def _queue(queue: Queue) -> Iterator[str]:
    below = queue.children.values()
    applications = queue.applications.values()
    allocated = total_of(child.allocated for child in below)
    pending = total_of(child.pending for child in below)
    promised = total_of(child.promised for child in below)
    running = sum(child.running_apps for child in below)
    if queue.is_leaf:
        allocated = total_of(add(a.allocated, a.allocated_placeholder) for a in applications)
        pending = total_of(a.pending for a in applications)
        promised = total_of(a.promise for a in applications)
        running = sum(a.state == "Running" for a in applications)
    yield from _differs(f"queue {queue.path} allocated", queue.allocated, allocated)
    yield from _differs(f"queue {queue.path} pending", queue.pending, pending)
    yield from _differs(f"queue {queue.path} promised", queue.promised, promised)
    if queue.running_apps != running:
        yield f"queue {queue.path} counts {queue.running_apps} running applications, has {running}"


def _nodes(partition: Partition) -> Iterator[str]:
    for node in partition.nodes.nodes.values():
        total = total_of(a.resource_per_alloc for a in node.allocations.values())
        yield from _differs(f"node {node.node_id} allocated", node.allocated, total)
        rest = subtract(subtract(node.capacity, node.allocated), node.occupied)
        yield from _differs(f"node {node.node_id} available", node.available, rest)
    yield from _differs(
        "the sum of the nodes",
        partition.nodes.total,
        total_of(node.capacity for node in partition.nodes.nodes.values()),
    )


def over_capacity(partition: Partition) -> list[str]:
    """Return the nodes that hold more than they can; only shrinking or recovery may do that."""
    return [
        node.node_id
        for node in partition.nodes.nodes.values()
        if not fits_room(node.capacity, node.allocated)
    ]


def _keys(partition: Partition) -> Iterator[str]:
    """Every allocation is on its node once, and in no other place."""
    on_nodes: dict[str, str] = {}
    for node in partition.nodes.nodes.values():
        for key in node.allocations:
            if key in on_nodes:
                yield f"allocation {key} is on {on_nodes[key]} and on {node.node_id}"
            on_nodes[key] = node.node_id
    for application in partition.applications.values():
        for key, allocation in application.allocations.items():
            if on_nodes.get(key) != allocation.node_id:
                yield f"allocation {key} should be on {allocation.node_id}: {on_nodes.get(key)}"
            if key in application.group_of:
                yield f"{key} is allocated and waits as well"
