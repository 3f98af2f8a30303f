"""The order of a queue's children that have something to schedule: the first is served.

Rule 1: the order is that of ``order_of_children``. What a child's place hangs on is worked out when
        it has changed, and not again for every decision: a change of a queue's sums or priority
        concerns its own place, and those of the queues above it.
Rule 2: a change of what queues are promised, the maxima (the cluster's size is one), guarantees and
        settings, moves all: ``Queue.forget_turns``.
Cost: a decision sifts the entries of its path in heaps, whatever the number of queues.
Source: docs/rules/scheduling.md.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from services.core.scheduler.model.queue_ledger import OrderKey
from services.core.scheduler.model.queue_settings import USAGE
from services.core.scheduler.model.rows import Queue
from shared.model.resources import Resource, ResourceView

SPARE = 64  # lapsed entries that a heap may have beside three times as many as there are children


def next_leaf(root: Queue) -> Queue | None:
    """Walk down the active queues, the first in order at every level."""
    queue = root
    while not queue.is_leaf:
        child = next_child(queue)
        if child is None:
            return None
        queue = child
    return queue


def next_child(queue: Queue) -> Queue | None:
    """Return the active child to serve first, or None."""
    active, turns = queue.active_children, queue.turns
    if len(active) <= 1:
        return next(iter(active.values()), None)
    keys = queue.tree.keys
    if keys is not None and keys.renew():
        queue.tree.version += 1
    if turns.version != queue.tree.version:
        _order_all(queue)
    elif turns.unordered:
        _order_changed(queue)
    heap = turns.heap
    while heap:
        key, _, child = heap[0]
        if child.turn is key:
            return child
        heappop(heap)
    return None


def _order_all(queue: Queue) -> None:
    """Sort the active children again: what they are promised has changed."""
    turns, fair_max = queue.turns, fair_max_of(queue)
    turns.version = queue.tree.version
    turns.heap.clear()
    for child in queue.children.values():
        child.turn = None
        child.promised_by_type = _promised_to(child, fair_max)
    turns.unordered = dict.fromkeys(queue.active_children.values())
    _order_changed(queue)


def _order_changed(queue: Queue) -> None:
    """Find the places of the children that have changed."""
    turns, active = queue.turns, queue.active_children
    heap = turns.heap
    changed, turns.unordered = turns.unordered, {}
    for child in changed:
        if active.get(child.name) is child:
            child.turn = _order_of(queue, child, child.promised_by_type)
            turns.made += 1
            entry = (child.turn, turns.made, child)
            if heap and heap[0][2] is child:  # its entry has lapsed
                heapreplace(heap, entry)
            else:
                heappush(heap, entry)
    if len(heap) > SPARE + 4 * len(active):
        heap[:] = [entry for entry in heap if entry[2].turn is entry[0]]
        heapify(heap)


# --- the order ------------------------------------------------------------------------------------


def order_of_children(queue: Queue) -> Callable[[Queue], OrderKey]:
    """Return the key by which the children of a queue are served, worked out again."""
    fair_max = fair_max_of(queue)
    return lambda child: _order_of(queue, child, _promised_to(child, fair_max))


def _order_of(queue: Queue, child: Queue, promised_by_type: ResourceView) -> OrderKey:
    """Return the key by which a child is served.

    Priority, then fair share, then the larger pending; with priority sorting off the fair share
    comes first. Equal children are served in the order of their names. A queue that goes by usage
    over time has it before the fair share.
    """
    if queue.tree.keys is not None:
        return queue.tree.keys.key(child)
    share, priority = _largest_share(child, promised_by_type), -child.current_priority
    pending, settings = -sum(child.pending.values()), queue.settings
    if settings.sort_policy == USAGE:
        used = _usage_rank(child)
        first = (priority, used) if settings.priority_sorting else (used, priority)
        return (*first, share, pending, child.path)
    if settings.priority_sorting:
        return (priority, share, pending, child.path)
    return (share, priority, pending, child.path)


def fair_share(queue: Queue, fair_max: ResourceView) -> float:
    """Return the largest share of what a queue is promised, over its types.

    The share of a type is of guaranteed where that names it, else of ``fair_max`` (the cluster,
    overwritten by the maxima on the way down), else it is left out.
    """
    return _largest_share(queue, {**fair_max, **(queue.guaranteed_resource or {})})


def _largest_share(queue: Queue, promised_by_type: ResourceView) -> float:
    largest = 0.0
    for name, value in queue.allocated.items():
        promised = promised_by_type.get(name)
        if value > 0 and promised is not None:
            share = value / promised if promised > 0 else 1.0
            if share > largest:  # noqa: PLR1730 - asked at every decision
                largest = share
    return largest


def fair_max_of(queue: Queue) -> Resource:
    """Return the cluster's size overwritten by the maxima on the path down to a queue."""
    above = fair_max_of(queue.parent) if queue.parent is not None else {}
    return {**above, **(queue.max_resource or {})}


def _promised_to(child: Queue, fair_max: ResourceView) -> Resource:
    """Return of what a child's share is taken, by type; ``fair_max`` is its parent's."""
    return {**fair_max, **(child.max_resource or {}), **(child.guaranteed_resource or {})}


def _usage_rank(queue: Queue) -> int:
    """Return what orders a queue among its siblings by usage over time."""
    clock, settings = queue.tree.usage, queue.settings
    if clock is None:
        return 0
    queue.advance_usage()
    assert queue.used is not None
    weights = settings.over_quota_weight, settings.over_quota_weights
    return clock.rank(queue.used, queue.allocated, *weights)
