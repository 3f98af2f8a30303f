"""The last hour of a queue, user or group as an answer: amounts, waiting pods, evictions."""

from collections.abc import Iterable
from typing import Any

from services.api.projection.hour import EVERY_NS, Hour, UsePoint
from services.api.projection.model import Model
from shared.model.units import NANOS_PER_SECOND


def hour_of(hour: Hour, model: Model, path: str) -> dict[str, Any]:
    """Return a queue's points, the oldest first; those of ``root`` are the whole partition's."""
    return _answer(model, "queueName", path, hour.of(path))


def hour_of_user(hour: Hour, model: Model, name: str) -> dict[str, Any]:
    """Return a user's points, the oldest first; none where the user had no live application."""
    return _answer(model, "userName", name, hour.of_user(name))


def hour_of_group(hour: Hour, model: Model, name: str) -> dict[str, Any]:
    """Return a group's points, the oldest first; none where it had no live application."""
    return _answer(model, "groupName", name, hour.of_group(name))


def _answer(
    model: Model, key: str, name: str, found: Iterable[tuple[int, UsePoint]]
) -> dict[str, Any]:
    points = [
        {
            "time": time_ns,
            "allocated": dict(sorted(point.allocated.items())),
            "pending": dict(sorted(point.pending.items())),
            "max": point.most and dict(sorted(point.most.items())),
            "waiting": point.waiting,
            "evicted": point.evicted,
        }
        for time_ns, point in found
    ]
    every = EVERY_NS // NANOS_PER_SECOND
    return {**model.mark, key: name, "everySeconds": every, "points": points}
