"""Usage of users and groups in every queue, and the limits that queues set for them.

Rule 1: a queue's limit for a user is the one that names it, else the wildcard's; the wildcard of
        users applies to each user separately. A group's limit is the one that names it; the
        wildcard of groups is one tracker for all users without a named group.
Rule 2: an application counts for its user, and for the first of its groups that a limit names on
        the way from its leaf to the root (at each level named ones before the wildcard). Once
        found, the group stays.
Rule 3: placeholders count. A limit applies at every level; types that it does not name are
        unlimited.
Source: docs/rules/quotas.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.core.scheduler.model.queue_ledger import MANY, QueueLedger
from services.core.scheduler.model.queue_settings import Limit
from shared.model.reasons import Fact, Kind, Shortage
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    shared_types,
    smaller_of,
    subtract_into,
)

WILDCARD = "*"
_BY_PATH = ("usage", "promised", "reserved", "running")


@dataclass(slots=True, eq=False, repr=False)
class UserLedger:
    """The usage of one user or group, by queue path, with its applications."""

    name: str
    is_group: bool
    usage: dict[str, Resource] = field(default_factory=dict)
    promised: dict[str, Resource] = field(default_factory=dict)
    reserved: dict[str, Resource] = field(default_factory=dict)  # claims for placeholder sets
    running: dict[str, dict[str, None]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # application -> its group, "" for none
    levels: dict[str, QueueLedger] = field(default_factory=dict)  # the queues of ``usage``

    @property
    def title(self) -> str:
        """Return its name for users."""
        return f"{'group' if self.is_group else 'user'} {self.name}"

    def limit_in(self, queue: QueueLedger) -> Limit | None:
        """Return its limit in a queue, or None."""
        if self.is_group:
            return queue.group_limits.get(self.name)
        return queue.user_limits.get(self.name) or queue.user_limits.get(WILDCARD)

    def limit_at(self, path: str) -> Limit:
        """Return its limit in a queue that it uses; an empty one if none."""
        return self.limit_in(self.levels[path]) or Limit()

    def limits(self, queue: QueueLedger) -> Iterator[tuple[QueueLedger, Limit]]:
        """Yield its limits on the path to the root."""
        for level in queue.lineage():
            limit = self.limit_in(level)
            if limit is not None:
                yield level, limit

    def shortage(
        self,
        queue: QueueLedger,
        amount: ResourceView,
        *,
        count_promises: bool = False,
        if_promised: bool = False,
    ) -> Shortage | None:
        """Return the limit that an amount exceeds, with the numbers, or None.

        ``if_promised``: only types count in which admitted gangs have outstanding members.
        """
        for level, limit in self.limits(queue):
            if limit.max_resource is None:
                continue
            used = self.usage.get(level.path, {})
            promised = self.promised.get(level.path, {}) if count_promises else {}
            reserved = self.reserved.get(level.path, {})
            wanted = shared_types(amount, promised) if if_promised else amount
            for name, value in wanted.items():
                most = limit.max_resource.get(name)
                if most is None or value <= 0:
                    continue
                left = most - used.get(name, 0) - promised.get(name, 0) - reserved.get(name, 0)
                if value > left:
                    return Shortage(self.title, level.path, name, left, most, amount)
        return None

    def room_for(self, queue: QueueLedger, amount: ResourceView) -> int:
        """Return how many times an amount fits its limits on the path."""
        room = MANY
        for level, limit in self.limits(queue):
            used, reserved = self.usage.get(level.path, {}), self.reserved.get(level.path, {})
            for name, most in (limit.max_resource or {}).items():
                value = amount.get(name, 0)
                if value > 0:
                    left = most - used.get(name, 0) - reserved.get(name, 0)
                    room = min(room, left // value)
        return max(room, 0)

    def headroom(self, queue: QueueLedger) -> Resource:
        """Return what its limits on the path leave, for the types that they name."""
        room: Resource = {}
        for level, limit in self.limits(queue):
            used = self.usage.get(level.path, {})
            most = limit.max_resource or {}
            room = smaller_of(room, {n: v - used.get(n, 0) for n, v in most.items()})
        return room

    def full(self, queue: QueueLedger, application_id: str) -> Fact | None:
        """Return the limit that one more application exceeds, with the numbers, or None."""
        for level, limit in self.limits(queue):
            running = self.running.get(level.path, {})
            most = limit.max_applications
            if most and application_id not in running and len(running) >= most:
                return Fact(Kind.RUNNING, self.title, level.path, len(running), most)
        return None

    def count_in(self, queue: QueueLedger, application_id: str, amount: ResourceView) -> None:
        """Add usage from a queue to the root."""
        self._advance_path(queue)
        for level in queue.lineage():
            path = level.path
            used = self.usage.get(path)
            if used is None:
                used = self.usage[path] = {}
                self.levels[path] = level
                self.running[path] = {}
            add_into(used, amount)
            self.running[path][application_id] = None

    def _advance_path(self, queue: QueueLedger) -> None:
        """Update usage over time from a queue to the root, if it is counted."""
        if queue.tree.usage is not None:
            for level in queue.lineage():
                self.advance_usage(level)

    def advance_usage(self, queue: QueueLedger) -> None:
        """Update a user's usage over time in a queue, if it is counted."""
        clock = queue.tree.usage
        if clock is not None and not self.is_group:
            clock.advance(clock.row_of(queue.path, self.name), self.usage.get(queue.path, {}))

    def take_back(
        self, queue: QueueLedger, application_id: str, amount: ResourceView, *, is_last: bool
    ) -> None:
        """Subtract usage from a queue to the root; nothing is requeued."""
        self._advance_path(queue)
        for level in queue.lineage():
            subtract_into(self.usage[level.path], amount)
            if is_last:
                self.running[level.path].pop(application_id, None)
                if not self.running[level.path]:
                    del self.running[level.path], self.usage[level.path]
                    del self.levels[level.path]

    def change_promise(self, queue: QueueLedger, before: ResourceView, after: ResourceView) -> None:
        """Change admitted gangs' outstanding members, from a queue to the root."""
        for level in queue.lineage():
            promised = self.promised.setdefault(level.path, {})
            subtract_into(promised, before)
            add_into(promised, after)
            if not promised:
                del self.promised[level.path]

    def claim(self, queue: QueueLedger, amount: ResourceView) -> None:
        """Claim an amount for an ask with a placeholder set, from a queue to the root."""
        for level in queue.lineage() if amount else ():
            add_into(self.reserved.setdefault(level.path, {}), amount)

    def release_claim(self, queue: QueueLedger, amount: ResourceView) -> None:
        """End a claim of an amount, from a queue to the root."""
        for level in queue.lineage() if amount else ():
            subtract_into(self.reserved[level.path], amount)
            if not self.reserved[level.path]:
                del self.reserved[level.path]
