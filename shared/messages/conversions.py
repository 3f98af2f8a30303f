"""Converts an ask to its allocation, and back."""

from shared.messages.interface import Allocation, AllocationAsk
from shared.model.gpus import Devices


def allocation_of(
    request: AllocationAsk, node_id: str, releases: tuple[str, ...] = (), devices: Devices = ()
) -> Allocation:
    """Return the allocation of an ask on a node, replacing the placeholders in ``releases``."""
    return Allocation(
        allocation_key=request.allocation_key,
        application_id=request.application_id,
        node_id=node_id,
        resource_per_alloc=request.resource_per_alloc,
        partition_name=request.partition_name,
        priority=request.priority,
        task_group_name=request.task_group_name,
        placeholder=request.placeholder,
        originator=request.originator,
        create_time_ns=request.create_time_ns,
        allocation_tags=request.allocation_tags,
        constraints=request.constraints,
        allow_preempt_self=request.allow_preempt_self,
        allow_preempt_other=request.allow_preempt_other,
        exec_timeout_milli_seconds=request.exec_timeout_milli_seconds,
        releases=releases,
        devices=devices,
    )


def ask_of(allocation: Allocation) -> AllocationAsk:
    """Return the ask of an allocation."""
    return AllocationAsk(
        allocation_key=allocation.allocation_key,
        application_id=allocation.application_id,
        resource_per_alloc=allocation.resource_per_alloc,
        partition_name=allocation.partition_name,
        priority=allocation.priority,
        task_group_name=allocation.task_group_name,
        placeholder=allocation.placeholder,
        originator=allocation.originator,
        create_time_ns=allocation.create_time_ns,
        allocation_tags=allocation.allocation_tags,
        constraints=allocation.constraints,
        allow_preempt_self=allocation.allow_preempt_self,
        allow_preempt_other=allocation.allow_preempt_other,
        exec_timeout_milli_seconds=allocation.exec_timeout_milli_seconds,
    )
