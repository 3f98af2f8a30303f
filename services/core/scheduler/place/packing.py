"""The order of domains and nodes under the policy kai, which places pods one by one.

Rule 1: of the domains of a level that fit all pods, the one whose topmost domain has the least
        capacity comes first, then by the next level, down to its own.
Rule 2: in a domain above the preferred level, the preferred domains with the most capacity come
        first, equal ones in reverse order of their names. The capacity is that before the first pod
        is placed.
Rule 3: each pod gets the best node of those by the configured score; if that packs, the node with
        the least remaining capacity (``nodes/scores/packing.py``).
Source: docs/rules/kai.md#scores-and-domains.
"""

from dataclasses import dataclass

import numpy as np

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import ResolvedTopology
from services.core.scheduler.place.domain_capacity import At, DomainCapacity


def is_packed(resolved: ResolvedTopology) -> bool:
    """Whether this order applies; slices, balance and unconstrained pods are spread by number."""
    return not (resolved.slices or resolved.is_balanced or resolved.is_unconstrained)


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The rank of each row by its preferred domain: a node score, lowest first."""

    by_row: Amounts

    def matters(self, _: Shape) -> bool:
        """Return True: nodes score differently."""
        return True

    def of_rows(self, rows: Amounts, _: Shape) -> Amounts:
        """Return the ranks of some rows."""
        return self.by_row[rows]


def ranks(resolved: ResolvedTopology, capacity: DomainCapacity, at: At) -> Ranks | None:
    """Return the ranks of a domain's rows (rule 2); None if all are equal."""
    level, tree = resolved.preferred, capacity.tree
    if level <= at[0]:
        return None
    room, paths = capacity.whole[level], tree.paths[level]
    known = sorted(tree.known(level), key=lambda each: (int(room[each]), paths[each]))
    place_of = np.full(len(paths) + 1, len(known), dtype=np.int64)  # the last: of no domain
    place_of[known] = np.arange(len(known))[::-1]
    return Ranks(place_of[tree.ids(level, capacity.raw[-1].size)])
