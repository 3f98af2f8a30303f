"""Usage over time of a queue, or of a user by queue, together with current usage.

Every share is a part of the partition's capacity of a type, from 0 to 1. The usage is decayed by
the scheduler settings ``usageHalfLife`` and ``usageWindow``; without either nothing is counted, and
there are no rows.
"""

from collections.abc import Mapping
from typing import Any

from services.api.projection.model import Model
from services.api.views.progress import over_time, shares_of
from services.api.yunikorn.answers import by_name


def queue_usage(model: Model, path: str) -> dict[str, Any]:
    """Return the usage of one queue: a row, or none if it is not counted or unknown."""
    queue = model.queues.get(path)
    row = over_time(model, path) if queue is not None else {}
    if queue is None or not row:
        return _answer(model, [])
    return _answer(model, [{**_row(model, path, queue.allocated), **row}])


def user_usage(model: Model, name: str) -> dict[str, Any]:
    """Return the usage of one user, a row for each queue where it is counted, by path."""
    user = model.users.get(name)
    rows = [
        {
            **_row(model, path, usage.usage),
            "usedOverTime": shares_of(usage.used_ppm),
        }
        for path, usage in sorted(user.usage.items() if user is not None else ())
        if usage.used_ppm
    ]
    return _answer(model, rows)


def _row(model: Model, path: str, held: Mapping[str, int]) -> dict[str, Any]:
    capacity = model.partition.capacity if model.partition is not None else {}
    shares = {name: value / capacity[name] for name, value in held.items() if capacity.get(name)}
    return {"queueName": path, "used": by_name(held), "usedNow": dict(sorted(shares.items()))}


def _answer(model: Model, rows: list[dict[str, Any]]) -> dict[str, Any]:
    extra = model.configuration.extra if model.configuration is not None else {}
    return {
        **model.mark,
        "usageHalfLife": extra.get("usageHalfLife", ""),
        "usageWindow": extra.get("usageWindow", ""),
        "queues": rows,
    }
