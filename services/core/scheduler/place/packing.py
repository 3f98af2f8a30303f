"""The order of domains and nodes under the policy kai, where pods go member by member.

Rule 1: of the domains of a level that hold all that one goes first whose topmost domain has the
        least room, then by the next level, down to its own.
Rule 2: inside a domain that is wider than preferred the preferred ones with the most room go first,
        of equal ones the last by name. The room is that before the first member is placed.
Rule 3: each member goes to the best node of those by the configured score; where that packs, to
        the one with the least room left of what is asked for (``nodes/scores/packing.py``).
Source: docs/rules/kai.md#scores-and-domains.
"""

from dataclasses import dataclass

import numpy as np

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import Wish
from services.core.scheduler.place.units import At, Units


def is_packed(wish: Wish) -> bool:
    """Return whether that order decides: slices, balance and small gaps are shared out."""
    return not (wish.slices or wish.is_balanced or wish.is_unconstrained)


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Where each row stands by the preferred domain that it is in: a score of nodes, less first."""

    by_row: Amounts

    def matters(self, _: Shape) -> bool:
        """Return that nodes score differently."""
        return True

    def of_rows(self, rows: Amounts, _: Shape) -> Amounts:
        """Return the ranks of some rows."""
        return self.by_row[rows]


def ranks(wish: Wish, units: Units, at: At) -> Ranks | None:
    """Return where the rows of a domain stand (rule 2); None: all are alike."""
    level, tree = wish.preferred, units.tree
    if level <= at[0]:
        return None
    room, paths = units.whole[level], tree.paths[level]
    known = sorted(tree.known(level), key=lambda each: (int(room[each]), paths[each]))
    place_of = np.full(len(paths) + 1, len(known), dtype=np.int64)  # the last: of no domain
    place_of[known] = np.arange(len(known))[::-1]
    return Ranks(place_of[tree.ids(level, units.raw[-1].size)])
