"""The API's machine: the projections, and requests to other services with their answers."""

import asyncio
from itertools import count
from uuid import uuid4

from services.api.projection import Projections
from services.api.yunikorn.event_stream import EventStreams
from shared.messages.commands import CommandResult, SubmitResult
from shared.messages.dead_letters import DeadLettersReplayed, ReplayDeadLetters
from shared.messages.envelope import SHIM_ADAPTER, Address, Envelope, Outgoing, core_of
from shared.messages.find_pod import FindPod, PodFound
from shared.messages.protocol import AtWork, Heartbeat, Partitions
from shared.messages.state import StateDelta
from shared.messages.trace import TraceRecords
from shared.messages.what_if import Forecast, WhatIf
from shared.model.names import DEFAULT_PARTITION
from shared.runtime.host import Host

ANSWER_TIMEOUT_SECONDS = 15.0
MAX_WAITING_REQUESTS = 1_000
_ANSWERS = (CommandResult, SubmitResult, Forecast, PodFound, DeadLettersReplayed)
_EVENTS = (StateDelta, TraceRecords, Heartbeat, AtWork, Partitions)

_NO_CORE = "no core is at work, or it is still recovering; nothing was changed"
_NO_SHIM = "the core knows no such pod, and no shim adapter is available to look for it"
_NO_OWNER = "they can be replayed when their service is active"
_LATER = {WhatIf: _NO_CORE, FindPod: _NO_SHIM, ReplayDeadLetters: _NO_OWNER}
_STAYS = "the request stays on the bus and is carried out when the shim adapter reads it"


class NoAnswerError(TimeoutError):
    """The other service did not answer in time; the request may still be carried out."""


class UnsendableError(ValueError):
    """A request contains something that cannot be sent; the error names it."""


class TooManyRequestsError(RuntimeError):
    """Too many requests wait for an answer on this replica."""


class ApiMachine:
    """The machine of one replica. ``ask`` sends a command and returns its answer."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.uuid = str(uuid4())  # of this machine's numbers, of events and of requests
        self.partitions = Projections(instance)
        self.streams = EventStreams()
        self._waiting: dict[str, asyncio.Future[object]] = {}
        self._numbers = count(1)

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        """Apply an event, deliver an answer to its request, or send a request to its service."""
        message = envelope.message
        if isinstance(message, _ANSWERS):
            waiting = self._waiting.pop(envelope.reply_to, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            return []
        if envelope.source == "api" and not isinstance(message, _EVENTS):
            is_for_core = isinstance(message, WhatIf) and not message.documents
            where = envelope.partition
            to = core_of(where) if is_for_core else SHIM_ADAPTER
            if isinstance(message, ReplayDeadLetters):
                to = Address(*message.inbox.split(".", 1))
            return [Outgoing(to, message, reply_to=envelope.reply_to, partition=where)]
        told = self.partitions.events.next_id
        outgoing = self.partitions.handle(envelope, now_ns)
        if self.partitions.events.next_id != told:
            self.streams.wake()
        return outgoing

    def on_unsendable(
        self, envelope: Envelope, item: object, reason: str, _: int
    ) -> list[Outgoing]:
        """Fail a request that could not be sent."""
        waiting = self._waiting.pop(envelope.reply_to, None) if item is None else None
        if waiting is not None and not waiting.done():
            waiting.set_exception(UnsendableError(reason))
        return []

    @property
    def is_ready(self) -> bool:
        """Whether the read model of every partition follows its core."""
        return not self.partitions.waiting

    def figures(self) -> dict[str, int | dict[str, int]]:
        """Return the replica's figures for metrics."""
        return {
            "epoch": {item.partition: item.epoch for item in self.partitions},
            "is_synced": int(self.is_ready),
            "requests_waiting": len(self._waiting),
            "event_streams": len(self.streams.open),
        }

    def next_due_ns(self) -> int | None:
        """Return when a projection has timed work, or None."""
        return self.partitions.next_due_ns()

    async def ask(
        self,
        host: Host,
        message: object,
        traceparent: str = "",
        partition: str = DEFAULT_PARTITION,
    ) -> object:
        """Send a command, or a request about a partition, and wait for its answer.

        Raises NoAnswerError when none arrives within ANSWER_TIMEOUT_SECONDS, TooManyRequestsError
        when too many already wait, UnsendableError when it cannot be sent.
        """
        if len(self._waiting) >= MAX_WAITING_REQUESTS:
            raise TooManyRequestsError(f"{MAX_WAITING_REQUESTS} requests wait for an answer")
        reply_to = f"api.{self.instance}#{self.uuid}-{next(self._numbers)}"
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[reply_to] = future
        try:
            await host.inject(
                message, reply_to=reply_to, traceparent=traceparent, partition=partition
            )
            return await asyncio.wait_for(future, ANSWER_TIMEOUT_SECONDS)
        except TimeoutError:
            later = _LATER.get(type(message), _STAYS)
            raise NoAnswerError(f"no answer within {ANSWER_TIMEOUT_SECONDS:g} s; {later}") from None
        finally:
            self._waiting.pop(reply_to, None)
