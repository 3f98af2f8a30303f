"""Tries blocked shapes again on nodes with freed capacity, in the order of the queues.

Rule 1: nodes that improve are collected, and compared with the blocked shapes before the next
        decision. If a shape may fit one of them, its buckets stay blocked but take their turn in
        their leaves.
Rule 2: at its turn the freed nodes are checked again. If one still fits, the shape is requeued as
        after any other change. If others have used the capacity, it stays blocked with its refusal,
        and the shapes behind it are compared with what is left: most lack capacity too and are not
        tried.
Rule 3: requeued at once are the buckets of a leaf with a guarantee whose asks preempt by it,
        because there each refusal sets the time of the next attempt; and all buckets with
        ``shortestFirst``, or before a search for victims.
Cost: the nodes improved since the last decision, compared in numpy with the blocked shapes.
"""

from collections.abc import Callable
from itertools import filterfalse

import numpy as np

from services.core.scheduler.actions import preemption_checks
from services.core.scheduler.model.rows import AskGroup, Queue
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.statement.partition import Partition

ONE_BY_ONE = 8  # up to so many freed nodes are checked one by one


def mark(partition: Partition, *, is_all: bool = False) -> None:
    """Give blocked shapes that improved nodes may fit their turn; ``is_all``: requeue them now."""
    freed, may_fit = partition.freed, partition.root.may_fit
    if not freed.improved:
        return
    is_all = is_all or partition.settings.shortest_first
    is_later, fits = _later(partition, is_all=is_all), partition.nodes.filters.fits
    for node in freed.take_improved(partition.nodes.nodes):
        found = dict.fromkeys(partition.shapes_for(node))
        if not may_fit.keys().isdisjoint(found):
            freed.keep(node)
            found = dict.fromkeys(filterfalse(may_fit.__contains__, found))
        for shape in found:
            if not partition.may_help(node, shape):
                continue
            if is_later(shape):
                freed.keep(node)
                partition.wake(shape)
            elif fits.holds(node, shape):
                partition.requeue_shape(shape)


def _later(partition: Partition, *, is_all: bool) -> Callable[[Shape], bool]:
    """Return a predicate: whether a shape waits for its turn or is requeued at once."""
    if is_all:
        return lambda _: False
    if not preemption_checks.preempts(partition):
        return lambda _: True
    blocked, has_guarantee = partition.root.blocked_buckets, preemption_checks.has_guarantee
    guaranteed: dict[Queue, bool] = {}

    def is_later(shape: Shape) -> bool:
        for bucket in blocked.get(shape, ()):
            leaf = bucket.leaf
            if leaf not in guaranteed:
                guaranteed[leaf] = has_guarantee(leaf)
            if guaranteed[leaf]:
                return False
        return True

    return is_later


def requeue_all(partition: Partition) -> None:
    """Requeue everything that freed nodes may fit, before a search for victims."""
    mark(partition, is_all=True)
    for shape in list(partition.root.may_fit):
        partition.requeue_shape(shape)


def have_room(partition: Partition, group: AskGroup, ask: Ask) -> bool:
    """Whether freed nodes fit a blocked bucket at its turn; if not, it stays blocked.

    ``ask`` is its first ask.
    """
    bucket, shape, may_fit = group.bucket, group.bucket.shape, partition.root.may_fit
    if shape in may_fit and _one_takes(partition, shape):
        partition.requeue_shape(shape)
        return True
    bucket.leaf.active_buckets.withdraw(bucket)
    if shape in may_fit:  # not removed with others before its turn
        partition.root.pass_over((shape,))
        partition.check_reservations((shape,))
        preemption_checks.check_later(partition, group.application, ask)
        _compare_again(partition)
    return False


def _one_takes(partition: Partition, shape: Shape) -> bool:
    """Whether one of the freed nodes may fit a shape now."""
    known, fits = partition.nodes.nodes, partition.nodes.filters.fits
    nodes = [node for node in partition.freed.nodes if known.get(node.node_id) is node]
    if len(nodes) > ONE_BY_ONE:
        rows = np.array([node.row for node in nodes], dtype=np.int64)
        nodes = [nodes[at] for at in np.flatnonzero(fits.mask(shape, When.NOW, rows)).tolist()]
    return any(fits.holds(node, shape) and partition.may_help(node, shape) for node in nodes)


def _compare_again(partition: Partition) -> None:
    """Compare the remaining shapes with the freed capacity that is left.

    After the first shape that did not fit, then the second, the fourth and so on.
    """
    freed, may_fit = partition.freed, partition.root.may_fit
    if not freed.is_to_be_compared():
        return
    fitting: dict[Shape, None] = {}
    for node in list(freed.nodes):
        found = partition.shapes_for(node)
        if found:
            fitting.update(dict.fromkeys(found))
        else:
            freed.drop(node)
    partition.root.pass_over([shape for shape in may_fit if shape not in fitting])


def are_done(partition: Partition) -> bool:
    """Clear the freed nodes after a cycle's attempts; return whether nothing was left to try.

    What is left had no turn because its applications may not start now. If it still fits, it is
    requeued.
    """
    freed, may_fit = partition.freed, partition.root.may_fit
    left = [shape for shape in may_fit if _one_takes(partition, shape)]
    if freed.nodes or freed.in_vain:
        freed.forget()
        partition.root.pass_over(list(may_fit))
    for shape in left:
        partition.requeue_shape(shape)
    return not left
