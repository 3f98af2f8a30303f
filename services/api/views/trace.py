"""An application's trace as an answer: its submission, and below it every step."""

from typing import Any

from services.api.projection.stories import StoryStep
from shared.messages.trace import ROOT_CAUSE, span_id, trace_id, traceparent_of
from shared.model.units import NANOS_PER_MILLI

SUBMISSION = "submission"


def trace_entries(story: list[StoryStep], application_id: str) -> list[dict[str, Any]]:
    """Return the trace: the root, then its steps in order."""
    first = story[0].record
    root = {
        "time": first.published_ns,
        "message": SUBMISSION,
        "from": first.source,
        "to": first.destination,
        "queuedMs": 0.0,
        "handledMs": 0.0,
        "contents": "",
        "decision": "",
        "reason": "",
        "messageID": "",
        "causeID": None,
        "links": [],
        "depth": 0,
        "correlationID": application_id,
        "traceparent": traceparent_of(application_id, ROOT_CAUSE),
        "traceID": trace_id(application_id),
        "spanID": span_id(application_id, ROOT_CAUSE),
        "parentSpanID": "",
    }
    return [root, *(_entry(step, application_id) for step in story)]


def _entry(step: StoryStep, application_id: str) -> dict[str, Any]:
    record, at = step.record, step.at
    return {
        "time": record.published_ns + record.queued_ns,
        "message": record.kind,
        "from": record.source,
        "to": record.destination,
        "queuedMs": round(record.queued_ns / NANOS_PER_MILLI, 3),
        "handledMs": round(record.handled_ns / NANOS_PER_MILLI, 3),
        "contents": record.contents[at],
        "decision": record.decisions[at],
        "reason": record.reasons[at] if record.reasons else "",
        "messageID": record.message_id,
        "causeID": step.parent,
        "links": list(step.links),
        "depth": step.depth,
        "correlationID": record.correlation_id,
        "traceparent": traceparent_of(application_id, record.message_id),
        "traceID": trace_id(application_id),
        "spanID": span_id(application_id, record.message_id),
        "parentSpanID": span_id(application_id, step.parent),
    }
