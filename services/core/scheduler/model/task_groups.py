"""Counts of a gang's placeholders and real pods, by task group."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from services.core.scheduler.model.shapes import Ask
from shared.messages.constraints import Constraints
from shared.messages.interface import Allocation, AllocationAsk
from shared.messages.selectors import other_nodes
from shared.model.resources import Resource

MAX_AVOIDED = 8  # nodes on which pods of a task group have failed; the oldest is forgotten


@dataclass(slots=True, eq=False)
class TaskGroupCount:
    """The requested placeholders of a task group, and what became of them."""

    count: int = 0
    replaced: int = 0
    timedout: int = 0
    real: int = 0  # running real pods, without those being released
    of_one: Resource = field(default_factory=dict)  # the resource of the latest real pod
    min_resource: Resource = field(default_factory=dict)
    held: dict[str, None] = field(default_factory=dict)  # allocated and not released
    unclaimed: dict[str, None] = field(default_factory=dict)  # being released, not for an ask
    avoided: dict[str, int] = field(default_factory=dict)  # nodes of failed pods, and until when

    @property
    def members(self) -> int:
        """Return the number of members: without placeholders that timed out."""
        return self.count - self.timedout

    @property
    def is_used_up(self) -> bool:
        """Whether every placeholder has been replaced or has timed out."""
        return self.count <= self.replaced + self.timedout

    def avoid(self, node: str, until_ns: int) -> None:
        """Record the node of a failed pod: asks that arrive until then prefer other nodes."""
        self.avoided.pop(node, None)
        self.avoided[node] = until_ns
        if len(self.avoided) > MAX_AVOIDED:
            del self.avoided[next(iter(self.avoided))]

    def avoiding(self, constraints: Constraints, now_ns: int) -> Constraints:
        """Constraints of an ask that arrives now: other nodes outweigh all its preferences."""
        nodes = tuple(sorted(node for node, until_ns in self.avoided.items() if now_ns < until_ns))
        if not nodes or constraints.required_node:
            return constraints
        terms = constraints.preferred_nodes
        weight = 1 + sum(term.weight for term in terms)
        return replace(constraints, preferred_nodes=(*terms, other_nodes(nodes, weight)))


@dataclass(slots=True, eq=False)
class Replacement:
    """A real ask that takes a placeholder's place, until the release is confirmed.

    ``is_placed``: its node already counts the allocation, because it is not the placeholder's.
    """

    ask: Ask
    allocation: Allocation
    is_placed: bool


Item = TypeVar("Item", Allocation, AllocationAsk)


def with_group(item: Item) -> Item:
    """Return an item without ``placeholder`` if it has no task group, as such a flag is ignored."""
    if item.placeholder and not item.task_group_name:
        return replace(item, placeholder=False)
    return item
