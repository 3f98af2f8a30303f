"""The last hour of a queue as an answer: amounts, pods that waited, evictions, point by point."""

from typing import Any

from services.api.projection.hour import EVERY_NS, Hour
from services.api.projection.model import Model
from shared.model.units import NANOS_PER_SECOND


def hour_of(hour: Hour, model: Model, path: str) -> dict[str, Any]:
    """Return a queue's points, the oldest first; those of ``root`` are the whole partition's."""
    points = [
        {
            "time": time_ns,
            "allocated": dict(sorted(point.allocated.items())),
            "pending": dict(sorted(point.pending.items())),
            "max": point.most and dict(sorted(point.most.items())),
            "waiting": point.waiting,
            "evicted": point.evicted,
        }
        for time_ns, point in hour.of(path)
    ]
    every = EVERY_NS // NANOS_PER_SECOND
    return {**model.mark, "queueName": path, "everySeconds": every, "points": points}
