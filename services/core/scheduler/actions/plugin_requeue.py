"""Requeues what a plugin blocked when the plugin's answer may have changed (``model/hooks.py``).

An application that a ``capacity`` hook refused is blocked by that hook. An ask that no node fits is
requeued by nodes that improve; if a hook about nodes reads more than the node, all such asks are
requeued. Applications are sorted again if a sort key reads more than the application.
"""

from services.core.scheduler.model.hooks import Hook
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.partition import Partition


def requeue_due(partition: Partition) -> None:
    """Requeue what plugins blocked and may admit now; the cycle calls it."""
    hooks = partition.hooks
    if hooks is None:
        return
    for hook in hooks.capacity:
        if hooks.is_due(hook):
            queueing.requeue(hook.wait_list)
    if hooks.are_due(_that_move([*hooks.moving, *hooks.score])):
        _try_nodes_again(partition)
    if hooks.are_due(hooks.order):
        _reorder(partition)


def _that_move(hooks: list[Hook]) -> list[Hook]:
    return [hook for hook in hooks if not hook.is_fixed]


def _try_nodes_again(partition: Partition) -> None:
    """Requeue all asks that no node fits."""
    for shape in list(partition.blocked_shapes):
        partition.requeue_shape(shape)
    for node in partition.nodes.rows:
        for reservation in node.reservations.values():
            reservation.retry()
    for gang in partition.waiting_gangs.all():
        queueing.activate(gang)
    partition.retry_replacements()


def _reorder(partition: Partition) -> None:
    """Compute the sort key of every waiting application again."""
    for application in partition.applications.values():
        before = application.order
        queueing.reorder(application)
        if application.order != before:
            queueing.enter(application)
