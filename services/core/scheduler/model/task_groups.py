"""What became of a gang's placeholders, counted a task group at a time."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from services.core.scheduler.model.shapes import Ask
from shared.messages.interface import Allocation, AllocationAsk
from shared.model.resources import Resource


@dataclass(slots=True, eq=False)
class TaskGroupCount:
    """How many placeholders of a task group were asked for, and what became of them."""

    count: int = 0
    replaced: int = 0
    timedout: int = 0
    real: int = 0  # its real pods that run and are not being released
    of_one: Resource = field(default_factory=dict)  # what the last of these that came has
    min_resource: Resource = field(default_factory=dict)
    held: dict[str, None] = field(default_factory=dict)  # allocated and not released
    unclaimed: dict[str, None] = field(default_factory=dict)  # releasing, not for a replacement

    @property
    def members(self) -> int:
        """Return how many members the gang has of it: those that never came are not."""
        return self.count - self.timedout

    @property
    def is_used_up(self) -> bool:
        """Return whether every placeholder has been replaced or has gone."""
        return self.count <= self.replaced + self.timedout


@dataclass(slots=True, eq=False)
class Replacement:
    """A real ask that takes a placeholder's place, until the release is confirmed.

    ``is_placed``: the node that was chosen counts the allocation already; it is not the
    placeholder's, or has room beside it.
    """

    ask: Ask
    allocation: Allocation
    is_placed: bool


Item = TypeVar("Item", Allocation, AllocationAsk)


def with_group(item: Item) -> Item:
    """Return an item whose ``placeholder`` counts: without a task group's name it is ignored."""
    if item.placeholder and not item.task_group_name:
        return replace(item, placeholder=False)
    return item
