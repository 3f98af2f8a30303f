"""The projections: pure machines from state events to the read models behind every answer."""

from services.api.projection.partitions import Projections
from services.api.projection.projection import Projection

__all__ = ["Projection", "Projections"]
