"""The smallest set of victims that gives what is needed, among candidates in the order they go.

Rule 1: a set helps if it gives what is needed of every dimension, keeps to the limits, and is
        accepted. Of the sets that help, those go first whose highest rank is the lowest, then the
        smallest, then those whose last victim comes first in order, then their last but one.
Rule 2: candidates are taken in order until they help, then those are left out that are not needed,
        the last tried first. That no set can be smaller is most often clear from the largest that
        one candidate gives. Else, and if nothing was found because of limits, sets are searched;
        candidates that are alike are counted and not told apart.

Limits: MAX_STEPS steps of a search, shared by all nodes that are tried for one ask, and
MAX_CANDIDATES candidates. Beyond them what was found in order stands: it helps, and none of it
could be left out, but it may not be the smallest.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import add, sub
from typing import NamedTuple

from services.core.scheduler.nodes.victim_kinds import Victim

MAX_STEPS = 20_000  # steps of the searches for one ask; the first set found is used
MAX_CANDIDATES = 500  # candidates in a search for fewer victims; the last are omitted
Limit = Hashable
Costs = tuple[tuple[Limit, int], ...]
Used = dict[Limit, int]
Part = tuple[int, ...]
Accepts = Callable[[list[Victim]], bool]


class Candidate(NamedTuple):
    """A victim, what it gives of each dimension, and what it takes of which limit.

    Those that are ``alike`` give and take the same, and are accepted alike.
    """

    victim: Victim
    gives: Part
    costs: Costs = ()
    alike: Hashable = None


@dataclass(slots=True)
class Steps:
    """How many steps searches have left."""

    left: int = MAX_STEPS


@dataclass(frozen=True, slots=True)
class Needs:
    """What a set has to come to.

    ``of`` is what is needed of each dimension, ``limits`` what may be taken of each limit;
    ``accepts`` judges a set that gives what is needed, None: all are
    accepted. ``largest`` is the most that one candidate gives of each dimension.
    """

    of: Part
    limits: Mapping[Limit, int] = field(default_factory=dict)
    accepts: Accepts | None = None
    largest: Part = ()

    def are_met(self, left: Iterable[int], taken: Sequence[Candidate]) -> bool:
        """Return whether a set helps that leaves so much of what is needed."""
        if any(value > 0 for value in left):
            return False
        return self.accepts is None or self.accepts([one.victim for one in taken])

    def are_within_limits(self, used: Used) -> bool:
        """Return whether each limit is kept of which something is used."""
        return all(value <= self.limits[name] for name, value in used.items() if value)


def _count(used: Used, costs: Costs, times: int) -> None:
    for name, cost in costs:
        used[name] = used.get(name, 0) + times * cost


def smallest_set(
    candidates: Iterable[Candidate], needs: Needs, steps: Steps
) -> list[Victim] | None:
    """Return the smallest set that helps, in order; None where none does, or none is needed."""
    rest = iter(candidates)
    taken = _in_order(rest, needs)
    ranks = sorted({one.victim.rank for one in taken.read})
    if not taken.helps:
        if taken.is_short_by_limits or (needs.accepts is not None and taken.gives_enough):
            return _victims(_searched(taken.read, needs, steps, ranks))
        return None
    if not taken.candidates:
        return None
    found = _without_the_needless(taken.candidates, needs)
    highest = max(one.victim.rank for one in found)
    better = None
    if taken.is_short_by_limits and ranks[0] < highest:
        better = _searched(taken.read, needs, steps, [rank for rank in ranks if rank < highest])
    if better is None and len(found) > _least_size(needs):
        read = [*taken.read, *islice(rest, max(0, MAX_CANDIDATES - len(taken.read)))]
        better = _searched(read, needs, steps, [highest], len(found) - 1)
    return _victims(better or found)


def _victims(found: Iterable[Candidate] | None) -> list[Victim] | None:
    victims = [one.victim for one in found or ()]
    return victims or None


# --- in order -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Taken:
    """What was taken in order: whom, of whom, and whether that helps."""

    read: list[Candidate]
    candidates: list[Candidate]
    helps: bool
    is_short_by_limits: bool
    gives_enough: bool


def _in_order(candidates: Iterator[Candidate], needs: Needs) -> _Taken:
    """Take candidates in order until they help; those beyond a limit are passed over."""
    read: list[Candidate] = []
    taken: list[Candidate] = []
    used: Used = {}
    left, is_passed_over = list(needs.of), False
    helps = needs.are_met(left, taken)
    while not helps and (one := next(candidates, None)) is not None:
        if needs.accepts is None and not any(one.gives):
            continue
        read.append(one)
        _count(used, one.costs, 1)
        if needs.are_within_limits(used):
            left = [*map(sub, left, one.gives)]
            taken.append(one)
            helps = needs.are_met(left, taken)
        else:
            _count(used, one.costs, -1)
            is_passed_over = True
    return _Taken(read, taken, helps, is_passed_over, all(value <= 0 for value in left))


def _without_the_needless(taken: list[Candidate], needs: Needs) -> list[Candidate]:
    """Leave out those that are not needed, the last tried first."""
    left = list(needs.of)
    for one in taken:
        left = [*map(sub, left, one.gives)]
    for one in reversed(taken):
        without = [*map(add, left, one.gives)]
        if any(value > 0 for value in without):
            continue
        fewer = [other for other in taken if other is not one]
        if needs.are_met(without, fewer):
            taken, left = fewer, without
    return taken


def _least_size(needs: Needs) -> int:
    """Return a number that no set that helps is smaller than, 1 at least."""
    return max(
        1,
        *(
            -(-need // largest)
            for need, largest in zip(needs.of, needs.largest, strict=False)
            if largest > 0
        ),
        1,
    )


# --- searched -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Class:
    """Candidates that are alike, where they stand in order; so many ``may_go``."""

    gives: Part
    costs: Costs
    at: list[int] = field(default_factory=list)
    may_go: int = 0


def _searched(
    candidates: list[Candidate],
    needs: Needs,
    steps: Steps,
    ranks: Iterable[int],
    most: int = MAX_CANDIDATES,
) -> list[Candidate] | None:
    """Return the first set that helps by Rule 1, of ``most`` candidates; None: none was found.

    ``ranks`` are those that the worst of a set may have, the lowest first.
    """
    for highest in ranks:
        among = [one for one in candidates[:MAX_CANDIDATES] if one.victim.rank <= highest]
        search = _Search(among, needs, steps)
        for size in range(_least_size(needs), min(most, len(among)) + 1):
            found = search.best_of(size)
            if found is not None:
                return [among[at] for at in sorted(found)]
            if steps.left <= 0:
                return None
    return None


class _Search:
    """The sets of one size, of candidates in order."""

    def __init__(self, candidates: list[Candidate], needs: Needs, steps: Steps) -> None:
        self._candidates = candidates
        self._needs = needs
        self._steps = steps
        self._classes: list[_Class] = []
        self._most: list[Part] = []  # that one of this class, or a later one, gives
        self._fixed: list[int] = []
        self._used: Used = {}
        self._path: list[tuple[_Class, int]] = []
        classes: dict[Hashable, _Class] = {}
        for at, one in enumerate(candidates):
            key = (one.alike, one.gives, one.costs)
            found = classes.setdefault(key, _Class(one.gives, one.costs))
            found.at.append(at)
        self._all = sorted(classes.values(), key=lambda one: (-self._worth(one.gives), one.at[0]))

    def _worth(self, gives: Part) -> int:
        """Return how much of what is needed one gives, in thousandths of each dimension."""
        needed = zip(gives, self._needs.of, strict=True)
        return sum(min(part, need) * 1000 // need for part, need in needed if need > 0)

    def best_of(self, size: int) -> list[int] | None:
        """Return where the victims of the first set of a size stand; None where none helps.

        Its last victim stands as far in front as can be, then its last but one, and so on.
        """
        self._fixed, self._used, left = [], {}, self._needs.of
        end = len(self._candidates)
        found = self._before(end, size, left)
        if found is None:
            return None
        while size and self._steps.left > 0:
            best = found
            low, high = size, max(best) + 1  # there is one before ``high``
            while low < high:
                middle = (low + high) // 2
                nearer = self._before(middle, size, left)
                if nearer is None:
                    low = middle + 1
                else:
                    best, high = nearer, max(nearer) + 1
            last = max(best)
            one = self._candidates[last]
            left = tuple(map(sub, left, one.gives))
            self._fixed.append(last)
            _count(self._used, one.costs, 1)
            found = [at for at in best if at != last]
            size -= 1
        return [*self._fixed, *found]

    def _before(self, end: int, size: int, left: Part) -> list[int] | None:
        """Return a set of a size among the first candidates that helps, beside those that stand."""
        self._classes = []
        for one in self._all:
            one.may_go = bisect_left(one.at, end)
            if one.may_go:
                self._classes.append(one)
        self._most = [(0,) * len(left)]
        for one in reversed(self._classes):
            self._most.append(tuple(map(max, self._most[-1], one.gives)))
        self._most.reverse()
        return self._counts(0, size, left)

    def _counts(self, at: int, size: int, left: Part) -> list[int] | None:
        """Return a set that helps, with so many more of the classes from one on."""
        self._steps.left -= 1
        if size == 0:
            return self._judged(left)
        if at == len(self._classes) or self._steps.left <= 0:
            return None
        if any(size * most < value for most, value in zip(self._most[at], left, strict=True)):
            return None
        one = self._classes[at]
        for times in range(min(size, one.may_go), -1, -1):
            after = tuple(need - times * gives for need, gives in zip(left, one.gives, strict=True))
            _count(self._used, one.costs, times)
            self._path.append((one, times))
            is_allowed = self._needs.are_within_limits(self._used)
            found = self._counts(at + 1, size - times, after) if is_allowed else None
            self._path.pop()
            _count(self._used, one.costs, -times)
            if found is not None:
                return found
        return None

    def _judged(self, left: Part) -> list[int] | None:
        """Return the set that is on the path, if it helps beside those that stand."""
        found = [at for one, times in self._path for at in one.at[:times]]
        taken = [self._candidates[at] for at in sorted((*self._fixed, *found))]
        return found if self._needs.are_met(left, taken) else None
