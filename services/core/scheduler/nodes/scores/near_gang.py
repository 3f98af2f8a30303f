"""Nodes near the members of a gang come first for one more of it, where it prefers a level."""

import numpy as np

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import Domains


class NearGang:
    """At how many preferred levels, and those above, a row is not where most members are."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains

    def matters(self, shape: Shape) -> bool:
        """Return whether an ask is of a gang that prefers a level."""
        if shape.bond is None:
            return False
        bond, part = shape.bond
        return any(each.topology.preferred for each in bond.chains[part])

    def of_rows(self, rows: Amounts, shape: Shape) -> Amounts:
        """Return how far some rows are from the members; less is better."""
        bond, part = shape.bond
        far = np.zeros(rows.size, dtype=np.int64)
        for tree, level, home in self._domains.homes_of(bond, part):
            far += tree.of_rows(level, rows) != home
        return far
