"""The progress of applications, for `muster apps` and the live table."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from services.api.projection.model import ApplicationView, Model
from services.api.views.pods import pods_of
from services.api.yunikorn.answers import application_info, by_name, queue_info
from shared.model.names import ROOT
from shared.model.sentences import plain_text

_MOST_REASONS = 5


def application_progress(model: Model, view: ApplicationView) -> dict[str, Any]:
    """Return an application's progress in numbers, and why its asks wait."""
    summary = view.summary
    held = sum(item.placeholder for item in view.allocations.values())
    return {
        "applicationID": summary.application_id,
        "queueName": summary.queue_name,
        "user": summary.user,
        "state": summary.state,
        "message": summary.text,
        "notes": summary.note_lines,
        "placeholders": {
            "wanted": sum(group.count for group in summary.placeholders),
            "held": held,
            "replaced": sum(group.replaced for group in summary.placeholders),
            "timedout": sum(group.timedout for group in summary.placeholders),
        },
        "running": len(view.allocations) - held,
        "pending": len(view.asks),
        "waiting": _reasons(model, view),
        "hasEnded": view.has_ended,
        "submissionTime": summary.submission_time_ns,
        "finishedTime": summary.finished_time_ns,
        **model.mark,
    }


def _reasons(model: Model, *views: ApplicationView) -> list[dict[str, Any]]:
    """Return why asks wait, the most frequent first: each reason with numbers and count."""
    counts: Counter[tuple[str, str]] = Counter()
    for view in views:
        for ask in view.asks.values():
            waiting = model.why(view, ask)
            if waiting is not None:
                counts[waiting.reason, waiting.text] += 1
    return [
        {"reason": reason, "message": message, "asks": count}
        for (reason, message), count in counts.most_common(_MOST_REASONS)
    ]


def all_progress(models: Iterable[Model]) -> list[dict[str, Any]]:
    """Return the progress of every application, ended ones by their latest submission."""
    found = [(model, view) for model in models for view in _latest(model)]
    found.sort(key=lambda item: item[1].summary.submission_time_ns)
    return [application_progress(model, view) for model, view in found]


def _latest(model: Model) -> Iterable[ApplicationView]:
    latest = {key[0]: view for key, view in model.ended.items()}
    latest.update(model.applications)
    return latest.values()


def application_detail(model: Model, view: ApplicationView) -> dict[str, Any]:
    """Return an application's progress and its whole YuniKorn answer."""
    return {
        **application_progress(model, view),
        "pods": pods_of(model, view),
        "application": application_info(model, view),
        "groups": [
            {
                "name": group.task_group_name,
                "wanted": group.count,
                "held": group.allocated,
                "replaced": group.replaced,
                "timedout": group.timedout,
            }
            for group in view.summary.placeholders
        ],
    }


def configuration(model: Model) -> dict[str, Any]:
    """Return the queue configuration in use, and the error of the last refused one."""
    partition = model.partition
    assert partition is not None
    return {
        "checksum": partition.config_checksum,
        "text": model.configuration.text if model.configuration is not None else "",
        "scheduler": dict(model.configuration.extra) if model.configuration is not None else {},
        "since": partition.state_time_ns,
        "error": plain_text(partition.config_error),
        "warnings": list(partition.config_warnings),
        "plugins": list(partition.plugins),
    }


def outstanding(models: Iterable[Model]) -> list[dict[str, Any]]:
    """Return the asks that more nodes would help, for autoscalers; none short of quota."""
    return [
        {
            "allocationKey": ask.allocation_key,
            "applicationID": ask.application_id,
            "resource": dict(ask.resource),
            "priority": ask.priority,
            **model.mark,
        }
        for model in models
        for ask in model.outstanding()
    ]


def over_time(model: Model, path: str) -> dict[str, Any]:
    """Return the counted usage over time of a queue, and of a leaf's users."""
    queue = model.queues[path]
    found: dict[str, Any] = {}
    if queue.used_ppm:
        found["usedOverTime"] = shares_of(queue.used_ppm)
    if queue.fair_share is not None:
        found["weightOverQuota"] = shares_of(queue.weight_ppm)
        found["fairShare"] = by_name(queue.fair_share)
    users = {
        user.name: shares_of(user.usage[queue.path].used_ppm)
        for user in model.users.values()
        if queue.is_leaf and queue.path in user.usage and user.usage[queue.path].used_ppm
    }
    return {**found, "usersOverTime": users} if users else found


def shares_of(ppm: Mapping[str, int]) -> dict[str, float]:
    """Convert millionths by type to fractions, ordered by type."""
    return {name: value / 1_000_000 for name, value in sorted(ppm.items())}


def queue_tree(model: Model) -> dict[str, Any]:
    """Return the tree in YuniKorn's format, with what blocks each leaf."""
    by_leaf: dict[str, list[ApplicationView]] = {}
    for view in model.applications.values():
        by_leaf.setdefault(view.summary.queue_name, []).append(view)

    def add_waits(info: dict[str, Any]) -> dict[str, Any]:
        children = [add_waits(child) for child in info.get("children", [])]
        own = _reasons(model, *by_leaf.get(info["queuename"], ())) if info["isLeaf"] else []
        return {**info, **over_time(model, info["queuename"]), "children": children, "waiting": own}

    return add_waits(queue_info(model, ROOT, subtree=True, partition=model.name))
