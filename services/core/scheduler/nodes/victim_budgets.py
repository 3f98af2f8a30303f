"""How many of a budget's allocations may go: counted beside those that go already.

A budget is a disruption budget of the cluster, or what a gang has above its minimum.

Rule 1: a budget allows so many as was told last, less those that were chosen since and have neither
        gone nor been taken back. What is told counts them in, or will: who is one too many then is
        refused, and taken back.
Rule 2: an allocation of which no budget was told by name goes by its state alone.
Rule 3: of a gang's task group as many may go as run above its minimum. That is asked of the gang
        when it counts: what is being released does not run any more.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application

Budgeted = tuple[Hashable, int]  # a budget, and how many more of it may go


@dataclass(slots=True)
class Budget:
    """What is known of one: how many it allows, how many are under it, who was chosen since."""

    allowed: int = 0
    members: int = 0
    chosen: dict[str, None] = field(default_factory=dict)


class VictimBudgets:
    """The budgets of allocations, by key. A budget is forgotten with the last that is under it."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._budgets: dict[str, Budget] = {}
        self._gang_of: dict[str, tuple[Application, str]] = {}  # with the task group

    def __bool__(self) -> bool:
        return bool(self._of or self._gang_of)

    def join_gang(self, key: str, application: "Application", task_group: str) -> None:
        """Take in that an allocation is of a gang that keeps its minimum."""
        self._gang_of[key] = application, task_group

    def leave_gang(self, key: str) -> None:
        """Forget which gang an allocation is of, if of any."""
        self._gang_of.pop(key, None)

    def set(self, key: str, name: str, allowed: int) -> None:
        """Take in which budget an allocation is under ("": none), and how many that allows."""
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
        """Forget an allocation that has gone, or is under no budget any more."""
        name = self._of.pop(key, "")
        if name:
            budget = self._budgets[name]
            budget.members -= 1
            budget.chosen.pop(key, None)
            if not budget.members:
                del self._budgets[name]

    def choose(self, key: str) -> None:
        """Take in that an allocation is to go."""
        name = self._of.get(key, "")
        if name:
            self._budgets[name].chosen[key] = None

    def spare(self, key: str) -> None:
        """Take in that an allocation does not go after all."""
        name = self._of.get(key, "")
        if name:
            self._budgets[name].chosen.pop(key, None)

    def of(self, key: str) -> str:
        """Return the disruption budget of an allocation, "" if none is known."""
        return self._of.get(key, "")

    def left(self, name: str) -> int:
        """Return how many more of a disruption budget's may go."""
        budget = self._budgets[name]
        return budget.allowed - len(budget.chosen)

    def limits(self, key: str, *, of_gangs: bool) -> Iterator[Budgeted]:
        """Yield the budgets of an allocation; ``of_gangs``: that of its gang as well."""
        name = self.of(key)
        if name:
            yield name, self.left(name)
        if of_gangs and key in self._gang_of:
            application, task_group = self._gang_of[key]
            yield (application.id, task_group), application.surplus(task_group)

    def releases(self, supposed: Iterable[str] = (), *, of_gangs: bool = True) -> "Releases":
        """Return who goes in a search: nobody yet, beside those that are supposed to."""
        return Releases(self, supposed if self else (), of_gangs=of_gangs)


class Releases:
    """Those that a search lets go, counted by their budgets."""

    def __init__(
        self, budgets: VictimBudgets, supposed: Iterable[str], *, of_gangs: bool = True
    ) -> None:
        self._budgets, self._of_gangs = budgets, of_gangs
        self._count: Counter[Hashable] = Counter()
        for key in supposed:
            self.go(key)

    def limits_of(self, key: str) -> list[Budgeted]:
        """Return the budgets of an allocation, each with how many more of it may go."""
        found = self._budgets.limits(key, of_gangs=self._of_gangs)
        return [(name, left - self._count[name]) for name, left in found]

    def may_go(self, key: str) -> bool:
        """Return whether one more may go."""
        return all(left > 0 for _, left in self.limits_of(key))

    def are_too_many(self, keys: Iterable[str]) -> bool:
        """Return whether of some budget of these more go than it lets."""
        return any(left < 0 for key in keys for _, left in self.limits_of(key))

    def go(self, key: str) -> None:
        """Let one go."""
        for name, _ in self._budgets.limits(key, of_gangs=self._of_gangs):
            self._count[name] += 1

    def stay(self, key: str) -> None:
        """Let one stay that was let go."""
        for name, _ in self._budgets.limits(key, of_gangs=self._of_gangs):
            self._count[name] -= 1
