"""All users and groups with a live application, and the limits that apply to an application.

The rules are those of ``user_ledger``.
"""

from services.core.scheduler.model.rows import Application, Owner, Purpose, Tracker
from services.core.scheduler.model.user_ledger import WILDCARD
from shared.model.reasons import Fact, Shortage
from shared.model.resources import ResourceView


class UserTable:
    """All users and groups with a live application."""

    def __init__(self) -> None:
        self.users: dict[str, Tracker] = {}
        self.groups: dict[str, Tracker] = {}

    def all(self) -> list[Tracker]:
        """Return all users, then all groups."""
        return [*self.users.values(), *self.groups.values()]

    def link(self, application: Application) -> None:
        """Set an application's user and group, and whether limits apply to them."""
        user = self._tracker(self.users, application.request.ugi.user, is_group=False)
        name = _group_of(application)
        found = (user, self._tracker(self.groups, name, is_group=True)) if name else (user,)
        for tracker in found:
            tracker.links[application.id] = name
        application.trackers = found
        self.judge(application)

    def judge(self, application: Application) -> None:
        """Set whether any limit applies to an application; if not, it shares buckets."""
        queue = application.queue
        is_limited = any(
            tracker.limit_in(level) for level in queue.lineage() for tracker in application.trackers
        )
        application.owner = application.trackers if is_limited else None

    def find_group(self, application: Application) -> None:
        """Find an application's group again after a reload; it stays while a limit names it.

        If it changes, the application's usage moves to the new group, or to none.
        """
        name = self.group_of(application)
        before = application.trackers
        if name != group_in(before):
            for group in before[1:]:
                self._count_out(application, group)
            self.link(application)
            for group in application.trackers[1:]:
                self._count_in(application, group)
        self.judge(application)

    def group_of(self, application: Application) -> str:
        """Return the group whose limits apply to an application now, or ""."""
        levels = list(application.queue.lineage())
        for group in application.trackers[1:]:
            if any(group.limit_in(level) for level in levels):
                return group.name
        return _group_of(application)

    def _count_in(self, application: Application, group: Tracker) -> None:
        """Add an application's whole usage to a group."""
        queue = application.queue
        for allocation in application.allocations.values():
            group.count_in(queue, application.id, allocation.resource_per_alloc)
        group.change_promise(queue, {}, application.promise)
        for claim in application.claims_for(Purpose.PLACEHOLDERS).values():
            group.claim(queue, claim.in_queues)

    def _count_out(self, application: Application, group: Tracker) -> None:
        """Remove an application's usage from a group; nothing is requeued."""
        queue = application.queue
        for claim in application.claims_for(Purpose.PLACEHOLDERS).values():
            group.release_claim(queue, claim.in_queues)
        group.change_promise(queue, application.promise, {})
        if application.allocations:
            group.take_back(queue, application.id, application.in_use(), is_last=True)
        self._forget_link(application, group)

    def unlink(self, application: Application) -> None:
        """Remove an application, and users and groups without any."""
        for tracker in application.trackers:
            self._forget_link(application, tracker)

    def _forget_link(self, application: Application, tracker: Tracker) -> None:
        tracker.links.pop(application.id, None)
        if not tracker.links:
            (self.groups if tracker.is_group else self.users).pop(tracker.name, None)

    def _tracker(self, table: dict[str, Tracker], name: str, *, is_group: bool) -> Tracker:
        tracker = table.get(name)
        if tracker is None:
            tracker = table[name] = Tracker(name, is_group)
        return tracker


def group_in(trackers: Owner) -> str:
    """Return the name of the group among an application's trackers, or ""."""
    return next((tracker.name for tracker in trackers if tracker.is_group), "")


def _group_of(application: Application) -> str:
    """Return the first of an application's groups that a limit names, or ""."""
    groups = application.request.ugi.resolved_groups
    for level in application.queue.lineage():
        for name in level.group_limits:
            if name in groups or name == WILDCARD:
                return name
    return ""


def first_shortage(
    application: Application,
    amount: ResourceView,
    *,
    count_promises: bool = False,
    if_promised: bool = False,
) -> tuple[Tracker, Shortage] | None:
    """Return the first user or group whose limit an amount exceeds, with the numbers, or None."""
    for tracker in application.owner or ():
        short = tracker.shortage(
            application.queue, amount, count_promises=count_promises, if_promised=if_promised
        )
        if short:
            return tracker, short
    return None


def first_full(application: Application) -> tuple[Tracker, Fact] | None:
    """Return the user or group that may not run one more application, with the numbers, or None."""
    for tracker in application.owner or ():
        full = tracker.full(application.queue, application.id)
        if full is not None:
            return tracker, full
    return None
