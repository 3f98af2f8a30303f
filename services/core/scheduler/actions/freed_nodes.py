"""The shapes that freed nodes may help: each is tried when its turn comes, if there still is room.

Rule 1: nodes that improve are collected, and compared with the shapes that no node took before the
        next decision. A shape that one of them takes then may fit: its buckets stay blocked, and
        have their turn in their leaves among the others.
Rule 2: when it is the turn of one, the freed nodes are asked again. If one takes it still, the
        shape is requeued as after any other change. If others have taken the room, it stays blocked
        by the refusal that it has, and the shapes behind it are compared with what is left: they
        mostly lack the room too, and are not tried.
Rule 3: at once, without a second question, are requeued the buckets of a leaf that has a guarantee
        where asks preempt by it: there each refusal sets the time of the next attempt. And all,
        where the shortest go first, or where a search for victims comes next.
Cost: a decision costs what nodes improved since the last one, in numpy by the shapes that wait.
"""

from collections.abc import Callable
from itertools import filterfalse

import numpy as np

from services.core.scheduler.actions import preemption_looks
from services.core.scheduler.model.rows import AskGroup, Queue
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import When
from services.core.scheduler.statement.partition import Partition

ONE_BY_ONE = 8  # freed nodes up to which each is asked by itself


def mark(partition: Partition, *, is_all: bool = False) -> None:
    """Have the shapes that improved nodes take have their turn; ``is_all``: requeue them now."""
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
    """Return what says of a shape whether it waits for its turn, or is requeued at once."""
    if is_all:
        return lambda _: False
    if not preemption_looks.preempts(partition):
        return lambda _: True
    blocked, has_guarantee = partition.root.blocked_buckets, preemption_looks.has_guarantee
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
    """Requeue whatever freed nodes may help, before a search for victims for it."""
    mark(partition, is_all=True)
    for shape in list(partition.root.may_fit):
        partition.requeue_shape(shape)


def have_room(partition: Partition, group: AskGroup, ask: Ask) -> bool:
    """Return whether freed nodes have room for a blocked bucket whose turn it is; else it waits on.

    ``ask`` is the first of it.
    """
    bucket, shape, may_fit = group.bucket, group.bucket.shape, partition.root.may_fit
    if shape in may_fit and _one_takes(partition, shape):
        partition.requeue_shape(shape)
        return True
    bucket.leaf.active_buckets.withdraw(bucket)
    if shape in may_fit:  # it was not passed over with others before its turn
        partition.root.pass_over((shape,))
        partition.check_reservations((shape,))
        preemption_looks.check_later(partition, group.application, ask)
        _compare_again(partition)
    return False


def _one_takes(partition: Partition, shape: Shape) -> bool:
    """Return whether one of the freed nodes may take a shape now."""
    known, fits = partition.nodes.nodes, partition.nodes.filters.fits
    nodes = [node for node in partition.freed.nodes if known.get(node.node_id) is node]
    if len(nodes) > ONE_BY_ONE:
        rows = np.array([node.row for node in nodes], dtype=np.int64)
        nodes = [nodes[at] for at in np.flatnonzero(fits.mask(shape, When.NOW, rows)).tolist()]
    return any(fits.holds(node, shape) and partition.may_help(node, shape) for node in nodes)


def _compare_again(partition: Partition) -> None:
    """Compare the shapes that have yet to be tried with what freed nodes have left.

    After the first of them that was in vain, the second, the fourth and so on.
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
    """Forget the freed nodes: what they may help has been tried; return whether all of it has.

    What is left has not had its turn, as its applications may not start now. It is not the nodes
    that keep it: where there still is room it is requeued, and is tried when they may.
    """
    freed, may_fit = partition.freed, partition.root.may_fit
    left = [shape for shape in may_fit if _one_takes(partition, shape)]
    if freed.nodes or freed.in_vain:
        freed.forget()
        partition.root.pass_over(list(may_fit))
    for shape in left:
        partition.requeue_shape(shape)
    return not left
