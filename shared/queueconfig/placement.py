"""Checks placement rules: names, filters, and the paths known without an application.

Source: docs/rules/queues.md#checks and docs/rules/placement.md#rules.
"""

import re
from dataclasses import dataclass

from shared.model.names import GROUP, ROOT, USER
from shared.model.patterns import compile_pattern
from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.schema import FilterSpec, PlacementRuleSpec, QueueSpec

_NAME = re.compile(r"^[_a-zA-Z][a-zA-Z0-9_]*$")
_PATTERN_CHARACTERS = re.compile(r"[\^$*+?()\[{}|]")
_FIXED = "fixed"
_RULES = ("provided", "user", _FIXED, "tag")


def check_placement(rules: list[PlacementRuleSpec], root: QueueSpec) -> None:
    """Check every rule. Raises QueueConfigError."""
    for rule in rules:
        _check_rule(rule)
    for number, rule in enumerate(rules):
        _check_path(number, rule, root)


def check_rules_loadable(rules: list[PlacementRuleSpec]) -> None:
    """Check rules as YuniKorn does when it loads a file. Raises QueueConfigError."""
    for rule in rules:
        current: PlacementRuleSpec | None = rule
        while current is not None:
            _check_loadable(current)
            current = current.parent


def _check_loadable(rule: PlacementRuleSpec) -> None:
    name = rule.name.lower()
    if name == "recovery":
        raise QueueConfigError(
            "recovery rule cannot be part of the config, failing placement rule config", rule.line
        )
    if name not in _RULES:
        raise QueueConfigError(
            f"unknown rule name specified {rule.name}, failing placement rule config", rule.line
        )
    if name == _FIXED and not rule.value:
        raise QueueConfigError("a fixed queue rule must have a queue name set", rule.line)
    if name == "tag" and not rule.value:
        raise QueueConfigError("a tag queue rule must have a tag name set", rule.line)
    if name == _FIXED and rule.parent is not None and _is_qualified(rule.value):
        raise QueueConfigError(
            "cannot have a fixed queue rule with qualified queue getName and a parent rule: "
            f"{rule.value}",
            rule.line,
        )


def _check_rule(rule: PlacementRuleSpec) -> None:
    if not _NAME.match(rule.name):
        raise QueueConfigError(
            f"invalid rule name {rule.name}, a name must be a valid identifier", rule.line
        )
    if rule.parent is not None:
        _check_rule(rule.parent)
    _check_filter(rule.filter)


def _check_filter(spec: FilterSpec) -> None:
    if spec.type.lower() not in ("", "allow", "deny"):
        raise QueueConfigError(
            f"invalid rule filter type {spec.type}, filter type  must be either '', allow or deny",
            spec.line,
        )
    for kind, names, pattern in (("user", spec.users, USER), ("group", spec.groups, GROUP)):
        if not _is_list_or_pattern(names, pattern):
            raise QueueConfigError(
                f"invalid rule filter {kind} list is not a proper list or regexp: "
                f"[{' '.join(names)}]",
                spec.line,
            )


def is_pattern(names: list[str]) -> bool:
    """Whether a filter's list is one regular expression instead of names."""
    return len(names) == 1 and _PATTERN_CHARACTERS.search(names[0]) is not None


def _is_list_or_pattern(names: list[str], pattern: re.Pattern[str]) -> bool:
    if is_pattern(names):
        return compile_pattern(names[0]) is not None
    return all(pattern.match(name) for name in names)


def _check_path(number: int, rule: PlacementRuleSpec, root: QueueSpec) -> None:
    """Check the part of a rule's path that fixed rules determine, starting at the root.

    The rule's own ``create`` decides whether missing queues may be created, not its parents'.
    """
    chain: list[PlacementRuleSpec] = []
    current: PlacementRuleSpec | None = rule
    while current is not None:
        chain.insert(0, current)
        current = current.parent
    static = _static_path(chain)
    if not static:
        return
    path = ".".join(static) if _is_qualified(static[0]) else ".".join([ROOT, *static])
    target = _follow(path, root)
    what = f"placement rule no. #{number} ({'->'.join(item.name for item in chain)})"
    missing = _missing(target, create=rule.create)
    if missing:
        raise QueueConfigError(
            f"{what} references non-existing queues ({path}) {missing}", rule.line
        )
    has_more_below = len(static) < len(chain)
    if not target.left and target.is_leaf is has_more_below:
        raise QueueConfigError(f"{what} references a queue ({path}) which is not a leaf", rule.line)


def _static_path(chain: list[PlacementRuleSpec]) -> list[str]:
    """Return the queue names of the fixed rules at the top of a chain. Raises QueueConfigError.

    A rule without a value ends the path: it is refused when the rules are loaded.
    """
    static: list[str] = []
    for item in chain:
        if item.name.lower() != _FIXED or not item.value:
            break
        if static and _is_qualified(item.value):
            raise QueueConfigError(
                f"illegal fully qualified 'fixed' rule with value {item.value}", item.line
            )
        static.append(item.value.lower())
    return static


def _is_qualified(value: str) -> bool:
    return value.lower().split(".")[0] == ROOT


@dataclass(frozen=True, slots=True)
class _Target:
    """The end of a path: the last queue that exists, and how many names are left."""

    queue: QueueSpec
    left: int
    is_leaf: bool


def _follow(path: str, root: QueueSpec) -> _Target:
    queue, parts = root, path.split(".")[1:]
    for at, part in enumerate(parts):
        below = next((q for q in queue.queues or [] if q.name.lower() == part), None)
        if below is None:
            return _Target(queue, len(parts) - at, _is_leaf(queue, root))
        queue = below
    return _Target(queue, 0, _is_leaf(queue, root))


def _missing(target: _Target, *, create: bool) -> str:
    """Return why the missing queues of a path cannot be created, or ""."""
    if not target.left:
        return ""
    if target.is_leaf:
        return (
            f"which cannot be created because the last queue ({target.queue.name}) in the "
            "hierarchy is a leaf"
        )
    return "" if create else "and create is 'false'"


def _is_leaf(queue: QueueSpec, root: QueueSpec) -> bool:
    return queue is not root and not queue.parent and not queue.queues
