"""The projection: a pure machine from state events to the read model behind every answer."""

from services.api.projection.projection import Projection

__all__ = ["Projection"]
