"""Moves of a replacement: a real ask takes a placeholder's place. ``actions`` chooses which.

Rule: the placeholder is released once, for one real ask, which is not allocated until the resource
manager has confirmed the release; on another node it occupies its capacity at once.
Source: docs/rules/gangs.md#replacement.
"""

from dataclasses import replace

from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.task_groups import Replacement
from services.core.scheduler.statement.journal import (
    NodeChanged,
    SwapBegun,
    SwapConfirmed,
    SwapFailed,
)
from services.core.scheduler.statement.partition import Partition
from shared.messages.conversions import allocation_of
from shared.messages.interface import Allocation, TerminationType

REPLACED = TerminationType.PLACEHOLDER_REPLACED


def begin(
    partition: Partition, application: Application, ask: Ask, placeholder: Allocation, node: Node
) -> None:
    """Release a placeholder for an ask that starts on a node when the placeholder has ended.

    The ask gets the placeholder's GPU devices if it requests the same.
    """
    key = placeholder.allocation_key
    partition.dequeue(application, ask)
    allocation = allocation_of(ask.request, node.node_id, (key,), placeholder.devices)
    swap = Replacement(ask, allocation, is_placed=node.node_id != placeholder.node_id)
    application.replacing[key] = swap
    application.replacing_ask[ask.key] = key
    partition.journal.record(SwapBegun(application, key, swap.allocation, swap.is_placed))
    if swap.is_placed:
        _put(partition, swap.allocation, node)
    if key not in application.released:
        partition.release(application, key, REPLACED, f"replacing placeholder by {ask.key}")
    application.counts_of(placeholder).unclaimed.pop(key)


def end(application: Application, placeholder_key: str) -> Replacement | None:
    """Remove and return the replacement of an ended placeholder; None if there is none."""
    swap = application.replacing.pop(placeholder_key, None)
    if swap is not None:
        del application.replacing_ask[swap.ask.key]
    return swap


def cancel(partition: Partition, application: Application, ask_key: str) -> Ask | None:
    """Cancel a replacement because its real ask has ended; return the ask, or None.

    The placeholder's release cannot be cancelled; its place is for the next real ask of its group.
    """
    placeholder_key = application.replacing_ask.get(ask_key)
    swap = end(application, placeholder_key) if placeholder_key is not None else None
    if placeholder_key is None or swap is None:
        return None
    placeholder = application.allocations[placeholder_key]
    application.counts_of(placeholder).unclaimed[placeholder_key] = None
    application.positions.pop(ask_key, None)
    fail(partition, application, placeholder_key)
    if swap.is_placed:
        partition.free_node(swap.allocation)
    return swap.ask


def fail(partition: Partition, application: Application, placeholder_key: str) -> None:
    """Record that a placeholder's replacement failed; it must be ended before."""
    partition.journal.record(SwapFailed(application, placeholder_key))


def move(partition: Partition, application: Application, ask_key: str, node: Node) -> None:
    """Move a replacement whose node was removed to another node."""
    key = application.replacing_ask[ask_key]
    swap = application.replacing[key]
    swap.allocation = replace(swap.allocation, node_id=node.node_id)
    partition.journal.record(SwapBegun(application, key, swap.allocation, swap.is_placed))
    _put(partition, swap.allocation, node)


def finish(
    partition: Partition, application: Application, real: Allocation, placeholder: Allocation
) -> None:
    """Add a real allocation whose placeholder has ended."""
    application.placeholder_used[real.allocation_key] = placeholder.create_time_ns
    for key in real.releases:
        partition.journal.record(SwapConfirmed(application, key))
    node = partition.nodes.nodes[real.node_id]
    partition.add_allocation(application, real, node, is_new=True)
    partition.change_usage(application, placeholder.resource_per_alloc, real.resource_per_alloc)


def count_end(application: Application, placeholder: Allocation, *, is_replaced: bool) -> None:
    """Count an ended placeholder as replaced or timed out."""
    counts = application.counts_of(placeholder)
    counts.replaced += is_replaced
    counts.timedout += not is_replaced


def _put(partition: Partition, allocation: Allocation, node: Node) -> None:
    """Occupy another node than the placeholder's with a real allocation, before it starts."""
    partition.nodes.place(node, allocation)
    partition.journal.record(NodeChanged(node))
