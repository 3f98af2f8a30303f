"""Checks limits of users and groups: each by itself, against its queue, and along the tree.

Source: docs/rules/queues.md#checks.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from shared.model.names import GROUP, USER
from shared.model.resources import Resource, fits_limit, go_map, is_zero, smaller_of
from shared.queueconfig.amounts import resource_of
from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.schema import LimitSpec, QueueSpec

WILDCARD = "*"
T = TypeVar("T")


def check_limits(queue: QueueSpec, *, is_root: bool) -> None:
    """Check the limits of one queue. Raises QueueConfigError."""
    seen: dict[str, set[str]] = {"user": set(), "group": set()}
    for limit in queue.limits:
        if not limit.users and not limit.groups:
            raise QueueConfigError(
                f"empty user and group lists defined in limit '{_go_limit(limit)}'", limit.line
            )
        for kind, names, pattern in (("user", limit.users, USER), ("group", limit.groups, GROUP)):
            for name in names:
                _check_name(kind, name, pattern, seen[kind], limit)
        _check_amounts(limit, queue, is_root=is_root)


def _check_name(
    kind: str, name: str, pattern: re.Pattern[str], seen: set[str], limit: LimitSpec
) -> None:
    if name != WILDCARD and not pattern.match(name):
        raise QueueConfigError(
            f"invalid limit {kind} name '{name}' in limit definition", limit.line
        )
    if name in seen:
        raise QueueConfigError(f"duplicated {kind} name '{name}', already exists", limit.line)
    if WILDCARD in seen:
        raise QueueConfigError(
            f"should not set no wildcard {kind} {name} after wildcard {kind} limit", limit.line
        )
    if kind == "group" and name == WILDCARD and not seen:
        raise QueueConfigError(
            "should not specify only one group limit that is using the wildcard. "
            "There must be at least one limit with a group name defined ",
            limit.line,
        )
    seen.add(name)


def _check_amounts(limit: LimitSpec, queue: QueueSpec, *, is_root: bool) -> None:
    amount = resource_of(limit.maxresources, limit.line)
    if limit.maxresources and is_zero(amount):
        raise QueueConfigError(
            f"MaxResources should be greater than zero in '{limit.limit}' limit", limit.line
        )
    if not limit.maxresources and not limit.maxapplications:
        raise QueueConfigError(
            f"invalid resource combination for limit {limit.limit} all resource limits are null",
            limit.line,
        )
    if queue.maxapplications and queue.maxapplications < limit.maxapplications:
        raise QueueConfigError(
            f"invalid MaxApplications settings for limit {limit.limit} "
            "exceed current the queue MaxApplications",
            limit.line,
        )
    if is_root:
        return
    try:
        most = resource_of(queue.resources.max or {}, queue.line)
    except QueueConfigError as error:
        raise QueueConfigError(
            f"parse queue {queue.name} max resource failed: {error.message}", error.line
        ) from error
    if not fits_limit(most, amount):
        raise QueueConfigError(
            f"invalid MaxResources settings for limit {limit.limit} "
            "exeecd current the queue MaxResources",
            limit.line,
        )


@dataclass(frozen=True, slots=True)
class _Claim:
    """A limit of one user or group in a queue."""

    kind: str
    name: str
    queue: QueueSpec
    line: int
    is_above_wildcard: bool

    def excess(self, what: str, own: str, above: str) -> QueueConfigError:
        """Return the error for a limit that exceeds the one above it."""
        head = (
            f"{self.kind} {self.name} max {what} {own} of queue {self.queue.name} is greater than"
        )
        which = "maximum resource" if what == "resource" else "max applications"
        tail = (
            f"wildcard {which} {above} of immediate or ancestor parent queue"
            if self.is_above_wildcard
            else f"immediate or ancestor parent {which} {above}"
        )
        return QueueConfigError(f"{head} {tail}", self.line)


def check_hierarchy(root: QueueSpec) -> None:
    """Check that no limit exceeds one above it, for resources and then applications."""
    _walk(root, {}, {}, lambda limit: resource_of(limit.maxresources, limit.line), _resources)
    _walk(root, {}, {}, lambda limit: limit.maxapplications, _applications)


def _walk(
    queue: QueueSpec,
    users: dict[str, T],
    groups: dict[str, T],
    amount_of: Callable[[LimitSpec], T],
    tighten: Callable[[_Claim, T, T], T],
) -> None:
    here = {"user": dict(users), "group": dict(groups)}
    for limit in queue.limits:
        amount = amount_of(limit)
        for kind, names, above in (("user", limit.users, users), ("group", limit.groups, groups)):
            for name in names:
                claim = _Claim(kind, name, queue, limit.line, name not in above)
                parent = above.get(name, above.get(WILDCARD))
                here[kind][name] = amount if parent is None else tighten(claim, amount, parent)
    for child in queue.queues or []:
        _walk(child, here["user"], here["group"], amount_of, tighten)


def _resources(claim: _Claim, own: Resource, above: Resource) -> Resource:
    if not fits_limit(above, own):
        raise claim.excess("resource", go_map(own), go_map(above))
    return smaller_of(own, above)


def _applications(claim: _Claim, own: int, above: int) -> int:
    if above and (own == 0 or own > above):
        raise claim.excess("applications", str(own), str(above))
    return min(own, above) if above else own


def _go_limit(limit: LimitSpec) -> str:
    """Return a limit as Go prints the struct."""
    amounts = " ".join(f"{name}:{limit.maxresources[name]}" for name in sorted(limit.maxresources))
    users, groups = " ".join(limit.users), " ".join(limit.groups)
    return f"{{{limit.limit} [{users}] [{groups}] map[{amounts}] {limit.maxapplications}}}"


def same_limits(left: list[LimitSpec], right: list[LimitSpec]) -> bool:
    """Whether two lists of limits are equal, ignoring line numbers."""
    return [_go_limit(limit) for limit in left] == [_go_limit(limit) for limit in right]
