"""What-ifs (``what_if.py``), answered one at a time.

Rule 1: a what-if is answered on the partition as a cycle leaves it. With a ``ForecastWorker`` a
        copy of the process computes the answer while decisions continue; otherwise they wait.
Rule 2: while one is computed, others are refused. A recovering core refuses all.
Rule 3: forecast starts are compared with the actual ones (``forecasts.py``).
Limit: an answer that takes longer than MOST_NS is given up.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from services.core.scheduler.model.forecasts import Forecasts, Observe
from services.core.scheduler.model.rows import Application
from services.core.scheduler.policies import what_if
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.statement.partition import Partition
from shared.messages.envelope import Envelope, Outgoing, reply_address
from shared.messages.what_if import Forecast, WhatIf
from shared.model.units import milliseconds, seconds

MAX_QUESTIONS = 1
MOST_NS = seconds(12)  # an asker waits for 15 s
POLL_NS = milliseconds(10)  # between two polls of the answer
BUSY = "another what-if is being answered, or much is being placed: ask again in a moment"
RECOVERING = "the core is still reading what is in the cluster: ask again in a moment"
TOO_LONG = f"it was not answered within {MOST_NS // seconds(1)} s: ask about less"


class ForecastWorker(Protocol):
    """Computes one answer at a time on a copy of the present state."""

    def start(self, work: Callable[[], Forecast]) -> str:
        """Start without waiting; return "" or why it cannot start."""

    def poll(self) -> Forecast | None:
        """Return the answer, None while it is being computed."""

    def stop(self) -> None:
        """Stop, and drop the answer."""


@dataclass(slots=True)
class _Asked:
    """A what-if being computed: its deadline, and the waiting asks of its applications."""

    envelope: Envelope
    at_ns: int
    due_ns: int
    waiting: list[tuple[Application, list[str]]]


class Questions:
    """The what-ifs of a partition, and the record of forecast starts."""

    def __init__(
        self, worker: ForecastWorker | None = None, observe: Observe = lambda _which, _ns: None
    ) -> None:
        self._worker = worker
        self._taken: list[tuple[Envelope, PartitionConfig | None]] = []  # received in this batch
        self._asked: _Asked | None = None
        self.forecasts = Forecasts(observe)

    def take(self, envelope: Envelope, config: PartitionConfig | None) -> None:
        """Record a what-if; ``config`` is the configuration that it supposes."""
        if envelope.reply_to:
            self._taken.append((envelope, config))

    def next_due_ns(self, now_ns: int) -> int | None:
        """Return when to poll for the answer, None if none is being computed."""
        return now_ns + POLL_NS if self._asked is not None else None

    def refused(self, why: str) -> list[Outgoing]:
        """Return refusals of all recorded what-ifs."""
        taken, self._taken = self._taken, []
        return [refused(envelope, why) for envelope, _ in taken]

    def answers(self, partition: Partition, *, is_busy: bool) -> list[Outgoing]:
        """Return the available answers after a cycle; ``is_busy``: the cycle was cut."""
        if not self._taken and self._asked is None:
            return []
        taken, self._taken = self._taken, []
        found = self._finished(partition.now_ns)
        for number, (envelope, config) in enumerate(taken):
            if is_busy or number >= MAX_QUESTIONS or self._asked is not None:
                found.append(refused(envelope, BUSY))
            else:
                found += self._begun(partition, envelope, config)
        return found

    def _begun(
        self, partition: Partition, envelope: Envelope, config: PartitionConfig | None
    ) -> list[Outgoing]:
        question = envelope.message
        assert isinstance(question, WhatIf)
        named = (partition.applications.get(name) for name in question.when)
        waiting = [(each, [ask.key for ask in each.asks()]) for each in named if each is not None]
        asked = _Asked(envelope, partition.now_ns, partition.now_ns + MOST_NS, waiting)
        work = partial(what_if.forecast, partition, question, config)
        if self._worker is None:
            recorded = len(partition.journal)
            answer = work()
            assert len(partition.journal) == recorded
            return [self._answer(asked, answer)]
        why = self._worker.start(work)
        if why:
            return [refused(envelope, why)]
        self._asked = asked
        return []

    def _finished(self, now_ns: int) -> list[Outgoing]:
        """Return the computed answer, if there is one."""
        asked, worker = self._asked, self._worker
        if asked is None or worker is None:
            return []
        answer = worker.poll()
        if answer is None and now_ns < asked.due_ns:
            return []
        self._asked = None
        if answer is None:
            worker.stop()
            return [refused(asked.envelope, TOO_LONG)]
        return [self._answer(asked, answer)]

    def _answer(self, asked: _Asked, answer: Forecast) -> Outgoing:
        """Return the answer, corrected by past errors, and record its forecasts."""
        forecasts = self.forecasts
        told = {each.application_id: each for each in answer.applications}
        for application, keys in asked.waiting:
            each = told.get(application.id)
            if each is not None:
                start_ns, drawn_ns = each.expected_start_ns, each.latest_start_ns
                forecasts.remember(application, asked.at_ns, start_ns, drawn_ns, keys)
        corrected = tuple(
            replace(each, latest_start_ns=forecasts.corrected_ns(asked.at_ns, each.latest_start_ns))
            for each in answer.applications
        )
        return _answer(asked.envelope, replace(answer, applications=corrected))


def refused(asked: Envelope, why: str) -> Outgoing:
    """Return the answer that refuses a what-if."""
    return _answer(asked, Forecast(done=False, message=why))


def _answer(asked: Envelope, answer: Forecast) -> Outgoing:
    to = reply_address(asked.reply_to)
    assert to is not None
    return Outgoing(to, answer, reply_to=asked.reply_to)
