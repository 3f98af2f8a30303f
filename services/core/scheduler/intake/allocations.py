"""Allocations reported by the resource manager: existing, resized, or not bound.

Rule 1: an existing allocation is counted even beyond limits (recovery).
Rule 2: the same key with another resource is a pod resized in place: every ledger and the counts
        of its volumes follow, even beyond limits. If it is on another node than the decision
        said, because another scheduler bound it first, it is moved there. A placeholder stays a
        placeholder of its task group. A real pod that is bound before its placeholder has ended
        needs its place no more: the next real pod of the group gets it.
Rule 3: an allocation that could not be bound becomes an ask again, at its old position in its
        queue. It is no longer counted on a node, in a queue or for a user, and its victims are
        not evicted.
"""

from dataclasses import replace

from services.core.scheduler.actions import gang, quota_preemption
from services.core.scheduler.intake import foreign
from services.core.scheduler.model.devices import misfit
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.task_groups import with_group
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement import application_moves, replacing
from services.core.scheduler.statement.journal import AllocationChanged, AskRejected, BindFailed
from services.core.scheduler.statement.partition import Partition
from shared.messages.conversions import ask_of
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
)
from shared.messages.protocol import TimerKind
from shared.model.numbers import INT32
from shared.model.resources import is_negative, is_zero, without_zeros
from shared.model.states import ApplicationEvent, ApplicationState

_GIVEN_UP = (ApplicationState.FAILING, ApplicationState.RESUMING)


def reject(partition: Partition, item: Allocation | AllocationAsk, reason: str) -> None:
    """Send the resource manager why an ask or an allocation is rejected."""
    partition.journal.record(AskRejected(item, reason))
    partition.configure(rejected_asks=partition.rejected_asks + 1)


def add_existing(partition: Partition, allocation: Allocation) -> None:
    """Count an existing allocation, or update one that changed its size or node."""
    allocation = with_group(allocation)
    application = partition.applications.get(allocation.application_id)
    node = partition.nodes.nodes.get(allocation.node_id)
    is_foreign = foreign.is_foreign(allocation)
    reason = (
        foreign.refusal(partition, allocation)
        if is_foreign
        else _refusal(application, node, allocation)
    )
    if reason:
        reject(partition, allocation, reason)
    elif is_foreign:
        foreign.add(partition, allocation)
    elif application is not None and node is not None:
        _count_existing(partition, application, allocation, node)


def _refusal(application: Application | None, node: Node | None, allocation: Allocation) -> str:
    if application is None:
        return f"failed to find application {allocation.application_id}"
    if node is None:
        return f"failed to find node {allocation.node_id}"
    if is_zero(allocation.resource_per_alloc):
        return "allocation contains no resources"
    if is_negative(allocation.resource_per_alloc):
        return "allocation contains negative resources"
    if allocation.priority not in INT32:
        return f"a priority is a 32-bit whole number, found {allocation.priority}"
    return misfit(allocation.resource_per_alloc, allocation.constraints)


def _count_existing(
    partition: Partition, application: Application, allocation: Allocation, node: Node
) -> None:
    """Count an allocation even beyond limits; one that is being released stays released."""
    key = allocation.allocation_key
    known = application.allocations.get(key)
    if known is not None and (known.node_id == node.node_id or key in application.released):
        _resize(partition, application, key, allocation)
        return
    if known is not None:
        why = f"it was bound to node {node.node_id} by another"
        failed = TerminationType.SCHEDULING_FAILED_ON_RM
        roll_back(
            partition, application, AllocationRelease(application.id, key, failed, message=why)
        )
    replacing.cancel(partition, application, key)  # it has a place of its own now
    ask = partition.remove_ask(application, key)
    partition.learn(allocation.constraints)
    if ask is not None and ask.request.placeholder:
        group = ask.request.task_group_name
        allocation = replace(allocation, placeholder=True, task_group_name=group)
    elif allocation.placeholder:
        name, amount = allocation.task_group_name, allocation.resource_per_alloc
        application.count_placeholder(name, amount, exists=True)
    partition.count_in(application, allocation, node)
    quota_preemption.use_changed(partition, application.queue)
    if allocation.released:
        is_victim = application.is_kai and not allocation.placeholder
        why = TerminationType.PREEMPTED_BY_SCHEDULER if is_victim else TerminationType.TIMEOUT
        partition.mark_released(application, key, why)
        if is_victim:  # a queue does not count capacity that it is releasing
            application.queue.change_preempting({}, allocation.resource_per_alloc)
        partition.journal.record(AllocationChanged(application, allocation))
    partition.arm_execution(application, allocation)
    _recover_state(partition, application, allocation)


# --- resized ------------------------------------------------------------------------------------


def _resize(partition: Partition, application: Application, key: str, now: Allocation) -> None:
    """Update every ledger to a pod's new size and volumes."""
    before = application.allocations[key]
    resource, volumes = now.resource_per_alloc, now.constraints.volumes
    is_as_large = without_zeros(before.resource_per_alloc) == without_zeros(resource)
    if is_as_large and before.constraints.volumes == volumes:
        return
    partition.resize(application, key, resource, volumes)
    quota_preemption.use_changed(partition, application.queue)


# --- not bound ----------------------------------------------------------------------------------


def roll_back(partition: Partition, application: Application, request: AllocationRelease) -> None:
    """Turn an allocation that could not be bound back into an ask, at its old position."""
    key = request.allocation_key
    sequence = application.positions.get(key, 0)
    partition.cancel_timer(application, TimerKind.EXECUTION, key)
    allocation = partition.remove(application, key)
    if allocation is None:
        return
    partition.journal.record(BindFailed(application, key, request.message))
    partition.add_ask(application, ask_of(allocation), sequence)
    partition.claim_for_gang(application)
    queueing.enter(application)
    partition.check_replacements(application)


# --- recovery -----------------------------------------------------------------------------------


def _recover_state(partition: Partition, application: Application, allocation: Allocation) -> None:
    """Bring an application to the state that an existing allocation implies.

    A failing application stays so. A placeholder of a gang that gave up is released.
    """
    is_given_up = application.state in (ApplicationState.FAILING, ApplicationState.RESUMING)
    if is_given_up and allocation.placeholder:
        if not allocation.released:
            key, why = allocation.allocation_key, "releasing placeholders on app timeout"
            partition.release(application, key, TerminationType.TIMEOUT, why)
        return
    if application.state is ApplicationState.FAILING:
        return
    if application.state is ApplicationState.NEW:
        partition.fire(application, ApplicationEvent.RUN)
    if not allocation.placeholder:
        partition.fire(application, ApplicationEvent.RUN)
    elif not allocation.released:
        if not application.starts_placed:
            partition.admit(application)
        _recover_reservation(partition, application)


def _recover_reservation(partition: Partition, application: Application) -> None:
    """Run a recovered gang if it is whole, otherwise claim the missing capacity.

    An existing placeholder starts the placeholder timeout as one that is allocated does. In a
    recovery its end continues it from its original start (``recover_timer``).
    """
    if application.state is not ApplicationState.ACCEPTED:
        return
    application_moves.count_as_starting(application)
    gang.start_reservation(partition, application)
    if application.holds_whole_gang:
        partition.fire(application, ApplicationEvent.RUN)
    partition.claim_for_gang(application)


def recover_timer(partition: Partition, application: Application) -> None:
    """Arm a recovered application's placeholder timeout, counted from its original start.

    An application without placeholders has one only if its gang waits for places on nodes.
    """
    has_placeholders = any(counts.held for counts in application.task_groups.values()) or (
        application.needs_places and application.reservation_start_ns > 0
    )
    if not has_placeholders:
        # It starts when the first placeholder is allocated.
        partition.set(application, reservation_start_ns=0)
    if not has_placeholders or application.state in _GIVEN_UP:
        if not application.awaits_placeholders:
            partition.cancel_timer(application, TimerKind.PLACEHOLDER)
        return
    application_moves.start_reservation_clock(partition, application)
