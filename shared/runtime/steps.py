"""The causes of a host's answers, for the trace. Pure.

A step is a message that was handled, or what was made of several: answers said together, and what
is decided at the end of a batch.

Rule 1: an answer to one message was led to by it. One that answers several, and what a batch
        decides, was led to by the batch's decision: a step of its own.
Rule 2: in the trace of an application such a decision was led to by the messages of the batch that
        are about the application, the latest first. Where none is, it hangs below what the host
        heard last of the allocations and timers it is about, else of the application; what the
        batch consists of led to it as well.
Rule 3: so is it with a message that is about others, or about none, as the passing of time is.
        A user's command hangs below the submission, and so does what nothing is known of.

Limits: MAX_KNOWN applications and as many allocations and timers, the oldest are forgotten;
MAX_CAUSES of a step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, compress, islice

from shared.messages.envelope import Envelope, Outgoing
from shared.messages.find_pod import FindPod
from shared.messages.interface import UpdateRequest
from shared.messages.protocol import Heartbeat, Tick
from shared.messages.sections import (
    applications_of,
    contents_by_application,
    reasons_by_application,
    subjects_of,
)
from shared.messages.state import SnapshotRequest, StateDelta
from shared.messages.trace import ROOT_CAUSE, TraceRecord, TraceRecords
from shared.messages.what_if import WhatIf
from shared.model.ids import derived_id
from shared.model.texts import is_writable

MAX_KNOWN = 20_000
MAX_CAUSES = 16
UNTOLD = (Heartbeat, Tick, TraceRecords, StateDelta, SnapshotRequest, WhatIf, FindPod)
DECISION = "decision"
_PEOPLE = "api"


@dataclass(slots=True)
class Step:
    """What a host did at once: the message it handled, or None for a batch's decision."""

    step_id: str
    kind: str
    envelope: Envelope
    is_decision: bool = False
    spent_ns: int = 0
    contents: dict[str, str] = field(default_factory=dict)
    said: list[Outgoing] = field(default_factory=list)
    shared: list[Outgoing] = field(default_factory=list)  # what a decision took up from it

    @property
    def is_recorded(self) -> bool:
        """Return whether it is recorded although it had no effect."""
        return not self.is_decision and not isinstance(self.envelope.message, UNTOLD)


@dataclass(frozen=True, slots=True)
class Closed:
    """A step that is over, and the applications that were submitted with it."""

    record: TraceRecord
    submitted: frozenset[str]


class Steps:
    """The steps of one host: of the batch in hand, and the last message of each application."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._open: dict[str, Step] = {}
        self._applications: dict[str, str] = {}
        self._subjects: dict[str, str] = {}

    def handled(self, envelope: Envelope, spent_ns: int) -> None:
        """Open a step for a message."""
        step = Step(envelope.message_id, envelope.kind, envelope, spent_ns=spent_ns)
        if step.is_recorded:
            step.contents = contents_by_application(envelope.message)
        self._open[step.step_id] = step

    def decided(self, said: list[Outgoing], last: Envelope, spent_ns: int) -> str:
        """Note what is decided at the end of the batch that ends with a message."""
        step = self._decision(last)
        step.said += said
        step.spent_ns += spent_ns
        return step.step_id

    def _decision(self, last: Envelope) -> Step:
        step_id = decision_id(self.service, last)
        step = self._open.get(step_id)
        if step is None:
            step = self._open[step_id] = Step(step_id, DECISION, last, is_decision=True)
        return step

    def note_sent(
        self, outgoing: Outgoing, parts: list[tuple[Outgoing, Envelope]], last: Envelope
    ) -> str:
        """Note what is sent, and what of it answers which message; return the step it is of."""
        causes = {cause.message_id for _, cause in parts}
        only = self._open.get(parts[0][1].message_id) if len(causes) == 1 else None
        if only is not None:
            only.said.append(outgoing)
            return only.step_id
        step = self._decision(last)
        step.said.append(outgoing)
        for part, cause in parts:
            from_message = self._open.get(cause.message_id)
            if from_message is not None:
                from_message.shared.append(part)
        return step.step_id

    def close(self, now_ns: int) -> list[Closed]:
        """End the batch: return its steps in order, as they are recorded."""
        steps, self._open = list(self._open.values()), {}
        about: dict[str, list[str]] = {}
        for step in steps:
            for name in dict.fromkeys([*step.contents, *_shared(step)]):
                about.setdefault(name, []).append(step.step_id)
        told = [step.step_id for step in steps if step.is_recorded]
        records = [self._record(step, about, told, now_ns) for step in steps]
        for step, record in zip(steps, records, strict=True):
            if record is not None:
                self._know(step, record)
        return [
            Closed(record, frozenset(_submitted(step)))
            for step, record in zip(steps, records, strict=True)
            if record is not None
        ]

    def _record(
        self, step: Step, about: dict[str, list[str]], told: list[str], now_ns: int
    ) -> TraceRecord | None:
        decisions, reasons = _decisions(step.said)
        if not decisions and not step.shared and not step.is_recorded:
            return None
        envelope = step.envelope
        if step.contents:
            reasons = reasons_by_application(envelope.message) | reasons
        names = [*filter(is_writable, dict.fromkeys([*step.contents, *decisions, *_shared(step)]))]
        published_ns = now_ns if step.is_decision else envelope.published_ns
        return TraceRecord(
            message_id=step.step_id,
            cause_id=ROOT_CAUSE if step.is_decision else envelope.cause_id,
            correlation_id=envelope.correlation_id,
            traceparent="" if step.is_decision else envelope.traceparent,
            kind=step.kind,
            source=self.service if step.is_decision else envelope.source,
            destination=self.service,
            published_ns=published_ns,
            queued_ns=max(0, now_ns - published_ns),
            handled_ns=step.spent_ns,
            applications=tuple(names),
            contents=tuple([step.contents.get(name, "") for name in names]),
            decisions=tuple([decisions.get(name, "") for name in names]),
            reasons=tuple([reasons.get(name, "") for name in names]),
            causes=tuple([self._causes(step, name, about, told) for name in names]),
            partition=envelope.partition,
        )

    def _causes(
        self, step: Step, name: str, about: dict[str, list[str]], told: list[str]
    ) -> tuple[str, ...]:
        """Return what led to a step in the trace of an application; () is the message's cause."""
        if name in step.contents:
            return ()
        own = about.get(name) if step.is_decision else None
        if own:
            return tuple(own[: -MAX_CAUSES - 1 : -1])
        found = self._known(step, name)
        if step.is_recorded and step.envelope.source == _PEOPLE:
            found = {ROOT_CAUSE: None} | found
        found |= dict.fromkeys(told if step.is_decision else ())
        found.pop(step.step_id, None)
        return tuple(islice(found, MAX_CAUSES))

    def _known(self, step: Step, name: str) -> dict[str, None]:
        """Return the last step about the items of an answer's application, else about itself."""
        found: dict[str, None] = {}
        for outgoing in chain(step.said, step.shared):
            for names, keys in subjects_of(outgoing.message):
                own = compress(keys, [other == name for other in names])
                found.update(dict.fromkeys(filter(None, map(self._subjects.get, own))))
        return found or {self._applications.get(name, ROOT_CAUSE): None}

    def _know(self, step: Step, record: TraceRecord) -> None:
        """Remember a step as the last one of its applications, and of what its message is about."""
        for name in record.applications:
            self._applications.pop(name, None)
            self._applications[name] = step.step_id
        if step.contents:
            for _, keys in subjects_of(step.envelope.message):
                self._subjects.update(dict.fromkeys(keys, step.step_id))
        _forget_oldest(self._applications)
        _forget_oldest(self._subjects)


def decision_id(service: str, last: Envelope) -> str:
    """Return the identity of the decision of the batch that ends with a message."""
    return derived_id(f"{DECISION}/{service}/{last.message_id}", 0)


def _shared(step: Step) -> Iterator[str]:
    """Yield the applications of what a decision took up from a step."""
    return chain.from_iterable(applications_of(part.message) for part in step.shared)


def _decisions(outgoing: Iterable[Outgoing]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the decisions on each application, with their reasons."""
    phrases: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    for item in outgoing:
        for name, phrase in contents_by_application(item.message).items():
            said = phrase or type(item.message).__name__
            phrases.setdefault(name, []).append(f"to {item.to.service}: {said}")
        for name, reason in reasons_by_application(item.message).items():
            if name in phrases and reason not in reasons.setdefault(name, []):
                reasons[name].append(reason)
    return (
        {name: "; ".join(items) for name, items in phrases.items()},
        {name: "; ".join(items) for name, items in reasons.items()},
    )


def _submitted(step: Step) -> Iterator[str]:
    """Yield the applications that a step submits."""
    for outgoing in chain(step.said, step.shared):
        if isinstance(outgoing.message, UpdateRequest):
            for item in outgoing.message.new_applications:
                if not item.state:
                    yield item.application_id


def _forget_oldest(known: dict[str, str]) -> None:
    while len(known) > MAX_KNOWN:
        del known[next(iter(known))]
