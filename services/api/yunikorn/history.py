"""YuniKorn's history answers (docs/rules/rest.md#history): the counts are texts there."""

from services.api.projection.history import History
from services.api.yunikorn.answers import Answer


def application_history(history: History) -> list[Answer]:
    """Return the samples of running applications."""
    return [
        {"timestamp": sample.time_ns, "totalApplications": str(sample.applications)}
        for sample in history.samples
    ]


def container_history(history: History) -> list[Answer]:
    """Return the samples of allocations."""
    return [
        {"timestamp": sample.time_ns, "totalContainers": str(sample.containers)}
        for sample in history.samples
    ]
