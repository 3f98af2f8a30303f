"""Who waits for a plugin is let try again when its answer may be another (``model/hooks.py``).

Whoever a ``capacity`` hook refused waits at the gate of that hook. Whom nodes refuse is woken by
the nodes that improve; where a hook that judges nodes reads more than what they are, all of them
are let try again. Applications are ordered anew where an order reads more than themselves.
"""

from services.core.scheduler.model.hooks import Hook
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement.partition import Partition


def look(partition: Partition) -> None:
    """Requeue what a plugin blocked and may admit now."""
    hooks = partition.hooks
    if hooks is None:
        return
    for hook in hooks.capacity:
        if hooks.is_due(hook):
            queueing.requeue(hook.gate)
    if hooks.are_due(_that_move([*hooks.moving, *hooks.score])):
        _try_nodes_again(partition)
    if hooks.are_due(hooks.order):
        _order_anew(partition)


def _that_move(hooks: list[Hook]) -> list[Hook]:
    return [hook for hook in hooks if not hook.is_fixed]


def _try_nodes_again(partition: Partition) -> None:
    """Let all that no node takes be considered again."""
    for shape in list(partition.blocked_shapes):
        partition.requeue_shape(shape)
    for node in partition.nodes.rows:
        for reservation in node.reservations.values():
            reservation.retry()
    for gang in partition.waiting_gangs.all():
        queueing.activate(gang)
    partition.retry_replacements()


def _order_anew(partition: Partition) -> None:
    """Find the place of every application that waits."""
    for application in partition.applications.values():
        before = application.order
        queueing.reorder(application)
        if application.order != before:
            queueing.enter(application)
