"""Eligible victims of an ask by YuniKorn's rules: fence, guarantees, priority.

Allocations of one leaf, priority and amount are a kind and are checked together
(``nodes/victim_index.py``).
Source: docs/rules/preemption.md; case X-11.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from services.core.scheduler.actions.victims import have_type_in_common
from services.core.scheduler.constraints.guarantees import left, spare
from services.core.scheduler.model.queue_ledger import HIGHEST_PRIORITY
from services.core.scheduler.model.queue_settings import DISABLED, FENCE
from services.core.scheduler.model.rows import Queue
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.victim_kinds import Kind
from services.core.scheduler.statement.partition import Partition
from shared.model.resources import ResourceView, add, subtract_into


@dataclass(frozen=True, slots=True)
class Eligible:
    """The kinds of victims that an ask may evict, without those of ``spared`` applications.

    ``takeable`` are the kinds of which one may be evicted without a queue falling below its
    guarantee.
    """

    kinds: tuple[Kind, ...] = ()
    takeable: tuple[Kind, ...] = ()
    spared: frozenset[str] = frozenset()


def eligible(
    partition: Partition, leaf: Queue, ask: Ask, spared: frozenset[str] = frozenset()
) -> Eligible:
    """Return the eligible victims of an ask, without reading allocations."""
    search = _Search(partition, leaf, ask)
    kinds: list[Kind] = []
    takeable: list[Kind] = []
    for giving, priority in search.below(*search.fence()):
        remaining = left(giving, leaf)
        if remaining is not None and not any(value < 0 for value in remaining.values()):
            continue
        may_lose = [(name, most) for (_, name), most in spare(giving, leaf).items()]
        for kind in partition.victims.by_leaf.get(giving, ()):
            if kind.priority > priority or not have_type_in_common(kind.amount, ask.shape.resource):
                continue
            kinds.append(kind)
            if all(kind.amount.get(name, 0) <= max(0, most) for name, most in may_lose):
                takeable.append(kind)
    return Eligible(tuple(kinds), tuple(takeable), spared)


@dataclass(frozen=True, slots=True)
class _Search:
    """One ask's search; priorities are the ask's, as seen from a queue."""

    partition: Partition
    leaf: Queue
    ask: Ask

    def fence(self) -> tuple[Queue, int]:
        """Return the queue that limits the search, and the ask's priority seen from it."""
        queue, priority = self.leaf, self.ask.request.priority
        while queue.parent is not None:
            settings = queue.settings
            if settings.preemption_policy == FENCE:
                break
            if _would_be_over(queue, self.ask.shape.resource):
                break
            priority = queue.settings.seen_from_above(priority)
            queue = queue.parent
        return queue, priority

    def below(self, queue: Queue, priority: int) -> Iterator[tuple[Queue, int]]:
        """Yield the leaves below a queue that have victims, with the priority seen from each."""
        if queue.is_leaf:
            may_give = queue.settings.preemption_policy != DISABLED
            if queue is not self.leaf and may_give and queue in self.partition.victims.by_leaf:
                yield queue, priority
            return
        for child in queue.children.values():
            seen = self._seen_from(child, priority)
            if seen is not None:
                yield from self.below(child, seen)

    def _seen_from(self, child: Queue, priority: int) -> int | None:
        """Return the priority seen from a child; None if its fence protects everything in it."""
        if child in self.leaf.lineage():
            priority = self.ask.request.priority
            for level in self.leaf.lineage():
                if level is child:
                    return priority
                priority = level.settings.seen_from_above(priority)
        offset = child.settings.priority_offset
        if not child.settings.priority_fence:
            return priority - offset
        return None if offset > priority else HIGHEST_PRIORITY


def _would_be_over(queue: Queue, amount: ResourceView) -> bool:
    """Whether a queue would exceed its effective max with an ask."""
    limit = queue.effective_max() or {}
    with_ask = add(queue.allocated, amount)
    subtract_into(with_ask, queue.preempting)
    return any(with_ask.get(name, 0) > limit[name] for name in amount if name in limit)
