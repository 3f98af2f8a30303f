"""The tap: records every step of a host, for the trace and for OpenTelemetry.

Heartbeats, ticks and the tap's own messages are recorded only if they had an effect. Messages to
the API's read model are not recorded. OpenTelemetry is used if an exporter endpoint is configured;
its packages (the ``otel`` extra) must be installed then.
"""

import os
from typing import TYPE_CHECKING

from shared.messages.envelope import Envelope, Outgoing
from shared.messages.trace import TraceRecord
from shared.runtime.steps import UNTOLD, Steps

if TYPE_CHECKING:
    from shared.runtime.spans import Spans

MAX_RECORDS = 2_000
MANY_RECORDS = 500
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Tap:
    """The records of one host until they are taken; beyond MAX_RECORDS they are dropped.

    They are due ``hold_ns`` after the first of them, or when there are MANY_RECORDS.
    """

    def __init__(self, service: str, *, is_on: bool, hold_ns: int = 0) -> None:
        self.service = service
        self.dropped = 0
        self.due_ns: int | None = None
        self._is_on = is_on
        self._hold_ns = hold_ns
        self._steps = Steps(service)
        self._records: list[TraceRecord] = []
        self._spans = _spans(service) if is_on and os.environ.get(_ENDPOINT) else None

    def handled(self, envelope: Envelope, spent_ns: int) -> None:
        """Record a handled message."""
        if self._is_on:
            self._steps.handled(envelope, spent_ns)

    def note_sent(
        self, outgoing: Outgoing, parts: list[tuple[Outgoing, Envelope]], last: Envelope
    ) -> str:
        """Record a sent message with its parts and their causes; return its step."""
        if not self._is_on or isinstance(outgoing.message, UNTOLD):
            return parts[0][1].message_id
        return self._steps.note_sent(outgoing, parts, last)

    def decided(self, outgoing: list[Outgoing], last: Envelope, spent_ns: int) -> str:
        """Record the decision at the end of a batch; return its step."""
        told = [item for item in outgoing if not isinstance(item.message, UNTOLD)]
        if not self._is_on or not told:
            return last.message_id
        return self._steps.decided(told, last, spent_ns)

    def close(self, now_ns: int) -> None:
        """End a batch: turn its steps into records and spans."""
        closed = self._steps.close(now_ns)
        if self._spans is not None:
            self._spans.export(closed)
        for done in closed:
            self._add(done.record, now_ns)

    def take(self) -> tuple[TraceRecord, ...]:
        """Return the records since the last call."""
        records, self._records = tuple(self._records), []
        self.due_ns = None
        return records

    def take_due(self, now_ns: int) -> tuple[TraceRecord, ...]:
        """Return the records if it is time to publish them."""
        is_due = self.due_ns is not None and self.due_ns <= now_ns
        return self.take() if is_due or len(self._records) >= MANY_RECORDS else ()

    def _add(self, record: TraceRecord, now_ns: int) -> None:
        if self.due_ns is None:
            self.due_ns = now_ns + self._hold_ns
        if len(self._records) < MAX_RECORDS:
            self._records.append(record)
        else:
            self.dropped += 1


def _spans(service: str) -> "Spans":
    """Return the span exporter. Raises RuntimeError if the extra is not installed."""
    try:
        from shared.runtime.spans import Spans
    except ImportError as error:
        raise RuntimeError(f"{_ENDPOINT} is set; install muster[otel] as well") from error
    return Spans(service)


def flush_spans() -> None:
    """Export the pending spans, before the process ends."""
    if os.environ.get(_ENDPOINT):
        from shared.runtime.spans import flush

        flush()
