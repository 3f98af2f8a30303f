"""Restores the order in which each publisher wrote its messages to an inbox.

An inbox that is full for a moment may refuse single messages of several in flight. A later message
is then in the inbox before an earlier one, which its publisher writes again. Therefore each message
names its predecessor (AFTER), and a message whose predecessor has not arrived is held back: for at
most KEPT_SECONDS, because its publisher may be gone, and at most MAX_KEPT messages.

A redelivered message is not held back: its earlier reader already received the predecessor.
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
    """The messages received by one reader, and those held back."""

    def __init__(self) -> None:
        self._come: dict[str, None] = {}
        self._kept: dict[str, list[tuple[str, Item, float]]] = {}  # by predecessor
        self._count = 0

    def waiting(self) -> Iterator[Item]:
        """Yield the messages held back."""
        return (item for behind in self._kept.values() for _, item, _ in behind)

    def take(self, name: str, after: str, item: Item, now: float) -> list[Item]:
        """Add a message; return the messages that may be handled now, in order."""
        if after and after not in self._come and self._count < MAX_KEPT:
            self._kept.setdefault(after, []).append((name, item, now))
            self._count += 1
            return []
        return list(self._released(name, item))

    def _released(self, name: str, item: Item) -> Iterator[Item]:
        """Yield a message, then those that were held back for it."""
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
        """Return the time at which the first held-back message is released anyway, or None."""
        since = [kept[0][2] for kept in self._kept.values()]
        return min(since) + KEPT_SECONDS if since else None

    def expired(self, now: float) -> list[Item]:
        """Return the messages whose predecessor did not arrive in time, in order."""
        found: list[Item] = []
        for after, behind in list(self._kept.items()):
            if behind[0][2] + KEPT_SECONDS <= now:
                for name, item, _ in self._kept.pop(after, []):
                    self._count -= 1
                    found += self._released(name, item)
        return found
