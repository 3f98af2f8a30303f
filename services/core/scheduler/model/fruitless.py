"""Searches for victims that found nothing: they are not repeated before something has changed.

Rule 1: whatever the core receives, decides or releases is a change, be it a pod, a node, a queue, a
        priority or a disruption budget; a heartbeat, a question and the timer of the next look are
        none. Any change drops what is remembered.
Rule 2: what a search may find by time alone is said with it, as the moment at which it is tried
        again. The answers of plugins may hang on anything: with plugins nothing is remembered.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class FruitlessSearches:
    """Which actions found nothing, as of which change, and until when that holds."""

    skipped: int = 0
    changes: int = 0
    _known: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)

    def changed(self) -> None:
        """Note that something has changed that may let a search find victims."""
        self.changes += 1

    def remember(self, actions: tuple[str, ...], until_ns: int) -> None:
        """Note that actions found nothing, which may be otherwise from a moment on."""
        self._known[actions] = (self.changes, until_ns)

    def holds(self, actions: tuple[str, ...], now_ns: int) -> bool:
        """Return whether actions would find nothing again."""
        changes, until_ns = self._known.get(actions, (-1, 0))
        return changes == self.changes and now_ns < until_ns
