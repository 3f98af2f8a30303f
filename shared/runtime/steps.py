"""The causes of a host's answers, for the trace. Pure.

A step is a handled message, or the decision of a batch: answers to several messages, and what is
decided at the end of the batch.

Rule 1: the cause of an answer to one message is that message. The cause of an answer to several
        messages, or of a batch's decision, is the decision: a step of its own.
Rule 2: in the trace of an application, the causes of a decision are the batch's messages about that
        application, the latest first. If there are none, the parent is the last known step about
        the decision's allocations and timers, else about the application; the batch's messages are
        further causes.
Rule 3: the same holds for a message about other applications or none, such as a tick. A user's
        command has the submission as its parent, and so has a step of which nothing is known.

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
    """One step of a host: a handled message, or a batch's decision (``is_decision``)."""

    step_id: str
    kind: str
    envelope: Envelope
    is_decision: bool = False
    spent_ns: int = 0
    contents: dict[str, str] = field(default_factory=dict)
    said: list[Outgoing] = field(default_factory=list)
    shared: list[Outgoing] = field(default_factory=list)  # its parts of merged answers

    @property
    def is_recorded(self) -> bool:
        """Whether it is recorded even without an effect."""
        return not self.is_decision and not isinstance(self.envelope.message, UNTOLD)


@dataclass(frozen=True, slots=True)
class Closed:
    """A finished step, and the applications that were submitted with it."""

    record: TraceRecord
    submitted: frozenset[str]


class Steps:
    """The steps of one host: those of the current batch, and the last one of each application."""

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
        """Record the decision at the end of a batch whose last message is ``last``; return it."""
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
        """Record a sent message and the parts that answer each cause; return its step."""
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
        """End the batch and return its recorded steps, in order."""
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
        """Return a step's causes in an application's trace; () stands for the message's cause."""
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
        """Return the last steps about the answer's allocations and timers, else its application."""
        found: dict[str, None] = {}
        for outgoing in chain(step.said, step.shared):
            for names, keys in subjects_of(outgoing.message):
                own = compress(keys, [other == name for other in names])
                found.update(dict.fromkeys(filter(None, map(self._subjects.get, own))))
        return found or {self._applications.get(name, ROOT_CAUSE): None}

    def _know(self, step: Step, record: TraceRecord) -> None:
        """Record a step as the last one of its applications, and of its allocations and timers."""
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
    """Yield the applications of merged answers that a step contributed to."""
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
