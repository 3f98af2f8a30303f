"""The tap: what every host says about each message it has handled."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One message's way: who sent it, who handled it, when, and what was decided.

    ``applications`` and ``decisions`` are parallel: one sentence an application. ``queued_ns`` is
    the time from publish to handling, ``handled_ns`` the time the handling took.
    """

    message_id: str
    cause_id: str
    correlation_id: str
    traceparent: str
    kind: str
    source: str
    destination: str
    published_ns: int
    queued_ns: int
    handled_ns: int
    applications: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceRecords:
    """Records of one host, in the order in which it handled the messages."""

    records: tuple[TraceRecord, ...] = ()
