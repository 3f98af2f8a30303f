"""The tap: what every host says about each step it took; and how steps make one trace.

A step is a message that was handled, or what a whole batch of them led to. Each belongs to the
trace of every application that it says something of, below the step that caused it there.

Identities follow from the names, so that every host knows those of the others: one trace an
application, with one root span, its submission.
"""

from dataclasses import dataclass

from shared.model.ids import derived_id
from shared.model.names import DEFAULT_PARTITION

ROOT_CAUSE = ""  # in place of a step: nothing but the submission itself


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One step: a message, its sender and time, the decision, and its causes.

    ``queued_ns`` is the time from publish to handling, ``handled_ns`` the time the handling took.
    What follows ``applications`` is parallel to it, up to ``causes``: the identities of steps, of
    which the first is the one that this hangs below; the others led to it as well; none is
    ``cause_id``. ``partition`` is that of the message.
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
    """Return what led to a step in the trace of its at-th application, the parent first."""
    return (record.causes[at] if record.causes else ()) or (record.cause_id,)


def trace_id(application_id: str) -> str:
    """Return the identity of an application's trace: 32 hex digits."""
    return derived_id(_sayable(f"trace/{application_id}"), 0)


def span_id(application_id: str, step: str, part: str = "") -> str:
    """Return the identity of a step's span in the trace of an application, or of a part of it.

    That of ROOT_CAUSE is the submission's, which every step can cite.
    """
    return derived_id(_sayable(f"{application_id}/{step}/{part}"), 1)[:16]


def traceparent_of(application_id: str, step: str) -> str:
    """Return the W3C traceparent of what follows from a step in the trace of an application."""
    return f"00-{trace_id(application_id)}-{span_id(application_id, step)}-01"


def _sayable(text: str) -> str:
    """Return a text that can be encoded, also of a name that no message can carry."""
    return text.encode(errors="backslashreplace").decode()
