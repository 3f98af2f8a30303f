"""How many of a disruption budget's allocations may go: counted beside those that go already.

Rule 1: a budget allows so many as was told last, less those that were chosen since and have neither
        gone nor been taken back. What is told counts them in, or will: who is one too many then is
        refused, and taken back.
Rule 2: an allocation of which no budget was told by name goes by its state alone.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


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

    def __bool__(self) -> bool:
        return bool(self._of)

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
        """Return the budget of an allocation, "" if none is known."""
        return self._of.get(key, "")

    def left(self, name: str) -> int:
        """Return how many more of a budget's may go."""
        budget = self._budgets[name]
        return budget.allowed - len(budget.chosen)

    def releases(self, supposed: Iterable[str] = ()) -> "Releases":
        """Return who goes in a search: nobody yet, beside those that are supposed to."""
        return Releases(self, supposed if self else ())


class Releases:
    """Those that a search lets go, counted by their budgets."""

    def __init__(self, budgets: VictimBudgets, supposed: Iterable[str]) -> None:
        self._budgets = budgets
        self._count = Counter(budgets.of(key) for key in supposed)

    def may_go(self, key: str) -> bool:
        """Return whether one more may go."""
        name = self._budgets.of(key)
        return not name or self._count[name] < self._budgets.left(name)

    def limit_of(self, key: str) -> tuple[str, int] | None:
        """Return the budget of an allocation and how many more of it may go; None without one."""
        name = self._budgets.of(key)
        return (name, self._budgets.left(name) - self._count[name]) if name else None

    def are_too_many(self, keys: Iterable[str]) -> bool:
        """Return whether of some budget of these more go than it lets."""
        names = filter(None, map(self._budgets.of, keys))
        return any(self._count[name] > self._budgets.left(name) for name in dict.fromkeys(names))

    def go(self, key: str) -> None:
        """Let one go."""
        self._count[self._budgets.of(key)] += 1

    def stay(self, key: str) -> None:
        """Let one stay that was let go."""
        self._count[self._budgets.of(key)] -= 1
