"""Messages of an inbox in the order in which each publisher wrote them.

Several that are in flight together may be refused one by one, by an inbox that was full for a
moment: then a later one is there before an earlier one, which its publisher writes again. So each
names the one that it was written behind (AFTER), and one whose predecessor has not come is kept
until it comes: KEPT_SECONDS at most, for its publisher may be gone, and MAX_KEPT of them.

One that comes again is not kept: its earlier reader was given its predecessor, and has ended.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from shared.bus.base import REFUSED_SECONDS

AFTER = "after"
KEPT_SECONDS = REFUSED_SECONDS  # for that long a publisher tries to have the predecessor taken
MAX_KEPT = 200  # messages that wait for the one before them; more are handled as they arrive
MAX_COME = 20_000  # identities of received messages; the oldest are forgotten
Item = TypeVar("Item")


class InOrder(Generic[Item]):
    """What has come to one reader, and what it was not given yet."""

    def __init__(self) -> None:
        self._come: dict[str, None] = {}
        self._kept: dict[str, list[tuple[str, Item, float]]] = {}  # by predecessor
        self._count = 0

    def waiting(self) -> Iterator[Item]:
        """Yield what is kept."""
        return (item for behind in self._kept.values() for _, item, _ in behind)

    def take(self, name: str, after: str, item: Item, now: float) -> list[Item]:
        """Take a message in; return what may be handled now, in order."""
        if after and after not in self._come and self._count < MAX_KEPT:
            self._kept.setdefault(after, []).append((name, item, now))
            self._count += 1
            return []
        return list(self._released(name, item))

    def _released(self, name: str, item: Item) -> Iterator[Item]:
        """Yield a message, and what was kept because of it."""
        left = [(name, item)]
        while left:
            came, found = left.pop()
            self._come[came] = None
            if len(self._come) > MAX_COME:
                del self._come[next(iter(self._come))]
            yield found
            behind = self._kept.pop(came, [])
            self._count -= len(behind)
            left += [(other, kept) for other, kept, _ in reversed(behind)]

    def due(self) -> float | None:
        """Return until when to wait for a predecessor, or None."""
        since = [kept[0][2] for kept in self._kept.values()]
        return min(since) + KEPT_SECONDS if since else None

    def expired(self, now: float) -> list[Item]:
        """Return what is kept no longer, in order: its predecessor does not come."""
        found: list[Item] = []
        for after, behind in list(self._kept.items()):
            if behind[0][2] + KEPT_SECONDS <= now:
                for name, item, _ in self._kept.pop(after, []):
                    self._count -= 1
                    found += self._released(name, item)
        return found
