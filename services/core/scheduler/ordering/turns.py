"""The order of a queue's children that have something to schedule: the first is served.

Rule 1: the order is that of ``Queue.order_of_children``. What a child's place hangs on is worked
        out when it has changed, and not again for every decision: a change of a queue's sums or
        priority concerns its own place, and those of the queues above it.
Rule 2: a change of what queues are promised, the maxima (the cluster's size is one), guarantees and
        settings, moves all: ``Queue.forget_turns``.
Cost: a decision sifts the entries of its path in heaps, whatever the number of queues.
"""

from heapq import heapify, heappop, heappush, heapreplace

from services.core.scheduler.model.rows import Queue

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
    turns, fair_max = queue.turns, queue.fair_max()
    turns.version = queue.tree.version
    turns.heap.clear()
    for child in queue.children.values():
        child.turn = None
        child.promised_by_type = queue.promised_to(child, fair_max)
    turns.unordered = dict.fromkeys(queue.active_children.values())
    _order_changed(queue)


def _order_changed(queue: Queue) -> None:
    """Find the places of the children that have changed."""
    turns, active = queue.turns, queue.active_children
    heap = turns.heap
    changed, turns.unordered = turns.unordered, {}
    for child in changed:
        if active.get(child.name) is child:
            child.turn = queue.order_of(child, child.promised_by_type)
            turns.made += 1
            entry = (child.turn, turns.made, child)
            if heap and heap[0][2] is child:  # its entry has lapsed
                heapreplace(heap, entry)
            else:
                heappush(heap, entry)
    if len(heap) > SPARE + 4 * len(active):
        heap[:] = [entry for entry in heap if entry[2].turn is entry[0]]
        heapify(heap)
