"""When the asks of a group may preempt: due ones in order, the others by time.

Rule 1: an ask is due ``delay_ns`` after its creation, and CHECK_AGAIN_NS after its last try.
Rule 2: an ask that has preempted is skipped until it has lost the freed capacity.
Rule 3: from the first search on the group records new asks; ended ones are skipped at their turn.
        So a search costs what is new and what is tried.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from services.core.scheduler.model.shapes import Ask
from shared.model.units import seconds

CHECK_AGAIN_NS = seconds(15)
SPARE = 64  # ended asks that may remain, besides as many as wait


def may_ever(ask: Ask) -> bool:
    """Whether an ask may preempt at all, and has not done so."""
    is_ordinary = not ask.shape.constraints.required_node
    return is_ordinary and ask.request.allow_preempt_other and not ask.has_preempted


def due_at(ask: Ask, delay_ns: int) -> int:
    """Return when an ask may preempt: old enough, and some time after its last try."""
    checked_ns = ask.preemption_checked_ns
    again_ns = checked_ns + CHECK_AGAIN_NS if checked_ns else 0
    return max(ask.created_ns + delay_ns, again_ns)


class Preemptors:
    """The asks of a group that may preempt, now or later; ``asks`` are the group's waiting asks."""

    def __init__(self, asks: Mapping[str, Ask], delay_ns: int) -> None:
        self.delay_ns = delay_ns
        self._asks = asks
        self._pushed = 0  # breaks ties of equal times
        self._begin()

    def _begin(self) -> None:
        self._known: dict[str, Ask] = {}  # asks in one of the following
        self._due: list[tuple[tuple[int, int, int], int, Ask]] = []
        self._later: list[tuple[int, int, Ask]] = []
        self._skipped: dict[str, Ask] = {}  # asks that have preempted
        self.fresh = [*self._asks.values()]  # asks that are new since the last ``follow``

    def follow(self, now_ns: int) -> None:
        """Add new asks, and move those that are due now."""
        if len(self._known) > SPARE + 2 * len(self._asks):
            self._begin()
        fresh, self.fresh = self.fresh, []
        for ask in fresh:
            if self._known.get(ask.key) is not ask:
                self._known[ask.key] = ask
                self._enter(ask, now_ns)
        while self._later and self._later[0][0] <= now_ns:
            self._enter(heappop(self._later)[2], now_ns)

    def has_lost_room(self, key: str) -> None:
        """Consider an ask again that has lost the capacity freed for it."""
        ask = self._skipped.pop(key, None)
        if ask is not None:
            del self._known[key]
            self.fresh.append(ask)

    def take(self, now_ns: int, most: int) -> list[Ask]:
        """Remove and return at most ``most`` due asks, in order; the caller puts them back."""
        taken: list[Ask] = []
        while self._due and len(taken) < most:
            ask = heappop(self._due)[2]
            if self._waits(ask) and may_ever(ask) and due_at(ask, self.delay_ns) <= now_ns:
                taken.append(ask)
            else:
                self._enter(ask, now_ns)
        return taken

    def put_back(self, asks: Iterable[Ask], now_ns: int) -> None:
        """Add asks again that were tried."""
        for ask in asks:
            self._enter(ask, now_ns)

    @property
    def next_ns(self) -> int | None:
        """Return when the next ask is due, None if there is none."""
        while self._later and not (self._waits(self._later[0][2]) and may_ever(self._later[0][2])):
            self._enter(heappop(self._later)[2], 0)
        return self._later[0][0] if self._later else None

    def _waits(self, ask: Ask) -> bool:
        return self._asks.get(ask.key) is ask and self._known.get(ask.key) is ask

    def _enter(self, ask: Ask, now_ns: int) -> None:
        """Add an ask to the list for its present state."""
        self._pushed += 1
        due_ns = due_at(ask, self.delay_ns)
        if not self._waits(ask):
            if self._known.get(ask.key) is ask:
                del self._known[ask.key]
        elif ask.has_preempted:
            self._skipped[ask.key] = ask
        elif may_ever(ask) and due_ns <= now_ns:
            heappush(self._due, (ask.order, self._pushed, ask))
        elif may_ever(ask):
            heappush(self._later, (due_ns, self._pushed, ask))
