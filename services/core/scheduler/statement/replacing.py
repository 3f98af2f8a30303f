"""A real ask takes a placeholder's place: the moves. Which one is chosen in ``actions``.

Rule: the placeholder is released once, for one real ask, which takes nothing until the resource
      manager has confirmed that (but its own node's room, where that is not the placeholder's).
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
    """Release a placeholder for an ask, which is to start on a node when it has gone.

    It is to have the placeholder's GPU devices there, if these are as it asks for.
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
    """Return what was to take a placeholder's place, which has gone; or None."""
    swap = application.replacing.pop(placeholder_key, None)
    if swap is not None:
        del application.replacing_ask[swap.ask.key]
    return swap


def cancel(partition: Partition, application: Application, ask_key: str) -> Ask | None:
    """Give a replacement up because its real ask has gone; return the ask, or None.

    The placeholder's release is on its way and cannot be called back; its place is for the next
    real ask of its group.
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
    """Write down that what was to take a placeholder's place does not; it has been ended."""
    partition.journal.record(SwapFailed(application, placeholder_key))


def move(partition: Partition, application: Application, ask_key: str, node: Node) -> None:
    """Have an ask whose node has gone start on another one."""
    key = application.replacing_ask[ask_key]
    swap = application.replacing[key]
    swap.allocation = replace(swap.allocation, node_id=node.node_id)
    partition.journal.record(SwapBegun(application, key, swap.allocation, swap.is_placed))
    _put(partition, swap.allocation, node)


def finish(
    partition: Partition, application: Application, real: Allocation, placeholder: Allocation
) -> None:
    """Count a real allocation in whose placeholder has gone."""
    application.placeholder_used[real.allocation_key] = placeholder.create_time_ns
    for key in real.releases:
        partition.journal.record(SwapConfirmed(application, key))
    node = partition.nodes.nodes[real.node_id]
    partition.add_allocation(application, real, node, is_new=True)
    partition.change_usage(application, placeholder.resource_per_alloc, real.resource_per_alloc)


def count_end(application: Application, placeholder: Allocation, *, is_replaced: bool) -> None:
    """Count what became of a placeholder that has gone."""
    counts = application.counts_of(placeholder)
    counts.replaced += is_replaced
    counts.timedout += not is_replaced


def _put(partition: Partition, allocation: Allocation, node: Node) -> None:
    """Count a real allocation on a node that is not its placeholder's, before the swap."""
    partition.nodes.place(node, allocation)
    partition.journal.record(NodeChanged(node))
