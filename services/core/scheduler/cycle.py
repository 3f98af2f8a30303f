"""The cycle: replacements first, then the rest, until nothing more can be placed.

Order (contract sections 6.1 to 6.6): down the queues by priority and fair share, in the leaf by
its application order, in the application by priority and age, onto the first node in node order.
An ask that is refused takes its whole bucket, or its application, out of the cycle; it comes back
when whatever refused it has changed. So a cycle costs what it places and what it newly refuses.

Limit: MAX_DECISIONS a cycle. At the limit the cycle asks for another one, so that other messages
are heard in between.
"""

from services.core.scheduler import gang
from services.core.scheduler.application import Application
from services.core.scheduler.partition import Partition
from services.core.scheduler.queues import Queue
from services.core.scheduler.shapes import AskGroup
from shared.model.reasons import Reason, Refusal
from shared.model.states import ApplicationEvent, ApplicationState

MAX_DECISIONS = 4_000


def run(partition: Partition) -> int:
    """Place what can be placed; return the number of decisions."""
    decisions = 0
    if partition.root.max_resource is None:
        return 0
    while decisions < MAX_DECISIONS:
        if partition.replaceable:
            decisions += gang.replace_placeholders(partition, MAX_DECISIONS - decisions)
            continue
        leaf = _next_leaf(partition.root)
        if leaf is None:
            return decisions
        decisions += _place_from(partition, leaf)
    partition.outbox.want_cycle()
    return decisions


def _next_leaf(root: Queue) -> Queue | None:
    """Walk down the active queues, the first in order at every level."""
    queue = root
    while not queue.is_leaf:
        child = queue.next_child()
        if child is None:
            return None
        queue = child
    return queue


def _place_from(partition: Partition, leaf: Queue) -> int:
    """Place the first ask of a leaf; return 1 when it was placed."""
    entry = leaf.first_group()
    if entry is None:
        leaf.deactivate()
        return 0
    group = entry[1]
    application = group.application
    kept_out = gang.gate(partition, application)
    if kept_out is not None:
        application.park(*kept_out, partition.now_ns)
        partition.outbox.touch(application)
        return 0
    ask = group.head()
    if ask is None:
        group.bucket.withdraw(group)
        return 0
    shape = group.bucket.shape
    short = leaf.first_without_room(shape.resource)
    if short is not None:
        refusal = Refusal(Reason.QUEUE_QUOTA, f"Not enough queue quota: {short[1]}")
        leaf.block(group.bucket, refusal, short[0], partition.now_ns)
        partition.outbox.touch_queue(leaf)
        return 0
    node = partition.nodes.best(shape)
    if node is None:
        leaf.block(group.bucket, partition.nodes.refusal(shape), None, partition.now_ns)
        partition.blocked_shapes[shape] = None
        partition.outbox.touch_queue(leaf)
        return 0
    allocation = partition.allocate(application, ask, node)
    _follow_up(partition, application, group)
    partition.arm_execution(application, allocation)
    return 1


def _follow_up(partition: Partition, application: Application, group: AskGroup) -> None:
    if group.placeholder:
        gang.placeholder_allocated(partition, application)
    elif application.state is not ApplicationState.RUNNING:
        partition.fire(application, ApplicationEvent.RUN)
