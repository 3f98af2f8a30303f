"""The order of a queue's active children: the first is served.

Rule 1: the order is that of ``order_of_children``. A child's key is recomputed when it changed, not
        for every decision: a change of a queue's sums or priority affects its own key and those of
        the queues above.
Rule 2: a change of maxima (the cluster's size is one), guarantees or settings affects all:
        ``Queue.forget_turns``.
Cost: a decision updates the heaps on its path, whatever the number of queues.
Source: docs/rules/scheduling.md.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from services.core.scheduler.model.queue_ledger import OrderKey
from services.core.scheduler.model.queue_settings import USAGE
from services.core.scheduler.model.rows import Queue
from shared.model.resources import Resource, ResourceView

SPARE = 64  # stale entries allowed in a heap, besides three times its children


def next_leaf(root: Queue) -> Queue | None:
    """Return the leaf to serve: the first active child at every level."""
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
    """Sort the active children again after maxima, guarantees or settings changed."""
    turns, fair_max = queue.turns, fair_max_of(queue)
    turns.version = queue.tree.version
    turns.heap.clear()
    for child in queue.children.values():
        child.turn = None
        child.promised_by_type = _promised_to(child, fair_max)
    turns.unordered = dict.fromkeys(queue.active_children.values())
    _order_changed(queue)


def _order_changed(queue: Queue) -> None:
    """Recompute the keys of the changed children."""
    turns, active = queue.turns, queue.active_children
    heap = turns.heap
    changed, turns.unordered = turns.unordered, {}
    for child in changed:
        if active.get(child.name) is child:
            child.turn = _order_of(queue, child, child.promised_by_type)
            turns.made += 1
            entry = (child.turn, turns.made, child)
            if heap and heap[0][2] is child:  # its entry is stale
                heapreplace(heap, entry)
            else:
                heappush(heap, entry)
    if len(heap) > SPARE + 4 * len(active):
        heap[:] = [entry for entry in heap if entry[2].turn is entry[0]]
        heapify(heap)


# --- the order ------------------------------------------------------------------------------------


def order_of_children(queue: Queue) -> Callable[[Queue], OrderKey]:
    """Return the sort key of a queue's children, recomputed at each call."""
    fair_max = fair_max_of(queue)
    return lambda child: _order_of(queue, child, _promised_to(child, fair_max))


def _order_of(queue: Queue, child: Queue, promised_by_type: ResourceView) -> OrderKey:
    """Return a child's sort key.

    Priority, then fair share, then larger pending; without priority sorting the fair share comes
    before the priority. Ties go by name. With the policy ``usage`` the usage over time comes before
    the fair share.
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
    """Return a queue's largest ratio of usage to its reference, over all types.

    The reference of a type is the guarantee, else ``fair_max`` (the cluster, overwritten by the
    maxima on the path); types with neither are ignored.
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
    """Return a child's reference amounts by type; ``fair_max`` is its parent's."""
    return {**fair_max, **(child.max_resource or {}), **(child.guaranteed_resource or {})}


def _usage_rank(queue: Queue) -> int:
    """Return a queue's rank among its siblings by usage over time."""
    clock, settings = queue.tree.usage, queue.settings
    if clock is None:
        return 0
    queue.advance_usage()
    assert queue.used is not None
    weights = settings.over_quota_weight, settings.over_quota_weights
    return clock.rank(queue.used, queue.allocated, *weights)
