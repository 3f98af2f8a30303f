"""A gang's tree: sets of tasks with a minimum, and groups that need some of their members.

Rule 1: a set is satisfied by its minimum of tasks, a group by ``min_groups`` satisfied members (all
        of them if it is not set).
Rule 2: an unsatisfied gang gets next exactly what it lacks; a satisfied one gets one more: an
        unsatisfied member, else a task of the member with the lowest ratio to its minimum.
Rule 3: as a victim it gives one task above a set's minimum, or one member above a group's need, the
        last first; without such surplus it gives everything. One with ``goes_whole`` gives only
        everything.
Source: docs/rules/kai.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from shared.messages.interface import TopologyConstraint


class HasOrder(Protocol):
    """A task, as a tree needs it."""

    @property
    def order(self) -> Any:
        """Return the sort key of tasks in a job: the first to start is the last to be evicted."""


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
    goes_whole: bool = False  # evicted as a whole only

    @property
    def needed(self) -> int:
        """Return how many members, or tasks, it needs."""
        if not self.members:
            return self.min_tasks
        return len(self.members) if self.min_groups is None else self.min_groups

    @property
    def least(self) -> int:
        """Return the smallest number of tasks that satisfies it."""
        if not self.members:
            return self.min_tasks
        return sum(sorted(member.least for member in self.members)[: self.needed])

    def count(self, holds: Holds[Task]) -> int:
        """Return how many of its needed members, or tasks, it has."""
        if self.members:
            return sum(member.is_satisfied(holds) for member in self.members)
        return sum(map(holds, self.tasks))

    def is_satisfied(self, holds: Holds[Task]) -> bool:
        """Whether the tasks for which ``holds`` is true satisfy it."""
        return self.count(holds) >= self.needed

    def lacking(self, has: Holds[Task], waits: Holds[Task]) -> list[Task] | None:
        """Return the waiting tasks that would satisfy it, None if there are not enough."""
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
        """Return what a satisfied group gets next: a whole member, one task, or []."""
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
        """Return the ratio of what it has to what it needs."""
        return Fraction(self.count(has), max(1, self.needed))

    def has_surplus(self, has: Holds[Task]) -> bool:
        """Whether it can lose something and stay satisfied."""
        if self.goes_whole:
            return False
        if not self.members:
            return self.count(has) > self.min_tasks
        satisfied = [member for member in self.members if member.is_satisfied(has)]
        if any(member.has_surplus(has) for member in satisfied):
            return True
        return len(satisfied) > self.needed and bool(satisfied[-1].all_tasks(has))

    def find(self, name: str) -> "Group[Task] | None":
        """Return the member with a name, at any depth, or None."""
        for member in self.members:
            found = member if member.name == name else member.find(name)
            if found is not None:
                return found
        return None

    @property
    def has_wholes(self) -> bool:
        """Whether it, or a member at any depth, can be evicted as a whole only."""
        return self.goes_whole or any(member.has_wholes for member in self.members)

    def together(self, tasks: list[Task], holds: Holds[Task]) -> list[Task]:
        """Return tasks, and those that must be evicted with them, for which ``holds`` is true."""
        own = dict.fromkeys(tasks)
        if self.goes_whole:
            every = self.all_tasks(holds)
            return every if any(task in own for task in every) else []
        found = [task for task in self.tasks if task in own]
        return found + [task for each in self.members for task in each.together(tasks, holds)]

    def all_tasks(self, holds: Holds[Task]) -> list[Task]:
        """Return its tasks for which ``holds`` is true, members' included."""
        own = [task for task in self.tasks if holds(task)]
        return own + [task for member in self.members for task in member.all_tasks(holds)]


class Remainder(Generic[Task]):
    """The rest of a tree while its surplus is taken, unit by unit (Rule 3).

    Each set is sorted once. A member without surplus never has any again, so it is passed once. In
    a set, tasks for which ``first`` is true are taken first.
    """

    __slots__ = ("_giving", "_group", "_members", "_satisfied", "_tasks")

    def __init__(
        self, group: Group[Task], has: Holds[Task], first: Holds[Task] | None = None
    ) -> None:
        self._group = group
        self._members = [Remainder(member, has, first) for member in group.members]
        self._tasks = sorted(filter(has, group.tasks), key=lambda task: task.order)
        if first is not None:
            self._tasks.sort(key=first)
        self._satisfied = [member for member in self._members if member.is_satisfied]
        self._giving = self._satisfied.copy()  # may have surplus; the last is taken first

    @property
    def is_satisfied(self) -> bool:
        """Whether the rest satisfies it."""
        return len(self._satisfied if self._members else self._tasks) >= self._group.needed

    @property
    def has_surplus(self) -> bool:
        """Whether it can lose something and stay satisfied."""
        if self._group.goes_whole:
            return False
        if not self._members:
            return len(self._tasks) > self._group.min_tasks
        while self._giving and not self._giving[-1].has_surplus:
            self._giving.pop()
        is_above = len(self._satisfied) > self._group.needed
        return bool(self._giving) or (is_above and self._satisfied[-1].is_any_left)

    @property
    def is_any_left(self) -> bool:
        """Whether any task is left."""
        return bool(self._tasks) or any(member.is_any_left for member in self._members)

    def take_surplus(self) -> list[Task]:
        """Remove and return the next surplus: one task, or one member's tasks, or []."""
        if not self.has_surplus:
            return []
        if not self._members:
            return [self._tasks.pop()]
        if self._giving:
            return self._giving[-1].take_surplus()
        taken = self._satisfied[-1].take_all()
        if not self._satisfied[-1].is_satisfied:
            self._satisfied.pop()
        return taken

    def take_all(self) -> list[Task]:
        """Remove and return every task."""
        left = dict.fromkeys(self._tasks)
        taken = [task for task in self._group.tasks if task in left]
        self._tasks.clear()
        self._satisfied.clear()
        self._giving.clear()
        return taken + [task for member in self._members for task in member.take_all()]
