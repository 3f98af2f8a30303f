"""Every user and group with a live application, and what their limits say of an application.

The rules are those of ``user_ledger``.
"""

from services.core.scheduler.model.rows import Application, Owner, Tracker
from services.core.scheduler.model.user_ledger import WILDCARD
from shared.model.reasons import Shortage
from shared.model.resources import ResourceView


class UserTable:
    """Every user and group with a live application."""

    def __init__(self) -> None:
        self.users: dict[str, Tracker] = {}
        self.groups: dict[str, Tracker] = {}

    def all(self) -> list[Tracker]:
        """Return every user and then every group."""
        return [*self.users.values(), *self.groups.values()]

    def link(self, application: Application) -> None:
        """Find an application's user, its group, and whether limits concern them."""
        user = self._tracker(self.users, application.request.ugi.user, is_group=False)
        name = _group_of(application)
        found = (user, self._tracker(self.groups, name, is_group=True)) if name else (user,)
        for tracker in found:
            tracker.links[application.id] = name
        application.trackers = found
        self.judge(application)

    def judge(self, application: Application) -> None:
        """Find out whether any limit concerns an application; it shares buckets if none does."""
        queue = application.queue
        is_limited = any(
            tracker.limit_in(level) for level in queue.lineage() for tracker in application.trackers
        )
        application.owner = application.trackers if is_limited else None

    def find_group(self, application: Application) -> None:
        """Look for a group again, after a reload, for an application that has none."""
        if len(application.trackers) > 1 or not _group_of(application):
            self.judge(application)
            return
        self.link(application)
        group = application.trackers[-1]
        for allocation in application.allocations.values():
            group.count_in(application.queue, application.id, allocation.resource_per_alloc)
        group.change_promise(application.queue, {}, application.promise)
        for cover in application.covers.values():
            group.keep(application.queue, cover.in_queues)

    def lose_group(self, application: Application, trackers: Owner, owner: Owner | None) -> None:
        """Undo ``find_group``: who limited an application before does so again."""
        if application.trackers is not trackers:
            group = application.trackers[-1]
            for cover in application.covers.values():
                group.keep_no_more(application.queue, cover.in_queues)
            group.change_promise(application.queue, application.promise, {})
            if application.allocations:
                used = application.in_use()
                group.take_back(application.queue, application.id, used, is_last=True)
            del group.links[application.id]
            if not group.links:
                del self.groups[group.name]
            for tracker in trackers:
                tracker.links[application.id] = ""
        application.trackers, application.owner = trackers, owner

    def unlink(self, application: Application) -> None:
        """Forget an application; a user or group without any is forgotten with it."""
        for tracker in application.trackers:
            tracker.links.pop(application.id, None)
            if not tracker.links:
                (self.groups if tracker.is_group else self.users).pop(tracker.name, None)

    def _tracker(self, table: dict[str, Tracker], name: str, *, is_group: bool) -> Tracker:
        tracker = table.get(name)
        if tracker is None:
            tracker = table[name] = Tracker(name, is_group)
        return tracker


def _group_of(application: Application) -> str:
    """Return the group that limits an application, or ""."""
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
    """Return whose limit on the path an amount does not fit, with the numbers, or None."""
    for tracker in application.owner or ():
        short = tracker.shortage(
            application.queue, amount, count_promises=count_promises, if_promised=if_promised
        )
        if short:
            return tracker, short
    return None


def first_full(application: Application) -> tuple[Tracker, str] | None:
    """Return who may not run one more application, with the sentence, or None."""
    for tracker in application.owner or ():
        full = tracker.full(application.queue, application.id)
        if full:
            return tracker, full
    return None
