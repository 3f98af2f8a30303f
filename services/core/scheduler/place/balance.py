"""Spreads equal pods as evenly as possible over the domains below a preferred level.

Rule 1: they go into one domain above the preferred level: the one in which the domain with the
        fewest pods gets the most.
Rule 2: in it as few domains of the preferred level are used as possible, and as many domains below
        them as that smallest number allows; the remaining pods are added one by one.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import EVERYWHERE, ResolvedTopology
from services.core.scheduler.place.domain_capacity import ALL, At, DomainCapacity, order


@dataclass(frozen=True, slots=True)
class Even:
    """An even spread: the smallest number of a domain, the domains used, and the pods of each."""

    least: int
    domains: int  # of the preferred level
    on: list[tuple[At, int]]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The domains below a preferred one: ids, and how many slices each fits, largest first."""

    ids: Amounts
    sizes: Amounts

    def with_least(self, least: int, most: int) -> "_Parts":
        """Return at most ``most`` domains, those that fit at least ``least`` slices."""
        kept = np.flatnonzero(self.sizes >= least)[:most]
        return _Parts(self.ids[kept], self.sizes[kept])

    @property
    def room(self) -> int:
        """Return how many slices fit in all of them."""
        return int(self.sizes.sum())


def domains(resolved: ResolvedTopology, capacity: DomainCapacity, count: int) -> list[At]:
    """Return the domains above the preferred level that fit the pods, the most even first."""
    level = resolved.preferred - 1
    if level < resolved.required:
        return []
    above: list[At] = [ALL] if capacity.everywhere >= count else []
    if level != EVERYWHERE:
        fitting = np.flatnonzero(capacity.whole[level] >= count).tolist()
        above = [(level, at) for at in sorted(fitting, key=partial(order, capacity, level))]
    found = [
        (even, at) for at in above if (even := balanced(resolved, capacity, at, count)) is not None
    ]
    return [at for _, at in sorted(found, key=lambda each: (-each[0].least, each[0].domains))]


def balanced(
    resolved: ResolvedTopology, capacity: DomainCapacity, at: At, count: int
) -> Even | None:
    """Return the most even spread in a domain above the preferred level, None if none fits.

    Domains of the preferred level are added in order of their capacity.
    """
    size, wanted = resolved.size, -(-count // resolved.size)
    all_parts = [
        _parts(capacity, (resolved.preferred, int(number)), size) for number in capacity.below(at)
    ]
    least = _largest_least(np.concatenate([*(each.sizes for each in all_parts), [0]]), wanted)
    if not least:
        return None
    most = wanted // least
    kept = [each.with_least(least, most) for each in all_parts]
    kept.sort(key=lambda each: (-min(each.room, wanted), -each.ids.size))
    for number in range(1, len(kept) + 1):
        found = _together(kept[:number]).with_least(least, most)
        if found.room >= wanted:
            on = _evenly(found, least, wanted)
            return Even(
                least,
                number,
                [((resolved.preferred + 1, part), slices * size) for part, slices in on],
            )
    return None


def _parts(capacity: DomainCapacity, at: At, size: int) -> _Parts:
    ids = capacity.below(at)
    return _together([_Parts(ids, capacity.whole[at[0] + 1][ids] // size)])


def _together(parts: list[_Parts]) -> _Parts:
    sizes = np.concatenate([each.sizes for each in parts])
    by_size = np.argsort(-sizes, kind="stable")
    return _Parts(np.concatenate([each.ids for each in parts])[by_size], sizes[by_size])


def _largest_least(sizes: Amounts, wanted: int) -> int:
    """Return the largest possible number of slices in the domain with the fewest; 0: no fit."""
    sizes = -np.sort(-sizes)
    least = np.minimum(wanted // np.arange(1, sizes.size + 1), sizes)
    least[np.cumsum(sizes) < wanted] = 0
    return int(least.max())


def _evenly(parts: _Parts, least: int, wanted: int) -> list[tuple[int, int]]:
    """Return the slices of each domain: ``least``, and the remaining ones one by one."""
    given = np.full(parts.ids.size, least, dtype=np.int64)
    left = wanted - int(given.sum())
    while left > 0:
        open_ones = np.flatnonzero(given < parts.sizes)[:left]
        given[open_ones] += 1
        left -= open_ones.size
    return list(zip(parts.ids.tolist(), given.tolist(), strict=True))
