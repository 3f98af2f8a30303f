"""Who may be preempted for an ask: below its fence, over what is guaranteed, of no higher priority.

Source: contract section 6.9; case X-11.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from services.core.scheduler.actions.victims import have_type_in_common, rank_of
from services.core.scheduler.constraints.guarantees import Ledger, left
from services.core.scheduler.model.queue_settings import DISABLED, FENCE
from services.core.scheduler.model.queues import HIGHEST_PRIORITY, Queue
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.resources import ResourceView, add, subtract_into


@dataclass(frozen=True, slots=True)
class Victim:
    """An allocation that may be taken, and the leaf that it is in."""

    allocation: Allocation
    leaf: Queue

    @property
    def rank(self) -> int:
        """Return 0 for an ordinary one, 1 for one that opted out, 2 for an originator."""
        return rank_of(self.allocation)

    @property
    def order(self) -> tuple[int, int, str]:
        """Return what orders victims on a node: the first go first."""
        return (self.rank, -self.allocation.create_time_ns, self.allocation.allocation_key)


def eligible_victims(partition: Partition, leaf: Queue, ask: Ask) -> list[Victim]:
    """Return every allocation that the laws allow an ask to take."""
    search = _Search(partition, leaf, ask)
    return list(search.below(*search.fence()))


@dataclass(frozen=True, slots=True)
class _Search:
    """One ask's search; priorities are always the ask's, as seen from a queue."""

    partition: Partition
    leaf: Queue
    ask: Ask

    def fence(self) -> tuple[Queue, int]:
        """Return the queue beyond which nothing is taken, and the priority seen from there."""
        queue, priority = self.leaf, self.ask.request.priority
        while queue.parent is not None:
            settings = queue.settings
            if settings.preemption_policy == FENCE:
                break
            if _would_be_over(queue, self.ask.shape.resource):
                break
            priority = _seen_from_above(queue, priority)
            queue = queue.parent
        return queue, priority

    def below(self, queue: Queue, priority: int) -> Iterator[Victim]:
        """Yield the victims below a queue."""
        if queue.is_leaf:
            if queue is not self.leaf and self._may_give(queue):
                yield from self._in_leaf(queue, priority)
            return
        for child in queue.children.values():
            seen = self._seen_from(child, priority)
            if seen is not None:
                yield from self.below(child, seen)

    def _seen_from(self, child: Queue, priority: int) -> int | None:
        """Return the priority seen from a child; None where its fence keeps everything in it."""
        if child in self.leaf.lineage():
            priority = self.ask.request.priority
            for level in self.leaf.lineage():
                if level is child:
                    return priority
                priority = _seen_from_above(level, priority)
        offset = child.settings.priority_offset
        if not child.settings.priority_fence:
            return priority - offset
        return None if offset > priority else HIGHEST_PRIORITY

    def _may_give(self, leaf: Queue) -> bool:
        if leaf.settings.preemption_policy == DISABLED:
            return False
        remaining = left(leaf, self.leaf, Ledger())
        return remaining is None or any(value < 0 for value in remaining.values())

    def _in_leaf(self, leaf: Queue, priority: int) -> Iterator[Victim]:
        wanted = self.ask.shape.resource
        nodes = self.partition.nodes.nodes
        for application in leaf.applications.values():
            for key, allocation in application.allocations.items():
                if (
                    key not in application.released
                    and allocation.priority <= priority
                    and not allocation.constraints.required_node
                    and allocation.node_id in nodes
                    and have_type_in_common(allocation.resource_per_alloc, wanted)
                ):
                    yield Victim(allocation, leaf)


def _seen_from_above(queue: Queue, priority: int) -> int:
    offset = queue.settings.priority_offset
    return offset if queue.settings.priority_fence else priority + offset


def _would_be_over(queue: Queue, amount: ResourceView) -> bool:
    """Return whether a queue would be over its effective max with an ask; reaching it is not."""
    limit = queue.effective_max() or {}
    with_ask = add(queue.allocated, amount)
    subtract_into(with_ask, queue.preempting)
    return any(with_ask.get(name, 0) > limit[name] for name in amount if name in limit)
