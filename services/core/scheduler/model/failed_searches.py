"""Searches for victims without a result: they are not repeated before something has changed.

Rule 1: everything that the core receives, decides or releases is a change; a heartbeat, a what-if
        and the timer of the next pass are not. Any change drops the recorded results.
Rule 2: what may change by time alone is recorded as the time of the next try. Plugins' answers may
        depend on anything: with plugins nothing is recorded.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class FailedSearches:
    """Which actions found nothing, at which count of changes, and until when that is valid."""

    skipped: int = 0
    changes: int = 0
    _known: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)

    def changed(self) -> None:
        """Record a change that may let a search find victims."""
        self.changes += 1

    def remember(self, actions: tuple[str, ...], until_ns: int) -> None:
        """Record that actions found nothing, valid until a time."""
        self._known[actions] = (self.changes, until_ns)

    def holds(self, actions: tuple[str, ...], now_ns: int) -> bool:
        """Whether actions would find nothing again."""
        changes, until_ns = self._known.get(actions, (-1, 0))
        return changes == self.changes and now_ns < until_ns
