"""The tap: a record of every message that was handled, for the trace and for OpenTelemetry.

Heartbeats, ticks and the tap's own messages are not recorded. OpenTelemetry is used when an
exporter endpoint is configured and its packages are installed (the ``otel`` extra).
"""

import os
from typing import Any

from shared.messages.envelope import Envelope, Outgoing
from shared.messages.protocol import Heartbeat, Tick
from shared.messages.sections import contents_by_application
from shared.messages.state import SnapshotRequest, StateDelta
from shared.messages.trace import TraceRecord, TraceRecords

MAX_RECORDS = 2_000
MANY_RECORDS = 500
_UNTOLD = (Heartbeat, Tick, TraceRecords, StateDelta, SnapshotRequest)
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Tap:
    """The records of one host, until they are taken; beyond MAX_RECORDS they are dropped.

    They are due ``hold_ns`` after the first of them, or when there are MANY_RECORDS.
    """

    def __init__(self, service: str, *, is_on: bool, hold_ns: int = 0) -> None:
        self.service = service
        self.dropped = 0
        self.due_ns: int | None = None
        self._is_on = is_on
        self._hold_ns = hold_ns
        self._records: list[TraceRecord] = []
        self._tracer = _tracer(service) if os.environ.get(_ENDPOINT) else None

    def handled(
        self, envelope: Envelope, outgoing: list[Outgoing], now_ns: int, spent_ns: int
    ) -> None:
        """Record a message that a machine has handled, with what it answered."""
        message = envelope.message
        if not self._is_on or isinstance(message, _UNTOLD):
            return
        contents = contents_by_application(message)
        decisions = _decisions(outgoing)
        names = list(dict.fromkeys([*contents, *decisions]))
        record = TraceRecord(
            message_id=envelope.message_id,
            cause_id=envelope.cause_id,
            correlation_id=envelope.correlation_id,
            traceparent=envelope.traceparent,
            kind=envelope.kind,
            source=envelope.source,
            destination=self.service,
            published_ns=envelope.published_ns,
            queued_ns=max(0, now_ns - envelope.published_ns),
            handled_ns=spent_ns,
            applications=tuple(names),
            contents=tuple(contents.get(name, "") for name in names),
            decisions=tuple(decisions.get(name, "") for name in names),
        )
        self._add(record, now_ns)

    def flushed(
        self, cause: Envelope, outgoing: list[Outgoing], now_ns: int, spent_ns: int
    ) -> None:
        """Record what a machine decided at the end of a batch, under the batch's last message."""
        decisions = _decisions(outgoing)
        if not self._is_on or not decisions:
            return
        self._add(
            TraceRecord(
                message_id=cause.message_id,
                cause_id=cause.cause_id,
                correlation_id=cause.correlation_id,
                traceparent=cause.traceparent,
                kind="decision",
                source=self.service,
                destination=self.service,
                published_ns=cause.published_ns,
                queued_ns=max(0, now_ns - cause.published_ns),
                handled_ns=spent_ns,
                applications=tuple(decisions),
                contents=("",) * len(decisions),
                decisions=tuple(decisions.values()),
            ),
            now_ns,
        )

    def take(self) -> tuple[TraceRecord, ...]:
        """Return the records since the last call."""
        records, self._records = tuple(self._records), []
        self.due_ns = None
        return records

    def take_due(self, now_ns: int) -> tuple[TraceRecord, ...]:
        """Return the records if it is time that they are told."""
        is_due = self.due_ns is not None and self.due_ns <= now_ns
        return self.take() if is_due or len(self._records) >= MANY_RECORDS else ()

    def _add(self, record: TraceRecord, now_ns: int) -> None:
        if self.due_ns is None:
            self.due_ns = now_ns + self._hold_ns
        if self._tracer is not None:
            _export(self._tracer, record)
        if len(self._records) < MAX_RECORDS:
            self._records.append(record)
        else:
            self.dropped += 1


def _decisions(outgoing: list[Outgoing]) -> dict[str, str]:
    said: dict[str, list[str]] = {}
    for item in outgoing:
        if isinstance(item.message, _UNTOLD):
            continue
        for name, phrase in contents_by_application(item.message).items():
            said.setdefault(name, []).append(f"to {item.to.service}: {phrase}")
    return {name: "; ".join(phrases) for name, phrases in said.items()}


def _tracer(service: str) -> Any:
    """Return an OpenTelemetry tracer. Raises RuntimeError when the extra is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise RuntimeError(f"{_ENDPOINT} is set; install muster[otel] as well") from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"muster-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _providers.append(provider)
    return provider.get_tracer("muster")


_providers: list[Any] = []


def flush_spans() -> None:
    """Send the spans that wait, before the process ends."""
    for provider in _providers:
        provider.force_flush()


def _export(tracer: Any, record: TraceRecord) -> None:
    from opentelemetry.propagate import extract

    start_ns = record.published_ns + record.queued_ns
    span = tracer.start_span(
        f"{record.destination} {record.kind}",
        context=extract({"traceparent": record.traceparent}),
        start_time=start_ns,
        attributes={
            "messaging.system": "rabbitmq",
            "messaging.message.id": record.message_id,
            "messaging.message.conversation_id": record.correlation_id,
            "muster.queued_ns": record.queued_ns,
            "muster.applications": list(record.applications),
            "muster.decisions": list(record.decisions),
        },
    )
    span.end(end_time=start_ns + record.handled_ns)
