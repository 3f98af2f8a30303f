"""Divides equal pods over a tree of domains, by numbers alone.

Rule 1: of the domains of a level that fit all pods, the one with the least capacity comes first, of
        equal ones the one in the fuller domain above, then by name.
Rule 2: in a domain, the ones below with the most capacity are filled first, but the last is the one
        with the least capacity that fits the rest. Unconstrained pods fill the least capacity
        first.
Rule 3: the preferred level is tried first, then the levels above it up to the required one; above
        the highest, as few domains as possible. Nodes in no domain come last. The policy kai has
        its own order (``packing.py``).
Rule 4: balanced pods go into one domain above the preferred level, if one fits them, as evenly as
        possible (``balance.py``).
Cost: the number of domains below those that are used.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import EVERYWHERE, ResolvedTopology
from services.core.scheduler.place import balance
from services.core.scheduler.place.domain_capacity import ALL, At, DomainCapacity, Share, order


def candidates(
    resolved: ResolvedTopology, capacity: DomainCapacity, count: int, *, from_the_top: bool = False
) -> Iterator[At]:
    """Yield the domains that fit so many pods, in the order to try them.

    ``from_the_top``: in the order of ``packing.py``.
    """
    key = partial(order, capacity, from_the_top=from_the_top)
    if resolved.is_balanced and resolved.preferred != EVERYWHERE:
        yield from balance.domains(resolved, capacity, count)
    for level in range(max(resolved.preferred, resolved.required), resolved.required - 1, -1):
        if level == EVERYWHERE:
            if capacity.everywhere >= count:
                yield ALL
            continue
        fitting = np.flatnonzero(capacity.whole[level] >= count).tolist()
        for number in sorted(fitting, key=partial(key, level)):
            yield level, number


def fill(resolved: ResolvedTopology, capacity: DomainCapacity, at: At, count: int) -> Share:
    """Return how many of ``count`` pods go to which rows of a domain that fits them."""
    even = None
    if resolved.is_balanced and at[0] == resolved.preferred - 1:
        even = balance.balanced(resolved, capacity, at, count)
    if even is None:
        return fill_plainly(resolved, capacity, at, count)
    return [
        each for part, number in even.on for each in fill_plainly(resolved, capacity, part, number)
    ]


def fill_plainly(resolved: ResolvedTopology, capacity: DomainCapacity, at: At, count: int) -> Share:
    """Return the same without balance."""
    level = at[0]
    if level == capacity.tree.depth:
        return [(at[1], count)]
    found: Share = []
    if level == EVERYWHERE and not capacity.tree.depth:
        return share_out(
            capacity.whole[0], capacity.raw[0], count, is_least=resolved.is_unconstrained
        )
    held = min(count, int(capacity.whole[0].sum())) if level == EVERYWHERE else count
    below = capacity.below(at)
    whole, raw = capacity.whole[level + 1][below], capacity.raw[level + 1][below]
    for place, number in share_out(whole, raw, held, is_least=resolved.is_unconstrained):
        found += fill_plainly(resolved, capacity, (level + 1, int(below[place])), number)
    return found + _loose(capacity, count - held)


def _loose(capacity: DomainCapacity, count: int) -> Share:
    """Return how many pods go to which nodes that are in no domain."""
    if not count:
        return []
    rows = np.flatnonzero(capacity.tree.ids(0, capacity.raw[-1].size) < 0)
    room = capacity.raw[-1][rows]
    return [(int(rows[at]), number) for at, number in share_out(room, room, count)]


def share_out(whole: Amounts, raw: Amounts, count: int, *, is_least: bool = False) -> Share:
    """Return how many of ``count`` pods go to which index of the amounts (rule 2)."""
    if not count:
        return []  # the amounts may be empty
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
    first = int(np.searchsorted(sums, count))  # the rest then fits in one
    rest = count - (int(sums[first - 1]) if first else 0)
    last = int(np.count_nonzero(sizes >= rest)) - 1
    last = max(first, int(np.searchsorted(-sizes, -sizes[last])))
    found = [(int(at), int(size)) for at, size in zip(by_room[:first], sizes[:first], strict=True)]
    return [*found, (int(by_room[last]), rest)] if rest else found
