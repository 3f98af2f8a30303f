"""Configured placement rules; ``queues/placement.py`` evaluates them.

Source: docs/rules/placement.md#rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shared.model.patterns import Pattern

PROVIDED, USER, FIXED, TAG, RECOVERY = "provided", "user", "fixed", "tag", "recovery"
RULE_NAMES = (PROVIDED, USER, FIXED, TAG)


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """A rule's filter of users and groups, by names or patterns; ``allows`` False inverts it.

    An empty filter matches all users, and inverted none (docs/rules/placement.md#rules).
    """

    allows: bool = True
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    user_pattern: Pattern | None = None
    group_pattern: Pattern | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the filter has no names."""
        return not (self.users or self.groups or self.user_pattern or self.group_pattern)

    def lets_through(self, user: str, groups: tuple[str, ...]) -> bool:
        """Whether the rule applies to a user."""
        if self.is_empty:
            return self.allows
        is_named = _is_named(user, self.users, self.user_pattern) or any(
            _is_named(group, self.groups, self.group_pattern) for group in groups
        )
        return is_named == self.allows


def _is_named(name: str, names: tuple[str, ...], pattern: Pattern | None) -> bool:
    return name in names or (pattern is not None and pattern.search(name) is not None)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; ``parent`` is the rule that names the queue above."""

    name: str
    create: bool = False
    value: str = ""
    filter: RuleFilter = field(default_factory=RuleFilter)
    parent: "Rule | None" = None


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """The rules of a partition, without ``recovery``."""

    rules: tuple[Rule, ...] = (Rule(PROVIDED),)

    def all(self) -> tuple[Rule, ...]:
        """Return the rules in the order of evaluation, with ``recovery``."""
        return (*self.rules, Rule(RECOVERY, create=True))


def chain(rule: Rule) -> Iterator[Rule]:
    """Yield a rule and its parents."""
    current: Rule | None = rule
    while current is not None:
        yield current
        current = current.parent
