"""Regions: the domains that a group of pods may use, in the order to try them.

Rule 1: at a required level, pods join the domain of the existing members, and partly filled slices
        are filled first. At a preferred level they join the domain with most members if they fit,
        else the one above it.
Rule 2: a domain must fit all pods of each shape; the order is that of ``spread.py``, under the
        policy kai that of ``packing.py``. The caller's ``places`` count idle capacity, or that plus
        capacity being released.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from services.core.scheduler.model.rows import Node
from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts, Mask
from services.core.scheduler.nodes.domains import EVERYWHERE, Domains, ResolvedTopology
from services.core.scheduler.place import packing, spread
from services.core.scheduler.place.domain_capacity import ALL, At, Share, capacity_of
from services.core.scheduler.place.packing import Ranks

MAX_SEARCHED = 32  # domains searched for victims of one gang; the others are not tried
Gaps = tuple[int, dict[int, int]]  # partly filled slices: the level, and how many pods each lacks
Places = Callable[[Shape, Mask | None], Amounts]  # how many pods of a shape fit on each row


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A domain for pods: its rows (None: all), and the topology constraint that selected it."""

    rows: Mask | None = None
    topology: ResolvedTopology | None = None
    at: At = ALL
    gaps: Gaps | None = None
    is_packed: bool = False  # pods are placed one by one, by rank and node order
    before: tuple[Ranks, ...] = ()  # these ranks, if any
    homes: tuple[At, ...] = ()  # domains with most members, at a preferred level and above
    begin: Node | None = None  # the first pod's node, if the others are to be near it


def at_home(
    domains: Domains,
    resolved: ResolvedTopology,
    members: Mapping[Node, int],
    within: Region,
    count: int,
) -> Region:
    """Return the region that existing members leave to ``count`` pods, with the gaps to fill."""
    rows = within.rows
    if not members:
        return Region(rows)
    if resolved.required != EVERYWHERE:
        home = domains.home(resolved.tree, resolved.required, members)
        if home is not None:
            rows = _rows_of(domains, resolved, (resolved.required, home), rows)
    homes = tuple(domains.homes(resolved, members))
    if not resolved.slices:
        return Region(rows, homes=homes)
    level, size = resolved.slices[-1]
    there = domains.counts(resolved.tree, level, members)
    gaps = {at: size - number % size for at, number in there.items() if number % size}
    begun = (level, gaps) if 0 < count <= sum(gaps.values()) else None
    return Region(rows, gaps=begun, homes=homes)


def regions(
    domains: Domains,
    resolved: ResolvedTopology,
    counts: Mapping[Shape, int],
    places: Places,
    within: Region,
    *,
    is_kai: bool,
    is_alike: bool = False,
) -> Iterator[Region]:
    """Yield the domains that fit each shape of a group, the tightest for the first shape first.

    If all pods to be placed are equal (``is_alike``), domains equal to one that failed are skipped.
    """
    rows, gaps = within.rows, within.gaps
    held = [
        (capacity_of(resolved, places(shape, rows), gaps), count) for shape, count in counts.items()
    ]
    if not held:
        return
    (first, count), *others = held
    is_packed = is_kai and packing.is_packed(resolved)
    failed: set[object] = set()
    candidates = spread.candidates(resolved, first, count, from_the_top=is_kai)
    at_home = (at for at in within.homes if first.of(at) >= count)
    for at in chain(at_home, candidates):
        if failed and first.pattern(at) in failed:
            continue
        if all(capacity.of(at) >= number for capacity, number in others):
            ranks = packing.ranks(resolved, first, at) if is_packed else None
            own = _rows_of(domains, resolved, at, rows)
            yield Region(own, resolved, at, gaps, is_packed, () if ranks is None else (ranks,))
            if is_alike:
                failed.add(first.pattern(at))


def searched(
    domains: Domains,
    resolved: ResolvedTopology,
    counts: Mapping[Shape, int],
    places: tuple[Places, Places],
    members: Mapping[Node, int],
) -> list[Mask]:
    """Return the rows of the required level's domains in which to search for victims.

    Only domains that could fit all pods if they were empty, those with the fewest missing places
    first, at most MAX_SEARCHED. ``places`` counts those of empty nodes and the expected ones.
    Existing members leave only their domain; partly filled slices are not counted in whole ones.
    """
    level, tree = resolved.required, resolved.tree
    at_home = domains.home(tree, level, members) if members else None
    lacks = dict.fromkeys(tree.known(level) if at_home is None else [at_home], 0)
    for shape, count in counts.items():
        most, now = (capacity_of(resolved, each(shape, None)).whole[level] for each in places)
        if members:
            most = np.maximum(most, count)
        for at in [at for at in lacks if most[at] < count]:
            del lacks[at]
        for at in lacks:
            lacks[at] += max(0, count - int(now[at]))
    found = sorted(lacks, key=lambda at: (lacks[at], tree.paths[level][at]))
    return [domains.rows_in(tree, level, at) for at in found[:MAX_SEARCHED]]


def shared_out(region: Region, shape: Shape, places: Places, count: int) -> Share:
    """Return how many pods go to which rows of a region, at most as many as fit."""
    assert region.topology is not None
    capacity = capacity_of(region.topology, places(shape, region.rows), region.gaps)
    held = min(count, capacity.of(region.at))
    return spread.fill(region.topology, capacity, region.at, held) if held else []


def _rows_of(
    domains: Domains, resolved: ResolvedTopology, at: At, rows: Mask | None
) -> Mask | None:
    level, number = at
    if level == EVERYWHERE:
        return rows
    own = domains.rows_in(resolved.tree, level, number)
    return own if rows is None else own & rows
