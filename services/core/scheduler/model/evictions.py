"""A watch over evictions: two applications that take turns at evicting each other are held.

An eviction without a winner, of a stale gang, is for a cause: the gang is not ended again for the
same cause before it has been whole in between.

The rules alone keep it from happening: freed room is its preemptor's, and what was evicted
does not get it back by the same rules. Should it happen all the same, by changing configurations
or controllers that make pods again, it is counted, stopped for HOLD_NS, and said.
Limit: MAX_PAIRS pairs are remembered, the oldest go.
"""

from dataclasses import dataclass, field

from shared.model.units import seconds

WINDOW_NS = seconds(10 * 60)
HOLD_NS = seconds(10 * 60)
MAX_PAIRS = 10_000


@dataclass(slots=True)
class EvictionWatch:
    """Victims with their preemptors, and which pairs are held until when."""

    held_until_ns: dict[frozenset[str], int] = field(default_factory=dict)
    cycles: int = 0
    _ended: dict[tuple[str, str], None] = field(default_factory=dict)
    _last_ns: dict[tuple[str, str], int] = field(default_factory=dict)

    def may_evict(self, victim: str, by: str, now_ns: int) -> bool:
        """Return whether an application may lose something to another now."""
        return self.held_until_ns.get(frozenset((victim, by)), 0) <= now_ns

    def may_end(self, application: str, cause: str) -> bool:
        """Return whether an application may be ended for a cause: not since it was whole last."""
        return (application, cause) not in self._ended

    def ended(self, application: str, cause: str) -> None:
        """Note that an application was ended for a cause, for no other's sake."""
        self._ended[application, cause] = None
        if len(self._ended) > MAX_PAIRS:
            del self._ended[next(iter(self._ended))]

    def became_whole(self, application: str) -> None:
        """Note that an application runs with all that it needs."""
        for key in [key for key in self._ended if key[0] == application]:
            del self._ended[key]

    def spared(self, by: str, now_ns: int) -> frozenset[str]:
        """Return the applications that may lose nothing to another now."""
        return frozenset(
            application
            for pair, until_ns in self.held_until_ns.items()
            if by in pair and until_ns > now_ns
            for application in pair
            if application != by
        )

    def held(self, now_ns: int) -> int:
        """Return how many pairs are held."""
        return sum(until_ns > now_ns for until_ns in self.held_until_ns.values())

    def evicted(self, victim: str, by: str, now_ns: int) -> bool:
        """Note an eviction; return whether it closes a cycle, and the pair is held from now on."""
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
