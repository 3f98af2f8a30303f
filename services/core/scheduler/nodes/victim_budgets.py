"""Budgets of victims: how many allocations of a budget may be evicted, given those already chosen.

A budget is a PodDisruptionBudget, or a gang's surplus above its minimum.

Rule 1: a budget allows the last reported number, less those chosen since that neither ended nor
        were cancelled. A report may not include them yet: one too many is then refused and
        cancelled.
Rule 2: an allocation without a named budget depends on its state only.
Rule 3: of a gang's task group the pods above its minimum may be evicted, computed on demand; pods
        being released do not count as running.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application

Budgeted = tuple[Hashable, int]  # a budget, and how many more it allows


@dataclass(slots=True)
class Budget:
    """A budget: the allowed number, its allocations, and those chosen since."""

    allowed: int = 0
    members: int = 0
    chosen: dict[str, None] = field(default_factory=dict)


class VictimBudgets:
    """The budgets of allocations, by key. A budget without allocations is removed."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._budgets: dict[str, Budget] = {}
        self._gang_of: dict[str, tuple[Application, str]] = {}  # with the task group

    def __bool__(self) -> bool:
        return bool(self._of or self._gang_of)

    def join_gang(self, key: str, application: "Application", task_group: str) -> None:
        """Record that an allocation belongs to a gang that keeps its minimum."""
        self._gang_of[key] = application, task_group

    def leave_gang(self, key: str) -> None:
        """Remove an allocation from its gang, if it has one."""
        self._gang_of.pop(key, None)

    def set(self, key: str, name: str, allowed: int) -> None:
        """Record an allocation's budget ("": none), and the number that the budget allows."""
        if self._of.get(key, "") != name:
            self.forget(key)
            if name:
                self._of[key] = name
                self._budgets.setdefault(name, Budget()).members += 1
        if name:
            budget = self._budgets[name]
            budget.allowed = allowed
            budget.chosen.clear()

    def forget(self, key: str) -> None:
        """Remove an allocation that has ended, or has no budget any more."""
        name = self._of.pop(key, "")
        if name:
            budget = self._budgets[name]
            budget.members -= 1
            budget.chosen.pop(key, None)
            if not budget.members:
                del self._budgets[name]

    def choose(self, key: str) -> None:
        """Record that an allocation was chosen as a victim."""
        name = self._of.get(key, "")
        if name:
            self._budgets[name].chosen[key] = None

    def spare(self, key: str) -> None:
        """Record that an allocation is no victim any more."""
        name = self._of.get(key, "")
        if name:
            self._budgets[name].chosen.pop(key, None)

    def of(self, key: str) -> str:
        """Return the disruption budget of an allocation, "" if none is known."""
        return self._of.get(key, "")

    def left(self, name: str) -> int:
        """Return how many more victims a disruption budget allows."""
        budget = self._budgets[name]
        return budget.allowed - len(budget.chosen)

    def limits(self, key: str, *, of_gangs: bool) -> Iterator[Budgeted]:
        """Yield the budgets of an allocation; ``of_gangs``: its gang's too."""
        name = self.of(key)
        if name:
            yield name, self.left(name)
        if of_gangs and key in self._gang_of:
            application, task_group = self._gang_of[key]
            yield (application.id, task_group), application.surplus(task_group)

    def releases(self, supposed: Iterable[str] = (), *, of_gangs: bool = True) -> "Releases":
        """Return an empty set of releases for a search, with the ``supposed`` ones."""
        return Releases(self, supposed if self else (), of_gangs=of_gangs)


class Releases:
    """The victims of a search, counted by budget."""

    def __init__(
        self, budgets: VictimBudgets, supposed: Iterable[str], *, of_gangs: bool = True
    ) -> None:
        self._budgets, self._of_gangs = budgets, of_gangs
        self._count: Counter[Hashable] = Counter()
        for key in supposed:
            self.go(key)

    def limits_of(self, key: str) -> list[Budgeted]:
        """Return the budgets of an allocation, each with how many more it allows."""
        found = self._budgets.limits(key, of_gangs=self._of_gangs)
        return [(name, left - self._count[name]) for name, left in found]

    def may_go(self, key: str) -> bool:
        """Whether the budgets allow one more victim."""
        return all(left > 0 for _, left in self.limits_of(key))

    def are_too_many(self, keys: Iterable[str]) -> bool:
        """Whether a budget of some victims is exceeded."""
        return any(left < 0 for key in keys for _, left in self.limits_of(key))

    def go(self, key: str) -> None:
        """Add a victim."""
        for name, _ in self._budgets.limits(key, of_gangs=self._of_gangs):
            self._count[name] += 1

    def stay(self, key: str) -> None:
        """Remove a victim."""
        for name, _ in self._budgets.limits(key, of_gangs=self._of_gangs):
            self._count[name] -= 1
