"""The mix of what was asked for lately.

Rule 1: the mix is that of the last ``window`` asks, placeholders aside. It is taken again each time
        that a quarter of the window has been asked for, and from the start on when as many have
        come as there were: a question never changes it.
Rule 2: of constraints the MAX_SETS most common are told apart; an ask with others is counted as if
        any node would do.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from services.core.scheduler.model.settings import NODE_SCORE_WINDOW
from services.core.scheduler.model.shapes import AskedFor, Demand
from services.core.scheduler.nodes.scores.mix import Mix
from shared.messages.constraints import NO_CONSTRAINTS, Constraints

MAX_SETS = 8  # sets of constraints in the mix; others count as none
PART = 4  # of the window: after so many new asks the mix is taken anew


class RecentAsks:
    """What was asked for lately, and the mix of it."""

    def __init__(self, reorder: Callable[[], None]) -> None:
        self._reorder = reorder  # nodes are looked at anew: those that have not changed, too
        self._recent: deque[AskedFor] = deque(maxlen=NODE_SCORE_WINDOW)
        self._asked = 0
        self._due = 1
        self.taken: tuple[AskedFor, ...] = ()  # what the mix is made of
        self._mix: Mix | None = None

    def remember(self, window: int) -> None:
        """Make the mix of so many asks from now on."""
        self._recent = deque(self._recent, maxlen=window)

    def asked(self, asked_for: AskedFor) -> None:
        """Count an ask into the recent mix."""
        self._recent.append(asked_for)
        self._asked += 1
        if self._asked >= self._due:
            self._due += min(self._asked, -(-(self._recent.maxlen or 1) // PART))
            self.taken = tuple(self._recent)
            self._mix = None
            self._reorder()

    @property
    def mix(self) -> Mix:
        """Return the mix: another object when it is another."""
        if self._mix is None:
            self._mix = mix_of(self.taken)
        return self._mix


def mix_of(asked: Sequence[AskedFor]) -> Mix:
    """Return the mix of some asks; the part without constraints is there in any case."""
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
    """Return what constraints say of which nodes may be used: what is preferred closes none."""
    if constraints == NO_CONSTRAINTS:
        return NO_CONSTRAINTS
    return replace(constraints.of_nodes, preferred_nodes=(), gpu_devices=1)
