"""Events: what people read to know why, in YuniKorn's own words and numbers.

An ask that finds no headroom says so once, and once more when it has it again. Of asks that wait
behind one another only the first speaks: there is never an event for every pod that waits.
Source: contract sections 7.1 and 7.2; case U-07.
"""

from services.core.scheduler.application import Application
from services.core.scheduler.partition import Partition
from services.core.scheduler.queues import Queue
from services.core.scheduler.shapes import Ask
from shared.messages.interface import (
    Allocation,
    ApplicationNote,
    ContainerSchedulingState,
    SchedulingState,
)
from shared.messages.state import EventState
from shared.model.names import FOREIGN_TAG, ROOT
from shared.model.resources import ResourceView, go_map

REQUEST, APP, NODE, QUEUE = 1, 2, 3, 4
SET, ADD, REMOVE = 1, 2, 3
NODE_ALLOC = 303
QUEUE_PREEMPTION = 407
BY_QUEUE, BY_USER = "queue", "user"


def no_headroom(
    partition: Partition, application: Application, ask: Ask, by: str, available: ResourceView
) -> None:
    """Say that an ask does not fit a queue or a user's limit, unless it has said so."""
    if ask.told == by:
        return
    ask.told = by
    amounts = f"(requested {go_map(ask.shape.resource)}, available {go_map(available)})"
    if by == BY_USER:
        text = f"Request '{ask.key}' exceeds the available user quota {amounts}"
    else:
        text = f"Request '{ask.key}' does not fit in queue '{application.queue.path}' {amounts}"
    _say_request(partition, application, ask, text)


def has_headroom(partition: Partition, application: Application, ask: Ask) -> None:
    """Say that an ask fits again, if it has said that it does not."""
    if ask.told == BY_USER:
        text = f"Request '{ask.key}' fits in the available user quota"
    else:
        queue = application.queue.path
        text = f"Request '{ask.key}' has become schedulable in queue '{queue}'"
    ask.told = ""
    _say_request(partition, application, ask, text)


def _say_request(partition: Partition, application: Application, ask: Ask, text: str) -> None:
    event = EventState(REQUEST, ask.key, text, partition.now_ns, reference_id=application.id)
    partition.outbox.say_event(event)


def preempted(partition: Partition, owner: Application, key: str, text: str) -> None:
    """Say to a victim why it was preempted."""
    event = EventState(REQUEST, key, text, partition.now_ns, reference_id=owner.id)
    partition.outbox.say_event(event)


def no_victim_on_required_node(partition: Partition, application: Application, ask: Ask) -> None:
    """Say that the node that an ask must have is full of what may not be preempted for it."""
    node = ask.shape.constraints.required_node
    text = (
        f"Unschedulable request '{ask.key}' with required node '{node}', no preemption victim found"
    )
    _say_request(partition, application, ask, text)


def not_bound(partition: Partition, application: Application, key: str, reason: str) -> None:
    """Say that an allocation could not be bound, and why; its ask waits again."""
    text = f"Request '{key}' could not be bound and waits again: {reason}"
    event = EventState(REQUEST, key, text, partition.now_ns, reference_id=application.id)
    partition.outbox.say_event(event)


def not_matching(
    partition: Partition, application: Application, ask: Ask, placeholder: Allocation
) -> None:
    """Say once that an ask is larger than its group's placeholders: to it, and on its application.

    The resource manager is told too, for the pod's own events.
    """
    if ask.is_mismatch_told:
        return
    ask.is_mismatch_told = True
    text = (
        f"Task group '{placeholder.task_group_name}' in application '{application.id}': "
        f"allocation resources '{go_map(ask.shape.resource)}' are not matching "
        f"placeholder '{go_map(placeholder.resource_per_alloc)}' allocation with ID "
        f"'{placeholder.allocation_key}'"
    )
    application.message = text
    partition.outbox.touch(application)
    _say_request(partition, application, ask, text)
    state = ContainerSchedulingState(application.id, ask.key, SchedulingState.SKIPPED, text)
    partition.outbox.say("scheduling_states", state)


def noted(partition: Partition, note: ApplicationNote) -> None:
    """Say at a pod what the resource manager has found out about it."""
    text = f"{note.reason}: {note.message}"
    key = note.allocation_key or note.application_id
    event = EventState(REQUEST, key, text, partition.now_ns, reference_id=note.application_id)
    partition.outbox.say_event(event)


def node_allocation(partition: Partition, allocation: Allocation, *, is_added: bool) -> None:
    """Say that a foreign pod came to a node, or left it; the message says that it is foreign."""
    event = EventState(
        NODE,
        allocation.node_id,
        f"foreign: {allocation.allocation_tags[FOREIGN_TAG]}",
        partition.now_ns,
        change_type=ADD if is_added else REMOVE,
        change_detail=NODE_ALLOC,
        reference_id=allocation.allocation_key,
        resource=allocation.resource_per_alloc,
    )
    partition.outbox.say_event(event)


def pair_held(partition: Partition, one: str, other: str) -> None:
    """Say that two applications evict each other by turns, and are kept from it for a while."""
    text = (
        f"applications {one} and {other} evicted each other in turn: neither takes from the other "
        "for 10 minutes"
    )
    partition.outbox.partition_changed = True
    for name, reference in ((one, other), (other, one)):
        event = EventState(APP, name, text, partition.now_ns, reference_id=reference)
        partition.outbox.say_event(event)


def quota_enforced(
    partition: Partition,
    queue: Queue,
    wanted: ResourceView,
    claimed: ResourceView,
    victims: int,
) -> None:
    """Say what came of making a queue give back what is over its max."""
    text = (
        f"Quota Preemption results summary: preemptable resources: {go_map(wanted)}, claimed "
        f"resources: {go_map(claimed)}, selected victims: {victims}, preempted victims: {victims}"
    )
    event = EventState(
        QUEUE, queue.path, text, partition.now_ns, change_type=SET, change_detail=QUEUE_PREEMPTION
    )
    partition.outbox.say_event(event)


def not_sent(partition: Partition, name: str, reason: str) -> None:
    """Say that something, of an application where it has one, could not be sent."""
    text = f"it could not be sent, and was set aside: {reason}"
    partition.outbox.say_event(EventState(APP, name, text, partition.now_ns))


def configuration_refused(partition: Partition, error: str) -> None:
    """Say that a configuration was refused, and the one before it stands."""
    text = f"the queue configuration was refused, nothing has changed: {error}"
    partition.outbox.say_event(EventState(QUEUE, ROOT, text, partition.now_ns, change_type=SET))
