"""The trace: records of every step of every host, and how steps form a trace.

A step is a handled message, or the decision of a batch. It belongs to the trace of every
application that it concerns, below the step that caused it there.

Identities are derived from names, so that every host can compute those of the others: one trace per
application, with its submission as the root span.
"""

from dataclasses import dataclass

from shared.model.ids import derived_id
from shared.model.names import DEFAULT_PARTITION

ROOT_CAUSE = ""  # stands for the submission


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One step: a message, its sender and time, the decision, and its causes.

    ``queued_ns`` is the time from publish to handling, ``handled_ns`` the handling time.
    ``contents`` to ``causes`` are parallel to ``applications``. ``causes`` are identities of steps:
    the first is the parent, the others are further causes; () stands for ``cause_id``.
    ``partition`` is that of the message.
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
    reasons: tuple[str, ...] = ()
    causes: tuple[tuple[str, ...], ...] = ()
    partition: str = DEFAULT_PARTITION


@dataclass(frozen=True, slots=True)
class TraceRecords:
    """Records of one host, in the order in which it handled the messages."""

    records: tuple[TraceRecord, ...] = ()


def causes_of(record: TraceRecord, at: int) -> tuple[str, ...]:
    """Return a step's causes in the trace of its at-th application, the parent first."""
    return (record.causes[at] if record.causes else ()) or (record.cause_id,)


def trace_id(application_id: str) -> str:
    """Return the identity of an application's trace: 32 hex digits."""
    return derived_id(_sayable(f"trace/{application_id}"), 0)


def span_id(application_id: str, step: str, part: str = "") -> str:
    """Return the identity of a step's span, or of a part of it, in an application's trace.

    That of ROOT_CAUSE is the submission's, which every step can refer to.
    """
    return derived_id(_sayable(f"{application_id}/{step}/{part}"), 1)[:16]


def traceparent_of(application_id: str, step: str) -> str:
    """Return the W3C traceparent for messages caused by a step of an application's trace."""
    return f"00-{trace_id(application_id)}-{span_id(application_id, step)}-01"


def _sayable(text: str) -> str:
    """Make a text encodable, also if it contains lone surrogates."""
    return text.encode(errors="backslashreplace").decode()
