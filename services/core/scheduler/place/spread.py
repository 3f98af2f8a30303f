"""How many pods go where in a tree of domains: by numbers alone, for pods that are alike.

Rule 1: of the domains of a level that hold all the one with the least room goes first, of equal
        ones that in the fuller domain above, then by name.
Rule 2: inside a domain those below with the most room go first, but the last is the one with the
        least room that holds the rest; of equal ones what leaves less. Unconstrained pods go where
        there is the least room first.
Rule 3: a preferred level is tried first, then the levels above it up to the required one; above the
        highest, as few domains as can be. Nodes that are in no domain come last.
        The policy kai has an order of its own (``packing.py``).
Rule 4: balanced pods go into one domain above the preferred level, if one holds them, as evenly as
        can be (``balance.py``).

Cost: of the domains that are used the sizes below them.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import EVERYWHERE, Wish
from services.core.scheduler.place import balance
from services.core.scheduler.place.units import ALL, At, Share, Units, order


def candidates(wish: Wish, units: Units, count: int, *, from_the_top: bool = False) -> Iterator[At]:
    """Yield the domains that hold so many pods, in the order in which they are to be tried.

    ``from_the_top``: in the order of ``packing.py``.
    """
    key = partial(order, units, from_the_top=from_the_top)
    if wish.is_balanced and wish.preferred != EVERYWHERE:
        yield from balance.domains(wish, units, count)
    for level in range(max(wish.preferred, wish.required), wish.required - 1, -1):
        if level == EVERYWHERE:
            if units.everywhere >= count:
                yield ALL
            continue
        fitting = np.flatnonzero(units.whole[level] >= count).tolist()
        for number in sorted(fitting, key=partial(key, level)):
            yield level, number


def fill(wish: Wish, units: Units, at: At, count: int) -> Share:
    """Return on which rows of a domain that holds so many pods they go; the fullest first."""
    even = None
    if wish.is_balanced and at[0] == wish.preferred - 1:
        even = balance.balanced(wish, units, at, count)
    if even is None:
        return fill_plainly(wish, units, at, count)
    return [each for part, number in even.on for each in fill_plainly(wish, units, part, number)]


def fill_plainly(wish: Wish, units: Units, at: At, count: int) -> Share:
    """Return the same without balance."""
    level = at[0]
    if level == units.tree.depth:
        return [(at[1], count)]
    found: Share = []
    if level == EVERYWHERE and not units.tree.depth:
        return share_out(units.whole[0], units.raw[0], count, is_least=wish.is_unconstrained)
    held = min(count, int(units.whole[0].sum())) if level == EVERYWHERE else count
    below = units.below(at)
    whole, raw = units.whole[level + 1][below], units.raw[level + 1][below]
    for place, number in share_out(whole, raw, held, is_least=wish.is_unconstrained):
        found += fill_plainly(wish, units, (level + 1, int(below[place])), number)
    return found + _loose(units, count - held)


def _loose(units: Units, count: int) -> Share:
    """Return where pods go among nodes that are in no domain."""
    if not count:
        return []
    rows = np.flatnonzero(units.tree.ids(0, units.raw[-1].size) < 0)
    room = units.raw[-1][rows]
    return [(int(rows[at]), number) for at, number in share_out(room, room, count)]


def share_out(whole: Amounts, raw: Amounts, count: int, *, is_least: bool = False) -> Share:
    """Return how many of so many pods go where, by place in the amounts (rule 2)."""
    if not count:
        return []  # there may be no place: no node is in a domain, or none is left
    slack = raw - whole
    if is_least:
        by_room = np.lexsort((slack, whole))
        found: Share = []
        for at in by_room.tolist():
            number = min(int(whole[at]), count)
            if number:
                found.append((at, number))
            count -= number
        return found
    by_room = np.lexsort((slack, -whole))
    sizes = whole[by_room]
    sums = np.cumsum(sizes)
    first = int(np.searchsorted(sums, count))  # with which the rest is held by one
    rest = count - (int(sums[first - 1]) if first else 0)
    last = int(np.count_nonzero(sizes >= rest)) - 1
    last = max(first, int(np.searchsorted(-sizes, -sizes[last])))
    found = [(int(at), int(size)) for at, size in zip(by_room[:first], sizes[:first], strict=True)]
    return [*found, (int(by_room[last]), rest)] if rest else found
