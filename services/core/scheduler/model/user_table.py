"""Every user and group with a live application, and what their limits say of an application.

The rules are those of ``user_ledger``.
"""

from services.core.scheduler.model.rows import Application, Owner, Purpose, Tracker
from services.core.scheduler.model.user_ledger import WILDCARD
from shared.model.reasons import Fact, Shortage
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
        """Look for a group again after a reload: it stays as long as a limit on the path names it.

        What the application has counts for another one from now on, or for none.
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
        """Return the group that limits an application as limits are now, or ""."""
        levels = list(application.queue.lineage())
        for group in application.trackers[1:]:
            if any(group.limit_in(level) for level in levels):
                return group.name
        return _group_of(application)

    def _count_in(self, application: Application, group: Tracker) -> None:
        """Count all that an application has for a group that it did not count for before."""
        queue = application.queue
        for allocation in application.allocations.values():
            group.count_in(queue, application.id, allocation.resource_per_alloc)
        group.change_promise(queue, {}, application.promise)
        for claim in application.claims_for(Purpose.PLACEHOLDERS).values():
            group.claim(queue, claim.in_queues)

    def _count_out(self, application: Application, group: Tracker) -> None:
        """Stop counting an application for a group; nothing is requeued."""
        queue = application.queue
        for claim in application.claims_for(Purpose.PLACEHOLDERS).values():
            group.release_claim(queue, claim.in_queues)
        group.change_promise(queue, application.promise, {})
        if application.allocations:
            group.take_back(queue, application.id, application.in_use(), is_last=True)
        self._forget_link(application, group)

    def unlink(self, application: Application) -> None:
        """Forget an application; a user or group without any is forgotten with it."""
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


def first_full(application: Application) -> tuple[Tracker, Fact] | None:
    """Return who may not run one more application, with the numbers, or None."""
    for tracker in application.owner or ():
        full = tracker.full(application.queue, application.id)
        if full is not None:
            return tracker, full
    return None
