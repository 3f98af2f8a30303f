"""Foreign pods: what other schedulers placed is counted on its node, and nowhere else.

Rule 1: a foreign allocation has no application and no queue. It adds to what is occupied on its
        node, also beyond what the node holds, and takes from what is available.
Rule 2: the same key again is an update of its resource. Whether it may be preempted, which its tag
        says, is settled when it first comes.
        One that was nominated for a node, and has come, has no tag of that any more.
Rule 3: nothing is sent to the resource manager, but why one was refused.
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
    """Return whether an item is about a pod that another scheduler placed."""
    return FOREIGN_TAG in item.allocation_tags


def refusal(partition: Partition, item: Allocation | AllocationAsk) -> str:
    """Return why a foreign allocation cannot be counted ("": it can)."""
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
    """Count a foreign pod on its node, or count it again; ``refusal`` must have had nothing."""
    before = _known(partition, allocation.allocation_key)
    if before is not None:
        tags = {**allocation.allocation_tags, FOREIGN_TAG: before.allocation_tags[FOREIGN_TAG]}
        allocation = replace(allocation, allocation_tags=tags)
        if allocation != before:
            node_moves.resize_foreign(partition, before, allocation)
    else:
        node_moves.add_foreign(partition, allocation)


def release(partition: Partition, key: str) -> None:
    """Count a foreign pod out; one that is not known is no error."""
    allocation = _known(partition, key)
    if allocation is not None:
        node_moves.remove_foreign(partition, allocation)


def _known(partition: Partition, key: str) -> Allocation | None:
    node_id = partition.foreign.get(key)
    return None if node_id is None else partition.nodes.nodes[node_id].foreign[key]
