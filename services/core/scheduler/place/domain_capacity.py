"""How many equal pods each domain of a tree fits, counted in whole slices.

Rule: a domain fits the sum of the domains below it, rounded down to whole slices at the slice's
level. So a domain that fits enough pods can always be filled.
"""

from dataclasses import dataclass, field

import numpy as np

from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import EVERYWHERE, DomainTree, ResolvedTopology

MOST = 2**31  # largest number of places counted for a node
Share = list[tuple[int, int]]  # (id or row, how many)
At = tuple[int, int]  # a level and a domain of it
ALL: At = (EVERYWHERE, 0)


@dataclass(slots=True, eq=False)
class DomainCapacity:
    """How many equal pods each domain fits, by level; the last level is single nodes."""

    tree: DomainTree
    slices: tuple[tuple[int, int], ...]
    whole: list[Amounts]  # in whole slices
    raw: list[Amounts]  # places
    loose: int  # of nodes that are in no domain
    _grouped: dict[int, tuple[Amounts, Amounts]] = field(default_factory=dict)  # by domain above

    @property
    def everywhere(self) -> int:
        """Return how many fit on all nodes."""
        return int(self.whole[0].sum()) + self.loose

    def of(self, at: At) -> int:
        """Return how many fit in a domain."""
        level, number = at
        return self.everywhere if level == EVERYWHERE else int(self.whole[level][number])

    def below(self, at: At) -> Amounts:
        """Return the ids one level below a domain that fit any."""
        level, number = at
        if level == EVERYWHERE:
            top: Amounts = np.flatnonzero(self.whole[0] > 0)
            return top
        grouped = self._grouped.get(level)
        if grouped is None:
            above = _above(self.tree, level + 1, self.raw[-1].size)
            ids = np.flatnonzero((above >= 0) & (self.whole[level + 1] > 0))
            ids = ids[np.argsort(above[ids], kind="stable")]
            starts = np.searchsorted(above[ids], np.arange(len(self.tree.paths[level]) + 1))
            grouped = self._grouped[level] = (ids, starts)
        ids, starts = grouped
        return ids[starts[number] : starts[number + 1]]

    def pattern(self, at: At) -> object:
        """Return a key that is equal for domains with equal capacity."""
        level, number = at
        if level == self.tree.depth:
            return int(self.raw[-1][number])
        above = self.tree.parents[level][number] if level > 0 else EVERYWHERE
        return level, above, self._inside(at)

    def _inside(self, at: At) -> object:
        level = at[0] + 1
        below = self.below(at)
        if level == self.tree.depth:
            return np.sort(self.raw[level][below]).tobytes()
        return tuple(sorted((self._inside((level, int(each))) for each in below), key=repr))


def _above(tree: DomainTree, level: int, rows: int) -> Amounts:
    """Return the domain above each domain of a level, or above each row; -1: none."""
    if level == tree.depth:
        return tree.ids(level - 1, rows) if level else np.zeros(rows, dtype=np.int64)
    return tree.above(level)


def capacity_of(
    resolved: ResolvedTopology, room: Amounts, gaps: tuple[int, dict[int, int]] | None = None
) -> DomainCapacity:
    """Return how many pods the domains fit, given the places of each row.

    ``gaps``, a level and what partly filled slices lack: only these are counted then.
    """
    tree, slices = resolved.tree, () if gaps is not None else resolved.slices
    sizes = dict(slices)
    raw: list[Amounts] = [np.minimum(room, MOST)]
    whole: list[Amounts] = [_rounded(raw[0], sizes.get(tree.depth, 1))]
    is_in = tree.ids(0, room.size) >= 0 if tree.depth else np.zeros(room.size, dtype=np.bool_)
    for level in range(tree.depth - 1, EVERYWHERE, -1):
        above, number = _above(tree, level + 1, room.size), len(tree.paths[level])
        raw.insert(0, _summed(above, raw[0], number))
        held = _summed(above, whole[0], number)
        if gaps is not None and gaps[0] == level:
            held = np.array([min(int(n), gaps[1].get(at, 0)) for at, n in enumerate(held)])
        whole.insert(0, _rounded(held, sizes.get(level, 1)))
    loose = 0 if slices or gaps is not None else int(raw[-1][~is_in].sum())
    return DomainCapacity(tree, slices, whole, raw, loose if tree.depth else 0)


def _rounded(amounts: Amounts, size: int) -> Amounts:
    return amounts if size == 1 else amounts // size * size


def _summed(above: Amounts, amounts: Amounts, number: int) -> Amounts:
    is_in = above >= 0
    sums = np.bincount(above[is_in], weights=amounts[is_in].astype(np.float64), minlength=number)
    found: Amounts = sums.astype(np.int64)
    return found


def order(
    capacity: DomainCapacity, level: int, number: int, *, from_the_top: bool = False
) -> tuple[object, ...]:
    """Return the sort key of a domain in its level: the tightest first, then by name.

    Ties are broken by the tighter domain above; with ``from_the_top`` the topmost is compared
    first.
    """
    rooms, at = [], number
    for each in range(level, EVERYWHERE, -1):
        rooms.append(int(capacity.whole[each][at]))
        at = capacity.tree.parents[each][at]
    return (*(rooms[::-1] if from_the_top else rooms), capacity.tree.paths[level][number])
