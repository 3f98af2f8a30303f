"""How far applications are: what `muster apps` and the live table show."""

from collections import Counter
from typing import Any

from services.api.projection.model import ApplicationView, Model
from services.api.ws_v1 import application_info
from shared.messages.trace import TraceRecord
from shared.model.units import NANOS_PER_MILLI

_MOST_REASONS = 5


def application_progress(model: Model, view: ApplicationView) -> dict[str, Any]:
    """Return an application's progress in numbers, and what its asks wait for."""
    summary = view.summary
    held = sum(item.placeholder for item in view.allocations.values())
    return {
        "applicationID": summary.application_id,
        "queueName": summary.queue_name,
        "state": summary.state,
        "message": summary.rejected_message or summary.message,
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
    }


def _reasons(model: Model, view: ApplicationView) -> list[dict[str, Any]]:
    """Return each reason that asks wait for, with how many do and the numbers behind it."""
    counts: Counter[tuple[str, str]] = Counter()
    for ask in view.asks.values():
        waiting = model.why(view, ask)
        if waiting is not None:
            counts[waiting.reason, waiting.message] += 1
    return [
        {"reason": reason, "message": message, "asks": count}
        for (reason, message), count in counts.most_common(_MOST_REASONS)
    ]


def all_progress(model: Model) -> list[dict[str, Any]]:
    """Return the progress of every application, ended ones by their latest submission."""
    latest = {key[0]: view for key, view in model.ended.items()}
    latest.update(model.applications)
    views = sorted(latest.values(), key=lambda view: view.summary.submission_time_ns)
    return [application_progress(model, view) for view in views]


def application_detail(model: Model, view: ApplicationView) -> dict[str, Any]:
    """Return an application's progress and its whole YuniKorn answer."""
    return {
        **application_progress(model, view),
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


def trace_entry(record: TraceRecord, application_id: str) -> dict[str, Any]:
    """Return a record as one line of an application's story."""
    at = record.applications.index(application_id)
    return {
        "time": record.published_ns + record.queued_ns,
        "message": record.kind,
        "from": record.source,
        "to": record.destination,
        "queuedMs": round(record.queued_ns / NANOS_PER_MILLI, 3),
        "handledMs": round(record.handled_ns / NANOS_PER_MILLI, 3),
        "contents": record.contents[at],
        "decision": record.decisions[at],
        "messageID": record.message_id,
        "causeID": record.cause_id,
        "correlationID": record.correlation_id,
        "traceparent": record.traceparent,
    }
