"""Replacement: real pods take the places that their gang's placeholders hold.

Rule 1: a placeholder is released once, for one real ask; node, queue and application change when
        the resource manager has confirmed, in one step.
Source: contract section 3.3, steps 6, 7 and 9; cases G-01 to G-08, N-10.
"""

from dataclasses import replace

from services.core.scheduler.application import Application
from services.core.scheduler.lifecycle import after_placeholders_changed
from services.core.scheduler.nodes import Node, matches
from services.core.scheduler.partition import Partition
from services.core.scheduler.shapes import Ask, AskGroup
from services.core.scheduler.task_groups import Replacement
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation, TerminationType
from shared.model.resources import fits_room, go_map, is_zero
from shared.model.states import ApplicationEvent, ApplicationState


def replace_placeholders(partition: Partition, limit: int) -> int:
    """Start every replacement that can be started, at most ``limit``; return how many."""
    started = 0
    while partition.replaceable and started < limit:
        application = next(iter(partition.replaceable))
        del partition.replaceable[application]
        started += _replace_in(partition, application, limit - started)
    return started


def _replace_in(partition: Partition, application: Application, limit: int) -> int:
    if application.pending_placeholders or not application.may_schedule:
        return 0
    started = 0
    groups = [group for group in application.groups.values() if not group.placeholder]
    for group in sorted(groups, key=_head_order):
        counts = application.task_groups.get(group.task_group_name)
        while counts is not None and counts.held:
            ask = group.head()
            if ask is None:
                break
            if started >= limit:
                partition.replaceable[application] = None
                return started
            if not _replace_for(partition, application, group, ask):
                break
            started += 1
    return started


def _head_order(group: AskGroup) -> tuple[int, int, int]:
    head = group.head()
    return head.order if head is not None else (0, 0, 0)


def _replace_for(partition: Partition, application: Application, group: AskGroup, ask: Ask) -> bool:
    """Find the placeholder that a real ask replaces, on its node or on another one.

    With no node for it the ask is unschedulable, which is what scales a cluster up.
    """
    group.unplaced = None
    fitting: Allocation | None = None
    place: Node | None = None
    too_small: list[Allocation] = []
    for key in application.task_groups[group.task_group_name].held:
        placeholder = application.allocations[key]
        if not fits_room(placeholder.resource_per_alloc, ask.request.resource_per_alloc):
            too_small.append(placeholder)
            continue
        node = partition.nodes.nodes.get(placeholder.node_id)
        if node is not None and node.schedulable and matches(ask.shape.constraints, node):
            fitting, place = placeholder, node
            break
        fitting = fitting or placeholder
    for placeholder in too_small:
        _cancel_incompatible(partition, application, placeholder, ask)
    if fitting is None:
        return False
    node = place or partition.nodes.best(ask.shape)
    if node is None:
        group.unplaced = partition.nodes.refusal(ask.shape)
        partition.unreplaceable[application] = None
        partition.outbox.touch(application)
        return False
    _start(partition, application, ask, fitting, node)
    return True


def _cancel_incompatible(
    partition: Partition, application: Application, placeholder: Allocation, ask: Ask
) -> None:
    application.message = (
        f"Task group '{placeholder.task_group_name}' in application '{application.id}': "
        f"allocation resources '{go_map(ask.request.resource_per_alloc)}' are not matching "
        f"placeholder '{go_map(placeholder.resource_per_alloc)}' allocation with ID "
        f"'{placeholder.allocation_key}'"
    )
    partition.release(
        application,
        placeholder.allocation_key,
        TerminationType.TIMEOUT,
        "cancel placeholder: resource incompatible",
    )


def _start(
    partition: Partition, application: Application, ask: Ask, placeholder: Allocation, node: Node
) -> None:
    key = placeholder.allocation_key
    partition.take_head(application, ask)
    allocation = replace(allocation_of(ask.request, node.node_id), releases=(key,))
    elsewhere = node.node_id != placeholder.node_id
    application.replacing[key] = Replacement(ask, allocation, elsewhere)
    application.replacing_ask[ask.key] = key
    if elsewhere:
        partition.nodes.place(node, allocation)
        partition.outbox.nodes[node.node_id] = node
    partition.release(
        application,
        key,
        TerminationType.PLACEHOLDER_REPLACED,
        f"replacing placeholder by {ask.key}",
    )


def finish(partition: Partition, application: Application, placeholder_key: str) -> None:
    """Swap the real allocation in: the placeholder is gone, as the resource manager confirmed."""
    swap = application.replacing.pop(placeholder_key)
    del application.replacing_ask[swap.ask.key]
    _swap_in(partition, application, placeholder_key, swap.allocation)


def _swap_in(
    partition: Partition, application: Application, placeholder_key: str, real: Allocation
) -> None:
    had_real = not is_zero(application.allocated)
    application.placeholder_used.add(real.allocation_key)
    partition.count_in(application, real, partition.nodes.nodes[real.node_id])
    partition.remove(application, placeholder_key)
    application.counts_of(real).replaced += 1
    partition.outbox.say("new_allocations", real)
    partition.arm_execution(application, real)
    if application.state is ApplicationState.COMPLETING or (
        application.state is ApplicationState.ACCEPTED and had_real
    ):
        partition.fire(application, ApplicationEvent.RUN)
    if application.counts_of(real).is_used_up:
        application.enter()
    after_placeholders_changed(partition, application)


def placeholder_gone(
    partition: Partition, application: Application, key: str, why: TerminationType
) -> None:
    """Take a placeholder out that has ended: swapped, or lost."""
    if key in application.replacing:
        finish(partition, application, key)
        return
    placeholder = application.allocations[key]
    if why is TerminationType.PLACEHOLDER_REPLACED and _adopt(partition, application, placeholder):
        return
    partition.remove(application, key)
    counts = application.counts_of(placeholder)
    counts.timedout += 1
    if counts.is_used_up:
        application.enter()
    application.keep_promise()
    after_placeholders_changed(partition, application)


def _adopt(partition: Partition, application: Application, placeholder: Allocation) -> bool:
    """Give a replaced placeholder's room to a real ask of its group, decided before a restart."""
    node = partition.nodes.nodes.get(placeholder.node_id)
    for group in application.groups.values():
        ask = group.head()
        if (
            ask is None
            or node is None
            or group.placeholder
            or group.task_group_name != placeholder.task_group_name
            or not fits_room(placeholder.resource_per_alloc, ask.request.resource_per_alloc)
            or not matches(ask.shape.constraints, node)
        ):
            continue
        partition.take_head(application, ask)
        real = replace(
            allocation_of(ask.request, node.node_id), releases=(placeholder.allocation_key,)
        )
        _swap_in(partition, application, placeholder.allocation_key, real)
        return True
    return False
