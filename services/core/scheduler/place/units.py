"""What the domains of a tree hold of pods that are alike, counted in whole slices.

Rule: a domain holds the sum of what is below it, rounded down to a slice's size at the slice's
      level. So what holds enough can always be filled.
"""

from dataclasses import dataclass, field

import numpy as np

from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import EVERYWHERE, DomainTree, Wish

MOST = 2**31  # places of a node: more count as so many
Share = list[tuple[int, int]]  # (id or row, how many)
At = tuple[int, int]  # a level and a domain of it
ALL: At = (EVERYWHERE, 0)


@dataclass(slots=True, eq=False)
class Units:
    """What every domain holds of like pods; by level, the last that of single nodes."""

    tree: DomainTree
    slices: tuple[tuple[int, int], ...]
    whole: list[Amounts]  # in whole slices
    raw: list[Amounts]  # places
    loose: int  # of nodes that are in no domain
    _grouped: dict[int, tuple[Amounts, Amounts]] = field(default_factory=dict)  # by what is above

    @property
    def everywhere(self) -> int:
        """Return how many all nodes hold."""
        return int(self.whole[0].sum()) + self.loose

    def of(self, at: At) -> int:
        """Return how many a domain holds."""
        level, number = at
        return self.everywhere if level == EVERYWHERE else int(self.whole[level][number])

    def below(self, at: At) -> Amounts:
        """Return the ids of what is in a domain, one level below it, that holds anything."""
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
        """Return what is the same for domains that like pods cannot tell apart."""
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


def units_of(wish: Wish, room: Amounts, gaps: tuple[int, dict[int, int]] | None = None) -> Units:
    """Return what the domains hold, of so many places by row.

    ``gaps`` is a level and what the slices lack there that have begun: then those are filled.
    """
    tree, slices = wish.tree, () if gaps is not None else wish.slices
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
    return Units(tree, slices, whole, raw, loose if tree.depth else 0)


def _rounded(amounts: Amounts, size: int) -> Amounts:
    return amounts if size == 1 else amounts // size * size


def _summed(above: Amounts, amounts: Amounts, number: int) -> Amounts:
    is_in = above >= 0
    sums = np.bincount(above[is_in], weights=amounts[is_in].astype(np.float64), minlength=number)
    found: Amounts = sums.astype(np.int64)
    return found


def order(
    units: Units, level: int, number: int, *, from_the_top: bool = False
) -> tuple[object, ...]:
    """Return where a domain stands among those of its level: the tightest first, then by name.

    Of equal ones that in the tighter domain above; ``from_the_top`` the widest is compared first.
    """
    rooms, at = [], number
    for each in range(level, EVERYWHERE, -1):
        rooms.append(int(units.whole[each][at]))
        at = units.tree.parents[each][at]
    return (*(rooms[::-1] if from_the_top else rooms), units.tree.paths[level][number])
