"""The condition for a preemption on one node: what an ask lacks there, and whether victims help.

All searches on single nodes use it: after earlier decisions are done and the victims have ended,
the node must have the capacity, and no other filter may refuse the ask.
"""

from collections.abc import Hashable, Sequence

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.filters.base import After
from services.core.scheduler.nodes.filters.room import amounts_of, free_of
from services.core.scheduler.nodes.victim_budgets import Releases
from services.core.scheduler.nodes.victim_kinds import Victim
from services.core.scheduler.nodes.victim_sets import Accepts, Costs, Limit
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.statement import under_way


class Opening:
    """What an ask needs on any node: amounts, and whether pods or devices matter."""

    def __init__(self, partition: Partition, ask: Ask) -> None:
        self.partition, self.shape = partition, ask.shape
        self.wanted = ask.shape.wanted
        may_meet_others = ask.shape.constraints.required_node or (
            partition.reserved_nodes.after_preemption
        )
        self.asks_about_pods = partition.nodes.pods.concern(ask.shape) or bool(
            ask.shape.labels and may_meet_others
        )
        self.has_to_be_open = self.asks_about_pods or ask.shape.on_devices is not None


class OnNode:
    """The condition on one node. ``lacking`` is what the node lacks, by type."""

    def __init__(self, opening: Opening, node: Node) -> None:
        self._opening, self._node = opening, node
        self._before = under_way(opening.partition, node)
        room = free_of(node, opening.wanted, *amounts_of(self._before, node))
        wanted = zip(opening.wanted.items(), room, strict=True)
        self.lacking = [(name, value - free) for (name, value), free in wanted if value > free]

    @property
    def accepts(self) -> Accepts | None:
        """Return the check whether victims open the node; None if only amounts matter."""
        return self.is_open if self._opening.has_to_be_open else None

    def is_open(self, victims: Sequence[Victim]) -> bool:
        """Whether pods and devices allow the ask on the node after the victims ended."""
        opening, node = self._opening, self._node
        filters, shape = opening.partition.nodes.filters, opening.shape
        gone = [victim.allocation for victim in victims]
        after = After([*self._before.gone, *gone], self._before.coming)
        return filters.facts.devices.holds(node, shape, after) and (
            not opening.asks_about_pods or filters.between_pods.holds(node, shape, after)
        )

    def alike(self, victim: Victim) -> Hashable:
        """Key of victims whose eviction has the same effect on the node."""
        if not self._opening.has_to_be_open:
            return None
        table, allocation = self._opening.partition.nodes, victim.allocation
        return (
            allocation.node_id,
            allocation.constraints,
            table.pods.labels_of(allocation.allocation_tags),
            table.devices.of(table.nodes[allocation.node_id], victim.key),
        )


def budget_costs(going: Releases, victim: Victim, limits: dict[Limit, int]) -> Costs:
    """Return a victim's cost in disruption budgets, and add their limits to ``limits``."""
    budgets = going.limits_of(victim.key)
    limits.update(budgets)
    return tuple((name, 1) for name, _ in budgets)
