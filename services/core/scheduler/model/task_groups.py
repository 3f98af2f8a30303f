"""Counts of a gang's placeholders and real pods, by task group."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from services.core.scheduler.model.shapes import Ask
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.resources import Resource


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

    @property
    def members(self) -> int:
        """Return the number of members: without placeholders that timed out."""
        return self.count - self.timedout

    @property
    def is_used_up(self) -> bool:
        """Whether every placeholder has been replaced or has timed out."""
        return self.count <= self.replaced + self.timedout


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
