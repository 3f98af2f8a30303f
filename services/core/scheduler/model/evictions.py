"""A watch over evictions: two applications that evict each other in turn are barred from it.

An eviction without a preemptor, of a stale gang, has a cause: the gang is not evicted for the same
cause again before it was whole.

The rules normally prevent cycles: freed capacity is claimed for its preemptor, and a victim does
not get it back by the same rules. If one occurs, because configurations change or controllers
recreate pods, it is counted, blocked for HOLD_NS, and reported.
Limit: MAX_PAIRS pairs; the oldest are dropped.
"""

from dataclasses import dataclass, field

from shared.model.units import seconds

WINDOW_NS = seconds(10 * 60)
HOLD_NS = seconds(10 * 60)
MAX_PAIRS = 10_000


@dataclass(slots=True)
class EvictionWatch:
    """Recent victims with their preemptors, and the barred pairs with their times."""

    held_until_ns: dict[frozenset[str], int] = field(default_factory=dict)
    cycles: int = 0
    _ended: dict[tuple[str, str], None] = field(default_factory=dict)
    _last_ns: dict[tuple[str, str], int] = field(default_factory=dict)

    def may_evict(self, victim: str, by: str, now_ns: int) -> bool:
        """Whether an application may evict another now."""
        return self.held_until_ns.get(frozenset((victim, by)), 0) <= now_ns

    def may_end(self, application: str, cause: str) -> bool:
        """Whether a gang may be evicted for a cause: it was whole since the last time."""
        return (application, cause) not in self._ended

    def ended(self, application: str, cause: str) -> None:
        """Record that a gang was evicted for a cause, without a preemptor."""
        self._ended[application, cause] = None
        if len(self._ended) > MAX_PAIRS:
            del self._ended[next(iter(self._ended))]

    def became_whole(self, application: str) -> None:
        """Record that a gang has its whole minimum."""
        for key in [key for key in self._ended if key[0] == application]:
            del self._ended[key]

    def spared(self, by: str, now_ns: int) -> frozenset[str]:
        """Return the applications that ``by`` may not evict now."""
        return frozenset(
            application
            for pair, until_ns in self.held_until_ns.items()
            if by in pair and until_ns > now_ns
            for application in pair
            if application != by
        )

    def held(self, now_ns: int) -> int:
        """Return how many pairs are barred."""
        return sum(until_ns > now_ns for until_ns in self.held_until_ns.values())

    def evicted(self, victim: str, by: str, now_ns: int) -> bool:
        """Record an eviction; return whether it closes a cycle, so that the pair is barred now."""
        if victim == by:
            return False
        if len(self._last_ns) >= MAX_PAIRS:
            del self._last_ns[next(iter(self._last_ns))]
        self._last_ns.pop((victim, by), None)
        self._last_ns[victim, by] = now_ns
        back_ns = self._last_ns.get((by, victim))
        if back_ns is None or now_ns - back_ns > WINDOW_NS:
            return False
        self.cycles += 1
        pair = frozenset((victim, by))
        self.held_until_ns[pair] = now_ns + HOLD_NS
        if len(self.held_until_ns) > MAX_PAIRS:
            del self.held_until_ns[next(iter(self.held_until_ns))]
        return True
