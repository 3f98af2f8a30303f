"""A score by the distance from a gang's members, for a gang that prefers a level."""

import numpy as np

from services.core.scheduler.model.shapes import Shape
from services.core.scheduler.nodes.columns import Amounts
from services.core.scheduler.nodes.domains import Domains


class NearGang:
    """The number of levels, preferred and above, at which a row is outside the gang's home."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains

    def matters(self, shape: Shape) -> bool:
        """Whether an ask's gang prefers a level."""
        if shape.gang_part is None:
            return False
        gang, part = shape.gang_part
        return any(each.topology.preferred for each in gang.chains[part])

    def of_rows(self, rows: Amounts, shape: Shape) -> Amounts:
        """Return the scores of some rows; less is better."""
        gang, part = shape.gang_part
        far = np.zeros(rows.size, dtype=np.int64)
        for tree, level, home in self._domains.homes_of(gang, part):
            far += tree.of_rows(level, rows) != home
        return far
