"""The tree of a gang: sets of tasks with a minimum, and groups that need some of their members.

Rule 1: a set is satisfied by its minimum of tasks, a group by ``min_groups`` satisfied members
        (all of them where it does not say).
Rule 2: what a gang gets next is exactly what it lacks; once it is satisfied, one more: a member
        that is not satisfied yet, else a task of the one that has the least for its minimum.
Rule 3: what it gives is one task above a set's minimum, or one member more than a group needs,
        the last first; without any of those it gives everything.
Source: docs/rules/kai.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from shared.messages.interface import TopologyConstraint


class HasOrder(Protocol):
    """A task, as far as a tree knows it."""

    @property
    def order(self) -> Any:
        """Return what orders tasks of a job: the first in is the last out."""


Task = TypeVar("Task", bound=HasOrder)
Holds = Callable[[Task], bool]


@dataclass(slots=True, eq=False)
class Group(Generic[Task]):
    """A set of tasks (``min_tasks``), or a group of members (``min_groups``, None: all)."""

    name: str
    min_tasks: int = 0
    min_groups: int | None = None
    members: list["Group[Task]"] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    topology: TopologyConstraint | None = None

    @property
    def needed(self) -> int:
        """Return how many members, or tasks, it needs."""
        if not self.members:
            return self.min_tasks
        return len(self.members) if self.min_groups is None else self.min_groups

    def count(self, holds: Holds[Task]) -> int:
        """Return how many of what it needs it has."""
        if self.members:
            return sum(member.is_satisfied(holds) for member in self.members)
        return sum(map(holds, self.tasks))

    def is_satisfied(self, holds: Holds[Task]) -> bool:
        """Return whether it has what it needs, of the tasks for which something holds."""
        return self.count(holds) >= self.needed

    def lacking(self, has: Holds[Task], waits: Holds[Task]) -> list[Task] | None:
        """Return the tasks that would satisfy it, or None when there are not enough that wait."""
        left = self.needed - self.count(has)
        if left <= 0:
            return []
        if not self.members:
            waiting = sorted(filter(waits, self.tasks), key=lambda task: task.order)
            return waiting[:left] if len(waiting) >= left else None
        found: list[Task] = []
        for member in self.members:
            tasks = None if member.is_satisfied(has) else member.lacking(has, waits)
            if tasks and left:
                found += tasks
                left -= 1
        return None if left else found

    def one_more(self, has: Holds[Task], waits: Holds[Task]) -> list[Task]:
        """Return what a satisfied one gets next: a whole member, or one task; none without any."""
        if not self.members:
            return sorted(filter(waits, self.tasks), key=lambda task: task.order)[:1]
        for member in self.members:
            if not member.is_satisfied(has) and (tasks := member.lacking(has, waits)):
                return tasks
        satisfied = [member for member in self.members if member.is_satisfied(has)]
        for member in sorted(satisfied, key=lambda member: member.ratio(has)):
            tasks = member.one_more(has, waits)
            if tasks:
                return tasks
        return []

    def ratio(self, has: Holds[Task]) -> Fraction:
        """Return how much it has for what it needs."""
        return Fraction(self.count(has), max(1, self.needed))

    def surplus(self, has: Holds[Task]) -> list[Task]:
        """Return what it can give without being unsatisfied: a task, or a member; or nothing."""
        if not self.members:
            own = sorted(filter(has, self.tasks), key=lambda task: task.order)
            return own[-1:] if len(own) > self.min_tasks else []
        for member in reversed(self.members):
            tasks = member.surplus(has) if member.is_satisfied(has) else []
            if tasks:
                return tasks
        satisfied = [member for member in self.members if member.is_satisfied(has)]
        if len(satisfied) > self.needed:
            return satisfied[-1].all_tasks(has)
        return []

    def all_tasks(self, holds: Holds[Task]) -> list[Task]:
        """Return its tasks for which something holds."""
        own = [task for task in self.tasks if holds(task)]
        return own + [task for member in self.members for task in member.all_tasks(holds)]
