"""Events: what people read to know why, in YuniKorn's own words and numbers.

Here is what the state that the API is told does not say by itself. Events of what comes, changes
and goes (applications, asks, allocations, nodes, queues, usage) the API makes of that state: they
are not told twice (ADR 23).

An ask that finds no headroom says so once, and once more when it has it again. Of asks that wait
behind one another only the first speaks: there is never an event for every pod that waits.
Source: contract sections 7.1 and 7.2; case U-07.
"""

from collections.abc import Mapping

from services.core.scheduler.model.application import Application
from services.core.scheduler.model.queue_settings import Limit
from services.core.scheduler.model.queues import Queue
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.users import first_full
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import (
    Allocation,
    ApplicationNote,
    ContainerSchedulingState,
    SchedulingState,
)
from shared.messages.state import EventState
from shared.model.event_codes import ChangeDetail, ChangeType, EventType
from shared.model.names import ROOT
from shared.model.resources import ResourceView, go_map

BY_QUEUE, BY_USER = "queue", "user"
REQUEST, APP, QUEUE, USERGROUP = (
    EventType.REQUEST,
    EventType.APP,
    EventType.QUEUE,
    EventType.USERGROUP,
)
SET, REMOVE = ChangeType.SET, ChangeType.REMOVE
_D = ChangeDetail


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


def runnable(partition: Partition, application: Application, *, is_over: bool) -> None:
    """Say whether an accepted application may run, by its queues and its user, where that changes.

    ``is_over``: a limit on running applications keeps it from starting now.
    """
    if not is_over and not application.cannot_run:
        return
    by_queue = is_over and application.queue.first_over_applications(application.id) is not None
    by_quota = is_over and first_full(application) is not None
    rows = (
        (BY_QUEUE, by_queue, _D.APP_CANNOTRUN_QUEUE, _D.APP_RUNNABLE_QUEUE),
        (BY_USER, by_quota, _D.APP_CANNOTRUN_QUOTA, _D.APP_RUNNABLE_QUOTA),
    )
    told = application.cannot_run
    application.cannot_run = tuple(by for by, cannot, _, _ in rows if cannot)
    for by, cannot, detail_cannot, detail_can in rows:
        if cannot is not (by in told):
            detail = detail_cannot if cannot else detail_can
            event = EventState(APP, application.id, "", partition.now_ns, change_detail=detail)
            partition.outbox.say_event(event)


def limits_changed(
    partition: Partition, queue: Queue, users: Mapping[str, Limit], groups: Mapping[str, Limit]
) -> None:
    """Say which limits of users and groups a queue has now that it had not, and which no more.

    ``users`` and ``groups`` are those before.
    """
    for detail, before, after in (
        (_D.UG_USER_LIMIT, users, queue.user_limits),
        (_D.UG_GROUP_LIMIT, groups, queue.group_limits),
    ):
        for name in dict.fromkeys((*before, *after)):
            limit = after.get(name)
            if limit == before.get(name):
                continue
            event = EventState(
                USERGROUP,
                name,
                "",
                partition.now_ns,
                change_type=REMOVE if limit is None else SET,
                change_detail=detail,
                reference_id=queue.path,
                resource=(limit.max_resource if limit is not None else None) or {},
            )
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
        QUEUE,
        queue.path,
        text,
        partition.now_ns,
        change_type=SET,
        change_detail=_D.QUEUE_PREEMPTION,
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
