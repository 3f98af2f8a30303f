"""Exports steps as OpenTelemetry spans: the same tree and identities as in ``muster trace``.

A step is a span in the trace of each application it concerns, from publish to the end of handling,
with child spans for the wait and the handling. A step that concerns no application is a trace of
its own. Causes of a step other than its parent are links. The span of the submission is made by the
service that first sends the application to the core, and links to the trace of the submitter.
"""

from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from shared.messages.trace import ROOT_CAUSE, TraceRecord, causes_of, span_id, trace_id
from shared.model.ids import is_traceparent
from shared.runtime.steps import Closed

SUBMISSION = "submission"
_MOST_LINKED = 4  # applications of a causing step
_providers: list[TracerProvider] = []


def flush() -> None:
    """Export the pending spans."""
    for provider in _providers:
        provider.force_flush()


class _Ids(IdGenerator):
    """Returns the predetermined identity of the next span."""

    def __init__(self) -> None:
        self.next = SpanContext(0, 0, is_remote=False)

    def generate_trace_id(self) -> int:
        return self.next.trace_id

    def generate_span_id(self) -> int:
        return self.next.span_id


class Spans:
    """Exports the spans of one service to the collector that the environment names."""

    def __init__(self, service: str) -> None:
        self._ids = _Ids()
        resource = Resource.create({"service.name": f"muster-{service}"})
        provider = TracerProvider(resource=resource, id_generator=self._ids)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        _providers.append(provider)
        self._tracer = provider.get_tracer("muster")

    def export(self, closed: Sequence[Closed]) -> None:
        """Export the steps of a batch."""
        members = {done.record.message_id: done.record.applications for done in closed}
        for done in closed:
            record = done.record
            for at, name in enumerate(record.applications):
                if name in done.submitted:
                    self._submission(name, record)
                self._step(name, record, at, members)
            if not record.applications:
                self._alone(record)

    def _submission(self, name: str, record: TraceRecord) -> None:
        self._span(
            SUBMISSION,
            _context(name, ROOT_CAUSE),
            None,
            (record.published_ns, _start_ns(record) + record.handled_ns),
            attributes={"muster.application": name},
            links=[_incoming(record)] if is_traceparent(record.traceparent) else [],
        )

    def _step(
        self, name: str, record: TraceRecord, at: int, members: Mapping[str, tuple[str, ...]]
    ) -> None:
        parent, *others = causes_of(record, at)
        own = _context(name, record.message_id)
        start_ns = _start_ns(record)
        end_ns = start_ns + record.handled_ns
        attributes: dict[str, AttributeValue] = {
            **_attributes(record),
            "muster.application": name,
            "muster.contents": record.contents[at],
            "muster.decision": record.decisions[at],
            "muster.reason": record.reasons[at],
        }
        links = [
            context
            for other in others
            if other != ROOT_CAUSE
            for context in _led(name, other, members.get(other, (name,)))
        ]
        self._span(
            f"{record.destination} {record.kind}",
            own,
            _context(name, parent),
            (record.published_ns, end_ns),
            attributes=attributes,
            links=links,
        )
        if record.queued_ns:
            wait = _context(name, record.message_id, "wait")
            self._span("wait", wait, own, (record.published_ns, start_ns))
        handling = _context(name, record.message_id, "handling")
        self._span("handling", handling, own, (start_ns, end_ns))

    def _alone(self, record: TraceRecord) -> None:
        """Export a step that concerns no application."""
        end_ns = _start_ns(record) + record.handled_ns
        self._span(
            f"{record.destination} {record.kind}",
            _context(record.message_id, record.message_id),
            None,
            (record.published_ns, end_ns),
            attributes=_attributes(record),
            links=[_incoming(record)] if is_traceparent(record.traceparent) else [],
        )

    def _span(
        self,
        name: str,
        own: SpanContext,
        parent: SpanContext | None,
        times: tuple[int, int],
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        links: Sequence[SpanContext] = (),
    ) -> None:
        self._ids.next = own
        context = set_span_in_context(NonRecordingSpan(parent)) if parent is not None else None
        span = self._tracer.start_span(
            name,
            context=context,
            start_time=times[0],
            attributes=attributes,
            links=[Link(link) for link in links],
        )
        span.end(end_time=times[1])


def _start_ns(record: TraceRecord) -> int:
    return record.published_ns + record.queued_ns


def _attributes(record: TraceRecord) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "rabbitmq",
        "messaging.message.id": record.message_id,
        "messaging.message.conversation_id": record.correlation_id,
        "muster.source": record.source,
        "muster.queued_ns": record.queued_ns,
    }


def _context(name: str, step: str, part: str = "") -> SpanContext:
    return _made(trace_id(name), span_id(name, step, part))


def _incoming(record: TraceRecord) -> SpanContext:
    """Return the span context of an incoming message."""
    _, trace, span, _ = record.traceparent.split("-")
    return _made(trace, span)


def _led(name: str, step: str, members: tuple[str, ...]) -> list[SpanContext]:
    """Return a step's spans in an application's trace, else in those of its own applications."""
    if name in members:
        return [_context(name, step)]
    return [_context(other, step) for other in members[:_MOST_LINKED] or (step,)]


def _made(trace: str, span: str) -> SpanContext:
    return SpanContext(
        int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
