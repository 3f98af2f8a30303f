"""Foreign pods: allocations of other schedulers, which are counted on their node only.

Rule 1: a foreign allocation has no application and no queue. It adds to its node's occupied
        resource, even beyond the capacity, and reduces the available one.
Rule 2: the same key again updates the resource. Whether it may be preempted is fixed by the tag of
        its first report.
        A pod that was nominated and is now bound has no nomination tag any more.
Rule 3: only rejections are sent to the resource manager.
Source: docs/rules/foreign-pods.md; cases F-01 and F-02.
"""

from dataclasses import replace

from services.core.scheduler.statement import node_moves
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.names import FOREIGN_TAG
from shared.model.numbers import INT32
from shared.model.resources import is_negative


def is_foreign(item: Allocation | AllocationAsk) -> bool:
    """Whether an item is a pod of another scheduler."""
    return FOREIGN_TAG in item.allocation_tags


def refusal(partition: Partition, item: Allocation | AllocationAsk) -> str:
    """Return why a foreign allocation is rejected, "" if it is not."""
    key = item.allocation_key
    if isinstance(item, AllocationAsk):
        return f"trying to add a foreign request (non-allocation) {key}"
    if not item.node_id:
        return f"node ID is empty for allocation {key}"
    if item.node_id not in partition.nodes.nodes:
        return f"failed to find node {item.node_id} for allocation {key}"
    if is_negative(item.resource_per_alloc):
        return f"allocation {key} contains negative resources"
    if item.priority not in INT32:
        return f"a priority is a 32-bit whole number, found {item.priority}"
    return ""


def add(partition: Partition, allocation: Allocation) -> None:
    """Count a foreign pod on its node, or update it; requires that ``refusal`` returned ""."""
    before = _known(partition, allocation.allocation_key)
    if before is not None:
        tags = {**allocation.allocation_tags, FOREIGN_TAG: before.allocation_tags[FOREIGN_TAG]}
        allocation = replace(allocation, allocation_tags=tags)
        if allocation != before:
            node_moves.resize_foreign(partition, before, allocation)
    else:
        node_moves.add_foreign(partition, allocation)


def release(partition: Partition, key: str) -> None:
    """Remove a foreign pod; an unknown key is no error."""
    allocation = _known(partition, key)
    if allocation is not None:
        node_moves.remove_foreign(partition, allocation)


def _known(partition: Partition, key: str) -> Allocation | None:
    node_id = partition.foreign.get(key)
    return None if node_id is None else partition.nodes.nodes[node_id].foreign[key]
