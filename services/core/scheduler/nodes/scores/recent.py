"""The mix of recent asks.

Rule 1: the mix is that of the last ``window`` asks, without placeholders. It is updated after every
        quarter of the window, and at the start whenever the number of asks has doubled: reading
        never changes it.
Rule 2: the MAX_SETS most common sets of constraints are distinguished; other asks count as
        unconstrained.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from services.core.scheduler.model.settings import NODE_SCORE_WINDOW
from services.core.scheduler.model.shapes import AskedFor, Demand
from services.core.scheduler.nodes.scores.mix import Mix
from shared.messages.constraints import NO_CONSTRAINTS, Constraints

MAX_SETS = 8  # sets of constraints in the mix; others count as none
PART = 4  # the mix is updated after one in so many parts of the window


class RecentAsks:
    """The recent asks, and their mix."""

    def __init__(self, reorder: Callable[[], None]) -> None:
        self._reorder = reorder  # called when the mix changes: scores of all nodes change
        self._recent: deque[AskedFor] = deque(maxlen=NODE_SCORE_WINDOW)
        self._asked = 0
        self._due = 1
        self.taken: tuple[AskedFor, ...] = ()  # the asks of the mix
        self._mix: Mix | None = None

    def remember(self, window: int) -> None:
        """Set the number of asks in the mix."""
        self._recent = deque(self._recent, maxlen=window)

    def asked(self, asked_for: AskedFor) -> None:
        """Add an ask."""
        self._recent.append(asked_for)
        self._asked += 1
        if self._asked >= self._due:
            self._due += min(self._asked, -(-(self._recent.maxlen or 1) // PART))
            self.taken = tuple(self._recent)
            self._mix = None
            self._reorder()

    @property
    def mix(self) -> Mix:
        """Return the mix; a changed mix is another object."""
        if self._mix is None:
            self._mix = mix_of(self.taken)
        return self._mix


def mix_of(asked: Sequence[AskedFor]) -> Mix:
    """Return the mix of some asks; it always has a part without constraints."""
    alike = Counter(map(id, asked))
    objects = {id(item): item for item in asked}
    counts: Counter[tuple[Constraints, Demand]] = Counter()
    for key, number in alike.items():
        demand, constraints = objects[key]
        counts[_of_nodes(constraints), demand] += number
    of_sets: Counter[Constraints] = Counter()
    for (constraints, _), number in counts.items():
        of_sets[constraints] += number
    of_sets.pop(NO_CONSTRAINTS, None)
    kept = [constraints for constraints, _ in of_sets.most_common(MAX_SETS)]
    found: dict[Constraints, Counter[Demand]] = {s: Counter() for s in (NO_CONSTRAINTS, *kept)}
    for (constraints, demand), number in counts.items():
        found.get(constraints, found[NO_CONSTRAINTS])[demand] += number
    return Mix(found)


def _of_nodes(constraints: Constraints) -> Constraints:
    """Return the required node constraints, without preferences."""
    if constraints == NO_CONSTRAINTS:
        return NO_CONSTRAINTS
    return replace(constraints.of_nodes, preferred_nodes=(), gpu_devices=1)
