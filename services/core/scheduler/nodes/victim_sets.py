"""The smallest set of victims that frees what is needed, among ordered candidates.

Rule 1: a set helps if it frees what is needed in every dimension, stays within the limits, and is
        accepted. Of the sets that help, the one with the lowest highest rank is best, then the
        smallest, then the one whose last victim comes first in order, then its last but one.
Rule 2: candidates are added in order until they help, then unnecessary ones are removed, last
        first. That no smaller set exists usually follows from the largest amount of one candidate.
        Otherwise, and if limits prevented a result, sets are searched; equal candidates are counted
        as one class.
Limits: MAX_STEPS steps, shared by all nodes tried for one ask, and MAX_CANDIDATES candidates.
Beyond them the set found in order is the result: it helps without unnecessary victims, but may not
be the smallest.
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
    """A victim, what it frees in each dimension, and its cost in each limit.

    Candidates with equal ``alike`` are accepted alike if they free and cost the same.
    """

    victim: Victim
    gives: Part
    costs: Costs = ()
    alike: Hashable = None


@dataclass(slots=True)
class Steps:
    """The remaining steps of searches."""

    left: int = MAX_STEPS


@dataclass(frozen=True, slots=True)
class Needs:
    """The conditions for a set.

    ``of`` is what is needed in each dimension, ``limits`` the bound of each limit; ``accepts``
    checks a set that frees enough (None: all are accepted). ``largest`` is the most that one
    candidate frees in each dimension.
    """

    of: Part
    limits: Mapping[Limit, int] = field(default_factory=dict)
    accepts: Accepts | None = None
    largest: Part = ()

    def are_met(self, left: Iterable[int], taken: Sequence[Candidate]) -> bool:
        """Whether a set helps, given what it leaves of the need."""
        if any(value > 0 for value in left):
            return False
        return self.accepts is None or self.accepts([one.victim for one in taken])

    def are_within_limits(self, used: Used) -> bool:
        """Whether every used limit is respected."""
        return all(value <= self.limits[name] for name, value in used.items() if value)


def _count(used: Used, costs: Costs, times: int) -> None:
    for name, cost in costs:
        used[name] = used.get(name, 0) + times * cost


def smallest_set(
    candidates: Iterable[Candidate], needs: Needs, steps: Steps
) -> list[Victim] | None:
    """Return the smallest set that helps, in order; None if none does, or none is needed."""
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
    """The result of adding candidates in order."""

    read: list[Candidate]
    candidates: list[Candidate]
    helps: bool
    is_short_by_limits: bool
    gives_enough: bool


def _in_order(candidates: Iterator[Candidate], needs: Needs) -> _Taken:
    """Add candidates in order until they help; those beyond a limit are skipped."""
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
    """Remove unnecessary candidates, last first."""
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
    """Return a lower bound of the size of a set that helps, at least 1."""
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
    """Equal candidates by their positions; at most ``may_go`` of them may be used."""

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
    """Return the best set by Rule 1 with at most ``most`` candidates; None: not found.

    ``ranks`` are the possible highest ranks of a set, lowest first.
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
    """The search for sets of one size."""

    def __init__(self, candidates: list[Candidate], needs: Needs, steps: Steps) -> None:
        self._candidates = candidates
        self._needs = needs
        self._steps = steps
        self._classes: list[_Class] = []
        self._most: list[Part] = []  # largest amount of one of this class, or a later one
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
        """Return how much of the need one frees, in thousandths of each dimension."""
        needed = zip(gives, self._needs.of, strict=True)
        return sum(min(part, need) * 1000 // need for part, need in needed if need > 0)

    def best_of(self, size: int) -> list[int] | None:
        """Return the positions of the best set of a size; None if none helps.

        Its last victim comes as early as possible, then its last but one, and so on.
        """
        self._fixed, self._used, left = [], {}, self._needs.of
        end = len(self._candidates)
        found = self._before(end, size, left)
        if found is None:
            return None
        while size and self._steps.left > 0:
            best = found
            low, high = size, max(best) + 1  # a set exists before ``high``
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
        """Return ``size`` of the first ``end`` candidates that help with the fixed ones."""
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
        """Return a set that helps, with ``size`` more candidates of the classes from ``at`` on."""
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
        """Return the current set if it helps together with the fixed ones."""
        found = [at for one, times in self._path for at in one.at[:times]]
        taken = [self._candidates[at] for at in sorted((*self._fixed, *found))]
        return found if self._needs.are_met(left, taken) else None
